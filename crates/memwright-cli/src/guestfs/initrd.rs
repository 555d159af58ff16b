//! Writes the initrd that the kernel unpacks: the guest's files, and entries with the kernel's parameters.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::Context;

use crate::guestfs::cpio::{self, Writer};
use crate::guestfs::tree::{Node, Tree};
use crate::host::host_file;

/// The time at which the guest's clock starts, in seconds since 1970: 2026-01-01. It is also the modification time of
/// the guest's files.
pub const EPOCH: u32 = 1_767_225_600;

/// The parameters of the kernel, in addition to the files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// PROGRAM's arguments, beginning with `argv[0]`.
    pub arguments: Vec<OsString>,
    /// PROGRAM's environment, one `K=V` each.
    pub environment: Vec<OsString>,
    /// The kernel's options, one `key=value` each.
    pub options: Vec<String>,
}

/// Writes the archive of the files and the kernel's parameters. Returns its size in bytes.
///
/// # Errors
/// I/O errors of reading the host's files and of writing the archive.
pub fn write(path: &Path, manifest: &Manifest, tree: &Tree) -> anyhow::Result<u64> {
    let context = || format!("cannot write the initrd {}", path.display());
    let file = File::create(path).with_context(context)?;
    let mut archive = Writer::new(BufWriter::with_capacity(1 << 20, file), EPOCH);
    let options = manifest
        .options
        .iter()
        .flat_map(|line| [line.as_bytes(), b"\n"].concat())
        .collect::<Vec<u8>>();
    archive
        .entry(b".memwright", cpio::FOLDER | 0o700, &[])
        .with_context(context)?;
    for (name, data) in [
        (".memwright/argv", terminated(&manifest.arguments)),
        (".memwright/env", terminated(&manifest.environment)),
        (".memwright/options", options),
    ] {
        archive
            .entry(name.as_bytes(), cpio::FILE | 0o600, &data)
            .with_context(context)?;
    }
    add_tree(&mut archive, tree)?;
    archive.finish().with_context(context)
}

/// Writes an archive that contains only the files of `tree`, without the kernel's parameters.
///
/// # Errors
/// I/O errors of reading the host's files and of writing the archive.
pub fn write_tree(path: &Path, tree: &Tree) -> anyhow::Result<()> {
    let context = || format!("cannot write the initrd {}", path.display());
    let file = File::create(path).with_context(context)?;
    let mut archive = Writer::new(BufWriter::with_capacity(1 << 20, file), EPOCH);
    add_tree(&mut archive, tree)?;
    archive.finish().map(drop).with_context(context)
}

fn add_tree(archive: &mut Writer<impl Write>, tree: &Tree) -> anyhow::Result<()> {
    for (place, node) in tree.nodes() {
        let name = place.as_os_str().as_bytes();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        if name.is_empty() {
            continue;
        }
        // An entry with the name of the end marker would end the archive, so a file of this name gets a path that
        // begins with `./`.
        let name = if name == cpio::END {
            b"./TRAILER!!!"
        } else {
            name
        };
        match node {
            Node::Folder { mode } => archive.entry(name, cpio::FOLDER | mode, &[]),
            Node::Text { mode, contents } => archive.entry(name, cpio::FILE | mode, contents),
            Node::Link { target } => {
                archive.entry(name, cpio::LINK | 0o777, target.as_os_str().as_bytes())
            }
            Node::HostFile { mode, path, size } => {
                let data = host_file::read_listed(path, *size)
                    .with_context(|| path.display().to_string())?;
                archive.entry(name, cpio::FILE | mode, &data)
            }
        }
        .with_context(|| format!("{} into the initrd", place.display()))?;
    }
    Ok(())
}

/// Concatenates strings, each terminated by a zero byte.
fn terminated(strings: &[OsString]) -> Vec<u8> {
    strings
        .iter()
        .flat_map(|text| text.as_bytes().iter().copied().chain([0]))
        .collect()
}

