//! Tests of tree changes and path walks, on a tree of directories, links and devices.

use crate::fs::{
    device::Device,
    file_name::FileName,
    file_system::{FileSystem, FileSystemKind},
    namespace::Namespace,
    permission::Owner,
    tree::*,
    walk::{Last, LastLink, Walker},
};
use crate::identity::Groups;
use alloc::{format, string::String, vec::Vec};

const NOW: Moment = Moment {
    seconds: 7,
    nanoseconds: 0,
};
const ROOT: Change = Change {
    subject: Subject::ROOT,
    now: NOW,
};

/// A directory tree with operations that take paths, for tests.
struct Tree {
    names: Namespace,
    files: Arc<FileSystem>,
    root: Arc<Dentry>,
}

impl Tree {
    fn new() -> Self {
        let files = Arc::new(FileSystem::new(FileSystemKind::Tmpfs, 1));
        let inode = Inode::new(&files, Body::directory(), 0o755, Owner::ROOT, NOW);
        let root = Arc::new(Dentry::detached(b"", Arc::new(inode)));
        Self {
            names: Namespace::new(),
            files,
            root,
        }
    }

    fn walker(&self) -> Walker<'_> {
        Walker {
            caller: None,
            subject: Subject::ROOT,
            root: &self.root,
        }
    }

    fn get(&self, path: &str) -> Result<Arc<Dentry>, Errno> {
        self.walker()
            .resolve(&self.root, path.as_bytes(), LastLink::Follow)
    }

    fn get_itself(&self, path: &str) -> Result<Arc<Dentry>, Errno> {
        self.walker()
            .resolve(&self.root, path.as_bytes(), LastLink::Keep)
    }

    fn make(&self, path: &str, body: Body) -> Result<Arc<Dentry>, Errno> {
        let walked = self
            .walker()
            .walk(&self.root, path.as_bytes(), LastLink::Keep)?;
        let inode = Inode::new(&self.files, body, 0o755, Owner::ROOT, NOW);
        self.names.create(
            &ROOT,
            &walked.parent,
            walked.last_name(Errno::EEXIST)?,
            inode,
        )
    }

    fn directory(&self, path: &str) -> Arc<Dentry> {
        self.make(path, Body::directory()).unwrap()
    }

    fn file(&self, path: &str) -> Arc<Dentry> {
        self.make(path, Body::Character(Device::Null)).unwrap()
    }

    fn link(&self, path: &str, target: &str) {
        self.make(path, Body::Symlink(target.as_bytes().into()))
            .unwrap();
    }

    fn remove(&self, path: &str, removal: Removal) -> Result<(), Errno> {
        let walked = self
            .walker()
            .walk(&self.root, path.as_bytes(), LastLink::Keep)?;
        self.names.remove(
            &ROOT,
            &walked.parent,
            walked.last_name(Errno::EINVAL)?,
            removal,
        )
    }

    fn rename(&self, old: &str, new: &str, mode: RenameMode) -> Result<(), Errno> {
        let old = self
            .walker()
            .walk(&self.root, old.as_bytes(), LastLink::Keep)?;
        let new = self
            .walker()
            .walk(&self.root, new.as_bytes(), LastLink::Keep)?;
        let old_name = old.last_name(Errno::EBUSY)?;
        let new_name = new.last_name(Errno::EBUSY)?;
        let from = RenameSide {
            parent: &old.parent,
            name: old_name,
            slash: old.slash,
        };
        let to = RenameSide {
            parent: &new.parent,
            name: new_name,
            slash: new.slash,
        };
        self.names.rename(&ROOT, from, to, mode)
    }

    fn path(&self, entry: &Arc<Dentry>) -> String {
        String::from_utf8(entry.shown_path(&self.root).unwrap()).unwrap()
    }

    fn links(&self, path: &str) -> u32 {
        self.get_itself(path).unwrap().inode.metadata().links
    }
}

/// Creates a tree with the directories `/a/b/c` and `/d`, the files `/f` and `/a/f`, and symbolic links to most of
/// them.
fn sample() -> Tree {
    let tree = Tree::new();
    for path in ["/a", "/a/b", "/a/b/c", "/d"] {
        tree.directory(path);
    }
    for path in ["/f", "/a/f"] {
        tree.file(path);
    }
    let links = [
        ("/to_a", "a"),
        ("/to_f", "/f"),
        ("/a/up", "../d"),
        ("/a/b/deep", "../../to_a/b/c/"),
        ("/dangling", "nowhere"),
        ("/loop1", "loop2"),
        ("/loop2", "loop1"),
        ("/file_slash", "f/"),
    ];
    for (path, target) in links {
        tree.link(path, target);
    }
    tree
}

