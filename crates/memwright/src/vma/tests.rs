//! Tests of the map of areas. Layouts are drawn as rows: one letter for each mapped page, `.` for a free page. Areas of
//! the same letter have the same backing and rights. A `|` separates two adjacent areas.

use memwright_table::{OneCpu, Page, PageRange};
use std::string::{String, ToString};
use std::vec::Vec;

use crate::types::rights::Rights;
use crate::types::swap_window::{Window, WindowCell};
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};
use crate::vma::area::{Area, AreaFlags, Backed};
use crate::vma::bin::AreaBin;
use crate::vma::map::{AreaMap, CHUNK};
use crate::vma::room::STACK_GUARD_PAGES;

impl Backed for char {
    type Threads = OneCpu;

    fn same(&self, other: &Self) -> bool {
        self == other
    }

    fn note_end(&self, _end: u64) {}

    fn notifies_first_write(&self) -> bool {
        false
    }
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(Page::new(start), Page::new(end))
}

/// Creates an area of `backing`. The offsets are as if it were mapped from page 0 on, so that adjacent areas of the
/// same letter can merge.
fn area(start: u64, end: u64, backing: char) -> Area<char> {
    let rights = if backing.is_uppercase() {
        Rights::all()
    } else {
        Rights::READ
    };
    Area {
        range: range(start, end),
        offset: start,
        flags: AreaFlags::empty(),
        rights,
        max_rights: Rights::all(),
        placement: crate::types::numa_policy::PolicyId::NONE,
        anon_vma: AnonVmaCell::new(AnonVma::NONE),
        window: WindowCell::new(Window::NONE),
        backing: backing.to_ascii_lowercase(),
    }
}

/// Builds the map that a row draws.
fn map(row: &str) -> AreaMap<char> {
    let mut map = AreaMap::EMPTY;
    let mut page = 0;
    let mut open: Option<(u64, char)> = None;
    for letter in row.chars().chain(['.']) {
        if let Some((start, backing)) = open.filter(|(_, backing)| *backing != letter) {
            map.reserve(1).unwrap();
            map.insert(area(start, page, backing));
            open = None;
        }
        if letter == '|' {
            continue;
        }
        if letter != '.' && open.is_none() {
            open = Some((page, letter));
        }
        page += 1;
    }
    map
}

/// Returns the row that draws a map.
fn row(map: &AreaMap<char>) -> String {
    let mut row = String::new();
    let mut page = 0;
    for area in map.iter() {
        while page < area.start().number() {
            row.push('.');
            page += 1;
        }
        if !row.is_empty() && !row.ends_with('.') {
            row.push('|');
        }
        for _ in 0..area.pages() {
            let upper = area.rights().contains(Rights::WRITE);
            row.push(if upper {
                area.backing.to_ascii_uppercase()
            } else {
                area.backing
            });
            page += 1;
        }
    }
    row
}

#[test]
fn rows_draw_maps() {
    for drawn in ["", "aa", "..aa", "aa|bb", "a|A|a", "..aa...bb|B"] {
        assert_eq!(row(&map(drawn)), drawn.trim_end_matches('.'));
    }
}

#[test]
fn a_split_cuts_where_it_is_asked_to() {
    #[rustfmt::skip]
    let rows = [
        ("aaaa",   2, "aa|aa"),
        ("aaaa",   0, "aaaa"),
        ("aaaa",   4, "aaaa"),
        ("..aa",   1, "..aa"),
        ("aa|bb",  2, "aa|bb"),
        ("aa|bb",  3, "aa|b|b"),
        ("aa.bb",  2, "aa.bb"),
    ];
    for (before, at, after) in rows {
        let mut map = map(before);
        map.reserve(1).unwrap();
        let cut = map.split_at(Page::new(at));
        assert_eq!(row(&map), after, "{before} at {at}");
        assert_eq!(cut, before != after);
        assert_eq!(map.take_counts(), (u64::from(cut), 0));
    }
}

