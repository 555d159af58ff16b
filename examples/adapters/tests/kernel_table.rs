//! A table of `page_table_multiarch` for kernel memory, whose frames are Memwright's.
#![cfg(all(
    target_arch = "x86_64",
    not(any(simulated = "aarch64", simulated = "riscv64"))
))]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use memory_addr::{PhysAddr, VirtAddr};
use memwright_adapters::kernel_table::{Handler, Kernel, KernelTable, MetaData};
use memwright_sim::{MachineOptions, PageFault, SimulatedMachine};
use memwright_table::{
    CpuId, CpuSet, Frame, FrameKind, Frames, Invalidation, Machine, Page, Table, Threads,
    VirtAddr as TableAddr,
};
use page_table_multiarch::{
    MappingFlags as Flags, PageSize, PagingError, PagingHandler, PagingMetaData,
};

const FIRST: CpuId = CpuId::new(0);
const SECOND: CpuId = CpuId::new(1);

/// An address of the lower half, which a kernel's table can map, too. The simulated CPUs are in user mode, so they
/// cannot access the upper half, and the test gives the pages the flag `USER`.
const LOW: usize = 0x40_0000;
/// An address of the upper half.
const HIGH: usize = 0xffff_8000_0040_0000;
const READ: Flags = Flags::READ.union(Flags::USER);
const READ_WRITE: Flags = READ.union(Flags::WRITE);

/// Declares a kernel with a machine of its own.
macro_rules! kernel {
    ($name:ident) => {
        struct $name;

        impl $name {
            fn global() -> &'static (SimulatedMachine, Arc<Frames<SimulatedMachine>>) {
                static GLOBAL: OnceLock<(SimulatedMachine, Arc<Frames<SimulatedMachine>>)> =
                    OnceLock::new();
                GLOBAL.get_or_init(|| {
                    let machine = SimulatedMachine::new(MachineOptions::default());
                    let frames = machine.frames();
                    (machine, frames)
                })
            }
        }

        impl Kernel for $name {
            type Machine = SimulatedMachine;

            fn frames() -> &'static Frames<SimulatedMachine> {
                &Self::global().1
            }

            fn invalidate(page: Option<Page>) {
                invalidate(&Self::global().0, page);
            }
        }
    };
}

/// Makes every simulated CPU drop translations. The simulated machine drops translations of kernel memory, too.
fn invalidate(machine: &SimulatedMachine, page: Option<Page>) {
    let what = page.map_or(Invalidation::AllAndTables, Invalidation::page);
    let own = SimulatedMachine::cpu();
    machine.invalidate_local(&what);
    for cpu in machine.cpus().filter(|cpu| *cpu != own) {
        if let Some(root) = machine.loaded_root(cpu) {
            machine.invalidate_remote(CpuSet::single(cpu), root, &[what]);
        }
    }
}

fn at(address: usize) -> VirtAddr {
    VirtAddr::from_usize(address)
}

fn physical(frame: Frame) -> PhysAddr {
    PhysAddr::from_usize(frame.address().as_u64() as usize)
}

fn root_of<K: Kernel>(kernel: &KernelTable<K>) -> Frame {
    Frame::new((kernel.root_paddr().as_usize() >> 12) as u32)
}

fn load(machine: &SimulatedMachine, cpu: CpuId, address: usize) -> Result<u8, PageFault> {
    let mut byte = [0];
    let read = machine
        .on(cpu)
        .read(TableAddr::new(address as u64), &mut byte);
    read.map(|()| byte[0])
}

fn store(machine: &SimulatedMachine, cpu: CpuId, address: usize) -> Result<(), PageFault> {
    machine.on(cpu).write(TableAddr::new(address as u64), &[9])
}

