//! The state of a thread and its transitions.

use core::sync::atomic::{AtomicU8, Ordering};

/// The scheduling state of a thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum RunState {
    /// The thread runs on a CPU.
    Running,
    /// The thread runs, and has announced that it will block.
    Waiting,
    /// The thread has left its CPU and does not run until it is woken.
    Blocked,
    /// The thread is in a run queue or about to enter one.
    Ready,
    /// The thread has exited.
    Ended,
}

/// The result of a wakeup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Woken {
    /// The thread had only announced a wait, which is now cancelled: it keeps running.
    Stays,
    /// The thread was blocked and is now runnable: the caller puts it into a run queue.
    Enqueue,
    /// The thread runs and has announced no wait.
    Runs,
    /// The thread is runnable already, or has exited.
    Nothing,
}

/// The state of one thread. The module documentation of the scheduler defines the changes that are permitted.
///
/// All accesses are sequentially consistent. A waker sets a work flag of the thread and then reads this word. The
/// thread changes this word and then reads its work flags. So the waker sees the change, or the thread sees the flag.
#[derive(Debug)]
pub struct RunWord(AtomicU8);

impl Default for RunWord {
    /// Creates the state of a new thread: blocked until it is woken.
    fn default() -> Self {
        Self(AtomicU8::new(RunState::Blocked as u8))
    }
}

impl RunWord {
    /// Returns the state.
    pub fn get(&self) -> RunState {
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

    /// Announces a wait. Called by the thread itself. A wakeup after this is not lost.
    pub fn announce(&self) {
        self.set(RunState::Waiting);
    }

    /// Cancels the announcement. Called by the thread itself, which keeps running.
    pub fn stay(&self) {
        self.set(RunState::Running);
    }

    /// Changes `Waiting` to `Blocked`, unless a wakeup has cancelled the announced wait. Called by the thread itself.
    /// Returns whether the thread is now blocked.
    pub fn block(&self) -> bool {
        self.change(RunState::Waiting, RunState::Blocked)
    }

    /// Makes the thread runnable instead of running. Called by the thread itself when it yields or moves to another
    /// CPU.
    pub fn step_aside(&self) {
        self.set(RunState::Ready);
    }

    /// Marks the thread as running. Called by the CPU that took the thread out of a run queue.
    pub fn run(&self) {
        self.set(RunState::Running);
    }

    /// Marks the thread as exited. Called by the thread itself.
    pub fn end(&self) {
        self.set(RunState::Ended);
    }

    /// Changes the state as a wakeup requires. The result tells the caller what to do. Any thread may call this.
    pub fn wake(&self) -> Woken {
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
    use alloc::{sync::Arc, vec::Vec};
    use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use memwright_linux_base::sync::{Lock, Rank};
    use std::thread;

    #[test]
    fn a_wake_between_announcement_and_block_keeps_the_cpu() {
        let word = RunWord::default();
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

    /// Tests one waiter and several wakers, each of which wakes after it changed the condition: the waiter must never
    /// block forever. A flag stands for the run queue: each time the waiter blocks, exactly one waker sets it.
    #[test]
    fn no_wake_is_lost() {
        const WAKERS: u32 = 3;
        const ROUNDS: u32 = 20_000;
        let word = Arc::new(RunWord::default());
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
            // Like `Scheduler::wait_in`: announce, enter the queue, check, block.
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

    /// Tests a flag that is set without a lock, as a signal sets a work flag: the thread sees the flag or is woken.
    #[test]
    fn work_set_without_a_lock_is_seen() {
        const ROUNDS: u32 = 20_000;
        let word = Arc::new(RunWord::default());
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
