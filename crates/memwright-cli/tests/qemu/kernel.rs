//! Runs the kernel's self-tests, and tests the reports of its failures.

use crate::guest::{Ending, Guest};
use crate::prepare::{self, later_qemu};
use libtest_mimic::{Completion, Failed, Trial};
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("kernel::tests_itself", || tests_itself(false, &[])),
        Trial::test("kernel::tests_itself_as_embedded", || {
            tests_itself(true, &[])
        }),
        in_turns("kernel::tests_itself_on_2", || {
            tests_itself(false, &[("--cpus", "2")])
        }),
        in_turns("kernel::tests_itself_on_4_by_xapic", || {
            tests_itself(false, &[("--cpus", "4"), ("--policy", "apic=xapic")])
        }),
        in_turns("kernel::tests_itself_on_8_as_embedded", || {
            tests_itself(true, &[("--cpus", "8")])
        }),
        in_turns("kernel::tests_itself_on_64", || {
            tests_itself(false, &[("--cpus", "64")])
        }),
        Trial::test("kernel::tests_itself_in_parallel_on_2", || in_parallel(2)),
        Trial::test("kernel::tests_itself_in_parallel_on_4", || in_parallel(4)),
        Trial::test("kernel::tests_itself_in_parallel_on_8", || in_parallel(8)),
        Trial::test("kernel::panic_is_reported", || {
            report(
                "panic",
                "Memwright's kernel panicked: asked for by an option",
            )
        }),
        Trial::test("kernel::fault_is_reported", || {
            report("fault", "its protection forbids it")
        }),
        Trial::test("kernel::stack_overflow_is_reported", || {
            report("overflow", "Memwright's kernel overflowed its stack")
        }),
        Trial::test("kernel::timeout_shows_where_it_stands", timeout),
        in_turns("kernel::panic_stops_every_cpu", || {
            panic_on_several(&["--cpus", "4"])
        }),
        Trial::test("kernel::panic_stops_parallel_cpus", || {
            panic_on_several(&["--cpus", "4", "--parallel"])
        }),
        in_turns("kernel::timeout_shows_every_cpu", || {
            timeout_on_several(&["--cpus", "8"])
        }),
        Trial::test("kernel::timeout_shows_parallel_cpus", || {
            timeout_on_several(&["--cpus", "4", "--parallel"])
        }),
    ]
}

/// Returns a test with several CPUs that take turns.
fn in_turns(name: &str, test: impl FnOnce() -> Result<(), Failed> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, || {
        if !later_qemu() {
            return Ok(Completion::ignored_with("no later QEMU"));
        }
        test().map(|()| Completion::Completed)
    })
}

/// Makes a run in which the kernel executes the self-test `what` in place of a program.
fn run(what: &str, embedded: bool, words: &[&str]) -> Result<Ending, Failed> {
    let mut guest = Guest::new(prepare::busybox(), &["true"]).option("--selftest", what);
    for word in words {
        guest = guest.word(word);
    }
    if embedded {
        guest = guest.embedded_kernel();
    }
    guest
        .verbose()
        .run_once(Path::new(env!("CARGO_BIN_EXE_memwright")))
}

fn tests_itself(embedded: bool, options: &[(&str, &str)]) -> Result<(), Failed> {
    let words: Vec<&str> = options
        .iter()
        .flat_map(|&(name, value)| [name, value])
        .collect();
    all_passed(&run("1", embedded, &words)?)
}

/// Runs the self-tests on parallel CPUs, which interleave differently in every run.
fn in_parallel(cpus: u8) -> Result<(), Failed> {
    all_passed(&run(
        "1",
        false,
        &["--parallel", "--cpus", &cpus.to_string()],
    )?)
}

fn all_passed(ending: &Ending) -> Result<(), Failed> {
    ending.expect_code(0)?;
    ending.expect_line(&["selftest:", "passed, 0 failed"])
}

/// Checks that the report of the failure `what` contains the reason `why`, the registers, and the name of the function
/// that failed.
fn report(what: &str, why: &str) -> Result<(), Failed> {
    let ending = run(what, false, &[])?;
    ending.expect_code(125)?;
    ending.expect_line(&[why])?;
    ending
        .expect_line(&["rsp ", "rbp "])
        .or_else(|_| ending.expect_line(&["rip ", "rsp "]))?;
    ending.expect_line(&["locks held"])?;
    ending.expect_line(&["at 0x", "selftest"])?;
    ending.expect_line(&["last events of CPU 0"])
}

fn timeout() -> Result<(), Failed> {
    let ending = run("spin", false, &["--timeout", "5"])?;
    ending.expect_code(124)?;
    ending.expect_line(&["CPU 0 in user mode"])?;
    ending.expect_line(&["rip 0000000000400005"])
}

/// Makes the first CPU panic. Checks that the report states where each of the other CPUs was: in user mode, in the
/// kernel with a lock held, or idle.
fn panic_on_several(words: &[&str]) -> Result<(), Failed> {
    let ending = run("panic", false, words)?;
    ending.expect_code(125)?;
    ending.expect_line(&["Memwright's kernel panicked: asked for by an option"])?;
    expect_places(&ending)
}

fn timeout_on_several(words: &[&str]) -> Result<(), Failed> {
    let ending = run("spin", false, &[words, &["--timeout", "5"]].concat())?;
    ending.expect_code(124)?;
    // CPUs 0 and 1 loop in user mode, but one of them can be in a timer tick when it is stopped for the report.
    let in_user_mode = |cpu: u8| ending.expect_line(&[&format!("CPU {cpu} in user mode:")]);
    in_user_mode(0).or_else(|_| in_user_mode(1))?;
    expect_places(&ending)
}

/// Returns whether a CPU was in the first two instructions of a function, `push rbp` and `mov rbp, rsp`. At these
/// instructions, the function has no frame yet, so its caller is missing in the backtrace.
fn was_just_called(part: &[&str]) -> bool {
    let innermost = part.iter().find(|line| line.starts_with("  at "));
    innermost.is_some_and(|line| line.ends_with("+0x0") || line.ends_with("+0x1"))
}

/// Checks the places of CPUs 1 to 3 in a report, in which the lines of each CPU are contiguous.
fn expect_places(ending: &Ending) -> Result<(), Failed> {
    let lines: Vec<&str> = ending.stderr.lines().collect();
    let part = |start: &str| -> Result<&[&str], Failed> {
        let first = lines.iter().position(|line| line.starts_with(start));
        let first = first.ok_or_else(|| format!("no {start:?}: {}", ending.report()))?;
        let rest = &lines[first + 1..];
        let end = rest.iter().position(|line| line.starts_with("CPU "));
        Ok(&rest[..end.unwrap_or(rest.len())])
    };
    let holds = |part: &[&str], word: &str| -> Result<(), Failed> {
        if part.iter().any(|line| line.contains(word)) {
            return Ok(());
        }
        Err(format!("{word:?} is not in {part:?}: {}", ending.report()).into())
    };
    part("CPU 1 in ")?;
    let locked = part("CPU 2 in the kernel:")?;
    let nearest = if was_just_called(locked) {
        "secondary"
    } else {
        "keep_busy"
    };
    holds(locked, nearest)?;
    holds(locked, "locks held: Object")?;
    holds(part("CPU 3 in the kernel:")?, "secondary")
}
