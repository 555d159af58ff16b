//! The lab: any Linux kernel image, unmodified, with a program inside, counted from outside.

mod counts;
mod document;
mod guest;
mod image;
mod log;
mod plugin;
mod runs;
mod table;

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};

use self::document::{About, Host, Kernel, Qemu};
use self::guest::{Guest, Said};
use self::runs::Runs;
use crate::args::RunArgs;
use crate::compile::{Compiler, Source};
use crate::ending::{self, JsonTarget};
use crate::failure::{Failure, SIGNAL_BASE, TIMEOUT};
use crate::folder::{kept_folder, private_folder};
use crate::guest::initrd::{self, Manifest};
use crate::qemu::command::shell_line;
use crate::qemu::machine::Machine;
use crate::qemu::process::Cut;
use crate::qemu::version::{self, Version};
use crate::report::hexadecimal_hash;
use crate::run::{self, Prepared};
use crate::session::{say, show, write_fully};

/// The guest's first process, and how it is built.
const INIT: [Source; 2] = [
    ("main.c", include_str!("../../../../programs/lab/init.c")),
    (
        "mark.h",
        include_str!("../../../../include/memwright/mark.h"),
    ),
];
const INIT_COMPILERS: &[&str] = &["musl-gcc", "cc"];
const INIT_FLAGS: &[&str] = &["-std=gnu11", "-O2", "-static"];
/// Where the guest's first process looks for its own files.
const OWN: &str = "/.memwright";
/// How long guests may take where nothing is said.
const USUAL_LIMIT: Duration = Duration::from_secs(900);

/// `memwright run --kernel IMAGE`: the account of a program on that kernel.
///
/// # Errors
/// Everything that keeps it from running; what becomes of the program is an exit code.
pub fn run(args: &RunArgs, image: &str) -> Result<u8, Failure> {
    let machine = Machine::of(args);
    let bytes = fs::read(image).with_context(|| format!("--kernel {image}"))?;
    image::check(&bytes, &format!("--kernel {image}"))?;
    let mut prepared = run::prepare(args)?;
    put_init(&mut prepared)?;
    let json = args.json.as_deref().map(JsonTarget::open).transpose()?;
    let folder = private_folder().context("cannot make a temporary folder")?;
    let files = match &args.keep {
        Some(path) => kept_folder(path)?,
        None if args.dry_run => PathBuf::from("/tmp/memwright-run"),
        None => folder.path().to_owned(),
    };
    let qemu = if args.dry_run {
        version::program_to_name(&machine)?
    } else {
        version::program(&machine)?
    };
    let found = version::check_for(&qemu, &machine)?;
    let guest = Guest {
        image: std::path::absolute(image).with_context(|| format!("--kernel {image}"))?,
        archive: files.join("initrd.cpio"),
        append: append(args),
        machine,
        plugin: plugin_or_say(found),
        qemu,
    };
    let line = shell_line(&guest.qemu, &guest.arguments(&files.join("serial")));
    if args.dry_run {
        if args.keep.is_some() {
            pack(&guest.archive, &prepared)?;
        }
        println!("{line}");
        return Ok(0);
    }
    pack(&guest.archive, &prepared)?;
    if args.verbose {
        say(&format!("QEMU {found}: {line}"));
    }
    let about = about(args, &prepared, &guest, &bytes, found, line);
    let runs =
        Runs::start(args.timeout.unwrap_or(USUAL_LIMIT)).context("cannot receive signals")?;
    let results = boot(&guest, &runs, if args.no_verify { 1 } else { 2 });
    match runs.was_cut() {
        Some(Cut::TimedOut) => {
            say("--timeout expired: the guest gave no result in time");
            return Ok(TIMEOUT);
        }
        Some(Cut::Signalled(signal)) => {
            say(&format!("ended by signal {signal}"));
            return Ok(SIGNAL_BASE.saturating_add(u8::try_from(signal).unwrap_or(0)));
        }
        Some(Cut::OutputClosed) | None => {}
    }
    let said: Vec<Said> = results.into_iter().collect::<anyhow::Result<_>>()?;
    conclude(&said, about, json.as_ref())
}

