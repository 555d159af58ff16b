//! Tests that a guest that starts from a snapshot has the same counts as a guest that boots. The snapshot is of a guest
//! that had just booted.

mod skipped;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A program that prints the status of each path in its arguments, writes pages in a region, and prints its input. If
/// there is swap, it has the pages swapped out.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "mark.h"
enum { SIZE = 256 * 4096 };
int main(int count, char **paths)
{
	char text[100];
	for (int i = 1; i < count; i++) {
		struct stat about;
		if (lstat(paths[i], &about) != 0)
			return 1;
		long length = readlink(paths[i], text, sizeof text - 1);
		text[length > 0 ? length : 0] = 0;
		printf("%s %o %d %d %ld %ld %s\n", paths[i], about.st_mode, about.st_uid, about.st_gid,
		       S_ISREG(about.st_mode) ? (long)about.st_size : 0, (long)about.st_mtime, text);
	}
	char *memory = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MARK_BEGIN(1);
	for (int i = 0; i < SIZE; i += 4096)
		((volatile char *)memory)[i] = i >> 12;
	MARK_END(1);
	madvise(memory, SIZE, 21);
	for (int i = 0; i < SIZE; i += 4096)
		if (((volatile char *)memory)[i] != (char)(i >> 12))
			return 2;
	while (fgets(text, sizeof text, stdin))
		printf("input %s", text);
	return 7;
}
"#;

/// A folder with the program, a private cache, and a QEMU that records each of its starts.
struct Room {
    folder: TempDir,
}

impl Room {
    fn new(qemu: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let room = Self { folder };
        fs::create_dir(room.path("tmp")).unwrap();
        fs::write(room.path("input"), "one\ntwo\n").unwrap();
        fs::write(room.path("main.c"), PROGRAM).unwrap();
        let headers = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../include/memwright");
        let mut compiler = Command::new("gcc");
        compiler.args(["-O1", "-static", "-I"]).arg(headers);
        compiler
            .arg("-o")
            .args([room.path("program"), room.path("main.c")]);
        assert!(compiler.status().unwrap().success());
        let script = format!(
            "#!/bin/sh\necho \"$@\" >> {}\nexec {} \"$@\"\n",
            room.path("started").display(),
            qemu.display()
        );
        fs::write(room.path("qemu"), script).unwrap();
        fs::set_permissions(room.path("qemu"), fs::Permissions::from_mode(0o755)).unwrap();
        room
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str], image: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
        command
            .args(words)
            .arg("--kernel")
            .arg(image)
            .env("MEMWRIGHT_QEMU", self.path("qemu"))
            .env("XDG_CACHE_HOME", self.path("cache"))
            .env("TMPDIR", self.path("tmp"))
            .stdin(fs::File::open(self.path("input")).unwrap());
        command
    }

    /// Runs the program. Returns the account, the program's output, and the command's messages.
    fn run(&self, options: &[&str], image: &Path, arguments: &[&str]) -> (Value, String, String) {
        let file = self.path("account.json");
        let words = [&["run"], options].concat();
        let mut command = self.command(&words, image);
        command.arg("--json").arg(&file).arg(self.path("program"));
        let output = command.args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(7), "{said}");
        let mut account: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        account.as_object_mut().unwrap().remove("host").unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let left: Vec<_> = fs::read_dir(self.path("tmp")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        (account, printed, said)
    }

    /// Returns how the guests have started since the last call: the number that booted, 1 if any guest booted for a
    /// snapshot and 0 otherwise, and the number that were restored. The boots for a snapshot are not counted
    /// individually, because a guest sometimes boots several times until a snapshot can be taken.
    fn started(&self) -> [usize; 3] {
        let text = fs::read_to_string(self.path("started")).unwrap();
        fs::write(self.path("started"), "").unwrap();
        let guests: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("pvpanic"))
            .collect();
        let count =
            |wanted: &dyn Fn(&str) -> bool| guests.iter().filter(|line| wanted(line)).count();
        let (stopped, restored) = (
            count(&|line| line.contains("panic=pause")),
            count(&|line| line.contains("-incoming")),
        );
        [guests.len() - stopped - restored, stopped.min(1), restored]
    }

    fn states(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.path("cache/memwright/states")) else {
            return Vec::new();
        };
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

/// Returns the image of a kernel in the cache. If there is none, prints a message.
fn image(name: &str) -> Option<PathBuf> {
    let kept = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["kernels", "list"])
        .output()
        .unwrap();
    let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
    if !kept
        .lines()
        .any(|line| line.split(' ').next() == Some(name))
    {
        skipped::skipped(&format!("no kernel image: memwright kernels add {name}"));
        return None;
    }
    let line = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--dry-run", "--kernel", name, "/bin/true"])
        .output()
        .unwrap();
    let line = String::from_utf8(line.stdout).unwrap();
    let mut words = line.split_whitespace();
    words.find(|word| *word == "-kernel");
    words.next().map(PathBuf::from)
}

