//! An emulator with two CPUs whose guest memory Memwright manages: a fault, an invalidation on another CPU, a fork, a
//! page in swap, and a log of dirty pages.
//!
//! `docs/embedding-steps.md` explains the steps.

mod machine;
mod swap;

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright::{
    Access, AddressSpace, Advice, FaultError, FaultKind, Layout, MapRequest, Memory, Policy,
    Rights, Row,
};
use memwright_table::table::PageAccess;
use memwright_table::{
    CpuId, Frame, FrameRange, Frames, Loaded, PAGE_SIZE, Page, PageRange, Region, VirtAddr, X86_64,
};

use machine::{Emulator, FRAMES};
use swap::MemorySwap;

type Space = AddressSpace<&'static Emulator>;

const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);
const BYTES: u64 = 4 * PAGE_SIZE as u64;
const OTHER_CPU: CpuId = CpuId::new(1);

/// The emulator, the state of its address spaces, and the number of page faults that its CPUs have taken.
struct Guest {
    machine: &'static Emulator,
    memory: Arc<Memory<&'static Emulator>>,
    traps: AtomicU64,
}

/// Creates the machine, and the state that all address spaces share.
fn start() -> Result<Guest, Box<dyn Error>> {
    let machine = Emulator::new();
    let all = FrameRange {
        start: Frame::new(0),
        count: FRAMES,
    };
    let frames = Frames::new(
        machine,
        &[Region {
            range: all,
            node: 0,
        }],
    )?;
    let memory = Memory::new(Arc::new(frames), Policy::default())?;
    Ok(Guest {
        machine,
        memory: Arc::new(memory),
        traps: AtomicU64::new(0),
    })
}

impl Guest {
    /// Creates an empty address space.
    fn space(&self) -> Result<Space, Box<dyn Error>> {
        let layout = Layout::of::<X86_64>();
        Ok(AddressSpace::new(self.memory.clone(), layout)?)
    }

    /// Stores a byte, as the guest's program on the calling CPU. Returns the kinds of the faults that the store took.
    fn store(
        &self,
        space: &Space,
        address: VirtAddr,
        byte: u8,
    ) -> Result<Vec<FaultKind>, FaultError> {
        let write = |frame, offset| self.memory.frames().write(frame, offset, &[byte]);
        let mut resolved = Vec::new();
        while !self
            .machine
            .access(space.table(), address, PageAccess::Store, write)
        {
            self.traps.fetch_add(1, Ordering::Relaxed);
            resolved.push(space.fault(address, Access::WRITE)?);
        }
        Ok(resolved)
    }

    /// Loads a byte, like [`store`](Self::store).
    fn load(&self, space: &Space, address: VirtAddr) -> Result<(u8, Vec<FaultKind>), FaultError> {
        let mut bytes = [0];
        let mut resolved = Vec::new();
        while !self
            .machine
            .access(space.table(), address, PageAccess::Load, |frame, offset| {
                self.memory.frames().read(frame, offset, &mut bytes);
            })
        {
            self.traps.fetch_add(1, Ordering::Relaxed);
            resolved.push(space.fault(address, Access::READ)?);
        }
        Ok((bytes[0], resolved))
    }

    /// Returns a row of the memory manager's account.
    fn count(&self, row: Row) -> u64 {
        self.memory.account().count(row)
    }
}

/// The first store to a page faults, and the fault handler maps a zeroed frame.
fn first_fault(guest: &Guest, space: &Space) -> Result<VirtAddr, Box<dyn Error>> {
    let address = space.map(&MapRequest::anonymous(BYTES, READ_WRITE))?;
    assert_eq!(guest.store(space, address, 1)?, [FaultKind::DemandZero]);
    assert_eq!(guest.store(space, address, 2)?, []);
    println!("a fault was handled at {address}");
    Ok(address)
}

/// A protection change invalidates the translation in the TLB of another CPU before the call returns.
fn two_cpus(guest: &Guest, space: &Space, address: VirtAddr) -> Result<(), Box<dyn Error>> {
    let loaded = on_other_cpu(|| {
        let loaded = Loaded::new(space);
        assert_eq!(guest.store(space, address, 3), Ok(vec![]));
        loaded
    });
    space.protect(address, BYTES, Rights::READ)?;
    assert_eq!(guest.count(Row::FlushCpusInterrupted), 1);
    on_other_cpu(|| assert_eq!(guest.store(space, address, 4), Err(FaultError::Denied)));
    // The right to store is restored without a fault, and without a flush on another CPU.
    space.protect(address, BYTES, READ_WRITE)?;
    on_other_cpu(|| {
        assert_eq!(guest.store(space, address, 5), Ok(vec![]));
        loaded.stop();
    });
    assert_eq!(guest.count(Row::FlushCpusInterrupted), 1);
    println!("the other CPU was interrupted once");
    Ok(())
}

