//! Tests which data the command forwards, which requests it answers, and which exit code it returns.

use libtest_mimic::Trial;
use memwright_linux_abi::channel::INPUT_AREA;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{
    described, ends, first_line, has_ended, interruptible, run, run_true, start, with_input,
};
use rustix::process::{Pid, Signal, kill_process};

/// Returns every test of this file.
pub fn trials() -> Vec<Trial> {
    crate::trials![
        output_passes_through_in_order,
        frames_may_come_byte_by_byte,
        every_exit_code_is_the_programs,
        signals_add_128,
        a_program_that_could_not_start,
        a_guest_without_a_result_is_a_failure,
        a_failure_shows_the_end_of_the_log,
        the_log_is_shown_only_when_asked,
        system_calls_go_to_standard_error,
        requests_are_filled_from_a_pipe,
        what_the_program_leaves_is_not_read,
        a_large_input_and_output_pass_whole,
        a_timeout_prints_backtraces_and_exits_124,
        a_guest_that_ends_in_time_knows_no_timeout,
        a_closed_output_ends_the_run_quietly,
        the_first_interrupt_goes_to_the_program,
        the_second_interrupt_ends_the_run,
        termination_ends_the_run,
        qemu_does_not_outlive_the_command,
        an_old_or_missing_qemu_is_one_line,
        nothing_is_left_behind,
        keep_keeps_what_was_run,
        an_interrupt_withdraws_a_waiting_request_and_loses_nothing,
    ]
}

fn output_passes_through_in_order() {
    let (code, stdout, stderr) = ends(&mut run_true(
        "stdout one,\nstderr two\\n\nstdout three\\n\nexited 0",
    ));
    assert_eq!((code, stdout.as_str()), (0, "one,three\n"));
    assert!(stderr.starts_with("two\n"), "{stderr}");
}

fn frames_may_come_byte_by_byte() {
    let (code, stdout, _) = ends(&mut run_true(
        "piecemeal\nstdout hello\\n\naccount forks 1\\n\nexited 3",
    ));
    assert_eq!((code, stdout.as_str()), (3, "hello\n"));
}

fn every_exit_code_is_the_programs() {
    for code in [0, 1, 2, 42, 123, 124, 125, 126, 127, 128, 200, 254, 255] {
        assert_eq!(ends(&mut run_true(&format!("exited {code}"))).0, code);
    }
}

fn signals_add_128() {
    for signal in [1, 6, 9, 11, 15, 31, 64] {
        assert_eq!(
            ends(&mut run_true(&format!("killed {signal}"))).0,
            128 + signal
        );
    }
}

fn a_program_that_could_not_start() {
    let (code, _, stderr) = ends(&mut run_true("not-started 8 exec format error"));
    assert_eq!(code, 126);
    assert!(
        stderr.contains("memwright: /bin/true: exec format error"),
        "{stderr}"
    );
    assert_eq!(ends(&mut run_true("not-started 2 missing")).0, 127);
}

fn a_guest_without_a_result_is_a_failure() {
    for (steps, expected) in [
        (
            "log booting\\n\nstatus 0",
            "the guest ended without a result",
        ),
        ("status 33", "the guest ended without a result"),
        ("panic panicked\\n  at 0x10\\n", "the kernel panicked"),
        ("raw 01ffffff", "ends within a frame"),
        ("raw 080500000068656c", "ends within a frame"),
        ("raw 0100010000", "ends within a frame"),
        ("raw 7700000000", "frame of unknown kind 119"),
        ("raw 01ffffffff", "frame of 4294967295 bytes"),
        ("raw 0902000000ffff", "the guest's result is damaged"),
    ] {
        let (code, stdout, stderr) = ends(&mut run_true(steps));
        assert_eq!((code, stdout.as_str()), (125, ""), "{steps}: {stderr}");
        assert!(stderr.contains(expected), "{steps}: {stderr}");
    }
}

