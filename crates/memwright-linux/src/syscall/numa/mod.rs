//! System calls for NUMA policies and page migration.

mod mask;
mod pages;
mod policy;

use crate::syscall::call::{Kind, SystemCall, handler, real};
use linux_raw_sys::general as raw;

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_mbind,
        "mbind",
        &[
            Kind::Hex,
            Kind::Unsigned,
            Kind::Int,
            Kind::In(8),
            Kind::Unsigned,
            Kind::Hex,
        ],
        handler!(policy::mbind, memory),
    ),
    real(
        raw::__NR_set_mempolicy,
        "set_mempolicy",
        &[Kind::Int, Kind::In(8), Kind::Unsigned],
        handler!(policy::set_mempolicy, memory, tasks),
    ),
    real(
        raw::__NR_get_mempolicy,
        "get_mempolicy",
        &[
            Kind::Out(4),
            Kind::Out(8),
            Kind::Unsigned,
            Kind::Hex,
            Kind::Hex,
        ],
        handler!(policy::get_mempolicy, memory),
    ),
    real(
        raw::__NR_migrate_pages,
        "migrate_pages",
        &[Kind::Int, Kind::Unsigned, Kind::In(8), Kind::In(8)],
        handler!(pages::migrate_pages, tasks, memory),
    ),
    real(
        raw::__NR_move_pages,
        "move_pages",
        &[
            Kind::Int,
            Kind::Unsigned,
            Kind::In(8),
            Kind::In(4),
            Kind::Out(4),
            Kind::Hex,
        ],
        handler!(pages::move_pages, tasks, memory),
    ),
    real(
        raw::__NR_set_mempolicy_home_node,
        "set_mempolicy_home_node",
        &[Kind::Hex, Kind::Unsigned, Kind::Unsigned, Kind::Hex],
        handler!(policy::set_mempolicy_home_node, memory),
    ),
];
