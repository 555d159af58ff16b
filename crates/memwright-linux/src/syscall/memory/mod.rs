//! System calls that create, change and inspect mappings, one call or family per file.

mod advise;
mod changes;
mod heap;
pub(in crate::syscall) mod hugetlb;
mod keys;
mod lock;
mod map;
mod mincore;
mod plan;
mod populate;
mod prctl;
mod protect;
mod remap;
mod remap_pages;
mod seal;
mod sync;
mod unmap;

pub(in crate::syscall) use advise::{advice, advise};
pub(in crate::syscall) use map::map;
pub(in crate::syscall) use plan::known_rights;

pub use plan::rights;
pub use prctl::{
    get_exec_gain, get_huge_refusal, get_merging, set_area_attribute, set_exec_gain,
    set_huge_refusal, set_merging,
};

use crate::syscall::call::{
    Kind, SystemCall,
    flags::{MAP, MREMAP, PROT},
    handler, real,
};
use linux_raw_sys::general as raw;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_mmap,
        "mmap",
        &[Kind::Hex, Kind::Unsigned, PROT, MAP, Kind::Fd, Kind::Hex],
        |context, arguments| {
            let (userfaults, keys) = (context.userfaults(), context.protection_keys());
            let mapped = map::mmap(&context.current, userfaults, keys, arguments)?;
            mapped.finish(context.probes(), context.current.process())
        },
    ),
    real(
        raw::__NR_mprotect,
        "mprotect",
        &[Kind::Hex, Kind::Unsigned, PROT],
        handler!(protect::mprotect, protection_keys),
    ),
    real(
        raw::__NR_munmap,
        "munmap",
        &[Kind::Hex, Kind::Unsigned],
        handler!(unmap::munmap, userfaults),
    ),
    real(
        raw::__NR_brk,
        "brk",
        &[Kind::Hex],
        handler!(heap::brk, userfaults),
    ),
    real(
        raw::__NR_mremap,
        "mremap",
        &[Kind::Hex, Kind::Unsigned, Kind::Unsigned, MREMAP, Kind::Hex],
        handler!(remap::mremap, userfaults),
    ),
    real(
        raw::__NR_msync,
        "msync",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        handler!(sync::msync),
    ),
    real(
        raw::__NR_mincore,
        "mincore",
        &[Kind::Hex, Kind::Unsigned, Kind::Out(1)],
        handler!(mincore::mincore),
    ),
    real(
        raw::__NR_madvise,
        "madvise",
        &[Kind::Hex, Kind::Unsigned, Kind::Int],
        |context, arguments| {
            let applied = advise::madvise(&context.current, context.userfaults(), arguments)?;
            applied.finish(context.huge_scan(), context.merge_scan(), context.calls())
        },
    ),
    real(
        raw::__NR_mlock,
        "mlock",
        &[Kind::Hex, Kind::Unsigned],
        handler!(lock::mlock, userfaults),
    ),
    real(
        raw::__NR_munlock,
        "munlock",
        &[Kind::Hex, Kind::Unsigned],
        handler!(lock::munlock),
    ),
    real(
        raw::__NR_mlockall,
        "mlockall",
        &[Kind::Hex],
        handler!(lock::mlockall, userfaults),
    ),
    real(
        raw::__NR_munlockall,
        "munlockall",
        &[],
        handler!(lock::munlockall),
    ),
    real(
        raw::__NR_remap_file_pages,
        "remap_file_pages",
        &[
            Kind::Hex,
            Kind::Unsigned,
            Kind::Hex,
            Kind::Unsigned,
            Kind::Hex,
        ],
        handler!(remap_pages::remap_file_pages, userfaults),
    ),
    real(
        raw::__NR_mlock2,
        "mlock2",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        handler!(lock::mlock2, userfaults),
    ),
    real(
        raw::__NR_pkey_mprotect,
        "pkey_mprotect",
        &[Kind::Hex, Kind::Unsigned, PROT, Kind::Int],
        handler!(keys::pkey_mprotect, protection_keys),
    ),
    real(
        raw::__NR_pkey_alloc,
        "pkey_alloc",
        &[Kind::Hex, Kind::Hex],
        handler!(keys::pkey_alloc, protection_keys),
    ),
    real(
        raw::__NR_pkey_free,
        "pkey_free",
        &[Kind::Int],
        handler!(keys::pkey_free, protection_keys),
    ),
    real(
        raw::__NR_map_shadow_stack,
        "map_shadow_stack",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        handler!(remap_pages::map_shadow_stack),
    ),
    real(
        raw::__NR_mseal,
        "mseal",
        &[Kind::Hex, Kind::Unsigned, Kind::Hex],
        handler!(seal::mseal),
    ),
];
