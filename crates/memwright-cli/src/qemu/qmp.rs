//! The two sentences of QEMU's monitor protocol that a run needs.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long QEMU may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Injects a non-maskable interrupt into the guest's CPUs.
///
/// # Errors
/// Those of the socket; `TimedOut` or `WouldBlock` when QEMU does not answer; `InvalidData` when it refuses.
pub fn inject_nmi(socket: &Path) -> io::Result<()> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    let mut stream = stream;
    answers.next().transpose()?; // the greeting
    for command in ["qmp_capabilities", "inject-nmi"] {
        stream.write_all(format!("{{\"execute\":\"{command}\"}}\n").as_bytes())?;
        wait_for_return(&mut answers)?;
    }
    Ok(())
}

/// Passes over events until the command's answer comes.
fn wait_for_return(answers: &mut impl Iterator<Item = io::Result<String>>) -> io::Result<()> {
    for line in answers {
        let line = line?;
        let answer: serde_json::Value = serde_json::from_str(&line)?;
        if answer.get("return").is_some() {
            return Ok(());
        }
        if let Some(error) = answer.get("error") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                error.to_string(),
            ));
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
