//! How a CPU makes others forget translations, and waits until they have.
//!
//! Every CPU has one request, which is in use while it waits, and one word of others that ask
//! it: a bit for each. Who asks writes its request, sets its bit at every target, interrupts those
//! whose word was empty (whoever made it non-empty interrupts them anyway) and waits until each
//! target has crossed itself out of the request. While it waits it serves the others, so that CPUs
//! that ask each other at the same time all come through; and because a CPU that waits asks nobody
//! else, one request per CPU is enough. Nothing is allocated: the request points to the list of what
//! shall be forgotten, where the CPU that asks has it.
//!
//! # Ordering
//! A target takes the bit (acquire: it reads the whole request), forgets, and crosses itself out
//! (release). The one that asks sees that (acquire), so that everything it does afterwards, like reusing a
//! frame, comes after the target's last use of a forgotten translation. The request is written
//! again only after everybody is crossed out, so that no target reads half of two.

use core::ptr;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use memwright_table::addr::MAX_CPUS;
use memwright_table::machine::Invalidation;

/// What a CPU shall forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order<'a> {
    /// Physical address of the root whose translations are meant; 0 for the kernel's own, which all
    /// roots share.
    pub root: u64,
    /// Which of them.
    pub what: &'a [Invalidation],
}

/// The request of one CPU.
#[repr(align(64))]
struct Request {
    /// Targets that have not served it yet.
    left: AtomicU64,
    root: AtomicU64,
    /// Where `what` is, for as long as a target is left.
    first: AtomicPtr<Invalidation>,
    count: AtomicUsize,
}

/// The CPUs that ask one CPU.
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
    /// Nobody asks anybody.
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

    /// Asks `targets`, a bit for each CPU, and returns when all of them have served. `cpu`, the one that
    /// asks, is not among them. `interrupt` makes a target look at its word soon; `wait` is one step of
    /// waiting, in which this CPU serves others.
    pub fn ask(
        &self,
        cpu: usize,
        targets: u64,
        order: &Order<'_>,
        mut interrupt: impl FnMut(usize),
        mut wait: impl FnMut(),
    ) {
        let request = &self.requests[cpu];
        request.root.store(order.root, Ordering::Relaxed);
        request.count.store(order.what.len(), Ordering::Relaxed);
        let first = order.what.as_ptr().cast_mut();
        request.first.store(first, Ordering::Relaxed);
        // A target touches `left` only after it has seen its bit.
        request.left.store(targets, Ordering::Relaxed);
        let mut rest = targets;
        while rest != 0 {
            let target = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            // Release: the request above. The full barrier also puts the caller's changes of the
            // table before the interrupt.
            if self.asked[target].0.fetch_or(1 << cpu, Ordering::SeqCst) == 0 {
                interrupt(target);
            }
        }
        while request.left.load(Ordering::Acquire) != 0 {
            wait();
        }
    }

    /// Whether somebody asks `cpu`.
    #[inline(always)]
    pub fn is_asked(&self, cpu: usize) -> bool {
        self.asked[cpu].0.load(Ordering::Relaxed) != 0
    }

    /// Serves everybody who asks `cpu`, on it: `forget` drops the translations. May be interrupted by
    /// itself: each bit is taken once.
    pub fn serve(&self, cpu: usize, mut forget: impl FnMut(&Order<'_>)) {
        let mut askers = self.asked[cpu].0.swap(0, Ordering::SeqCst);
        while askers != 0 {
            let request = &self.requests[askers.trailing_zeros() as usize];
            askers &= askers - 1;
            let first = request.first.load(Ordering::Relaxed);
            // SAFETY: whoever set the bit that was taken published a borrowed slice before, and waits in `ask`,
            // the slice still borrowed, until this CPU has crossed itself out below.
            let what =
                unsafe { slice::from_raw_parts(first, request.count.load(Ordering::Relaxed)) };
            let root = request.root.load(Ordering::Relaxed);
            forget(&Order { root, what });
            request.left.fetch_and(!(1 << cpu), Ordering::Release);
        }
    }

    /// The CPUs that `cpu` waits for: a bit for each.
    pub fn waits_for(&self, cpu: usize) -> u64 {
        self.requests[cpu].left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, Shootdown};
    use memwright_table::addr::{Page, PageSize};
    use memwright_table::machine::Invalidation;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
    use std::thread;

    fn page(number: u64) -> Invalidation {
        Invalidation::Pages {
            first: Page::new(number),
            count: 1,
            stride: PageSize::Size4K,
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
                shootdown.serve(1, |got| {
                    assert_eq!(*got, order);
                    seen += 1;
                });
            };
            shootdown.ask(0, 0b10, &order, |cpu| interrupted.push(cpu), serve);
            assert_eq!((interrupted, seen), (vec![1], 1));
            assert!(!shootdown.is_asked(1) && shootdown.waits_for(0) == 0);
        }
    }

    /// Every CPU asks all others at once, many times, and serves only while it waits or between.
    #[test]
    fn everybody_asks_everybody() {
        const CPUS: usize = 6;
        const ROUNDS: u64 = 2_000;
        let shootdown = Shootdown::new();
        // What each CPU was told last by each other: plain stores, ordered by the shootdown alone.
        let told: [[AtomicU64; CPUS]; CPUS] = Default::default();
        let done = AtomicUsize::new(0);
        let interrupts: [AtomicBool; CPUS] = Default::default();
        thread::scope(|scope| {
            for cpu in 0..CPUS {
                let (shootdown, told, done, interrupts) = (&shootdown, &told, &done, &interrupts);
                scope.spawn(move || {
                    let serve = || {
                        if interrupts[cpu].swap(false, Ordering::Relaxed) || shootdown.is_asked(cpu)
                        {
                            shootdown.serve(cpu, |got| {
                                let asker = got.root as usize;
                                let [Invalidation::Pages { first, .. }] = got.what else {
                                    panic!("another order");
                                };
                                told[cpu][asker].store(first.number(), Ordering::Relaxed);
                            });
                        }
                        thread::yield_now();
                    };
                    for round in 1..=ROUNDS {
                        let targets = ((1 << CPUS) - 1) & !(1 << cpu);
                        let order = Order {
                            root: cpu as u64,
                            what: &[page(round)],
                        };
                        let interrupt =
                            |target: usize| interrupts[target].store(true, Ordering::Relaxed);
                        shootdown.ask(cpu, targets, &order, interrupt, serve);
                        for (other, row) in told.iter().enumerate() {
                            if other != cpu {
                                assert_eq!(row[cpu].load(Ordering::Relaxed), round);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                    while done.load(Ordering::Relaxed) < CPUS {
                        serve();
                    }
                });
            }
        });
    }
}
