//! Tests of the names of anonymous memory.

use std::sync::Arc;

use memwright::{AreaName, Limit, NameError};
use memwright_table::VirtAddr;

use crate::world::{PAGE, Process, RW, World, page};

fn name(text: &str) -> Arc<AreaName> {
    Arc::new(AreaName::new(text.into()))
}

/// Returns, as text, the size in pages and the name of each area.
fn names(process: &Process<'_>) -> String {
    let mut row = Vec::new();
    process.space.areas(&mut |area| {
        let name = area.backing().name();
        let name = name.map_or("-".into(), |name| String::from_utf8_lossy(name.bytes()));
        row.push(format!("{} {name}", area.pages()));
    });
    row.join(", ")
}

#[test]
fn an_area_is_shown_with_its_properties() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    let name = name("a");
    process
        .space
        .name_memory(page(0), 2 * PAGE, Some(&name))
        .unwrap();
    process.space.areas(&mut |area| {
        let text = format!("{area:?}");
        for part in [
            "range: ",
            "rights: ",
            "flags: ",
            "object: false",
            "name: Some(",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    });
}

#[test]
fn a_name_splits_areas_and_equal_names_merge() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    let set = |from, pages, text: &str| {
        let name = Some(name(text)).filter(|_| !text.is_empty());
        process
            .space
            .name_memory(page(from), pages * PAGE, name.as_ref())
            .unwrap();
        names(&process)
    };
    assert_eq!(set(2, 2, "a"), "2 -, 2 a, 2 -");
    assert_eq!(set(0, 2, "a"), "4 a, 2 -");
    assert_eq!(set(3, 3, "b"), "3 a, 3 b");
    assert_eq!(set(1, 1, ""), "1 a, 1 -, 1 a, 3 b");
    assert_eq!(set(0, 6, ""), "6 -");
}

#[test]
fn a_child_inherits_names() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    let inherited = name("inherited");
    process
        .space
        .name_memory(page(0), PAGE, Some(&inherited))
        .unwrap();
    let child = process.fork();
    assert_eq!(names(&child), "1 inherited, 1 -");
    child.space.name_memory(page(0), PAGE, None).unwrap();
    assert_eq!(names(&child), "2 -");
    assert_eq!(names(&process), "1 inherited, 1 -");
}

#[test]
fn what_cannot_be_named() {
    let world = World::new();
    let process = world.process();
    process.map(0, 1, RW);
    process.map(2, 2, RW);
    let all = name("all");
    let set = |at, bytes| process.space.name_memory(at, bytes, Some(&all));
    let odd = VirtAddr::new(page(0).as_u64() + 1);
    assert_eq!(set(odd, PAGE), Err(NameError::Misaligned));
    assert_eq!(set(page(0), u64::MAX), Err(NameError::OutOfRange));
    assert_eq!(set(page(0), 0), Ok(()));
    // The memory after a hole is named too.
    assert_eq!(set(page(0), 3 * PAGE), Err(NameError::Hole(page(1))));
    assert_eq!(names(&process), "1 all, 1 all, 1 -");
    let mut limits = process.space.limits();
    limits.areas = 3;
    process.space.set_limits(limits);
    let over = NameError::OverLimit(Limit::Areas);
    process.space.name_memory(page(0), 4 * PAGE, None).ok();
    assert_eq!(names(&process), "1 -, 2 -");
    assert_eq!(set(page(2), PAGE), Ok(()));
    limits.areas = 2;
    process.space.set_limits(limits);
    process.space.name_memory(page(2), PAGE, None).unwrap();
    assert_eq!(set(page(2), PAGE), Err(over));
}