const fn ordinary(id: u32) -> Subject {
    Subject {
        user: id,
        group: id,
        groups: Groups::NONE,
        overrides: false,
    }
}

#[test]
fn walks_end_where_linux_says() {
    let tree = sample();
    let cases = [
        ("/", Ok("/")),
        ("//a///b", Ok("/a/b")),
        ("a/b/..", Ok("/a")),
        ("/..", Ok("/")),
        ("/a/.", Ok("/a")),
        ("/a/b/../../f", Ok("/f")),
        ("/to_a", Ok("/a")),
        ("/to_a/f", Ok("/a/f")),
        ("/to_f", Ok("/f")),
        ("/to_a/up", Ok("/d")),
        ("/a/b/deep", Ok("/a/b/c")),
        ("/a/b/deep/..", Ok("/a/b")),
        ("/a/", Ok("/a")),
        ("/f/", Err(Errno::ENOTDIR)),
        ("/f/.", Err(Errno::ENOTDIR)),
        ("/f/x", Err(Errno::ENOTDIR)),
        ("/file_slash", Err(Errno::ENOTDIR)),
        ("/dangling", Err(Errno::ENOENT)),
        ("/dangling/x", Err(Errno::ENOENT)),
        ("/x", Err(Errno::ENOENT)),
        ("/x/y", Err(Errno::ENOENT)),
        ("/x/..", Err(Errno::ENOENT)),
        ("/loop1", Err(Errno::ELOOP)),
        ("", Err(Errno::ENOENT)),
    ];
    for (path, expected) in cases {
        let found = tree.get(path).map(|entry| tree.path(&entry));
        assert_eq!(found, expected.map(String::from), "{path}");
    }
}

#[test]
fn a_link_at_the_end_is_kept_unless_a_slash_follows() {
    let tree = sample();
    assert_eq!(tree.path(&tree.get_itself("/to_a").unwrap()), "/to_a");
    assert_eq!(tree.path(&tree.get_itself("/to_a/").unwrap()), "/a");
    assert_eq!(tree.path(&tree.get_itself("/loop1").unwrap()), "/loop1");
    assert_eq!(tree.get_itself("/to_f/").err(), Some(Errno::ENOTDIR));
    let missing = tree
        .walker()
        .walk(&tree.root, b"/dangling", LastLink::Follow)
        .unwrap();
    assert_eq!(missing.last, Last::Name(FileName::new(b"nowhere")));
    assert!(missing.entry.is_none());
}

#[test]
fn forty_links_are_followed_and_no_more() {
    let tree = Tree::new();
    tree.file("/l0");
    for number in 1..=41 {
        tree.link(&format!("/l{number}"), &format!("l{}", number - 1));
    }
    assert!(tree.get("/l40").is_ok());
    assert_eq!(tree.get("/l41").err(), Some(Errno::ELOOP));
}

#[test]
fn names_have_a_longest_length() {
    let tree = Tree::new();
    let longest = "x".repeat(255);
    let path = format!("/{longest}");
    tree.file(&path);
    assert!(tree.get(&path).is_ok());
    let longer = format!("{path}x");
    assert_eq!(tree.get(&longer).err(), Some(Errno::ENAMETOOLONG));
    assert_eq!(
        tree.rename(&path, &longer, RenameMode::Replace),
        Err(Errno::ENAMETOOLONG)
    );
}

#[test]
fn others_need_the_right_to_pass() {
    let tree = sample();
    let subject = ordinary(5);
    let walker = Walker {
        caller: None,
        subject,
        root: &tree.root,
    };
    assert!(
        walker
            .resolve(&tree.root, b"/a/f", LastLink::Follow)
            .is_ok()
    );
    tree.get("/a")
        .unwrap()
        .inode
        .change(|metadata| metadata.permissions = 0o744);
    let closed = walker.resolve(&tree.root, b"/a/f", LastLink::Follow);
    assert_eq!(closed.err(), Some(Errno::EACCES));
    assert!(tree.get("/a/f").is_ok(), "root passes everywhere");
}

