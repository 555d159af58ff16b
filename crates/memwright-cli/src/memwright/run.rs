//! A run on Memwright's kernel, which says itself what it counted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, anyhow};

use crate::guestfs::initrd;
use crate::guestfs::prepare::{self, KernelOptions, Prepared};
use crate::host::bounded;
use crate::host::folder::kept_folder;
use crate::host::output::say;
use crate::host::taken::Taken;
use crate::memwright::document::{Hashes, document};
use crate::memwright::drive::{Drive, Driven};
use crate::memwright::folder::{KEPT, RunFolder};
use crate::memwright::input::Source;
use crate::memwright::session::{Report, Streams};
use crate::memwright::symbolise::Symbols;
use crate::memwright::trace::TraceFile;
use crate::memwright::watch::{self, SignalWatch};
use crate::memwright::{gdb, kernel};
use crate::model::failure::Failure;
use crate::model::machine::{Clock, Machine};
use crate::model::memwright_run::Document;
use crate::model::plan::OwnPlan;
use crate::model::shell::shell_line;
use crate::model::size::MemorySize;
use crate::qemu::command::{Places, arguments};
use crate::qemu::nodes::Backing;
use crate::qemu::process::Cut;
use crate::qemu::runs::Runs;
use crate::qemu::version::{self, Version};

/// A program that is ready to run on Memwright's kernel.
pub struct Run<'a> {
    plan: &'a OwnPlan,
    machine: Machine,
    prepared: Prepared,
}

/// Who ends a run before its time.
pub enum Attendance<'a> {
    /// It is alone: the first SIGINT goes to PROGRAM, and when `--timeout` expires the guest says where its CPUs are.
    Alone(&'a SignalWatch),
    /// It is one of several guests, which end together.
    Among(&'a Runs),
}

/// Where a run's input comes from, and where its output goes.
pub struct Wiring<'a> {
    /// The program's standard input.
    pub source: Source,
    /// Its output.
    pub streams: Streams,
    /// The file of `--trace`.
    pub trace: Option<TraceFile>,
    /// The files that must not be written over.
    pub taken: &'a Taken,
}

/// What a run came to.
pub struct Finished {
    /// The account; one of a guest that did not say how it ended may have no rows.
    pub document: Document,
    /// What the guest said.
    pub report: Report,
    /// Why the run was cut short, if it was.
    pub cut: Option<Cut>,
    /// What QEMU wrote to its standard error.
    pub errors: String,
}

impl<'a> Run<'a> {
    /// Finds the program, and collects the guest's files.
    ///
    /// # Errors
    /// The program is missing or none; a machine that this kernel cannot have; files without room.
    pub fn open(plan: &'a OwnPlan) -> Result<Self, Failure> {
        prepare::check_swap(&plan.setup.swap)?;
        let told = KernelOptions {
            terminals: plan.terminals.clone(),
            trace: plan.trace,
            strace: plan.strace,
            parallel: plan.clock == Clock::Host,
            selftest: plan.selftest.clone(),
        };
        Ok(Self {
            plan,
            machine: Machine::of(&plan.setup, plan.clock),
            prepared: prepare::prepare(&plan.setup, &told)?,
        })
    }

    /// The files that the guest is made of: none is to be written over.
    pub fn taken(&self) -> Taken {
        self.prepared.taken()
    }

    /// The program on this machine.
    pub fn program(&self) -> &Path {
        &self.prepared.program.path
    }

    /// Finds QEMU, and checks that it is one that can run this guest.
    ///
    /// # Errors
    /// When there is none.
    pub fn check_qemu(&self) -> anyhow::Result<(OsString, Version)> {
        let patience = bounded::patience(self.plan.care.timeout);
        let qemu = version::program(&self.machine, patience)?;
        let version = version::check_for(&qemu, &self.machine, patience)?;
        Ok((qemu, version))
    }

    /// The QEMU line. With `--keep` the files are there, so that it can be run.
    ///
    /// # Errors
    /// When no QEMU is known; those of writing the files.
    pub fn line(&self) -> anyhow::Result<String> {
        const DRY: &str = "/tmp/memwright-run";
        let patience = bounded::patience(self.plan.care.timeout);
        let qemu = version::program_to_name(&self.machine, patience)?;
        let places = match &self.plan.care.keep {
            Some(path) => {
                let kept = kept_folder(path)?;
                let places = Places::within(&kept, &kept);
                self.pack(&places, &kernel::image()?)?;
                places
            }
            None => Places::within(Path::new(DRY), Path::new(DRY)),
        };
        let port = self.plan.gdb.then_some(gdb::USUAL_PORT);
        let line = arguments(&places, &self.machine, &Backing::Own, port);
        Ok(shell_line(&qemu, &line))
    }

