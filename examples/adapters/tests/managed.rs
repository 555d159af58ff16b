//! The methods of the tables of `page_table_multiarch` on a table that two simulated CPUs have loaded.

mod common;

use common::{Bench, FIRST, SECOND};
use memory_addr::{MemoryAddr, PhysAddr, VirtAddr};
use memwright_adapters::managed::ManagedTable;
use memwright_table::Frame;
use page_table_multiarch::{MappingFlags as Flags, PageSize, PagingError};

const PAGE: usize = 0x40_0000;
const HUGE: usize = 0x4020_0000;
const READ: Flags = Flags::READ.union(Flags::USER);
const READ_WRITE: Flags = READ.union(Flags::WRITE);

fn at(address: usize) -> VirtAddr {
    VirtAddr::from_usize(address)
}

fn physical(frame: Frame) -> PhysAddr {
    PhysAddr::from_usize(frame.address().as_u64() as usize)
}

#[test]
fn both_cpus_see_each_change_after_the_flush() {
    let bench = Bench::new();
    let (frame, other) = (bench.block(0, 7), bench.block(0, 8));
    let mut table = ManagedTable::new(&bench.table);
    let mapped = table
        .cursor()
        .map(at(PAGE), physical(frame), PageSize::Size4K, READ_WRITE);
    assert_eq!(mapped, Ok(()));
    assert_eq!(
        table.query(at(PAGE + 5)),
        Ok((physical(frame).add(5), READ_WRITE, PageSize::Size4K))
    );
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.store(cpu, PAGE as u64, 7), Ok(()));
    }

    let size = table.cursor().protect(at(PAGE), READ);
    assert_eq!(size, Ok(PageSize::Size4K));
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.load(cpu, PAGE as u64), Ok(7));
        assert!(bench.store(cpu, PAGE as u64, 9).is_err());
    }

    let size = table.cursor().remap(at(PAGE), physical(other), READ_WRITE);
    assert_eq!(size, Ok(PageSize::Size4K));
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.load(cpu, PAGE as u64), Ok(8));
    }

    let unmapped = table.cursor().unmap(at(PAGE));
    assert_eq!(
        unmapped,
        Ok((physical(other), READ_WRITE, PageSize::Size4K))
    );
    for cpu in [FIRST, SECOND] {
        assert!(bench.load(cpu, PAGE as u64).is_err());
    }
    bench.free(frame);
    bench.free(other);
}

#[test]
fn one_flush_is_sent_for_all_changes_of_a_cursor() {
    let bench = Bench::new();
    let block = bench.block(9, 1);
    let mut table = ManagedTable::new(&bench.table);
    let size = 16 * 0x1000;
    let target = |address: VirtAddr| physical(block).add(address.as_usize() - PAGE);
    let mapped = table
        .cursor()
        .map_region(at(PAGE), target, size, READ_WRITE, true);
    assert_eq!(mapped, Ok(()));
    for page in 0..16 {
        let address = (PAGE + page * 0x1000) as u64;
        assert_eq!(bench.store(SECOND, address, page as u8), Ok(()));
    }
    let before = bench.interrupts();
    let mut cursor = table.cursor();
    cursor.protect_region(at(PAGE), size / 2, READ).unwrap();
    cursor.unmap_region(at(PAGE + size / 2), size / 2).unwrap();
    assert_eq!(bench.interrupts(), before);
    cursor.flush();
    assert_eq!(bench.interrupts(), before + 1);
    drop(cursor);
    assert_eq!(bench.interrupts(), before + 1);
    for page in 0..16 {
        let address = (PAGE + page * 0x1000) as u64;
        let expected = (page < 8).then_some(page as u8);
        assert_eq!(bench.load(SECOND, address).ok(), expected);
        assert!(bench.store(SECOND, address, 0).is_err());
    }
    table.cursor().unmap_region(at(PAGE), size / 2).unwrap();
    drop(bench.frames.adopt_whole(block));
}

