//! Memwright's kernel image: the embedded one, or the file that the environment variable names.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::host::host_file::{self, LARGEST_IMAGE};

/// The image that the build script compiles for bare metal; empty if `MEMWRIGHT_BUILD_KERNEL` is 0.
static EMBEDDED: &[u8] = include_bytes!(env!("MEMWRIGHT_KERNEL_IMAGE"));

/// The environment variable with the path of another image.
const VARIABLE: &str = "MEMWRIGHT_KERNEL";

/// Returns the path in the environment variable, or `None` if it is unset or empty.
fn named() -> Option<OsString> {
    env::var_os(VARIABLE).filter(|path| !path.is_empty())
}

/// Returns the path of the image in the environment variable. If it is unset or empty, returns the path of this
/// command, in which an image is embedded.
pub fn path() -> PathBuf {
    named().map_or_else(|| env::current_exe().unwrap_or_default(), PathBuf::from)
}

/// Returns the image to boot: the file that `MEMWRIGHT_KERNEL` names, or the embedded image.
///
/// # Errors
/// If the file cannot be read, or if no image is embedded and the variable is unset.
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
