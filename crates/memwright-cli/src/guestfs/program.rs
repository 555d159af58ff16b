//! Finds PROGRAM on the host, checks it, and adds it and its dependencies to the guest.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::guestfs::elf::{self, ElfError};
use crate::guestfs::library::{self, Missing};
use crate::guestfs::tree::Tree;
use crate::host::host_file::{self, hashed_file, other_kind};
use crate::model::failure::Failure;
use crate::model::hashed_file::HashedFile;
use crate::model::size::{MemorySize, in_mebibytes};

/// The maximum number of scripts in a chain of interpreters, as on Linux (fs/exec.c, `exec_binprm`).
const MOST_SCRIPTS: usize = 5;
/// The maximum length of a `#!` line in bytes (BINPRM_BUF_SIZE).
const SCRIPT_LINE: usize = 256;

/// A program that the guest can start.
#[derive(Debug)]
pub struct Program {
    /// Its absolute path in the guest.
    pub path: PathBuf,
    /// Its dependencies: interpreters of scripts, the loader, libraries.
    pub companions: Vec<PathBuf>,
    /// The file of which the program is a copy.
    pub origin: Origin,
}

/// The file of which a guest's program is a copy.
#[derive(Debug)]
pub enum Origin {
    /// The file of this machine at this path.
    Machine(PathBuf),
    /// The file of the tree of `--root` at the program's path, with this SHA-256.
    Tree(String),
}

impl Program {
    /// Reads and hashes the program.
    pub fn hashed(&self) -> HashedFile {
        HashedFile {
            path: self.path.to_string_lossy().into_owned(),
            sha256: match &self.origin {
                Origin::Machine(host) => hashed_file(host).sha256,
                Origin::Tree(sha256) => sha256.clone(),
            },
        }
    }
}

/// The properties of the guest that determine which interpreters and libraries a program gets.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings<'a> {
    /// The guest's memory.
    pub memory: MemorySize,
    /// LD_LIBRARY_PATH of the guest.
    pub library_path: Option<&'a OsStr>,
    /// PATH of the guest.
    pub path: &'a OsStr,
}

/// Finds PROGRAM: the path as given or, for a bare name, a file of that name in `path`.
///
/// # Errors
/// [`Failure::NotFound`].
pub fn locate(name: &OsStr, path: Option<&OsStr>) -> Result<PathBuf, Failure> {
    let missing = || Failure::NotFound(format!("{}: not found", name.display()));
    if name.is_empty() {
        return Err(missing());
    }
    let given = Path::new(name);
    let bare = !name.as_bytes().contains(&b'/');
    let found = if !bare || given.is_file() {
        Some(given.to_owned())
    } else {
        in_path(name, path.unwrap_or_default())
    };
    std::path::absolute(found.ok_or_else(missing)?).map_err(|_| missing())
}

/// Returns whether PATH is searched for PROGRAM. This is the case if PROGRAM is a bare name, and the working folder has
/// no file of that name.
pub fn is_found_through_path(name: &OsStr) -> bool {
    !name.as_bytes().contains(&b'/') && !Path::new(name).is_file()
}

/// Returns the working folder of PROGRAM. If PROGRAM is a path relative to the working folder of this command, this is
/// that folder, so that a program that executes itself by its name succeeds. Otherwise it is the root.
pub fn working_folder(name: &OsStr) -> PathBuf {
    let given = Path::new(name);
    let bare = !name.as_bytes().contains(&b'/');
    let here = given.is_relative() && (!bare || given.is_file());
    let folder = here.then(|| std::env::current_dir().ok()).flatten();
    folder.unwrap_or_else(|| PathBuf::from("/"))
}

