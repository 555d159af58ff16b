//! Finds the interpreter and the libraries of a dynamic program in the order in which its loader searches.
//!
//! The order is that of ld.so(8), except that the folders of /etc/ld.so.conf are last: 1. DT_RPATH of the object and of
//! the chain of objects that need it, but only if the object has no DT_RUNPATH; 2. LD_LIBRARY_PATH; 3. DT_RUNPATH; 4.
//! the default folders; 5. the folders of /etc/ld.so.conf, which the loader finds through the cache file
//! /etc/ld.so.cache. The guest gets the cache file only if a library is in none of the other folders.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::guestfs::elf::{self, Image};
use crate::host::host_file::{self, LARGEST_DOCUMENT, LARGEST_IMAGE};

/// The folders that glibc's loaders search without any configuration, including those of Debian's loader.
const DEFAULT_FOLDERS: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
];
/// musl's folders, unless /etc/ld-musl-x86_64.path overrides them.
const MUSL_FOLDERS: &[&str] = &["/lib", "/usr/local/lib", "/usr/lib"];
/// Prefixes of the names of libraries that are part of musl's loader (ldso/dynlink.c, `reserved`).
const MUSL_ITSELF: &[&str] = &[
    "libc.",
    "libpthread.",
    "librt.",
    "libm.",
    "libdl.",
    "libutil.",
    "libxnet.",
];

/// The files that a dynamic program needs.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The loader, if the program is dynamic.
    pub interpreter: Option<PathBuf>,
    /// The libraries, at the paths at which the loader opens them.
    pub libraries: Vec<PathBuf>,
    /// Whether a library was found only through /etc/ld.so.conf. The guest then needs /etc/ld.so.cache.
    pub through_cache: bool,
}

/// A file without which a program cannot start.
#[derive(Debug, PartialEq, Eq)]
pub enum Missing {
    /// The loader named by PT_INTERP.
    Interpreter(PathBuf),
    /// A library, and the object that needs the library.
    Library { name: OsString, wanted_by: PathBuf },
}

/// A loaded object. `parent` is the index of the object that needs it; `None` for the program.
struct Loaded {
    path: PathBuf,
    image: Image,
    parent: Option<usize>,
}

/// Finds all files that `program` needs. `image` contains the program's headers.
///
/// # Errors
/// The first file that does not exist.
pub fn find(program: &Path, image: Image, library_path: Option<&OsStr>) -> Result<Needs, Missing> {
    let Some(interpreter) = image.interpreter.clone() else {
        return Ok(Needs::default());
    };
    if !interpreter.is_file() {
        return Err(Missing::Interpreter(interpreter));
    }
    let search = Search::new(&interpreter, library_path);
    let mut needs = Needs {
        interpreter: Some(interpreter),
        ..Needs::default()
    };
    let mut seen: BTreeSet<OsString> = needs
        .interpreter
        .iter()
        .filter_map(|path| path.file_name())
        .map(OsStr::to_owned)
        .collect();
    let mut loaded = vec![Loaded {
        path: program.to_owned(),
        image,
        parent: None,
    }];
    let mut next = 0;
    while next < loaded.len() {
        for name in loaded[next].image.needed.clone() {
            if search.answered_by_loader(&name) || !seen.insert(name.clone()) {
                continue;
            }
            let (path, image, through_cache) =
                search
                    .library(&name, &loaded, next)
                    .ok_or_else(|| Missing::Library {
                        name,
                        wanted_by: loaded[next].path.clone(),
                    })?;
            needs.through_cache |= through_cache;
            needs.libraries.push(path.clone());
            loaded.push(Loaded {
                path,
                image,
                parent: Some(next),
            });
        }
        next += 1;
    }
    Ok(needs)
}

/// The folders that a loader searches for libraries.
struct Search {
    musl: bool,
    library_path: Vec<PathBuf>,
    configured: Vec<PathBuf>,
    defaults: Vec<PathBuf>,
}

impl Search {
    fn new(interpreter: &Path, library_path: Option<&OsStr>) -> Self {
        let musl = interpreter
            .file_name()
            .is_some_and(|name| name.as_bytes().starts_with(b"ld-musl"));
        let (configured, defaults) = if musl {
            let text = settings(Path::new("/etc/ld-musl-x86_64.path")).unwrap_or_default();
            let folders: Vec<_> = text
                .split([':', '\n'])
                .filter(|part| !part.is_empty())
                .map(PathBuf::from)
                .collect();
            let builtin = MUSL_FOLDERS.iter().map(PathBuf::from).collect();
            (
                Vec::new(),
                if folders.is_empty() { builtin } else { folders },
            )
        } else {
            let mut configured = Vec::new();
            read_configuration(Path::new("/etc/ld.so.conf"), 0, &mut configured);
            (
                configured,
                DEFAULT_FOLDERS.iter().map(PathBuf::from).collect(),
            )
        };
        Self {
            musl,
            library_path: split_paths(library_path, Path::new("/")),
            configured,
            defaults,
        }
    }