#[test]
fn removal_refuses_the_wrong_kind() {
    let tree = sample();
    let cases = [
        ("/a", Removal::Other, Err(Errno::EISDIR)),
        ("/a", Removal::Directory, Err(Errno::ENOTEMPTY)),
        ("/f", Removal::Directory, Err(Errno::ENOTDIR)),
        ("/x", Removal::Other, Err(Errno::ENOENT)),
        ("/to_a", Removal::Directory, Err(Errno::ENOTDIR)),
        ("/to_a", Removal::Other, Ok(())),
        ("/d", Removal::Directory, Ok(())),
        ("/d", Removal::Directory, Err(Errno::ENOENT)),
    ];
    for (path, removal, result) in cases {
        assert_eq!(tree.remove(path, removal), result, "{path} {removal:?}");
    }
    assert!(
        tree.get("/a").is_ok(),
        "the link went, not what it leads to"
    );
}

#[test]
fn a_removed_directory_stays_usable_and_takes_no_names() {
    let tree = sample();
    let inside = tree.get("/a/b/c").unwrap();
    tree.remove("/a/b/c", Removal::Directory).unwrap();
    assert_eq!(tree.path(&inside), "/a/b/c (deleted)");
    assert_eq!(inside.inode.metadata().links, 0);
    let inode = Inode::new(&tree.files, Body::directory(), 0o755, Owner::ROOT, NOW);
    let made = tree.names.create(&ROOT, &inside, b"late", inode);
    assert_eq!(made.err(), Some(Errno::ENOENT));
    let above = tree
        .walker()
        .resolve(&inside, b"..", LastLink::Follow)
        .unwrap();
    assert_eq!(tree.path(&above), "/a/b");
}

#[test]
fn mount_points_stay() {
    let tree = sample();
    let at = tree.get("/d").unwrap();
    let other = Arc::new(FileSystem::new(FileSystemKind::Tmpfs, 2));
    let inode = Inode::new(&other, Body::directory(), 0o755, Owner::ROOT, NOW);
    at.mount(Arc::new(Dentry::new(&at.parent(), b"d", Arc::new(inode))));
    assert_eq!(tree.remove("/d", Removal::Directory), Err(Errno::EBUSY));
    assert_eq!(
        tree.rename("/d", "/e", RenameMode::Replace),
        Err(Errno::EBUSY)
    );
    assert_eq!(
        tree.rename("/f", "/d/f", RenameMode::Replace),
        Err(Errno::EXDEV)
    );
    let above = tree.get("/d/..").unwrap();
    assert!(Arc::ptr_eq(&above, &tree.root));
    let file = tree.get("/f").unwrap().inode.clone();
    let mounted = tree.get("/d").unwrap();
    let linked = tree.names.link(&ROOT, &file, false, &mounted, b"f");
    assert_eq!(linked.err(), Some(Errno::EXDEV));
}

#[test]
fn renames_follow_the_table() {
    let cases = [
        ("/f", "/g", RenameMode::Replace, Ok(())),
        ("/f", "/a/f", RenameMode::Replace, Ok(())),
        ("/f", "/a/f", RenameMode::Keep, Err(Errno::EEXIST)),
        ("/f", "/g", RenameMode::Exchange, Err(Errno::ENOENT)),
        ("/f", "/f", RenameMode::Replace, Ok(())),
        ("/f", "/d", RenameMode::Replace, Err(Errno::EISDIR)),
        ("/d", "/f", RenameMode::Replace, Err(Errno::ENOTDIR)),
        ("/d", "/a", RenameMode::Replace, Err(Errno::ENOTEMPTY)),
        ("/d", "/a/b/c", RenameMode::Replace, Ok(())),
        ("/a", "/a/b/x", RenameMode::Replace, Err(Errno::EINVAL)),
        ("/a", "/a", RenameMode::Replace, Ok(())),
        ("/a/b/c", "/a", RenameMode::Replace, Err(Errno::ENOTEMPTY)),
        ("/a/b", "/a", RenameMode::Exchange, Err(Errno::EINVAL)),
        ("/a", "/f", RenameMode::Exchange, Ok(())),
        ("/f", "/g/", RenameMode::Replace, Err(Errno::ENOTDIR)),
        ("/f/", "/g", RenameMode::Replace, Err(Errno::ENOTDIR)),
        ("/d/", "/e/", RenameMode::Replace, Ok(())),
        ("/x", "/y", RenameMode::Replace, Err(Errno::ENOENT)),
        ("/to_a", "/moved", RenameMode::Replace, Ok(())),
        ("/.", "/y", RenameMode::Replace, Err(Errno::EBUSY)),
    ];
    for (old, new, mode, result) in cases {
        let tree = sample();
        assert_eq!(tree.rename(old, new, mode), result, "{old} {new} {mode:?}");
    }
}

