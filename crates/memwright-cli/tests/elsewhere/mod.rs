//! Simulates another machine: the command has another path, another user with another home, cache and temporary folder,
//! another time zone and language, and a single CPU.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The user ID of `nobody` on every Debian.
const NOBODY: &str = "65534";

/// Returns the command, with the environment of the simulated machine. `room` is the folder for its binary, its home
/// and its temporary files.
pub fn command(room: &Path) -> Command {
    let open = |path: &Path| {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    };
    for name in ["", "checkout/bin", "home", "tmp"] {
        open(&room.join(name));
    }
    let binary = room.join("checkout/bin/memwright");
    fs::copy(env!("CARGO_BIN_EXE_memwright"), &binary).unwrap();
    let mut words = vec!["taskset", "-c", "0"];
    if rustix::process::getuid().is_root() {
        words.extend([
            "setpriv",
            "--reuid",
            NOBODY,
            "--regid",
            NOBODY,
            "--clear-groups",
        ]);
    }
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .arg(binary)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", room.join("home"))
        .env("TMPDIR", room.join("tmp"))
        .env("TZ", "Asia/Kathmandu")
        .env("LC_ALL", "tr_TR.UTF-8")
        .env("USER", "nobody")
        .current_dir(room)
        .stdin(Stdio::null());
    command
}