    /// Runs the program to its end, or until the run is cut short.
    ///
    /// # Errors
    /// Everything that keeps the program from running; what happens inside the guest is in [`Finished`].
    pub fn run(
        &self,
        attendance: &Attendance<'_>,
        wiring: Wiring<'_>,
    ) -> Result<Finished, Failure> {
        let care = &self.plan.care;
        let image = kernel::image()?;
        let folder = RunFolder::create(care.keep.as_deref())?;
        for name in KEPT {
            let path = folder.kept(name);
            path.map_or(Ok(()), |path| wiring.taken.check(&path))?;
        }
        // Asking QEMU its version takes as long as packing, and hashing as long as a short run: side by side.
        let (packed, checked) = thread::scope(|scope| {
            let checking = scope.spawn(|| self.check_qemu());
            (self.pack(folder.places(), &image), checking.join())
        });
        let checked = checked.map_err(|_| anyhow!("the check of QEMU panicked"))?;
        let (qemu, version) = checked.map_err(Failure::Environment)?;
        packed?;
        match attendance {
            Attendance::Alone(signals) => signals.check()?,
            Attendance::Among(runs) => runs.check()?,
        }
        if let Some(size) = self.machine.disk {
            make_disk(&folder.places().disk, size).context("cannot make the disk")?;
        }
        let port = self.plan.gdb.then(gdb::free_port).transpose()?;
        let line = arguments(folder.places(), &self.machine, &Backing::Own, port);
        self.announce(&folder, &shell_line(&qemu, &line), version)?;
        if let Some(port) = port {
            let gdb = gdb::line(&folder.places().kernel, port);
            say(&format!("waiting for gdb: {gdb}"));
        }
        let errors = folder.file("qemu.log");
        let (driven, hashes) = thread::scope(|scope| {
            let hashing = scope.spawn(|| Hashes::read(&self.prepared.program, &image));
            let driven = self.drive(attendance, wiring, &folder, (&qemu, &line), &image, &errors);
            (driven, hashing.join())
        });
        let driven = driven?;
        let hashes = hashes.map_err(|_| anyhow!("hashing the files panicked"))?;
        let live = match attendance {
            _ if driven.was_live => Some("live input"),
            Attendance::Alone(signals) if signals.was_used() => Some("interrupted"),
            Attendance::Alone(_) | Attendance::Among(_) => None,
        };
        let document = document(
            self.plan,
            &self.machine,
            &self.prepared,
            hashes,
            &driven.report,
            &driven.input,
            self.machine.not_repeatable().or(live),
        );
        Ok(Finished {
            document,
            report: driven.report,
            cut: driven.cut,
            errors: fs::read_to_string(&errors).unwrap_or_default(),
        })
    }

    /// Starts the guest and stays with it to its end.
    fn drive(
        &self,
        attendance: &Attendance<'_>,
        wiring: Wiring<'_>,
        folder: &RunFolder,
        (qemu, line): (&OsString, &[OsString]),
        image: &[u8],
        errors: &Path,
    ) -> anyhow::Result<Driven> {
        let create = |path: PathBuf| {
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))
        };
        let kept_log = folder.kept("log").map(create).transpose()?;
        let (progress, news) = mpsc::channel();
        let places = folder.places();
        let drive = Drive {
            qemu,
            line,
            places,
            stdin: Stdio::null(),
            errors,
            source: wiring.source,
            streams: wiring.streams,
            symbols: &Symbols::read(image),
            trace: wiring.trace,
            kept_log,
            verbose: self.plan.care.verbose,
            progress,
        };
        drive.run(|process, input| match attendance {
            Attendance::Alone(signals) => {
                signals.watch(process, places.control.clone(), input.withdrawer());
                if let Some(limit) = self.plan.care.timeout {
                    watch::start_timeout(limit, process.clone(), places.monitor.clone(), news);
                }
            }
            Attendance::Among(runs) => runs.add(process),
        })
    }

    /// Says what is being run, where that is asked for.
    fn announce(&self, folder: &RunFolder, line: &str, version: Version) -> anyhow::Result<()> {
        if self.plan.care.verbose {
            say(&format!("QEMU {version}: {line}"));
        }
        match folder.kept("command") {
            Some(path) => fs::write(&path, format!("{line}\n"))
                .with_context(|| format!("cannot write {}", path.display())),
            None => Ok(()),
        }
    }

    /// Writes what QEMU boots.
    fn pack(&self, places: &Places, image: &[u8]) -> anyhow::Result<()> {
        fs::write(&places.kernel, image)
            .with_context(|| format!("cannot write {}", places.kernel.display()))?;
        let prepared = &self.prepared;
        let size = initrd::write(&places.initrd, &prepared.manifest, &prepared.tree)?;
        if self.plan.care.verbose {
            let entries = prepared.tree.nodes().count();
            say(&format!("initrd of {size} bytes, {entries} entries"));
        }
        Ok(())
    }
}

/// Makes the file of the disk, which goes with the run. It takes room only where the guest writes.
///
/// # Errors
/// Those of making a file.
pub fn make_disk(path: &Path, size: MemorySize) -> io::Result<()> {
    File::create_new(path)?.set_len(size.bytes())
}
