//! Runs dynamically linked programs of Debian. The output on the host is the reference.

use crate::guest::Guest;
use libtest_mimic::{Failed, Trial};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("debian::sort_of_100_000_lines", sort),
        Trial::test("debian::sha256sum_of_16_mib", sha256sum),
    ]
}

fn host(program: &str, arguments: &[&str], input: &Path) -> Result<Vec<u8>, Failed> {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .stdin(Stdio::from(fs::File::open(input)?))
        .output()?;
    Ok(output.stdout)
}

fn sort() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let lines = folder.path().join("lines");
    let text: String = (0..100_000u32)
        .map(|i| format!("{:08x} line {i}\n", i.wrapping_mul(2_654_435_761)))
        .collect();
    fs::write(&lines, text)?;
    let expected = host("/usr/bin/sort", &[], &lines)?;
    let ending = Guest::new("/usr/bin/sort", &["/lines"])
        .file(&lines, "/lines")
        .untraced()
        .run()?;
    ending.expect_output(&expected)?;
    ending.expect_code(0)
}

fn sha256sum() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let bytes = folder.path().join("bytes");
    let mut state = 1u32;
    let content: Vec<u8> = (0..16 << 20)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_le_bytes()[3]
        })
        .collect();
    fs::write(&bytes, content)?;
    let name = bytes.to_str().ok_or("the folder's name is no text")?;
    let expected = host("/usr/bin/sha256sum", &[name], &bytes)?;
    let ending = Guest::new("/usr/bin/sha256sum", &[name])
        .file(&bytes, name)
        .untraced()
        .run()?;
    ending.expect_output(&expected)?;
    ending.expect_code(0)
}
