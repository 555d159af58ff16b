//! The signals that end the command.

use std::fs;
use std::sync::OnceLock;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Returns the signals among SIGINT, SIGTERM and SIGHUP that were not ignored when the command started. An ignored
/// signal must not end the command: a shell ignores SIGINT for a command that a script starts with `&`, and nohup(1)
/// ignores SIGHUP.
pub fn ending() -> Vec<i32> {
    static ENDING: OnceLock<Vec<i32>> = OnceLock::new();
    // The mask is read only once, before a handler is installed, because a handler replaces the inherited disposition.
    let found = ENDING.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        without_ignored(&[SIGINT, SIGTERM, SIGHUP], ignored(&status))
    });
    found.clone()
}

/// Returns the mask of ignored signals in the text of `/proc/PID/status` (proc_pid_status(5)); bit 0 is signal 1.
fn ignored(status: &str) -> u64 {
    let mut lines = status.lines();
    let mask = lines.find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0)
}

fn without_ignored(signals: &[i32], ignored: u64) -> Vec<i32> {
    let is_ignored = |signal: &i32| ignored >> (signal - 1) & 1 != 0;
    let kept = signals.iter().copied();
    kept.filter(|signal| !is_ignored(signal)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_stay_ignored() {
        let all = [SIGINT, SIGTERM, SIGHUP];
        for (status, expected) in [
            ("Name:\tx\nSigIgn:\t0000000000000000\n", &all[..]),
            (
                "SigBlk:\t0000000000000002\nSigIgn:\t0000000000001000\n",
                &all,
            ),
            ("SigIgn:\t0000000000000002\n", &[SIGTERM, SIGHUP]),
            ("SigIgn:\t0000000000000006\n", &[SIGTERM, SIGHUP]),
            ("SigIgn:\t0000000000000001\n", &[SIGINT, SIGTERM]),
            ("SigIgn:\t0000000000004003\n", &[]),
            ("", &all),
            ("SigIgn:\tnonsense\n", &all),
        ] {
            assert_eq!(without_ignored(&all, ignored(status)), expected, "{status}");
        }
    }
}
