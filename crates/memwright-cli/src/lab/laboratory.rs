//! Runs a program on kernel images of one kind. The runs share the program and its files, the machine, QEMU, and the
//! plugin.

use crate::alone::guest::AloneGuest;
use crate::count::tree;
use crate::host::bounded;
use crate::lab::fault_runs;
use crate::lab::input::Input;
use crate::model::kernel_run::{KIND, SCHEMA};
use crate::model::machine::Clock;
use crate::model::plan::{ImagePlan, Measure, Setup};
use crate::model::settings::settings;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use std::{slice, thread};

use anyhow::{Context, anyhow};
use memwright_linux_abi::channel::THE_RUN;

use crate::count::counting::Counting;
use crate::count::plugin;
use crate::count::said::Said;
use crate::guestfs::initrd;
use crate::guestfs::prepare::Prepared;
use crate::guestfs::tree::Tree;
use crate::host::folder::{PrivateFolder, kept_folder, private_folder};
use crate::host::output::say;
use crate::host::taken::Taken;
use crate::lab::kernel_symbols::{self, Names};
use crate::lab::linux_run;
use crate::lab::load::Load;
use crate::lab::missed_names::{missed, say_missed};
use crate::lab::options;
use crate::lab::profiled::total;
use crate::linux::guest::{Guest, Start, check_command_line};
use crate::linux::kept;
use crate::memwright::guest::OwnGuest;
use crate::memwright::kernel;
use crate::model::failure::Failure;
use crate::model::faults::Stacks;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{Image, System};
use crate::model::kernel_run::{Document, Host, Kernel, Qemu};
use crate::model::machine::Machine;
use crate::model::memwright_run::Ending;
use crate::model::profile::Profile;
use crate::model::region_names::{self, RegionNames};
use crate::model::shell::shell_line;
use crate::model::size::SwapSize;
use crate::qemu::runs::Runs;
use crate::qemu::version::{self, Version};
use crate::states::{self, State};

/// The init process of Linux guests. It is built together with this command, so that the user needs no compiler, and
/// every machine runs the same bytes. Empty if it could not be built.
static INIT: &[u8] = include_bytes!(env!("MEMWRIGHT_GUEST_INIT"));
/// The folder in the guest with the init process's own files.
pub const OWN: &str = "/.memwright";
/// The file name of the initrd from which guests without swap boot.
const BOOT: &str = "initrd.cpio";
/// The file name of the archive with the program and its files.
const PROGRAM: &str = "program.cpio";
/// The file name of the archive with the program, its files, and the tracer that reports the program's maps.
const MAPS: &str = "maps.cpio";
/// The file name of Memwright's kernel.
const KERNEL: &str = "kernel";
/// The folder that the command line of a dry run names in place of the temporary folder.
const DRY: &str = "/tmp/memwright-run";
/// The default time limit of the guests.
pub const USUAL_LIMIT: Duration = Duration::from_secs(900);

/// A program, its guest and QEMU, prepared for runs on images of one kind: Linux kernels, Memwright's kernel, or
/// kernels that run alone, without a program.
pub struct Laboratory<'a> {
    plan: &'a ImagePlan,
    system: System,
    // The program and the files of its guest; `None` for kernels that run alone.
    load: Option<Load>,
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
    // The temporary folder of the guests' files, which is removed when this value is dropped.
    _folder: PrivateFolder,
}

/// A profile, and the names of the kernel's functions as in [`Measured::names`].
type Named = (Profile, Option<BTreeSet<String>>);

