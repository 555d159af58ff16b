//! System V shared memory: `shmget`, `shmat`, `shmdt`, `shmctl` (Linux 7.2 `ipc/shm.c`).

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{call::int, ipc, memory, memory::hugetlb},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::{
    AreaFlags, MapError, MapKind, MapRequest, Placement, Rights, SharedSetting,
    object::{Object, ObjectIdentity, Shmem},
};
use memwright_linux_abi::{Memory, abi_struct, errno::Errno};
use memwright_linux_memory::{
    ipc::{Contents, MOST_SEGMENTS, Segment, Segments, Wanted},
    memory::{map_errno, unmap_errno},
    userfault::Userfaults,
};
use memwright_linux_tasks::process::Process;
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::permission::Permission,
    identity::{Capabilities, Resource},
    user::UserMemory,
};
use memwright_table::{Page, PageRange, VirtAddr};

/// Flags and commands of `linux/shm.h` that linux-raw-sys lacks.
mod raw {
    pub const SHM_HUGETLB: u32 = 0o4000;
    pub const SHM_NORESERVE: u32 = 0o10000;
    pub const SHM_RDONLY: u32 = 0o10000;
    pub const SHM_RND: u32 = 0o20000;
    pub const SHM_REMAP: u32 = 0o40000;
    pub const SHM_EXEC: u32 = 0o100000;
    pub const SHM_LOCK: u32 = 11;
    pub const SHM_UNLOCK: u32 = 12;
    pub const SHM_STAT: u32 = 13;
    pub const SHM_INFO: u32 = 14;
    pub const SHM_STAT_ANY: u32 = 15;
    pub const SHM_LOCKED: u32 = 0o2000;
}

abi_struct! {
    /// `struct shmid64_ds` of `asm-generic/shmbuf.h`.
    pub struct SegmentStatus {
        /// Owner and permissions.
        pub ownership: ipc::Ownership,
        /// Size in bytes.
        pub size: u64,
        /// Time of the last attach, in seconds since 1970.
        pub attached_at: i64,
        /// Time of the last detach, in seconds since 1970.
        pub detached_at: i64,
        /// Time of the last change, in seconds since 1970.
        pub changed_at: i64,
        /// Process id of the creator.
        pub maker: u32,
        /// Id of the process that last attached or detached the segment.
        pub last: u32,
        /// Number of areas that map the segment.
        pub attached: u64,
        /// Unused.
        pub rest: [u64; 2],
    }
}

const PAGE: u64 = 4096;

/// Implements `shmget`.
pub fn shmget(
    current: &Current<'_>,
    segments: &Segments,
    memory: &Arc<Memory>,
    arguments: &Arguments,
) -> CallResult {
    ipc::find_or_make(|| get(current, segments, memory, arguments))
}

