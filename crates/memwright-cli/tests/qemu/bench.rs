//! Tests `memwright bench`: figures of programs that measure themselves, which must repeat, and programs that give no
//! figures.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("bench::repeats", repeats),
        Trial::test("bench::figures_once_reached_hold", budgets),
        Trial::test("bench::policies_are_columns", policies),
        Trial::test("bench::child_that_is_gone", forks),
        Trial::test("bench::hint_faults_are_the_only_ones", hints),
        Trial::test("bench::memory_follows_its_threads", follows),
        Trial::test("bench::equal_pages_share_frames", merges),
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
    let output = bench(&[arguments, &["--no-verify", "--json", "-"]].concat())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns a figure of the first run in the column `column`: the value of a record, or the mean of a series.
fn average(document: &Value, column: &str, case: &str, measure: &str) -> Result<f64, Failed> {
    average_of(
        &document["experiments"][0]["runs"][0],
        column,
        case,
        measure,
    )
}

fn average_of(run: &Value, column: &str, case: &str, measure: &str) -> Result<f64, Failed> {
    let records = run["records"][column].as_array();
    records
        .into_iter()
        .flatten()
        .find(|record| record["case"] == case && record["measure"] == measure)
        .and_then(figure)
        .ok_or_else(|| format!("no {measure:?} of {case:?} in column {column:?}").into())
}

/// Returns the value of a record, or the mean of a series.
fn figure(record: &Value) -> Option<f64> {
    record.get("value").or_else(|| record.get("mean"))?.as_f64()
}

/// Returns the highest figure of `measure` among all cases.
fn worst_of(run: &Value, column: &str, measure: &str) -> Result<f64, Failed> {
    let records = run["records"][column].as_array().into_iter().flatten();
    records
        .filter(|record| record["measure"] == measure)
        .filter_map(figure)
        .reduce(f64::max)
        .ok_or_else(|| format!("no {measure:?} in column {column:?}").into())
}

