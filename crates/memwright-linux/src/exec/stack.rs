//! The stack a program starts with: arguments, environment, auxiliary vector.

use crate::process::{Credentials, ImageAddresses};
use alloc::vec::Vec;
use linux_raw_sys::auxvec as at;

/// What the auxiliary vector says.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// CPUID leaf 1 EDX.
    pub hardware: u64,
    /// Address of the program headers.
    pub headers: u64,
    /// How many program headers there are.
    pub header_count: u64,
    /// Where the interpreter was loaded; 0 without one.
    pub interpreter_base: u64,
    /// First instruction of the program itself.
    pub entry: u64,
    /// Least bytes of a stack for signals.
    pub signal_stack: u64,
    /// Whose rights the program has.
    pub credentials: Credentials,
    /// 16 random bytes.
    pub random: [u8; 16],
}

/// The contents of a fresh stack.
#[derive(Clone, Debug)]
pub struct StackImage {
    /// Initial stack pointer: address of the first byte.
    pub pointer: u64,
    /// Everything from there to the top of the stack.
    pub bytes: Vec<u8>,
    /// Where the strings are.
    pub addresses: ImageAddresses,
    /// The auxiliary vector, as `/proc/PID/auxv` shows it.
    pub auxiliary: Vec<u8>,
}

/// Lays out a stack that ends at `top`: from there downwards a null word, the path, environment
/// and argument strings, the platform's name, random bytes, and below them the vectors
/// (`create_elf_tables` of Linux 7.2, `fs/binfmt_elf.c`).
pub fn build(
    top: u64,
    path: &[u8],
    arguments: &[Vec<u8>],
    environment: &[Vec<u8>],
    facts: &Facts,
) -> StackImage {
    let mut addresses = ImageAddresses::default();
    // Strings, by rising address; placed from the top once their size is known.
    let mut strings = Vec::new();
    let mut offsets = Vec::new();
    for string in arguments.iter().chain(environment) {
        offsets.push(strings.len() as u64);
        strings.extend_from_slice(string);
        strings.push(0);
        if offsets.len() == arguments.len() {
            addresses.arguments_end = strings.len() as u64;
        }
    }
    let path_offset = strings.len() as u64;
    strings.extend_from_slice(path);
    strings.push(0);
    let strings_start = top - 8 - strings.len() as u64;
    let argument_start = |index: usize| strings_start + offsets[index];
    addresses.arguments_start = strings_start;
    addresses.arguments_end += strings_start;
    addresses.environment_start = addresses.arguments_end;
    addresses.environment_end = strings_start + path_offset;
    let platform = (strings_start & !15) - 16;
    let random = platform - 16;
    let Credentials { user, group, .. } = &facts.credentials;
    let auxiliary = [
        (at::AT_HWCAP, facts.hardware),
        (at::AT_PAGESZ, 4096),
        (at::AT_CLKTCK, crate::process::TICKS_PER_SECOND),
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
        (at::AT_EXECFN, strings_start + path_offset),
        (at::AT_PLATFORM, platform),
        (at::AT_MINSIGSTKSZ, facts.signal_stack),
        (at::AT_NULL, 0),
    ];
    let words = 1 + offsets.len() + 2 + auxiliary.len() * 2;
    let pointer = (random - words as u64 * 8) & !15;
    addresses.stack_start = pointer;
    let mut bytes = Vec::with_capacity((top - pointer) as usize);
    let mut push = |word: u64| bytes.extend_from_slice(&word.to_le_bytes());
    push(arguments.len() as u64);
    for index in 0..offsets.len() {
        if index == arguments.len() {
            push(0);
        }
        push(argument_start(index));
    }
    if environment.is_empty() {
        push(0);
    }
    push(0);
    let mut vector = Vec::new();
    for (key, value) in auxiliary {
        vector.extend_from_slice(&u64::from(key).to_le_bytes());
        vector.extend_from_slice(&value.to_le_bytes());
    }
    bytes.extend_from_slice(&vector);
    bytes.resize((random - pointer) as usize, 0);
    bytes.extend_from_slice(&facts.random);
    bytes.extend_from_slice(b"x86_64\0");
    bytes.resize((strings_start - pointer) as usize, 0);
    bytes.extend_from_slice(&strings);
    bytes.resize((top - pointer) as usize, 0);
    StackImage {
        pointer,
        bytes,
        addresses,
        auxiliary: vector,
    }
}

#[cfg(test)]
mod tests {
    use super::{Facts, StackImage, build};
    use alloc::vec::Vec;

    const TOP: u64 = 0x7fff_ffff_f000;

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
        let aux: Vec<(u64, u64)> = (6..46)
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
}
