//! The registers that the entries push at a trap, and the bits of the error code of a page fault.

/// The registers at a trap, in the order in which `trap_save` and the processor push them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rbp: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rbx: u64,
    pub rax: u64,
    pub vector: u64,
    pub error: u64,
    pub rip: u64,
    pub cs: u64,
    pub flags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// The bit of a page fault's error code for a write access.
pub const FAULT_WRITE: u64 = 1 << 1;
/// The bit of a page fault's error code for a page-table entry that was present.
pub const FAULT_PRESENT: u64 = 1;
/// The bit of a page fault's error code for a page-table entry with a reserved bit set.
pub const FAULT_RESERVED: u64 = 1 << 3;
/// The bit of a page fault's error code for an instruction fetch.
pub const FAULT_FETCH: u64 = 1 << 4;
/// The bit of a page fault's error code for an access that the page's protection key denies.
pub const FAULT_KEY: u64 = 1 << 5;
