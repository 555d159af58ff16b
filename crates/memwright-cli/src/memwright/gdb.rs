//! `--gdb`: the port, and the line that a user types.

use std::net::TcpListener;
use std::path::Path;

use anyhow::Context;

use crate::model::shell::shell_line;

/// The port that gdb stubs usually have.
pub const USUAL_PORT: u16 = 1234;

/// A port of this machine that is free now: the usual one if possible.
///
/// # Errors
/// When there is none.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", USUAL_PORT))
        .or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
        .context("no port for gdb")?;
    Ok(listener.local_addr().context("no port for gdb")?.port())
}

/// The line that starts gdb with the kernel's symbols and connects it.
pub fn line(kernel: &Path, port: u16) -> String {
    let arguments = [
        kernel.as_os_str().to_owned(),
        "-ex".into(),
        format!("target remote 127.0.0.1:{port}").into(),
    ];
    shell_line("gdb".as_ref(), &arguments)
}