/// The budgets: the experiment, the index of the run, the case, the measure, and the maximum of its figure.
#[rustfmt::skip]
const BUDGETS: &[(&str, usize, &str, &str, f64)] = &[
    ("basics", 0, "system call", "getppid", 150.0),
    ("basics", 0, "fault", "first write of a page", 1600.0),
    ("basics", 0, "fault", "first read of a page", 600.0),
    ("basics", 0, "munmap", "4 MiB populated, per page", 250.0),
    ("basics", 0, "fork", "64 MiB populated", 600_000.0),
    ("protect-loop", 0, "4 KiB, whole mapping, with the write", "mprotect(R)", 850.0),
    ("protect-loop", 0, "4 KiB, whole mapping, with the write", "mprotect(RW)", 862.0),
    ("protect-loop", 0, "4 KiB, whole mapping, with the write", "faults", 0.0),
    ("protect-loop", 0, "4 KiB, whole mapping, without the write", "mprotect(R)", 850.0),
    ("protect-loop", 0, "4 KiB, whole mapping, without the write", "mprotect(RW)", 862.0),
    ("protect-loop", 0, "4 KiB, inside a mapping, with the write", "mprotect(R)", 1900.0),
    ("protect-loop", 0, "4 KiB, inside a mapping, with the write", "mprotect(RW)", 1900.0),
    // While the other CPU is busy, a call takes 400 more instructions. Only the first of the two calls interrupts that
    // CPU.
    ("protect-loop", 1, "4 KiB, whole mapping, with the write", "mprotect(R)", 1256.0),
    ("protect-loop", 1, "4 KiB, whole mapping, with the write", "mprotect(RW)", 1250.0),
    ("protect-loop", 1, "4 KiB, whole mapping, with the write", "CPUs interrupted", 1.0),
    ("protect-loop", 1, "4 KiB, whole mapping, without the write", "CPUs interrupted", 0.0),
    ("protect-bulk", 0, "512 KiB", "mprotect(R), per page", 25.0),
    ("protect-bulk", 0, "512 KiB", "mprotect(RW), per page", 25.0),
    ("protect-bulk", 0, "1048576 KiB", "mprotect(R), per page", 25.0),
    ("protect-bulk", 0, "1048576 KiB", "mprotect(RW), per page", 25.0),
    ("protect-bulk", 0, "1048576 KiB", "faults", 0.0),
    ("huge-protect", 0, "1024 MiB, first write", "of a 2 MiB page, beyond zeroing it", 3000.0),
    ("huge-protect", 0, "1024 MiB, first write", "faults", 1.0),
    ("huge-protect", 0, "split of a 2 MiB page", "per 4 KiB entry made", 40.0),
    ("huge-protect", 0, "1024 MiB", "write after it / second write", 1.0),
    ("huge-protect", 0, "1024 MiB", "mprotect(R), per 2 MiB page", 25.0),
    ("huge-protect", 0, "1024 MiB", "mprotect(RW), per 2 MiB page", 25.0),
    ("huge-protect", 0, "1024 MiB", "faults", 0.0),
    ("many-areas", 0, "64 areas become read-only", "flushes, local", 1.0),
    ("many-areas", 0, "64 areas become writable", "flushes, local", 1.0),
    ("growth", 0, "mmap and munmap of a page", "10 areas", 6000.0),
    ("growth", 0, "mmap and munmap of a page", "60000 areas", 6000.0),
    ("growth", 0, "mmap into any hole", "60000 areas", 6000.0),
    ("growth", 0, "mprotect of any area", "60000 areas", 1500.0),
    ("growth", 0, "fault in any area", "60000 areas", 1200.0),
    // These budgets are the figures of the newest kernel in docs/experiments/growth.md.
    ("growth", 1, "read of /proc/self/stat", "1024 MiB resident", 20_085.0),
    ("growth", 1, "read of /proc/self/statm", "1024 MiB resident", 11_716.0),
    // The budgets of /proc are the values of Linux 7.3.4.
    ("growth", 1, "read of /proc/self/status", "1024 MiB resident", 40_794.0),
    ("growth", 1, "read of /proc/meminfo", "1024 MiB resident", 33_448.0),
    ("growth", 1, "read of /proc/vmstat", "1024 MiB resident", 72_388.0),
    ("growth", 1, "mremap of all of it", "16 MiB resident", 8_000.0),
    // These budgets are figures of the newest kernel in docs/experiments/growth.md. Some of the figures come from an
    // earlier measurement.
    ("growth", 2, "epoll_wait, one ready", "30000 descriptors", 841.0),
    ("growth", 2, "epoll_ctl, add and remove", "30000 descriptors", 2891.0),
    ("growth", 6, "ftruncate by a page", "1 mappers", 9155.0),
    ("growth", 6, "reclaim of a page by a lower limit", "20 mappers", 37_280.0),
    ("growth", 1, "read of /proc/self/smaps_rollup", "1024 MiB resident", 39_514_024.0),
    ("growth", 3, "create", "20000 entries", 8642.0),
    ("growth", 3, "unlink", "20000 entries", 7197.0),
    ("growth", 3, "stat of any entry", "20000 entries", 2619.0),
    // This budget is the value of Linux 7.2.
    ("growth", 1, "mremap of all of it", "1 MiB resident", 22_073.0),
    // With one idle process, the value is 77,185. The budget was 82,000 before the program that forks became larger.
    ("growth", 4, "fork, exit and wait", "400 idle processes", 86_000.0),
    // These budgets are figures of the newest kernel in docs/experiments/growth.md. Some of the figures come from an
    // earlier measurement.
    ("growth", 5, "fork, exit and wait", "100 forks deep", 433_391.0),
    ("growth", 5, "first write of an inherited page", "100 forks deep", 5206.0),
    ("growth", 5, "MADV_DONTNEED of an inherited page", "100 forks deep", 2363.0),
    ("growth", 5, "read fault in a shared page", "100 forks deep", 1951.0),
    ("growth", 6, "ftruncate by a page", "400 mappers", 930_056.0),
    ("growth", 6, "mprotect of a page", "400 mappers", 8325.0),
    ("growth", 7, "FUTEX_WAKE without a waiter", "8000 futex waiters", 3669.0),
    ("growth", 7, "FUTEX_WAKE of the only waiter", "8000 futex waiters", 9713.0),
    ("growth", 7, "FUTEX_WAKE of one of half of the waiters", "8000 futex waiters", 8920.0),
    ("growth", 7, "create and join of a thread", "8000 futex waiters", 47_592.0),
    ("growth", 8, "swap-in of a page", "64 MiB swapped", 11_270.0),
    ("growth", 8, "munmap and mmap of a page", "64 MiB swapped", 24_302.0),
    ("growth", 8, "read of /proc/self/status", "64 MiB swapped", 40_861.0),
    ("growth", 9, "first write of a page", "16384 merged pages", 5203.0),
    ("growth", 9, "fork, exit and wait", "16384 merged pages", 6_838_022.0),
    ("growth", 9, "move_pages of a page", "16384 merged pages", 559_636.0),
    ("growth", 8, "fork, exit and wait", "64 MiB swapped", 5_470_120.0),
    ("growth", 1, "mremap of all of it", "4096 MiB resident", 390_754.0),
    ("growth", 10, "fork, exit and wait", "1000 cgroups", 150_877.0),
    ("growth", 10, "mmap, write and munmap of a page", "1000 cgroups", 15_289.0),
    ("growth", 10, "create and remove of a cgroup", "1000 cgroups", 275_843.0),
    ("growth", 14, "fork, exit and wait", "100 levels of cgroups", 225_541.0),
    ("growth", 14, "mmap, write and munmap of a page", "100 levels of cgroups", 15_394.0),
    ("growth", 14, "create and remove of a cgroup", "100 levels of cgroups", 252_296.0),
    ("growth", 12, "open of a mount", "10000 mounts", 3948.0),
    ("growth", 12, "mount and umount", "10000 mounts", 63_065.0),
    ("growth", 12, "read of /proc/self/mounts", "10000 mounts", 35_188_729.0),
    ("growth", 6, "move_pages of a page of a file", "400 mappers", 719_520.0),
    ("growth", 6, "move_pages of an inherited page", "400 mappers", 720_552.0),
    ("growth", 6, "reclaim of a page by a lower limit", "400 mappers", 403_713.0),
    ("growth", 6, "reclaim of a page by a lower limit", "1 mappers", 18_912.0),
    ("metadata", 0, "area of private memory", "kernel memory", 228.49),
    ("metadata", 3, "page of shared memory, without the page", "kernel memory", 163.84),
    ("fork-reuse", 0, "child that lives", "parent's write, per page", 2500.0),
    ("fork-reuse", 0, "child that wrote all, gone", "child's write, per page", 2500.0),
    ("fork-reuse", 0, "idle child, gone; mprotect(R), mprotect(RW)", "parent's write, per page: faults", 0.0),
    ("swapin-reuse", 0, "pages that repeat a byte", "page out, per page", 4700.0),
    ("swapin-reuse", 0, "pages that repeat a byte", "read pass, per page", 4100.0),
    ("swapin-reuse", 0, "pages that repeat a byte", "read pass: major faults", 64.0),
    ("swapin-reuse", 0, "pages that repeat a byte", "then write pass: minor faults", 0.0),
    ("swapin-reuse", 0, "pages that compress to a half", "page out, per page", 14_000.0),
    ("swapin-reuse", 0, "pages that compress to a half", "read pass, per page", 4100.0),
    ("swapin-reuse", 0, "pages that compress to a half", "read pass: major faults", 64.0),
    ("swapin-reuse", 0, "pages that compress to a half", "then write pass: minor faults", 0.0),
    ("swapin-reuse", 0, "pages that do not compress", "page out, per page", 16_000.0),
    ("swapin-reuse", 0, "pages that do not compress", "read pass, per page", 4100.0),
    ("swapin-reuse", 0, "pages that do not compress", "read pass: major faults", 64.0),
    ("swapin-reuse", 0, "pages that do not compress", "then write pass: minor faults", 0.0),
    // The budgets for sequential accesses are a quarter of the faults and half of the instructions of Linux 6.12.
    // Random accesses may take no more faults than on Linux.
    ("swap", 0, "one end to the other, loads", "per access", 18_658.0),
    ("swap", 0, "one end to the other, loads", "faults, both kinds", 12_288.0),
    ("swap", 0, "one end to the other, stores", "per access", 18_541.0),
    ("swap", 0, "one end to the other, stores", "faults, both kinds", 12_288.0),
    ("swap", 0, "at random, 80/20, half stores", "per access", 14_247.0),
    ("swap", 0, "at random, 80/20, half stores", "faults, both kinds", 37_042.0),
    ("wp-unpopulated", 0, "10240 MiB, WP_UNPOPULATED", "arming", 3000.0),
    ("wp-unpopulated", 0, "10240 MiB, WP_UNPOPULATED", "arming: page-table frames", 1.0),
    ("wp-unpopulated", 0, "10240 MiB, WP_UNPOPULATED, async", "arming", 3000.0),
    ("wp-unpopulated", 0, "10240 MiB, WP_UNPOPULATED, missing pages too", "arming", 3000.0),
    ("wp-unpopulated", 0, "10240 MiB, no alignment, WP_UNPOPULATED", "arming", 12_000.0),
    ("wp-unpopulated", 0, "10240 MiB, no alignment, WP_UNPOPULATED", "arming: page-table frames", 5.0),
    ("wp-unpopulated", 0, "10240 MiB, huge pages, WP_UNPOPULATED", "arming", 3000.0),
    ("wp-unpopulated", 0, "10240 MiB, huge pages, no alignment, WP_UNPOPULATED", "arming", 12_000.0),
    ("wp-unpopulated", 0, "40960 MiB, sparse file, async", "arming", 3000.0),
    // The cost of these calls depends on the number of populated page-table entries, not on the size of the mapping.
    ("wp-unpopulated", 0, "10240 MiB, DEFAULT", "un-protect", 400_000.0),
    ("wp-unpopulated", 0, "10240 MiB, DEFAULT", "munmap", 150_000.0),
    ("write-after-clear", 0, EVERY, "write after clear: faults", 0.0),
    ("write-after-clear", 0, EVERY, "write after clear / second write", 1.0),
    ("async-scan", 0, "1024 MiB", "arming, per page", 25.0),
    ("async-scan", 0, "nothing touched", "scan and re-protect", 12_000.0),
    ("async-scan", 0, "1 %, clustered", "scan and re-protect", 250_000.0),
    ("async-scan", 0, "1 %, random", "scan and re-protect", 1_200_000.0),
    ("async-scan", 0, "1 %, random", "whole round", 1_250_000.0),
    // The value was 25.0 before the kernel counted each elided flush.
    ("async-scan", 0, "pages of 2 MiB", "arming, per page", 25.1),
    ("async-scan", 0, "pages of 2 MiB", "faults per 2 MiB page written", 1.0),
    ("async-scan", 0, "pages of 2 MiB", "written, per 2 MiB page written", 1.0),
    ("unprotect", 0, EVERY, "write after un-protect: faults", 0.0),
    ("unprotect", 0, EVERY, "write after un-protect / second write", 1.0),
    ("snapshot-pause", 0, "64 MiB populated", "pause, per populated page", 25.0),
    ("snapshot-pause", 0, "4096 MiB populated", "pause, per populated page", 25.0),
    // The cost depends on the populated pages, not on the size of the mapping.
    ("snapshot-pause", 0, "1024 MiB mapped, 16 populated", "pause", 300_000.0),
    ("snapshot-pause", 0, "65536 MiB mapped, 16 populated", "pause", 300_000.0),
    // Populated pages and holes alternate. This budget and the following ones are below the values of Linux 6.12.
    ("live-snapshot", 0, "256 MiB, half of it touched", "pause", 6_000_000.0),
    ("incremental-checkpoint", 0, "64 MiB, soft-dirty", "asking what was written", 2_500_000.0),
    ("incremental-checkpoint", 0, "64 MiB, PAGEMAP_SCAN", "asking what was written", 600_000.0),
];

