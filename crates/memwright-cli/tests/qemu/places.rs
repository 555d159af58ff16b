//! Tests that a program starts in the command's current folder, and that neither this folder nor the user changes the
//! account.

use crate::elsewhere;
use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

const COMMAND: &str = env!("CARGO_BIN_EXE_memwright");

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("places::a_relative_program_finds_itself", relative),
        Trial::test(
            "places::the_account_is_the_same_from_elsewhere",
            from_elsewhere,
        ),
        Trial::test(
            "places::figures_are_the_same_from_elsewhere",
            figures_from_elsewhere,
        ),
        Trial::test("places::a_program_may_have_another_path", other_path),
        Trial::test("places::a_folder_may_be_deep", deep_folder),
    ]
}

/// Checks that a program given by a relative path starts in the current folder, and can execute itself by the same
/// path.
fn relative() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let inside = folder.path().join("inside");
    fs::create_dir(&inside)?;
    let script = folder.path().join("again");
    fs::write(
        &script,
        "#!/bin/sh\n[ \"$1\" ] && { pwd; exit; }\nexec \"$0\" again\n",
    )?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    for (name, from) in [("./again", folder.path()), ("../again", &inside)] {
        let mut command = Guest::new(name, &[]).command(Path::new(COMMAND));
        let output = command.current_dir(from).output()?;
        let expected = format!("{}\n", fs::canonicalize(from)?.display());
        if output.stdout != expected.as_bytes() {
            return Err(format!(
                "{name} printed {:?}: {}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
    }
    Ok(())
}

/// Checks that a host folder with 1,500 nested folders is copied into the guest, and that the command leaves nothing
/// behind.
fn deep_folder() -> Result<(), Failed> {
    const DEPTH: usize = 1500;
    let room = tempfile::tempdir()?;
    let below = "d/".repeat(DEPTH);
    let outermost = room.path().join("d");
    fs::create_dir_all(room.path().join(&below))?;
    fs::write(room.path().join(&below).join("f"), "innermost\n")?;
    let script = format!("cat /deep/{}f", &below[2..]);
    let ending = Guest::shell(&script).file(&outermost, "/deep").run()?;
    ending.expect_code(0)?;
    ending.expect_output(b"innermost\n")
}

/// Checks that the JSON document does not depend on the machine.
fn from_elsewhere() -> Result<(), Failed> {
    let room = tempfile::tempdir()?;
    let kernel = room.path().join("kernel");
    let mut command = elsewhere::command(room.path());
    fs::copy(prepare::kernel(), &kernel)?;
    let script = "seq 1 300 | sort -r | tail -1; date; id -u; cat /proc/meminfo; cat /proc/cpuinfo";
    let (here, there) = (
        room.path().join("here.json"),
        room.path().join("there.json"),
    );
    let guest = |json: &Path| Guest::shell(script).option("--json", json);
    let one = guest(&here).command(Path::new(COMMAND)).output()?;
    let asked = guest(&there).command(Path::new(COMMAND));
    let other = command
        .args(asked.get_args())
        .env("MEMWRIGHT_KERNEL", kernel)
        .output()?;
    if one.status.code() != Some(0) || one.stdout != other.stdout || one.stderr != other.stderr {
        return Err(format!("{one:?}\n{other:?}").into());
    }
    if fs::read(here)? != fs::read(there)? {
        return Err("the accounts differ".into());
    }
    Ok(())
}

/// Checks that the figures of an experiment depend neither on the machine nor on the length of the path of the cache,
/// which contains the program. Some figures of this run are about reads of `/proc/self/maps`, which contains the path
/// of the program in the guest.
fn figures_from_elsewhere() -> Result<(), Failed> {
    let words = ["bench", "growth", "--run", "areas", "--no-verify"];
    let one = Command::new(COMMAND)
        .args(words)
        .args(["--json", "-"])
        .stdin(Stdio::null())
        .output()?;
    let room = tempfile::tempdir()?;
    let cache = room.path().join("home").join("a".repeat(200));
    let mut command = elsewhere::command(room.path());
    // Without the variable, both commands boot the kernel that they embed.
    if let Some(kernel) = std::env::var_os("MEMWRIGHT_KERNEL") {
        let copy = room.path().join("kernel");
        fs::copy(kernel, &copy)?;
        command.env("MEMWRIGHT_KERNEL", copy);
    }
    let other = command
        .args(words)
        .args(["--json", "-"])
        .env("XDG_CACHE_HOME", cache)
        .output()?;
    if one.status.code() != Some(0) || other.status.code() != Some(0) {
        return Err(format!("{one:?}\n{other:?}").into());
    }
    if one.stdout == other.stdout {
        return Ok(());
    }
    let texts = [&one, &other].map(|output| String::from_utf8_lossy(&output.stdout));
    Err(format!("the figures differ:\n{}\n{}", texts[0], texts[1]).into())
}

/// Checks that PROGRAM can be a path that `--file` creates for a program in the guest.
fn other_path() -> Result<(), Failed> {
    let place = "/there/busybox";
    let ending = Guest::new(place, &["readlink", "/proc/self/exe"])
        .file(&prepare::busybox(), place)
        .run()?;
    ending.expect_code(0)?;
    ending.expect_output(format!("{place}\n").as_bytes())
}
