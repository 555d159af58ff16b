//! Finds the program, and collects the guest's files.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use crate::guestfs::digest;
use crate::guestfs::given;
use crate::guestfs::initrd::{self, Manifest};
use crate::guestfs::program::{self, Origin, Program, Surroundings};
use crate::guestfs::region_names::{self, NamesError};
use crate::guestfs::room::{Files, Wanted};
use crate::guestfs::root::RootTree;
use crate::guestfs::tree::{Node, Tree};
use crate::host::output::say;
use crate::host::taken::Taken;
use crate::model::failure::Failure;
use crate::model::plan::{Setup, Terminals};
use crate::model::region_names::RegionNames;
use crate::model::size::{HugePages, SwapKind, SwapSize, in_mebibytes};

/// The maximum number of swap devices of a guest.
const MOST_DEVICES: usize = 32;
/// The maximum number of skipped files that a message lists.
const MOST_SKIPPED: usize = 10;

/// Options of Memwright's kernel that do not describe the guest's machine.
#[derive(Debug, Clone, Default)]
pub struct KernelOptions {
    /// Which of the program's descriptors are terminals.
    pub terminals: Terminals,
    /// Whether the kernel traces every memory event.
    pub trace: bool,
    /// Whether the kernel logs system calls.
    pub strace: bool,
    /// Whether the guest's CPUs run in parallel.
    pub parallel: bool,
    /// The self-test to run in place of the program.
    pub selftest: Option<String>,
}

/// The program, the guest's files and the kernel's parameters, which are determined before QEMU starts.
pub struct Prepared {
    /// The program, at its path in the guest.
    pub program: Program,
    /// The working folder in which PROGRAM starts.
    pub folder: PathBuf,
    /// The guest's files.
    pub tree: Tree,
    /// The parameters of the kernel.
    pub manifest: Manifest,
    /// One entry for each `--file`: the path in the guest, and a hash.
    pub files: Vec<String>,
    /// The host's tree that becomes the lower layer of the guest's root; `None` without a tree.
    pub root: Option<RootChoice>,
}

/// A tree of the host that becomes the lower layer of the guest's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootChoice {
    path: PathBuf,
    fresh: bool,
}

impl RootChoice {
    /// Chooses the tree that becomes the guest's root: the one that `--root` names or, for a program that was found
    /// through PATH, the root of this machine. Returns `None` if the guest gets no tree.
    fn of(setup: &Setup, name: &OsStr) -> Option<Self> {
        let path = match setup.root.as_deref() {
            Some(none) if none == "none" => return None,
            Some(path) => PathBuf::from(path),
            None if program::is_found_through_path(name) => PathBuf::from("/"),
            None => return None,
        };
        Some(Self {
            path,
            fresh: setup.fresh,
        })
    }

    /// Opens the tree.
    ///
    /// # Errors
    /// The errors of [`RootTree::open`].
    pub fn open(&self) -> anyhow::Result<RootTree> {
        let tree = RootTree::open(&self.path)?;
        Ok(match self.fresh {
            true => tree.without_tmp(),
            false => tree,
        })
    }
}

impl Prepared {
    /// Returns the path on this machine of the guest's file at `guest`, a path without links. Returns `None` if there
    /// is no such file, or if it is in an archive.
    pub fn host_file(&self, guest: &Path) -> Option<PathBuf> {
        match self.tree.node(guest) {
            Some(Node::HostFile { path, .. }) => Some(path.clone()),
            Some(Node::Text { .. } | Node::Folder { .. } | Node::Link { .. }) => None,
            None => {
                let root = self.root.as_ref()?.open().ok()?;
                root.host_path(guest.as_os_str().as_bytes())
            }
        }
    }