    fn answered_by_loader(&self, name: &OsStr) -> bool {
        self.musl
            && MUSL_ITSELF
                .iter()
                .any(|prefix| name.as_bytes().starts_with(prefix.as_bytes()))
    }

    /// Finds a library that the object with the index `asker` needs. Returns its path and headers, and whether the
    /// library was found only in a folder of /etc/ld.so.conf.
    fn library(
        &self,
        name: &OsStr,
        loaded: &[Loaded],
        asker: usize,
    ) -> Option<(PathBuf, Image, bool)> {
        if name.as_bytes().contains(&b'/') {
            let origin = origin(&loaded[asker].path);
            let path = expand(name, &origin);
            return read_library(&path).map(|image| (path, image, false));
        }
        let mut folders = inherited_rpath(loaded, asker);
        folders.extend(self.library_path.iter().cloned());
        folders.extend(split_paths(
            loaded[asker].image.runpath.as_deref(),
            &origin(&loaded[asker].path),
        ));
        let try_folders = |folders: &[PathBuf]| {
            folders.iter().find_map(|folder| {
                let path = folder.join(name);
                read_library(&path).map(|image| (path, image))
            })
        };
        let found = |(path, image)| (path, image, false);
        try_folders(&folders)
            .map(found)
            .or_else(|| try_folders(&self.defaults).map(found))
            .or_else(|| try_folders(&self.configured).map(|(path, image)| (path, image, true)))
    }
}

/// Returns the folders in DT_RPATH of the object `asker` and of the chain of objects that need it, except objects with
/// DT_RUNPATH. Returns no folders if `asker` itself has DT_RUNPATH.
fn inherited_rpath(loaded: &[Loaded], asker: usize) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    if loaded[asker].image.runpath.is_some() {
        return folders;
    }
    let mut object = Some(asker);
    while let Some(index) = object {
        let Loaded {
            path,
            image,
            parent,
        } = &loaded[index];
        if image.runpath.is_none() {
            folders.extend(split_paths(image.rpath.as_deref(), &origin(path)));
        }
        object = *parent;
    }
    folders
}

/// Returns the value of `$ORIGIN` for an object: the folder that contains it, without links.
fn origin(path: &Path) -> PathBuf {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    path.parent().unwrap_or(Path::new("/")).to_owned()
}

/// Splits a list of folders. Relative folders are relative to `/`, the guest's working folder.
fn split_paths(list: Option<&OsStr>, origin: &Path) -> Vec<PathBuf> {
    list.map(OsStr::as_bytes)
        .unwrap_or_default()
        .split(|byte| *byte == b':')
        .filter(|part| !part.is_empty())
        .map(|part| Path::new("/").join(expand(OsStr::from_bytes(part), origin)))
        .collect()
}

