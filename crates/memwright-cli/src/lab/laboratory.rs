//! What every kernel of one command has in common: the program and its files, the machine, the QEMU, the plugin.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use std::{slice, thread};

use anyhow::{Context, anyhow};
use memwright_linux::channel::THE_RUN;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::counting::Counting;
use super::document::{Document, Host, Kernel, Qemu};
use super::guest::{Guest, Start, check_command_line};
use super::image::{Image, System};
use super::kernel_symbols::{self, Names};
use super::own_guest::OwnGuest;
use super::plugin;
use super::region_names::{self, RegionNames};
use super::runs::Runs;
use super::said::Said;
use super::state::{self, State};
use crate::args::RunArgs;
use crate::failure::{Failure, TIMEOUT, signal_code};
use crate::folder::{PrivateFolder, kept_folder, private_folder};
use crate::guest::initrd::{self, Manifest};
use crate::guest::tree::Tree;
use crate::kernel;
use crate::kernels;
use crate::output::Taken;
use crate::profile::tree::Profile;
use crate::qemu::command::shell_line;
use crate::qemu::machine::Machine;
use crate::qemu::process::Cut;
use crate::qemu::version::{self, Version};
use crate::report::{HashedFile, hexadecimal_hash};
use crate::run::{self as preparing, Prepared, Terminals};
use crate::session::say;
use crate::size::{MemorySize, SwapKind, SwapSize, in_mebibytes};

/// The guest's first process, built with this command: it takes no compiler where the command runs, and is the same bytes
/// wherever that is. Empty where it could not be built.
static INIT: &[u8] = include_bytes!(env!("MEMWRIGHT_GUEST_INIT"));
/// Where the guest's first process looks for its own files.
const OWN: &str = "/.memwright";
/// The archive that every image without modules boots from.
const BOOT: &str = "initrd.cpio";
/// The archive of the program and its files.
const PROGRAM: &str = "program.cpio";
/// Memwright's kernel.
const KERNEL: &str = "kernel";
/// Where a dry run says that the files would be.
const DRY: &str = "/tmp/memwright-run";
/// How long guests may take where nothing is said.
const USUAL_LIMIT: Duration = Duration::from_secs(900);

/// A program that is ready to run on any Linux kernel, or on Memwright's.
pub struct Laboratory<'a> {
    args: &'a RunArgs,
    system: System,
    prepared: Prepared,
    program: HashedFile,
    companions: Vec<HashedFile>,
    input: Vec<u8>,
    files: PathBuf,
    swap: Option<u64>,
    names: RegionNames,
    // Of which a profile is made, where that is not the whole run.
    region: Option<u16>,
    machine: Machine,
    qemu: OsString,
    qemu_sha256: OnceLock<String>,
    version: Version,
    counting: Counting,
    // Removed when this value goes.
    _folder: PrivateFolder,
}

/// A profile, and the names of all functions of its kernel as [`Measured::names`] has them.
type Named = (Profile, Option<BTreeSet<String>>);

/// What a program did on one kernel.
pub struct Measured {
    /// The first run.
    pub said: Said,
    /// The account of it.
    pub document: Document,
    /// The names of the kernel's functions; `None` where inlined functions are counted by themselves too, so that a name
    /// that one kernel lacks is a difference.
    pub names: Option<BTreeSet<String>>,
}