/// Performs `work` on a thread that acts as the other CPU.
fn on_other_cpu<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let run = || {
        Emulator::run_as(OTHER_CPU);
        work()
    };
    std::thread::scope(|scope| scope.spawn(run).join()).expect("no panic")
}

/// A child shares the parent's pages until one of the two stores to them. The other CPU runs the parent, and then the
/// child.
fn fork(guest: &Guest, parent: &Space, address: VirtAddr) -> Result<(), Box<dyn Error>> {
    let child = parent.fork()?;
    assert_eq!(guest.store(parent, address, 6)?, [FaultKind::Copy]);
    let found = on_other_cpu(|| {
        let loaded = Loaded::new(parent);
        let of_parent = guest.load(parent, address);
        let (loaded, _parent) = loaded.switch(&child);
        let of_child = guest.load(&child, address);
        loaded.stop();
        [of_parent, of_child]
    });
    assert_eq!(found, [Ok((6, vec![])), Ok((5, vec![]))]);
    println!("parent and child differ");
    Ok(())
}

/// A page that was swapped out is read back by the next access.
fn swap_out_and_in(guest: &Guest, space: &Space, address: VirtAddr) -> Result<(), Box<dyn Error>> {
    let device = Arc::new(MemorySwap::default());
    guest
        .memory
        .add_swap(device, 0)?
        .expect("one device at most");
    space.advise(address, BYTES, Advice::PageOut)?;
    assert!(space.entry(address).present().is_none());
    let (byte, resolved) = guest.load(space, address)?;
    assert_eq!((byte, resolved.len()), (6, 1));
    // The process is the page's only owner, so the store takes no second fault.
    assert_eq!(guest.store(space, address, 7)?, []);
    println!("a page came back from swap by {:?}", resolved[0]);
    Ok(())
}

/// Each scan reports the pages that were written since the last one, and tracks them again.
fn track(guest: &Guest, space: &Space, address: VirtAddr) -> Result<(), Box<dyn Error>> {
    let watch = Watch::try_new(Watcher {
        number: 0,
        asynchronous: true,
        unpopulated: true,
        counts_accesses: false.into(),
        events: WatchEvents::empty(),
    })?;
    space
        .uffd()
        .watch(address, BYTES, &watch, WatchModes::WRITE_PROTECT)?;
    let range = PageRange::from_addresses(address, BYTES).expect("aligned");
    let written = || -> Result<Vec<Page>, Box<dyn Error>> {
        let scan = Scan::written(true);
        let mut pages = Vec::new();
        let mut take = |run: PageRange, _: Categories, _: Share| {
            pages.extend(run.iter());
            run.len()
        };
        space.tracking().scan(range, &scan, &mut take)?;
        Ok(pages)
    };
    written()?;
    let third = address.page().add(2);
    guest.store(space, third.address(), 8)?;
    assert_eq!(written()?, [third]);
    assert_eq!(written()?, []);
    println!("one page was written since the last scan");
    Ok(())
}

/// Performs the steps in their order. The calling CPU has loaded the table of `space`.
fn steps(guest: &Guest, space: &Space) -> Result<(), Box<dyn Error>> {
    let address = first_fault(guest, space)?;
    two_cpus(guest, space, address)?;
    fork(guest, space, address)?;
    swap_out_and_in(guest, space, address)?;
    track(guest, space, address)?;
    space.audit()?;
    let kinds = FaultKind::ALL.map(FaultKind::row);
    let handled: u64 = kinds.into_iter().map(|row| guest.count(row)).sum();
    let refused = guest.count(Row::FaultRefused);
    assert_eq!(guest.traps.load(Ordering::Relaxed), handled + refused);
    println!("{handled} faults were handled, and {refused} refused");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let guest = start()?;
    let space = guest.space()?;
    let loaded = Loaded::new(&space);
    let outcome = steps(&guest, loaded.get());
    // The CPU stops using the table even if a step has failed: a table is dropped only when no CPU has it loaded.
    loaded.stop();
    outcome
}