#[test]
fn a_region_has_huge_pages_where_they_fit() {
    let bench = Bench::new();
    let block = bench.block(9, 1);
    let mut table = ManagedTable::new(&bench.table);
    let target = |address: VirtAddr| physical(block).add(address.as_usize() & 0x1f_ffff);
    let size = 0x20_0000 + 0x3000;
    table
        .cursor()
        .map_region(at(HUGE), target, size, READ, true)
        .unwrap();
    let (_, _, page) = table.query(at(HUGE + 0x1000)).unwrap();
    assert_eq!(page, PageSize::Size2M);
    let (_, _, page) = table.query(at(HUGE + 0x20_0000)).unwrap();
    assert_eq!(page, PageSize::Size4K);
    assert_eq!(bench.load(SECOND, HUGE as u64), Ok(1));
    assert_eq!(bench.load(SECOND, HUGE as u64 + 0x20_0000), Ok(1));

    // No operation on a region splits a huge page.
    let mut cursor = table.cursor();
    let part = at(HUGE + 0x1000);
    assert_eq!(
        cursor.protect_region(part, 0x1000, READ_WRITE),
        Err(PagingError::NotAligned)
    );
    assert_eq!(
        cursor.unmap_region(part, 0x1000),
        Err(PagingError::NotAligned)
    );
    cursor.unmap_region(at(HUGE), size).unwrap();
    drop(cursor);
    assert!(bench.load(SECOND, HUGE as u64).is_err());
    drop(bench.frames.adopt_whole(block));
}

#[test]
fn errors_are_those_of_the_crate() {
    let bench = Bench::new();
    let frame = bench.block(0, 1);
    let mut table = ManagedTable::new(&bench.table);
    assert_eq!(table.query(at(PAGE)), Err(PagingError::NotMapped));
    let mut cursor = table.cursor();
    assert_eq!(cursor.unmap(at(PAGE)), Err(PagingError::NotMapped));
    assert_eq!(cursor.protect(at(PAGE), READ), Err(PagingError::NotMapped));
    let page = PageSize::Size4K;
    assert_eq!(cursor.map(at(PAGE), physical(frame), page, READ), Ok(()));
    assert_eq!(
        cursor.map(at(PAGE), physical(frame), page, READ),
        Err(PagingError::AlreadyMapped)
    );
    assert_eq!(
        cursor.map(at(PAGE), physical(frame), PageSize::Size2M, READ),
        Err(PagingError::AlreadyMapped)
    );
    assert_eq!(
        cursor.map(at(HUGE), physical(frame), PageSize::Size1M, READ),
        Err(PagingError::NotAligned)
    );
    for (start, size) in [(PAGE + 1, 0x1000), (PAGE, 0x1001)] {
        let target = |_| physical(frame);
        let mapped = cursor.map_region(at(start), target, size, READ, false);
        assert_eq!(mapped, Err(PagingError::NotAligned));
        let protected = cursor.protect_region(at(start), size, READ);
        assert_eq!(protected, Err(PagingError::NotAligned));
        assert_eq!(
            cursor.unmap_region(at(start), size),
            Err(PagingError::NotAligned)
        );
    }
    assert_eq!(
        cursor.map(at(0xffff_8000_0000_0000), physical(frame), page, READ),
        Err(PagingError::NotAligned)
    );
    let all = bench.exhaust();
    assert_eq!(
        cursor.map(at(1 << 37), physical(frame), page, READ),
        Err(PagingError::NoMemory)
    );
    all.into_iter().for_each(|frame| bench.free(frame));

    // A page without rights stays mapped, and gets rights again.
    cursor.protect(at(PAGE), Flags::USER).unwrap();
    cursor.flush();
    assert!(bench.load(SECOND, PAGE as u64).is_err());
    assert_eq!(cursor.query(at(PAGE)), Err(PagingError::NotMapped));
    cursor.protect(at(PAGE), READ).unwrap();
    cursor.flush();
    assert_eq!(bench.load(SECOND, PAGE as u64), Ok(1));
    cursor.unmap(at(PAGE)).unwrap();
    drop(cursor);
    bench.free(frame);
}

#[test]
#[should_panic(expected = "the unsupported flags 0x29")]
fn memory_of_the_allocator_is_cached() {
    let bench = Bench::new();
    let frame = bench.block(0, 1);
    let mut table = ManagedTable::new(&bench.table);
    let flags = READ | Flags::UNCACHED;
    let _ = table
        .cursor()
        .map(at(PAGE), physical(frame), PageSize::Size4K, flags);
}
