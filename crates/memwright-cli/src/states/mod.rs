//! Takes a snapshot of a guest after its boot. Later runs start from the snapshot.
//!
//! The guest's init process stops the machine at a point at which nothing depends on the program yet. QEMU's migration
//! saves the devices, and copies of the backing files save the memory. A run then starts from this snapshot, and
//! receives the program afterwards. Only the boot is saved, never a result.
//!
//! With `--cold`, the command stores no snapshot in the cache. It still saves and restores each guest, so that its
//! counts equal those of a run from the cache. This is necessary because RDRAND returns other numbers in a resumed QEMU
//! than in a started one, and Linux's random numbers determine where it places slabs.

mod clock;
mod file;
mod keep;
mod key;
mod make;
mod monitor;

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::SystemTime;

use anyhow::Context;
use rustix::fs::MemfdFlags;
use serde_json::json;

use crate::count::counting::Counting;
use crate::count::tables::Part;
use crate::host::cache;
use crate::host::folder::PrivateFolder;
use crate::host::output::say;
use crate::host::progress::Stage;
use crate::linux::guest::Guest;
use crate::qemu::qmp::Monitor;
use crate::qemu::runs::Runs;
use crate::states::file::StateError;
use crate::states::make::{Taken, Unmade, finish, prepare};
pub use crate::states::monitor::Listener;

/// A snapshot of a machine, from which several runs can start in parallel.
#[derive(Debug)]
pub struct State {
    saved: file::State,
    told: Once,
}

/// Returns the folder of snapshots: `states` in the cache.
///
/// # Errors
/// One line if no folder for a cache can be determined.
pub fn folder() -> anyhow::Result<PathBuf> {
    Ok(cache::folder()?.join("states"))
}

/// Returns the snapshot of a guest: the one in the cache or, if there is none, a new one, which is then stored in the
/// cache. `image` is the name of the kernel image and its SHA-256. `uncounted` is called before a boot, and returns the
/// setting with which QEMU counts no events. With `cold`, the guest always boots, and its snapshot is not stored. If
/// QEMU cannot save the state, prints a message and returns `None`.
///
/// # Errors
/// If the guest does not reach the point at which it is saved. The error is one line with what is known about the
/// guest.
pub fn of(
    guest: &Guest,
    uncounted: &dyn Fn() -> Counting,
    image: (&str, &str),
    qemu: &str,
    cold: bool,
    runs: &Runs,
) -> anyhow::Result<Option<State>> {
    let (name, sha256) = image;
    let place = match cold {
        true => None,
        false => {
            let place =
                folder().and_then(|folder| Place::of(&folder, &key::name(guest, sha256, qemu)?));
            place.map_err(|error| say_not_kept(name, &error)).ok()
        }
    };
    if let Some(place) = &place
        && let Some(state) = place.look(name)
    {
        return Ok(Some(state));
    }
    let stage = match place {
        Some(_) => format!("booting {name} once; later runs start from its saved state"),
        None => format!("booting {name}"),
    };
    let stage = Stage::begin(&stage);
    let guest = Guest {
        counting: uncounted(),
        ..guest.clone()
    };
    match make::boot(&guest, runs) {
        Ok(taken) => {
            stage.done();
            Ok(Some(keep(name, place.as_ref(), &taken)?))
        }
        Err(Unmade::Guest(error)) => Err(error),
        // If a signal or the time limit ended the runs, QEMU was killed while it saved the state. The caller reports
        // the reason.
        Err(Unmade::Saving(_)) if runs.was_cut().is_some() => Ok(None),
        Err(Unmade::Saving(error)) => {
            say(&format!(
                "{name} boots for each run, its state cannot be saved: {error:#}"
            ));
            Ok(None)
        }
    }
}

