//! Tests that any allocation may fail (rule: fail-whole). The scripts together cover every operation. Each script runs
//! once for each frame and each heap block that it allocates, and in each run that one allocation fails. The step
//! returns the error that Linux would return, no change is left half done, the same step succeeds when it is retried,
//! and nothing has leaked at the end.

#[path = "../support/mod.rs"]
mod support;

mod access;
mod areas;
mod huge;
mod hugetlb;
mod merge;
mod nodes;
mod script;
// On AArch64 and RISC-V, forks copy all entries.
#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
mod share;
mod swap;
mod trial;
mod watch;
