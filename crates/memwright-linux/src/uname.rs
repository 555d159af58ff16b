//! The names of the system.

/// The six names of `uname`.
pub const NAMES: [&str; 6] = [
    "Linux",
    "memwright",
    "7.2.0",
    "#1 SMP PREEMPT_NONE Memwright",
    "x86_64",
    "(none)",
];
