//! A scheduler that controls every choice: it runs a small case in every order that the bound permits.
//!
//! The CPUs of a case are host threads of which one runs at a time. Each thread calls the scheduler before each step of
//! the [sync layer](memwright_table::sync) (a lock, an access to an entry, a wait, an invalidation), and before each
//! step of the machine (an access of a user program, the arrival of an interrupt, the load of a root). The scheduler
//! then chooses which thread runs next. All choices are tried, depth first, each in a separate run.
//!
//! **The bound.** A run *deviates* each time another thread preempts a ready thread, and each time hardware walks the
//! tables before the thread continues. Every run with at most the given number of deviations is made, wherever in the
//! run the deviations are (Musuvathi and Qadeer: Iterative context bounding for systematic testing of multithreaded
//! programs, 2007: most mistakes need one or two). When a thread waits or ends, any other thread can run next without a
//! deviation. A page walk, an access of a user program and an update of a count are one step each, and are not divided.
//!
//! A failure prints its [`Schedule`], a short text, with which [`replay`] repeats the run.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use memwright_table::sync;

use crate::locked::locked;

/// The place from which a thread calls the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A step of the sync layer.
    Sync(sync::Step),
    /// A user program is about to access memory.
    Access,
    /// An interrupt is about to arrive at its target.
    Arrival,
    /// A root is about to be loaded.
    Load,
}

/// A case: its initial state, its threads, and the check at the end.
pub struct Case<'a, S> {
    /// Creates the state of one run. Every call must create the same state.
    pub begin: &'a dyn Fn() -> S,
    /// The threads. Under the same schedule, each thread must take the same steps.
    pub threads: &'a [fn(&S)],
    /// The action that hardware can take at any step.
    pub hardware: fn(&S),
    /// Checks the state at the end of a run. The error describes the inconsistency.
    pub check: fn(S) -> Result<(), String>,
}

/// The size of an exploration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// The number of runs, each in a different order.
    pub schedules: u64,
    /// The number of steps of the longest run.
    pub longest: usize,
}

/// The choices of one run: for each step at which several threads were ready, the number of the thread that ran,
/// counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<u8>);

impl fmt::Display for Schedule {
    /// Prints the choices in order. Equal consecutive choices are printed with a count: `17*0 1 4*0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|one, other| one == other) {
            match run {
                [one] => write!(f, "{separator}{one}")?,
                many => write!(f, "{separator}{}*{}", many.len(), many[0])?,
            }
            separator = " ";
        }
        Ok(())
    }
}

impl std::str::FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut choices = Vec::new();
        for word in text.split_whitespace() {
            let (count, choice) = word.split_once('*').unwrap_or(("1", word));
            let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{word:?}"));
            let choice = u8::try_from(number(choice)?).map_err(|_| format!("{word:?}"))?;
            choices.extend(std::iter::repeat_n(choice, number(count)?));
        }
        Ok(Self(choices))
    }
}

/// A run that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message of the panic, the deadlock or the check.
    pub what: String,
    /// The schedule that reproduces the failure.
    pub schedule: Schedule,
    /// The steps in order, each with the number of the thread that took it.
    pub turns: Vec<(usize, Point)>,
    /// The number of runs up to and including this one.
    pub schedules: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.what)?;
        writeln!(f, "in run {}: schedule {}", self.schedules, self.schedule)?;
        for turns in self.turns.chunk_by(|one, other| one.0 == other.0) {
            write!(f, "  thread {}:", turns[0].0)?;
            for (_, point) in turns {
                match point {
                    Point::Sync(step) => write!(f, " {step:?}")?,
                    other => write!(f, " {other:?}")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Runs the case in every order with up to `bound` deviations, or until a run fails.
///
/// # Errors
/// The first run that failed: a panic, a deadlock, or the error of the check.
///
/// # Panics
/// If the same choices lead to different steps in two runs.
pub fn explore<S: Send + Sync + 'static>(
    case: &Case<'_, S>,
    bound: u32,
) -> Result<Explored, Failure> {
    let mut explored = Explored::default();
    let mut trail: Vec<Choice> = Vec::new();
    loop {
        let (made, outcome) = run(case, bound, std::mem::take(&mut trail));
        explored.schedules += 1;
        explored.longest = explored.longest.max(made.turns.len());
        if let Err(what) = outcome {
            return Err(made.failure(what, explored.schedules));
        }
        trail = made.trail;
        // The last choice that has an untried alternative takes that alternative. All choices after it are made anew.
        loop {
            match trail.last_mut() {
                Some(last) if last.taken + 1 < last.among => {
                    last.taken += 1;
                    break;
                }
                Some(_) => trail.pop(),
                None => return Ok(explored),
            };
        }
    }
}

/// Runs the case once, with a schedule that [`explore`] found under `bound`.
///
/// # Errors
/// The failure of the run, if it fails.
///
/// # Panics
/// If the schedule does not belong to this case under this bound.
pub fn replay<S: Send + Sync + 'static>(
    case: &Case<'_, S>,
    bound: u32,
    schedule: &Schedule,
) -> Result<(), Failure> {
    let choice = |&taken: &u8| Choice { taken, among: 0 };
    let trail = schedule.0.iter().map(choice).collect();
    let (made, outcome) = run(case, bound, trail);
    outcome.map_err(|what| made.failure(what, 1))
}

/// One choice: the option taken, and the number of options. `among` is 0 until the number of options is known.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: u8,
    among: u8,
}

