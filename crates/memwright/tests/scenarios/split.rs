//! Tests of splitting folios on request: at an address, of an object, or all folios. Other tests check which
//! zero-filled pages a split frees.

use memwright_sim::Arch;
use std::sync::Arc;

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{
    Advice, FaultKind, HugeMode, LockError, RemapRequest, Row, SharedMode, SharedSetting,
};
use memwright::{FolioSplit, FolioSplits};
use memwright_table::{Architecture, Bits, PageRange, PageSize, Pinned, Present};

use crate::world::{Machine, PAGE, Process, R, RW, World, page, rows};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

const ONE: FolioSplits = FolioSplits { found: 1, split: 1 };
const REFUSED: FolioSplits = FolioSplits { found: 1, split: 0 };
const NOTHING: FolioSplits = FolioSplits { found: 0, split: 0 };

fn world() -> World {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Always);
    world.memory.huge().set_shared_mode(SharedMode::Always);
    world
}

/// Creates a process with a huge page. Each small page of the huge page contains its number, but is zero if its number
/// is a multiple of `zeroes`.
fn filled(world: &World, zeroes: u64) -> Process<'_> {
    let mut process = world.process();
    process.map(FIRST, HUGE, RW);
    for index in 0..HUGE {
        process.store(FIRST + index, value(index, zeroes)).unwrap();
    }
    assert_eq!(shown(&process, 0).size, PageSize::Size2M);
    process
}

fn value(index: u64, zeroes: u64) -> u8 {
    if index % zeroes == 0 {
        0
    } else {
        (index % 255) as u8 + 1
    }
}

fn range(first: u64, pages: u64) -> PageRange {
    let start = page(FIRST + first).page();
    PageRange::new(start, start.add(pages))
}

fn to(order: u32) -> FolioSplit {
    FolioSplit { order, at: None }
}

fn shown(process: &Process<'_>, index: u64) -> Present {
    let entry = process.space.entry(page(FIRST + index));
    entry.present().unwrap()
}

/// Returns the order of the folio that each page belongs to.
fn orders(process: &Process<'_>) -> Vec<u8> {
    let order = |index| {
        let entry = process.space.entry(page(FIRST + index)).present();
        entry.map_or(0, |entry| {
            let at = page(FIRST + index).page();
            process.world.frames.folio_order(entry.frame_of(at))
        })
    };
    (0..HUGE).map(order).collect()
}

fn shared(world: &World) -> Arc<Shmem<Machine>> {
    let identity = ObjectIdentity::default();
    let object = Shmem::new(world.memory.clone(), HUGE * PAGE, identity).unwrap();
    Arc::new(object.with_huge_pages(SharedSetting::File))
}

#[test]
fn contents_rights_and_marks_stay_in_folios_of_every_size() {
    for order in [0, 2, 5, 8] {
        let world = world();
        let mut process = filled(&world, HUGE * 2);
        process.store(FIRST, 9).unwrap();
        let before = shown(&process, 0);
        assert!(
            before
                .bits
                .contains(Bits::EXCLUSIVE | Bits::DIRTY | Bits::WRITE)
        );
        let account = world.counted(|| {
            assert_eq!(
                process
                    .space
                    .huge_pages()
                    .split_folios(range(0, HUGE), to(order)),
                ONE
            );
        });
        assert_eq!(
            rows(&account, &[Row::HugeSplitsAsked, Row::FramesCopied]),
            [1, 0]
        );
        process.check();
        assert_eq!(orders(&process), [order as u8; HUGE as usize]);
        for index in 1..HUGE {
            let after = shown(&process, index);
            assert_eq!(after.size, PageSize::Size4K);
            assert_eq!(after.frame.number(), before.frame.number() + index as u32);
            assert_eq!(after.bits, before.bits);
            assert_eq!(process.load(FIRST + index), value(index, HUGE * 2));
            // Like the huge page before, the small page is exclusive: a store does not fault.
            assert_eq!(process.store(FIRST + index, 1), Ok(vec![]));
        }
        assert_eq!(process.resident(), HUGE);
        // A second split to the same order finds no folio to split.
        assert_eq!(
            process
                .space
                .huge_pages()
                .split_folios(range(0, HUGE), to(order)),
            NOTHING
        );
    }
}