impl<'a> Laboratory<'a> {
    /// Finds QEMU, builds what is needed, and packs the guest's files.
    ///
    /// # Errors
    /// The program is missing or none; something that is needed is missing here.
    pub fn open(args: &'a RunArgs, input: &Input, system: System) -> Result<Self, Failure> {
        let machine = Machine::of(args);
        let swap = match system {
            System::Linux => swap_bytes(&args.swap),
            System::Memwright => own_kernel_takes(args).map(|()| None),
        };
        let swap = swap.map_err(Failure::Usage)?;
        if args.functions && machine.cpus > 1 {
            return Err(Failure::Usage(anyhow!(
                "--functions: instructions are counted with one CPU, and this guest has {}",
                machine.cpus
            )));
        }
        if system == System::Linux {
            check_command_line(&append(args)).map_err(Failure::Usage)?;
        }
        if INIT.is_empty() && system == System::Linux {
            return Err(Failure::Environment(anyhow!(
                "this command was built without a first process for Linux guests: no C compiler linked a static program then"
            )));
        }
        let mut prepared = preparing::prepare(args, Terminals::None)?;
        if system == System::Linux {
            say_where_huge_pages_are_off(args);
        }
        let names = region_names_or_say(&prepared.program.path);
        let region = args
            .region
            .as_ref()
            .map(|region| region_names::number(region, slice::from_ref(&names)));
        let region = region
            .transpose()
            .map_err(|unknown| Failure::Usage(anyhow!("--region: {unknown}")))?;
        let missing = Failure::Environment;
        let limit = args.timeout.unwrap_or(USUAL_LIMIT);
        let input = input.read(args.memory(), limit)?;
        let folder = private_folder().context("cannot make a temporary folder")?;
        let files = match &args.keep {
            Some(path) => kept_folder(path)?,
            None if args.dry_run => PathBuf::from(DRY),
            None => folder.path().to_owned(),
        };
        let qemu = if args.dry_run {
            version::program_to_name(&machine, args.patience())
        } else {
            version::program(&machine, args.patience())
        };
        let qemu = qemu.map_err(missing)?;
        let version = version::check_for(&qemu, &machine, args.patience()).map_err(missing)?;
        if system == System::Linux {
            put_input(&mut prepared, swap, &input);
        }
        if !args.dry_run || args.keep.is_some() {
            initrd::write(&files.join(PROGRAM), &prepared.manifest, &prepared.tree)?;
            match system {
                System::Linux => initrd::write_tree(&files.join(BOOT), &first_process())?,
                System::Memwright => write_kernel(&files.join(KERNEL))?,
            }
        }
        let counting = match (args.no_count, system) {
            (true, _) => Counting::Nothing,
            (false, System::Linux) => plugin_or_say(&qemu, version),
            (false, System::Memwright) => plugin(&qemu, version)
                .context("Memwright's kernel is counted by a plugin of QEMU alone")
                .map_err(missing)?,
        };
        let companions = prepared.program.companions.iter();
        Ok(Self {
            args,
            system,
            program: HashedFile::read(&prepared.program.path),
            companions: companions.map(|path| HashedFile::read(path)).collect(),
            prepared,
            input,
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

    /// The files that a guest of this image is made of: none is to be written over.
    pub fn taken(&self, image: &Image) -> Taken {
        let mut taken = self.prepared.taken();
        taken.read_path("a kernel image", &image.path);
        taken
    }

    /// The QEMU line for an image, as a shell takes it.
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

    /// Runs the program on an image, twice unless that was not wanted.
    ///
    /// # Errors
    /// When a guest gives no result.
    pub fn measure(&self, image: &Image, runs: &Runs) -> Result<Measured, Failure> {
        if self.args.verbose {
            say(&format!("QEMU {}: {}", self.version, self.line(image)));
        }
        let count = self.guests_of_an_image();
        match self.system {
            System::Linux => {
                let guest = self.guest(image);
                self.add_modules(image, &guest.boot)?;
                let (state, results) = match self.state(image, runs) {
                    Ok(state) => {
                        let results = run(count, || guest.run(runs, state.as_ref()));
                        (state, results)
                    }
                    Err(error) => (None, vec![Err(error)]),
                };
                let names = || kernel_symbols::find(image, &guest, state.as_ref(), runs);
                self.conclude(image, runs, results, &guest.command_line(), names)
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

    /// What the runs on an image came to. The first is the one that counts; another one verifies it.
    fn conclude(
        &self,
        image: &Image,
        runs: &Runs,
        results: Vec<anyhow::Result<Said>>,
        command_line: &str,
        names: impl FnOnce() -> anyhow::Result<Names>,
    ) -> Result<Measured, Failure> {
        if let Some(failure) = runs.was_cut().and_then(cut_short) {
            return Err(failure);
        }
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

    /// The names that the program gives its regions.
    pub fn names(&self) -> &RegionNames {
        &self.names
    }

    /// SHA-256 of QEMU's executable.
    fn qemu_sha256(&self) -> &str {
        self.qemu_sha256.get_or_init(|| version::hash(&self.qemu))
    }

    /// How many guests run at once for an image: a second one verifies the first.
    pub fn guests_of_an_image(&self) -> usize {
        if self.args.no_verify { 1 } else { 2 }
    }

    /// What runs on this image, in words.
    pub fn heading(&self, image: &Image) -> String {
        format!("{} on {}", self.args.command[0].display(), image.name)
    }

    /// The state that runs on this image start from, if they do not boot.
    fn state(&self, image: &Image, runs: &Runs) -> anyhow::Result<Option<State>> {
        // Where CPUs take turns, the first turns after a restore depend on the host.
        if self.machine.cpus > 1 {
            return Ok(None);
        }
        let guest = Guest {
            counting: Counting::Nothing,
            ..self.guest(image)
        };
        let qemu = format!("{} {}", self.version, self.qemu_sha256());
        let image = (&*image.name, &*image.sha256);
        state::of(&guest, image, &qemu, self.args.cold, runs)
    }

    /// The guests that may run at once end when a signal comes or the time is over.
    ///
    /// # Errors
    /// Those of installing signal handlers.
    pub fn runs(&self) -> anyhow::Result<Runs> {
        Runs::start(self.args.timeout.unwrap_or(USUAL_LIMIT)).context("cannot receive signals")
    }

    fn guest(&self, image: &Image) -> Guest {
        Guest {
            qemu: self.qemu.clone(),
            image: image.path.clone(),
            boot: self.boot(image),
            program: self.files.join(PROGRAM),
            append: append(self.args),
            machine: self.machine,
            counting: self.counting.clone(),
            profile: self.profiled(),
        }
    }

    /// What a guest boots from: an archive of its own for an image whose modules are in it.
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

    /// The region of which there is to be a profile.
    fn profiled(&self) -> Option<u16> {
        let functions = self.args.functions;
        functions.then(|| self.region.unwrap_or(THE_RUN))
    }

    /// Makes the archive of an image that brings the modules for swap.
    fn add_modules(&self, image: &Image, archive: &Path) -> anyhow::Result<()> {
        if self.swap.is_none() {
            return Ok(());
        }
        let mut tree = first_process();
        for module in kernels::modules(&image.path)? {
            let name = module.file_name().unwrap_or_default();
            tree.add_own_copy(&module, &Path::new(OWN).join("modules").join(name))?;
        }
        initrd::write_tree(archive, &tree)
    }

    /// What the plugin counted by address, by name, and all names.
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
        if self.args.inlined || self.args.lines {
            let debug = match self.system {
                System::Linux => kernel_symbols::debug_file(image),
                System::Memwright => Ok(self.files.join(KERNEL)),
            };
            let build_id = said.build_id.as_deref();
            debug
                .and_then(|path| names.source.add_debug(&path, build_id, self.args.lines))
                .map_err(Failure::Environment)?;
        }
        let region = self.region;
        let profile = Profile {
            region_name: region.and_then(|region| self.names.get(region).map(str::to_owned)),
            ..Profile::new(raw, &names.source, names.sha256, region, total)
        };
        Ok(Some((profile, names.source.names())))
    }

    /// What else the guest was told, as documents have it.
    fn settings(&self) -> Vec<String> {
        let input = hexadecimal_hash(&self.input);
        let settings = crate::report::settings(self.args, &self.prepared.files, &input);
        let policies = self.args.policies.iter();
        let policies = policies.map(|policy| format!("policy={policy}"));
        settings.into_iter().chain(policies).collect()
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
        let (run, regions) = said
            .counted
            .clone()
            .map(|counted| (counted.run, counted.regions))
            .unzip();
        Document {
            schema: super::document::SCHEMA,
            kind: super::document::KIND.to_owned(),
            program: self.program.clone(),
            arguments: self.args.command.iter().map(text).collect(),
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
            run,
            regions: regions.flatten(),
            functions,
            host: Host {
                image: image.path.display().to_string(),
                command: self.line(image),
            },
        }
    }
}

/// What becomes of a command whose guests were ended.
fn cut_short(cut: Cut) -> Option<Failure> {
    match cut {
        Cut::TimedOut => Some(Failure::Ended(
            TIMEOUT,
            "--timeout expired: the guest gave no result in time".to_owned(),
        )),
        Cut::Signalled(signal) => Some(Failure::Ended(
            signal_code(signal),
            format!("ended by signal {signal}"),
        )),
        Cut::OutputClosed | Cut::OutputFailed(_) => None,
    }
}

/// Runs so many guests side by side.
fn run(count: usize, one: impl Fn() -> anyhow::Result<Said> + Sync) -> Vec<anyhow::Result<Said>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count).map(|_| scope.spawn(&one)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, anyhow::Result<Said>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a run panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Refuses options that Memwright's kernel does not have.
fn own_kernel_takes(args: &RunArgs) -> anyhow::Result<()> {
    if !args.append.is_empty() {
        return Err(anyhow!(
            "Memwright's kernel has no command line; give --append to the others: --kernel IMAGE,append=WORD"
        ));
    }
    preparing::check_swap(&args.swap)
}

/// Writes Memwright's kernel.
fn write_kernel(place: &Path) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", place.display());
    std::fs::write(place, kernel::image()?).with_context(context)
}

/// The bytes of the one device of compressed memory that a Linux guest can have.
fn swap_bytes(wanted: &[SwapSize]) -> anyhow::Result<Option<u64>> {
    match wanted {
        [] => Ok(None),
        [one] if one.kind == SwapKind::Zram => Ok(Some(one.bytes())),
        [_] => Err(anyhow!("a Linux kernel takes --swap zram:SIZE")),
        [..] => Err(anyhow!("a Linux kernel takes one --swap")),
    }
}

/// The files that a guest boots from.
fn first_process() -> Tree {
    let mut tree = Tree::default();
    tree.add_empty_folder(Path::new(OWN), 0o700);
    tree.add_bytes(&Path::new(OWN).join("init"), 0o755, INIT.to_vec());
    tree
}

/// Standard input, which is read once for all guests of a command.
#[derive(Debug, Default)]
pub struct Input(OnceCell<Vec<u8>>);

impl Input {
    /// The whole of it. A terminal gives none: standard input is a file in the guest, whatever it is here.
    fn read(&self, memory: MemorySize, limit: Duration) -> Result<Vec<u8>, Failure> {
        let input = match self.0.get() {
            Some(input) => input,
            None => {
                let input = match io::stdin().is_terminal() {
                    true => Vec::new(),
                    false => read_input(memory, limit)?,
                };
                self.0.get_or_init(|| input)
            }
        };
        check_room(input, memory)?;
        Ok(input.clone())
    }
}

/// Puts the program's input, its arguments and what swap it has into a Linux guest's files.
fn put_input(prepared: &mut Prepared, swap: Option<u64>, input: &[u8]) {
    let place = Path::new(OWN).join("input");
    prepared.tree.add_bytes(&place, 0o600, input.to_vec());
    if let Some(bytes) = swap {
        let place = Path::new(OWN).join("swap");
        let text = bytes.to_string().into_bytes();
        prepared.tree.add_bytes(&place, 0o600, text);
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

/// The whole of standard input, which must fit into the guest and end within the time that a run may take.
fn read_input(memory: MemorySize, limit: Duration) -> Result<Vec<u8>, Failure> {
    let end = Instant::now() + limit;
    let stdin = rustix::stdio::stdin();
    let mut input = Vec::new();
    let mut piece = vec![0; 1 << 16];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let left = Timespec::try_from(left).ok();
        let mut events = [PollFd::from_borrowed_fd(stdin, PollFlags::IN)];
        let ready = retry_on_intr(|| poll(&mut events, left.as_ref()));
        if ready == Ok(0) {
            return Err(Failure::Ended(
                TIMEOUT,
                "--timeout expired: standard input has no end yet".to_owned(),
            ));
        }
        // What cannot be waited for is read at once and says why not.
        let got = retry_on_intr(|| rustix::io::read(stdin, &mut piece[..]));
        let got = got.context("cannot read standard input")?;
        if got == 0 {
            return Ok(input);
        }
        input.extend_from_slice(&piece[..got]);
        check_room(&input, memory)?;
    }
}

fn check_room(input: &[u8], memory: MemorySize) -> Result<(), Failure> {
    if input.len() as u64 > memory.bytes() {
        return Err(Failure::Broken(anyhow!(
            "standard input is larger than the guest's memory of {}",
            in_mebibytes(memory.bytes())
        )));
    }
    Ok(())
}

/// The plugin for this QEMU.
fn plugin(qemu: &OsString, version: Version) -> anyhow::Result<Counting> {
    match version::takes_plugins(qemu) {
        true => plugin::build(version).map(Counting::Plugin),
        false => Err(anyhow!("this QEMU was built without support for plugins")),
    }
}

/// The plugin for this QEMU. Where it cannot be built, or QEMU takes none, the rows that it feeds are not measured, and that
/// is said.
fn plugin_or_say(qemu: &OsString, version: Version) -> Counting {
    plugin(qemu, version).unwrap_or_else(|error| {
        say(&format!(
            "only faults, interrupts and loads of CR3 are counted, and no marked regions: {error:#}"
        ));
        Counting::Log
    })
}

/// Memory of a guest from which on Linux leaves transparent huge pages on: it wants 512 MiB beside what the kernel itself takes
/// (`mm/huge_memory.c`, `hugepage_init`).
const HUGE_PAGES_FROM: u64 = 576 << 20;

/// Says that Linux has no transparent huge pages in this guest, where they were asked for by name.
fn say_where_huge_pages_are_off(args: &RunArgs) {
    let is_asked = args.thp == "always" || !args.thp_sizes.is_empty();
    if is_asked && args.memory().bytes() < HUGE_PAGES_FROM {
        say(
            "Linux turns transparent huge pages off in so little memory, whatever --thp and --thp-size say: --memory 576M or more",
        );
    }
}

/// The names that a program gives its regions. Where something is wrong with them, the regions have none, and that is said.
fn region_names_or_say(program: &Path) -> RegionNames {
    RegionNames::read(program).unwrap_or_else(|error| {
        say(&format!(
            "{}: its regions have numbers alone: {error}",
            program.display()
        ));
        RegionNames::default()
    })
}

/// What the options say to the kernel.
fn append(args: &RunArgs) -> String {
    let mut words = vec![format!("transparent_hugepage={}", args.thp)];
    if !args.thp_sizes.is_empty() {
        let sizes: Vec<String> = args.thp_sizes.iter().map(ToString::to_string).collect();
        words.push(format!("thp_anon={}", sizes.join(";")));
    }
    words.extend(
        args.hugetlb
            .map(|pages| format!("hugepages={}", pages.count())),
    );
    words.extend(args.append.iter().cloned());
    words.join(" ")
}
