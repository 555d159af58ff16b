//! The operations of the memory manager whose size is measured.

use alloc::sync::Arc;
use core::hint::black_box;

use memwright::{Access, AddressSpace, Layout, MapRequest, Memory, Policy, Rights};
use memwright_table::{Frames, PAGE_SIZE, Region, VirtAddr, X86_64};

use crate::machine::{ALL, Bare};

const LAYOUT: Layout = Layout::of::<X86_64>();

/// Maps four pages, stores to one, forks, makes the page read-only in the child, and unmaps it in the parent. Returns
/// `None` if an operation fails. The arguments of the operations are unknown at compile time.
pub fn run() -> Option<()> {
    let frames = Frames::new(
        Bare,
        &[Region {
            range: ALL,
            node: 0,
        }],
    )
    .ok()?;
    let memory = Arc::new(Memory::new(Arc::new(frames), Policy::default()).ok()?);
    let parent = AddressSpace::new(memory, LAYOUT, None).ok()?;
    let length = black_box(4 * PAGE_SIZE as u64);
    let rights = black_box(Rights::READ | Rights::WRITE);
    let start = parent.map(&MapRequest::anonymous(length, rights)).ok()?;
    parent.fault(start, black_box(Access::WRITE)).ok()?;
    let child = parent.fork().ok()?;
    child.protect(start, length, black_box(Rights::READ)).ok()?;
    parent.unmap(start, length).ok()
}
