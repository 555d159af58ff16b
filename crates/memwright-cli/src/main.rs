//! The `memwright` command: runs an unmodified Linux program inside QEMU, on Memwright's kernel or on an image of
//! Linux, and prints what memory management costs. The counts are the same on every machine.
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
