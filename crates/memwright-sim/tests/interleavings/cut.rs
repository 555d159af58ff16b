//! Tests of whole page tables that are unmapped with their entries while another CPU uses the pages.

use memwright_table::PageSize;

use crate::support::{self, FIRST, SECOND, at, bytes};
use crate::unmap::unmap_and_allocate;
use crate::world::{World, explore_with};

/// Unmaps the pages of the table that contains the first page.
fn unmap_table(world: &World) {
    let pages = PageSize::Size2M.pages();
    let start = memwright_table::Page::new(at(0).page().number() / pages * pages);
    world
        .process()
        .on(FIRST, |space| space.unmap(start.address(), bytes(pages)))
        .expect("mapped");
}

#[test]
fn cut_and_allocate() {
    unmap_and_allocate(unmap_table);
}

/// Parent and child, which map the same pages through tables of their own, exit at the same time on two CPUs. One of them
/// frees the pages.
#[test]
fn exit_and_exit_of_copies() {
    let begin = || {
        let world = World::written(2, 2);
        *world.other.lock().unwrap() = Some(support::fork(world.process(), SECOND));
        world
    };
    explore_with(
        1,
        &begin,
        &[
            |world| drop(world.other.lock().unwrap().take()),
            |world| world.process().on(FIRST, |space| space.clear()),
        ],
        World::end,
    );
}
