//! `Mapper` and `Translate` of `x86_64` on a table that two simulated CPUs have loaded.

mod common;

use common::{Bench, FIRST, SECOND};
use memwright_adapters::Unsupported;
use memwright_adapters::mapper::{NoFrames, TableMapper};
use memwright_sim::SimulatedMachine;
use memwright_table::{Frame, FrameKind};
use x86_64::structures::paging::mapper::{
    FlagUpdateError, MapToError, MappedFrame, MapperAllSizes, Translate, TranslateError,
    TranslateResult, UnmapError,
};
use x86_64::structures::paging::{
    Mapper, Page, PageSize, PageTableFlags as Flags, PhysFrame, Size1GiB, Size2MiB, Size4KiB,
};
use x86_64::{PhysAddr, VirtAddr};

const PAGE: u64 = 0x40_0000;
const HUGE: u64 = 0x4020_0000;

const READ: Flags = Flags::PRESENT
    .union(Flags::USER_ACCESSIBLE)
    .union(Flags::NO_EXECUTE);
const READ_WRITE: Flags = READ.union(Flags::WRITABLE);

type Simulated<'t> = TableMapper<'t, SimulatedMachine>;

fn page<S: PageSize>(address: u64) -> Page<S> {
    Page::containing_address(VirtAddr::new(address))
}

fn physical<S: PageSize>(frame: Frame) -> PhysFrame<S> {
    PhysFrame::containing_address(PhysAddr::new(frame.address().as_u64()))
}

fn map<S: PageSize>(
    mapper: &mut Simulated<'_>,
    at: u64,
    frame: Frame,
    flags: Flags,
) -> Result<(), MapToError<S>> {
    // SAFETY: only simulated CPUs access the page.
    let mapped =
        unsafe { mapper.map_to(page::<S>(at), physical::<S>(frame), flags, &mut NoFrames) };
    mapped.map(|flush| flush.ignore())
}

fn update<S: PageSize>(
    mapper: &mut Simulated<'_>,
    at: u64,
    flags: Flags,
) -> Result<(), FlagUpdateError> {
    // SAFETY: as above.
    let updated = unsafe { mapper.update_flags(page::<S>(at), flags) };
    updated.map(|flush| flush.ignore())
}

fn unmap<S: PageSize>(mapper: &mut Simulated<'_>, at: u64) -> Result<u64, UnmapError> {
    let unmapped = mapper.unmap(page::<S>(at));
    unmapped.map(|(frame, flush)| {
        flush.ignore();
        frame.start_address().as_u64()
    })
}

#[test]
fn both_cpus_see_each_change_when_it_returns() {
    let bench = Bench::new();
    let frame = bench.block(0, 7);
    let mut mapper = TableMapper::new(&bench.table);
    map::<Size4KiB>(&mut mapper, PAGE, frame, READ_WRITE).unwrap();
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.load(cpu, PAGE), Ok(7));
        assert_eq!(bench.store(cpu, PAGE + 1, 8), Ok(()));
        assert!(bench.fetch(cpu, PAGE).is_err());
    }

    let before = bench.interrupts();
    update::<Size4KiB>(&mut mapper, PAGE, READ).unwrap();
    assert_eq!(bench.interrupts(), before + 1);
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.load(cpu, PAGE + 1), Ok(8));
        assert!(bench.store(cpu, PAGE, 9).is_err());
    }

    let executable = READ_WRITE.difference(Flags::NO_EXECUTE);
    update::<Size4KiB>(&mut mapper, PAGE, executable).unwrap();
    for cpu in [FIRST, SECOND] {
        assert_eq!(bench.fetch(cpu, PAGE), Ok(7));
        assert_eq!(bench.store(cpu, PAGE + 1, 9), Ok(()));
    }

    let before = bench.interrupts();
    assert_eq!(
        unmap::<Size4KiB>(&mut mapper, PAGE).unwrap(),
        frame.address().as_u64()
    );
    assert_eq!(bench.interrupts(), before + 1);
    for cpu in [FIRST, SECOND] {
        assert!(!bench.load(cpu, PAGE).unwrap_err().code.present);
    }
    // The frame still belongs to the caller.
    assert_eq!(bench.frames.references(frame), 1);
    bench.free(frame);
}

