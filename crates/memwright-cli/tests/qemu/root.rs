//! Tests `--root`, which makes a tree of the host a read-only layer of the guest's root.

use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

const COMMAND: &str = env!("CARGO_BIN_EXE_memwright");

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("root::changes_stay_in_the_guest", || changes(1)),
        Trial::test("root::changes_stay_in_the_guest_on_4", || changes(4)),
        Trial::test("root::an_archive_is_a_tree", archive),
        Trial::test(
            "root::a_program_of_path_needs_no_option",
            found_through_path,
        ),
        Trial::test("root::files_larger_than_memory_are_refused", too_large),
        Trial::test("root::a_changed_file_ends_the_comparison", changed),
    ]
}

/// A script that reads each kind of node and changes the tree in each way. It gives the same output in the guest as in
/// a copy of the tree on the host.
const CHANGES: &str = r#"cd tree
cat a/b/file; test -e missing || echo absent
ls -A a | sort; stat -c '%a %F' a; stat -c '%a %s %F' a/b/file link large empty
cat link; readlink link; cat through/file
rm a/b/file; test -e a/b/file || echo gone; ls a/b
mv a moved; test -e a || echo gone; mkdir a; ls -A a
rmdir moved/empty && rmdir moved/b 2>/dev/null || echo not empty
echo more >> moved/b/grown; cat moved/b/grown
echo new > moved/new; cat moved/new
echo over > replaced; mv replaced moved/old; cat moved/old
truncate -s 3 cut; cat cut; echo
cksum < large
: > emptied; wc -c < emptied; wc -c < empty
ln linked again; echo x >> again; cat linked
chmod 600 linked; stat -c %a again
cp -r moved copy; rm -r moved; find . | sort
sh ./script
for i in 1 2 3 4 5 6 7 8; do (cat many/*/* | cksum; ls many/$i) & done | sort; wait
find many | wc -l
"#;

/// Creates the tree for [`CHANGES`] in `folder`.
fn plant(folder: &Path) -> Result<(), Failed> {
    let tree = folder.join("tree");
    let write = |name: &str, text: &[u8]| fs::write(tree.join(name), text);
    for name in ["a/b/deep", "a/empty", "through"] {
        fs::create_dir_all(tree.join(name))?;
    }
    for (name, text) in [
        ("a/b/file", "contents\n"),
        ("a/b/grown", "first\n"),
        ("a/b/deep/x", "x\n"),
        ("a/old", "old\n"),
        ("through/file", "through\n"),
        ("cut", "abcdef\n"),
        ("emptied", "not for long\n"),
        ("empty", ""),
        ("linked", "linked\n"),
        ("script", "echo a script of the tree\n"),
    ] {
        write(name, text.as_bytes())?;
    }
    let large: Vec<u8> = (0..300_001_u32).map(|number| (number / 7) as u8).collect();
    write("large", &large)?;
    symlink("a/b/file", tree.join("link"))?;
    for number in 1..=8 {
        let many = tree.join(format!("many/{number}"));
        fs::create_dir_all(&many)?;
        for name in 0..40 {
            fs::write(many.join(format!("f{name}")), vec![number; 5000])?;
        }
    }
    for name in ["tree/a", "tree/a/b"] {
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(0o750))?;
    }
    let bin = folder.join("bin");
    fs::create_dir(&bin)?;
    fs::copy(prepare::busybox(), bin.join("busybox"))?;
    for name in [
        "sh", "cat", "ls", "sort", "stat", "readlink", "rm", "mv", "mkdir", "rmdir", "truncate",
        "cksum", "wc", "ln", "chmod", "cp", "find",
    ] {
        symlink("busybox", bin.join(name))?;
    }
    Ok(())
}

/// Returns the output of [`CHANGES`] in the tree on the host.
fn reference(folder: &Path) -> Result<Vec<u8>, Failed> {
    let output = Command::new(prepare::busybox())
        .args(["sh", "-c", CHANGES])
        .current_dir(folder)
        .env("PATH", folder.join("bin"))
        .output()?;
    if !output.status.success() {
        return Err(format!("the script failed here, on the host: {output:?}").into());
    }
    Ok(output.stdout)
}

/// Checks that the guest can read the tree and its own changes, and that the changes do not reach the host.
fn changes(cpus: u8) -> Result<(), Failed> {
    let (own, shown) = (tempfile::tempdir()?, tempfile::tempdir()?);
    plant(own.path())?;
    plant(shown.path())?;
    let expected = reference(own.path())?;
    let ending = Guest::new("sh", &["-c", CHANGES])
        .option("--root", shown.path())
        .cpus(cpus)
        .untraced()
        .run()?;
    ending.expect_output(&expected)?;
    ending.expect_code(0)?;
    // The tree on the host is unchanged, so the script gives the same output on the host again.
    if reference(shown.path())? != expected {
        return Err("the guest changed the tree of the host".into());
    }
    Ok(())
}

/// Checks that a guest reads the same contents from an archive as from the folder from which the archive was made.
fn archive() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    plant(folder.path())?;
    let archive = folder.path().join("root.tar");
    let made = Command::new("tar")
        .arg("-cf")
        .arg(&archive)
        .arg("-C")
        .arg(folder.path())
        .args(["bin", "tree"])
        .status()?;
    if !made.success() {
        return Err("tar failed".into());
    }
    let expected = reference(folder.path())?;
    let ending = Guest::new("sh", &["-c", CHANGES])
        .option("--root", &archive)
        .untraced()
        .run()?;
    ending.expect_output(&expected)?;
    ending.expect_code(0)
}

/// Checks that a program that is found through PATH can read the files of the host, unless `--root none` is given.
fn found_through_path() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    fs::write(&file, "of this machine\n")?;
    let path = file.to_str().ok_or("the path is no text")?;
    let ending = Guest::new("cat", &[path]).run()?;
    ending.expect_output(b"of this machine\n")?;
    ending.expect_code(0)?;
    let line = format!("root={path} file 644 of 16 bytes sha256 ");
    if !ending.json.as_deref().unwrap_or_default().contains(&line) {
        return Err(format!("the account does not name the file: {:?}", ending.json).into());
    }
    let ending = Guest::new("cat", &[path]).option("--root", "none").run()?;
    ending.expect_code(1)
}

/// Checks that a file that does not fit in memory has attributes but cannot be opened, and that the command prints why.
fn too_large() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("large");
    fs::File::create(&file)?.set_len(200 << 20)?;
    let path = file.to_str().ok_or("the path is no text")?;
    let script = format!("stat -c %s {path}; cat {path} >/dev/null || echo refused");
    let ending = Guest::new("sh", &["-c", &script])
        .option("--memory", "128M")
        .run()?;
    ending.expect_output(b"209715200\nrefused\n")?;
    let said = format!("{path}: does not fit into the guest's memory: use a larger --memory");
    match ending.stderr.contains(&said) {
        true => Ok(()),
        false => Err(format!("the command does not say why: {}", ending.stderr).into()),
    }
}

/// Checks that `check` rejects a baseline if the tree has changed since then, and names the changed file.
fn changed() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    fs::write(&file, "before\n")?;
    let path = file.to_str().ok_or("the path is no text")?;
    let json = folder.path().join("baseline.json");
    let run = |command: &[&str]| {
        Command::new(COMMAND)
            .args(command)
            .args(["cat", path])
            .env("MEMWRIGHT_KERNEL", prepare::kernel())
            .output()
    };
    let json = json.to_str().ok_or("the path is no text")?;
    let made = run(&["run", "--json", json])?;
    let same = run(&["check", "--baseline", json])?;
    fs::write(&file, "after.\n")?;
    let other = run(&["check", "--baseline", json])?;
    let said = String::from_utf8_lossy(&other.stderr);
    let codes = [&made, &same, &other].map(|output| output.status.code());
    if codes[..2] != [Some(0), Some(0)] || codes[2] == Some(0) || !said.contains(path) {
        return Err(format!("{codes:?}: {same:?} {said}").into());
    }
    Ok(())
}
