//! TLB shootdown: a CPU makes other CPUs invalidate translations, and waits until they have done so.
//!
//! Every CPU has one request, which is in use while that CPU waits, and one word with a bit for each CPU whose request
//! it must serve. A requesting CPU writes its request and sets its bit in the word of every target. It interrupts only
//! the targets whose word was empty, because the other targets have been interrupted already. It then waits until each
//! target has cleared the target's bit in the request. After a number of steps the requesting CPU halts. It announces
//! the halt by setting its own bit in the request: the last target to clear its bit finds only that bit left, and wakes
//! the requesting CPU. A target clears its bit and reads the rest in a single atomic operation, so no wakeup is lost:
//! either the requesting CPU finds the request empty when it sets its own bit, or the last target finds that bit. A
//! waiting CPU serves requests of other CPUs, so CPUs that wait for each other all make progress. A waiting CPU makes
//! no other request, so one request per CPU suffices. No memory is allocated: the request points to the list of
//! translations, which belongs to the requesting CPU.
//!
//! # Ordering
//! A target takes the requesting CPU's bit in its word (acquire: the target reads the complete request), invalidates,
//! and clears its own bit in the request (release). The requesting CPU reads the cleared bit (acquire), so all its
//! later operations, such as reusing a frame, come after the target's last use of an invalidated translation. The
//! requesting CPU writes the request again only after all bits are cleared, so no target reads a mixture of two
//! requests.

use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memwright_table::addr::MAX_CPUS;
use memwright_table::machine::Invalidation;

/// The translations that a CPU must invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// The physical address of the root whose translations are invalidated; 0 for the kernel's translations, which all
    /// roots share.
    pub root: u64,
    /// The ranges of translations to invalidate.
    pub what: &'a [Invalidation],
}

/// The way in which a CPU waits for its targets. Each step must serve requests of other CPUs.
pub trait Wait {
    /// Executes one step of spinning.
    fn spin(&mut self);

    /// Halts until the CPU is [woken](Shootdown::serve) or takes any interrupt.
    fn halt(&mut self);
}

/// The request of one CPU.
#[repr(align(64))]
struct Request {
    /// The targets that have not served the request yet, and the bit of the requesting CPU while that CPU halts.
    left: AtomicU64,
    root: AtomicU64,
    /// The address of the list of translations, which is valid until no target is left.
    first: AtomicPtr<Invalidation>,
    count: AtomicUsize,
}

/// The word of one CPU, with a bit for each CPU whose request this CPU must serve.
#[repr(align(64))]
struct Asked(AtomicU64);

/// The requests and words of all CPUs.
pub struct Shootdown {
    requests: [Request; MAX_CPUS],
    asked: [Asked; MAX_CPUS],
}

impl Default for Shootdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Shootdown {
    /// Creates the state without requests.
    pub const fn new() -> Self {
        Self {
            requests: [const {
                Request {
                    left: AtomicU64::new(0),
                    root: AtomicU64::new(0),
                    first: AtomicPtr::new(ptr::null_mut()),
                    count: AtomicUsize::new(0),
                }
            }; MAX_CPUS],
            asked: [const { Asked(AtomicU64::new(0)) }; MAX_CPUS],
        }
    }