    /// Returns an error if the guest's memory is too small. The memory must hold the kernel's reservations, the
    /// archive, and the files that the kernel unpacks from the archive, all at the same time.
    ///
    /// # Errors
    /// One line with the memory that the guest requires.
    pub fn check_size(&self, setup: &Setup) -> Result<(), Failure> {
        let wanted = Wanted {
            files: Files::of(&self.tree),
            cpus: setup.cpus(),
            pool: setup.hugetlb.map_or(0, HugePages::bytes),
            swap: &setup.swap,
        };
        if wanted.fits(setup.memory().bytes()) {
            return Ok(());
        }
        let mut beside = Vec::new();
        if wanted.cpus > 1 {
            beside.push(format!("{} CPUs", wanted.cpus));
        }
        if wanted.pool > 0 {
            beside.push(format!("the {} of --hugetlb", in_mebibytes(wanted.pool)));
        }
        if !setup.swap.is_empty() {
            beside.push("the tables of --swap".to_owned());
        }
        let beside = match beside.as_slice() {
            [] => String::new(),
            all => format!(" beside {}", all.join(" and ")),
        };
        Err(Failure::Broken(anyhow!(
            "the guest's {} files take {}; unpacking them{beside} needs --memory {}M or more",
            self.tree.nodes().count(),
            in_mebibytes(self.tree.size()),
            wanted.mebibytes()
        )))
    }

    /// Reads the names that PROGRAM gives its regions.
    ///
    /// # Errors
    /// The errors of [`region_names::read`].
    pub fn region_names(&self) -> Result<RegionNames, NamesError> {
        match &self.program.origin {
            Origin::Machine(path) => region_names::read(path),
            Origin::Tree(_) => {
                let path = self.program.path.as_os_str().as_bytes();
                let root = self.root.as_ref().and_then(|root| root.open().ok());
                let file = root.and_then(|root| root.file(path).ok()?);
                // A program that cannot be read gives no names. The guest reports the error when it starts the program.
                file.map_or_else(
                    || Ok(RegionNames::default()),
                    |file| region_names::of_program(&file),
                )
            }
        }
    }