fn text(account: &Value) -> String {
    serde_json::to_string_pretty(account).unwrap()
}

/// Asserts that a run from a snapshot writes the same document as a run that boots, byte for byte except for the part
/// about the host.
fn cold_equals_restored(name: &str, qemu: &Path, options: &[&str]) {
    if let Some(image) = image(name) {
        cold_equals_restored_in(&Room::new(qemu), name, &image, options);
    }
}

fn cold_equals_restored_in(room: &Room, name: &str, image: &Path, options: &[&str]) {
    let cold = [&["--cold", "--no-verify"], options].concat();
    let (mut cold, printed, said) = room.run(&cold, image, &[]);
    assert_eq!(
        (room.started(), room.states().len()),
        ([0, 1, 1], 0),
        "{said}"
    );
    cold["repeats"] = Value::Bool(true);
    for started in [[0, 1, 2], [0, 0, 2]] {
        let (restored, again, said) = room.run(options, image, &[]);
        assert_eq!(
            (room.started(), room.states().len()),
            (started, 1),
            "{said}"
        );
        let keys = |account: &Value| account.as_object().unwrap().len();
        assert_eq!((keys(&restored), &again), (keys(&cold), &printed));
        for (key, value) in cold.as_object().unwrap() {
            assert_eq!(restored.get(key), Some(value), "{name}: {key}");
        }
    }
    let region = &cold["regions"][0];
    assert_eq!(region["counts"]["user_faults"]["write"], 256);
    let writable = |place: &str| region[place]["small_writable"].as_u64().unwrap();
    assert_eq!(writable("at_end") - writable("at_beginning"), 256);
}

const USUAL: &str = "qemu-system-x86_64";

#[test]
fn linux_6_1_counts_the_same_from_a_saved_state() {
    cold_equals_restored("debian:bookworm", Path::new(USUAL), &[]);
}

#[test]
fn linux_6_12_counts_the_same_from_a_saved_state() {
    cold_equals_restored("debian:trixie", Path::new(USUAL), &[]);
}

/// The kernel is the Linux 6.12 that Debian built for its older release, with another compiler.
#[test]
fn linux_6_12_of_bookworm_counts_the_same_from_a_saved_state() {
    cold_equals_restored("debian:bookworm-backports", Path::new(USUAL), &[]);
}

#[test]
fn linux_7_3_counts_the_same_from_a_saved_state() {
    cold_equals_restored("debian:trixie-backports", Path::new(USUAL), &[]);
}

#[test]
fn the_newest_linux_counts_the_same_from_a_saved_state() {
    cold_equals_restored("debian:unstable", Path::new(USUAL), &[]);
}

#[test]
fn two_nodes_count_the_same_from_a_saved_state() {
    let options = ["--numa", "128M:1,128M:0"];
    cold_equals_restored("debian:trixie", Path::new(USUAL), &options);
}

/// A snapshot contains the modules for swap, but does not depend on the size of swap.
#[test]
fn swap_counts_the_same_from_a_saved_state() {
    let name = "debian:trixie-backports";
    let Some(image) = image(name) else {
        return;
    };
    let room = Room::new(Path::new(USUAL));
    cold_equals_restored_in(&room, name, &image, &["--swap", "zram:64M"]);
    let (account, _, said) = room.run(&["--swap", "zram:32M"], &image, &[]);
    assert_eq!((room.started(), room.states().len()), ([0, 0, 2], 1));
    assert!(
        !said.contains("no swap") && !said.contains("was not loaded"),
        "{said}"
    );
    // The program's pages are swapped in by read faults.
    let count = |region: &Value| region["user_faults"]["read"].as_u64().unwrap();
    assert!(count(&account["run"]) > 0, "{said}");
}

/// A later QEMU saves the devices in another format. The test does not download the later QEMU.
#[test]
fn a_later_qemu_counts_the_same_from_a_saved_state() {
    if let Some(qemu) = later_qemu() {
        cold_equals_restored("debian:trixie-backports", &qemu, &[]);
    }
}

/// If CPUs take turns, the first turns after a restore depend on the host, so a guest with several CPUs boots in each
/// run.
#[test]
fn several_cpus_boot() {
    let Some(qemu) = later_qemu() else { return };
    let Some(image) = image("debian:trixie-backports") else {
        return;
    };
    let room = Room::new(&qemu);
    room.run(&["--cpus", "2", "--no-verify"], &image, &[]);
    assert_eq!((room.started(), room.states().len()), ([1, 0, 0], 0));
}

