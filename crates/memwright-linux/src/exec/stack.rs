//! The initial stack of a program: arguments, environment and auxiliary vector.

use super::Strings;
use alloc::vec::Vec;
use linux_raw_sys::auxvec as at;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::sync::pause_point;
use memwright_linux_tasks::process::{ImageAddresses, RESTARTABLE_ALIGNMENT, RESTARTABLE_SIZE};
use memwright_linux_vfs::identity::Credentials;
use memwright_table::{OutOfMemory, TryPush};

/// The values of the auxiliary vector.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The value of `AT_HWCAP`: EDX of CPUID leaf 1.
    pub hardware: u64,
    /// Address of the program headers.
    pub headers: u64,
    /// Number of program headers.
    pub header_count: u64,
    /// Load address of the interpreter; 0 if there is none.
    pub interpreter_base: u64,
    /// Address of the first instruction of the program itself.
    pub entry: u64,
    /// Minimum size of a signal stack in bytes.
    pub signal_stack: u64,
    /// The credentials of the program.
    pub credentials: Credentials,
    /// The 16 random bytes to which `AT_RANDOM` points.
    pub random: [u8; 16],
}

/// The contents of an initial stack.
#[derive(Clone, Copy)]
pub struct Contents<'a> {
    /// The path that was executed.
    pub path: &'a [u8],
    /// Argument strings.
    pub arguments: &'a Strings,
    /// Environment strings.
    pub environment: &'a Strings,
    /// The values of the auxiliary vector.
    pub facts: &'a Facts,
}

/// The layout of an initial stack.
#[derive(Clone, Debug)]
pub struct StackPlan {
    /// Initial stack pointer. This is the lowest address that the contents occupy.
    pub pointer: u64,
    /// The first address after the stack.
    pub top: u64,
    /// The addresses of the arguments, of the environment and of the stack.
    pub addresses: ImageAddresses,
    /// The auxiliary vector, as `/proc/PID/auxv` returns it.
    pub auxiliary: Vec<u8>,
    /// Address of the platform string.
    platform: u64,
    /// Address of the random bytes.
    random: u64,
}

/// The platform string, to which `AT_PLATFORM` points.
const PLATFORM: &[u8] = b"x86_64\0";

/// Lays out a stack that ends at `top`. The stack contains, in descending order of addresses: a null word, the path,
/// the environment strings, the argument strings, the platform string, the random bytes and the vectors
/// (`create_elf_tables` of Linux 7.2, `fs/binfmt_elf.c`).
///
/// # Errors
/// [`OutOfMemory`] if the auxiliary vector cannot be allocated.
pub fn plan(top: u64, contents: Contents<'_>) -> Result<StackPlan, OutOfMemory> {
    let Contents {
        path,
        arguments,
        environment,
        facts,
    } = contents;
    let path_start = top - 8 - (path.len() as u64 + 1);
    let mut addresses = ImageAddresses {
        environment_end: path_start,
        environment_start: path_start - environment.size(),
        ..ImageAddresses::default()
    };
    addresses.arguments_end = addresses.environment_start;
    addresses.arguments_start = addresses.arguments_end - arguments.size();
    let platform = (addresses.arguments_start & !15) - 16;
    let random = platform - 16;
    let Credentials { user, group, .. } = &facts.credentials;
    let auxiliary = [
        (at::AT_HWCAP, facts.hardware),
        (at::AT_PAGESZ, 4096),
        (
            at::AT_CLKTCK,
            memwright_linux_tasks::process::TICKS_PER_SECOND,
        ),
        (at::AT_PHDR, facts.headers),
        (at::AT_PHENT, 56),
        (at::AT_PHNUM, facts.header_count),
        (at::AT_BASE, facts.interpreter_base),
        (at::AT_FLAGS, 0),
        (at::AT_ENTRY, facts.entry),
        (at::AT_UID, user.real.into()),
        (at::AT_EUID, user.effective.into()),
        (at::AT_GID, group.real.into()),
        (at::AT_EGID, group.effective.into()),
        (at::AT_SECURE, 0),
        (at::AT_RANDOM, random),
        (at::AT_HWCAP2, 0),
        (at::AT_RSEQ_FEATURE_SIZE, RESTARTABLE_SIZE.into()),
        (at::AT_RSEQ_ALIGN, RESTARTABLE_ALIGNMENT.into()),
        (at::AT_EXECFN, path_start),
        (at::AT_PLATFORM, platform),
        (at::AT_MINSIGSTKSZ, facts.signal_stack),
        (at::AT_NULL, 0),
    ];
    let words = 1 + arguments.count() + 1 + environment.count() + 1 + auxiliary.len() * 2;
    let pointer = (random - words as u64 * 8) & !15;
    addresses.stack_start = pointer;
    let mut vector = Vec::new();
    vector.try_make_room(auxiliary.len() * 16)?;
    for (key, value) in auxiliary {
        vector.try_push_all(&u64::from(key).to_le_bytes())?;
        vector.try_push_all(&value.to_le_bytes())?;
    }
    Ok(StackPlan {
        pointer,
        top,
        addresses,
        auxiliary: vector,
        platform,
        random,
    })
}

