//! The cache for files that take long to download or build.

use std::path::PathBuf;

use anyhow::bail;

/// Returns `$XDG_CACHE_HOME/memwright` or `~/.cache/memwright`. The folder need not exist.
///
/// # Errors
/// One line if neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn folder() -> anyhow::Result<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(cache) = named("XDG_CACHE_HOME") {
        return Ok(PathBuf::from(cache).join("memwright"));
    }
    match named("HOME") {
        Some(home) => Ok(PathBuf::from(home).join(".cache/memwright")),
        None => bail!("neither XDG_CACHE_HOME nor HOME says where to keep a cache"),
    }
}
