//! Opens the kernel images that the command line names.

use anyhow::Context;

use crate::alone::image as alone;
use crate::host::host_file::{self, LARGEST_IMAGE};
use crate::linux::image::{NotBootable, check, is_linux, version};
use crate::linux::kept;
use crate::memwright::kernel;
use crate::model::code::Code;
use crate::model::hash::hexadecimal_hash;
use crate::model::image::{Image, MEMWRIGHT, System, split_image};

/// Parses `[NAME=]IMAGE`, where IMAGE is a path, a name of `memwright kernels`, or [`MEMWRIGHT`].
///
/// # Errors
/// One line if there is no such image, or if the file is not a kernel image.
pub fn open(text: &str) -> anyhow::Result<Image> {
    let context = || format!("--kernel {text}");
    let (name, image) = split_image(text);
    if image == MEMWRIGHT {
        let bytes = kernel::image().with_context(context)?;
        return Ok(Image {
            system: System::Memwright,
            name: name.unwrap_or(MEMWRIGHT).to_owned(),
            path: kernel::path(),
            sha256: hexadecimal_hash(&bytes),
            config_sha256: None,
            version: format!("Memwright {}", env!("CARGO_PKG_VERSION")),
            code: Code::default(),
        });
    }
    let (path, kept) = kept::resolve(image).with_context(context)?;
    let path = std::path::absolute(path).with_context(context)?;
    let bytes = host_file::read(&path, LARGEST_IMAGE).with_context(context)?;
    let (system, version, code) = kind(&bytes, &context())?;
    let name = match (name, &kept) {
        (Some(name), _) => name.to_owned(),
        (None, Some(kept)) => kept.name.clone(),
        (None, None) => {
            let file = path.file_name().unwrap_or_default();
            file.to_string_lossy().into_owned()
        }
    };
    Ok(Image {
        system,
        name,
        path,
        sha256: hexadecimal_hash(&bytes),
        config_sha256: kept.and_then(|kept| kept.config_sha256),
        version,
        code,
    })
}

/// Returns the kind of an image, its version text, and the addresses of its code.
///
/// # Errors
/// One line with the reason if QEMU cannot boot the image. `what` identifies it.
fn kind(bytes: &[u8], what: &str) -> Result<(System, String, Code), NotBootable> {
    if is_linux(bytes) {
        check(bytes, what)?;
        return Ok((System::Linux, version(bytes), Code::default()));
    }
    let (form, code) = alone::read(bytes).map_err(|why| NotBootable(format!("{what}: {why}")))?;
    Ok((System::Alone, form.to_string(), code))
}
