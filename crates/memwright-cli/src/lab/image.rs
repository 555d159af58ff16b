//! Opens the kernel images that the command line names.

use anyhow::Context;

use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::linux::image::{check, version};
use crate::linux::kept;
use crate::memwright::kernel;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{Image, MEMWRIGHT, System, split_name};

/// Parses `[NAME=]IMAGE`, where IMAGE is a path, a name of `memwright kernels`, or [`MEMWRIGHT`].
///
/// # Errors
/// One line if there is no such image, or if the file is not a kernel image.
pub fn open(text: &str) -> anyhow::Result<Image> {
    let context = || format!("--kernel {text}");
    let (name, image) = split_name(text);
    if image == MEMWRIGHT {
        let bytes = kernel::image().with_context(context)?;
        return Ok(Image {
            system: System::Memwright,
            name: name.unwrap_or(MEMWRIGHT).to_owned(),
            path: kernel::path(),
            sha256: hexadecimal_hash(&bytes),
            config_sha256: None,
            version: format!("Memwright {}", env!("CARGO_PKG_VERSION")),
        });
    }
    let (path, kept) = kept::resolve(image).with_context(context)?;
    let path = std::path::absolute(path).with_context(context)?;
    let bytes = host_file::read(&path, LARGEST_IMAGE).with_context(context)?;
    check(&bytes, &context())?;
    let name = match (name, &kept) {
        (Some(name), _) => name.to_owned(),
        (None, Some(kept)) => kept.name.clone(),
        (None, None) => {
            let file = path.file_name().unwrap_or_default();
            file.to_string_lossy().into_owned()
        }
    };
    Ok(Image {
        system: System::Linux,
        name,
        path,
        sha256: hexadecimal_hash(&bytes),
        config_sha256: kept.and_then(|kept| kept.config_sha256),
        version: version(&bytes),
    })
}