#[test]
fn pages_of_every_size_are_mapped() {
    fn has_all_sizes(_: &impl MapperAllSizes) {}

    let bench = Bench::new();
    let block = bench.block(9, 1);
    bench.frames.write(Frame::new(block.number() + 5), 0, &[2]);
    let mut mapper = TableMapper::new(&bench.table);
    has_all_sizes(&mapper);
    map::<Size2MiB>(&mut mapper, HUGE, block, READ_WRITE).unwrap();
    assert_eq!(bench.load(SECOND, HUGE), Ok(1));
    assert_eq!(bench.load(SECOND, HUGE + 0x5000), Ok(2));
    let TranslateResult::Mapped {
        frame: MappedFrame::Size2MiB(frame),
        offset: 0x5123,
        flags,
    } = mapper.translate(VirtAddr::new(HUGE + 0x5123))
    else {
        panic!("a page of 2 MiB");
    };
    assert_eq!(frame, physical(block));
    assert_eq!(flags, READ_WRITE | Flags::HUGE_PAGE | Flags::ACCESSED);
    assert_eq!(
        mapper.translate_page(page::<Size2MiB>(HUGE)).unwrap(),
        frame
    );
    update::<Size2MiB>(&mut mapper, HUGE, READ).unwrap();
    assert!(bench.store(SECOND, HUGE + 0x5000, 3).is_err());
    unmap::<Size2MiB>(&mut mapper, HUGE).unwrap();
    assert!(bench.load(SECOND, HUGE + 0x5000).is_err());

    // The simulated machine has less than 1 GiB of memory. Its CPUs find the entry of a 1 GiB page, and refuse it.
    let gib = 2 << 30;
    let inside = gib + 0x20_5000;
    map::<Size1GiB>(&mut mapper, gib, Frame::new(0x4_0000), READ).unwrap();
    assert!(bench.load(SECOND, inside).unwrap_err().code.reserved);
    let at = PhysAddr::new(0x4020_5000);
    assert_eq!(mapper.translate_addr(VirtAddr::new(inside)), Some(at));
    update::<Size1GiB>(&mut mapper, gib, READ_WRITE).unwrap();
    assert!(matches!(
        mapper.translate_page(page::<Size4KiB>(gib)),
        Err(TranslateError::ParentEntryHugePage)
    ));
    unmap::<Size1GiB>(&mut mapper, gib).unwrap();
    assert!(!bench.load(SECOND, inside).unwrap_err().code.present);
    drop(bench.frames.adopt_whole(block));
}

#[test]
fn errors_are_those_of_the_trait() {
    let bench = Bench::new();
    let (frame, other, block) = (bench.block(0, 1), bench.block(0, 2), bench.block(9, 3));
    let mut mapper = TableMapper::new(&bench.table);
    assert!(matches!(
        unmap::<Size4KiB>(&mut mapper, PAGE),
        Err(UnmapError::PageNotMapped)
    ));
    assert!(matches!(
        update::<Size4KiB>(&mut mapper, PAGE, READ),
        Err(FlagUpdateError::PageNotMapped)
    ));
    assert!(matches!(
        mapper.translate_page(page::<Size4KiB>(PAGE)),
        Err(TranslateError::PageNotMapped)
    ));
    map::<Size4KiB>(&mut mapper, PAGE, frame, READ).unwrap();
    let Err(MapToError::PageAlreadyMapped(mapped)) =
        map::<Size4KiB>(&mut mapper, PAGE, other, READ)
    else {
        panic!("a page is mapped");
    };
    assert_eq!(mapped, physical(frame));
    assert_eq!(bench.load(SECOND, PAGE), Ok(1));

    // A huge page where a small one is mapped, and the reverse.
    assert!(matches!(
        map::<Size2MiB>(&mut mapper, PAGE, block, READ),
        Err(MapToError::PageAlreadyMapped(_))
    ));
    assert!(matches!(
        unmap::<Size2MiB>(&mut mapper, PAGE),
        Err(UnmapError::ParentEntryHugePage)
    ));
    map::<Size2MiB>(&mut mapper, HUGE, block, READ).unwrap();
    let inside = HUGE + 0x3000;
    assert!(matches!(
        map::<Size4KiB>(&mut mapper, inside, frame, READ),
        Err(MapToError::ParentEntryHugePage)
    ));
    assert!(matches!(
        unmap::<Size4KiB>(&mut mapper, inside),
        Err(UnmapError::ParentEntryHugePage)
    ));
    assert!(matches!(
        update::<Size4KiB>(&mut mapper, inside, READ_WRITE),
        Err(FlagUpdateError::ParentEntryHugePage)
    ));

    // Entries above the last level have no flags of their own.
    let at = page::<Size4KiB>(PAGE);
    // SAFETY: nothing changes.
    let refused = unsafe {
        [
            mapper.set_flags_p4_entry(at, READ),
            mapper.set_flags_p3_entry(at, READ),
            mapper.set_flags_p2_entry(at, READ),
        ]
    };
    for one in refused {
        assert!(matches!(one, Err(FlagUpdateError::ParentEntryHugePage)));
    }

    // Once all pages of a table are unmapped, a huge page can take the place of the table.
    unmap::<Size4KiB>(&mut mapper, PAGE).unwrap();
    unmap::<Size2MiB>(&mut mapper, HUGE).unwrap();
    map::<Size2MiB>(&mut mapper, PAGE, block, READ).unwrap();
    assert_eq!(bench.load(SECOND, PAGE), Ok(3));
    unmap::<Size2MiB>(&mut mapper, PAGE).unwrap();
    bench.free(frame);
    bench.free(other);
    drop(bench.frames.adopt_whole(block));
}

