//! `memwright run`: puts the pieces of a run together.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, mpsc};
use std::thread;

use anyhow::{Context, anyhow};

use crate::args::RunArgs;
use crate::failure::Failure;
use crate::guest::digest;
use crate::guest::initrd::{self, Manifest};
use crate::guest::program::{self, Program, Surroundings};
use crate::guest::tree::{Node, Tree};
use crate::input::{InputServer, Source};
use crate::output::Taken;
use crate::outputs::Outputs;
use crate::qemu::command::{Places, arguments, shell_line};
use crate::qemu::machine::Machine;
use crate::qemu::nodes::Backing;
use crate::qemu::process::Process;
use crate::qemu::{launch, version};
use crate::report::Hashes;
use crate::room::{Files, Wanted};
use crate::session::{Report, Session, Streams, say};
use crate::size::{HugePages, MemorySize, SwapKind, SwapSize, in_mebibytes};
use crate::symbolise::Symbols;
use crate::trace::TraceFile;
use crate::window::Window;
use crate::{ending, folder, gdb, kernel, lab, output, watch};

/// The most swap devices of a guest.
const MOST_DEVICES: usize = 32;
/// How many files that were left out are named.
const MOST_SKIPPED: usize = 10;

/// Everything that is known before QEMU starts.
pub struct Prepared {
    /// PROGRAM in the guest.
    pub program: Program,
    /// The working folder that it starts in.
    pub folder: PathBuf,
    /// The guest's files.
    pub tree: Tree,
    /// What the kernel is told.
    pub manifest: Manifest,
    /// What `--file` put there: the place in the guest and a hash, one of each.
    pub files: Vec<String>,
}

impl Prepared {
    /// The files of the host that the guest gets: none is to be written over.
    pub fn taken(&self) -> Taken {
        let mut taken = Taken::default();
        for (_, node) in self.tree.nodes() {
            if let Node::HostFile { path, .. } = node {
                taken.read_path("a file of the guest", path);
            }
        }
        taken
    }
}

/// What a run came to, for the account.
pub struct Finished<'a> {
    /// The command line.
    pub args: &'a RunArgs,
    /// The machine that it asked for.
    pub machine: &'a Machine,
    /// What was put into the guest.
    pub prepared: &'a Prepared,
    /// Hashes of the files and the kernel.
    pub hashes: Hashes,
    /// What the guest said.
    pub report: &'a Report,
    /// SHA-256 of the standard input that the program was given.
    pub input: String,
    /// Why the run does not repeat, if so.
    pub not_repeatable: Option<&'static str>,
    /// Where the account goes beside standard error.
    pub outputs: Outputs,
}

