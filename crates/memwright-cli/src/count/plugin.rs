//! The plugin with which QEMU counts, built for the QEMU in use.

use std::path::PathBuf;

use crate::host::compile::{Recipe, Source};
use crate::qemu::version::Version;

/// The plugin's source files, which are licensed under GPL-2.0-or-later. They are in a separate folder because they are
/// not part of this command, which only compiles them.
const SOURCES: [Source; 12] = [
    ("main.c", include_str!("../../../../plugin/count.c")),
    ("counters.c", include_str!("../../../../plugin/counters.c")),
    ("counters.h", include_str!("../../../../plugin/counters.h")),
    ("profile.c", include_str!("../../../../plugin/profile.c")),
    ("profile.h", include_str!("../../../../plugin/profile.h")),
    ("halt.c", include_str!("../../../../plugin/halt.c")),
    ("halt.h", include_str!("../../../../plugin/halt.h")),
    ("alone.c", include_str!("../../../../plugin/alone.c")),
    ("alone.h", include_str!("../../../../plugin/alone.h")),
    ("bytes.c", include_str!("../../../../plugin/bytes.c")),
    ("bytes.h", include_str!("../../../../plugin/bytes.h")),
    ("api.h", include_str!("../../../../plugin/api.h")),
];
/// The compilers to try. QEMU loads the plugin, so the plugin must be linked against the C library of the system.
const COMPILERS: &[&str] = &["cc", "gcc", "clang"];
const FLAGS: &[&str] = &[
    "-std=gnu11",
    "-O2",
    "-shared",
    "-fPIC",
    "-fvisibility=hidden",
];

/// Returns the newest version of the plugin interface that both this QEMU and the plugin support.
fn api(version: Version) -> u32 {
    let since = |major, minor| version >= Version::new(major, minor, 0);
    match (since(9, 1), since(9, 0)) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    }
}

/// The versions of the plugin interface that the plugin supports.
const APIS: [u32; 3] = [1, 2, 3];

/// Returns the path of the plugin for this QEMU, which is built if necessary.
///
/// # Errors
/// If there is no C compiler, or it rejects the source.
pub fn obtain(version: Version) -> anyhow::Result<PathBuf> {
    recipe(api(version)).obtain()
}

/// Returns how the plugin is built for each version of the plugin interface.
pub fn recipes() -> Vec<Recipe> {
    APIS.into_iter().map(recipe).collect()
}

fn recipe(api: u32) -> Recipe {
    let flags = FLAGS.iter().map(|flag| (*flag).to_owned());
    Recipe {
        kind: "plugin",
        name: "count.so",
        compilers: COMPILERS,
        flags: flags.chain([format!("-DPLUGIN_API={api}")]).collect(),
        sources: SOURCES.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_qemu_has_its_interface() {
        for (version, expected) in [
            ((7, 2, 22), 1),
            ((8, 2, 0), 1),
            ((9, 0, 4), 2),
            ((9, 1, 0), 3),
            ((10, 0, 2), 3),
            ((11, 0, 0), 3),
        ] {
            let (major, minor, micro) = version;
            let found = api(Version::new(major, minor, micro));
            assert_eq!(found, expected, "{version:?}");
            assert!(APIS.contains(&found), "{version:?}");
        }
    }
}
