//! What the runs of one command share on every kernel: the program and its files, the machine, QEMU, and the plugin.

use crate::count::tree;
use crate::guestfs::prepare::{KernelOptions, check_swap, prepare};
use crate::host::{bounded, host_file};
use crate::lab::input::Input;
use crate::model::kernel_run::{KIND, SCHEMA};
use crate::model::machine::Clock;
use crate::model::plan::{Detail, ImagePlan, Measure, Setup};
use crate::model::settings::settings;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{slice, thread};

use anyhow::{Context, anyhow};
use memwright_linux_abi::channel::THE_RUN;

use crate::count::counting::Counting;
use crate::count::plugin;
use crate::count::said::Said;
use crate::guestfs::initrd::{self, Manifest};
use crate::guestfs::prepare::Prepared;
use crate::guestfs::root::Record;
use crate::guestfs::tree::Tree;
use crate::host::folder::{PrivateFolder, kept_folder, private_folder};
use crate::host::output::say;
use crate::host::taken::Taken;
use crate::lab::kernel_symbols::{self, Names};
use crate::lab::linux_run;
use crate::lab::missed_names::{missed, say_missed};
use crate::lab::rehearsal;
use crate::linux::guest::{Guest, Start, check_command_line};
use crate::linux::kept;
use crate::memwright::guest::OwnGuest;
use crate::memwright::kernel;
use crate::model::failure::Failure;
use crate::model::hash::hexadecimal_hash;
use crate::model::hashed_file::HashedFile;
use crate::model::image::{Image, System};
use crate::model::kernel_run::{Document, Host, Kernel, Qemu};
use crate::model::machine::Machine;
use crate::model::profile::Profile;
use crate::model::region_names::{self, RegionNames};
use crate::model::shell::shell_line;
use crate::model::size::SwapSize;
use crate::qemu::runs::Runs;
use crate::qemu::version::{self, Version};
use crate::states::{self, State};

/// The init process of Linux guests. It is built together with this command, so that the user needs no compiler for it,
/// and every machine runs the same bytes. Empty if it could not be built.
static INIT: &[u8] = include_bytes!(env!("MEMWRIGHT_GUEST_INIT"));
/// The folder in the guest with the init process's own files.
const OWN: &str = "/.memwright";
/// The file name of the initrd from which guests without swap boot.
const BOOT: &str = "initrd.cpio";
/// The file name of the archive with the program and its files.
const PROGRAM: &str = "program.cpio";
/// The file name of Memwright's kernel.
const KERNEL: &str = "kernel";
/// The folder that the command line of a dry run names in place of the temporary folder.
const DRY: &str = "/tmp/memwright-run";
/// The default time limit of the guests.
pub const USUAL_LIMIT: Duration = Duration::from_secs(900);

/// A program, its guest and QEMU, prepared for runs on images of one kind: Linux kernels, or Memwright's kernel.
pub struct Laboratory<'a> {
    plan: &'a ImagePlan,
    system: System,
    prepared: Prepared,
    program: HashedFile,
    companions: Vec<HashedFile>,
    // What the program looked up in the tree of `--root` in its rehearsal on Memwright; `None` without a tree.
    seen: Option<Arc<Record>>,
    input: Vec<u8>,
    files: PathBuf,
    swap: Option<SwapSize>,
    names: RegionNames,
    // The region to profile; `None` for the complete run.
    region: Option<u16>,
    machine: Machine,
    qemu: OsString,
    qemu_sha256: OnceLock<String>,
    version: Version,
    counting: Counting,
    // The folder is removed when this value is dropped.
    _folder: PrivateFolder,
}

/// A profile, and the names of the kernel's functions with the meaning of [`Measured::names`].
type Named = (Profile, Option<BTreeSet<String>>);

/// The results of a program on one kernel.
pub struct Measured {
    /// The outcome of the first run.
    pub said: Said,
    /// The account of the first run.
    pub document: Document,
    /// The names of the kernel's functions; `None` if they are not all known. Without them, a function that only one
    /// kernel has is a difference, and is not counted as its caller's.
    pub names: Option<BTreeSet<String>>,
}

