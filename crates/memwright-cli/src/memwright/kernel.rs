//! The kernel image: the one embedded, or another that the environment names.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::host::host_file::{self, LARGEST_IMAGE};

/// Built for bare metal by the build script; empty when that was told to leave it out.
static EMBEDDED: &[u8] = include_bytes!(env!("MEMWRIGHT_KERNEL_IMAGE"));

/// The environment variable that names another image.
const VARIABLE: &str = "MEMWRIGHT_KERNEL";

/// The image that the environment names.
fn named() -> Option<OsString> {
    env::var_os(VARIABLE).filter(|path| !path.is_empty())
}

/// Where the image is; the command itself, where it is the embedded one.
pub fn path() -> PathBuf {
    named().map_or_else(|| env::current_exe().unwrap_or_default(), PathBuf::from)
}

/// The image to boot: `MEMWRIGHT_KERNEL`, else the embedded one.
///
/// # Errors
/// When the file cannot be read, or when there is neither.
pub fn image() -> anyhow::Result<Cow<'static, [u8]>> {
    if let Some(path) = named() {
        let data = host_file::read(Path::new(&path), LARGEST_IMAGE)
            .with_context(|| format!("cannot read the kernel image {}", path.display()))?;
        return Ok(Cow::Owned(data));
    }
    if EMBEDDED.is_empty() {
        bail!("this command was built without a kernel inside; {VARIABLE} names one");
    }
    Ok(Cow::Borrowed(EMBEDDED))
}
