//! The names of the flags that arguments contain.

use crate::syscall::call::Kind;
use linux_raw_sys::general as raw;

/// Protections of `mmap` and `mprotect`.
pub(in crate::syscall) const PROT: Kind = Kind::Flags(&[
    (0, "PROT_NONE"),
    (raw::PROT_READ as u64, "PROT_READ"),
    (raw::PROT_WRITE as u64, "PROT_WRITE"),
    (raw::PROT_EXEC as u64, "PROT_EXEC"),
]);
/// Flags of `mmap`.
pub(in crate::syscall) const MAP: Kind = Kind::Flags(&[
    (raw::MAP_SHARED_VALIDATE as u64, "MAP_SHARED_VALIDATE"),
    (raw::MAP_SHARED as u64, "MAP_SHARED"),
    (raw::MAP_PRIVATE as u64, "MAP_PRIVATE"),
    (raw::MAP_FIXED as u64, "MAP_FIXED"),
    (raw::MAP_ANONYMOUS as u64, "MAP_ANONYMOUS"),
    (raw::MAP_GROWSDOWN as u64, "MAP_GROWSDOWN"),
    (raw::MAP_LOCKED as u64, "MAP_LOCKED"),
    (raw::MAP_NORESERVE as u64, "MAP_NORESERVE"),
    (raw::MAP_POPULATE as u64, "MAP_POPULATE"),
    (raw::MAP_STACK as u64, "MAP_STACK"),
    (raw::MAP_FIXED_NOREPLACE as u64, "MAP_FIXED_NOREPLACE"),
    (raw::MAP_DENYWRITE as u64, "MAP_DENYWRITE"),
]);
/// Flags of `mremap`.
pub(in crate::syscall) const MREMAP: Kind = Kind::Flags(&[
    (raw::MREMAP_MAYMOVE as u64, "MREMAP_MAYMOVE"),
    (raw::MREMAP_FIXED as u64, "MREMAP_FIXED"),
    (raw::MREMAP_DONTUNMAP as u64, "MREMAP_DONTUNMAP"),
]);
/// The operations of `rt_sigprocmask`.
pub(in crate::syscall) const HOW: Kind = Kind::Flags(&[
    (raw::SIG_BLOCK as u64, "SIG_BLOCK"),
    (raw::SIG_SETMASK as u64, "SIG_SETMASK"),
    (raw::SIG_UNBLOCK as u64, "SIG_UNBLOCK"),
]);
/// Flags of `clone`.
pub(in crate::syscall) const CLONE: Kind = Kind::Flags(&[
    (raw::CLONE_VM as u64, "CLONE_VM"),
    (raw::CLONE_FS as u64, "CLONE_FS"),
    (raw::CLONE_FILES as u64, "CLONE_FILES"),
    (raw::CLONE_SIGHAND as u64, "CLONE_SIGHAND"),
    (raw::CLONE_VFORK as u64, "CLONE_VFORK"),
    (raw::CLONE_THREAD as u64, "CLONE_THREAD"),
    (raw::CLONE_SETTLS as u64, "CLONE_SETTLS"),
    (raw::CLONE_PARENT_SETTID as u64, "CLONE_PARENT_SETTID"),
    (raw::CLONE_CHILD_CLEARTID as u64, "CLONE_CHILD_CLEARTID"),
    (raw::CLONE_CHILD_SETTID as u64, "CLONE_CHILD_SETTID"),
]);