#[test]
fn one_page_of_the_range_is_enough_and_a_hole_ends_it() {
    let world = world();
    let mut process = filled(&world, 2 * HUGE);
    process.map(0, 2, RW);
    process.store(0, 1).unwrap();
    let before = PageRange::new(page(0).page(), page(FIRST + HUGE).page());
    assert_eq!(
        process.space.huge_pages().split_folios(before, to(0)),
        NOTHING
    );
    assert_eq!(orders(&process), [9; HUGE as usize]);
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(300, 1), to(3)),
        ONE
    );
    assert_eq!(orders(&process), [3; HUGE as usize]);
    // The folios into which a huge page was split are found one by one.
    let some = FolioSplits { found: 3, split: 3 };
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(15, 10), to(2)),
        some
    );
    assert_eq!(orders(&process)[4..40], {
        let mut expected = [3; 36];
        expected[4..28].fill(2);
        expected
    });
}

#[test]
fn only_what_lies_around_a_page_becomes_small() {
    let world = world();
    let process = filled(&world, 2 * HUGE);
    let split = FolioSplit {
        order: 4,
        at: Some(130),
    };
    assert_eq!(
        process.space.huge_pages().split_folios(range(0, 1), split),
        ONE
    );
    let expected = |index| match index {
        256.. => 8,
        192..256 => 6,
        160..192 => 5,
        128..160 => 4,
        0..128 => 7,
    };
    let expected: Vec<u8> = (0..HUGE as u32).map(expected).collect();
    assert_eq!(orders(&process), expected);
    // A folio of anonymous memory never has two pages.
    let four = FolioSplit {
        order: 0,
        at: Some(2),
    };
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(1))
            .split,
        0
    );
    process
        .space
        .huge_pages()
        .split_folios(range(128, 16), to(2));
    assert_eq!(
        process.space.huge_pages().split_folios(range(132, 1), four),
        ONE
    );
    assert_eq!(
        orders(&process)[128..140],
        [2, 2, 2, 2, 0, 0, 0, 0, 2, 2, 2, 2]
    );
}

#[test]
fn pages_of_zeroes_are_given_back() {
    let world = world();
    let mut process = filled(&world, 4);
    let used = world.frames.used();
    let bits = shown(&process, 1).bits;
    let account = world.counted(|| {
        assert_eq!(
            process
                .space
                .huge_pages()
                .split_folios(range(0, HUGE), to(0)),
            ONE
        );
    });
    process.check();
    let zeroes = HUGE / 4;
    assert_eq!(account.count(Row::HugeSplitZeroes), zeroes);
    assert_eq!(process.resident(), HUGE - zeroes);
    assert_eq!(world.frames.used(), used - zeroes);
    let zero = shown(&process, 4);
    assert_eq!(zero.frame, world.memory.zero_frame());
    let kept = bits - (Bits::WRITE | Bits::EXCLUSIVE);
    assert_eq!(zero.bits, kept | Bits::BORROWED);
    assert!(zero.bits.contains(Bits::SOFT_DIRTY | Bits::DIRTY));
    for index in 0..HUGE {
        assert_eq!(process.load(FIRST + index), value(index, 4));
    }
    assert_eq!(process.store(FIRST + 1, 7), Ok(vec![]));
    assert_eq!(process.store(FIRST + 4, 7), Ok(vec![FaultKind::Copy]));
    assert_eq!((process.load(FIRST + 4), process.load(FIRST + 8)), (7, 0));
    // The zero page that replaced a zero-filled page does not count as a merged page.
    assert_eq!(process.space.ksm().merged_pages().zero, 0);
}

#[test]
fn pages_of_zeroes_stay_in_larger_folios_and_where_others_count_on_them() -> Result<(), LockError> {
    let world = world();
    let stays = |process: &Process<'_>, order| {
        let account = world.counted(|| {
            assert_eq!(
                process
                    .space
                    .huge_pages()
                    .split_folios(range(0, HUGE), to(order)),
                ONE
            );
        });
        assert_eq!(account.count(Row::HugeSplitZeroes), 0);
        assert_eq!(process.resident(), HUGE);
        process.check();
    };
    stays(&filled(&world, 4), 2);
    let locked = filled(&world, 4);
    locked
        .space
        .residency()
        .lock(page(FIRST), HUGE * PAGE, false)?;
    stays(&locked, 0);
    let parent = filled(&world, 4);
    let child = parent.fork();
    stays(&child, 0);
    Ok(())
}

