//! The values of `--file`: files and folders of this machine, and their paths in the guest.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Splits `HOST[:GUEST]`. The last colon is the separator, unless the complete argument is the path of a file of the
/// host.
pub fn split(argument: &OsStr) -> (PathBuf, Option<PathBuf>) {
    let bytes = argument.as_bytes();
    let whole = Path::new(argument);
    let Some(colon) = bytes
        .iter()
        .rposition(|byte| *byte == b':')
        .filter(|_| !whole.exists())
    else {
        return (whole.to_owned(), None);
    };
    let (host, guest) = (
        Path::new(OsStr::from_bytes(&bytes[..colon])),
        OsStr::from_bytes(&bytes[colon + 1..]),
    );
    let mut place = PathBuf::from("/");
    for part in Path::new(guest).components() {
        match part {
            Component::Normal(part) => place.push(part),
            Component::ParentDir => drop(place.pop()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    // A destination with a trailing slash is a folder, as for cp(1).
    if guest.as_bytes().ends_with(b"/") {
        place.extend(host.file_name());
    }
    (host.to_owned(), Some(place))
}

/// Returns the file of this machine that a `--file` adds at the absolute path `guest`. If several add a file there,
/// returns that of the last `--file`. Returns `None` if none does.
pub fn file_at(arguments: &[OsString], guest: &Path) -> Option<PathBuf> {
    let hosts = arguments.iter().rev().filter_map(|argument| {
        let (host, place) = split(argument);
        let below = guest.strip_prefix(place.as_deref().unwrap_or(&host)).ok()?;
        // Joining the empty path would append a slash, and a path with a trailing slash does not name a file.
        let is_it = below.as_os_str().is_empty();
        Some(if is_it { host } else { host.join(below) })
    });
    let mut files = hosts.filter(|host| host.is_file());
    std::path::absolute(files.next()?).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn file_arguments_split() {
        let host = tempfile::tempdir().unwrap();
        let colon = host.path().join("a:b");
        fs::write(&colon, "").unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        for (argument, expected) in [
            ("x".to_owned(), ("x".to_owned(), None)),
            ("x:/y".to_owned(), ("x".to_owned(), Some("/y".to_owned()))),
            (
                "x:y/./z".to_owned(),
                ("x".to_owned(), Some("/y/z".to_owned())),
            ),
            (
                "d/x:/y/".to_owned(),
                ("d/x".to_owned(), Some("/y/x".to_owned())),
            ),
            (
                "x:/../y".to_owned(),
                ("x".to_owned(), Some("/y".to_owned())),
            ),
            (text(&colon), (text(&colon), None)),
            (
                format!("{}:/y", text(&colon)),
                (text(&colon), Some("/y".to_owned())),
            ),
        ] {
            let (path, guest) = split(OsStr::new(&argument));
            assert_eq!(
                (text(&path), guest.as_deref().map(text)),
                expected,
                "{argument}"
            );
        }
    }

    #[test]
    fn the_last_file_of_a_path_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("inner")).unwrap();
        for name in ["one", "two", "inner/two"] {
            fs::write(at(name), "").unwrap();
        }
        let given = |host: &str, guest: &str| {
            let mut text = at(host).into_os_string();
            text.push(guest);
            text
        };
        let arguments = [
            given("one", ":/x/one"),
            given("inner", ":/y"),
            given("one", ":/z"),
            given("two", ":/z"),
            given("one", ""),
        ];
        let own = at("one");
        for (guest, host) in [
            ("/x/one", Some("one")),
            ("/y/two", Some("inner/two")),
            ("/z", Some("two")),
            (own.to_str().unwrap(), Some("one")),
            ("/x", None),
            ("/y", None),
            ("/y/one", None),
            ("/z/one", None),
        ] {
            let found = file_at(&arguments, Path::new(guest));
            assert_eq!(found, host.map(at), "{guest}");
        }
    }
}
