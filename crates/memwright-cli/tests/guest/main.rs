//! The command against a guest that a stand-in for QEMU plays.

mod account;
mod protocol;
mod support;
