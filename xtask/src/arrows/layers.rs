//! Which folder may refer to which: the folders of a crate in layers, from the ground up.

/// A crate whose folders stand in layers.
pub struct Crate {
    /// Its source, from the root of the workspace.
    pub source: &'static str,
    /// Its folders: each refers to those before it alone. Files beside them are above all.
    pub folders: &'static [&'static str],
}

/// The crates that are checked.
pub const CRATES: &[Crate] = &[Crate {
    source: "crates/memwright-cli/src",
    folders: &[
        "model",
        "host",
        "sheet",
        "compare",
        "render",
        "guestfs",
        "qemu",
        "count",
        "memwright",
        "linux",
        "states",
        "lab",
        "cmd",
    ],
}];

/// The layer of a file of a crate: the place of its folder, or one above all.
///
/// # Errors
/// A folder that is in no layer.
pub fn layer(one: &Crate, file: &str) -> Option<Result<usize, String>> {
    let inside = file.strip_prefix(one.source)?.strip_prefix('/')?;
    let Some((folder, _)) = inside.split_once('/') else {
        return Some(Ok(one.folders.len()));
    };
    let place = one.folders.iter().position(|known| *known == folder);
    Some(place.ok_or_else(|| format!("{}/{folder} is in no layer", one.source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_in_the_layer_of_their_folder() {
        let one = Crate {
            source: "a/src",
            folders: &["low", "high"],
        };
        assert_eq!(layer(&one, "a/src/low/x.rs"), Some(Ok(0)));
        assert_eq!(layer(&one, "a/src/high/y/x.rs"), Some(Ok(1)));
        assert_eq!(layer(&one, "a/src/main.rs"), Some(Ok(2)));
        assert_eq!(layer(&one, "a/tests/x.rs"), None);
        assert_eq!(layer(&one, "b/src/low/x.rs"), None);
        assert!(layer(&one, "a/src/other/x.rs").unwrap().is_err());
    }
}