/// Returns the later QEMU if it is in the cache.
fn later_qemu() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.unwrap_or_else(|| home.unwrap_or_default().join(".cache"));
    let qemu = cache.join("memwright/qemu-bookworm-backports/qemu-system-x86_64");
    if !qemu.is_file() {
        skipped::skipped("no later QEMU in the cache: MEMWRIGHT_QEMU=backports fetches it");
        return None;
    }
    Some(qemu)
}

#[test]
fn files_come_with_modes_links_times_and_owners() {
    let Some(image) = image("debian:trixie") else {
        return;
    };
    let room = Room::new(Path::new(USUAL));
    let data = room.path("data");
    fs::create_dir(&data).unwrap();
    // The file is larger than one read of the guest, and its size is not a multiple of the page size.
    fs::write(data.join("large"), vec![b'x'; 700_001]).unwrap();
    fs::write(data.join("empty"), "").unwrap();
    symlink("../elsewhere", data.join("link")).unwrap();
    for (path, mode) in [
        (data.join("large"), 0o4751),
        (data.join("empty"), 0o600),
        (data.clone(), 0o750),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let file = format!("{}:/opt/data", data.display());
    let options = ["--no-verify", "--no-count", "--file", &file];
    let paths = [
        "/opt/data/large",
        "/opt/data/empty",
        "/opt/data/link",
        "/opt/data",
    ];
    let (_, printed, said) = room.run(&options, &image, &paths);
    let expected = "/opt/data/large 104751 0 0 700001 1767225600 \n\
        /opt/data/empty 100600 0 0 0 1767225600 \n\
        /opt/data/link 120777 0 0 0 1767225600 ../elsewhere\n\
        /opt/data 40750 0 0 0 1767225600 \n\
        input one\ninput two\n";
    assert_eq!(printed, expected, "{said}");
    // Runs with other files and arguments start from the same snapshot.
    let (_, printed, _) = room.run(&["--no-verify", "--no-count"], &image, &[]);
    assert_eq!(printed, "input one\ninput two\n");
    assert_eq!((room.started(), room.states().len()), ([0, 1, 2], 1));
}

#[test]
fn a_damaged_state_is_reported_once_and_made_again_as_it_was() {
    let Some(image) = image("debian:trixie") else {
        return;
    };
    let room = Room::new(Path::new(USUAL));
    let (first, ..) = room.run(&[], &image, &[]);
    let [state] = &*room.states() else {
        panic!("{:?}", room.states())
    };
    let whole = fs::read(state).unwrap();
    room.started();
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 0x10;
    for broken in [&whole[..whole.len() / 3], &changed] {
        fs::write(state, broken).unwrap();
        let (again, _, said) = room.run(&[], &image, &[]);
        let reports = said
            .lines()
            .filter(|line| line.contains("saved state cannot be used"));
        assert_eq!(reports.count(), 1, "{said}");
        assert_eq!((text(&again), room.started()), (text(&first), [0, 1, 2]));
        assert!(fs::read(state).unwrap() == whole, "another state");
    }
}

#[test]
fn where_no_state_can_be_kept_the_guest_boots() {
    let Some(image) = image("debian:bookworm") else {
        return;
    };
    let room = Room::new(Path::new(USUAL));
    fs::create_dir_all(room.path("cache/memwright")).unwrap();
    fs::write(room.path("cache/memwright/states"), "a file").unwrap();
    let (_, _, said) = room.run(&["--no-verify"], &image, &[]);
    assert!(said.contains("its saved state cannot be kept"), "{said}");
    assert_eq!(room.started(), [0, 1, 1], "{said}");
}

/// Returns the number of QEMU processes whose command line names the folder.
fn emulators(room: &Room) -> usize {
    let name = room.folder.path().to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.map(|entry| fs::read(entry.path().join("cmdline")).unwrap_or_default());
    let ours = |line: &Vec<u8>| {
        let line = String::from_utf8_lossy(line);
        line.contains("pvpanic") && line.contains(name)
    };
    lines.filter(ours).count()
}

fn wait_for(done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A command that is killed while a guest boots for a snapshot leaves no QEMU and no snapshot behind. The next command
/// removes the folder of the killed one.
#[test]
fn a_killed_command_leaves_no_state() {
    let Some(image) = image("debian:bookworm") else {
        return;
    };
    let room = Room::new(Path::new(USUAL));
    let copy = room.path("image");
    fs::copy(image, &copy).unwrap();
    let mut command = room.command(&["run", "--no-verify"], &copy);
    command
        .arg(room.path("program"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    wait_for(|| emulators(&room) > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(|| emulators(&room) == 0);
    assert!(room.states().is_empty(), "{:?}", room.states());
    room.started();
    room.run(&["--no-verify", "--no-count"], &copy, &[]);
    assert_eq!((room.started(), room.states().len()), ([0, 1, 1], 1));
}
