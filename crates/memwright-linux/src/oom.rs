//! Out of memory: somebody has to go.

use crate::{
    host::Channel,
    kernel::Kernel,
    process::{Life, Process, REAPER, Thread},
    signal::kill_process,
};
use alloc::{format, string::String, sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;

/// Kills the largest process, unless one is being killed already. The caller retries what failed
/// after others have run.
pub(crate) fn relieve(kernel: &Kernel, thread: &Arc<Thread>) {
    let mut candidates: Vec<(Arc<Process>, u64)> = Vec::new();
    for process in living(kernel) {
        let Some(space) = process.space() else {
            continue;
        };
        if process.signals.lock().group_exit.is_some() {
            // Its memory comes back once it has run.
            if process.id != thread.process.id {
                return;
            }
            continue;
        }
        let pages = space.resident_pages() + space.table().table_frames();
        let adjustment = i64::from(process.kill_score.load(Ordering::Relaxed)) - 1000;
        candidates.push((
            process,
            score(pages, adjustment, kernel.memory.frames().total()),
        ));
    }
    let sizes: Vec<u64> = candidates.iter().map(|(_, score)| *score).collect();
    // When nobody may be killed, who asked for the memory goes: waiting would last for ever.
    let victim = largest(&sizes).map_or(&thread.process, |index| &candidates[index].0);
    let kib = victim.space().map_or(0, |space| space.resident_pages() * 4);
    let name = victim.name();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let line = format!(
        "memwright: out of memory: killed process {} ({}), resident {kib} KiB\n",
        victim.id,
        String::from_utf8_lossy(name),
    );
    kernel.host.output(Channel::Log, line.as_bytes());
    kernel.host.output(Channel::Stderr, line.as_bytes());
    kernel.memory_kills.fetch_add(1, Ordering::Relaxed);
    kill_process(kernel, victim);
}

fn living(kernel: &Kernel) -> Vec<Arc<Process>> {
    let tasks = kernel.tasks.lock();
    let living = tasks
        .members
        .values()
        .filter(|member| member.process.id != REAPER && matches!(member.life, Life::Alive(_)));
    living.map(|member| member.process.clone()).collect()
}

/// How good a victim a process is (`oom_badness` of Linux 7.2, `mm/oom_kill.c`): its pages, and a
/// thousandth of memory for each point of its adjustment; 0 for never.
fn score(pages: u64, adjustment: i64, total: u64) -> u64 {
    if adjustment <= -1000 {
        return 0;
    }
    let points = pages as i64 + adjustment * (total / 1000) as i64;
    points.max(1) as u64
}

/// The first of the highest scores; nobody when all are 0.
fn largest(scores: &[u64]) -> Option<usize> {
    let mut best = None;
    for (index, score) in scores.iter().enumerate() {
        if *score > 0 && best.is_none_or(|best: usize| *score > scores[best]) {
            best = Some(index);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::{largest, score};

    #[test]
    fn the_largest_goes_first() {
        assert_eq!(largest(&[3, 9, 9, 1]), Some(1));
        assert_eq!(largest(&[0, 0]), None);
        assert_eq!(largest(&[]), None);
    }

    #[test]
    fn adjustments_count_in_thousandths_of_memory() {
        assert_eq!(score(100, 0, 131_072), 100);
        assert_eq!(score(100, -1000, 131_072), 0);
        assert_eq!(score(100, 10, 131_072), 100 + 1310);
        assert_eq!(score(100, -500, 131_072), 1);
    }
}
