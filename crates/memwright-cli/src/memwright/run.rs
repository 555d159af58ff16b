//! A run on Memwright's kernel, which reports its own counts.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use anyhow::{Context, anyhow};

use crate::count::fault_causes;
use crate::guestfs::initrd;
use crate::guestfs::prepare::{self, KernelOptions, Prepared, RootChoice};
use crate::guestfs::root::{Record, RootServer};
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
use crate::model::faults::{Faults, Stacks};
use crate::model::machine::{Clock, Machine};
use crate::model::memwright_run::Document;
use crate::model::plan::OwnPlan;
use crate::model::shell::shell_line;
use crate::qemu::command::{Places, arguments};
use crate::qemu::disk;
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

/// The handler of signals and of the time limit, which can end a run before its program exits.
pub enum Attendance<'a> {
    /// The run is the only one of the command. The first SIGINT is forwarded to PROGRAM. When `--timeout` expires, the
    /// guest prints backtraces of its CPUs.
    Alone(&'a SignalWatch),
    /// The run is one of several. A signal or the time limit ends all of them.
    Among(&'a Runs),
}

/// The source of a run's input, and the destination of its output.
pub struct Wiring<'a> {
    /// The program's standard input.
    pub source: Source,
    /// The destination of the program's output.
    pub streams: Streams,
    /// The file of `--trace`.
    pub trace: Option<TraceFile>,
    /// The files that the command must not overwrite.
    pub taken: &'a Taken,
}

/// The result of a run.
pub struct Finished {
    /// The document with the account, which can be empty if the guest did not report how PROGRAM ended.
    pub document: Document,
    /// The page faults by stack, if they are counted by their causes.
    pub fault_stacks: Stacks,
    /// The guest's output and result.
    pub report: Report,
    /// Why the command ended the run before the program exited; `None` if the command did not end the run.
    pub cut: Option<Cut>,
    /// What QEMU wrote to its standard error.
    pub errors: String,
    /// What the guest looked up in the tree of `--root`.
    pub seen: Record,
}

impl<'a> Run<'a> {
    /// Finds the program, and collects the guest's files.
    ///
    /// # Errors
    /// If the program does not exist or cannot be executed, if this kernel does not support the machine, or if the
    /// files do not fit in the guest.
    pub fn open(plan: &'a OwnPlan) -> Result<Self, Failure> {
        prepare::check_swap(&plan.setup.swap)?;
        let told = KernelOptions {
            terminals: plan.terminals.clone(),
            trace: plan.trace || plan.faults.is_some(),
            strace: plan.strace,
            parallel: plan.clock == Clock::Host,
            selftest: plan.selftest.clone(),
        };
        let mut prepared = prepare::prepare(&plan.setup, &told)?;
        prepared.check_size(&plan.setup)?;
        if prepared.root.is_some() {
            prepared.manifest.options.push("lower=1".to_owned());
        }
        Ok(Self {
            plan,
            machine: Machine::of(&plan.setup, plan.clock),
            prepared,
        })
    }

    /// Returns the guest's files, which the command must not overwrite.
    pub fn taken(&self) -> Taken {
        self.prepared.taken()
    }

    /// Returns the path of the program on this machine.
    pub fn program(&self) -> &Path {
        &self.prepared.program.path
    }

    /// Finds QEMU, and checks that it can run this guest.
    ///
    /// # Errors
    /// If no suitable QEMU is found.
    pub fn check_qemu(&self) -> anyhow::Result<(OsString, Version)> {
        let patience = bounded::patience(self.plan.care.timeout);
        let qemu = version::program(&self.machine, patience)?;
        let version = version::check_for(&qemu, &self.machine, patience)?;
        Ok((qemu, version))
    }

    /// Returns the QEMU command line. With `--keep`, the files that the command line names exist, so that the user can
    /// run it.
    ///
    /// # Errors
    /// If no QEMU or no kernel image is found, or I/O errors of writing the files.
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

