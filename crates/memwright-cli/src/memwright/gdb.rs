//! `--gdb`: finds a free port, and formats the command line of gdb for the user.

use std::net::TcpListener;
use std::path::Path;

use anyhow::Context;

use crate::model::shell::shell_line;

/// The port that gdb stubs use by default.
pub const USUAL_PORT: u16 = 1234;

/// Returns a TCP port of this machine that is free now, which is [`USUAL_PORT`] if possible.
///
/// # Errors
/// If no port is free.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", USUAL_PORT))
        .or_else(|_| TcpListener::bind(("127.0.0.1", 0)))
        .context("no port for gdb")?;
    Ok(listener.local_addr().context("no port for gdb")?.port())
}

/// Returns the command line that starts gdb with the kernel's symbols and connects it to QEMU.
pub fn line(kernel: &Path, port: u16) -> String {
    let arguments = [
        kernel.as_os_str().to_owned(),
        "-ex".into(),
        format!("target remote 127.0.0.1:{port}").into(),
    ];
    shell_line("gdb".as_ref(), &arguments)
}