impl<'a> Laboratory<'a> {
    /// Finds QEMU, builds the plugin if it is needed, and packs the guest's files. A `dry_run` packs nothing unless
    /// `--keep` is set.
    ///
    /// # Errors
    /// If the program does not exist or cannot be executed, or if a required tool is missing.
    pub fn open(
        plan: &'a ImagePlan,
        input: &Input,
        system: System,
        dry_run: bool,
    ) -> Result<Self, Failure> {
        let Setup { swap, .. } = &plan.setup;
        let machine = Machine::of(&plan.setup, Clock::Instructions);
        let swap = match system {
            System::Linux => only_swap(swap),
            System::Memwright => own_kernel_takes(&plan.setup).map(|()| None),
        };
        let swap = swap.map_err(Failure::Usage)?;
        check_plan(plan, system)?;
        let mut prepared = prepare(&plan.setup, &KernelOptions::default())?;
        if system == System::Linux {
            say_where_huge_pages_are_off(&plan.setup);
        }
        let names = region_names_or_say(&prepared);
        let region = profiled_region(&plan.measure, &names)?;
        let missing = Failure::Environment;
        let patience = bounded::patience(plan.care.timeout);
        let limit = plan.care.timeout.unwrap_or(USUAL_LIMIT);
        let bytes = input.read(plan.setup.memory(), limit)?;
        let folder = private_folder().context("cannot make a temporary folder")?;
        let files = match &plan.care.keep {
            Some(path) => kept_folder(path)?,
            None if dry_run => PathBuf::from(DRY),
            None => folder.path().to_owned(),
        };
        let qemu = if dry_run {
            version::program_to_name(&machine, patience)
        } else {
            version::program(&machine, patience)
        };
        let qemu = qemu.map_err(missing)?;
        let version = version::check_for(&qemu, &machine, patience).map_err(missing)?;
        let seen = match dry_run {
            true => None,
            false => rehearsal::add_files(&mut prepared, plan, input)?,
        };
        prepared.check_size(&plan.setup)?;
        if system == System::Linux {
            put_input(&mut prepared, swap, &bytes);
        }
        if !dry_run || plan.care.keep.is_some() {
            initrd::write(&files.join(PROGRAM), &prepared.manifest, &prepared.tree)?;
            match system {
                System::Linux => initrd::write_tree(&files.join(BOOT), &first_process())?,
                System::Memwright => write_kernel(&files.join(KERNEL))?,
            }
        }
        let counting = counting(&plan.measure, system, &qemu, version)?;
        let companions = prepared.program.companions.iter();
        Ok(Self {
            plan,
            system,
            program: prepared.program.hashed(),
            companions: companions
                .map(|path| host_file::hashed_file(path))
                .collect(),
            prepared,
            seen,
            input: bytes,
            files,
            swap,
            names,
            region,
            machine,
            counting,
            qemu,
            qemu_sha256: OnceLock::new(),
            version,
            _folder: folder,
        })
    }

    /// Returns the files of a guest with this image, which the command must not overwrite.
    pub fn taken(&self, image: &Image) -> Taken {
        let mut taken = self.prepared.taken();
        taken.read_path("a kernel image", &image.path);
        taken
    }

    /// Returns the QEMU command line for an image, quoted for a shell.
    pub fn line(&self, image: &Image) -> String {
        let line = match self.system {
            System::Linux => {
                let serial = self.files.join("serial");
                self.guest(image).arguments(&serial, None, Start::Boot)
            }
            System::Memwright => {
                let guest = self.own_guest();
                guest.arguments(&guest.places(&self.files), None)
            }
        };
        shell_line(&self.qemu, &line)
    }

