//! Records which files a command reads and writes.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// The time limit for another process to open a named pipe for reading.
const READER_COMES: Duration = Duration::from_secs(10);
/// The interval between two attempts to open the pipe.
const LOOK: Duration = Duration::from_millis(20);

/// The files that a command reads or writes. Each new output file is compared with them, so that the command writes no
/// file twice and overwrites no file that it reads.
#[derive(Debug, Default)]
pub struct Taken {
    files: BTreeMap<(u64, u64), String>,
}

impl Taken {
    /// Records a file that the command reads. `what` describes the file in error messages.
    pub fn read(&mut self, what: &str, about: &Metadata) {
        if let Some(identity) = identity(about) {
            self.files
                .entry(identity)
                .or_insert_with(|| what.to_owned());
        }
    }

    /// Records the file at a path, if it exists, as one that the command reads.
    pub fn read_path(&mut self, what: &str, path: &Path) {
        if let Ok(about) = fs::metadata(path) {
            self.read(what, &about);
        }
    }

    /// Adds the files that another part of the command has recorded.
    pub fn extend(&mut self, other: Self) {
        self.files.extend(other.files);
    }

    /// Creates or truncates the output file of an option.
    ///
    /// # Errors
    /// I/O errors of creating the file. Also an error if the command reads the file, if another option also names the
    /// file, or if the file is a named pipe without a reader.
    pub fn create(&mut self, option: &str, path: &Path) -> anyhow::Result<File> {
        let context = || format!("cannot write {}", path.display());
        self.check(path)?;
        let file = open(path).with_context(context)?;
        let about = file.metadata().with_context(context)?;
        if let Some(identity) = identity(&about) {
            self.files.insert(identity, option.to_owned());
        }
        Ok(file)
    }

    /// Returns an error if the file at this path is already recorded.
    ///
    /// # Errors
    /// If the file is recorded.
    pub fn check(&self, path: &Path) -> anyhow::Result<()> {
        let about = fs::metadata(path).ok();
        let identity = about.as_ref().and_then(identity);
        if let Some(other) = identity.and_then(|identity| self.files.get(&identity)) {
            bail!("cannot write {}: it is {other} too", path.display());
        }
        Ok(())
    }
}

/// Returns the device and inode number of a file, which do not depend on its path. Returns `None` for a file that is
/// neither regular nor a pipe, because several options can write to the same device.
fn identity(about: &Metadata) -> Option<(u64, u64)> {
    let kind = about.file_type();
    (kind.is_file() || kind.is_fifo()).then(|| (about.dev(), about.ino()))
}

/// Opens a file for writing. If it is a named pipe, waits until it has a reader.
fn open(path: &Path) -> io::Result<File> {
    let is_pipe = fs::metadata(path).is_ok_and(|about| about.file_type().is_fifo());
    if !is_pipe {
        return File::create(path);
    }
    let end = Instant::now() + READER_COMES;
    loop {
        let flags = OFlags::NONBLOCK.bits().cast_signed();
        match File::options().write(true).custom_flags(flags).open(path) {
            Ok(file) => {
                let flags = fcntl_getfl(&file)? - OFlags::NONBLOCK;
                fcntl_setfl(&file, flags)?;
                return Ok(file);
            }
            // ENXIO: no process has opened the pipe for reading (fifo(7)).
            Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => {
                if Instant::now() >= end {
                    return Err(io::Error::other("nothing reads this named pipe"));
                }
                thread::sleep(LOOK);
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_is_written_twice_or_read_as_well() {
        let host = tempfile::tempdir().unwrap();
        let at = |name: &str| host.path().join(name);
        fs::write(at("program"), "x").unwrap();
        fs::hard_link(at("program"), at("link")).unwrap();
        std::os::unix::fs::symlink("json", at("other")).unwrap();
        let mut taken = Taken::default();
        taken.read_path("the program", &at("program"));
        taken.read_path("nothing", &at("none"));
        taken.create("--json", &at("json")).unwrap();
        taken.create("--trace", &at("trace")).unwrap();
        for (name, other) in [
            ("json", "--json"),
            ("other", "--json"),
            ("trace", "--trace"),
            ("program", "the program"),
            ("link", "the program"),
        ] {
            let error = taken.create("--csv", &at(name)).unwrap_err().to_string();
            assert!(error.ends_with(&format!("it is {other} too")), "{error}");
        }
        assert_eq!(fs::read_to_string(at("program")).unwrap(), "x");
        for _ in 0..2 {
            taken.create("--csv", Path::new("/dev/null")).unwrap();
        }
    }

    #[test]
    fn a_named_pipe_is_written_once_it_is_read() {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        use std::io::{Read, Write};
        let host = tempfile::tempdir().unwrap();
        let pipe = host.path().join("pipe");
        mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let reading = pipe.clone();
        let reader = thread::spawn(move || {
            let mut text = String::new();
            let read = File::open(reading).unwrap().read_to_string(&mut text);
            read.map(|_| text).unwrap()
        });
        let mut file = Taken::default().create("--json", &pipe).unwrap();
        file.write_all(b"text").unwrap();
        drop(file);
        assert_eq!(reader.join().unwrap(), "text");
    }
}