/// As the case of a budget, this name means all cases of a measure. The highest figure among the cases must not exceed
/// the budget.
const EVERY: &str = "every case";

/// Checks that instruction counts do not exceed their budgets. The counts repeat exactly, so a budget detects every
/// instruction that is added to these paths.
fn budgets() -> Result<(), Failed> {
    let mut names: Vec<&str> = BUDGETS.iter().map(|budget| budget.0).collect();
    names.dedup();
    let document: Value = serde_json::from_str(&json(&names)?)?;
    let experiments = document["experiments"].as_array().into_iter().flatten();
    let runs: Vec<(&Value, &Value)> = experiments
        .map(|experiment| (&experiment["experiment"], &experiment["runs"]))
        .collect();
    let mut over = Vec::new();
    for (name, run, case, measure, most) in BUDGETS {
        let Some((_, runs)) = runs.iter().find(|(found, _)| found == name) else {
            return Err(format!("no {name} in {document}").into());
        };
        let figure = if *case == EVERY {
            worst_of(&runs[*run], "memwright", measure)?
        } else {
            average_of(&runs[*run], "memwright", case, measure)?
        };
        if figure > *most {
            over.push(format!(
                "{name}, run {run}, {case}, {measure}: {figure}, not {most}"
            ));
        }
    }
    if over.is_empty() {
        Ok(())
    } else {
        Err(over.join("\n").into())
    }
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
    // Changing the permissions of 64 areas takes more than 64 instructions, and causes no fault.
    if calls > 64.0 && faults == 0.0 {
        return Ok(());
    }
    Err(format!("{calls} instructions, {faults} faults").into())
}

