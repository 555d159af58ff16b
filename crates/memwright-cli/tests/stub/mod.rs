//! A stand-in for QEMU that interprets a kernel image of a few bytes, so that tests of how counts are processed need no
//! kernel.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The script of the stand-in. After its first KiB, a kernel image contains shell variables: `mode`, and the counts of
/// a run. The stand-in reads the variables, and prints lines in the formats of QEMU's log (`-d int`) and of the plugin.
const QEMU: &str = r#"#!/bin/sh
case $1 in
--version) echo "QEMU emulator version 7.2.0 (stand-in)"; exit ;;
-d) exit ;;
esac
while [ $# -gt 0 ]; do
	case $1 in
	-kernel) image=$2 ;;
	-action) action=$2 ;;
	-chardev) case $2 in file,id=serial,path=*) serial=${2#file,id=serial,path=} ;; esac ;;
	esac
	shift
done
mode=runs faults=0 kernel=1000 passes=1 status=0 output=
eval "$(tail -c +1025 "$image")"
case $mode in
panics) echo "Kernel panic - not syncing: no root" >"$serial"; exit ;;
silent) exit ;;
fails) echo "qemu: cannot set up guest memory" >&2; exit 1 ;;
hangs) exec sleep 1000 ;;
esac
if [ "$action" = panic=pause ]; then
	# It comes to the point where it could be saved, but has no monitor: every run boots.
	printf 'r\010\000\000\000\000\000\000\000\000\000\000\000'
	exit
fi
case $mode in
unstable) mkdir "$image.seen" 2>/dev/null && faults=$((faults + 1)) ;;
esac
log() { printf '%s\n' "$*" >&0; }
mark() { log memwright mark "$1" 0 4096 0 0 0 "$2" "$3"; }
fault() {
	log "     1: v=0e e=0007 i=0 cpl=3 IP=0033:0000000000401000 pc=0000000000401000 SP=002b:0 CR2=$1"
}
if [ $mode = unseen ]; then
	# Without the plugin these faults mark the run.
	fault 00004d5700000000
	fault 00004d5700001000
	printf 'x\004\000\000\000\000\000\000\000'
	exit
fi
log memwright count 1
mark 65534 100 100
while [ "$passes" -gt 0 ]; do
	mark 2 200 200
	mark 3 300 200
	passes=$((passes - 1))
done
# An instruction that faults has begun once more than it ends.
user=$((400 + faults))
while [ "$faults" -gt 0 ]; do
	fault 0000000000500000
	faults=$((faults - 1))
done
mark 65535 $user $((100 + kernel))
[ "$output" ] && printf 'o\001\000\000\000%.1s' "$output"
printf "x\004\000\000\000\000\\$(printf %03o "$status")\000\000"
"#;

/// A folder that contains the stand-in for QEMU.
pub struct Stub {
    folder: tempfile::TempDir,
}

impl Stub {
    /// Creates the folder and the stand-in.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let qemu = folder.path().join("qemu");
        fs::write(&qemu, QEMU).unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        Self { folder }
    }

    /// Returns a path in the folder.
    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Creates a kernel image that contains the shell variables `does`.
    pub fn image(&self, name: &str, does: &str) -> PathBuf {
        let mut bytes = vec![0; 1024];
        bytes[0x202..0x206].copy_from_slice(b"HdrS");
        bytes.extend(does.as_bytes());
        let path = self.at(name);
        fs::write(&path, bytes).unwrap();
        path
    }

    /// Makes a command start the stand-in instead of QEMU.
    pub fn set(&self, command: &mut Command) {
        command
            .current_dir(self.folder.path())
            .env("MEMWRIGHT_QEMU", self.at("qemu"))
            .env("TMPDIR", self.at("tmp"))
            .stdin(Stdio::null());
    }

    /// Returns the command with the arguments `arguments`, which are separated by spaces.
    pub fn memwright(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_memwright"));
        command.args(arguments.split_ascii_whitespace());
        self.set(&mut command);
        command
    }

    /// Returns the output of the command (standard output and standard error) and its exit code.
    pub fn said(&self, arguments: &str) -> (String, i32) {
        said(&mut self.memwright(arguments))
    }

    /// Returns whether all runs have removed their temporary files.
    pub fn is_tidy(&self) -> bool {
        let is_empty = |path: &Path| fs::read_dir(path).unwrap().next().is_none();
        is_empty(&self.at("tmp"))
    }
}

/// Returns the output of a command (standard output and standard error) and its exit code.
pub fn said(command: &mut Command) -> (String, i32) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    (text, output.status.code().unwrap_or(-1))
}