/// Runs PROGRAM and returns the exit code.
///
/// # Errors
/// Everything that keeps it from running; what happens inside the guest is an exit code.
pub fn run(args: &RunArgs) -> Result<u8, Failure> {
    if args.native {
        return lab::native::run(args);
    }
    if !args.kernel.is_empty() {
        return lab::run(args);
    }
    check_swap(&args.swap)?;
    let prepared = prepare(args, Terminals::AsHere)?;
    let machine = Machine::of(args);
    if args.dry_run {
        return dry_run(args, &prepared, &machine).map_err(Failure::from);
    }
    let mut taken = prepared.taken();
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    let trace = args.trace.as_deref();
    let trace = trace
        .map(|path| {
            let file = taken.create("the file of --trace", path)?;
            TraceFile::begin(file, args.trace_format)
        })
        .transpose()?;
    let qemu = version::program(&machine, args.patience())?;
    let image = kernel::image()?;
    let signals = watch::SignalWatch::start().context("cannot receive signals")?;
    let folder = folder::RunFolder::create(args.keep.as_deref())?;
    for name in folder::KEPT {
        folder
            .kept(name)
            .map_or(Ok(()), |path| taken.check(&path))?;
    }
    let port = args.gdb.then(gdb::free_port).transpose()?;
    let line = arguments(folder.places(), &machine, &Backing::Own, port);
    // Asking QEMU its version takes as long as packing, and hashing as long as a short run: side by side.
    let (packed, checked) = thread::scope(|scope| {
        let checking = scope.spawn(|| version::check_for(&qemu, &machine, args.patience()));
        (
            pack(folder.places(), &prepared, &image, args),
            checking.join(),
        )
    });
    let qemu_version = checked.map_err(|_| anyhow!("the check of QEMU panicked"))??;
    packed?;
    signals.check()?;
    if let Some(size) = machine.disk {
        make_disk(&folder.places().disk, size).context("cannot make the disk")?;
    }
    announce(args, &folder, &shell_line(&qemu, &line), qemu_version)?;
    if let Some(port) = port {
        say(&format!(
            "waiting for gdb: {}",
            gdb::line(&folder.places().kernel, port)
        ));
    }
    let errors = folder.file("qemu.log");
    let (driven, hashes) = thread::scope(|scope| {
        let hashing = scope.spawn(|| Hashes::read(&prepared.program, &image));
        (
            drive(
                args,
                &folder,
                (&qemu, &line),
                &image,
                &errors,
                trace,
                &signals,
            ),
            hashing.join(),
        )
    });
    let (report, cut, live, input) = driven?;
    let hashes = hashes.map_err(|_| anyhow!("hashing the files panicked"))?;
    let finished = Finished {
        args,
        machine: &machine,
        prepared: &prepared,
        hashes,
        report: &report,
        input,
        not_repeatable: machine.not_repeatable().or(live),
        outputs,
    };
    ending::conclude(&finished, cut, &errors)
}

/// Refuses swap devices that a guest of Memwright's kernel cannot have.
///
/// # Errors
/// One line that says why.
pub fn check_swap(swap: &[SwapSize]) -> anyhow::Result<()> {
    let disks = swap.iter().filter(|swap| swap.kind == SwapKind::Disk);
    if disks.count() > 1 {
        return Err(anyhow!("--swap disk:SIZE: there is one disk"));
    }
    if swap.len() > MOST_DEVICES {
        return Err(anyhow!(
            "--swap: a guest has {MOST_DEVICES} devices at most"
        ));
    }
    Ok(())
}

/// Says what is being run, where that is asked for.
fn announce(
    args: &RunArgs,
    folder: &folder::RunFolder,
    line: &str,
    qemu: version::Version,
) -> anyhow::Result<()> {
    if args.verbose {
        say(&format!("QEMU {qemu}: {line}"));
    }
    match folder.kept("command") {
        Some(path) => fs::write(&path, format!("{line}\n"))
            .with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    }
}

/// Starts QEMU and stays with it to its end.
fn drive(
    args: &RunArgs,
    folder: &folder::RunFolder,
    (qemu, line): (&OsString, &[OsString]),
    image: &[u8],
    errors: &Path,
    trace: Option<TraceFile>,
    signals: &watch::SignalWatch,
) -> anyhow::Result<(Report, ending::End, Option<&'static str>, String)> {
    let create = |path: PathBuf| {
        File::create(&path).with_context(|| format!("cannot write {}", path.display()))
    };
    let kept_log = folder.kept("log").map(create).transpose()?;
    let window =
        Window::create(&folder.places().window).context("cannot make the window to the guest")?;
    let (output, child) = launch::start(qemu, line, Stdio::from(create(errors.to_owned())?))?;
    let process = Arc::new(Process::new(child));
    let answers = window.answers().context("cannot serve input")?;
    let input = InputServer::start(folder.places().input.clone(), answers, Source::Descriptor)
        .context("cannot serve input")?;
    signals.watch(
        &process,
        folder.places().control.clone(),
        input.withdrawer(),
    );
    let (progress, news) = mpsc::channel();
    if let Some(limit) = args.timeout {
        watch::start_timeout(
            limit,
            process.clone(),
            folder.places().monitor.clone(),
            news,
        );
    }
    let symbols = Symbols::read(image);
    let session = Session {
        process: &process,
        input: &input,
        streams: Streams::Forward,
        symbols: &symbols,
        trace,
        kept_log,
        verbose: args.verbose,
        progress,
    };
    let report = session.run(output, window)?;
    process.wait().context("cannot wait for QEMU")?;
    let live = if input.was_live() {
        Some("live input")
    } else if signals.was_used() {
        Some("interrupted")
    } else {
        None
    };
    Ok((report, process.was_cut(), live, input.hash()))
}