#[test]
fn both_cpus_see_each_change_after_the_flush() {
    kernel!(Simulated);
    let (machine, frames) = Simulated::global();
    let block = frames.allocate_zeroed(0, FrameKind::Kernel).unwrap();
    let page = block.frame();
    machine.memory().store(page, 0, &[7]);

    let mut kernel = KernelTable::<Simulated>::try_new().unwrap();
    let size = PageSize::Size4K;
    let mapped = kernel
        .cursor()
        .map(at(LOW), physical(page), size, READ_WRITE);
    assert_eq!(mapped, Ok(()));
    let used = frames.used_by(FrameKind::Kernel);
    assert_eq!(used, 5, "four tables and a page");

    for cpu in [FIRST, SECOND] {
        let _running = machine.run_on(cpu);
        machine.load_root(root_of(&kernel));
    }
    let _running = machine.run_on(FIRST);
    assert_eq!(load(machine, FIRST, LOW), Ok(7));
    assert_eq!(store(machine, SECOND, LOW), Ok(()));
    assert_eq!(store(machine, FIRST, LOW), Ok(()));

    // A cursor of `page_table_multiarch` calls `flush_tlb` only on bare metal. On a host, its caller has to call it.
    kernel.cursor().protect(at(LOW), READ).unwrap();
    <MetaData<Simulated> as PagingMetaData>::flush_tlb(Some(at(LOW)));
    for cpu in [FIRST, SECOND] {
        assert_eq!(load(machine, cpu, LOW), Ok(9));
        assert!(store(machine, cpu, LOW).is_err());
    }
    let unmapped = kernel.cursor().unmap(at(LOW));
    assert_eq!(unmapped, Ok((physical(page), READ, size)));
    <MetaData<Simulated> as PagingMetaData>::flush_tlb(None);
    for cpu in [FIRST, SECOND] {
        assert!(load(machine, cpu, LOW).is_err());
    }
    let again = kernel.cursor().unmap(at(LOW));
    assert_eq!(again, Err(PagingError::NotMapped));

    drop((kernel, block));
    assert_eq!(frames.used_by(FrameKind::Kernel), 0);
    assert_eq!(machine.take_violations(), Vec::<String>::new());
}

#[test]
fn user_tables_have_the_kernel_half_of_the_table() {
    kernel!(Simulated);
    let (machine, frames) = Simulated::global();
    let block = frames.allocate_zeroed(0, FrameKind::Kernel).unwrap();
    let mut kernel = KernelTable::<Simulated>::try_new().unwrap();
    for address in [LOW, HIGH] {
        let target = physical(block.frame());
        let mapped = kernel
            .cursor()
            .map(at(address), target, PageSize::Size4K, READ);
        assert_eq!(mapped, Ok(()));
    }
    let root = root_of(&kernel);
    machine.set_template(Some(root));
    let program = Table::new(Arc::clone(frames)).unwrap();
    let word = |root: Frame, index: usize| machine.memory().word(root, index).load(Relaxed);
    assert_ne!(word(root, 0), 0);
    assert_ne!(word(root, 256), 0);
    for index in 0..512 {
        let expected = if index < 256 { 0 } else { word(root, index) };
        assert_eq!(word(program.root(), index), expected);
    }
    // Dropping the program's table does not free tables of the kernel.
    drop(program);
    machine.set_template(None);
    let query = kernel.query(at(HIGH)).unwrap();
    assert_eq!(query, (physical(block.frame()), READ, PageSize::Size4K));
}

#[test]
fn a_table_that_cannot_be_allocated_is_an_error() {
    kernel!(Simulated);
    let frames = Simulated::frames();
    let mut kernel = KernelTable::<Simulated>::try_new().unwrap();
    let mut all = Vec::new();
    while let Some(frame) = Handler::<Simulated>::alloc_frame() {
        all.push(frame);
    }
    assert!(KernelTable::<Simulated>::try_new().is_err());
    let target = PhysAddr::from_usize(0x1000);
    let mapped = kernel.cursor().map(at(LOW), target, PageSize::Size4K, READ);
    assert_eq!(mapped, Err(PagingError::NoMemory));
    all.into_iter()
        .for_each(Handler::<Simulated>::dealloc_frame);
    drop(kernel);
    assert_eq!(frames.used_by(FrameKind::Kernel), 0);
}

#[test]
fn blocks_are_aligned() {
    kernel!(Simulated);
    let frames = Simulated::frames();
    for (num, align, order) in [
        (1, 0x1000, 0),
        (3, 0x1000, 2),
        (4, 0x8000, 3),
        (1, 0x20_0000, 9),
    ] {
        let block = Handler::<Simulated>::alloc_frames(num, align).unwrap();
        assert!(block.as_usize() % align == 0);
        assert_eq!(frames.used_by(FrameKind::Kernel), 1 << order);
        let address = Handler::<Simulated>::phys_to_virt(block);
        let base = frames.machine().memory_base().as_ptr() as usize;
        assert_eq!(address.as_usize(), base + block.as_usize());
        Handler::<Simulated>::dealloc_frames(block, num);
        assert_eq!(frames.used_by(FrameKind::Kernel), 0);
    }
    assert_eq!(Handler::<Simulated>::alloc_frames(1 << 40, 0x1000), None);
    assert_eq!(Handler::<Simulated>::alloc_frames(usize::MAX, 0x1000), None);
}
