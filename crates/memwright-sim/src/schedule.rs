//! A scheduler that owns every choice: it runs a small case in every order that its bound permits.
//!
//! The CPUs of a case are host threads of which one at a time may go on. Before each step of the
//! [sync layer](memwright_table::sync) (a lock, an access to an entry, a wait, an invalidation) and
//! of the machine (an access of a user program, the arrival of an interrupt, the load of a root) the
//! thread asks who goes on, and all answers are tried, depth first, each in a run of its own.
//!
//! **The bound.** A run *deviates* where a thread that could go on loses its turn to another one, or where
//! hardware walks the tables by itself first. All runs with up to a given number of deviations are made, at
//! any step (Musuvathi and Qadeer: Iterative context bounding for systematic testing of multithreaded
//! programs, 2007: most mistakes need one or two). Where a thread waits or ends, any other may go on, and
//! that is no deviation. What is one step here is not divided: a walk, a user program's access, an
//! update of a count.
//!
//! A failure names its [`Schedule`], a short text, which [`replay`] runs again.

use std::cell::RefCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use memwright_table::sync;

use crate::machine::locked;

/// Where a thread asks who goes on.
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

/// A case: how it begins, what its threads do, and what must be so afterwards.
pub struct Case<'a, S> {
    /// Makes the state of one run. It must be the same each time.
    pub begin: &'a dyn Fn() -> S,
    /// What the threads do with it; each must take the same steps whenever it is given the same turns.
    pub threads: &'a [fn(&S)],
    /// What hardware may do by itself at any step.
    pub hardware: fn(&S),
    /// What was wrong at the end of a run, in words.
    pub check: fn(S) -> Result<(), String>,
}

/// What was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Explored {
    /// Runs, each in another order.
    pub schedules: u64,
    /// The most steps of a run.
    pub longest: usize,
}

/// The choices of one run: at each step where several threads could go on, which did, counted from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule(Vec<u8>);

impl fmt::Display for Schedule {
    /// `17*0 1 4*0`: choices in order, runs of one choice with a count.
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

/// A run that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was wrong.
    pub what: String,
    /// How to come to it again.
    pub schedule: Schedule,
    /// Who had which turn, in order.
    pub turns: Vec<(usize, Point)>,
    /// Runs up to this one.
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

/// Runs the case in every order with up to `bound` deviations, until one goes wrong.
///
/// # Errors
/// The first run that went wrong: a panic, threads that wait for each other, or what the check says.
///
/// # Panics
/// If the same turns do not lead to the same steps.
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
        // The last choice that has an alternative left takes it, and all after it begin anew.
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

/// Runs the case once, as the schedule says, which was found under `bound`.
///
/// # Errors
/// What went wrong.
///
/// # Panics
/// If the schedule is not one of this case under this bound.
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

/// One choice: which of how many. `among` is 0 where it is not known yet.
#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: u8,
    among: u8,
}

/// What one run came to.
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
    /// It could go on.
    Ready,
    /// It found what it waits for not yet there.
    Waiting,
    /// Its CPU, this one, halts until another one wakes it.
    Halted(usize),
    /// It has ended.
    Ended,
}

/// What one run knows.
struct State {
    trail: Vec<Choice>,
    /// How many choices of the trail are made.
    made: usize,
    status: Vec<Status>,
    /// Whose turn it is.
    turn: Option<usize>,
    deviations: u32,
    /// Waits since anybody did anything else.
    waits: usize,
    /// CPUs that were woken when they did not halt: a bit for each. Their next halts end at once.
    woken: u64,
    failure: Option<String>,
    turns: Vec<(usize, Point)>,
}

/// Who goes on.
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

    /// The CPU of `thread` halts, unless it was woken before.
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

    /// A CPU that halts, if no other can wake it.
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

    /// Decides who goes on after `thread`, which is at a step or waits or has ended.
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
            // All that have not ended wait: perhaps for what came after they looked.
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

/// One run under way.
struct Run<S> {
    bound: u32,
    shared: Arc<S>,
    hardware: fn(&S),
    state: Mutex<State>,
    turns: Vec<Condvar>,
}

/// Thrown in a thread to end it because another one failed.
struct Ended;

/// The message until a thread that is unwinding has told its own.
const UNWINDING: &str = "a thread panicked";

impl<S> Run<S> {
    /// Passes the turn on, and waits until it comes back unless the thread has ended.
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

    /// The whole of one thread.
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
            // It gives up what it has without asking. If it waits for that, the others must end too.
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
            Point::Sync(sync::Step::Halt(cpu)) => state.halt(thread, cpu),
            Point::Sync(sync::Step::Wake(cpu)) => state.wake(cpu),
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

/// What was thrown.
fn words(thrown: &(dyn std::any::Any + Send)) -> String {
    let text = thrown.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| thrown.downcast_ref::<&str>().copied());
    format!("panic: {}", text.unwrap_or("without a message"))
}

/// One run: the choices of `trail` first, then each time the first.
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
            // What a failure left half done may fail again where it is dropped.
            std::mem::forget(shared);
            Err(what)
        }
        (None, Some(shared)) => catch_unwind(AssertUnwindSafe(|| (case.check)(shared)))
            .unwrap_or_else(|thrown| Err(words(&*thrown))),
        (None, None) => Err("a thread kept the state".to_owned()),
    };
    (made, outcome)
}

/// Whom a thread asks.
trait Ask {
    fn ask(&self, thread: usize, point: Point);
}

thread_local! {
    /// What a thread of a case asks at each step, and its number.
    static ASK: RefCell<Option<(Arc<dyn Ask>, usize)>> = const { RefCell::new(None) };
}

/// A step of the calling thread, if it belongs to a case.
pub(crate) fn step(point: Point) {
    // Taken out meanwhile: what hardware does has no steps.
    let taken = ASK.take();
    if let Some((run, thread)) = taken {
        run.ask(thread, point);
        ASK.set(Some((run, thread)));
    }
}
