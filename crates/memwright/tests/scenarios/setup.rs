//! Tests of the requests for an address space that are refused.

use std::sync::Arc;

use memwright::{AddressSpace, Layout, LayoutError, Memory, Policy, SpaceError};
use memwright_sim::{Arch, MachineOptions, SimulatedMachine};

const LAYOUT: Layout = Layout::of::<Arch>();

#[test]
fn wrong_layouts_are_refused() {
    let machine = SimulatedMachine::new(MachineOptions::default());
    let frames = machine.frames();
    let memory = Arc::new(Memory::new(frames.clone(), Policy::default()).unwrap());
    let new = |layout| AddressSpace::new(memory.clone(), layout).err();
    assert_eq!(new(LAYOUT), None);

    let beyond = Layout {
        highest: LAYOUT.highest.page().add(1).address(),
        ..LAYOUT
    };
    let error = LayoutError::BeyondUser {
        highest: beyond.highest,
        end: LAYOUT.highest,
    };
    assert_eq!(new(beyond), Some(SpaceError::BadLayout(error)));
    frames.fail_after(Some(0));
    assert_eq!(new(LAYOUT), Some(SpaceError::OutOfMemory));
    assert_eq!(new(LAYOUT), None);
}