impl StackPlan {
    /// Writes the stack: calls `store` with an address and the bytes to write there, in ascending order of addresses.
    ///
    /// # Errors
    /// The errors of `store`, and `ENOMEM` if the buffer of the output cannot be allocated.
    pub fn write(
        &self,
        contents: Contents<'_>,
        store: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let Contents {
            path,
            arguments,
            environment,
            facts,
        } = contents;
        let mut out = Writer::new(self.pointer, store)?;
        out.word(arguments.count() as u64)?;
        for (strings, start) in [
            (arguments, self.addresses.arguments_start),
            (environment, self.addresses.environment_start),
        ] {
            let mut address = start;
            for length in strings.lengths() {
                out.word(address)?;
                address += length;
            }
            out.word(0)?;
        }
        out.put(&self.auxiliary)?;
        out.zeroes_up_to(self.random)?;
        out.put(&facts.random)?;
        out.zeroes_up_to(self.platform)?;
        out.put(PLATFORM)?;
        out.zeroes_up_to(self.addresses.arguments_start)?;
        for piece in arguments.pieces().chain(environment.pieces()) {
            out.put(piece)?;
        }
        out.put(path)?;
        out.zeroes_up_to(self.top)?;
        out.flush()
    }
}

/// Maximum number of bytes that one call of `store` writes.
const TOGETHER: usize = 4096;

/// Buffers the output, and passes it to `store` in pieces of at most `TOGETHER` bytes.
struct Writer<F> {
    /// The address at which the buffered bytes are to be stored.
    address: u64,
    waiting: Vec<u8>,
    store: F,
}

impl<F: FnMut(u64, &[u8]) -> Result<(), Errno>> Writer<F> {
    fn new(address: u64, store: F) -> Result<Self, Errno> {
        let mut waiting = Vec::new();
        waiting.try_make_room(TOGETHER).map_err(|_| Errno::ENOMEM)?;
        Ok(Self {
            address,
            waiting,
            store,
        })
    }