/// Returns the first file with this name in a list of folders.
fn in_path(name: &OsStr, path: &OsStr) -> Option<PathBuf> {
    std::env::split_paths(path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// Checks that this machine can execute the file PROGRAM. If the file were not executable, perf would let a shell
/// interpret it.
///
/// # Errors
/// The failures of [`add`].
pub fn check_native(path: &Path) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::NotExecutable(format!("{}: {why}", path.display()));
    check_file(path)?;
    let mut start = Vec::new();
    File::open(path)
        .and_then(|file| file.take(4).read_to_end(&mut start))
        .map_err(|error| unreadable(path, &error))?;
    if start == b"\x7fELF" || start.starts_with(b"#!") {
        return Ok(());
    }
    Err(refuse(&ElfError::NotElf.to_string()))
}

/// Checks that a path leads to a file with execute permission, and returns its size in bytes.
fn check_file(path: &Path) -> Result<u64, Failure> {
    let refuse = |why: String| Failure::NotExecutable(format!("{}: {why}", path.display()));
    let about = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if about.is_dir() {
        return Err(refuse("is a folder".to_owned()));
    }
    if let Some(kind) = other_kind(about.file_type()) {
        return Err(refuse(format!("is {kind}, not a regular file")));
    }
    if about.permissions().mode() & 0o111 == 0 {
        return Err(refuse(
            "permission denied: the file is not marked executable".to_owned(),
        ));
    }
    Ok(about.len())
}

/// Checks PROGRAM and adds it, with its interpreters and libraries, to the tree, at the path that it has on the host.
///
/// # Errors
/// If PROGRAM cannot be executed (exit code 126), or if it or a dependency does not exist (127), as in shells.
pub fn add(tree: &mut Tree, path: &Path, around: Surroundings<'_>) -> Result<Program, Failure> {
    let mut companions = Vec::new();
    add_executable(tree, path, around, 0, &mut companions)?;
    Ok(Program {
        path: path.to_owned(),
        companions,
        origin: Origin::Machine(path.to_owned()),
    })
}

/// Like [`add`], but adds the file `host` at another path of the guest.
///
/// # Errors
/// The failures of [`add`].
pub fn add_copy(
    tree: &mut Tree,
    host: &Path,
    guest: &Path,
    around: Surroundings<'_>,
) -> Result<Program, Failure> {
    let data = read_executable(host, around)?;
    tree.add_copy(host, guest)?;
    let mut companions = Vec::new();
    add_dependencies(tree, host, &data, around, 0, &mut companions)?;
    Ok(Program {
        path: guest.to_owned(),
        companions,
        origin: Origin::Machine(host.to_owned()),
    })
}

/// Adds the interpreter and the libraries of a `--file` that is an executable ELF file. Adds nothing for other files.
///
/// # Errors
/// The failures of [`add`], if the file is a program for this machine.
pub fn add_companions(
    tree: &mut Tree,
    path: &Path,
    around: Surroundings<'_>,
) -> Result<(), Failure> {
    let is_program = fs::metadata(path)
        .is_ok_and(|about| about.is_file() && about.permissions().mode() & 0o111 != 0);
    let Some(image) = is_program
        .then(|| host_file::read(path, around.memory.bytes()).ok())
        .flatten()
        .and_then(|data| elf::read(&data).ok())
    else {
        return Ok(());
    };
    add_needs(tree, path, image, around, &mut Vec::new())
}

fn add_executable(
    tree: &mut Tree,
    path: &Path,
    around: Surroundings<'_>,
    depth: usize,
    companions: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let data = read_executable(path, around)?;
    tree.add_host_path(path)?;
    add_dependencies(tree, path, &data, around, depth, companions)
}

/// Checks that a file is executable and fits in the guest, and returns its contents.
fn read_executable(path: &Path, around: Surroundings<'_>) -> Result<Vec<u8>, Failure> {
    let size = check_file(path)?;
    if size > around.memory.bytes() {
        return Err(too_large(path, size, around.memory));
    }
    host_file::read(path, around.memory.bytes()).map_err(|error| unreadable(path, &error))
}

/// Adds the interpreters and libraries of an executable file with the contents `data`.
fn add_dependencies(
    tree: &mut Tree,
    path: &Path,
    data: &[u8],
    around: Surroundings<'_>,
    depth: usize,
    companions: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    if !data.starts_with(b"#!") {
        return add_elf(tree, path, data, around, companions);
    }
    if depth == MOST_SCRIPTS {
        let why = "too many scripts that interpret scripts";
        return Err(Failure::NotExecutable(format!("{}: {why}", path.display())));
    }
    add_script(tree, path, data, around, depth, companions)
}

fn add_script(
    tree: &mut Tree,
    path: &Path,
    data: &[u8],
    around: Surroundings<'_>,
    depth: usize,
    companions: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let (interpreter, argument) = script_line(data).ok_or_else(|| {
        Failure::NotExecutable(format!(
            "{}: its #! line names no interpreter",
            path.display()
        ))
    })?;
    let interpreter = Path::new("/").join(interpreter);
    if !interpreter.exists() {
        let text = format!(
            "{}: its interpreter {} was not found",
            path.display(),
            interpreter.display()
        );
        return Err(Failure::NotFound(text));
    }
    companions.push(interpreter.clone());
    add_executable(tree, &interpreter, around, depth + 1, companions)?;
    // `#!/usr/bin/env NAME` executes NAME from the guest's PATH.
    let command = argument.filter(|_| interpreter.file_name() == Some(OsStr::new("env")));
    let command = command
        .filter(|name| !name.as_bytes().starts_with(b"-") && !name.as_bytes().contains(&b'='));
    if let Some(name) = command {
        let found = in_path(&name, around.path).ok_or_else(|| {
            Failure::NotFound(format!(
                "{}: its interpreter {} was not found",
                path.display(),
                name.display()
            ))
        })?;
        companions.push(found.clone());
        add_executable(tree, &found, around, depth + 1, companions)?;
    }
    Ok(())
}

fn add_elf(
    tree: &mut Tree,
    path: &Path,
    data: &[u8],
    around: Surroundings<'_>,
    companions: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let refuse = |why: &str| Failure::NotExecutable(format!("{}: {why}", path.display()));
    let image = elf::read(data).map_err(|error| match error {
        ElfError::NotElf
        | ElfError::Truncated
        | ElfError::OtherMachine(_)
        | ElfError::ThirtyTwoBit => refuse(&error.to_string()),
    })?;
    if !image.executable {
        return Err(refuse(
            "an ELF file that is not a program (relocatable or core file)",
        ));
    }
    if image.memory > around.memory.bytes() {
        return Err(too_large(path, image.memory, around.memory));
    }
    add_needs(tree, path, image, around, companions)
}

/// Adds the interpreter and the libraries of a dynamic program.
fn add_needs(
    tree: &mut Tree,
    path: &Path,
    image: elf::Image,
    around: Surroundings<'_>,
    companions: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    let needs =
        library::find(path, image, around.library_path).map_err(|missing| match missing {
            Missing::Interpreter(interpreter) => Failure::NotFound(format!(
                "{}: its interpreter {} was not found",
                path.display(),
                interpreter.display()
            )),
            Missing::Library { name, wanted_by } => Failure::NotFound(format!(
                "{}: library {} was not found (wanted by {})",
                path.display(),
                name.display(),
                wanted_by.display()
            )),
        })?;
    for file in needs.interpreter.into_iter().chain(needs.libraries) {
        tree.add_host_path(&file)?;
        if !companions.contains(&file) {
            companions.push(file);
        }
    }
    let cache = Path::new("/etc/ld.so.cache");
    if needs.through_cache && cache.exists() {
        tree.add_host_path(cache)?;
    }
    Ok(())
}

/// Parses a `#!` line: the interpreter, and its argument if there is one.
fn script_line(data: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let line = data.get(2..)?.split(|byte| *byte == b'\n').next()?;
    let line = line.get(..SCRIPT_LINE).unwrap_or(line).trim_ascii();
    let end = line
        .iter()
        .position(|byte| *byte == b' ' || *byte == b'\t')
        .unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(end);
    let argument = argument.trim_ascii();
    let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    (!interpreter.is_empty()).then(|| {
        (
            owned(interpreter),
            (!argument.is_empty()).then(|| owned(argument)),
        )
    })
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(format!("{}: not found", path.display())),
        _ => Failure::NotExecutable(format!("{}: {error}", path.display())),
    }
}