/// Checks that a write after mprotect takes no fault and costs as much as a second write, because mprotect restores
/// write permission. With the rule for this disabled, each page takes a fault.
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

/// Checks that the parent's pages are exclusive again after the child has exited. If the policy permits it, mprotect
/// then restores write permission at once. Otherwise each page takes a fault.
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

/// Compares a value of a run with the expected one.
fn expect(run: &Value, column: &str, case: &str, measure: &str, wanted: f64) -> Result<(), Failed> {
    let found = average_of(run, column, case, measure)?;
    if found == wanted {
        return Ok(());
    }
    Err(format!("{column}, {case}, {measure}: {found}, not {wanted}").into())
}

/// Returns the runs of one experiment.
fn runs_of(document: &Value) -> Result<&[Value], Failed> {
    let runs = document["experiments"][0]["runs"].as_array();
    Ok(runs.ok_or("no runs")?.as_slice())
}

/// Checks that a NUMA hint fault restores write permission, whether or not the page can be migrated, so that no other
/// faults follow. With the rule for this disabled, a store after a load takes another fault.
fn hints() -> Result<(), Failed> {
    let off = "memwright write-upgrade=off";
    let policy = ["numa-hint", "--policy", "write-upgrade=off"];
    let document: Value = serde_json::from_str(&json(&policy)?)?;
    let others = "faults that were no hint faults";
    let pages = 2048.0;
    for (run, case) in runs_of(&document)?.iter().zip(["own", "other", "full"]) {
        expect(run, "memwright", case, others, 0.0)?;
        let wanted = if case == "other" { pages } else { 0.0 };
        for column in ["memwright", off] {
            // A few pages of the program's stack and data can be on the other node too.
            let migrated = average_of(run, column, case, "pages migrated")?;
            if !(wanted..wanted + 4.0).contains(&migrated) {
                return Err(format!("{column}, {case}: {migrated} pages migrated").into());
            }
            let hints = average_of(run, column, case, "hint faults")?;
            let refused = average_of(run, column, case, "migrations refused")?;
            // Pages that are on the node whose CPU accesses them get NUMA hint entries less often.
            let most = if case == "own" { 3.5 } else { 6.0 };
            let enough = (2.0 * pages..most * pages).contains(&hints);
            if !enough || (case == "full") != (refused >= pages) {
                return Err(format!("{column}, {case}: {hints} faults, {refused} refused").into());
            }
            let wanted = if column == off { pages } else { 0.0 };
            if average_of(run, column, case, others)? < wanted {
                return Err(format!("{column}, {case}: too few other faults").into());
            }
        }
    }
    Ok(())
}

