//! The `memwright` command: runs an unmodified Linux program on the Memwright memory manager, inside QEMU, and prints
//! an account of its memory that repeats on every machine.
#![warn(clippy::print_stderr)]
#![deny(missing_docs)]

mod alone;
mod cmd;
mod compare;
mod count;
mod guestfs;
mod host;
mod lab;
mod linux;
mod memwright;
mod model;
mod qemu;
mod render;
mod sheet;
mod states;

fn main() -> std::process::ExitCode {
    cmd::main()
}
