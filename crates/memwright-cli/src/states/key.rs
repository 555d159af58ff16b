//! The key of a snapshot: a hash of everything on which the snapshot depends.

use std::path::{Path, PathBuf};

use anyhow::Context;
use sha2::{Digest, Sha256};

use crate::count::counting::Counting;
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::linux::guest::{Guest, Start};
use crate::model::hash::{hash_part, hexadecimal};

/// The version of the format, which is incremented when the meaning of the saved data changes.
const FORM: &str = "2";

/// Returns the file name of a guest's snapshot in the cache. The name is a SHA-256 over the kernel image, the initrd
/// (the init process and the modules), QEMU, all options of the machine, and the kernel's command line. It does not
/// depend on the program or on the plugin.
///
/// # Errors
/// I/O errors of reading the initrd.
pub fn name(guest: &Guest, image_sha256: &str, qemu_sha256: &str) -> anyhow::Result<String> {
    let boot = host_file::read(&guest.boot, LARGEST_IMAGE);
    let boot = boot.with_context(|| guest.boot.display().to_string())?;
    let nowhere = Guest {
        qemu: guest.qemu.clone(),
        image: PathBuf::from("image"),
        boot: PathBuf::from("boot"),
        program: PathBuf::from("program"),
        reports_names: false,
        with_faults: false,
        append: guest.append.clone(),
        machine: guest.machine,
        counting: Counting::Nothing,
        profile: None,
    };
    let monitor = Path::new("monitor");
    let words = nowhere.arguments(Path::new("serial"), None, Start::Stop { monitor });
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| hash_part(&mut hash, part);
    for part in [FORM, image_sha256, qemu_sha256] {
        add(part.as_bytes());
    }
    add(&boot);
    for word in &words {
        add(word.as_encoded_bytes());
    }
    Ok(hexadecimal(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machine::Machine;
    use crate::model::size::parse_memory_size;

    #[test]
    fn all_but_the_program_changes_the_name() {
        let folder = tempfile::tempdir().unwrap();
        let boot = folder.path().join("boot");
        std::fs::write(&boot, "init").unwrap();
        let memory = |text: &str| parse_memory_size(text).unwrap();
        let usual = |change: &dyn Fn(&mut Guest)| {
            let mut guest = Guest {
                qemu: "qemu".into(),
                image: "/image".into(),
                boot: boot.clone(),
                program: "/program".into(),
                reports_names: false,
                with_faults: false,
                append: String::new(),
                machine: Machine::of_bench(1, 1, memory("512M")),
                counting: Counting::Nothing,
                profile: None,
            };
            change(&mut guest);
            guest
        };
        let of = |guest: &Guest| name(guest, "image", "qemu").unwrap();
        let first = of(&usual(&|_| {}));
        for same in [
            usual(&|guest| guest.program = "/other".into()),
            usual(&|guest| guest.image = "/copy".into()),
            usual(&|guest| guest.counting = Counting::Log),
        ] {
            assert_eq!(of(&same), first);
        }
        let mut seen = vec![
            first,
            of(&usual(&|guest| guest.append = "quiet".into())),
            of(&usual(&|guest| {
                guest.machine = Machine::of_bench(1, 1, memory("1G"));
            })),
            of(&usual(&|guest| {
                guest.machine = Machine::of_bench(2, 1, memory("512M"));
            })),
            name(&usual(&|_| {}), "another", "qemu").unwrap(),
            name(&usual(&|_| {}), "image", "another").unwrap(),
        ];
        std::fs::write(&boot, "init with a module").unwrap();
        seen.push(of(&usual(&|_| {})));
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