/// Expands `$ORIGIN` and `$LIB`.
fn expand(text: &OsStr, origin: &Path) -> PathBuf {
    let tokens: [(&[u8], &[u8]); 4] = [
        (b"${ORIGIN}", origin.as_os_str().as_bytes()),
        (b"$ORIGIN", origin.as_os_str().as_bytes()),
        (b"${LIB}", b"lib/x86_64-linux-gnu"),
        (b"$LIB", b"lib/x86_64-linux-gnu"),
    ];
    let mut rest = text.as_bytes();
    let mut expanded = Vec::new();
    while let Some((&byte, after)) = rest.split_first() {
        // The value of a token is not expanded again, because a folder can be named `$ORIGIN`.
        let token = tokens.iter().find(|(name, _)| rest.starts_with(name));
        match token {
            Some((name, value)) => {
                expanded.extend_from_slice(value);
                rest = &rest[name.len()..];
            }
            None => {
                expanded.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(expanded))
}

/// Reads a library's headers. Files for other architectures are skipped, as the loader does.
fn read_library(path: &Path) -> Option<Image> {
    elf::read(&host_file::read(path, LARGEST_IMAGE).ok()?).ok()
}

/// Reads a configuration file of a loader; `None` if it cannot be read or is not UTF-8.
fn settings(path: &Path) -> Option<String> {
    String::from_utf8(host_file::read(path, LARGEST_DOCUMENT).ok()?).ok()
}

/// Reads a file in the format of /etc/ld.so.conf. `depth` is the number of includes that led to this file. Includes
/// that are nested more than 8 deep are ignored.
fn read_configuration(path: &Path, depth: usize, folders: &mut Vec<PathBuf>) {
    let Some(text) = settings(path) else {
        return;
    };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line
            .strip_prefix("include")
            .filter(|rest| rest.starts_with([' ', '\t']))
        {
            if depth < 8 {
                for file in matching_files(path, pattern.trim()) {
                    read_configuration(&file, depth + 1, folders);
                }
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// Returns the files that match a pattern with one `*` in its last component, sorted.
fn matching_files(includer: &Path, pattern: &str) -> Vec<PathBuf> {
    let pattern = includer.parent().unwrap_or(Path::new("/")).join(pattern);
    let (Some(folder), Some(name)) = (
        pattern.parent(),
        pattern.file_name().and_then(OsStr::to_str),
    ) else {
        return Vec::new();
    };
    let Some((before, after)) = name.split_once('*') else {
        return vec![pattern.clone()];
    };
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            name.len() >= before.len() + after.len()
                && name.starts_with(before.as_bytes())
                && name.ends_with(after.as_bytes())
        })
        .collect();
    files.sort();
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(needed: &[&str]) -> Image {
        Image {
            interpreter: Some(PathBuf::from("/lib64/ld-linux-x86-64.so.2")),
            needed: needed.iter().map(OsString::from).collect(),
            ..Image::default()
        }
    }

    #[test]
    fn a_static_program_needs_nothing() {
        assert_eq!(
            find(Path::new("/bin/x"), Image::default(), None),
            Ok(Needs::default())
        );
    }

    #[test]
    fn libraries_are_found_and_missing_ones_named() {
        let needs = find(Path::new("/bin/x"), image(&["libc.so.6"]), None).unwrap();
        assert!(needs.libraries[0].ends_with("libc.so.6") && !needs.through_cache);
        let missing = find(
            Path::new("/bin/x"),
            image(&["libc.so.6", "libnowhere.so.9"]),
            None,
        );
        let expected = Missing::Library {
            name: "libnowhere.so.9".into(),
            wanted_by: "/bin/x".into(),
        };
        assert_eq!(missing, Err(expected));
        let other = Image {
            interpreter: Some("/lib/ld-none.so".into()),
            ..Image::default()
        };
        assert_eq!(
            find(Path::new("/bin/x"), other, None),
            Err(Missing::Interpreter("/lib/ld-none.so".into()))
        );
    }

    #[test]
    fn paths_in_the_file_and_in_the_environment_are_searched_first() {
        let host = tempfile::tempdir().unwrap();
        let folder = host.path().canonicalize().unwrap();
        fs::create_dir(folder.join("deep")).unwrap();
        let libc = find(Path::new("/bin/x"), image(&["libc.so.6"]), None)
            .unwrap()
            .libraries
            .remove(0);
        fs::copy(&libc, folder.join("deep/libmine.so")).unwrap();
        fs::write(folder.join("libmine.so"), "not for this machine").unwrap();
        let program = folder.join("program");
        fs::write(&program, "").unwrap();
        let expected = folder.join("deep/libmine.so");
        let with = |rpath: Option<&str>, runpath: Option<&str>| Image {
            rpath: rpath.map(OsString::from),
            runpath: runpath.map(OsString::from),
            ..image(&["libmine.so"])
        };
        for (image, variable) in [
            (with(Some("$ORIGIN:$ORIGIN/deep"), None), None),
            (with(None, Some("${ORIGIN}/deep")), None),
            (with(None, None), Some(folder.join("deep").into_os_string())),
        ] {
            let needs = find(&program, image, variable.as_deref()).unwrap();
            assert_eq!(needs.libraries[0], expected);
        }
        // An object with DT_RUNPATH ignores DT_RPATH.
        assert!(find(&program, with(Some("$ORIGIN/deep"), Some("/nowhere")), None).is_err());
    }

    #[test]
    fn tokens_are_expanded_once() {
        for (text, origin, expected) in [
            ("$ORIGIN/../$LIB", "/a", "/a/../lib/x86_64-linux-gnu"),
            ("${ORIGIN}${LIB}x", "/a/", "/a/lib/x86_64-linux-gnux"),
            ("$ORIGIN/b", "/$ORIGIN", "/$ORIGIN/b"),
            ("$$ORIGIN$", "/${LIB}", "$/${LIB}$"),
            ("plain", "/a", "plain"),
        ] {
            let expanded = expand(OsStr::new(text), Path::new(origin));
            assert_eq!(expanded, Path::new(expected), "{text}");
        }
    }

    #[test]
    fn musl_answers_for_libc_itself() {
        let search = Search::new(Path::new("/lib/ld-musl-x86_64.so.1"), None);
        assert!(search.answered_by_loader(OsStr::new("libc.so")));
        assert!(!search.answered_by_loader(OsStr::new("libz.so.1")));
    }
}
