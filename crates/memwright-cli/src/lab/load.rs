//! The program that runs on a kernel image, and the files of its guest.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::guestfs::initrd::Manifest;
use crate::guestfs::prepare::{KernelOptions, Prepared, prepare};
use crate::guestfs::root::Record;
use crate::host::host_file;
use crate::host::output::say;
use crate::lab::input::Input;
use crate::lab::laboratory::{OWN, USUAL_LIMIT};
use crate::lab::rehearsal;
use crate::model::failure::Failure;
use crate::model::hashed_file::HashedFile;
use crate::model::image::System;
use crate::model::plan::{ImagePlan, Setup};
use crate::model::region_names::RegionNames;
use crate::model::size::SwapSize;

/// The program, the files of its guest, and its standard input.
pub struct Load {
    /// The program and the files.
    pub prepared: Prepared,
    /// The hash of the program.
    pub program: HashedFile,
    /// The hashes of the interpreters and libraries that the program needs.
    pub companions: Vec<HashedFile>,
    /// What the program looked up in the tree of `--root` during its rehearsal on Memwright; `None` without a tree.
    pub seen: Option<Arc<Record>>,
    /// The program's standard input.
    pub input: Vec<u8>,
    /// The names that the program gives its regions.
    pub names: RegionNames,
}

impl Load {
    /// Finds the program and the files that it needs to start, and reads standard input.
    ///
    /// # Errors
    /// If the program does not exist or cannot be executed, or if standard input does not end in time or does not fit
    /// in the guest's memory.
    pub fn open(plan: &ImagePlan, input: &Input, system: System) -> Result<Self, Failure> {
        let prepared = prepare(&plan.setup, &KernelOptions::default())?;
        if system == System::Linux {
            say_where_huge_pages_are_off(&plan.setup);
        }
        let limit = plan.care.timeout.unwrap_or(USUAL_LIMIT);
        let companions = prepared.program.companions.iter();
        Ok(Self {
            names: region_names_or_say(&prepared),
            program: prepared.program.hashed(),
            companions: companions
                .map(|path| host_file::hashed_file(path))
                .collect(),
            input: input.read(plan.setup.memory(), limit)?,
            seen: None,
            prepared,
        })
    }

    /// Adds the files of the tree of `--root` that the program uses, unless the run is dry. Also adds the files that a
    /// Linux guest needs.
    ///
    /// # Errors
    /// If the rehearsal gives no result, or if the files do not fit into the guest's memory.
    pub fn complete(
        &mut self,
        plan: &ImagePlan,
        input: &Input,
        (system, swap): (System, Option<SwapSize>),
        dry_run: bool,
    ) -> Result<(), Failure> {
        if !dry_run {
            self.seen = rehearsal::add_files(&mut self.prepared, plan, input)?;
        }
        self.prepared.check_size(&plan.setup)?;
        if system == System::Linux {
            put_input(&mut self.prepared, swap, &self.input);
        }
        Ok(())
    }
}

/// Adds the program's input, its arguments and the size of swap to a Linux guest's files.
fn put_input(prepared: &mut Prepared, swap: Option<SwapSize>, input: &[u8]) {
    let place = Path::new(OWN).join("input");
    prepared.tree.add_bytes(&place, 0o600, input.to_vec());
    if let Some(swap) = swap {
        let place = Path::new(OWN).join("swap");
        let text = format!("{}\0{}\0", swap.kind.name(), swap.bytes());
        prepared.tree.add_bytes(&place, 0o600, text.into_bytes());
    }
    // If this file exists, the init process provides what programs expect of a complete system: the loopback interface,
    // /dev/shm and /dev/fd.
    if prepared.root.is_some() {
        let place = Path::new(OWN).join("root");
        prepared.tree.add_bytes(&place, 0o600, Vec::new());
    }
    let folder = prepared.folder.as_os_str().as_bytes().to_vec();
    let place = Path::new(OWN).join("folder");
    prepared.tree.add_bytes(&place, 0o600, folder);
    let path = OsString::from(&prepared.program.path);
    let given = prepared.manifest.arguments.drain(..);
    prepared.manifest = Manifest {
        arguments: [path].into_iter().chain(given).collect(),
        environment: std::mem::take(&mut prepared.manifest.environment),
        options: Vec::new(),
    };
}

/// The minimum memory of a guest with which Linux enables transparent huge pages, in bytes: 512 MiB in addition to what
/// the kernel itself uses (`mm/huge_memory.c`, `hugepage_init`).
const HUGE_PAGES_FROM: u64 = 576 << 20;

/// Prints that Linux disables transparent huge pages in this guest, if the user requested them explicitly.
fn say_where_huge_pages_are_off(setup: &Setup) {
    let is_asked = setup.thp == "always" || !setup.thp_sizes.is_empty();
    if is_asked && setup.memory().bytes() < HUGE_PAGES_FROM {
        say(
            "Linux turns transparent huge pages off in so little memory, whatever --thp and --thp-size say: --memory 576M or more",
        );
    }
}

/// Reads the names that a program gives its regions. If they are invalid, prints the reason and returns no names.
fn region_names_or_say(prepared: &Prepared) -> RegionNames {
    prepared.region_names().unwrap_or_else(|error| {
        say(&format!(
            "{}: its regions have numbers alone: {error}",
            prepared.program.path.display()
        ));
        RegionNames::default()
    })
}
