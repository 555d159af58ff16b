//! Path strings: their components and their limits.

use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// Most bytes in one name, as on every Linux file system that holds names in memory.
pub const NAME_MAX: usize = 255;

/// One component of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component<'a> {
    /// `.`: the directory itself.
    Current,
    /// `..`: the directory above.
    Parent,
    /// Any other name; never empty and without a slash, but perhaps too long.
    Name(&'a [u8]),
}

/// Splits `path` behind its first component.
///
/// Slashes in front are skipped. What is returned beside the component starts at the slash behind
/// it, so that a trailing slash stays visible: `b"a/"` gives `a` and `b"/"`.
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

/// Whether nothing but slashes is left of a path.
#[must_use]
pub fn only_slashes(rest: &[u8]) -> bool {
    rest.iter().all(|&byte| byte == b'/')
}

/// What is left to resolve once a symbolic link with this `target` stands in front of `rest`.
///
/// `rest` begins at the slash behind the link, so an unmarked end stays unmarked: whether the
/// final component carries a slash decides whether it must be a directory.
///
/// # Errors
/// [`OutOfMemory`].
pub fn splice_link(target: &[u8], rest: &[u8]) -> Result<Vec<u8>, OutOfMemory> {
    let mut path = Vec::new();
    path.try_make_room(target.len() + rest.len())?;
    path.try_push_all(target)?;
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
            assert_eq!(splice_link(target, rest).as_deref(), Ok(expected));
        }
        assert!(only_slashes(b""));
        assert!(only_slashes(b"//"));
        assert!(!only_slashes(b"/a"));
    }
}