/// Returns the guest's environment: the default variables, with those of `--env` added or changed.
pub fn environment(added: &[String]) -> Vec<OsString> {
    let mut variables: Vec<String> = ["PATH=/usr/bin:/bin", "HOME=/", "TERM=dumb"]
        .map(str::to_owned)
        .to_vec();
    for variable in added {
        let name = variable
            .split_once('=')
            .map_or(variable.as_str(), |(name, _)| name);
        let same = |other: &String| {
            other
                .split_once('=')
                .is_some_and(|(other, _)| other == name)
        };
        match variables.iter_mut().find(|other| same(other)) {
            Some(place) => place.clone_from(variable),
            None => variables.push(variable.clone()),
        }
    }
    variables.into_iter().map(OsString::from).collect()
}

/// Returns the value of a variable in an environment of `K=V` strings.
pub fn variable<'a>(environment: &'a [OsString], name: &str) -> Option<&'a OsStr> {
    environment.iter().find_map(|variable| {
        let rest = variable
            .as_bytes()
            .strip_prefix(name.as_bytes())?
            .strip_prefix(b"=")?;
        Some(OsStr::from_bytes(rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_environment_is_fixed_but_for_what_is_asked() {
        let plain = environment(&[]);
        assert_eq!(plain, ["PATH=/usr/bin:/bin", "HOME=/", "TERM=dumb"]);
        let changed = environment(&["X=1".into(), "HOME=/root".into(), "X=2=3".into()]);
        assert_eq!(
            changed,
            ["PATH=/usr/bin:/bin", "HOME=/root", "TERM=dumb", "X=2=3"]
        );
        assert_eq!(variable(&changed, "X"), Some(OsStr::new("2=3")));
        assert_eq!(variable(&changed, "HOM"), None);
    }

    #[test]
    fn a_file_called_as_the_end_of_the_archive_does_not_end_it() {
        use memwright_linux_vfs::cpio::CpioArchive;
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("TRAILER!!!"), "x").unwrap();
        fs::write(host.path().join("later"), "y").unwrap();
        let mut tree = Tree::default();
        tree.add_copy(host.path(), Path::new("/")).unwrap();
        tree.add_copy(host.path(), Path::new("/U")).unwrap();
        let manifest = Manifest {
            arguments: Vec::new(),
            environment: Vec::new(),
            options: Vec::new(),
        };
        let path = host.path().join("archive");
        write(&path, &manifest, &tree).unwrap();
        let bytes = fs::read(&path).unwrap();
        let names: Vec<&[u8]> = CpioArchive::new(&bytes).map(|entry| entry.name).collect();
        let wanted: [&[u8]; 5] = [b"./TRAILER!!!", b"U", b"U/TRAILER!!!", b"U/later", b"later"];
        assert_eq!(names[4..], wanted);
    }

    #[test]
    fn equal_inputs_make_equal_archives() {
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("data"), "contents").unwrap();
        let mut tree = Tree::default();
        tree.add_copy(&host.path().join("data"), Path::new("/data/file"))
            .unwrap();
        tree.add_text("/etc/hostname", 0o644, "memwright\n");
        let manifest = Manifest {
            arguments: vec!["x".into(), "".into()],
            environment: environment(&[]),
            options: vec!["stdin=pipe".into(), "strace=1".into()],
        };
        let paths = [host.path().join("one"), host.path().join("two")];
        for path in &paths {
            write(path, &manifest, &tree).unwrap();
        }
        let archive = fs::read(&paths[0]).unwrap();
        assert_eq!(archive, fs::read(&paths[1]).unwrap());
        let holds = |text: &[u8]| archive.windows(text.len()).any(|window| window == text);
        assert!(holds(b".memwright/argv\0") && holds(b"x\0\0") && holds(b"stdin=pipe\nstrace=1\n"));
        assert!(holds(b"data/file\0") && holds(b"etc/hostname\0") && !holds(b"/data/file"));
    }
}
