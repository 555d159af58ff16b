//! Which test must notice which mistake.

/// A mistake of `memwright_table::mistake`, and the test that is named for it.
pub struct Mutant {
    /// Its name there.
    pub name: &'static str,
    /// The tests that have it: a file in `crates/memwright-sim/tests`, or `crates/memwright/tests/scenarios`.
    pub binary: &'static str,
    /// The test.
    pub test: &'static str,
}

const fn mutant(name: &'static str, binary: &'static str, test: &'static str) -> Mutant {
    Mutant { name, binary, test }
}

/// Every mistake, in the order in which they are defined.
#[rustfmt::skip]
pub const MUTANTS: &[Mutant] = &[
    mutant("skip-flush", "interleavings", "protect::fault_and_protect"),
    mutant("skip-local", "cow", "a_freed_page_never_shows_up_in_the_next_ones"),
    mutant("skip-remote", "interleavings", "fork::fork_and_write"),
    mutant("one-cpu-short", "interleavings", "unmap::gather_and_free_and_allocate"),
    mutant("one-page-short", "table", "losing_a_right_interrupts_each_cpu_once"),
    mutant("full-flush-forgotten", "mistakes", "many_pages_are_forgotten_together"),
    mutant("tables-forgotten", "table", "freed_tables_are_forgotten_with_their_upper_levels"),
    mutant("free-before-flush", "interleavings", "unmap::gather_and_free_and_allocate"),
    mutant("elide-accessed", "interleavings", "protect::protect_and_protect_of_neighbours"),
    mutant("lost-bit-not-flushed", "pending", "a_removal_completes_the_clearing_of_the_accessed_bit"),
    mutant("shrank-as-grew", "interleavings", "protect::fault_and_protect"),
    mutant("kept-believed", "tags", "a_new_page_is_seen_by_a_cpu_that_kept_the_old_one"),
    mutant("pending-not-announced", "pending", "a_removal_that_finds_nothing_completes_the_removal_before"),
    mutant("protect-ignores-pending", "pending", "a_second_change_of_alike_pages_completes_the_first"),
    mutant("zap-ignores-pending", "pending", "a_removal_that_finds_nothing_completes_the_removal_before"),
    mutant("fork-ignores-pending", "pending", "a_copy_completes_the_protection_change_before"),
    mutant("elide-ignores-pending", "pending", "a_removal_completes_the_clearing_of_the_accessed_bit"),
    mutant("halt-unchecked", "interleavings", "wait::a_writer_wakes_the_next"),
    mutant("lose-dirty", "interleavings", "protect::protect_and_first_write"),
    mutant("rebuild-entry", "interleavings", "protect::protect_and_first_write"),
    mutant("fill-unlocked", "interleavings", "fault::fault_and_fault"),
    mutant("quiet-unflushed", "quiet", "a_store_through_what_a_cpu_had_cached_is_found"),
    mutant("quiet-before-flush", "quiet", "a_scan_does_not_rely_on_what_another_has_not_flushed_yet"),
    mutant("quiet-disturbed", "quiet", "what_software_writes_without_a_walk_is_found"),
    mutant("move-dirty-lost", "cow", "a_moved_page_is_as_dirty_as_it_was"),
    mutant("move-not-flushed", "table", "a_move_takes_contents_along_and_leaves_no_old_translation"),
    mutant("exclusive-at-fork", "interleavings", "fork::fork_and_write"),
    mutant("writable-at-fork", "table", "after_a_copy_no_cpu_writes_what_both_tables_map"),
    mutant("child-exclusive", "cow", "neither_side_sees_the_others_write_in_any_order"),
    mutant("no-reference-at-fork", "cow", "the_last_owner_writes_in_place"),
    mutant("pinned-at-fork", "cow", "a_pinned_page_stays_its_owners"),
    mutant("swap-uncounted-at-fork", "programs", "programs_see_it_while_pages_leave_move_and_merge"),
    mutant("swap-exclusive-at-fork", "swap", "a_page_in_swap_that_a_fork_shares_is_nobodys_alone"),
    mutant("copy-unflushed", "interleavings", "fork::copy_and_write_and_read"),
    mutant("copy-forgotten", "interleavings", "fork::fork_and_write"),
    mutant("regain-shared", "interleavings", "fork::copy_and_copy"),
    mutant("regain-shared-protect", "cow", "neither_side_sees_the_others_write_in_any_order"),
    mutant("writable-shared", "cow", "the_last_owner_writes_in_place"),
    mutant("writable-borrowed", "cow", "neither_side_sees_the_others_write_in_any_order"),
    mutant("notify-forgotten", "notify", "after_cleaning_the_next_write_of_any_cpu_is_announced"),
    mutant("not-zeroed", "programs", "programs_see_what_the_model_says"),
    mutant("generation-ignored", "interleavings", "file::truncate_and_fault"),
    mutant("rule-before-protection", "swap", "a_protected_page_comes_back_protected"),
    mutant("free-clean-slot", "swap", "a_clean_page_goes_out_again_as_it_was"),
    mutant("write-before-flush", "swap", "what_another_cpu_stores_until_the_flush_goes_out_too"),
    mutant("leak-frame", "interleavings", "unmap::fault_and_unmap"),
    mutant("leak-promise", "mistakes", "what_was_promised_is_taken_back"),
    mutant("armed-writable", "scenarios", "uffd::a_store_to_a_protected_page_is_refused_until_it_is_unprotected_and_then_costs_nothing"),
    mutant("armed-dirty", "scenarios", "uffd::written_pages_are_found_and_protected_again_in_one_step"),
    mutant("fold-hides-from-soft-dirty", "scenarios", "overlooked::who_protects_a_written_page_leaves_it_soft_dirty"),
    mutant("fold-hides-from-scan", "scenarios", "uffd::written_pages_are_found_and_protected_again_in_one_step"),
    mutant("fold-hides-from-swap", "scenarios", "overlooked::who_clears_soft_dirty_leaves_the_copy_in_swap_out_of_date"),
    mutant("cleared-writable", "scenarios", "track::shared_memory_is_tracked_by_faults"),
    mutant("scan-arms-untaken", "scenarios", "uffd::a_scan_stops_where_there_is_no_more_room_and_goes_on_there"),
    mutant("scan-arms-pinned", "scenarios", "overlooked::a_pinned_page_counts_as_written_at_every_scan"),
    mutant("protect-before-markers", "interleavings", "watch::protect_and_fault"),
    mutant("unprotect-grants", "interleavings", "watch::fork_and_protect"),
    mutant("fill-beyond-object", "scenarios", "uffd::memory_is_filled_as_far_as_its_object_reaches_and_files_are_not"),
    mutant("marker-not-inherited", "scenarios", "uffd::protection_holds_before_memory_is_there"),
    mutant("zap-forgets-protection", "scenarios", "uffd::the_protection_of_an_objects_pages_outlives_them"),
    mutant("move-keeps-protection", "scenarios", "overlooked::a_page_moves_without_its_protection_if_nobody_follows"),
    mutant("move-not-soft-dirty", "scenarios", "track::what_was_moved_is_soft_dirty"),
    mutant("removal-untold", "scenarios", "uffd_events::contents_are_there_until_their_watcher_was_told"),
    mutant("move-told-last", "scenarios", "uffd_events::a_move_is_told_after_what_was_there_and_before_what_is_left"),
    mutant("growth-unasked", "scenarios", "uffd_events::what_locked_memory_grew_by_waits_page_by_page_for_its_watcher"),
    mutant("folio-not-zeroed", "scenarios", "folios::new_folios_are_full_of_zeroes"),
    mutant("folio-beyond-area", "scenarios", "folios::a_folio_reaches_neither_beyond_its_area_nor_over_what_is_there"),
    mutant("folio-beyond-object", "scenarios", "shared_folio::a_folio_ends_with_its_object_and_its_area"),
    mutant("shared-folio-beyond-area", "scenarios", "shared_folio::a_folio_ends_with_its_object_and_its_area"),
    mutant("room-kept", "scenarios", "room::what_goes_gives_its_room_back"),
    mutant("room-taken-twice", "scenarios", "room::no_folio_is_larger_than_the_room_that_is_left"),
    mutant("huge-not-zeroed", "scenarios", "overlooked::a_new_huge_page_is_full_of_zeroes"),
    mutant("huge-regain-shared", "scenarios", "huge::parent_and_child_share_a_huge_page_until_one_writes"),
    mutant("watch-uncut", "scenarios", "uffd_huge::who_watches_a_part_splits"),
    mutant("huge-beyond-area", "scenarios", "huge::the_first_store_maps_two_mebibytes"),
    mutant("split-one-reference", "scenarios", "huge::a_part_that_changes_splits_the_page_and_the_rest_keeps_its_state"),
    mutant("collapse-unflushed", "interleavings", "huge::collapse_and_fault"),
    mutant("collapse-pinned", "scenarios", "overlooked::a_collapse_refuses_a_pinned_page"),
    mutant("collapse-in-use", "scenarios", "shared_huge::a_collapse_refuses_pages_in_use"),
    mutant("part-uncounted", "scenarios", "shared_huge::who_shows_a_part_shows_it_in_small_pages"),
    mutant("swap-forgets-protection", "scenarios", "swap::protection_goes_out_and_comes_back_with_the_page"),
    mutant("swap-hides-store", "scenarios", "swap::what_was_written_is_known_over_swap"),
    mutant("swap-pinned", "scenarios", "overlooked::what_is_pinned_stays_in_memory_and_in_its_frame"),
    mutant("swap-locked", "scenarios", "overlooked::reclaim_passes_over_locked_memory"),
    mutant("swap-refused-lost", "scenarios", "swap::a_device_that_fails_loses_no_page"),
    mutant("swap-in-exclusive", "scenarios", "swap::a_page_shared_by_fork_comes_back_once_and_is_nobodys_own"),
    mutant("swap-cached-exclusive", "scenarios", "swap::a_page_shared_by_fork_comes_back_once_and_is_nobodys_own"),
    mutant("swap-folio-misaligned", "scenarios", "swap_folio::a_run_comes_back_in_the_largest_folios_that_are_aligned"),
    mutant("swap-folio-lost", "scenarios", "swap_folio::a_page_that_cannot_be_read_stays_out_and_the_others_come"),
    mutant("lazy-keeps-slot", "scenarios", "overlooked::contents_that_may_be_lost_need_no_slot"),
    mutant("lazy-drops-written", "scenarios", "swap::contents_that_may_be_lost_go_unless_they_are_written_again"),
    mutant("lazy-shared-out", "scenarios", "swap::a_store_after_madv_free_is_kept_by_parent_and_child"),
    mutant("shed-used", "scenarios", "swap::a_page_of_several_goes_owner_by_owner_and_is_nobodys_to_write_meanwhile"),
    mutant("shared-out-shown", "interleavings", "swap::swap_out_of_shared_memory_and_write"),
    mutant("shared-out-asked", "scenarios", "swap_shared::a_page_that_somebody_asks_for_while_it_is_written_stays"),
    mutant("shared-slot-leaked", "scenarios", "swap_shared::what_is_cut_off_takes_its_slot_along"),
    mutant("shared-slot-reused", "scenarios", "swap_shared::a_slot_that_is_read_is_given_to_no_other_page"),
    mutant("shared-around-reused", "scenarios", "swap_objects::a_slot_that_is_read_unasked_is_given_to_no_other_page"),
    mutant("shared-out-asked-again", "scenarios", "swap_objects::who_asks_for_a_page_again_while_it_is_written_keeps_it"),
    mutant("merge-by-digest", "interleavings", "merge::merge_and_write"),
    mutant("merge-keeps-writing", "merge", "a_store_to_a_merged_page_is_seen_by_nobody_else"),
    mutant("merge-pinned", "merge", "a_device_goes_on_writing_where_it_was_told"),
    mutant("unmerge-in-place", "merge", "a_store_to_a_merged_page_is_seen_by_nobody_else"),
    mutant("split-zero-by-sight", "interleavings", "huge::split_of_zeroes_and_write"),
    mutant("split-pinned", "scenarios", "split::what_is_pinned_or_held_stays_whole"),
    mutant("merge-forgets-protection", "scenarios", "overlooked::a_merged_page_is_still_protected"),
    mutant("migrate-pinned", "numa", "what_is_pinned_shared_or_without_room_stays"),
    mutant("migrate-shared", "numa", "what_is_pinned_shared_or_without_room_stays"),
    mutant("migrate-loses-dirty", "numa", "a_page_that_moved_is_as_it_was"),
    mutant("migrate-unflushed", "numa", "migration_and_write"),
    mutant("migrate-together-unflushed", "numa", "together::migration_of_shared_memory_and_write"),
    mutant("migrate-referenced", "numa", "together::what_somebody_else_holds_stays_for_all"),
    mutant("migrate-together-exclusive", "numa", "together::a_page_shared_by_fork_moves_for_all_of_a_family"),
    mutant("hint-read-only", "numa", "a_hint_fault_is_the_only_one"),
    mutant("hint-writable", "numa", "a_hint_fault_grants_no_more_than_the_rule"),
    mutant("hint-kept", "numa", "a_protection_change_ends_the_hint"),
    mutant("leak-reservation", "hugetlb", "what_is_promised_is_given_back"),
    mutant("large-run-short", "hugetlb", "a_right_is_lost_on_every_cpu_for_every_page"),
    mutant("large-exclusive-at-fork", "hugetlb", "neither_side_of_a_fork_sees_the_others_write"),
    mutant("hugetlb-copy-forgotten", "hugetlb", "neither_side_of_a_fork_sees_the_others_write"),
];