/// The results of a program on one kernel.
pub struct Measured {
    /// The outcome of the first run.
    pub said: Said,
    /// The account of the first run.
    pub document: Document,
    /// The page faults by stack; empty unless they are counted by their causes.
    pub fault_stacks: Stacks,
    /// The names of the kernel's functions; `None` if they are not all known. With the names, the instructions of a
    /// function that only one kernel has are counted as its caller's. Without the names, such a function is reported as
    /// a difference.
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
        let machine = Machine::of(&plan.setup, Clock::Instructions);
        let swap = options::checked(plan, system).map_err(Failure::Usage)?;
        check_plan(plan, &machine, system)?;
        let mut load = match system {
            System::Alone => None,
            System::Linux | System::Memwright => Some(Load::open(plan, input, system)?),
        };
        let names = load.as_ref().map(|load| load.names.clone());
        let names = names.unwrap_or_default();
        let region = profiled_region(&plan.measure, &names)?;
        let missing = Failure::Environment;
        let patience = bounded::patience(plan.care.timeout);
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
        if let Some(load) = &mut load {
            load.complete(plan, input, (system, swap), dry_run)?;
            if !dry_run || plan.care.keep.is_some() {
                write_files(load, &files, system)?;
            }
            if let (Measure::Faults(_), System::Linux) = (&plan.measure, system) {
                fault_runs::write_archive(&files.join(MAPS), &mut load.prepared)
                    .map_err(Failure::Environment)?;
            }
        }
        let counting = counting(&plan.measure, system, &qemu, version)?;
        Ok(Self {
            plan,
            system,
            load,
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
        let mut taken = self
            .load
            .as_ref()
            .map_or_else(Taken::default, |load| load.prepared.taken());
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
            System::Alone => self.alone_guest(image).arguments(None),
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
                let (state, results, missed, maps) = match self.state(image, runs) {
                    Ok(state) => {
                        let (results, missed, maps) = thread::scope(|scope| {
                            let names = scope.spawn(|| self.missed(image, runs, state.as_ref()));
                            let maps = scope.spawn(|| self.maps(image, runs, state.as_ref()));
                            let results =
                                run(count, || linux_run::run(&guest, runs, state.as_ref()));
                            (results, joined(names), joined(maps))
                        });
                        (state, results, missed, maps)
                    }
                    Err(error) => (None, vec![Err(error)], Ok(None), Ok(Vec::new())),
                };
                let names = || kernel_symbols::find(image, &guest, state.as_ref(), runs);
                let mut measured =
                    self.conclude(image, runs, results, &guest.command_line(), names)?;
                measured.document.missed = missed.map_err(Failure::Guest)?;
                self.add_causes(&mut measured, &maps.map_err(Failure::Guest)?)?;
                say_missed(&image.name, measured.document.missed.as_deref());
                Ok(measured)
            }
            System::Memwright => {
                let guest = self.own_guest();
                let results = run(count, || guest.run(runs));
                let load = self.load.iter();
                let options = load.flat_map(|load| load.prepared.manifest.options.clone());
                let options = options.collect::<Vec<_>>().join(" ");
                let names = || kernel_symbols::of_own_kernel(&guest.kernel);
                let mut measured = self.conclude(image, runs, results, &options, names)?;
                if let Measure::Faults(by) = self.plan.measure {
                    let (faults, stacks) =
                        fault_runs::on_memwright(self.plan, by, self.input(), runs)?;
                    (measured.document.faults, measured.fault_stacks) = (Some(faults), stacks);
                }
                Ok(measured)
            }
            System::Alone => {
                let guest = self.alone_guest(image);
                let results = run(count, || guest.run(runs));
                let names = || kernel_symbols::of_alone(image);
                self.conclude(image, runs, results, &guest.command_line, names)
            }
        }
    }

    /// Runs the program once more without counting, and returns the maps of its processes. Returns no maps, and runs
    /// nothing, if no maps are needed.
    fn maps(
        &self,
        image: &Image,
        runs: &Runs,
        state: Option<&State>,
    ) -> anyhow::Result<Vec<Vec<u8>>> {
        let Measure::Faults(_) = self.plan.measure else {
            return Ok(Vec::new());
        };
        let guest = Guest {
            program: self.files.join(MAPS),
            with_faults: false,
            counting: Counting::Nothing,
            ..self.guest(image)
        };
        let said = linux_run::run(&guest, runs, state)
            .with_context(|| format!("{}: reading the maps of the program", image.name))?;
        Ok(said.maps)
    }

    /// Returns the program's standard input.
    fn input(&self) -> &[u8] {
        self.load.as_ref().map_or(&[], |load| &load.input)
    }

    /// Adds the page faults by their causes to the results of a Linux kernel, if they were collected.
    fn add_causes(&self, measured: &mut Measured, maps: &[Vec<u8>]) -> Result<(), Failure> {
        let (Measure::Faults(by), Some(log)) = (&self.plan.measure, measured.said.faults()) else {
            return Ok(());
        };
        let counts = measured.document.run.unwrap_or_default();
        let load = self.load.as_ref();
        let find = |path: &Path| load.and_then(|load| load.prepared.host_file(path));
        let (faults, stacks) = fault_runs::on_linux(log, maps, &counts, *by, &find)?;
        (measured.document.faults, measured.fault_stacks) = (Some(faults), stacks);
        Ok(())
    }

    /// Runs the program once more without counting. Returns the paths in the tree of `--root` that the program looked
    /// up and that its guest lacks; `None` without a tree or with `--no-verify`.
    fn missed(
        &self,
        image: &Image,
        runs: &Runs,
        state: Option<&State>,
    ) -> anyhow::Result<Option<Vec<String>>> {
        let load = self.load.as_ref().filter(|_| self.plan.verify);
        let both = load.and_then(|load| load.seen.as_ref().zip(load.prepared.root.as_ref()));
        let Some((seen, root)) = both else {
            return Ok(None);
        };
        let guest = Guest {
            reports_names: true,
            with_faults: false,
            counting: Counting::Nothing,
            profile: None,
            ..self.guest(image)
        };
        let said = linux_run::run(&guest, runs, state)
            .with_context(|| format!("{}: looking for names missed", image.name))?;
        Ok(Some(missed(&root.open()?, seen, &said.not_found)))
    }

    /// Returns the results of the first run on an image, including whether a second run gave the same results.
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
            fault_stacks: Stacks::default(),
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
        match self.plan.setup.command.first() {
            Some(program) => format!("{} on {}", program.display(), image.name),
            None => image.name.clone(),
        }
    }

    /// Returns the snapshot from which runs on this image start, or `None` if the runs boot.
    fn state(&self, image: &Image, runs: &Runs) -> anyhow::Result<Option<State>> {
        // With several CPUs, the host determines which CPU runs first after a restore. A snapshot does not contain the
        // guest's disk.
        if self.machine.cpus > 1 || self.machine.disk.is_some() {
            return Ok(None);
        }
        let guest = self.guest(image);
        // The boot uses the plugin even though nothing is counted: without it, snapshots of the same guest can differ
        // by a few instructions.
        let uncounted =
            || plugin(&self.qemu, self.version).map_or(Counting::Nothing, Counting::Halts);
        let qemu = format!("{} {}", self.version, self.qemu_sha256());
        let image = (&*image.name, &*image.sha256);
        states::of(&guest, &uncounted, image, &qemu, self.plan.cold, runs)
    }

    /// Starts to watch signals and the time limit. A signal or the end of the time ends all guests that run in
    /// parallel.
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
            with_faults: matches!(self.plan.measure, Measure::Faults(_)),
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
            input: self.input(),
            machine: self.machine,
            counting: self.counting.clone(),
            profile: self.profiled(),
        }
    }

    fn alone_guest(&self, image: &Image) -> AloneGuest {
        AloneGuest {
            qemu: self.qemu.clone(),
            image: image.path.clone(),
            code: image.code.clone(),
            command_line: self.plan.setup.append.join(" "),
            machine: self.machine,
            counting: self.counting.clone(),
            profile: self.profiled(),
        }
    }

    /// Returns the number of the region to profile, or `None` if there is no profile.
    fn profiled(&self) -> Option<u16> {
        match self.plan.measure {
            Measure::Nothing | Measure::Events | Measure::Faults(_) => None,
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
        let total = total(counted, self.region, self.system, &self.names)
            .with_context(|| image.name.clone())
            .map_err(Failure::Guest)?;
        let mut names = names().map_err(Failure::Guest)?;
        if let Some(with_lines) = self.plan.measure.with_lines() {
            let debug = match self.system {
                System::Linux => kernel_symbols::debug_file(image),
                System::Memwright => Ok(self.files.join(KERNEL)),
                System::Alone => Ok(image.path.clone()),
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

    /// Returns the guest's settings for documents.
    fn settings(&self) -> Vec<String> {
        let setup = &self.plan.setup;
        let Some(load) = &self.load else {
            let append = setup.append.iter().map(|words| format!("append={words}"));
            return append.chain([format!("numa={}", setup.numa)]).collect();
        };
        let input = hexadecimal_hash(&load.input);
        let settings = settings(setup, &load.prepared.files, &input, &[]);
        let policies = setup.policies.iter();
        let policies = policies.map(|policy| format!("policy={policy}"));
        let seen = load.seen.iter().flat_map(|seen| seen.lines());
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
            program: self.load.as_ref().map(|load| load.program.clone()),
            arguments: self.plan.setup.command.iter().map(text).collect(),
            companions: self
                .load
                .as_ref()
                .map_or_else(Vec::new, |load| load.companions.clone()),
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
            outcome: match said.triple_fault {
                true => Ending::TripleFault {},
                false => said.outcome.into(),
            },
            output_sha256: Some(hexadecimal_hash(&said.output)),
            errors_sha256: self.load.as_ref().map(|_| hexadecimal_hash(&said.errors)),
            repeats: differs.as_ref().map(Vec::is_empty),
            differs: differs.unwrap_or_default(),
            missed: None,
            run,
            by_cpu: by_cpu.unwrap_or_default(),
            sent: sent.unwrap_or_default(),
            regions: regions.flatten(),
            faults: None,
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

/// Writes the files from which a guest boots.
fn write_files(load: &Load, files: &Path, system: System) -> anyhow::Result<()> {
    let Prepared { manifest, tree, .. } = &load.prepared;
    initrd::write(&files.join(PROGRAM), manifest, tree)?;
    match system {
        System::Linux => initrd::write_tree(&files.join(BOOT), &first_process()),
        System::Memwright => write_kernel(&files.join(KERNEL)),
        System::Alone => Ok(()),
    }
}

/// Writes the image of Memwright's kernel to a file.
fn write_kernel(place: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", place.display());
    std::fs::write(place, kernel::image()?).with_context(context)
}

/// Returns the files of the initrd: the init process.
fn first_process() -> Tree {
    let mut tree = Tree::default();
    tree.add_empty_folder(Path::new(OWN), 0o700);
    tree.add_bytes(&Path::new(OWN).join("init"), 0o755, INIT.to_vec());
    tree
}

/// Checks that a guest with this machine and this kind of kernel can run the plan and be counted.
///
/// # Errors
/// If a kernel that runs alone would have several CPUs, or if a Linux guest whose faults are attributed to causes would
/// have several CPUs. Also if the kernel's command line would be too long, or if this command was built without the
/// init process for Linux.
fn check_plan(plan: &ImagePlan, machine: &Machine, system: System) -> Result<(), Failure> {
    if system == System::Alone && machine.cpus > 1 {
        return Err(Failure::Usage(anyhow!(
            "a kernel that is not Linux is counted with one CPU, and this guest has {}",
            machine.cpus
        )));
    }
    if system == System::Linux {
        if matches!(plan.measure, Measure::Faults(_)) {
            fault_runs::check_cpus(machine.cpus)?;
        }
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
        Measure::Nothing | Measure::Events | Measure::Faults(_) => None,
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
/// If the plugin cannot be obtained and the kernel is not Linux, because only Linux can be counted without the plugin.
fn counting(
    measure: &Measure,
    system: System,
    qemu: &OsString,
    version: Version,
) -> Result<Counting, Failure> {
    match (measure, system) {
        (Measure::Nothing, _) => Ok(Counting::Nothing),
        (Measure::Events | Measure::Faults(_) | Measure::Functions { .. }, System::Linux) => {
            Ok(plugin_or_say(qemu, version))
        }
        (
            Measure::Events | Measure::Faults(_) | Measure::Functions { .. },
            System::Memwright | System::Alone,
        ) => plugin(qemu, version)
            .map(Counting::Plugin)
            .context("this kernel is counted by a plugin of QEMU alone")
            .map_err(Failure::Environment),
    }
}

/// Returns the path of the plugin for this QEMU.
fn plugin(qemu: &OsString, version: Version) -> anyhow::Result<PathBuf> {
    match version::takes_plugins(qemu) {
        true => plugin::obtain(version),
        false => Err(anyhow!("this QEMU was built without support for plugins")),
    }
}

/// Obtains the plugin for this QEMU. If that fails, or if QEMU does not support plugins, prints that the rows which need
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

/// Returns the words that the options of the guest add to the kernel's command line.
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
