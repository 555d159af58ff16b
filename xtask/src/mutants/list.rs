//! Which test must notice which mistake.

/// A mistake of `memwright_table::mistake`, and the test that is named for it.
pub struct Mutant {
    /// Its name there.
    pub name: &'static str,
    /// The file in `crates/memwright-sim/tests` that has the test.
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
    mutant("merge-by-digest", "interleavings", "merge::merge_and_write"),
    mutant("merge-keeps-writing", "merge", "a_store_to_a_merged_page_is_seen_by_nobody_else"),
    mutant("merge-pinned", "merge", "a_device_goes_on_writing_where_it_was_told"),
    mutant("unmerge-in-place", "merge", "a_store_to_a_merged_page_is_seen_by_nobody_else"),
    mutant("migrate-unflushed", "numa", "migration_and_write"),
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
