//! The state of a thread, and every change of it.

use core::sync::atomic::{AtomicU8, Ordering};

/// Where a thread is between running and waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum RunState {
    /// It runs on a CPU.
    Running,
    /// It runs, and has announced that it will give the CPU away.
    Waiting,
    /// It gave the CPU away until somebody wakes it.
    Blocked,
    /// It stands in a run queue, or is on its way to one.
    Ready,
    /// It ended.
    Ended,
}

/// What a wake found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Woken {
    /// It had only announced to wait: it goes on where it is.
    Stays,
    /// It was blocked and is ready now: who woke it puts it into a run queue.
    Enqueue,
    /// It runs, on the CPU that it names.
    Runs,
    /// It is ready, or has ended.
    Nothing,
}

/// The state of one thread. The module documentation of the scheduler says who may change what.
///
/// All accesses are sequentially consistent: whoever sets work for the thread and then reads this
/// word, and the thread that changes this word and then reads its work, cannot both miss the other.
#[derive(Debug)]
pub(crate) struct RunWord(AtomicU8);

impl RunWord {
    /// A thread that has not run yet: blocked until it is woken.
    pub(crate) const fn new() -> Self {
        Self(AtomicU8::new(RunState::Blocked as u8))
    }

    pub(crate) fn get(&self) -> RunState {
        match self.0.load(Ordering::SeqCst) {
            0 => RunState::Running,
            1 => RunState::Waiting,
            2 => RunState::Blocked,
            3 => RunState::Ready,
            _ => RunState::Ended,
        }
    }

    fn set(&self, state: RunState) {
        self.0.store(state as u8, Ordering::SeqCst);
    }

    fn change(&self, from: RunState, to: RunState) -> bool {
        self.0
            .compare_exchange(from as u8, to as u8, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// The thread itself: a wake from now on is not lost.
    pub(crate) fn announce(&self) {
        self.set(RunState::Waiting);
    }

    /// The thread itself: it goes on running.
    pub(crate) fn stay(&self) {
        self.set(RunState::Running);
    }

    /// The thread itself: gives the CPU away, unless it was woken since it announced that.
    pub(crate) fn block(&self) -> bool {
        self.change(RunState::Waiting, RunState::Blocked)
    }

    /// The thread itself: gives the CPU away but wants it back.
    pub(crate) fn step_aside(&self) {
        self.set(RunState::Ready);
    }

    /// Who took it out of a run queue.
    pub(crate) fn run(&self) {
        self.set(RunState::Running);
    }

    /// The thread itself.
    pub(crate) fn end(&self) {
        self.set(RunState::Ended);
    }

    /// Anybody.
    pub(crate) fn wake(&self) -> Woken {
        loop {
            match self.get() {
                RunState::Running => return Woken::Runs,
                RunState::Ready | RunState::Ended => return Woken::Nothing,
                RunState::Waiting => {
                    if self.change(RunState::Waiting, RunState::Running) {
                        return Woken::Stays;
                    }
                }
                RunState::Blocked => {
                    if self.change(RunState::Blocked, RunState::Ready) {
                        return Woken::Enqueue;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{RunState, RunWord, Woken};
    use crate::sync::{Lock, Rank};
    use alloc::{sync::Arc, vec::Vec};
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::thread;

    #[test]
    fn a_wake_between_announcement_and_block_keeps_the_cpu() {
        let word = RunWord::new();
        assert_eq!(word.wake(), Woken::Enqueue);
        assert_eq!(word.wake(), Woken::Nothing);
        word.run();
        assert_eq!(word.wake(), Woken::Runs);
        word.announce();
        assert_eq!(word.wake(), Woken::Stays);
        assert!(!word.block());
        assert_eq!(word.get(), RunState::Running);
        word.announce();
        assert!(word.block());
        assert_eq!(word.wake(), Woken::Enqueue);
        assert_eq!(word.get(), RunState::Ready);
        word.end();
        assert_eq!(word.wake(), Woken::Nothing);
    }

    /// One waiter, several wakers, each wake after a change of what is waited for: the waiter must
    /// never block for ever. Its "run queue" is a flag that exactly one waker sets for each block.
    #[test]
    fn no_wake_is_lost() {
        const WAKERS: u32 = 3;
        const ROUNDS: u32 = 20_000;
        let word = Arc::new(RunWord::new());
        let queue = Arc::new(Lock::new(Rank::Wait, Vec::<()>::new()));
        let events = Arc::new(AtomicU32::new(0));
        let enqueued = Arc::new(AtomicBool::new(false));
        word.wake();
        word.run();
        let wakers: Vec<_> = (0..WAKERS)
            .map(|_| {
                let (word, queue) = (word.clone(), queue.clone());
                let (events, enqueued) = (events.clone(), enqueued.clone());
                thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        events.fetch_add(1, Ordering::Relaxed);
                        let waiter = queue.lock().pop();
                        if waiter.is_some() && word.wake() == Woken::Enqueue {
                            let before = enqueued.swap(true, Ordering::SeqCst);
                            assert!(!before, "in two run queues");
                        }
                    }
                })
            })
            .collect();
        let mut seen = 0;
        while seen < WAKERS * ROUNDS {
            // As Kernel::wait: announce, enter the queue, look, block.
            word.announce();
            queue.lock().push(());
            let now = events.load(Ordering::Relaxed);
            if now == seen && word.block() {
                while !enqueued.swap(false, Ordering::SeqCst) {
                    thread::yield_now();
                }
                word.run();
            }
            word.stay();
            queue.lock().clear();
            seen = now.max(seen);
        }
        for waker in wakers {
            waker.join().expect("a waker");
        }
    }

    /// A flag set without any lock, as signals set work: the thread sees it, or is woken.
    #[test]
    fn work_set_without_a_lock_is_seen() {
        const ROUNDS: u32 = 20_000;
        let word = Arc::new(RunWord::new());
        let work = Arc::new(AtomicBool::new(false));
        let enqueued = Arc::new(AtomicBool::new(false));
        word.wake();
        word.run();
        let sender = {
            let (word, work, enqueued) = (word.clone(), work.clone(), enqueued.clone());
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    while work.load(Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    work.store(true, Ordering::SeqCst);
                    if word.wake() == Woken::Enqueue {
                        enqueued.store(true, Ordering::SeqCst);
                    }
                }
            })
        };
        for _ in 0..ROUNDS {
            loop {
                word.announce();
                if work.load(Ordering::SeqCst) {
                    break;
                }
                if word.block() {
                    while !enqueued.swap(false, Ordering::SeqCst) {
                        thread::yield_now();
                    }
                    word.run();
                }
            }
            word.stay();
            work.store(false, Ordering::SeqCst);
        }
        sender.join().expect("the sender");
    }
}
