//! The operations of the memory manager whose size is measured.

use alloc::sync::Arc;
use core::hint::black_box;

use memwright::{Access, AddressSpace, Area, Layout, MapRequest, Memory, Policy, Rights};
use memwright_table::{Frames, PAGE_SIZE, Region, VirtAddr, X86_64};

use crate::machine::{ALL, Bare};

const LAYOUT: Layout = Layout::of::<X86_64>();

/// An array with the size of an area. `cargo xtask size` reads the size of the symbol.
#[unsafe(no_mangle)]
static AREA_BYTES: [u8; size_of::<Area<Bare>>()] = [0; size_of::<Area<Bare>>()];

/// Handles a page fault. `cargo xtask size` counts the instructions of the second call, which needs no page table.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured_fault(space: &AddressSpace<Bare>, address: VirtAddr) -> Option<()> {
    space.fault(address, black_box(Access::WRITE)).ok()?;
    Some(())
}

/// Maps four pages, stores to two, forks, makes the pages read-only in the child, and unmaps them in the parent. Without
/// the feature `fork`, there is no child. Returns `None` if an operation fails. The arguments of the operations are
/// unknown at compile time.
pub fn run() -> Option<()> {
    black_box(&AREA_BYTES);
    let frames = Frames::new(
        Bare,
        &[Region {
            range: ALL,
            node: 0,
        }],
    )
    .ok()?;
    let memory = Arc::new(Memory::new(Arc::new(frames), Policy::default()).ok()?);
    let parent = AddressSpace::new(memory, LAYOUT).ok()?;
    let length = black_box(4 * PAGE_SIZE as u64);
    let rights = black_box(Rights::READ | Rights::WRITE);
    let start = parent.map(&MapRequest::anonymous(length, rights)).ok()?;
    measured_fault(&parent, start)?;
    measured_fault(&parent, VirtAddr::new(start.as_u64() + PAGE_SIZE as u64))?;
    protect(&parent, start, length)?;
    parent.unmap(start, length).ok()
}

/// Makes memory read-only in a new child.
#[cfg(feature = "fork")]
fn protect(parent: &AddressSpace<Bare>, start: VirtAddr, length: u64) -> Option<()> {
    let child = parent.fork().ok()?;
    child.protect(start, length, black_box(Rights::READ)).ok()
}

/// Makes memory read-only.
#[cfg(not(feature = "fork"))]
fn protect(space: &AddressSpace<Bare>, start: VirtAddr, length: u64) -> Option<()> {
    space.protect(start, length, black_box(Rights::READ)).ok()
}