/// Finds the segment with the key that `shmget` got, or creates a segment. Returns [`ipc::Got::Again`] if another
/// thread has created a segment with the key since the search.
fn get(
    current: &Current<'_>,
    segments: &Segments,
    memory: &Arc<Memory>,
    arguments: &Arguments,
) -> Result<ipc::Got, Errno> {
    let &[key, size, flags, ..] = arguments;
    let (key, flags) = (key as u32, flags as u32);
    let found = match key {
        ipc::IPC_PRIVATE => None,
        key => segments.with_key(key),
    };
    if let Some(segment) = found {
        let subject = current.caller().subject();
        ipc::check_found(flags, size <= segment.size, |wanted| {
            segment.permits(&subject, wanted)
        })?;
        return Ok(ipc::Got::Id(segment.id));
    }
    if key != ipc::IPC_PRIVATE && flags & ipc::IPC_CREAT == 0 {
        return Err(Errno::ENOENT);
    }
    if size == 0 || size > segments.most_bytes.load(Ordering::Relaxed) {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    segments.check_room(size)?;
    let wanted = Wanted {
        key,
        size,
        mode: flags,
        maker: (current.caller().subject().owner(), current.process().id),
        now: current.vfs().now().seconds,
    };
    let contents = contents(current, memory, size, flags)?;
    ipc::Got::of(segments.add(&wanted, contents))
}

/// Creates the object that contains the pages of a segment of `size` bytes. Without `SHM_NORESERVE`, the pages are
/// accounted, or, for huge pages, reserved in the hugetlb pool.
fn contents(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    size: u64,
    flags: u32,
) -> Result<Contents, Errno> {
    let reserves = flags & raw::SHM_NORESERVE == 0;
    if flags & raw::SHM_HUGETLB != 0 {
        if !hugetlb::has_size(flags) {
            return Err(Errno::EINVAL);
        }
        if !may_have_huge_pages(current.process()) {
            return Err(Errno::EPERM);
        }
        let file = hugetlb::nameless_file(current, memory, size)?;
        if reserves {
            let pages = size.div_ceil(memwright::object::HUGE_BYTES);
            file.reserve(0..pages).map_err(|_| Errno::ENOMEM)?;
        }
        return Ok(Contents::Huge(file));
    }
    let size = size
        .checked_next_multiple_of(PAGE)
        .filter(|size| *size <= memwright_linux_vfs::user::USER_END)
        .ok_or(Errno::ENOMEM)?;
    current.caller().check_open_files()?;
    let identity = ObjectIdentity::default();
    let mut pages = Shmem::new(memory.clone(), size, identity).map_err(|_| Errno::ENOMEM)?;
    if reserves {
        pages = pages.promised().map_err(|_| Errno::ENOMEM)?;
    }
    Ok(Contents::Small(
        pages.with_huge_pages(SharedSetting::Anonymous),
    ))
}

/// Returns whether the caller is allowed to create a segment of huge pages: if it has `CAP_IPC_LOCK` or is a member of
/// the group `vm.hugetlb_shm_group`, which is 0 (`can_do_hugetlb_shm`).
fn may_have_huge_pages(process: &Process) -> bool {
    const GROUP: u32 = 0;
    let credentials = process.identity.credentials.lock();
    let effective = credentials.capabilities.effective;
    effective.contains(Capabilities::LOCK_MEMORY)
        || credentials.group.file == GROUP
        || credentials.groups.contains(GROUP)
}

/// Implements `shmat`.
pub fn shmat(
    current: &Current<'_>,
    segments: &Segments,
    userfaults: &Userfaults,
    arguments: &Arguments,
) -> CallResult {
    let &[id, address, flags, ..] = arguments;
    let (id, flags) = (int(id), flags as u32);
    let id = u32::try_from(id).map_err(|_| Errno::EINVAL)?;
    let segment = segments.find(id).ok_or(Errno::EINVAL)?;
    let reads_only = flags & raw::SHM_RDONLY != 0;
    let mut rights = Rights::READ;
    let mut wanted = Permission::READ;
    if !reads_only {
        rights |= Rights::WRITE;
        wanted |= Permission::WRITE;
    }
    if flags & raw::SHM_EXEC != 0 {
        rights |= Rights::EXECUTE;
        wanted |= Permission::EXECUTE;
    }
    let placement = attach_place(&segment, address, flags)?;
    ipc::check(segment.permits(&current.caller().subject(), wanted))?;
    current.check_heap()?;
    let object: Arc<dyn Object<memwright_linux_abi::M>> = segment.clone();
    let request = MapRequest {
        length: segment.size,
        rights,
        max_rights: if reads_only {
            Rights::all() - Rights::WRITE
        } else {
            Rights::all()
        },
        kind: MapKind::Object {
            object,
            offset: 0,
            shared: true,
        },
        placement,
        flags: AreaFlags::empty(),
        populate: false,
    };
    let mapped = memory::map(current, userfaults, &request).map_err(|error| match error {
        // Another area is mapped at the address, and `SHM_REMAP` is not set.
        MapError::Taken(_) => Errno::EINVAL,
        other => map_errno(other),
    })?;
    let mut standing = segment.standing.lock();
    standing.times[0] = current.vfs().now().seconds;
    standing.last = current.process().id;
    Ok(mapped.as_u64())
}

/// Returns the placement for the attach of a segment. With `SHM_REMAP`, the attach replaces mappings at the address;
/// otherwise, it fails if there are any.
fn attach_place(segment: &Segment, address: u64, flags: u32) -> Result<Placement, Errno> {
    let remaps = flags & raw::SHM_REMAP != 0;
    if address == 0 {
        return if remaps {
            Err(Errno::EINVAL)
        } else {
            Ok(Placement::Anywhere)
        };
    }
    let down = address & !(PAGE - 1);
    if address != down && flags & raw::SHM_RND == 0 || down == 0 && remaps {
        return Err(Errno::EINVAL);
    }
    let at = VirtAddr::new(down);
    if remaps {
        return Ok(Placement::Fixed(at));
    }
    PageRange::from_addresses(at, segment.size).ok_or(Errno::EINVAL)?;
    Ok(Placement::FixedNoReplace(at))
}

/// Implements `shmdt`: unmaps the areas that remain of an attach of a segment at this address.
pub fn shmdt(current: &Current<'_>, segments: &Segments, arguments: &Arguments) -> CallResult {
    let start = arguments[0];
    if !start.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let first = VirtAddr::new(start).page();
    let mut found = None;
    let mut from = first;
    // Handle one area at a time: look up its segment without the lock of the address space, then unmap the area.
    while let Some((part, identity)) = next_part(current, first, from) {
        from = part.end;
        if found.is_none() {
            found = segments.shown(identity);
        }
        if found.as_ref().is_none_or(|one| one.identity() != identity) {
            continue;
        }
        let (at, length) = (part.start.address(), part.len() * PAGE);
        // `shmdt` sends no userfaultfd events (Linux 7.2 `ksys_shmdt`).
        let unmap = || current.with_space(|space| space.unmap(at, length));
        current.reclaim().retry(unmap).map_err(unmap_errno)?;
    }
    let segment = found.ok_or(Errno::EINVAL)?;
    let mut standing = segment.standing.lock();
    standing.times[1] = current.vfs().now().seconds;
    standing.last = current.process().id;
    Ok(0)
}

/// Finds the first area from page `from` on that can be part of an attach at page `first`: the offset of the area in
/// its object is equal to its distance from `first`. Returns the range of the area and the identity of the object.
fn next_part(
    current: &Current<'_>,
    first: Page,
    from: Page,
) -> Option<(PageRange, ObjectIdentity)> {
    let mut found = None;
    current.with_space(|space| {
        space.areas_from(from.address(), &mut |area| {
            let ahead = area.start().number().checked_sub(first.number());
            let object = area.object().filter(|_| ahead == Some(area.offset()));
            found = object.map(|object| (area.range(), object.identity()));
            found.is_none()
        });
    });
    found
}

/// Implements `shmctl`.
pub fn shmctl(current: &Current<'_>, segments: &Segments, arguments: &Arguments) -> CallResult {
    let &[id, command, address, ..] = arguments;
    let command = command as u32 & !ipc::IPC_64;
    match command {
        ipc::IPC_INFO => {
            let most = &segments.most_bytes;
            let pages = segments.most_pages.load(Ordering::Relaxed);
            let limits = [
                most.load(Ordering::Relaxed),
                1,
                MOST_SEGMENTS,
                MOST_SEGMENTS,
                pages,
            ];
            write_words(current.user, address, &limits, 72)?;
            return Ok(segments.largest_id().into());
        }
        raw::SHM_INFO => {
            let totals = segments.totals();
            let count = u64::from(totals.segments);
            let words = [count, totals.pages, totals.resident, totals.swapped];
            write_words(current.user, address, &words, 48)?;
            return Ok(segments.largest_id().into());
        }
        _ => {}
    }
    let id = u32::try_from(int(id)).map_err(|_| Errno::EINVAL)?;
    // Read the new attributes from user memory before the search for the segment: `EFAULT` has precedence over `EINVAL`
    // for a segment that does not exist.
    let wanted: Option<SegmentStatus> = match command {
        ipc::IPC_SET => Some(current.user.read_value(address)?),
        _ => None,
    };
    let segment = segments.find(id).ok_or(Errno::EINVAL)?;
    if let Some(wanted) = wanted {
        return set_status(current, &segment, &wanted);
    }
    match command {
        // For `SHM_STAT`, the index of a segment is equal to its id.
        ipc::IPC_STAT | raw::SHM_STAT | raw::SHM_STAT_ANY => {
            if command != raw::SHM_STAT_ANY {
                ipc::check(segment.permits(&current.caller().subject(), Permission::READ))?;
            }
            current.user.write_value(address, &status(&segment))?;
            Ok(if command == ipc::IPC_STAT {
                0
            } else {
                id.into()
            })
        }
        ipc::IPC_RMID if !segment.is_owned_by(&current.caller().subject()) => Err(Errno::EPERM),
        ipc::IPC_RMID => {
            segments.remove(id);
            Ok(0)
        }
        raw::SHM_LOCK => lock_segment(current, segments, &segment),
        raw::SHM_UNLOCK => {
            check_locker(current, &segment)?;
            segment.lock_pages(None);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Checks whether the caller is allowed to lock and unlock the pages of a segment: if it has `CAP_IPC_LOCK`, or owns or
/// created the segment (`shmctl_do_lock` of Linux 7.3). Returns true if no limit applies to the caller.
fn check_locker(current: &Current<'_>, segment: &Segment) -> Result<bool, Errno> {
    if current.caller().has_any(Capabilities::LOCK_MEMORY) {
        return Ok(true);
    }
    let user = current.caller().subject().user;
    let owners = [segment.standing.lock().owner.user, segment.maker.0.user];
    if owners.contains(&user) {
        Ok(false)
    } else {
        Err(Errno::EPERM)
    }
}

/// Locks the pages of a segment in memory (`SHM_LOCK`). The pages count against the user's `RLIMIT_MEMLOCK`.
///
/// # Errors
/// `EPERM` if the caller has neither permission nor `CAP_IPC_LOCK`, or its limit is 0; `ENOMEM` if the limit would be
/// exceeded.
fn lock_segment(current: &Current<'_>, segments: &Segments, segment: &Segment) -> CallResult {
    let unlimited = check_locker(current, segment)?;
    let limit = current.process().identity.soft_limit(Resource::Locked);
    if !unlimited && limit == 0 {
        return Err(Errno::EPERM);
    }
    if segment.is_huge() || segment.standing.lock().locker.is_some() {
        return Ok(0);
    }
    let user = current.caller().subject().user;
    let locked = segments.locked_by(user);
    if !unlimited && locked + segment.size.div_ceil(PAGE) > limit / PAGE {
        return Err(Errno::ENOMEM);
    }
    segment.lock_pages(Some(user));
    Ok(0)
}

/// Changes the owner and permissions of a segment (`IPC_SET`).
fn set_status(current: &Current<'_>, segment: &Segment, wanted: &SegmentStatus) -> CallResult {
    if !segment.is_owned_by(&current.caller().subject()) {
        return Err(Errno::EPERM);
    }
    let mut standing = segment.standing.lock();
    (standing.owner, standing.mode) = wanted.ownership.wanted();
    standing.times[2] = current.vfs().now().seconds;
    Ok(0)
}

/// Writes a structure of `size` bytes that begins with `words`. The rest of the structure is zero.
fn write_words(
    user: UserMemory<'_>,
    address: u64,
    words: &[u64],
    size: usize,
) -> Result<(), Errno> {
    let mut bytes = [0; 72];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    user.write_bytes(address, &bytes[..size])
}

fn status(segment: &Segment) -> SegmentStatus {
    let standing = *segment.standing.lock();
    let (made_by, maker) = segment.maker;
    let [attached_at, detached_at, changed_at] = standing.times;
    let locked = standing.locker.map_or(0, |_| raw::SHM_LOCKED);
    let mode = standing.mode | locked;
    SegmentStatus {
        ownership: ipc::Ownership::new(segment.key, standing.owner, made_by, mode),
        size: segment.size,
        attached_at,
        detached_at,
        changed_at,
        maker,
        last: standing.last,
        attached: segment.attached(),
        rest: [0; 2],
    }
}