/// Prints what the program printed, then the account, and returns the exit code.
fn conclude(said: &[Said], about: About, json: Option<&JsonTarget>) -> Result<u8, Failure> {
    let [first, rest @ ..] = said else {
        return Err(anyhow!("no run was made").into());
    };
    let path = about.program.path.clone();
    let document = about.document(first, rest.first());
    show(&first.errors);
    if write_fully(io::stdout().as_fd(), &first.output).is_err() {
        return Ok(SIGNAL_BASE + ending::SIGPIPE);
    }
    show(table::render(&document).as_bytes());
    if let memwright_linux::channel::Outcome::NotStarted(number) = first.outcome {
        let error = io::Error::from_raw_os_error(number);
        say(&format!("{path}: {error}"));
    }
    if let Some(target) = json {
        target.write(&document)?;
    }
    Ok(ending::exit_code(first.outcome))
}

/// Boots so many guests side by side.
fn boot(guest: &Guest, runs: &Runs, count: usize) -> Vec<anyhow::Result<Said>> {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|_| scope.spawn(|| guest.run(runs)))
            .collect();
        let join = |thread: thread::ScopedJoinHandle<'_, anyhow::Result<Said>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(anyhow!("a run panicked")))
        };
        threads.into_iter().map(join).collect()
    })
}

/// Puts the first process, the program's input and its arguments into the guest.
fn put_init(prepared: &mut Prepared) -> anyhow::Result<()> {
    let compiler = Compiler::first_of(INIT_COMPILERS)?;
    let folder = compiler.folder("lab", &INIT.map(|(_, text)| text))?;
    let init = compiler.build(&folder, "init", INIT_FLAGS, &INIT)?;
    prepared
        .tree
        .add_copy(&init, &Path::new(OWN).join("init"))?;
    if !io::stdin().is_terminal() {
        let mut input = Vec::new();
        io::stdin()
            .read_to_end(&mut input)
            .context("cannot read standard input")?;
        let place = Path::new(OWN).join("input");
        prepared.tree.add_bytes(&place, 0o600, input);
    }
    let path = OsString::from(&prepared.program.path);
    prepared.manifest = Manifest {
        arguments: [path]
            .into_iter()
            .chain(prepared.manifest.arguments.drain(..))
            .collect(),
        environment: std::mem::take(&mut prepared.manifest.environment),
        options: Vec::new(),
    };
    Ok(())
}

fn pack(archive: &Path, prepared: &Prepared) -> anyhow::Result<()> {
    initrd::write(archive, &prepared.manifest, &prepared.tree).map(drop)
}

/// The plugin for this QEMU. Where it cannot be built nothing is counted, and that is said.
fn plugin_or_say(version: Version) -> Option<PathBuf> {
    match plugin::build(version) {
        Ok(path) => Some(path),
        Err(error) => {
            say(&format!("nothing is counted: {error:#}"));
            None
        }
    }
}

/// What the options say to the kernel.
fn append(args: &RunArgs) -> String {
    let mut words = vec![format!("transparent_hugepage={}", args.thp)];
    words.extend(
        args.hugetlb
            .map(|pages| format!("hugepages={}", pages.count())),
    );
    words.extend(args.append.iter().cloned());
    words.join(" ")
}

fn about(
    args: &RunArgs,
    prepared: &Prepared,
    guest: &Guest,
    image: &[u8],
    version: Version,
    command: String,
) -> About {
    let (program, companions) = About::hashes(&prepared.program);
    let text = |text: &OsString| text.to_string_lossy().into_owned();
    let name = guest.image.file_name().unwrap_or_default();
    About {
        program,
        companions,
        arguments: args.command.iter().map(text).collect(),
        kernel: Kernel {
            name: name.to_string_lossy().into_owned(),
            sha256: hexadecimal_hash(image),
            version: image::version(image),
            command_line: guest.command_line(),
        },
        qemu: Qemu {
            version: version.to_string(),
            sha256: version::hash(&guest.qemu),
        },
        machine: guest.machine,
        host: Host {
            image: guest.image.display().to_string(),
            command,
        },
    }
}