#[test]
fn neighbours_merge_when_all_agrees() {
    #[rustfmt::skip]
    let rows = [
        ("aa|aa",     2, "aaaa"),
        ("aa|aa|aa",  2, "aaaaaa"),
        ("aa|aa|aa",  0, "aaaa|aa"),
        ("aa|bb|aa",  2, "aa|bb|aa"),
        ("aa|AA|aa",  2, "aa|AA|aa"),
        ("AA|aa|AA",  0, "AA|aa|AA"),
        ("aa.aa",     0, "aa.aa"),
        ("bb|aa|aa",  2, "bb|aaaa"),
        ("aa|aa|aa|aa", 2, "aaaaaa|aa"),
    ];
    for (before, at, after) in rows {
        let mut map = map(before);
        let position = map.at_or_after(Page::new(at)).unwrap();
        let merged = map.merge_around(position);
        assert_eq!(row(&map), after, "{before} at {at}");
        assert!(
            map.get(merged).range().contains(Page::new(at)),
            "{before} at {at}"
        );
    }
}

#[test]
fn what_keeps_two_areas_apart() {
    let left = || area(0, 2, 'a');
    let right = || area(2, 4, 'a');
    assert!(left().may_merge(&right()));
    type Change = fn(&mut Area<char>);
    #[rustfmt::skip]
    let changes: [(&str, Change, bool); 10] = [
        ("rights",         |area| area.rights = Rights::empty(),           false),
        ("most rights",    |area| area.max_rights = Rights::READ,          false),
        ("flags",          |area| area.flags |= AreaFlags::DONTFORK,       false),
        ("a lock",         |area| area.flags |= AreaFlags::LOCKED,         false),
        ("a guard",        |area| area.flags |= AreaFlags::GUARDED,        true),
        ("the offset",     |area| area.offset += 1,                        false),
        ("a move",         |area| area.anon_vma.set(AnonVma::founded(1).moved(Page::new(1), Page::new(2))), false),
        ("the backing",    |area| area.backing = 'b',                      false),
        ("having faulted", |area| area.anon_vma.found::<OneCpu>(AnonVma::founded(1)), true),
        ("a fork",         |area| area.anon_vma.found::<OneCpu>(AnonVma::forked(1)),  false),
    ];
    for (name, change, merges) in changes {
        let mut changed = right();
        change(&mut changed);
        assert_eq!(left().may_merge(&changed), merges, "{name}");
    }
    assert!(!left().may_merge(&area(3, 4, 'a')), "a hole");
}

#[test]
fn a_merged_area_keeps_what_either_knew() {
    let mut map = map("aa|aa");
    let second = map.at_or_after(Page::new(2)).unwrap();
    map.get_mut(second).flags |= AreaFlags::GUARDED;
    map.get(second)
        .anon_vma
        .found::<OneCpu>(AnonVma::founded(1));
    map.merge_around(second);
    let merged = map.find(Page::new(0)).unwrap();
    assert!(merged.has_faulted());
    assert_eq!(merged.flags(), AreaFlags::GUARDED);
    assert_eq!(map.take_counts(), (0, 1));
}

#[test]
fn room_is_found_from_the_top_and_from_the_bottom() {
    #[rustfmt::skip]
    let rows = [
        // map                pages  bounds   highest   lowest
        ("",                    4,  (0, 10),  Some(6),  Some(0)),
        ("",                   11,  (0, 10),  None,     None),
        ("........aa",          3,  (0, 10),  Some(5),  Some(0)),
        ("aa....bb..",          2,  (0, 10),  Some(8),  Some(2)),
        ("aa....bb..",          4,  (0, 10),  Some(2),  Some(2)),
        ("aa....bb..",          5,  (0, 10),  None,     None),
        ("aa....bb..cc",        2,  (0, 10),  Some(8),  Some(2)),
        ("aa....bb..cc",        2,  (4, 10),  Some(8),  Some(4)),
        ("aa....bb..cc",        2,  (5,  9),  None,     None),
        ("..aaaaaaaa",          2,  (0, 10),  Some(0),  Some(0)),
        ("..aaaaaaaa",          2,  (1, 10),  None,     None),
        ("aaaaaaaaaaaa",        1,  (2,  8),  None,     None),
    ];
    for (drawn, pages, (start, end), highest, lowest) in rows {
        let mut map = map(drawn);
        let bounds = range(start, end);
        for _ in 0..2 {
            assert_eq!(
                map.highest_room(pages, bounds),
                highest.map(Page::new),
                "{drawn} {pages}"
            );
        }
        assert_eq!(
            map.lowest_room(pages, bounds),
            lowest.map(Page::new),
            "{drawn} {pages}"
        );
    }
}