    /// Sends the request `order` to `targets` (one bit per CPU). Returns when all targets have served it. `cpu` is the
    /// calling CPU, which must not be a target. `interrupt` interrupts a target, so that the target checks its word
    /// soon. The calling CPU spins for at most `spins` steps, and then halts. Returns whether it halted.
    pub fn ask(
        &self,
        cpu: usize,
        targets: u64,
        order: &Order<'_>,
        mut interrupt: impl FnMut(usize),
        spins: u32,
        wait: &mut impl Wait,
    ) -> bool {
        let request = &self.requests[cpu];
        request.root.store(order.root, Ordering::Relaxed);
        request.count.store(order.what.len(), Ordering::Relaxed);
        let first = order.what.as_ptr().cast_mut();
        request.first.store(first, Ordering::Relaxed);
        // Relaxed suffices: a target accesses `left` only after it has read the bit of `cpu` in its own word, which is
        // set below.
        request.left.store(targets, Ordering::Relaxed);
        let mut rest = targets;
        while rest != 0 {
            let target = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            // The release part publishes the request above. The full barrier also orders the caller's changes of the
            // table before the interrupt.
            if self.asked[target].0.fetch_or(1 << cpu, Ordering::SeqCst) == 0 {
                interrupt(target);
            }
        }
        for _ in 0..spins {
            if request.left.load(Ordering::Acquire) == 0 {
                return false;
            }
            wait.spin();
        }
        let own = 1 << cpu;
        let halts = request.left.fetch_or(own, Ordering::AcqRel) != 0;
        while request.left.load(Ordering::Acquire) != own {
            wait.halt();
        }
        request.left.store(0, Ordering::Relaxed);
        halts
    }

    /// Returns whether another CPU has a request to `cpu`.
    #[inline(always)]
    pub fn is_asked(&self, cpu: usize) -> bool {
        self.asked[cpu].0.load(Ordering::Relaxed) != 0
    }

    /// Serves all requests to `cpu`. Must be called on that CPU. `forget` invalidates the translations of a request.
    /// `wake` wakes a requesting CPU that has halted, once all its targets have served its request. Because each bit is
    /// taken only once, an interrupt handler may call this function even if it has interrupted this function.
    pub fn serve(
        &self,
        cpu: usize,
        mut forget: impl FnMut(&Order<'_>),
        mut wake: impl FnMut(usize),
    ) {
        let mut askers = self.asked[cpu].0.swap(0, Ordering::SeqCst);
        while askers != 0 {
            let asker = askers.trailing_zeros() as usize;
            let request = &self.requests[asker];
            askers &= askers - 1;
            let first = request.first.load(Ordering::Relaxed);
            // SAFETY: before the requesting CPU set the bit, it published a borrowed slice. It waits in `ask`, with the
            // slice still borrowed, until this CPU has cleared its bit in the request below.
            let what =
                unsafe { slice::from_raw_parts(first, request.count.load(Ordering::Relaxed)) };
            let root = request.root.load(Ordering::Relaxed);
            forget(&Order { root, what });
            let left = request.left.fetch_and(!(1 << cpu), Ordering::Release);
            if left == 1 << cpu | 1 << asker {
                wake(asker);
            }
        }
    }

    /// Returns whether `cpu` is halted until its targets have served its request.
    pub fn halts(&self, cpu: usize) -> bool {
        self.requests[cpu].left.load(Ordering::Relaxed) & 1 << cpu != 0
    }

    /// Returns the CPUs that have not served the request of `cpu` yet, as one bit per CPU.
    pub fn waits_for(&self, cpu: usize) -> u64 {
        self.requests[cpu].left.load(Ordering::Relaxed) & !(1 << cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Shootdown, Wait};
    use memwright_table::addr::{Page, PageSize};
    use memwright_table::machine::Invalidation;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::sync::{Barrier, OnceLock};
    use std::thread::{self, Thread};

    fn page(number: u64) -> Invalidation {
        Invalidation::Pages {
            first: Page::new(number),
            count: 1,
            stride: PageSize::Size4K,
        }
    }

    /// Waits by calling `serve` in each step. Halts by parking the thread.
    struct Serving<F>(F);

    impl<F: FnMut()> Wait for Serving<F> {
        fn spin(&mut self) {
            (self.0)();
            thread::yield_now();
        }

        fn halt(&mut self) {
            thread::park();
            (self.0)();
        }
    }

    #[test]
    fn orders_arrive_as_they_were_sent() {
        let pages = [1, 2, 3].map(page);
        for what in [&pages[..], &[Invalidation::All], &[]] {
            let shootdown = Shootdown::new();
            let order = Order { root: 4096, what };
            let mut interrupted = Vec::new();
            let mut seen = 0;
            let serve = || {
                let forget = |got: &Order<'_>| {
                    assert_eq!(*got, order);
                    seen += 1;
                };
                shootdown.serve(1, forget, |_| panic!("no CPU halts"));
            };
            let wait = &mut Serving(serve);
            let halted = shootdown.ask(0, 0b10, &order, |cpu| interrupted.push(cpu), 2, wait);
            assert_eq!((interrupted, seen, halted), (vec![1], 1, false));
            assert!(!shootdown.is_asked(1) && shootdown.waits_for(0) == 0);
        }
    }

    /// Makes target 1 serve the request while the requesting CPU spins, and makes target 2 serve it while the
    /// requesting CPU halts.
    struct SecondServes<'a>(&'a Shootdown, Vec<usize>);