#[test]
fn a_table_that_cannot_be_allocated_is_an_error() {
    let bench = Bench::new();
    let frame = bench.block(0, 1);
    let mut mapper = TableMapper::new(&bench.table);
    map::<Size4KiB>(&mut mapper, PAGE, frame, READ).unwrap();
    let all = bench.exhaust();
    let tables = bench.table.table_frames();
    assert!(matches!(
        map::<Size4KiB>(&mut mapper, 1 << 37, frame, READ),
        Err(MapToError::FrameAllocationFailed)
    ));
    // A page that needs no further table is mapped.
    map::<Size4KiB>(&mut mapper, PAGE + 0x1000, frame, READ).unwrap();
    assert_eq!(bench.load(SECOND, PAGE + 0x1000), Ok(1));
    all.into_iter().for_each(|frame| bench.free(frame));
    assert!(bench.table.table_frames() >= tables);
    for at in [PAGE, PAGE + 0x1000] {
        unmap::<Size4KiB>(&mut mapper, at).unwrap();
    }
    bench.free(frame);
}

#[test]
#[should_panic(expected = "a page that user mode cannot access")]
fn a_page_of_the_kernel_is_not_mapped_for_programs() {
    let bench = Bench::new();
    let frame = bench.block(0, 1);
    let mut mapper = TableMapper::new(&bench.table);
    let flags = READ.difference(Flags::USER_ACCESSIBLE);
    assert_eq!(Simulated::check(flags), Err(Unsupported::NotUser));
    let _ = map::<Size4KiB>(&mut mapper, PAGE, frame, flags);
}

#[test]
#[should_panic(expected = "cannot be mapped: NotUser")]
fn a_kernel_address_is_not_mapped() {
    let bench = Bench::new();
    let frame = bench.block(0, 1);
    let mut mapper = TableMapper::new(&bench.table);
    let _ = map::<Size4KiB>(&mut mapper, 0xffff_8000_0000_0000, frame, READ);
}

#[test]
#[should_panic(expected = "belongs to an address space")]
fn a_page_of_an_address_space_is_not_unmapped() {
    use memwright_table::{Bits, Entry, PageRange};

    let bench = Bench::new();
    let range = PageRange::single(memwright_table::VirtAddr::new(PAGE).page());
    let block = bench.frames.allocate_zeroed(0, FrameKind::Anonymous);
    let entry = Entry::page(block.unwrap().into_raw(), Bits::READ | Bits::EXCLUSIVE);
    bench.table.cursor(range).fill(entry).unwrap();
    let mut mapper = TableMapper::new(&bench.table);
    let _ = unmap::<Size4KiB>(&mut mapper, PAGE);
}