fn too_large(path: &Path, size: u64, memory: MemorySize) -> Failure {
    Failure::NotExecutable(format!(
        "{}: needs {}, more than the guest's memory of {}; --memory gives it more",
        path.display(),
        in_mebibytes(size),
        in_mebibytes(memory.bytes())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::size::parse_memory_size;

    fn try_add(contents: &[u8], mode: u32) -> Result<Program, Failure> {
        let host = tempfile::tempdir().unwrap();
        let path = host.path().join("program");
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let memory = parse_memory_size("16M").unwrap();
        add(
            &mut Tree::default(),
            &path,
            Surroundings {
                memory,
                library_path: None,
                path: OsStr::new("/usr/bin:/bin"),
            },
        )
    }

    #[test]
    fn what_cannot_start_says_why_in_one_line() {
        let own = fs::read("/proc/self/exe").unwrap();
        let large = vec![0; 17 << 20];
        for (contents, mode, code, expected) in [
            (
                b"hello\n".as_slice(),
                0o755,
                126,
                "neither an ELF file nor a script",
            ),
            (
                b"".as_slice(),
                0o755,
                126,
                "neither an ELF file nor a script",
            ),
            (&own[..1000], 0o755, 126, "truncated"),
            (b"#!/bin/sh\n", 0o644, 126, "not marked executable"),
            (b"#!\n", 0o755, 126, "names no interpreter"),
            (
                b"#!/no/such/shell -e\n",
                0o755,
                127,
                "interpreter /no/such/shell was not found",
            ),
            (
                b"#!/usr/bin/env nosuchcommand\n",
                0o755,
                127,
                "interpreter nosuchcommand was not found",
            ),
            (
                &large,
                0o755,
                126,
                "needs 17 MiB, more than the guest's memory of 16 MiB",
            ),
        ] {
            let failure = try_add(contents, mode).unwrap_err();
            let line = failure.to_string();
            assert_eq!(failure.exit_code_of_run(), code, "{line}");
            assert!(line.contains(expected) && !line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn a_script_brings_its_interpreter() {
        let program = try_add(b"#!/bin/sh -e\necho\n", 0o755).unwrap();
        assert_eq!(program.companions[0], Path::new("/bin/sh"));
        let through_env = try_add(b"#!/usr/bin/env sh\necho\n", 0o755).unwrap();
        assert!(
            through_env
                .companions
                .iter()
                .any(|path| path.ends_with("bin/sh"))
        );
    }

    #[test]
    fn programs_are_located() {
        assert!(
            locate(OsStr::new("/no/such"), None).is_ok(),
            "existence is checked when it is added"
        );
        assert_eq!(
            locate(OsStr::new("nosuchcommand"), Some(OsStr::new("/bin")))
                .unwrap_err()
                .exit_code_of_run(),
            127
        );
        assert_eq!(
            locate(OsStr::new("sh"), Some(OsStr::new("/nowhere:/bin"))).unwrap(),
            Path::new("/bin/sh")
        );
        assert_eq!(
            locate(OsStr::new(""), None).unwrap_err().exit_code_of_run(),
            127
        );
    }

    #[test]
    fn a_relative_program_starts_where_its_path_does() {
        let here = std::env::current_dir().unwrap();
        for (name, folder) in [
            ("./x", &*here),
            ("a/b", &*here),
            ("Cargo.toml", &*here),
            ("sh", Path::new("/")),
            ("/bin/sh", Path::new("/")),
        ] {
            assert_eq!(working_folder(OsStr::new(name)), folder, "{name}");
        }
    }

    #[test]
    fn script_lines() {
        let parse = |text: &str| {
            script_line(text.as_bytes()).map(|(path, argument)| {
                (
                    path.into_string().unwrap(),
                    argument.map(|text| text.into_string().unwrap()),
                )
            })
        };
        assert_eq!(parse("#!/bin/sh\nx"), Some(("/bin/sh".into(), None)));
        assert_eq!(
            parse("#! /bin/awk  -f x \nx"),
            Some(("/bin/awk".into(), Some("-f x".into())))
        );
        assert_eq!(parse("#!  \n"), None);
    }
}