    impl Wait for SecondServes<'_> {
        fn spin(&mut self) {
            self.0.serve(1, |_| (), |cpu| self.1.push(cpu));
        }

        fn halt(&mut self) {
            assert_eq!(self.0.waits_for(0), 0b100, "the first has served");
            self.0.serve(2, |_| (), |cpu| self.1.push(cpu));
        }
    }

    #[test]
    fn the_last_target_wakes_a_cpu_that_halts() {
        let shootdown = Shootdown::new();
        let order = Order {
            root: 4096,
            what: &[Invalidation::All],
        };
        let mut wait = SecondServes(&shootdown, Vec::new());
        assert!(shootdown.ask(0, 0b110, &order, |_| (), 3, &mut wait));
        assert_eq!((wait.1, shootdown.waits_for(0)), (vec![0], 0));
    }

    /// Every CPU sends requests to all other CPUs at the same time, many times. It serves requests while it waits and
    /// between its own requests, and at no other time. A halted CPU stays halted until it is interrupted or woken, so a
    /// lost wakeup would block the test.
    #[test]
    fn all_ask_all() {
        for spins in [0, 1, 50] {
            ask_all(spins);
        }
    }

    fn ask_all(spins: u32) {
        const CPUS: usize = 6;
        const ROUNDS: u64 = 700;
        let shootdown = Shootdown::new();
        // The last request of each CPU to each other CPU. The stores to these words are plain; only the shootdown
        // orders them.
        let asked: [[AtomicU64; CPUS]; CPUS] = Default::default();
        let done = AtomicUsize::new(0);
        let threads: [OnceLock<Thread>; CPUS] = Default::default();
        let all_there = Barrier::new(CPUS);
        let interrupt = |target: usize| threads[target].get().expect("there").unpark();
        thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (shootdown, asked, done) = (&shootdown, &asked, &done);
                let (threads, all_there, interrupt) = (&threads, &all_there, &interrupt);
                scope.spawn(move || {
                    threads[cpu].set(thread::current()).expect("once");
                    all_there.wait();
                    let serve = || {
                        let forget = |got: &Order<'_>| {
                            let asker = got.root as usize;
                            let [Invalidation::Pages { first, .. }] = got.what else {
                                panic!("another order");
                            };
                            asked[cpu][asker].store(first.number(), Ordering::Relaxed);
                        };
                        shootdown.serve(cpu, forget, interrupt);
                    };
                    for round in 1..=ROUNDS {
                        let targets = ((1 << CPUS) - 1) & !(1 << cpu);
                        let order = Order {
                            root: cpu as u64,
                            what: &[page(round)],
                        };
                        let wait = &mut Serving(serve);
                        shootdown.ask(cpu, targets, &order, interrupt, spins, wait);
                        for (other, row) in asked.iter().enumerate() {
                            if other != cpu {
                                assert_eq!(row[cpu].load(Ordering::Relaxed), round);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    while done.load(Ordering::Relaxed) < CPUS {
                        serve();
                        thread::yield_now();
                    }
                });
            }
        });
    }
}