/// Stores a snapshot at `place`. If `place` is `None`, or if the snapshot cannot be written there, stores it in a
/// memfd, which exists while the command runs.
fn keep(name: &str, place: Option<&Place>, taken: &Taken) -> anyhow::Result<State> {
    if let Some(place) = place {
        match place.keep(taken) {
            Ok(state) => return Ok(state),
            Err(error) => say_not_kept(name, &error),
        }
    }
    let file = rustix::fs::memfd_create("state", MemfdFlags::CLOEXEC);
    let file = File::from(file.context("cannot make memory for a state")?);
    let (devices, wires) = taken;
    let saved = file::write(file, devices.clone(), wires.memory());
    Ok(State::new(saved.context("cannot write a state")?))
}

fn say_not_kept(name: &str, error: &anyhow::Error) {
    say(&format!(
        "{name}: its saved state cannot be kept: {error:#}"
    ));
}

/// Opens a stored snapshot, and updates its modification time to record that it was used.
fn open(path: &Path) -> Result<State, StateError> {
    let file = File::open(path)?;
    // If the modification time cannot be set, this snapshot may be removed from the cache too early.
    let _ = file.set_modified(SystemTime::now());
    Ok(State::new(file::State::open(file)?))
}

/// The place of a snapshot in the cache, whether or not the file exists.
struct Place {
    folder: PathBuf,
    path: PathBuf,
}

impl Place {
    /// Creates the folder, and returns the place of the snapshot with this name.
    fn of(folder: &Path, name: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            folder: folder.to_owned(),
            path: folder.join(format!("{name}{}", keep::SUFFIX)),
        })
    }

    /// Returns the snapshot at this place. If the snapshot cannot be used, removes it and prints a message.
    fn look(&self, name: &str) -> Option<State> {
        let error = match open(&self.path) {
            Ok(state) => return Some(state),
            Err(StateError::Io(error)) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error,
        };
        say(&format!(
            "{name}: its saved state cannot be used, it boots again: {error}"
        ));
        let _ = fs::remove_file(&self.path);
        None
    }

    /// Writes a snapshot to a temporary file, and renames the file to its place when it is complete.
    fn keep(&self, (devices, wires): &Taken) -> anyhow::Result<State> {
        let context = || format!("cannot write {}", self.path.display());
        // Several commands can write the same snapshot. Each writes in a private folder, and the file of the last
        // command that renames its file remains.
        let work = PrivateFolder::within(&self.folder).with_context(context)?;
        let fresh = work.path().join("state");
        let mut options = File::options();
        let file = options.read(true).write(true).create_new(true).open(&fresh);
        let file = file.with_context(context)?;
        let saved = file::write(file, devices.clone(), wires.memory()).with_context(context)?;
        fs::rename(&fresh, &self.path).with_context(context)?;
        keep::bound(&self.folder, keep::MOST).with_context(context)?;
        Ok(State::new(saved))
    }
}

impl State {
    fn new(saved: file::State) -> Self {
        Self {
            saved,
            told: Once::new(),
        }
    }

    /// Writes the snapshot's memory into empty files, one for each NUMA node.
    ///
    /// # Errors
    /// I/O errors of reading and writing.
    pub fn fill(&self, memory: &[Part]) -> anyhow::Result<()> {
        self.saved
            .fill(memory)
            .context("cannot read the saved state")
    }

    /// Resumes a QEMU that waits for an incoming migration with this snapshot.
    ///
    /// # Errors
    /// I/O errors of the sockets, and errors that QEMU reports.
    pub fn resume(&self, stream: UnixStream, folder: &Path) -> anyhow::Result<()> {
        let mut monitor = Monitor::open(stream)?;
        prepare(&mut monitor)?;
        let path = folder.join("stream.sock");
        let uri = format!("unix:{}", path.display());
        monitor.execute("migrate-incoming", &json!({ "uri": uri }))?;
        let mut stream = UnixStream::connect(path)?;
        stream.write_all(self.saved.devices())?;
        stream.shutdown(Shutdown::Write)?;
        finish(&mut monitor)?;
        monitor.execute("cont", &json!({}))?;
        Ok(())
    }

    /// Prints that a run could not start from this snapshot. Only the first call prints the message.
    pub fn say_unusable(&self, error: &anyhow::Error) {
        self.told.call_once(|| {
            say(&format!(
                "a saved state cannot be used, the guest boots: {error:#}"
            ));
        });
    }
}
