//! The parts of the kernel that need no hardware, tested on the host.
#![cfg_attr(not(test), no_std)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod acpi;
pub mod nodes;
pub mod retired;
pub mod shootdown;
