//! Tests that any allocation may fail (rule: fail-whole). Scripts that together cover every operation run once for each
//! frame and each heap block that they allocate, and in each run that one allocation fails. The step reports the error
//! that Linux would report, nothing is left half-changed, the same step succeeds when it is retried, and at the end
//! nothing leaks.

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