/// Checks that NUMA balancing migrates the half of the pages that is on the wrong node at first, and that all pages are
/// on the right node at the end.
fn follows() -> Result<(), Failed> {
    let document: Value = serde_json::from_str(&json(&["autonuma"])?)?;
    for (run, case) in runs_of(&document)?.iter().zip(["numa01", "numa02"]) {
        let home = "pages where they are used in the end, of all";
        expect(run, "memwright", case, home, 100.0)?;
        let migrated = average_of(run, "memwright", case, "pages migrated")?;
        if !(2048.0..2100.0).contains(&migrated) {
            return Err(format!("{case}: {migrated} pages migrated").into());
        }
    }
    Ok(())
}

/// Checks that all equal pages are merged in the second scan, and that a write to a merged page takes a single fault.
fn merges() -> Result<(), Failed> {
    let document: Value = serde_json::from_str(&json(&["merge"])?)?;
    let run = &runs_of(&document)?[0];
    let case = "100 MiB of equal pages";
    expect(run, "memwright", case, "pages merged", 25_600.0)?;
    expect(run, "memwright", case, "frames that they share", 100.0)?;
    expect(run, "memwright", case, "pages scanned, per page", 2.0)?;
    expect(
        run,
        "memwright",
        case,
        "write of a merged page: faults",
        1.0,
    )
}

