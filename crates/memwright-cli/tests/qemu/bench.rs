//! `memwright bench`: figures that repeat, of programs that measure themselves; and what cannot be measured.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("bench::repeats", repeats),
        Trial::test("bench::policies_are_columns", policies),
        Trial::test("bench::child_that_is_gone", forks),
        Trial::test("bench::image_that_is_no_kernel", not_a_kernel),
        Trial::test("bench::kernel_that_does_not_boot", does_not_boot),
    ]
}

fn bench(arguments: &[&str]) -> Result<Output, Failed> {
    Ok(Command::new(env!("CARGO_BIN_EXE_memwright"))
        .arg("bench")
        .args(arguments)
        .stdin(Stdio::null())
        .output()?)
}

fn json(arguments: &[&str]) -> Result<String, Failed> {
    let output = bench(&[arguments, &["--json", "-"]].concat())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The average that a column's record has.
fn average(document: &Value, column: &str, case: &str, measure: &str) -> Result<f64, Failed> {
    let runs = document["experiments"][0]["runs"].as_array();
    let records = runs.and_then(|runs| runs[0]["records"][column].as_array());
    records
        .into_iter()
        .flatten()
        .find(|record| record["case"] == case && record["measure"] == measure)
        .and_then(|record| record["average"].as_f64())
        .ok_or_else(|| format!("no {measure:?} of {case:?} in column {column:?}").into())
}

fn repeats() -> Result<(), Failed> {
    let (one, other) = (json(&["many-areas"])?, json(&["many-areas"])?);
    if one != other {
        return Err(format!("two runs differ:\n{one}\n{other}").into());
    }
    let document: Value = serde_json::from_str(&one)?;
    let case = "64 areas become read-only";
    let (calls, faults) = (
        average(&document, "memwright", case, "mprotect")?,
        average(&document, "memwright", case, "faults")?,
    );
    // 64 areas cannot be changed in fewer instructions than there are areas; an mprotect faults nowhere.
    if calls > 64.0 && faults == 0.0 {
        return Ok(());
    }
    Err(format!("{calls} instructions, {faults} faults").into())
}

/// The rule for write permission, and what its absence costs: a fault for each page.
fn policies() -> Result<(), Failed> {
    let policy = ["--policy", "write-upgrade=off"];
    let document: Value =
        serde_json::from_str(&json(&[&["write-after-protect"], &policy[..]].concat())?)?;
    let case = "64 KiB, a byte of each page";
    for (column, second, third) in [
        ("memwright", 0.0, 0.0),
        ("memwright write-upgrade=off", 0.0, 16.0),
    ] {
        for (measure, faults) in [
            ("first write: faults", 16.0),
            ("second write: faults", second),
            ("write after protect: faults", third),
        ] {
            let found = average(&document, column, case, measure)?;
            if found != faults {
                return Err(format!("{column}: {measure}: {found}, not {faults}").into());
            }
        }
    }
    let cost = |measure| average(&document, "memwright", case, measure);
    let (second, third) = (cost("second write")?, cost("write after protect")?);
    if second == third {
        return Ok(());
    }
    Err(format!("the second write costs {second}, the one after mprotect {third}").into())
}

/// The parent's pages are its own again when the child is gone: at once where mprotect may say so, else by
/// a fault each.
fn forks() -> Result<(), Failed> {
    let off = ["--policy", "write-upgrade=off"];
    let dirty = ["--policy", "write-upgrade=dirty"];
    let document: Value =
        serde_json::from_str(&json(&[&["fork-reuse"], &off[..], &dirty[..]].concat())?)?;
    for (column, faults) in [
        ("memwright", 0.0),
        ("memwright write-upgrade=off", 1.0),
        ("memwright write-upgrade=dirty", 1.0),
    ] {
        let case = "idle child, gone; mprotect(R), mprotect(RW)";
        for (measure, wanted) in [
            ("parent's write, per page: faults", faults),
            ("parent's write, per page: copies", 0.0),
        ] {
            let found = average(&document, column, case, measure)?;
            if found != wanted {
                return Err(format!("{column}: {measure}: {found}, not {wanted}").into());
            }
        }
    }
    Ok(())
}

fn refused(output: &Output, words: &[&str]) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let named = words.iter().all(|word| said.contains(word));
    if output.status.code() == Some(125) && named {
        return Ok(());
    }
    Err(format!("{}: {said:?}", output.status).into())
}

fn not_a_kernel() -> Result<(), Failed> {
    let output = bench(&["basics", "--kernel", "old=/etc/passwd"])?;
    refused(&output, &["old=/etc/passwd", "not a Linux kernel image"])
}

fn does_not_boot() -> Result<(), Failed> {
    let image = tempfile::NamedTempFile::new()?;
    let mut bytes = vec![0xf4; 1 << 16];
    // A boot header of protocol 2.0 with one sector of set-up code, and nothing behind it that runs.
    bytes[0x1f1] = 1;
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&[0, 2]);
    std::fs::write(image.path(), bytes)?;
    let column = format!("broken={}", image.path().display());
    let output = bench(&["many-areas", "--timeout", "20", "--kernel", &column])?;
    refused(&output, &["many-areas on broken"])
}