/// The names of descriptors 0 to 2, and whether each is a terminal in the guest: where it is one here, and of standard
/// input only with `--tty`.
pub fn descriptors(args: &RunArgs) -> [(&'static str, bool); 3] {
    [
        ("stdin", args.tty && io::stdin().is_terminal()),
        ("stdout", io::stdout().is_terminal()),
        ("stderr", io::stderr().is_terminal()),
    ]
}

/// The columns and rows of the guest's terminal, where it has one that knows its size.
pub fn terminal_size(args: &RunArgs) -> Option<(u16, u16)> {
    let [stdin, stdout, stderr] = descriptors(args);
    let size = [
        (stdout, rustix::stdio::stdout()),
        (stderr, rustix::stdio::stderr()),
        (stdin, rustix::stdio::stdin()),
    ]
    .into_iter()
    .filter(|((_, terminal), _)| *terminal)
    .find_map(|(_, descriptor)| rustix::termios::tcgetwinsize(descriptor).ok())?;
    // A terminal that does not know its size says 0.
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// Which of the guest's descriptors 0 to 2 are terminals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminals {
    /// Those that are terminals here, as [`descriptors`] says.
    AsHere,
    /// None.
    None,
}

/// Finds PROGRAM and collects the guest's files.
///
/// # Errors
/// The exit codes are those of a shell where PROGRAM is missing or no program.
pub fn prepare(args: &RunArgs, terminals: Terminals) -> Result<Prepared, Failure> {
    let name = args
        .command
        .first()
        .ok_or_else(|| anyhow!("PROGRAM is missing"))?;
    let environment = initrd::environment(&args.environment);
    let around = Surroundings {
        memory: args.memory(),
        library_path: initrd::variable(&environment, "LD_LIBRARY_PATH"),
        path: initrd::variable(&environment, "PATH").unwrap_or_default(),
    };
    let path = program::locate(name, std::env::var_os("PATH").as_deref())?;
    let folder = program::working_folder(name);
    let mut tree = Tree::default();
    if folder.exists() {
        tree.add_host_folder(&folder)?;
    }
    let program = program::add(&mut tree, &path, around)?;
    let mut files = Vec::new();
    for file in &args.files {
        files.push(add_file(&mut tree, file, around)?);
    }
    tree.add_empty_folder(Path::new("/tmp"), 0o1777);
    tree.add_text(
        "/etc/passwd",
        0o644,
        "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
    );
    tree.add_text("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    let options = options(args, terminals, &program.path, &folder)?;
    let manifest = Manifest {
        arguments: args.command.clone(),
        environment,
        options,
    };
    check_size(&tree, args)?;
    say_skipped(&tree);
    Ok(Prepared {
        program,
        folder,
        tree,
        manifest,
        files,
    })
}

/// Says what of the folders of `--file` the guest does not get.
fn say_skipped(tree: &Tree) {
    let (shown, more) = tree
        .skipped()
        .split_at(tree.skipped().len().min(MOST_SKIPPED));
    for (path, why) in shown {
        say(&format!("{}: left out: {why}", path.display()));
    }
    if !more.is_empty() {
        say(&format!("{} more were left out", more.len()));
    }
}

/// Adds one `--file`, and returns what documents say of it. A program that is given so brings what it needs, like PROGRAM
/// itself.
fn add_file(
    tree: &mut Tree,
    argument: &OsStr,
    around: Surroundings<'_>,
) -> Result<String, Failure> {
    let (host, guest) = split_file(argument);
    let host =
        std::path::absolute(host).with_context(|| format!("--file {}", argument.display()))?;
    let context = || format!("--file {}", argument.display());
    let add = |tree: &mut Tree| match &guest {
        Some(guest) => tree.add_copy(&host, guest).with_context(context),
        None => tree.add_host_path(&host).map(drop).with_context(context),
    };
    add(tree)?;
    let mut alone = Tree::default();
    add(&mut alone)?;
    let hash = digest::digest(&alone).with_context(context)?;
    program::add_companions(tree, &host, around)?;
    let place = guest.as_deref().unwrap_or(&host);
    Ok(format!("{} sha256 {hash}", place.display()))
}

/// Splits `HOST[:GUEST]`. A host path may itself hold colons; then the last one counts, if any does.
fn split_file(argument: &OsStr) -> (PathBuf, Option<PathBuf>) {
    let bytes = argument.as_bytes();
    let whole = Path::new(argument);
    let Some(colon) = bytes
        .iter()
        .rposition(|byte| *byte == b':')
        .filter(|_| !whole.exists())
    else {
        return (whole.to_owned(), None);
    };
    let (host, guest) = (
        Path::new(OsStr::from_bytes(&bytes[..colon])),
        OsStr::from_bytes(&bytes[colon + 1..]),
    );
    let mut place = PathBuf::from("/");
    for part in Path::new(guest).components() {
        match part {
            std::path::Component::Normal(part) => place.push(part),
            std::path::Component::ParentDir => drop(place.pop()),
            std::path::Component::RootDir
            | std::path::Component::CurDir
            | std::path::Component::Prefix(_) => {}
        }
    }
    // Into a folder, as `cp` reads a path that ends in a slash.
    if guest.as_bytes().ends_with(b"/") {
        place.extend(host.file_name());
    }
    (host.to_owned(), Some(place))
}

/// The lines of the guest's options.
fn options(
    args: &RunArgs,
    terminals: Terminals,
    program: &Path,
    folder: &Path,
) -> Result<Vec<String>, Failure> {
    let text = |path: &Path| {
        let plain = path.to_str().filter(|path| !path.contains('\n'));
        plain.map(str::to_owned).ok_or_else(|| {
            Failure::NotExecutable(format!(
                "{}: a program's path must be UTF-8 text in one line",
                path.display()
            ))
        })
    };
    let mut lines = vec![
        format!("program={}", text(program)?),
        format!("epoch={}", initrd::EPOCH),
        "seed=1".to_owned(),
    ];
    let is_here = terminals == Terminals::AsHere;
    lines.extend(descriptors(args).map(|(name, terminal)| {
        let kind = if terminal && is_here { "tty" } else { "pipe" };
        format!("{name}={kind}")
    }));
    if let Some((columns, rows)) = terminal_size(args).filter(|_| is_here) {
        lines.push(format!("columns={columns}"));
        lines.push(format!("rows={rows}"));
    }
    if folder != Path::new("/") {
        lines.push(format!("folder={}", text(folder)?));
    }
    for (name, is) in [
        ("trace", args.trace.is_some()),
        ("strace", args.strace),
        ("parallel", args.parallel),
    ] {
        if is {
            lines.push(format!("{name}=1"));
        }
    }
    lines.extend(args.swap.iter().map(|swap| format!("swap={swap}")));
    lines.push(format!("policy.thp={}", args.thp));
    let sizes = args.thp_sizes.iter();
    lines.extend(sizes.map(|size| format!("thp_size={}", size.for_manifest())));
    lines.extend(
        args.hugetlb
            .map(|pages| format!("hugetlb={}", pages.count())),
    );
    lines.extend(
        args.policies
            .iter()
            .map(|policy| format!("policy.{policy}")),
    );
    lines.extend(args.selftest.iter().map(|what| format!("selftest={what}")));
    Ok(lines)
}

/// Refuses a guest without room for what it was asked for: the archive and the files that the kernel unpacks from it,
/// which stand in memory at once, and what the kernel sets aside.
fn check_size(tree: &Tree, args: &RunArgs) -> Result<(), Failure> {
    let wanted = Wanted {
        files: Files::of(tree),
        cpus: args.cpus(),
        pool: args.hugetlb.map_or(0, HugePages::bytes),
        swap: &args.swap,
    };
    if wanted.fits(args.memory().bytes()) {
        return Ok(());
    }
    let mut beside = Vec::new();
    if wanted.cpus > 1 {
        beside.push(format!("{} CPUs", wanted.cpus));
    }
    if wanted.pool > 0 {
        beside.push(format!("the {} of --hugetlb", in_mebibytes(wanted.pool)));
    }
    if !args.swap.is_empty() {
        beside.push("the tables of --swap".to_owned());
    }
    let beside = match beside.as_slice() {
        [] => String::new(),
        all => format!(" beside {}", all.join(" and ")),
    };
    Err(Failure::Broken(anyhow!(
        "the guest's {} files take {}; unpacking them{beside} needs --memory {}M or more",
        tree.nodes().count(),
        in_mebibytes(tree.size()),
        wanted.mebibytes()
    )))
}

/// Writes what QEMU boots.
fn pack(places: &Places, prepared: &Prepared, image: &[u8], args: &RunArgs) -> anyhow::Result<()> {
    fs::write(&places.kernel, image)
        .with_context(|| format!("cannot write {}", places.kernel.display()))?;
    let size = initrd::write(&places.initrd, &prepared.manifest, &prepared.tree)?;
    if args.verbose {
        say(&format!(
            "initrd of {size} bytes, {} entries",
            prepared.tree.nodes().count()
        ));
    }
    Ok(())
}

/// Makes the file of the disk, which goes with the run. It takes room only where the guest writes.
///
/// # Errors
/// Those of making a file.
pub fn make_disk(path: &Path, size: MemorySize) -> io::Result<()> {
    File::create_new(path)?.set_len(size.bytes())
}

/// Prints the line. With `--keep` the files are there, so that it can be run.
fn dry_run(args: &RunArgs, prepared: &Prepared, machine: &Machine) -> anyhow::Result<u8> {
    let qemu = version::program_to_name(machine, args.patience())?;
    let places = match &args.keep {
        Some(path) => {
            let kept = folder::kept_folder(path)?;
            let places = Places::within(&kept, &kept);
            pack(&places, prepared, &kernel::image()?, args)?;
            places
        }
        None => Places::within(
            Path::new("/tmp/memwright-run"),
            Path::new("/tmp/memwright-run"),
        ),
    };
    let port = args.gdb.then_some(gdb::USUAL_PORT);
    let line = shell_line(&qemu, &arguments(&places, machine, &Backing::Own, port));
    output::print(format!("{line}\n").as_bytes())?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_arguments_split() {
        let host = tempfile::tempdir().unwrap();
        let colon = host.path().join("a:b");
        fs::write(&colon, "").unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for (argument, expected) in [
            ("x".to_owned(), ("x".to_owned(), None)),
            ("x:/y".to_owned(), ("x".to_owned(), Some("/y".to_owned()))),
            (
                "x:y/./z".to_owned(),
                ("x".to_owned(), Some("/y/z".to_owned())),
            ),
            (
                "d/x:/y/".to_owned(),
                ("d/x".to_owned(), Some("/y/x".to_owned())),
            ),
            (
                "x:/../y".to_owned(),
                ("x".to_owned(), Some("/y".to_owned())),
            ),
            (text(&colon), (text(&colon), None)),
            (
                format!("{}:/y", text(&colon)),
                (text(&colon), Some("/y".to_owned())),
            ),
        ] {
            let (path, guest) = split_file(OsStr::new(&argument));
            assert_eq!(
                (text(&path), guest.as_deref().map(text)),
                expected,
                "{argument}"
            );
        }
    }
}