fn refused(output: &Output, code: i32, words: &[&str]) -> Result<(), Failed> {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let named = words.iter().all(|word| said.contains(word));
    if output.status.code() == Some(code) && named {
        return Ok(());
    }
    Err(format!("{}: {said:?}", output.status).into())
}

fn not_a_kernel() -> Result<(), Failed> {
    let output = bench(&["basics", "--kernel", "old=/etc/passwd"])?;
    refused(&output, 2, &["old=/etc/passwd", "not a Linux kernel image"])
}

fn does_not_boot() -> Result<(), Failed> {
    let image = tempfile::NamedTempFile::new()?;
    let mut bytes = vec![0xf4; 1 << 16];
    // A boot header of protocol 2.0. Its one sector of setup code ends QEMU through the exit port.
    bytes[0x1f1] = 1;
    bytes[0x200..0x202].copy_from_slice(&[0xeb, 0x66]);
    bytes[0x268..0x26c].copy_from_slice(&[0xb0, 0, 0xe6, 0xf4]);
    bytes[0x202..0x206].copy_from_slice(b"HdrS");
    bytes[0x206..0x208].copy_from_slice(&[0, 2]);
    std::fs::write(image.path(), bytes)?;
    let column = format!("broken={}", image.path().display());
    let output = bench(&["many-areas", "--no-verify", "--kernel", &column])?;
    let words = ["many-areas on broken", "ended without a result"];
    refused(&output, 5, &words)
}