fn a_failure_shows_the_end_of_the_log() {
    let (_, _, stderr) = ends(&mut run_true(
        "log first words\\n\nlog last words\\n\nstatus 0",
    ));
    assert!(stderr.contains("first words\nlast words\n"), "{stderr}");
}

fn the_log_is_shown_only_when_asked() {
    assert!(
        !ends(&mut run_true("log words\\n\nexited 0"))
            .2
            .contains("words")
    );
    let (_, _, stderr) = ends(run("log words\\n\nexited 0").args(["--verbose", "/bin/true"]));
    assert!(
        stderr.contains("words\n") && stderr.contains("-icount shift=0,sleep=off"),
        "{stderr}"
    );
}

fn system_calls_go_to_standard_error() {
    let (_, stdout, stderr) =
        ends(run("strace write(1) = 3\\n\nexited 0").args(["--strace", "/bin/true"]));
    assert!(stdout.is_empty() && stderr.contains("write(1) = 3\n"));
}

fn requests_are_filled_from_a_pipe() {
    let steps = "ask 4\nask 3\nask 100\nask 8\nexited 0";
    let (code, stdout, stderr) = described(with_input(run_true(steps), b"abcdefghij"));
    assert_eq!((code, stdout.as_str()), (0, "[4]abcd[3]efg[3]hij[0]"));
    assert!(!stderr.contains("not repeatable"), "{stderr}");
}

fn what_the_program_leaves_is_not_read() {
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("input");
    std::fs::write(&path, "abcdef").unwrap();
    let mut file = std::fs::File::open(&path).unwrap();
    let (_, stdout, _) =
        ends(run_true("ask 2\nexited 0").stdin(Stdio::from(file.try_clone().unwrap())));
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!((stdout.as_str(), rest.as_str()), ("[2]ab", "cdef"));
}

fn a_large_input_and_output_pass_whole() {
    // The number of answers. Together, the answers are larger than the window, so the space of the window must be
    // reused.
    const ANSWERS: usize = 40;
    let input: Vec<u8> = (0..(ANSWERS * INPUT_AREA) as u32)
        .map(|index| b'a' + (index % 26) as u8)
        .collect();
    let steps = format!("{}ask 8\nexited 0", "ask 1000000\n".repeat(ANSWERS));
    let host = tempfile::tempdir().unwrap();
    let path = host.path().join("input");
    std::fs::write(&path, &input).unwrap();
    let (_, stdout, _) =
        ends(run_true(&steps).stdin(Stdio::from(std::fs::File::open(&path).unwrap())));
    let expected: String = input
        .chunks(INPUT_AREA)
        .map(|answer| format!("[{INPUT_AREA}]{}", String::from_utf8_lossy(answer)))
        .collect();
    assert!(stdout == expected + "[0]", "{} bytes came", stdout.len());
}

fn a_timeout_prints_backtraces_and_exits_124() {
    let (code, _, stderr) =
        ends(run("stdout x\nnmi\nhang").args(["--timeout", "0.2", "/bin/true"]));
    assert_eq!(code, 124);
    assert!(
        stderr.contains("CPU 0\n  at 0x1") && stderr.contains("--timeout expired"),
        "{stderr}"
    );
}

fn a_guest_that_ends_in_time_knows_no_timeout() {
    assert_eq!(
        ends(run("exited 5").args(["--timeout", "100", "/bin/true"])).0,
        5
    );
}

fn a_closed_output_ends_the_run_quietly() {
    let mut child = start(&mut run_true("flood"));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let (code, _, stderr) = described(child.wait_with_output().unwrap());
    assert_eq!((line.as_str(), code, stderr.as_str()), ("flood\n", 141, ""));
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process as i32).unwrap(), signal).unwrap();
}

fn the_first_interrupt_goes_to_the_program() {
    let mut child = start(&mut interruptible(&run_true(
        "stdout ready\\n\ncontrol\nexited 130",
    )));
    let mut output = child.stdout.take().unwrap();
    assert_eq!(first_line(&mut output), "ready");
    signal(child.id(), Signal::INT);
    assert_eq!(first_line(&mut output), "control [3]");
    let (code, _, stderr) = described(child.wait_with_output().unwrap());
    assert_eq!(code, 130);
    assert!(stderr.contains("not repeatable: interrupted"), "{stderr}");
}