#[test]
fn an_area_that_grows_downwards_keeps_its_guard() {
    let top = 2 * STACK_GUARD_PAGES;
    let mut stack = area(top, top + 10, 'S');
    stack.flags |= AreaFlags::GROWSDOWN;
    let mut map = AreaMap::EMPTY;
    map.reserve(1).unwrap();
    map.insert(stack);
    let bounds = range(0, top);
    assert_eq!(
        map.highest_room(1, bounds),
        Some(Page::new(top - STACK_GUARD_PAGES - 1))
    );
    assert_eq!(
        map.lowest_room(STACK_GUARD_PAGES, bounds),
        Some(Page::new(0))
    );
    assert_eq!(map.lowest_room(STACK_GUARD_PAGES + 1, bounds), None);
    let beyond = range(0, top + 100);
    assert_eq!(map.highest_room(80, beyond), Some(Page::new(top + 20)));
}

/// A pseudo-random number generator with the same sequence on every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

#[test]
#[cfg_attr(
    miri,
    ignore = "40,000 steps, compared page by page: hours; nothing here is unsafe"
)]
fn many_areas_behave_as_a_plain_vector_of_pages() {
    const PAGES: u64 = 16_384;
    let mut numbers = Numbers(7);
    let mut map: AreaMap<char> = AreaMap::EMPTY;
    let mut pages: Vec<Option<char>> = std::vec![None; PAGES as usize];
    let mut most = 0;
    for step in 0..40_000 {
        // In some steps areas are large, so that they replace whole chunks, which later steps add again.
        let longest = if step % 8000 < 6000 { 3 } else { 200 };
        let start = numbers.below(PAGES);
        let end = (start + 1 + numbers.below(longest)).min(PAGES);
        if step % 5 == 0 {
            grow(&mut map, &mut pages, &mut numbers, start);
            continue;
        }
        let wanted = range(start, end);
        map.reserve(3).unwrap();
        map.split_at(wanted.start);
        map.split_at(wanted.end);
        let mut next = map.at_or_after(wanted.start);
        while let Some(position) = next.filter(|next| map.get(*next).start() < wanted.end) {
            let removed;
            (removed, next) = map.remove(position);
            assert!(wanted.covers(removed.range()));
            assert_eq!(next, map.at_or_after(removed.end()));
        }
        let kind = ['a', 'b', 'A', '.', 'B'][numbers.below(5) as usize];
        let new = (kind != '.').then_some(kind);
        if new.is_some() {
            let position = map.insert(area(start, end, kind));
            map.merge_around(position);
        }
        pages[start as usize..end as usize].fill(new);
        if step % 997 == 0 {
            check(&mut map, &pages);
        }
        most = most.max(map.len());
    }
    assert!(
        most > 100 * CHUNK,
        "the test shall fill several nodes of the order of chunks"
    );
    check(&mut map, &pages);
}

/// Grows the area at or after `page` up or down over some of the free pages beside it.
fn grow(map: &mut AreaMap<char>, pages: &mut [Option<char>], numbers: &mut Numbers, page: u64) {
    let Some(position) = map.at_or_after(Page::new(page)) else {
        return;
    };
    let (start, end) = (map.get(position).start(), map.get(position).end());
    let floor = map
        .previous(position)
        .map_or(0, |below| map.get(below).end().number());
    let ceiling = map
        .next(position)
        .map_or(pages.len() as u64, |above| map.get(above).start().number());
    let below = numbers.below(start.number() - floor + 1);
    let above = numbers.below(ceiling - end.number() + 1);
    let letter = pages[start.number() as usize];
    if below > 0 {
        let start = Page::new(start.number() - below);
        map.grow_down(position, start);
    }
    if above > 0 {
        map.grow_up(position, Page::new(end.number() + above));
    }
    let grown = (start.number() - below) as usize..(end.number() + above) as usize;
    pages[grown].fill(letter);
}