/// The result of one run.
struct Made {
    trail: Vec<Choice>,
    turns: Vec<(usize, Point)>,
}

impl Made {
    fn failure(self, what: String, schedules: u64) -> Failure {
        let mut choices: Vec<u8> = self.trail.iter().map(|choice| choice.taken).collect();
        while choices.last() == Some(&0) {
            choices.pop();
        }
        Failure {
            what,
            schedule: Schedule(choices),
            turns: self.turns,
            schedules,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// The thread can run.
    Ready,
    /// The thread waits for an action of another thread.
    Waiting,
    /// The CPU of the thread is halted until another CPU wakes it. The field is the number of the halted CPU.
    Halted(usize),
    /// The thread has ended.
    Ended,
}

/// The state of one run.
struct State {
    trail: Vec<Choice>,
    /// The number of choices that this run has made so far: the index in the trail of the next choice.
    made: usize,
    status: Vec<Status>,
    /// The thread whose turn it is.
    turn: Option<usize>,
    deviations: u32,
    /// The number of waits since the last step of another kind.
    waits: usize,
    /// A bit mask of the CPUs that were woken while they were not halted. The next halt of such a CPU ends at once.
    woken: u64,
    failure: Option<String>,
    turns: Vec<(usize, Point)>,
}

/// The thread that runs next, or an action of hardware.
enum Next {
    Thread(usize),
    Hardware,
}

impl State {
    fn choose(&mut self, among: usize) -> usize {
        if among < 2 {
            return 0;
        }
        let made = self.made;
        self.made += 1;
        let Some(choice) = self.trail.get_mut(made) else {
            self.trail.push(Choice {
                taken: 0,
                among: among as u8,
            });
            return 0;
        };
        if choice.among == 0 {
            choice.among = among as u8;
        }
        assert!(
            usize::from(choice.among) == among && choice.taken < choice.among,
            "the same turns led to other steps: choice {made} was {choice:?} and is among {among}"
        );
        usize::from(choice.taken)
    }

    /// Halts the CPU of `thread`, unless it was woken before this halt.
    fn halt(&mut self, thread: usize, cpu: usize) {
        let bit = 1 << cpu;
        if self.woken & bit == 0 {
            self.status[thread] = Status::Halted(cpu);
        }
        self.woken &= !bit;
    }

    fn wake(&mut self, cpu: usize) {
        let halted = self
            .status
            .iter_mut()
            .find(|status| **status == Status::Halted(cpu));
        match halted {
            Some(status) => *status = Status::Ready,
            None => self.woken |= 1 << cpu,
        }
    }

    /// Returns a halted CPU if every thread is halted or has ended. No thread can then wake that CPU.
    fn lost(&self) -> Option<usize> {
        let mut lost = None;
        for status in &self.status {
            match *status {
                Status::Ready | Status::Waiting => return None,
                Status::Halted(cpu) => lost = Some(cpu),
                Status::Ended => {}
            }
        }
        lost
    }

    /// Chooses what runs next. `thread` had the turn: it is at a step, waits, is halted, or has ended. Returns `None`
    /// if no thread can run.
    fn next(&mut self, thread: usize, bound: u32) -> Option<Next> {
        let threads = self.status.len();
        let ready = |state: &Self, other: usize| state.status[other] == Status::Ready;
        let goes_on = ready(self, thread);
        let mut options: Vec<usize> = Vec::with_capacity(threads + 1);
        if goes_on {
            options.push(thread);
        }
        if !goes_on || self.deviations < bound {
            options.extend((0..threads).filter(|&other| other != thread && ready(self, other)));
        }
        if options.is_empty() {
            // No thread is ready, so some wait and the others are halted or have ended. The condition of a thread may
            // have become true after the thread checked it, so each thread checks again.
            let waiting: Vec<usize> = (0..threads)
                .filter(|&other| self.status[other] == Status::Waiting)
                .collect();
            for &other in &waiting {
                self.status[other] = Status::Ready;
            }
            let after = waiting.iter().find(|&&other| other > thread);
            return after.or(waiting.first()).copied().map(Next::Thread);
        }
        let hardware = goes_on && self.deviations < bound;
        let taken = self.choose(options.len() + usize::from(hardware));
        let Some(&next) = options.get(taken) else {
            self.deviations += 1;
            return Some(Next::Hardware);
        };
        self.deviations += u32::from(goes_on && next != thread);
        Some(Next::Thread(next))
    }
}

/// A run in progress.
struct Run<S> {
    bound: u32,
    shared: Arc<S>,
    hardware: fn(&S),
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

/// The payload of the unwinding by which a thread ends because another thread failed.
struct Ended;

/// The failure message that is used until a thread that is unwinding has recorded its panic.
const UNWINDING: &str = "a thread panicked";

impl<S> Run<S> {
    /// Gives the turn of `thread` to the next thread. Returns when `thread` has the turn again, or at once if `thread`
    /// has ended.
    fn pass<'a>(&'a self, mut state: MutexGuard<'a, State>, thread: usize) {
        loop {
            match state.next(thread, self.bound) {
                Some(Next::Hardware) => {
                    drop(state);
                    (self.hardware)(&self.shared);
                    state = locked(&self.state);
                }
                Some(Next::Thread(next)) if next == thread => {
                    state.status[thread] = Status::Ready;
                    return;
                }
                Some(Next::Thread(next)) => {
                    state.turn = Some(next);
                    self.turns[next].notify_one();
                    break;
                }
                None => return,
            }
        }
        if state.status[thread] != Status::Ended {
            self.await_turn(state, thread);
        }
    }

    fn await_turn(&self, mut state: MutexGuard<'_, State>, thread: usize) {
        while state.turn != Some(thread) && state.failure.is_none() {
            state = self.turns[thread]
                .wait(state)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        if state.failure.is_some() {
            drop(state);
            resume_unwind(Box::new(Ended));
        }
        state.status[thread] = Status::Ready;
    }

    fn fail(&self, state: &mut State, what: String) {
        if state
            .failure
            .as_deref()
            .is_none_or(|before| before == UNWINDING)
        {
            state.failure = Some(what);
        }
        for turn in &self.turns {
            turn.notify_one();
        }
    }

    /// Runs one thread from its first turn to its end.
    fn play(&self, thread: usize, work: fn(&S)) {
        let played = catch_unwind(AssertUnwindSafe(|| {
            self.await_turn(locked(&self.state), thread);
            work(&self.shared);
        }));
        let mut state = locked(&self.state);
        state.status[thread] = Status::Ended;
        state.waits = 0;
        match played {
            Err(thrown) if !thrown.is::<Ended>() => self.fail(&mut state, words(&*thrown)),
            Ok(()) if state.failure.is_none() => match state.lost() {
                Some(cpu) => self.fail(&mut state, not_woken(cpu)),
                None => self.pass(state, thread),
            },
            Ok(()) | Err(_) => {}
        }
    }
}

impl<S: Send + Sync> Ask for Run<S> {
    fn ask(&self, thread: usize, point: Point) {
        let mut state = locked(&self.state);
        let waits = point == Point::Sync(sync::Step::Wait);
        if std::thread::panicking() {
            // A thread that unwinds releases its locks without calling the scheduler. If such a thread must wait for a
            // lock, the other threads must end too.
            if waits {
                self.fail(&mut state, UNWINDING.to_owned());
            }
            return;
        }
        state.turns.push((thread, point));
        if waits {
            state.waits += 1;
            if state.waits > 4 * state.status.len() {
                self.fail(&mut state, "all threads wait for each other".to_owned());
                drop(state);
                resume_unwind(Box::new(Ended));
            }
            state.status[thread] = Status::Waiting;
        } else {
            state.waits = 0;
        }
        match point {
            Point::Sync(sync::Step::Unlock(_)) => {
                for status in &mut state.status {
                    if *status == Status::Waiting {
                        *status = Status::Ready;
                    }
                }
            }
            Point::Sync(sync::Step::Halt(cpu)) => state.halt(thread, cpu.index()),
            Point::Sync(sync::Step::Wake(cpu)) => state.wake(cpu.index()),
            Point::Sync(
                sync::Step::Lock(_)
                | sync::Step::Entry
                | sync::Step::Wait
                | sync::Step::Invalidate
                | sync::Step::Announce,
            )
            | Point::Access
            | Point::Arrival
            | Point::Load => {}
        }
        if let Some(cpu) = state.lost() {
            self.fail(&mut state, not_woken(cpu));
            drop(state);
            resume_unwind(Box::new(Ended));
        }
        self.pass(state, thread);
    }
}

fn not_woken(cpu: usize) -> String {
    format!("CPU {cpu} halts, and no CPU is left that could wake it")
}

/// Returns the message of a panic.
fn words(thrown: &(dyn std::any::Any + Send)) -> String {
    let text = thrown.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| thrown.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// Performs one run. Makes the choices of `trail`, and after those always takes the first option.
fn run<S: Send + Sync + 'static>(
    case: &Case<'_, S>,
    bound: u32,
    trail: Vec<Choice>,
) -> (Made, Result<(), String>) {
    let threads = case.threads.len();
    let state = State {
        trail,
        made: 0,
        status: vec![Status::Ready; threads],
        turn: None,
        deviations: 0,
        waits: 0,
        woken: 0,
        failure: None,
        turns: Vec::new(),
    };
    let run = Arc::new(Run {
        bound,
        shared: Arc::new((case.begin)()),
        hardware: case.hardware,
        state: Mutex::new(state),
        turns: (0..threads).map(|_| Condvar::new()).collect(),
    });
    {
        let mut state = locked(&run.state);
        let first = state.choose(threads);
        state.turn = Some(first);
    }
    std::thread::scope(|scope| {
        for (thread, work) in case.threads.iter().enumerate() {
            let run = run.clone();
            scope.spawn(move || {
                ASK.set(Some((run.clone(), thread)));
                run.play(thread, *work);
                ASK.set(None);
            });
        }
    });
    let Some(run) = Arc::into_inner(run) else {
        unreachable!("every thread has given its run up");
    };
    let state = run.state.into_inner();
    let state = state.unwrap_or_else(std::sync::PoisonError::into_inner);
    let made = Made {
        trail: state.trail,
        turns: state.turns,
    };
    let outcome = match (state.failure, Arc::into_inner(run.shared)) {
        (Some(what), shared) => {
            // Leak the state: a failure can leave it inconsistent, and dropping it could fail again.
            std::mem::forget(shared);
            Err(what)
        }
        (None, Some(shared)) => catch_unwind(AssertUnwindSafe(|| (case.check)(shared)))
            .unwrap_or_else(|thrown| Err(words(&*thrown))),
        (None, None) => Err("a thread kept the state".to_owned()),
    };
    (made, outcome)
}

/// The interface through which the threads of a case call the scheduler.
trait Ask {
    fn ask(&self, thread: usize, point: Point);
}

thread_local! {
    /// The scheduler of a thread that belongs to a case, and the thread's number.
    static ASK: RefCell<Option<(Arc<dyn Ask>, usize)>> = const { RefCell::new(None) };
}

/// Reports a step of the calling thread to its scheduler, if it belongs to a case.
pub(crate) fn step(point: Point) {
    // The scheduler is unset during the call, so that an action of hardware is not divided into steps.
    let taken = ASK.take();
    if let Some((run, thread)) = taken {
        run.ask(thread, point);
        ASK.set(Some((run, thread)));
    }
}
