//! Every allocation may fail (rule 13): scripts that together touch every operation run once for each frame, and once
//! for each piece of heap, that they allocate, and that one allocation fails. The step reports what Linux would, nothing
//! is half-changed, the same step succeeds afterwards, and at the end nothing leaks.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod areas;
mod huge;
mod hugetlb;
mod merge;
mod nodes;
mod script;
mod swap;
mod trial;
mod watch;