    /// Returns the host's files that the guest contains, which the command must not overwrite.
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

/// Returns an error if Memwright's kernel does not support these swap devices.
///
/// # Errors
/// One line with the reason.
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

/// Finds PROGRAM and collects the guest's files.
///
/// # Errors
/// If PROGRAM does not exist or cannot be executed. The failures have the exit codes that shells use.
pub fn prepare(setup: &Setup, told: &KernelOptions) -> Result<Prepared, Failure> {
    let name = setup
        .command
        .first()
        .ok_or_else(|| anyhow!("PROGRAM is missing"))?;
    let environment = initrd::environment(&setup.environment);
    let around = Surroundings {
        memory: setup.memory(),
        library_path: initrd::variable(&environment, "LD_LIBRARY_PATH"),
        path: initrd::variable(&environment, "PATH").unwrap_or_default(),
    };
    let root = RootChoice::of(setup, name);
    let shown = root.as_ref().map(RootChoice::open).transpose()?;
    let mut tree = Tree::default();
    let (program, folder) = match &shown {
        None => own_files(&mut tree, name, &setup.files, around)?,
        Some(shown) => files_of_root(shown, name, setup, around)?,
    };
    let mut files = Vec::new();
    for file in &setup.files {
        files.push(add_file(&mut tree, file, around)?);
    }
    tree.add_empty_folder(Path::new("/tmp"), 0o1777);
    if root.is_some() {
        tree.add_empty_folder(Path::new("/run"), 0o755);
    } else {
        tree.add_text(
            "/etc/passwd",
            0o644,
            "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n",
        );
        tree.add_text("/etc/group", 0o644, "root:x:0:\nnogroup:x:65534:\n");
    }
    let options = options(setup, told, &program.path, &folder)?;
    let manifest = Manifest {
        arguments: setup.command.clone(),
        environment,
        options,
    };
    say_skipped(&tree);
    Ok(Prepared {
        program,
        folder,
        tree,
        manifest,
        files,
        root,
    })
}

/// Adds PROGRAM and its dependencies to a guest without a tree of `--root`. Returns the program and its working folder.
fn own_files(
    tree: &mut Tree,
    name: &OsStr,
    files: &[OsString],
    around: Surroundings<'_>,
) -> Result<(Program, PathBuf), Failure> {
    let program = add_program(tree, name, files, around)?;
    let folder = program::working_folder(name);
    if folder.exists() {
        tree.add_host_folder(&folder)?;
    }
    Ok((program, folder))
}

/// Adds PROGRAM, which is a file of this machine, and its dependencies. If a `--file` adds a file at PROGRAM's path,
/// that file is PROGRAM.
fn add_program(
    tree: &mut Tree,
    name: &OsStr,
    files: &[OsString],
    around: Surroundings<'_>,
) -> Result<Program, Failure> {
    if let Some(host) = given::file_at(files, Path::new(name)) {
        return program::add_copy(tree, &host, Path::new(name), around);
    }
    let path = program::locate(name, std::env::var_os("PATH").as_deref())?;
    program::add(tree, &path, around)
}

/// Finds PROGRAM in the tree that becomes the guest's root. Returns the program and its working folder. This is the
/// command's working folder if the tree is the root of this machine and the guest is not `fresh`.
fn files_of_root(
    root: &RootTree,
    name: &OsStr,
    setup: &Setup,
    around: Surroundings<'_>,
) -> Result<(Program, PathBuf), Failure> {
    if root.is_whole_machine() {
        // The guest reads the program's files from the tree, so the result is not used. This call only reports what
        // prevents the program from starting.
        let program = add_program(&mut Tree::default(), name, &setup.files, around)?;
        let here = (!setup.fresh)
            .then(|| std::env::current_dir().ok())
            .flatten();
        let folder = here.unwrap_or_else(|| PathBuf::from("/"));
        return Ok((program, folder));
    }
    let bytes = name.as_bytes();
    let found = if bytes.contains(&b'/') {
        // Collecting the components of the path removes every component `.`.
        Some(Path::new("/").join(name).components().collect())
    } else {
        let folders = std::env::split_paths(around.path);
        let mut places = folders.map(|folder| folder.join(name));
        places.find(|place| {
            let hash = root.hash(place.as_os_str().as_bytes());
            matches!(hash, Ok(Some(_)))
        })
    };
    let missing = || Failure::NotFound(format!("{}: not found", name.display()));
    let path: PathBuf = found.ok_or_else(missing)?;
    let hash = root.hash(path.as_os_str().as_bytes());
    let origin = Origin::Tree(hash.context("--root")?.ok_or_else(missing)?);
    let companions = Vec::new();
    let program = Program {
        path,
        companions,
        origin,
    };
    Ok((program, PathBuf::from("/")))
}

/// Prints which entries of the folders of `--file` were skipped: at most [`MOST_SKIPPED`], and the number of others.
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

/// Adds the file or folder of one `--file`, and returns its entry for documents. If it is an executable ELF file, its
/// interpreter and its libraries are also added.
fn add_file(
    tree: &mut Tree,
    argument: &OsStr,
    around: Surroundings<'_>,
) -> Result<String, Failure> {
    let (host, guest) = given::split(argument);
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

/// Returns the lines with the kernel's options.
fn options(
    setup: &Setup,
    told: &KernelOptions,
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
    let descriptors = told.terminals.descriptors().into_iter();
    lines.extend(descriptors.map(|(name, terminal)| {
        let kind = if terminal { "tty" } else { "pipe" };
        format!("{name}={kind}")
    }));
    if let Some((columns, rows)) = told.terminals.size {
        lines.push(format!("columns={columns}"));
        lines.push(format!("rows={rows}"));
    }
    if folder != Path::new("/") {
        lines.push(format!("folder={}", text(folder)?));
    }
    for (name, is) in [
        ("trace", told.trace),
        ("strace", told.strace),
        ("parallel", told.parallel),
    ] {
        if is {
            lines.push(format!("{name}=1"));
        }
    }
    lines.extend(setup.swap.iter().map(|swap| format!("swap={swap}")));
    lines.push(format!("policy.thp={}", setup.thp));
    let sizes = setup.thp_sizes.iter();
    lines.extend(sizes.map(|size| format!("thp_size={}", size.for_manifest())));
    lines.extend(
        setup
            .hugetlb
            .map(|pages| format!("hugetlb={}", pages.count())),
    );
    lines.extend(
        setup
            .policies
            .iter()
            .map(|policy| format!("policy.{policy}")),
    );
    lines.extend(told.selftest.iter().map(|what| format!("selftest={what}")));
    Ok(lines)
}