#[test]
fn a_rename_moves_paths_and_counts_links() {
    let tree = sample();
    let inside = tree.get("/a/b/c").unwrap();
    assert_eq!(
        (tree.links("/"), tree.links("/a"), tree.links("/d")),
        (4, 3, 2)
    );
    tree.rename("/a/b", "/d/moved", RenameMode::Replace)
        .unwrap();
    assert_eq!(tree.path(&inside), "/d/moved/c");
    assert_eq!((tree.links("/a"), tree.links("/d")), (2, 3));
    tree.rename("/d", "/to_f", RenameMode::Exchange).unwrap();
    assert_eq!(tree.path(&inside), "/to_f/moved/c");
    assert_eq!(
        tree.get("/d").unwrap().inode.kind(),
        crate::fs::kind::Kind::Character
    );
    assert_eq!(tree.links("/"), 4);
}

#[test]
fn a_replaced_file_loses_its_name_but_lives() {
    let tree = sample();
    let replaced = tree.get("/a/f").unwrap();
    tree.rename("/f", "/a/f", RenameMode::Replace).unwrap();
    assert_eq!(tree.path(&replaced), "/a/f (deleted)");
    assert_eq!(replaced.inode.metadata().links, 0);
    let now = tree.get("/a/f").unwrap();
    assert!(!Arc::ptr_eq(&now.inode, &replaced.inode));
    let none = tree
        .names
        .link(&ROOT, &replaced.inode, false, &tree.root, b"again");
    assert_eq!(none.err(), Some(Errno::ENOENT));
    let nameless = tree
        .names
        .link(&ROOT, &replaced.inode, true, &tree.root, b"again");
    assert!(nameless.is_ok());
}

#[test]
fn hard_links_are_names_of_one_node() {
    let tree = sample();
    let file = tree.get("/f").unwrap();
    let second = tree
        .names
        .link(&ROOT, &file.inode, false, &tree.root, b"g")
        .unwrap();
    assert!(Arc::ptr_eq(&file.inode, &second.inode));
    assert_eq!(tree.links("/f"), 2);
    assert_eq!(tree.rename("/f", "/g", RenameMode::Replace), Ok(()));
    assert!(
        tree.get("/f").is_ok(),
        "two names of one node: nothing happens"
    );
    tree.remove("/f", Removal::Other).unwrap();
    assert_eq!(tree.links("/g"), 1);
    let directory = tree.get("/a").unwrap().inode.clone();
    let refused = tree.names.link(&ROOT, &directory, false, &tree.root, b"h");
    assert_eq!(refused.err(), Some(Errno::EPERM));
    let taken = tree.names.link(&ROOT, &file.inode, false, &tree.root, b"g");
    assert_eq!(taken.err(), Some(Errno::EEXIST));
}

#[test]
fn sticky_directories_protect_what_others_own() {
    let tree = sample();
    let shared = tree.get("/d").unwrap();
    shared
        .inode
        .change(|metadata| metadata.permissions = 0o1777);
    let mine = Change {
        subject: ordinary(5),
        now: NOW,
    };
    let theirs = Change {
        subject: ordinary(6),
        now: NOW,
    };
    let make = |name: &[u8]| {
        let body = Body::Character(Device::Null);
        let inode = Inode::new(&tree.files, body, 0o644, mine.subject.owner(), NOW);
        tree.names.create(&mine, &shared, name, inode).unwrap();
    };
    make(b"x");
    let remove = |change: &Change| tree.names.remove(change, &shared, b"x", Removal::Other);
    assert_eq!(remove(&theirs), Err(Errno::EPERM));
    assert_eq!(remove(&mine), Ok(()));
    make(b"x");
    assert_eq!(remove(&ROOT), Ok(()));
    let closed = tree.get("/a").unwrap();
    let refused = tree.names.remove(&mine, &closed, b"f", Removal::Other);
    assert_eq!(refused, Err(Errno::EACCES));
}

#[test]
fn random_changes_keep_the_tree_whole() {
    let tree = Tree::new();
    let mut below = memwright_linux_base::draws::draws(1);
    let mut paths: Vec<String> = Vec::from([String::new()]);
    for _ in 0..800 {
        let parent = paths[below(paths.len())].clone();
        let path = format!("{parent}/{}", below(6));
        let other = format!("{}/{}", paths[below(paths.len())], below(6));
        let _ = match below(6) {
            0 | 1 => tree.make(&path, Body::directory()).map(|_| ()),
            2 => tree.make(&path, Body::Character(Device::Null)).map(|_| ()),
            3 => tree.remove(&path, [Removal::Directory, Removal::Other][below(2)]),
            4 => tree.rename(&path, &other, RenameMode::Replace),
            _ => tree.rename(&path, &other, RenameMode::Exchange),
        };
        paths = check_whole(&tree);
        paths.truncate(40);
    }
}

