//! Tests of the requests for an address space that are refused.

use std::sync::Arc;

use memwright::{AddressSpace, Layout, LayoutError, Memory, Policy, SpaceError};
use memwright_sim::{Arch, MachineOptions, SimulatedMachine};
use memwright_table::{Frame, FrameKind};

const LAYOUT: Layout = Layout::of::<Arch>();

#[test]
fn wrong_layouts_and_templates_are_refused() {
    let machine = SimulatedMachine::new(MachineOptions::default());
    let frames = machine.frames();
    let memory = Arc::new(Memory::new(frames.clone(), Policy::default()).unwrap());
    let new = |layout, template| AddressSpace::new(memory.clone(), layout, template).err();
    assert_eq!(new(LAYOUT, None), None);
    let kernel = frames.allocate_zeroed(0, FrameKind::Kernel).unwrap();
    assert_eq!(new(LAYOUT, Some(kernel.frame())), None);

    let beyond = Layout {
        highest: LAYOUT.highest.page().add(1).address(),
        ..LAYOUT
    };
    let error = LayoutError::BeyondUser {
        highest: beyond.highest,
        end: LAYOUT.highest,
    };
    assert_eq!(new(beyond, None), Some(SpaceError::BadLayout(error)));
    for template in [memory.zero_frame(), Frame::new(frames.end())] {
        let error = SpaceError::BadTemplate(template);
        assert_eq!(new(LAYOUT, Some(template)), Some(error));
        assert!(error.to_string().contains("is not a root table"));
    }
    frames.fail_after(Some(0));
    assert_eq!(new(LAYOUT, None), Some(SpaceError::OutOfMemory));
    assert_eq!(new(LAYOUT, None), None);
}
