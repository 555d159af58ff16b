//! Tests that `Table::translate`, which emulators call, agrees with the page walk of the simulated processor, which is
//! written from the processor manual.

use memwright::{HugeMode, MapRequest, Rights};
use memwright_sim::process::{Host, Process};
use memwright_sim::walk::{self, Intent, WalkFault};
use memwright_sim::{Arch, MachineOptions, tlb};
use memwright_table::{
    Architecture, Bits, CpuId, Edit, Page, PageAccess, PageRange, PageSize, Translation, VirtAddr,
};

const CPU: CpuId = CpuId::new(0);

const KINDS: [(PageAccess, Intent); 3] = [
    (PageAccess::Load, Intent::Read),
    (PageAccess::Store, Intent::Write),
    (PageAccess::Fetch, Intent::Fetch),
];

/// Returns the translation of a page in the tables, without changing them.
fn walked(process: &Process, page: Page) -> Option<Result<tlb::Translation, WalkFault>> {
    let root = process.space().table().root();
    walk::look(process.host().machine().memory(), root, page.number())
}

/// Translates every page of a range for every kind of access, and compares each result with the processor's walk before
/// and after it. Returns the translations of loads.
fn compare(process: &Process, start: VirtAddr, pages: u64) -> Vec<Option<Translation>> {
    let mut loads = Vec::new();
    for page in (0..pages).map(|number| start.page().add(number)) {
        for (access, intent) in KINDS {
            let before = walked(process, page);
            let permitted = matches!(before, Some(Ok(there)) if intent.permitted(there.rights));
            let found = process.on(CPU, |space| space.table().translate(page, access));
            assert_eq!(found.is_some(), permitted, "{page:?} {access:?} {before:?}");
            if access == PageAccess::Load {
                loads.push(found);
            }
            let Some(found) = found else {
                assert_eq!(walked(process, page), before, "a fault changes nothing");
                continue;
            };
            let Some(Ok(after)) = walked(process, page) else {
                panic!("the page is still there");
            };
            assert_eq!(found.frame, after.frame_of(page.number()));
            assert_eq!(found.size, after.size);
            assert_eq!(found.fetches, after.rights.execute);
            assert_eq!(found.stores, after.rights.write && after.dirty);
            assert!(access != PageAccess::Store || found.stores);
        }
    }
    loads
}

#[test]
fn translations_are_those_of_the_processor() {
    let host = Host::boot(MachineOptions::default());
    let process = Process::new(&host);
    let (length, all) = (16 * 4096, Rights::READ | Rights::WRITE | Rights::EXECUTE);
    let start = process
        .on(CPU, |space| space.map(&MapRequest::anonymous(length, all)))
        .unwrap();
    // No page is mapped yet.
    assert!(compare(&process, start, 16).iter().all(Option::is_none));
    let page = |number: u64| VirtAddr::new(start.as_u64() + number * 4096);
    for number in 0..8 {
        process.write(CPU, page(number), &[7]).unwrap();
    }
    // This load maps the zero page.
    process.read(CPU, page(8), &mut [0]).unwrap();
    let protect = |number, rights| {
        let protected = process.on(CPU, |space| space.protect(page(number), 4096, rights));
        protected.unwrap();
    };
    protect(1, Rights::READ);
    protect(2, Rights::READ | Rights::EXECUTE);
    protect(3, Rights::empty());
    let child = process.fork(CPU).unwrap();
    // The fork has made the parent's pages read-only.
    let loads = compare(&process, start, 16);
    let there: Vec<bool> = loads.iter().map(Option::is_some).collect();
    let expected = [true, true, true, false, true, true, true, true, true];
    assert_eq!(there[..9], expected);
    assert!(loads.iter().flatten().all(|load| !load.stores));
    child.write(CPU, page(0), &[8]).unwrap();
    compare(&child, start, 16);
    // Beyond user memory no page is mapped.
    let beyond = process.on(CPU, |space| {
        space.table().translate(Arch::USER.end, PageAccess::Load)
    });
    assert_eq!(beyond, None);
}

#[test]
fn a_part_of_a_huge_page_has_a_frame_of_its_own() {
    let host = Host::boot(MachineOptions::default());
    host.memory().policy().set_huge(HugeMode::Always);
    let process = Process::new(&host);
    let length = 4 << 20;
    let rights = Rights::READ | Rights::WRITE;
    let start = process
        .on(CPU, |space| {
            space.map(&MapRequest::anonymous(length, rights))
        })
        .unwrap();
    let huge = VirtAddr::new(start.as_u64().next_multiple_of(2 << 20));
    process.write(CPU, huge, &[1]).unwrap();
    let loads = compare(&process, huge, 512);
    let first = loads[0].unwrap();
    assert_eq!(first.size, PageSize::Size2M);
    let seventh = loads[7].unwrap();
    assert_eq!(seventh.frame.number(), first.frame.number() + 7);
}

#[test]
fn a_store_sets_the_dirty_bit_and_a_load_does_not() {
    let host = Host::boot(MachineOptions::default());
    let process = Process::new(&host);
    let rights = Rights::READ | Rights::WRITE;
    let start = process
        .on(CPU, |space| space.map(&MapRequest::anonymous(4096, rights)))
        .unwrap();
    let page = start.page();
    let bits = || {
        let entry = process.on(CPU, |space| {
            let cursor = space.table().cursor(PageRange::single(page));
            cursor.peek()
        });
        entry.present().expect("a page").bits
    };
    process
        .on(CPU, |space| space.residency().populate(start, 4096, true))
        .unwrap();
    let clean = Edit {
        set: Bits::empty(),
        clear: Bits::ACCESSED | Bits::DIRTY,
    };
    process.on(CPU, |space| {
        let mut gather = space.table().gather();
        space
            .table()
            .cursor(PageRange::single(page))
            .edit(clean.set, clean.clear, &mut gather);
        let _ = gather.close();
    });
    assert!(!bits().intersects(Bits::ACCESSED | Bits::DIRTY));
    let translate = |access| process.on(CPU, |space| space.table().translate(page, access));
    assert_eq!(
        translate(PageAccess::Load).map(|load| load.stores),
        Some(false)
    );
    assert!(bits().contains(Bits::ACCESSED) && !bits().contains(Bits::DIRTY));
    assert_eq!(
        translate(PageAccess::Store).map(|store| store.stores),
        Some(true)
    );
    assert!(bits().contains(Bits::ACCESSED | Bits::DIRTY));
    assert_eq!(
        translate(PageAccess::Load).map(|load| load.stores),
        Some(true)
    );
}