#[test]
fn whoever_shows_a_huge_page_since_a_fork_shows_its_pages() {
    let world = world();
    let mut parent = filled(&world, 2 * HUGE);
    let mut child = parent.fork();
    assert_eq!(shown(&parent, 0).size, PageSize::Size2M);
    let account = world.counted(|| {
        assert_eq!(
            child.space.huge_pages().split_folios(range(9, 1), to(4)),
            ONE
        );
    });
    assert_eq!(account.count(Row::HugeSplitsAsked), 2);
    for process in [&parent, &child] {
        assert_eq!(orders(process), [4; HUGE as usize]);
        assert_eq!(shown(process, 0).size, PageSize::Size4K);
        process.check();
    }
    assert_eq!(parent.store(FIRST + 3, 1), Ok(vec![FaultKind::Copy]));
    assert_eq!(child.load(FIRST + 3), value(3, 2 * HUGE));
    assert_eq!(child.store(FIRST + 3, 2), Ok(vec![FaultKind::WriteOnly]));
    // The child maps one huge page by 4 KiB entries, the parent by a huge entry.
    let parent = filled(&world, 2 * HUGE);
    let child = parent.fork();
    child.protect(FIRST + 7, 1, R);
    assert_eq!(shown(&child, 7).size, PageSize::Size4K);
    assert_eq!(orders(&child), [9; HUGE as usize]);
    assert_eq!(
        child.space.huge_pages().split_folios(range(7, 1), to(0)),
        ONE
    );
    assert_eq!(shown(&parent, 0).size, PageSize::Size4K);
    assert_eq!(orders(&parent), [0; HUGE as usize]);
}

#[test]
fn what_is_pinned_or_held_stays_whole() {
    let world = world();
    let process = filled(&world, 4);
    let pinned = process.space.pin(page(FIRST + 9)).map(Pinned::into_raw);
    let pinned = pinned.unwrap();
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(0)),
        REFUSED
    );
    assert_eq!(shown(&process, 0).size, PageSize::Size2M);
    world.frames.unpin(pinned);
    let held = world.frames.adopt(pinned);
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(0)),
        REFUSED
    );
    assert_eq!(shown(&process, 0).size, PageSize::Size2M);
    drop(held);
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(2)),
        ONE
    );
    // A pinned folio that is mapped by 4 KiB entries is not split either.
    let pinned = process.space.pin(page(FIRST + 9)).map(Pinned::into_raw);
    let pinned = pinned.unwrap();
    let all_but_one = FolioSplits {
        // The folio that cannot be split is found once at each of its four pages.
        found: HUGE / 4 + 3,
        split: HUGE / 4 - 1,
    };
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(0)),
        all_but_one
    );
    assert_eq!(orders(&process)[8..12], [2; 4]);
    world.frames.unpin(pinned);
    drop(world.frames.adopt(pinned));
}

#[test]
fn a_page_that_was_moved_away_is_one_of_its_folio() {
    let world = world();
    let mut process = filled(&world, 4);
    let away = page(FIRST + 2 * HUGE);
    let request = RemapRequest {
        old: page(FIRST + 5),
        old_length: PAGE,
        new_length: PAGE,
        may_move: true,
        fixed: Some(away),
        dont_unmap: false,
    };
    process.space.remap(request).unwrap();
    let moved = PageRange::single(away.page());
    assert_eq!(process.space.huge_pages().split_folios(moved, to(0)), ONE);
    // Zero-filled pages outside the range are not replaced by the zero page, because the split does not search for
    // their mappings.
    assert_eq!(process.resident(), HUGE);
    assert!(orders(&process).iter().all(|order| *order == 0));
    assert_eq!(process.load(FIRST + 2 * HUGE), value(5, 4));
    process.check();
}