    /// Runs the program on an image; twice, unless verification is disabled.
    ///
    /// # Errors
    /// If a guest gives no result.
    pub fn measure(&self, image: &Image, runs: &Runs) -> Result<Measured, Failure> {
        if self.plan.care.verbose {
            say(&format!("QEMU {}: {}", self.version, self.line(image)));
        }
        let count = self.guests_of_an_image();
        match self.system {
            System::Linux => {
                let guest = self.guest(image);
                self.add_modules(image, &guest.boot)?;
                let (state, results, missed) = match self.state(image, runs) {
                    Ok(state) => {
                        let (results, missed) = thread::scope(|scope| {
                            let names = scope.spawn(|| self.missed(image, runs, state.as_ref()));
                            let results =
                                run(count, || linux_run::run(&guest, runs, state.as_ref()));
                            (results, joined(names))
                        });
                        (state, results, missed)
                    }
                    Err(error) => (None, vec![Err(error)], Ok(None)),
                };
                let names = || kernel_symbols::find(image, &guest, state.as_ref(), runs);
                let mut measured =
                    self.conclude(image, runs, results, &guest.command_line(), names)?;
                measured.document.missed = missed.map_err(Failure::Guest)?;
                say_missed(&image.name, measured.document.missed.as_deref());
                Ok(measured)
            }
            System::Memwright => {
                let guest = self.own_guest();
                let results = run(count, || guest.run(runs));
                let options = self.prepared.manifest.options.join(" ");
                let names = || kernel_symbols::of_own_kernel(&guest.kernel);
                self.conclude(image, runs, results, &options, names)
            }
        }
    }

    /// Runs the program once more without counting. Returns the paths in the tree of `--root` that it looked up and
    /// that its guest lacks; `None` without a tree or with `--no-verify`.
    fn missed(
        &self,
        image: &Image,
        runs: &Runs,
        state: Option<&State>,
    ) -> anyhow::Result<Option<Vec<String>>> {
        let (Some(seen), Some(root), true) = (&self.seen, &self.prepared.root, self.plan.verify)
        else {
            return Ok(None);
        };
        let guest = Guest {
            reports_names: true,
            counting: Counting::Nothing,
            profile: None,
            ..self.guest(image)
        };
        let said = linux_run::run(&guest, runs, state)
            .with_context(|| format!("{}: looking for names missed", image.name))?;
        Ok(Some(missed(&root.open()?, seen, &said.not_found)))
    }

    /// Returns the results of the first run on an image, and whether a second run gave the same.
    fn conclude(
        &self,
        image: &Image,
        runs: &Runs,
        results: Vec<anyhow::Result<Said>>,
        command_line: &str,
        names: impl FnOnce() -> anyhow::Result<Names>,
    ) -> Result<Measured, Failure> {
        runs.check()?;
        let mut said = results
            .into_iter()
            .collect::<anyhow::Result<Vec<_>>>()
            .map_err(|error| Failure::Guest(error.context(image.name.clone())))?
            .into_iter()
            .map(|said| said.with_names(&self.names));
        let first = said.next().context("no run was made")?;
        for line in String::from_utf8_lossy(&first.warnings).lines() {
            say(&format!("{}: {line}", image.name));
        }
        let (profile, names) = self.profile(image, &first, names)?.unzip();
        let document = self.document(image, command_line, &first, said.next().as_ref(), profile);
        Ok(Measured {
            said: first,
            document,
            names: names.flatten(),
        })
    }

    /// Returns the names that the program gives its regions.
    pub fn names(&self) -> &RegionNames {
        &self.names
    }

    /// Returns the SHA-256 of QEMU's executable.
    fn qemu_sha256(&self) -> &str {
        self.qemu_sha256.get_or_init(|| version::hash(&self.qemu))
    }

    /// Returns how many guests run in parallel for an image: two if a second run verifies the first.
    pub fn guests_of_an_image(&self) -> usize {
        if self.plan.verify { 2 } else { 1 }
    }

    /// Returns a heading for the runs on an image.
    pub fn heading(&self, image: &Image) -> String {
        format!("{} on {}", self.plan.setup.command[0].display(), image.name)
    }

    /// Returns the snapshot from which runs on this image start, or `None` if they boot.
    fn state(&self, image: &Image, runs: &Runs) -> anyhow::Result<Option<State>> {
        // With several CPUs, which of them runs first after a restore depends on the host. A snapshot does not contain
        // the guest's disk.
        if self.machine.cpus > 1 || self.machine.disk.is_some() {
            return Ok(None);
        }
        let guest = self.guest(image);
        // Without the plugin, snapshots of the same guest can differ by a few instructions.
        let uncounted =
            || plugin(&self.qemu, self.version).map_or(Counting::Nothing, Counting::Halts);
        let qemu = format!("{} {}", self.version, self.qemu_sha256());
        let image = (&*image.name, &*image.sha256);
        states::of(&guest, &uncounted, image, &qemu, self.plan.cold, runs)
    }