    /// Runs the program until it exits, or until the command ends the run early.
    ///
    /// # Errors
    /// If the run cannot start or the guest's output is malformed. A failure inside the guest is reported in
    /// [`Finished`].
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
        // Querying QEMU's version takes as long as packing the initrd, so the two are done in parallel. Hashing takes
        // as long as a short run, so it is done during the run.
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
            disk::make(&folder.places().disk, size).context("cannot make the disk")?;
        }
        let port = self.plan.gdb.then(gdb::free_port).transpose()?;
        let line = arguments(folder.places(), &self.machine, &Backing::Own, port);
        self.announce(&folder, &shell_line(&qemu, &line), version)?;
        if let Some(port) = port {
            let gdb = gdb::line(&folder.places().kernel, port);
            say(&format!("waiting for gdb: {gdb}"));
        }
        let errors = folder.file("qemu.log");
        let root = self.serve_root()?;
        let (driven, hashes) = thread::scope(|scope| {
            let hashing = scope.spawn(|| Hashes::read(&self.prepared.program, &image));
            let driven = self.drive(
                attendance,
                wiring,
                &folder,
                (&qemu, &line),
                &image,
                root.as_ref(),
            );
            (driven, hashing.join())
        });
        let driven = driven?;
        let hashes = hashes.map_err(|_| anyhow!("hashing the files panicked"))?;
        let (seen, changed) = root.as_deref().map_or_else(Default::default, seen);
        let lines: Vec<String> = seen.lines().collect();
        let live = match attendance {
            _ if changed => Some("a file of --root changed"),
            _ if driven.was_live => Some("live input"),
            Attendance::Alone(signals) if signals.was_used() => Some("interrupted"),
            Attendance::Alone(_) | Attendance::Among(_) => None,
        };
        let mut driven = driven;
        let (faults, stacks) = self.faults(&mut driven.report)?.unzip();
        let mut document = document(
            self.plan,
            &self.machine,
            &self.prepared,
            hashes,
            &driven.report,
            (&driven.input, &lines),
            self.machine.not_repeatable().or(live),
        );
        document.faults = faults;
        Ok(Finished {
            document,
            fault_stacks: stacks.unwrap_or_default(),
            report: driven.report,
            cut: driven.cut,
            errors: fs::read_to_string(&errors).unwrap_or_default(),
            seen,
        })
    }

    /// Returns the page faults by their causes; `None` if they are not counted by cause, or if the guest gave no
    /// account.
    fn faults(&self, report: &mut Report) -> anyhow::Result<Option<(Faults, Stacks)>> {
        let (Some(by), Some(trace)) = (self.plan.faults, report.faults.take()) else {
            return Ok(None);
        };
        if report.account.rows.is_empty() {
            return Ok(None);
        }
        let sites = trace.finish(&report.account)?;
        let find = |path: &Path| self.prepared.host_file(path);
        Ok(Some(fault_causes::causes(&sites, by, &find)))
    }

    /// Opens the tree of `--root` and creates its server.
    fn serve_root(&self) -> anyhow::Result<Option<Arc<Mutex<RootServer>>>> {
        let root = self.prepared.root.as_ref();
        let tree = root.map(RootChoice::open).transpose()?;
        Ok(tree.map(|tree| Arc::new(Mutex::new(RootServer::new(tree)))))
    }

    /// Starts the guest and waits until it ends.
    fn drive(
        &self,
        attendance: &Attendance<'_>,
        wiring: Wiring<'_>,
        folder: &RunFolder,
        (qemu, line): (&OsString, &[OsString]),
        image: &[u8],
        root: Option<&Arc<Mutex<RootServer>>>,
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
            errors: &folder.file("qemu.log"),
            source: wiring.source,
            root: root.cloned(),
            streams: wiring.streams,
            symbols: &Symbols::read(image),
            trace: wiring.trace,
            faults: self.plan.faults.is_some(),
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

    /// Prints the QEMU command line with `--verbose`, and writes it to a file with `--keep`.
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

    /// Writes the kernel and the initrd that QEMU boots.
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

/// Returns what the guest looked up in the tree, and whether a file changed while the guest read it.
fn seen(root: &Mutex<RootServer>) -> (Record, bool) {
    // The record can be used even if the server panicked, because the run has ended.
    let root = root.lock().unwrap_or_else(PoisonError::into_inner);
    (root.record().clone(), root.has_changed())
}