/// Compares a map with a vector of pages.
fn check(map: &mut AreaMap<char>, pages: &[Option<char>]) {
    let drawn: Vec<char> = row(map).chars().filter(|letter| *letter != '|').collect();
    let mut expected: Vec<char> = pages.iter().map(|page| page.unwrap_or('.')).collect();
    while expected.last() == Some(&'.') {
        expected.pop();
    }
    assert_eq!(drawn, expected);
    assert_eq!(map.iter().count(), map.len());
    for (page, expected) in pages.iter().enumerate() {
        let found = map.find(Page::new(page as u64)).map(|area| area.backing);
        assert_eq!(found, expected.map(|letter| letter.to_ascii_lowercase()));
    }
    let bounds = range(0, pages.len() as u64);
    for length in 1..12 {
        let free = |start: usize| pages[start..start + length].iter().all(Option::is_none);
        let starts = 0..=pages.len() - length;
        let highest = starts.clone().rev().find(|start| free(*start));
        let lowest = starts.clone().find(|start| free(*start));
        let as_page = |start: Option<usize>| start.map(|start| Page::new(start as u64));
        assert_eq!(
            map.highest_room(length as u64, bounds),
            as_page(highest),
            "{length}"
        );
        assert_eq!(
            map.lowest_room(length as u64, bounds),
            as_page(lowest),
            "{length}"
        );
    }
}

#[test]
fn insertions_in_order_need_what_was_reserved() {
    // Enough areas for several chunks. Miri would take seconds for more.
    let areas = if cfg!(miri) { 4 * CHUNK } else { 1000 };
    let mut map: AreaMap<char> = AreaMap::EMPTY;
    map.reserve_in_order(areas).unwrap();
    for index in 0..areas as u64 {
        map.insert(area(2 * index, 2 * index + 1, 'a'));
    }
    assert_eq!(map.len(), areas);
    let chunks = core::iter::successors(map.order.last(), |chunk| map.order.previous(*chunk));
    let mut full = chunks.skip(1).map(|chunk| map.areas(chunk).len());
    assert!(full.all(|areas| areas == CHUNK));
}

#[test]
fn a_gap_in_the_first_chunk_is_found_after_insertions_in_order() {
    // The gap below the fourth area has 10 pages, all others have one page.
    let start = |index: u64| 2 * index + if index < 3 { 0 } else { 9 };
    let mut map: AreaMap<char> = AreaMap::EMPTY;
    let areas = CHUNK as u64 + 2;
    map.reserve_in_order(areas as usize).unwrap();
    for index in 0..areas {
        map.insert(area(start(index), start(index) + 1, 'a'));
        let bounds = range(0, start(index) + 1);
        let expected = (index >= 3).then(|| Page::new(10));
        assert_eq!(map.highest_room(5, bounds), expected, "{index}");
        let expected = (index >= 3).then(|| Page::new(5));
        assert_eq!(map.lowest_room(5, bounds), expected, "{index}");
    }
}

#[test]
fn a_bin_keeps_the_near_and_the_far() {
    let mut bin = AreaBin::new();
    bin.reserve(10).unwrap();
    for index in 0..10 {
        bin.take(area(index, index + 1, 'a'));
    }
    assert_eq!("10", bin.held().to_string());
}

#[test]
fn a_first_page_is_of_the_lineage_of_kin() {
    let (own, child) = (AnonVma::founded(7), AnonVma::forked(8));
    #[rustfmt::skip]
    let rows = [
        // map       lower area   upper area           expected for the middle
        ("aa|AA|aa", AnonVma::NONE, AnonVma::NONE,       None),
        ("aa|AA|aa", own,           AnonVma::NONE,       Some(own)),
        ("aa|AA|aa", own,           AnonVma::founded(9), Some(AnonVma::founded(9))),
        ("aa|AA|aa", own,           child,               Some(own)),
        ("aa|AA|aa", child,         AnonVma::NONE,       None),
        ("bb|AA|bb", own,           own,                 None),
        ("aa.AA.aa", own,           own,                 None),
    ];
    for (drawn, lower, upper, expected) in rows {
        let map = map(drawn);
        let areas: Vec<_> = map.iter().collect();
        areas[0].anon_vma.found::<OneCpu>(lower);
        areas[2].anon_vma.found::<OneCpu>(upper);
        assert_eq!(
            map.anon_vma_around(areas[1]),
            expected,
            "{drawn} {lower:?} {upper:?}"
        );
    }
}