#[test]
fn an_object_has_pages_for_all_who_show_it() {
    let world = world();
    let object = shared(&world);
    let (mut one, mut two) = (world.process(), world.process());
    one.map_object(FIRST, HUGE, RW, &object, true);
    two.map_object(FIRST, HUGE, R, &object, true);
    assert_eq!(one.store(FIRST + 9, 7), Ok(vec![FaultKind::Huge]));
    two.load(FIRST);
    assert_eq!(world.frames.object_folios(), (1, 1));
    let before = shown(&one, 9);
    assert_eq!(one.space.huge_pages().split_folios(range(3, 1), to(1)), ONE);
    for process in [&one, &two] {
        assert_eq!(orders(process), [1; HUGE as usize]);
        assert_eq!(shown(process, 9).frame.number(), before.frame.number() + 9);
        process.check();
    }
    assert_eq!(shown(&one, 9).bits, before.bits);
    assert_eq!(world.frames.object_folios(), (0, 0));
    assert_eq!(object.resident(), HUGE);
    assert_eq!(two.load_with(FIRST + 9), Ok((7, vec![])));
    assert_eq!(one.store(FIRST + 9, 8), Ok(vec![]));
    object.write_at(10 * PAGE, &[9]).unwrap();
    assert_eq!((two.load(FIRST + 9), two.load(FIRST + 10)), (8, 9));
    // A split frees no zero-filled pages of an object.
    assert_eq!(
        one.space
            .huge_pages()
            .split_folios(range(0, HUGE), to(0))
            .split,
        HUGE / 2
    );
    assert_eq!(object.resident(), HUGE);
    // Punching a hole splits the huge page, and a collapse makes it one folio again.
    object.punch(0, PAGE).unwrap();
    assert_eq!(object.resident(), HUGE - 1);
    let start = page(FIRST);
    one.space
        .advise(start, HUGE * PAGE, Advice::Collapse)
        .unwrap();
    assert_eq!(shown(&one, 0).size, PageSize::Size2M);
    assert_eq!(one.load(FIRST + 10), 9);
}

#[cfg(feature = "reclaim")]
#[test]
fn an_object_is_split_by_its_pages_and_with_all_others() {
    let world = world();
    let object = shared(&world);
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &object, true);
    process.store(FIRST + 9, 7).unwrap();
    let pages = |first, end| world.memory.split_object(&*object, first..end, to(3));
    assert_eq!(pages(HUGE, 2 * HUGE), NOTHING);
    assert_eq!(pages(40, 40), NOTHING);
    assert_eq!(pages(40, u64::MAX), ONE);
    assert_eq!(pages(0, HUGE), NOTHING);
    assert_eq!(orders(&process), [3; HUGE as usize]);
    drop(process);

    let (anonymous, shown) = (filled(&world, 4), shared(&world));
    let unmapped = shared(&world);
    let mut process = world.process();
    process.map_object(FIRST, HUGE, RW, &shown, true);
    process.store(FIRST, 1).unwrap();
    process.map_object(FIRST + HUGE, HUGE, RW, &unmapped, true);
    process.store(FIRST + HUGE, 2).unwrap();
    process.unmap(FIRST + HUGE, HUGE);
    assert_eq!(world.frames.object_folios().0, 2);
    let split = world.memory.split_all_folios().unwrap();
    // The folios into which the first object was split are counted too.
    assert!(split.split >= 3, "{split:?}");
    assert_eq!(world.frames.object_folios().0, 0);
    assert_eq!(orders(&process), [0; HUGE as usize]);
    assert_eq!(anonymous.resident(), HUGE - HUGE / 4);
    let mut byte = [0];
    assert_eq!(unmapped.read_at(0, &mut byte), Ok(1));
    assert_eq!((byte[0], unmapped.resident()), (2, HUGE));
}

#[test]
fn the_huge_page_of_zeroes_stays() {
    let world = world();
    let mut process = world.process();
    process.map(FIRST, HUGE, RW);
    process.load(FIRST);
    assert_eq!(
        process
            .space
            .huge_pages()
            .split_folios(range(0, HUGE), to(0)),
        NOTHING
    );
    assert_eq!(shown(&process, 0).size, PageSize::Size2M);
    let all = Arch::USER;
    assert_eq!(process.space.huge_pages().split_folios(all, to(0)), NOTHING);
}
