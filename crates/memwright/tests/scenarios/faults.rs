//! Tests that each kind of fault is resolved or refused as expected.

use memwright::{AreaFlags, FaultError, FaultKind, Rights, Row};

use crate::world::{NONE, PAGE, R, RW, World, page, rows};

#[test]
fn a_first_store_gets_a_zeroed_frame_and_no_second_fault() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    assert_eq!(process.store(2, 7), Ok(vec![FaultKind::DemandZero]));
    assert_eq!(process.store(2, 8), Ok(vec![]));
    assert_eq!(process.load_with(2), Ok((8, vec![])));
    assert_eq!(process.resident(), 1);
}

#[test]
fn a_first_load_sees_the_zero_frame_and_a_store_over_it_a_frame_of_its_own() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    assert_eq!(process.load_with(1), Ok((0, vec![FaultKind::ZeroPage])));
    assert_eq!(process.resident(), 0);
    let account = world.counted(|| {
        assert_eq!(process.store(1, 9), Ok(vec![FaultKind::Copy]));
    });
    assert_eq!(
        rows(&account, &[Row::FramesZeroed, Row::FramesCopied]),
        [1, 0]
    );
    assert_eq!(process.load(1), 9);
    assert_eq!(process.load(2), 0);
    assert_eq!(process.resident(), 1);
}

#[test]
fn what_is_not_allowed_is_refused() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, R);
    process.map(1, 1, NONE);
    assert_eq!(process.store(0, 1), Err(FaultError::Denied));
    assert_eq!(process.load_with(1), Err(FaultError::Denied));
    assert_eq!(process.load_with(2), Err(FaultError::NoArea));
    let account = world.counted(|| {
        assert_eq!(process.store(5, 1), Err(FaultError::NoArea));
    });
    assert_eq!(account.count(Row::FaultRefused), 1);
    assert_eq!(account.faults(), 0);
}

#[test]
fn fetching_needs_its_right() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 0xc3).unwrap();
    let fetch = memwright::Access::FETCH;
    assert_eq!(process.space.fault(page(0), fetch), Err(FaultError::Denied));
    process.protect(0, 1, R | Rights::EXECUTE);
    process.run();
    let cpu = memwright_table::CpuId::new(0);
    assert_eq!(world.machine.on(cpu).fetch(page(0)), Ok(0xc3));
}

#[test]
fn write_only_memory_can_be_read_as_on_x86() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, Rights::WRITE);
    process.store(0, 5).unwrap();
    assert_eq!(process.load(0), 5);
}

#[test]
fn a_stale_translation_is_dropped_and_the_access_retried() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 1, RW);
    process.store(0, 1).unwrap();
    // The entry already permits the store. Only a stale translation can have caused the fault, which is spurious.
    let access = memwright::Access::WRITE;
    assert_eq!(
        process.space.fault(page(0), access),
        Ok(FaultKind::Spurious)
    );
}

#[test]
fn a_stack_grows_to_its_limit_and_keeps_its_guard() {
    let world = World::new();
    let mut process = world.process();
    let flags = AreaFlags::GROWSDOWN | AreaFlags::STACK;
    process.map_with(4000, 2, RW, flags);
    let mut limits = process.space.limits();
    limits.stack = 100 * PAGE;
    process.space.set_limits(limits);
    assert_eq!(process.store(3990, 1), Ok(vec![FaultKind::DemandZero]));
    assert_eq!(process.areas(), "12rw");
    assert_eq!(
        process.store(4002 - 100, 1),
        Ok(vec![FaultKind::DemandZero])
    );
    assert_eq!(process.store(4002 - 101, 1), Err(FaultError::StackLimit));
    assert_eq!(process.areas(), "100rw");
    assert_eq!(world.account().count(Row::StackGrowth), 2);
}

#[test]
fn a_stack_stops_short_of_what_lies_below() {
    let world = World::new();
    let mut process = world.process();
    process.map_with(600, 2, RW, AreaFlags::GROWSDOWN);
    process.map(300, 10, RW);
    assert_eq!(process.store(310 + 255, 1), Err(FaultError::StackLimit));
    assert_eq!(process.store(310 + 256, 1), Ok(vec![FaultKind::DemandZero]));
    // An area without rights below the stack takes the place of the guard gap: the stack may grow closer to this area.
    process.protect(300, 10, NONE);
    assert_eq!(process.store(310 + 200, 1), Ok(vec![FaultKind::DemandZero]));
}

#[test]
fn the_kernel_reads_and_writes_as_the_program_would() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 3, RW);
    let text = [5_u8; 5000];
    process.space.write(page(0), &text).unwrap();
    assert_eq!(process.load(1), 5);
    process.protect(1, 1, R);
    assert_eq!(
        process.space.write(page(0), &text),
        Err((FaultError::Denied, 4096))
    );
    let mut back = [0_u8; 5000];
    process.space.read(page(0), &mut back).unwrap();
    assert_eq!(back, text);
    assert_eq!(
        process.space.read(page(2), &mut back),
        Err((FaultError::NoArea, 4096))
    );
}

#[test]
fn each_fault_is_counted_once_by_its_kind() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let account = world.counted(|| {
        process.store(0, 1).unwrap();
        process.load(1);
        process.store(1, 1).unwrap();
        let _ = process.store(9, 1);
    });
    let kinds = [
        Row::FaultDemandZero,
        Row::FaultZeroPage,
        Row::FaultCopy,
        Row::FaultRefused,
        Row::FaultWriteOnly,
        Row::FaultFile,
        Row::FaultSpurious,
    ];
    assert_eq!(rows(&account, &kinds), [1, 1, 1, 1, 0, 0, 0]);
    assert_eq!(account.faults(), 3);
}