fn the_second_interrupt_ends_the_run() {
    let mut child = start(&mut interruptible(&run_true(
        "stdout ready\\n\ncontrol\nhang",
    )));
    let mut output = child.stdout.take().unwrap();
    assert_eq!(first_line(&mut output), "ready");
    signal(child.id(), Signal::INT);
    assert_eq!(first_line(&mut output), "control [3]");
    signal(child.id(), Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

fn termination_ends_the_run() {
    let mut child = start(&mut run_true("stdout ready\\n\nhang"));
    assert_eq!(first_line(&mut child.stdout.take().unwrap()), "ready");
    signal(child.id(), Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

fn qemu_does_not_outlive_the_command() {
    let host = tempfile::tempdir().unwrap();
    let file = host.path().join("pid");
    let mut child = start(&mut run_true(&format!(
        "pid {}\nstdout ready\\n\nhang",
        file.display()
    )));
    assert_eq!(first_line(&mut child.stdout.take().unwrap()), "ready");
    let process = std::fs::read_to_string(&file).unwrap();
    assert!(!has_ended(&process));
    child.kill().unwrap();
    child.wait().unwrap();
    let patience = Instant::now() + Duration::from_secs(20);
    while !has_ended(&process) {
        assert!(Instant::now() < patience, "QEMU still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn an_old_or_missing_qemu_is_one_line() {
    let old = ends(run_true("exited 0").env("STAND_IN_VERSION", "6.2.0"));
    assert_eq!(old.0, 125);
    assert!(
        old.2.contains("QEMU is too old") && old.2.lines().count() == 1,
        "{}",
        old.2
    );
    let missing = ends(run_true("exited 0").env("MEMWRIGHT_QEMU", "/no/such/qemu"));
    assert_eq!(missing.0, 125);
    assert!(
        missing.2.contains("QEMU is missing") && missing.2.lines().count() == 1,
        "{}",
        missing.2
    );
}

fn nothing_is_left_behind() {
    let temporary = tempfile::tempdir_in("/tmp").unwrap();
    for steps in ["exited 0", "status 0", "raw 77"] {
        ends(run_true(steps).env("TMPDIR", temporary.path()));
    }
    assert_eq!(std::fs::read_dir(temporary.path()).unwrap().count(), 0);
}

fn keep_keeps_what_was_run() {
    let host = tempfile::tempdir().unwrap();
    let kept = host.path().join("kept");
    ends(
        run("log words\\n\nexited 0")
            .arg("--keep")
            .arg(&kept)
            .arg("/bin/true"),
    );
    assert_eq!(
        std::fs::read_to_string(kept.join("log")).unwrap(),
        "words\n"
    );
    assert!(
        std::fs::read(kept.join("initrd.cpio"))
            .unwrap()
            .starts_with(b"070701")
    );
    assert!(
        std::fs::read(kept.join("kernel"))
            .unwrap()
            .starts_with(b"\x7fELF")
    );
    assert!(
        std::fs::read_to_string(kept.join("command"))
            .unwrap()
            .contains("-initrd")
    );
}

fn an_interrupt_withdraws_a_waiting_request_and_loses_nothing() {
    let steps = "stdout ready\\n\nask 4\ncontrol\nask 4\nstdout \\n\nexited 130";
    let mut child = start(interruptible(&run_true(steps)).stdin(Stdio::piped()));
    let mut input = child.stdin.take().unwrap();
    let mut output = child.stdout.take().unwrap();
    input.write_all(b"ab").unwrap();
    assert_eq!(first_line(&mut output), "ready");
    signal(child.id(), Signal::INT);
    assert_eq!(first_line(&mut output), "[withdrawn]");
    assert_eq!(first_line(&mut output), "control [3]");
    input.write_all(b"cd").unwrap();
    assert_eq!(first_line(&mut output), "[4]abcd");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}
