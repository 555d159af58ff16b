//! Kernel stacks as host threads, only one of which runs at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;

use memwright_linux_abi::host::ContextId;

use memwright_sim::locked::locked;

/// The size of a kernel stack in bytes. It is larger than on bare metal, because unoptimised code needs more.
const STACK: usize = 1 << 20;

/// The panic payload with which [`leave`] unwinds a stack that will not run again. It is no error.
struct Left;

#[derive(Default)]
struct State {
    turn: u32,
    last: u32,
    threads: BTreeMap<u32, JoinHandle<()>>,
    /// The stacks that must unwind when they are next switched to, because they have ended.
    left: BTreeSet<u32>,
    /// The message of the first panic on any stack.
    panic: Option<String>,
}

/// All stacks of a machine with one CPU. Stack 0, the first one, is that of the thread that created this value.
#[derive(Default)]
pub struct Contexts {
    state: Mutex<State>,
    changed: Condvar,
}

impl Contexts {
    /// Creates a stack, which runs `start` at the first switch to it. Returns `None` if the host cannot create a
    /// thread.
    pub fn create(&'static self, start: impl FnOnce() + Send + 'static) -> Option<ContextId> {
        let mut state = locked(&self.state);
        state.last += 1;
        let id = state.last;
        let work = move || {
            let played = catch_unwind(AssertUnwindSafe(|| {
                self.await_turn(id);
                start();
            }));
            if let Err(thrown) = played {
                self.note_panic(&*thrown);
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
        state.threads.insert(id, thread.ok()?);
        Some(ContextId(id))
    }

    /// Switches from `from` to `to`. Returns when another stack switches back to `from`.
    pub fn switch(&self, from: ContextId, to: ContextId) {
        self.pass(to.0);
        self.await_turn(from.0);
    }

    fn pass(&self, to: u32) {
        locked(&self.state).turn = to;
        self.changed.notify_all();
    }

    fn await_turn(&self, id: u32) {
        let mut state = locked(&self.state);
        while state.turn != id && !state.left.contains(&id) {
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.left.contains(&id) {
            drop(state);
            leave();
        }
    }

    /// Ends a stack that is not running, and waits until every value on it has been dropped.
    pub fn destroy(&self, context: ContextId) {
        let mut state = locked(&self.state);
        state.left.insert(context.0);
        let thread = state.threads.remove(&context.0);
        drop(state);
        self.changed.notify_all();
        if let Some(thread) = thread {
            // The result is not needed: the thread itself has recorded its panic.
            let _ = thread.join();
        }
    }

    /// Ends the machine from any of its stacks: unwinds the calling stack, and makes the first stack unwind as well.
    pub fn end(&self) -> ! {
        locked(&self.state).left.insert(0);
        self.changed.notify_all();
        leave()
    }

    /// Ends every stack except the first, one after another. Returns the message of the first panic, if any stack
    /// panicked.
    pub fn end_all(&self) -> Option<String> {
        loop {
            let next = locked(&self.state).threads.keys().next().copied();
            match next {
                Some(id) => self.destroy(ContextId(id)),
                None => return locked(&self.state).panic.take(),
            }
        }
    }

    /// Runs `work` on the first stack. Returns when the machine ends.
    pub fn run_first(&self, work: impl FnOnce()) {
        if let Err(thrown) = catch_unwind(AssertUnwindSafe(work)) {
            self.note_panic(&*thrown);
        }
    }

    /// Records the panic that unwound a stack, and ends the machine. Does nothing if [`leave`] unwound it.
    fn note_panic(&self, thrown: &(dyn std::any::Any + Send)) {
        if thrown.is::<Left>() {
            return;
        }
        let text = thrown.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| thrown.downcast_ref::<&str>().copied());
        let mut state = locked(&self.state);
        let text = text.unwrap_or("without a message").to_owned();
        state.panic.get_or_insert(text);
        state.left.insert(0);
        drop(state);
        self.changed.notify_all();
    }
}

/// Unwinds the calling stack, which will not run again. The panic hook is not called.
fn leave() -> ! {
    resume_unwind(Box::new(Left))
}