/// Checks the path of each entry and the link count of each directory. Returns the paths of all directories.
fn check_whole(tree: &Tree) -> Vec<String> {
    let mut directories = Vec::from([String::new()]);
    let mut next = 0;
    while next < directories.len() {
        let path = directories[next].clone();
        next += 1;
        let shown = if path.is_empty() { "/" } else { &path };
        let directory = tree.get(shown).unwrap();
        let Body::Directory(entries) = &directory.inode.body else {
            panic!("{path} is a directory");
        };
        let mut cookie = 0;
        let mut inside = 0;
        loop {
            let found = entries.lock().next_from(cookie).map(|(at, name, entry)| {
                (at, String::from_utf8(name.to_vec()).unwrap(), entry.clone())
            });
            let Some((at, name, entry)) = found else {
                break;
            };
            cookie = at + 1;
            let full = format!("{path}/{name}");
            assert_eq!(tree.path(&entry), full);
            if entry.inode.is_directory() {
                inside += 1;
                directories.push(full);
            }
        }
        assert_eq!(directory.inode.metadata().links, 2 + inside, "{path}");
    }
    directories
}

#[test]
fn a_mount_goes_when_nobody_uses_anything_in_it() {
    // Number of references to the root of an unused mount: those of this test and of the directory on which it is
    // mounted.
    const KNOWN: usize = 2;
    let tree = sample();
    let mount = |at: &Arc<Dentry>, minor| {
        let other = Arc::new(FileSystem::new(FileSystemKind::Tmpfs, minor));
        let inode = Inode::new(&other, Body::directory(), 0o755, Owner::ROOT, NOW);
        let root = Arc::new(Dentry::new(&at.parent(), &at.name(), Arc::new(inode)));
        tree.names.cover(at, &root, |_| Ok(())).unwrap();
        root
    };
    let at = tree.get("/d").unwrap();
    let root = mount(&at, 2);
    assert!(Arc::ptr_eq(&tree.get("/d").unwrap(), &root));
    tree.directory("/d/e");
    tree.directory("/d/e/g");
    tree.file("/d/e/f");
    let uncover = |at: &Dentry, root: &Arc<Dentry>, is_bound| {
        let uncovered = tree.names.uncover(at, root, KNOWN, || is_bound);
        uncovered.map(drop)
    };
    let refused = |how: &str| {
        assert_eq!(uncover(&at, &root, false), Err(Errno::EBUSY), "{how}");
        assert!(Arc::ptr_eq(&tree.get("/d").unwrap(), &root), "{how}");
    };
    for path in ["/d", "/d/e", "/d/e/f", "/d/e/g"] {
        let user = tree.get(path).unwrap();
        refused(path);
        drop(user);
    }
    let removed = tree.get("/d/e/f").unwrap();
    tree.remove("/d/e/f", Removal::Other).unwrap();
    refused("a removed name");
    drop(removed);
    let inner_at = tree.get("/d/e/g").unwrap();
    let inner = mount(&inner_at, 3);
    refused("a mount in it");
    assert_eq!(uncover(&inner_at, &inner, false), Ok(()));
    drop((inner, inner_at));
    assert_eq!(uncover(&at, &root, true), Err(Errno::EBUSY));
    assert_eq!(uncover(&at, &at, false), Err(Errno::EBUSY), "another");
    assert_eq!(uncover(&at, &root, false), Ok(()));
    assert!(Arc::ptr_eq(&tree.get("/d").unwrap(), &at));
    assert_eq!(tree.get("/d/e").err(), Some(Errno::ENOENT));
    assert_eq!(uncover(&at, &root, false), Err(Errno::EBUSY), "not covered");
    // A mount fails on a removed directory, and if `list` fails.
    tree.remove("/d", Removal::Directory).unwrap();
    let listed = |_: &Arc<Dentry>| Ok(());
    assert_eq!(tree.names.cover(&at, &root, listed), Err(Errno::ENOENT));
    let elsewhere = tree.get("/a").unwrap();
    let unlisted = |_: &Arc<Dentry>| Err(Errno::ENOENT);
    assert_eq!(
        tree.names.cover(&elsewhere, &root, unlisted),
        Err(Errno::ENOENT)
    );
    assert!(!elsewhere.is_covered());
}