    /// Starts to watch signals and the time limit, either of which ends all guests that run in parallel.
    ///
    /// # Errors
    /// Errors of installing signal handlers.
    pub fn runs(&self) -> anyhow::Result<Runs> {
        Runs::start(self.plan.care.timeout.unwrap_or(USUAL_LIMIT)).context("cannot receive signals")
    }

    fn guest(&self, image: &Image) -> Guest {
        Guest {
            qemu: self.qemu.clone(),
            image: image.path.clone(),
            boot: self.boot(image),
            program: self.files.join(PROGRAM),
            reports_names: false,
            append: append(&self.plan.setup),
            machine: self.machine,
            counting: self.counting.clone(),
            profile: self.profiled(),
        }
    }

    /// Returns the path of the initrd from which a guest boots. With swap, each image has its own initrd, which
    /// contains the image's modules.
    fn boot(&self, image: &Image) -> PathBuf {
        match self.swap {
            Some(_) => self.files.join(format!("initrd-{}.cpio", image.sha256)),
            None => self.files.join(BOOT),
        }
    }

    fn own_guest(&self) -> OwnGuest<'_> {
        OwnGuest {
            qemu: self.qemu.clone(),
            kernel: self.files.join(KERNEL),
            initrd: self.files.join(PROGRAM),
            input: &self.input,
            machine: self.machine,
            counting: self.counting.clone(),
            profile: self.profiled(),
        }
    }

    /// Returns the number of the region to profile, or `None` if there is no profile.
    fn profiled(&self) -> Option<u16> {
        match self.plan.measure {
            Measure::Nothing | Measure::Events => None,
            Measure::Functions { .. } => Some(self.region.unwrap_or(THE_RUN)),
        }
    }

    /// Writes the initrd of an image for a guest with swap: the init process, and the modules that are stored with the
    /// image. Does nothing without swap.
    fn add_modules(&self, image: &Image, archive: &Path) -> anyhow::Result<()> {
        let Some(swap) = self.swap else {
            return Ok(());
        };
        let mut tree = first_process();
        for module in kept::modules(&image.path, swap.kind)? {
            let name = module.file_name().unwrap_or_default();
            tree.add_own_copy(&module, &Path::new(OWN).join("modules").join(name))?;
        }
        initrd::write_tree(archive, &tree)
    }

    /// Symbolizes the plugin's profile. Also returns the names of the kernel's functions. Returns `None` without a
    /// profile.
    fn profile(
        &self,
        image: &Image,
        said: &Said,
        names: impl FnOnce() -> anyhow::Result<Names>,
    ) -> Result<Option<Named>, Failure> {
        let (Some(raw), Some(counted)) = (&said.profile, &said.counted) else {
            return Ok(None);
        };
        let counts = match self.region {
            None => Some(counted.run),
            Some(number) => {
                let mut regions = counted.regions.iter().flatten();
                regions
                    .find(|one| one.region == number && one.marks.passes > 0)
                    .map(|one| one.counts)
            }
        };
        let Some(counts) = counts else {
            return Err(Failure::Guest(anyhow!(
                "{}: the program did not pass {}",
                image.name,
                self.names.title(self.region.unwrap_or(THE_RUN))
            )));
        };
        let total = counts
            .instructions
            .and_then(|counted| Some(counted.kernel + counted.interrupts?))
            .with_context(|| {
                format!(
                    "{}: no profile: the handlers of interrupts are not known",
                    image.name
                )
            })?;
        let mut names = names().map_err(Failure::Guest)?;
        if let Some(with_lines) = self.by_source() {
            let debug = match self.system {
                System::Linux => kernel_symbols::debug_file(image),
                System::Memwright => Ok(self.files.join(KERNEL)),
            };
            let build_id = said.build_id.as_deref();
            debug
                .and_then(|path| names.source.add_debug(&path, build_id, with_lines))
                .map_err(Failure::Environment)?;
        }
        let region = self.region;
        let profile = Profile {
            region_name: region.and_then(|region| self.names.get(region).map(str::to_owned)),
            ..tree::build(raw, &names.source, names.sha256, region, total)
        };
        Ok(Some((profile, names.source.names())))
    }

    /// Returns whether the profile needs source lines; `None` if it needs no debug information.
    fn by_source(&self) -> Option<bool> {
        match self.plan.measure {
            Measure::Functions { detail, .. } => match detail {
                Detail::Functions => None,
                Detail::Inlined => Some(false),
                Detail::Lines => Some(true),
            },
            Measure::Nothing | Measure::Events => None,
        }
    }

    /// Returns the guest's settings for documents.
    fn settings(&self) -> Vec<String> {
        let input = hexadecimal_hash(&self.input);
        let Setup { policies, .. } = &self.plan.setup;
        let settings = settings(&self.plan.setup, &self.prepared.files, &input, &[]);
        let policies = policies.iter();
        let policies = policies.map(|policy| format!("policy={policy}"));
        let seen = self.seen.iter().flat_map(|seen| seen.lines());
        let seen = seen.map(|line| format!("root={line}"));
        settings.into_iter().chain(policies).chain(seen).collect()
    }

    fn document(
        &self,
        image: &Image,
        command_line: &str,
        said: &Said,
        again: Option<&Said>,
        functions: Option<Profile>,
    ) -> Document {
        let text = |text: &OsString| text.to_string_lossy().into_owned();
        let differs = again.map(|again| said.differences(again));
        let counted = said.counted.clone();
        let (by_cpu, sent) = counted
            .as_ref()
            .map(|counted| (counted.by_cpu.clone(), counted.sent.clone()))
            .unzip();
        let (run, regions) = counted
            .map(|counted| (counted.run, counted.regions))
            .unzip();
        Document {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            program: self.program.clone(),
            arguments: self.plan.setup.command.iter().map(text).collect(),
            companions: self.companions.clone(),
            kernel: Kernel {
                name: image.name.clone(),
                sha256: image.sha256.clone(),
                build_id: said.build_id.clone(),
                config_sha256: image.config_sha256.clone(),
                version: image.version.clone(),
                command_line: command_line.to_owned(),
            },
            init_sha256: (self.system == System::Linux).then(|| hexadecimal_hash(INIT)),
            qemu: Qemu {
                version: self.version.to_string(),
                sha256: self.qemu_sha256().to_owned(),
            },
            memory: self.machine.memory.bytes(),
            cpus: self.machine.cpus,
            settings: self.settings(),
            outcome: said.outcome.into(),
            output_sha256: Some(hexadecimal_hash(&said.output)),
            errors_sha256: Some(hexadecimal_hash(&said.errors)),
            repeats: differs.as_ref().map(Vec::is_empty),
            differs: differs.unwrap_or_default(),
            missed: None,
            run,
            by_cpu: by_cpu.unwrap_or_default(),
            sent: sent.unwrap_or_default(),
            regions: regions.flatten(),
            functions,
            host: Host {
                image: image.path.display().to_string(),
                command: self.line(image),
            },
        }
    }
}