/// Where the mistakes are defined.
const SOURCE: &str = include_str!("../../../crates/memwright-table/src/mistake.rs");

/// Names and descriptions of the mistakes, in order.
fn defined() -> Vec<(&'static str, &'static str)> {
    let body = SOURCE.split("mistakes! {").nth(1).unwrap_or_default();
    let lines = body.lines().map(str::trim).take_while(|line| *line != "}");
    lines
        .filter_map(|line| {
            let mut quoted = line.split('"').skip(1).step_by(2);
            Some((quoted.next()?, quoted.next()?))
        })
        .collect()
}

/// The table for the documentation.
pub fn table() -> String {
    let mut text = String::from("| mistake | what it does | noticed by |\n|---|---|---|\n");
    for ((name, what), mutant) in defined().into_iter().zip(MUTANTS) {
        let test = format!("{}::{}", mutant.binary, mutant.test);
        text.push_str(&format!("| `{name}` | {what} | `{test}` |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell;

    #[test]
    fn every_mistake_has_its_test() {
        let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        let defined: Vec<&str> = defined().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, defined);
        assert!(names.len() >= 25);
    }

    /// `MEMWRIGHT_UPDATE_DOCS=1` writes it.
    #[test]
    fn the_documentation_has_the_table() {
        const BEGIN: &str = "<!-- mistakes: generated -->\n";
        const END: &str = "<!-- end -->";
        let path = shell::root().join("docs/correctness.md");
        let text = std::fs::read_to_string(&path).expect("docs/correctness.md");
        let (before, rest) = text.split_once(BEGIN).expect("a place for the table");
        let (old, after) = rest.split_once(END).expect("its end");
        if old == table() {
            return;
        }
        assert!(
            std::env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some(),
            "docs/correctness.md is not up to date: run with MEMWRIGHT_UPDATE_DOCS=1"
        );
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).expect("written");
    }
}
