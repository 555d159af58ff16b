//! Splits path strings into components, and joins a link's target and the rest of a path.

use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// Maximum length of a name in bytes (`NAME_MAX` of Linux).
pub const NAME_MAX: usize = 255;

/// A path component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component<'a> {
    /// `.`: the directory itself.
    Current,
    /// `..`: the parent directory.
    Parent,
    /// Any other name. It is not empty and contains no slash, but can be longer than [`NAME_MAX`].
    Name(&'a [u8]),
}

/// Splits `path` after its first component.
///
/// Skips leading slashes. Returns `None` if there is no component. The rest starts with the slash after the component,
/// so that a trailing slash is preserved: `b"a/"` gives `a` and `b"/"`.
#[must_use]
pub fn first_component(path: &[u8]) -> Option<(Component<'_>, &[u8])> {
    let start = path.iter().position(|&byte| byte != b'/')?;
    let path = &path[start..];
    let end = path
        .iter()
        .position(|&byte| byte == b'/')
        .unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    let component = match name {
        b"." => Component::Current,
        b".." => Component::Parent,
        name => Component::Name(name),
    };
    Some((component, rest))
}

/// Returns whether the rest of a path contains no component.
#[must_use]
pub fn only_slashes(rest: &[u8]) -> bool {
    rest.iter().all(|&byte| byte == b'/')
}

/// Returns the path that a path walk must resolve after it reaches a symbolic link: the link's `target`, followed by
/// `rest`.
///
/// `rest` is the path after the link. It begins with a slash or is empty. A trailing slash is preserved, because it
/// decides whether the last component must be a directory.
///
/// # Errors
/// [`OutOfMemory`].
pub fn splice_link(target: Vec<u8>, rest: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let mut path = target;
    path.try_push_all(rest)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut path: &[u8]) -> (Vec<Component<'_>>, bool) {
        let mut found = Vec::new();
        while let Some((component, rest)) = first_component(path) {
            found.push(component);
            path = rest;
        }
        (found, !path.is_empty())
    }

    #[test]
    fn components_keep_dots_and_trailing_slash() {
        use Component::{Current, Name, Parent};
        let cases: &[(&[u8], &[Component<'_>], bool)] = &[
            (b"", &[], false),
            (b"/", &[], true),
            (b"a", &[Name(b"a")], false),
            (b"a/", &[Name(b"a")], true),
            (b"//a//b", &[Name(b"a"), Name(b"b")], false),
            (b"./..//...", &[Current, Parent, Name(b"...")], false),
            (b"a/.", &[Name(b"a"), Current], false),
        ];
        for (path, components, slash) in cases {
            let (found, trailing) = all(path);
            assert_eq!(&found[..], *components);
            assert_eq!(trailing, *slash, "{path:?}");
        }
    }

    #[test]
    fn a_link_keeps_the_slash_behind_it() {
        for (target, rest, expected) in [
            (&b"x/y"[..], &b""[..], &b"x/y"[..]),
            (b"x/y", b"/", b"x/y/"),
            (b"/x", b"/b/c", b"/x/b/c"),
        ] {
            assert_eq!(splice_link(target.to_vec(), rest).as_deref(), Ok(expected));
        }
        assert!(only_slashes(b""));
        assert!(only_slashes(b"//"));
        assert!(!only_slashes(b"/a"));
    }
}