    fn put(&mut self, mut bytes: &[u8]) -> Result<(), Errno> {
        while !bytes.is_empty() {
            let room = TOGETHER - self.waiting.len();
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.waiting.try_push_all(now).map_err(|_| Errno::ENOMEM)?;
            if self.waiting.len() == TOGETHER {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    fn word(&mut self, word: u64) -> Result<(), Errno> {
        self.put(&word.to_le_bytes())
    }

    fn zeroes_up_to(&mut self, address: u64) -> Result<(), Errno> {
        const ZEROES: [u8; 16] = [0; 16];
        loop {
            let missing = address - (self.address + self.waiting.len() as u64);
            if missing == 0 {
                return Ok(());
            }
            self.put(&ZEROES[..ZEROES.len().min(missing as usize)])?;
        }
    }

    fn flush(&mut self) -> Result<(), Errno> {
        (self.store)(self.address, &self.waiting)?;
        pause_point();
        self.address += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Contents, Facts, ImageAddresses, Strings, plan};
    use alloc::vec::Vec;

    const TOP: u64 = 0x7fff_ffff_f000;

    struct StackImage {
        pointer: u64,
        bytes: Vec<u8>,
        addresses: ImageAddresses,
    }

    fn build(
        top: u64,
        path: &[u8],
        arguments: &[Vec<u8>],
        environment: &[Vec<u8>],
        facts: &Facts,
    ) -> StackImage {
        let strings = |from: &[Vec<u8>]| Strings::of(from.iter().map(Vec::as_slice)).unwrap();
        let contents = Contents {
            path,
            arguments: &strings(arguments),
            environment: &strings(environment),
            facts,
        };
        let plan = plan(top, contents).unwrap();
        let mut bytes = Vec::new();
        let stored = plan.write(contents, |address, piece| {
            assert_eq!(address, plan.pointer + bytes.len() as u64);
            assert!(piece.len() <= 4096);
            bytes.extend_from_slice(piece);
            Ok(())
        });
        assert_eq!(stored, Ok(()));
        StackImage {
            pointer: plan.pointer,
            bytes,
            addresses: plan.addresses,
        }
    }

    fn word(image: &StackImage, index: usize) -> u64 {
        let at = index * 8;
        u64::from_le_bytes(image.bytes[at..at + 8].try_into().expect("eight bytes"))
    }

    fn string(image: &StackImage, address: u64) -> &[u8] {
        let rest = &image.bytes[(address - image.pointer) as usize..];
        let end = rest.iter().position(|byte| *byte == 0).expect("a NUL");
        &rest[..end]
    }

    #[test]
    fn vectors_point_at_strings() {
        let arguments = [b"prog".to_vec(), b"arg one".to_vec()];
        let environment = [b"A=1".to_vec()];
        let facts = Facts {
            random: [7; 16],
            entry: 0x1234,
            ..Facts::default()
        };
        let image = build(TOP, b"/bin/prog", &arguments, &environment, &facts);
        assert_eq!(image.pointer % 16, 0);
        assert_eq!(image.pointer + image.bytes.len() as u64, TOP);
        assert_eq!(word(&image, 0), 2);
        assert_eq!(string(&image, word(&image, 1)), b"prog");
        assert_eq!(string(&image, word(&image, 2)), b"arg one");
        assert_eq!(word(&image, 3), 0);
        assert_eq!(string(&image, word(&image, 4)), b"A=1");
        assert_eq!(word(&image, 5), 0);
        let aux: Vec<(u64, u64)> = (6..50)
            .step_by(2)
            .map(|at| (word(&image, at), word(&image, at + 1)))
            .collect();
        let find = |key| {
            aux.iter()
                .find(|entry| entry.0 == key)
                .expect("in the vector")
                .1
        };
        assert_eq!(find(9), 0x1234);
        assert_eq!(string(&image, find(31)), b"/bin/prog");
        assert_eq!(string(&image, find(15)), b"x86_64");
        let random = (find(25) - image.pointer) as usize;
        assert_eq!(image.bytes[random..random + 16], [7; 16]);
        assert_eq!(aux.last(), Some(&(0, 0)));
        assert_eq!(string(&image, image.addresses.arguments_start), b"prog");
        assert_eq!(string(&image, image.addresses.environment_start), b"A=1");
        assert_eq!(
            image.addresses.environment_end - image.addresses.environment_start,
            4
        );
    }

    #[test]
    fn empty_vectors_are_terminated() {
        let image = build(TOP, b"p", &[], &[], &Facts::default());
        assert_eq!(
            (word(&image, 0), word(&image, 1), word(&image, 2)),
            (0, 0, 0)
        );
        assert_ne!(word(&image, 3), 0);
        let one = [b"x".to_vec()];
        let image = build(TOP, b"p", &one, &[], &Facts::default());
        assert_eq!((word(&image, 2), word(&image, 3)), (0, 0));
        let image = build(TOP, b"p", &[], &one, &Facts::default());
        assert_eq!((word(&image, 1), word(&image, 3)), (0, 0));
        assert_eq!(string(&image, word(&image, 2)), b"x");
    }

    #[test]
    fn megabytes_of_strings_are_stored_in_pieces() {
        let arguments: Vec<_> = (0..3000_u32)
            .map(|number| alloc::format!("{number}:{}", "x".repeat(number as usize % 997)))
            .map(alloc::string::String::into_bytes)
            .collect();
        let image = build(TOP, b"p", &arguments, &arguments[..7], &Facts::default());
        assert_eq!(image.pointer + image.bytes.len() as u64, TOP);
        assert_eq!(word(&image, 0), 3000);
        for (index, argument) in arguments.iter().enumerate() {
            assert_eq!(string(&image, word(&image, index + 1)), argument);
        }
        assert_eq!(word(&image, 3001), 0);
        assert_eq!(string(&image, word(&image, 3008)), arguments[6]);
        assert_eq!(word(&image, 3009), 0);
    }
}
