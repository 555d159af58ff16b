//! System calls on mappings, one operation per file.

mod advise;
mod changes;
mod heap;
pub(in crate::syscall) mod hugetlb;
pub(in crate::syscall) mod keys;
mod lock;
mod map;
mod mincore;
mod plan;
mod populate;
mod prctl;
pub(in crate::syscall) mod protect;
mod remap;
pub(in crate::syscall) mod remap_pages;
mod seal;
mod sync;
mod unmap;

pub(in crate::syscall) use advise::{advice, advise};
pub(in crate::syscall) use map::map;
pub(in crate::syscall) use plan::known_rights;

pub use advise::madvise;
pub use heap::brk;
pub use lock::{mlock, mlock2, mlockall, munlock, munlockall};
pub use map::mmap;
pub use mincore::mincore;
pub use plan::rights;
pub use prctl::{
    get_exec_gain, get_huge_refusal, get_merging, set_area_attribute, set_exec_gain,
    set_huge_refusal, set_merging,
};
pub use remap::mremap;
pub use seal::mseal;
pub use sync::msync;
pub use unmap::munmap;