/// Runs `count` guests in parallel and returns their results.
fn run(count: usize, one: impl Fn() -> anyhow::Result<Said> + Sync) -> Vec<anyhow::Result<Said>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&one)).collect();
        threads.into_iter().map(joined).collect()
    })
}

/// Waits for a thread, and returns its result.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, anyhow::Result<T>>) -> anyhow::Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a run panicked")))
}

/// Returns an error for options that Memwright's kernel does not support.
fn own_kernel_takes(setup: &Setup) -> anyhow::Result<()> {
    if !setup.append.is_empty() {
        return Err(anyhow!(
            "Memwright's kernel has no command line; give --append to the others: --kernel IMAGE,append=WORD"
        ));
    }
    check_swap(&setup.swap)
}

/// Writes the image of Memwright's kernel to a file.
fn write_kernel(place: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", place.display());
    std::fs::write(place, kernel::image()?).with_context(context)
}

/// Returns the swap device of a Linux guest, which can have at most one.
fn only_swap(wanted: &[SwapSize]) -> anyhow::Result<Option<SwapSize>> {
    match wanted {
        [] => Ok(None),
        [one] => Ok(Some(*one)),
        [..] => Err(anyhow!("a Linux kernel takes one --swap")),
    }
}

/// Returns the files of the initrd: the init process.
fn first_process() -> Tree {
    let mut tree = Tree::default();
    tree.add_empty_folder(Path::new(OWN), 0o700);
    tree.add_bytes(&Path::new(OWN).join("init"), 0o755, INIT.to_vec());
    tree
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
    // This file tells the init process to provide what a program of a complete tree expects: the loopback interface,
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

/// Checks that a guest with this kind of kernel can run the plan and be counted.
///
/// # Errors
/// If the kernel's command line would be too long, or if this command was built without the init process for Linux.
fn check_plan(plan: &ImagePlan, system: System) -> Result<(), Failure> {
    if system == System::Linux {
        check_command_line(&append(&plan.setup)).map_err(Failure::Usage)?;
    }
    if INIT.is_empty() && system == System::Linux {
        return Err(Failure::Environment(anyhow!(
            "this command was built without a first process for Linux guests: no C compiler linked a static program then"
        )));
    }
    Ok(())
}

/// Returns the number of the region to profile, or `None` for the complete run.
///
/// # Errors
/// If the program gives no region this name.
fn profiled_region(measure: &Measure, names: &RegionNames) -> Result<Option<u16>, Failure> {
    let region = match measure {
        Measure::Nothing | Measure::Events => None,
        Measure::Functions { region, .. } => region.as_ref(),
    };
    region
        .map(|region| region_names::number(region, slice::from_ref(names)))
        .transpose()
        .map_err(|unknown| Failure::Usage(anyhow!("--region: {unknown}")))
}

/// Returns the QEMU features that count what the plan measures.
///
/// # Errors
/// If the plugin cannot be built and the kernel is Memwright's, which is not counted without it.
fn counting(
    measure: &Measure,
    system: System,
    qemu: &OsString,
    version: Version,
) -> Result<Counting, Failure> {
    match (measure, system) {
        (Measure::Nothing, _) => Ok(Counting::Nothing),
        (Measure::Events | Measure::Functions { .. }, System::Linux) => {
            Ok(plugin_or_say(qemu, version))
        }
        (Measure::Events | Measure::Functions { .. }, System::Memwright) => plugin(qemu, version)
            .map(Counting::Plugin)
            .context("Memwright's kernel is counted by a plugin of QEMU alone")
            .map_err(Failure::Environment),
    }
}

/// Builds the plugin for this QEMU, and returns its path.
fn plugin(qemu: &OsString, version: Version) -> anyhow::Result<PathBuf> {
    match version::takes_plugins(qemu) {
        true => plugin::build(version),
        false => Err(anyhow!("this QEMU was built without support for plugins")),
    }
}

/// Builds the plugin for this QEMU. If that fails, or if QEMU does not support plugins, prints that the rows which need
/// the plugin are not measured.
fn plugin_or_say(qemu: &OsString, version: Version) -> Counting {
    match plugin(qemu, version) {
        Ok(plugin) => Counting::Plugin(plugin),
        Err(error) => {
            say(&format!(
                "only faults, interrupts and loads of CR3 are counted, and no marked regions: {error:#}"
            ));
            Counting::Log
        }
    }
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

/// Returns the words that options add to the kernel's command line.
fn append(setup: &Setup) -> String {
    let mut words = vec![format!("transparent_hugepage={}", setup.thp)];
    if !setup.thp_sizes.is_empty() {
        let sizes: Vec<String> = setup.thp_sizes.iter().map(ToString::to_string).collect();
        words.push(format!("thp_anon={}", sizes.join(";")));
    }
    words.extend(
        setup
            .hugetlb
            .map(|pages| format!("hugepages={}", pages.count())),
    );
    words.extend(setup.append.iter().cloned());
    words.join(" ")
}
