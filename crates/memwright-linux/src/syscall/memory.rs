//! Memory: mapping, protection, advice, locking, the heap.

use super::{Arguments, CallResult, hugetlb, int, keys};
use crate::{
    M, Space,
    context::Context,
    errno::Errno,
    fs::{
        Mapping, OpenFile,
        regular::{Seals, WritableMapping},
        secret::is_secret,
        tmpfs::MountFlags,
        userfault::{Announced, await_watcher, awaiting},
    },
    memory::{
        advise_errno, lock_errno, map_errno, remap_errno, seal_errno, sync_errno, unmap_errno,
    },
    process::Resource,
    user::USER_END,
};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::{general as raw, prctl};
use memwright::{
    AdviseError, AreaFlags, HugeRefusal, LockError, LockFuture, MapError, MapKind, MapRequest,
    OvercommitMode, Placement, PopulateError, Rights, SharedSetting, ToPopulate,
    object::{HUGE_BYTES, Object, ObjectIdentity, Shmem},
    space::{Advice, Advised, ExecGain, RemapRequest, SyncFlags},
    uffd::{Watch, WatchEvent},
};
use memwright_table::VirtAddr;

pub(super) const PAGE: u64 = 4096;

/// What `mmap` is asked for, apart from the file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MapPlan {
    /// What the program may do.
    pub rights: Rights,
    /// Stores reach the object.
    pub shared: bool,
    /// No file.
    pub anonymous: bool,
    /// Where.
    pub placement: Placement,
    /// Properties of the area.
    pub flags: AreaFlags,
    /// Pages are made resident at once.
    pub populate: bool,
    /// Huge pages are asked for by name.
    pub huge: bool,
    /// The mapping must lie low; there is nothing that places it so.
    pub low: bool,
}

/// The rights that `PROT_` bits ask for. x86-64 readable follows from writable or executable in
/// hardware; the area keeps what was asked.
///
/// # Errors
/// `EINVAL` for unknown bits.
pub fn rights(protection: u64) -> Result<Rights, Errno> {
    let known = raw::PROT_READ | raw::PROT_WRITE | raw::PROT_EXEC | raw::PROT_SEM;
    if protection & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(known_rights(protection))
}

/// The rights that these bits are; others are ignored.
#[inline(always)]
pub(super) fn known_rights(protection: u64) -> Rights {
    let mut rights = Rights::empty();
    rights.set(Rights::READ, protection as u32 & raw::PROT_READ != 0);
    rights.set(Rights::WRITE, protection as u32 & raw::PROT_WRITE != 0);
    rights.set(Rights::EXECUTE, protection as u32 & raw::PROT_EXEC != 0);
    rights
}

/// Flags that mean nothing to Linux either (`LEGACY_MAP_MASK` and what `do_mmap` ignores).
const IGNORED: u32 = raw::MAP_DENYWRITE | raw::MAP_EXECUTABLE | raw::MAP_NONBLOCK;
/// Flags that `MAP_SHARED_VALIDATE` accepts beside the ignored ones.
const KNOWN: u32 = raw::MAP_TYPE
    | raw::MAP_FIXED
    | raw::MAP_FIXED_NOREPLACE
    | raw::MAP_ANONYMOUS
    | raw::MAP_GROWSDOWN
    | raw::MAP_LOCKED
    | raw::MAP_NORESERVE
    | raw::MAP_POPULATE
    | raw::MAP_STACK
    | raw::MAP_32BIT
    | raw::MAP_HUGETLB
    | raw::MAP_HUGE_2MB
    | raw::MAP_HUGE_1GB;

/// Pages may be dropped, `linux/mman.h` since Linux 6.11.
const MAP_DROPPABLE: u32 = 0x08;

/// Decodes the protection and flags of `mmap` (`ksys_mmap_pgoff` and `do_mmap` of Linux 7.2).
///
/// # Errors
/// `EINVAL` without a sharing type, for huge pages of a size that there is not and for growing shared memory;
/// `EOPNOTSUPP` for unknown flags with `MAP_SHARED_VALIDATE`.
pub fn map_plan(address: u64, protection: u64, flags: u64) -> Result<MapPlan, Errno> {
    // Unknown protection bits are ignored here, unlike in mprotect.
    let rights = rights(protection & 7)?;
    let flags = flags as u32;
    let mut droppable = false;
    let shared = match flags & raw::MAP_TYPE {
        raw::MAP_PRIVATE => false,
        // It is neither a file's, nor kept, nor a stack.
        MAP_DROPPABLE => {
            let excluded = raw::MAP_LOCKED | raw::MAP_HUGETLB | raw::MAP_GROWSDOWN;
            if flags & raw::MAP_ANONYMOUS == 0 || flags & excluded != 0 {
                return Err(Errno::EINVAL);
            }
            droppable = true;
            false
        }
        // Only files know more flags.
        raw::MAP_SHARED_VALIDATE if flags & raw::MAP_ANONYMOUS != 0 => return Err(Errno::EINVAL),
        raw::MAP_SHARED_VALIDATE if flags & !(KNOWN | IGNORED) != 0 => {
            return Err(Errno::EOPNOTSUPP);
        }
        raw::MAP_SHARED | raw::MAP_SHARED_VALIDATE => true,
        _ => return Err(Errno::EINVAL),
    };
    let has = |flag: u32| flags & flag == flag;
    let huge = has(raw::MAP_HUGETLB);
    if huge && has(raw::MAP_ANONYMOUS) && !hugetlb::has_size(flags)
        || shared && has(raw::MAP_ANONYMOUS) && has(raw::MAP_GROWSDOWN)
    {
        return Err(Errno::EINVAL);
    }
    let placement = placement(address, flags);
    let mut area = AreaFlags::empty();
    area.set(AreaFlags::GROWSDOWN, has(raw::MAP_GROWSDOWN));
    area.set(
        AreaFlags::STACK,
        has(raw::MAP_STACK) && has(raw::MAP_GROWSDOWN),
    );
    area.set(AreaFlags::LOCKED, has(raw::MAP_LOCKED));
    area.set(AreaFlags::NORESERVE, has(raw::MAP_NORESERVE));
    if droppable {
        // What can go at any time is no promise, and nobody else gets it.
        area |= AreaFlags::DROPPABLE
            | AreaFlags::NORESERVE
            | AreaFlags::WIPEONFORK
            | AreaFlags::DONTDUMP;
    }
    Ok(MapPlan {
        rights,
        shared,
        anonymous: has(raw::MAP_ANONYMOUS),
        placement,
        flags: area,
        // A locked mapping is resident; populating is in vain without rights.
        populate: (has(raw::MAP_POPULATE) && !has(raw::MAP_NONBLOCK)) || has(raw::MAP_LOCKED),
        huge,
        low: has(raw::MAP_32BIT),
    })
}

/// Where a mapping goes.
fn placement(address: u64, flags: u32) -> Placement {
    let hint = address & !(PAGE - 1);
    if flags & raw::MAP_FIXED_NOREPLACE != 0 {
        Placement::FixedNoReplace(VirtAddr::new(address))
    } else if flags & raw::MAP_FIXED != 0 {
        Placement::Fixed(VirtAddr::new(address))
    } else if hint != 0 {
        Placement::Hint(VirtAddr::new(hint))
    } else {
        Placement::Anywhere
    }
}

/// `mmap`.
pub fn mmap(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, length, _, flags, descriptor, offset] = *arguments;
    context.check_heap()?;
    if offset % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    let open = mapped_file(context, flags, descriptor)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    match map_anything(context, arguments, open.as_ref()) {
        Ok(address) => Ok(address),
        Err(error) => Err(first_refusal(context, arguments, open.as_ref())
            .err()
            .unwrap_or(error)),
    }
}

/// What Linux refuses of `mmap` before it looks at what is to be mapped: the length, the place, and the right to lock
/// (`do_mmap` of Linux 7.3). Asked only where the call has failed, as it comes first then.
#[cold]
fn first_refusal(
    context: &Context<'_>,
    arguments: &Arguments,
    open: Option<&Arc<OpenFile>>,
) -> Result<(), Errno> {
    let [address, length, _, flags, _, offset] = *arguments;
    let has = |flag: u32| flags as u32 & flag != 0;
    let anonymous = has(raw::MAP_ANONYMOUS);
    let in_pool = |open: &Arc<OpenFile>| {
        let regular = open.inode().regular();
        regular.is_some_and(|regular| regular.pages().huge().is_some())
    };
    let huge = anonymous && has(raw::MAP_HUGETLB) || open.is_some_and(in_pool);
    let too_long = if huge { Errno::EINVAL } else { Errno::ENOMEM };
    let unit = if huge { HUGE_BYTES } else { PAGE };
    let length = length.checked_next_multiple_of(unit).ok_or(too_long)?;
    if length == 0 || anonymous && huge && !hugetlb::has_size(flags as u32) {
        return Err(Errno::EINVAL);
    }
    let placement = placement(address, flags as u32);
    let checked = context.with_space(|space| space.check_place(length, placement, huge));
    checked.map_err(map_errno)?;
    if has(raw::MAP_LOCKED) {
        check_lock(context, length)?;
    }
    // Only regular files have a largest offset (`file_mmap_ok`).
    let limited = open.is_some_and(|open| open.inode().regular().is_some());
    let end = offset.checked_add(length);
    if limited && end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    Ok(())
}

/// Whether the caller may lock so much more memory (`can_do_mlock` and `mlock_future_ok` of Linux 7.3).
///
/// # Errors
/// `EPERM` if it may lock none at all, `EAGAIN` if it may not lock so much.
fn check_lock(context: &Context<'_>, length: u64) -> Result<(), Errno> {
    let (limits, locked) = context.with_space(|space| (space.limits(), space.totals().locked));
    if limits.may_lock_any {
        return Ok(());
    }
    if limits.locked == 0 {
        return Err(Errno::EPERM);
    }
    if locked + length.div_ceil(PAGE) > limits.locked / PAGE {
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

fn map_anything(
    context: &Context<'_>,
    arguments: &Arguments,
    open: Option<&Arc<OpenFile>>,
) -> CallResult {
    let [address, length, protection, flags, _, offset] = *arguments;
    let mut plan = map_plan(address, protection, flags)?;
    if plan.rights == Rights::EXECUTE {
        let key = keys::execute_only(context).unwrap_or_default();
        plan.rights = plan.rights.with_key(key);
    }
    let strict = context.kernel.memory.commit().mode() == OvercommitMode::Never;
    if strict && !plan.flags.contains(AreaFlags::DROPPABLE) {
        plan.flags -= AreaFlags::NORESERVE;
    }
    let mut being_made = None;
    let (kind, max_rights) = match open {
        None => anonymous(context, &plan, length)?,
        Some(open) => {
            if is_secret(open) {
                plan = secret_plan(plan)?;
            }
            if plan.shared && open.is_writable() {
                being_made = WritableMapping::begin(open)?;
            }
            file(context, &plan, open, length, offset)?
        }
    };
    if plan.low {
        return map_low(context, plan, length, kind, max_rights);
    }
    let request = request(plan, length, kind, max_rights);
    let mapped = map(context, &request).map_err(map_errno)?;
    drop(being_made);
    if context.kernel.probes.exist() && !plan.anonymous {
        context.kernel.probes.mapped(context.process());
    }
    Ok(mapped.as_u64())
}

/// The file that is to be mapped, which is looked for before anything else is judged (`ksys_mmap_pgoff`).
fn mapped_file(
    context: &Context<'_>,
    flags: u64,
    descriptor: u64,
) -> Result<Option<Arc<OpenFile>>, Errno> {
    if flags as u32 & raw::MAP_ANONYMOUS != 0 {
        return Ok(None);
    }
    let open = context.files().get_usable(int(descriptor))?;
    Ok(Some(open))
}

/// Maps, tells the watchers of what was there, and makes resident what is to be; returns the address.
///
/// # Errors
/// Those of [`AddressSpace::map`](memwright::AddressSpace::map).
pub(super) fn map(context: &Context<'_>, request: &MapRequest<M>) -> Result<VirtAddr, MapError> {
    let mapped = telling(context, |space, witness| {
        let map = || space.map_telling(request, witness);
        context.kernel.with_relief(map)
    })?;
    make_resident(context, mapped.to_populate);
    Ok(mapped.start)
}

/// Makes resident what a call promises to, and waits for watchers as it comes to their pages. What cannot be had is left
/// to faults (Linux 7.2 `mm/gup.c`, `__mm_populate`).
fn make_resident(context: &Context<'_>, mut rest: ToPopulate) {
    if rest.is_empty() {
        return;
    }
    let space = context.space();
    loop {
        let populate = || (space.populate_rest(&mut rest), rest.next());
        let had = match context.kernel.with_relief_onward(populate) {
            Ok(()) => return,
            Err(PopulateError::Watched(awaited)) => await_watcher(context, &space, awaited).is_ok(),
            Err(PopulateError::OutOfMemory) => false,
        };
        if context.thread.fatal_pending() {
            return;
        }
        if !had {
            space.pass_area(&mut rest);
        }
    }
}

/// How a secret is mapped: shared, locked, and in no core dump (`mm/secretmem.c`, `secretmem_mmap_prepare`).
fn secret_plan(plan: MapPlan) -> Result<MapPlan, Errno> {
    if !plan.shared {
        return Err(Errno::EINVAL);
    }
    let kept = AreaFlags::SECRET | AreaFlags::LOCKED | AreaFlags::DONTDUMP;
    Ok(MapPlan {
        flags: plan.flags | kept,
        ..plan
    })
}

fn request(plan: MapPlan, length: u64, kind: MapKind<M>, max_rights: Rights) -> MapRequest<M> {
    MapRequest {
        length,
        rights: plan.rights,
        max_rights,
        kind,
        placement: plan.placement,
        flags: plan.flags,
        populate: plan.populate,
    }
}

/// `MAP_32BIT`: the lowest free room below 2 GiB.
fn map_low(
    context: &Context<'_>,
    plan: MapPlan,
    length: u64,
    kind: MapKind<M>,
    max_rights: Rights,
) -> CallResult {
    const LOW: (u64, u64) = (0x4000_0000, 0x8000_0000);
    let pages = length.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    let mut request = request(plan, length, kind, max_rights);
    if !matches!(
        plan.placement,
        Placement::Fixed(_) | Placement::FixedNoReplace(_)
    ) {
        let free = context.with_space(|space| first_free(space, LOW, pages));
        let free = free.ok_or(Errno::ENOMEM)?;
        request.placement = Placement::FixedNoReplace(VirtAddr::new(free));
    }
    let mapped = map(context, &request).map_err(map_errno)?;
    Ok(mapped.as_u64())
}

fn first_free(space: &Space, (start, end): (u64, u64), length: u64) -> Option<u64> {
    let mut free = start;
    space.areas(&mut |area| {
        let (first, last) = (
            area.start().address().as_u64(),
            area.end().address().as_u64(),
        );
        if last > free && first < free.saturating_add(length) {
            free = last;
        }
    });
    free.checked_add(length)
        .filter(|last| *last <= end)
        .map(|_| free)
}

fn anonymous(
    context: &Context<'_>,
    plan: &MapPlan,
    length: u64,
) -> Result<(MapKind<M>, Rights), Errno> {
    if plan.huge {
        let object: Arc<dyn Object<M>> = hugetlb::nameless_file(context, length)?;
        return huge_pages(context, plan, object, (0, length));
    }
    if !plan.shared {
        return Ok((MapKind::Anonymous, Rights::all()));
    }
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    let size = length.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    if size > USER_END {
        return Err(Errno::ENOMEM);
    }
    // Linux makes a file for it (`shmem_zero_setup`).
    context.check_open_files()?;
    let memory = context.kernel.memory.clone();
    let identity = ObjectIdentity::default();
    let mut shmem = Shmem::new(memory, size, identity).map_err(|_| Errno::ENOMEM)?;
    if !plan.flags.contains(AreaFlags::NORESERVE) {
        shmem = shmem.promised().map_err(|_| Errno::ENOMEM)?;
    }
    let object: Arc<dyn Object<M>> = Arc::new(shmem.with_huge_pages(SharedSetting::Anonymous));
    Ok((
        MapKind::Object {
            object,
            offset: 0,
            shared: true,
        },
        Rights::all(),
    ))
}

/// A mapping of a file of huge pages, with what it is promised.
fn huge_pages(
    context: &Context<'_>,
    plan: &MapPlan,
    object: Arc<dyn Object<M>>,
    (offset, length): (u64, u64),
) -> Result<(MapKind<M>, Rights), Errno> {
    // Such pages count as locked only here.
    if plan.flags.contains(AreaFlags::LOCKED) {
        check_lock(context, length)?;
    }
    let reserved = !plan.flags.contains(AreaFlags::NORESERVE);
    let promise = hugetlb::Promise::of(plan.shared, reserved);
    let grows = plan.rights.contains(Rights::WRITE);
    let kind = MapKind::Object {
        object: hugetlb::promised(context, object, (offset, length), promise, grows)?,
        offset,
        shared: plan.shared,
    };
    Ok((kind, Rights::all()))
}

fn file(
    context: &Context<'_>,
    plan: &MapPlan,
    open: &Arc<OpenFile>,
    length: u64,
    offset: u64,
) -> Result<(MapKind<M>, Rights), Errno> {
    if !open.is_readable() {
        return Err(Errno::EACCES);
    }
    let mut max_rights = Rights::all();
    if plan.shared && !open.is_writable() {
        if plan.rights.contains(Rights::WRITE) {
            return Err(Errno::EACCES);
        }
        max_rights -= Rights::WRITE;
    }
    let sealed = Seals::WRITE | Seals::FUTURE_WRITE;
    let regular = open.inode().regular();
    let growing = plan.flags.contains(AreaFlags::GROWSDOWN);
    if plan.shared && regular.is_some_and(|regular| regular.seals().intersects(sealed)) {
        // What is mapped to be read is not to be written later either (`mm/memfd.c`, `check_write_seal`).
        if !growing && plan.rights.contains(Rights::WRITE) {
            return Err(Errno::EPERM);
        }
        max_rights -= Rights::WRITE;
    }
    let mounted = open.inode().file_system.flags();
    // Secret memory is as if it were of such a mount (`secretmem_init`).
    if mounted.contains(MountFlags::NO_EXECUTION) || is_secret(open) {
        if plan.rights.contains(Rights::EXECUTE) {
            return Err(Errno::EPERM);
        }
        max_rights -= Rights::EXECUTE;
    }
    let mapping = open.mapping()?;
    if growing {
        return Err(Errno::EINVAL);
    }
    match mapping {
        Mapping::Object(object) if object.huge().is_some() => {
            let (kind, _) = huge_pages(context, plan, object, (offset, length))?;
            Ok((kind, max_rights))
        }
        // Huge pages come from files of huge pages alone.
        Mapping::Zeroes | Mapping::Object(_) if plan.huge => Err(Errno::EINVAL),
        Mapping::Zeroes => anonymous(context, plan, length).map(|(kind, _)| (kind, max_rights)),
        Mapping::Object(object) => Ok((
            MapKind::Object {
                object,
                offset,
                shared: plan.shared,
            },
            max_rights,
        )),
    }
}

/// `munmap`.
pub fn munmap(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, ..] = *arguments;
    let address = VirtAddr::new(address);
    telling(context, |space, witness| {
        let unmap = || space.unmap_telling(address, length, witness);
        context.kernel.with_relief(unmap)
    })
    .map_err(unmap_errno)?;
    Ok(0)
}

/// Changes what is mapped; then watchers are told of it, whatever came of it.
fn telling<R>(
    context: &Context<'_>,
    change: impl FnOnce(&Space, &mut dyn FnMut(&Watch, WatchEvent)) -> R,
) -> R {
    let mut announced = Announced::new(context.kernel);
    let result =
        context.with_space(|space| change(space, &mut |watch, event| announced.note(watch, event)));
    announced.tell(context);
    result
}

/// `mremap`.
pub fn mremap(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [old, old_length, new_length, flags, new, _] = *arguments;
    context.check_heap()?;
    let known = raw::MREMAP_MAYMOVE | raw::MREMAP_FIXED | raw::MREMAP_DONTUNMAP;
    if flags & !u64::from(known) != 0 {
        return Err(Errno::EINVAL);
    }
    let has = |flag: u32| flags as u32 & flag != 0;
    let request = RemapRequest {
        old: VirtAddr::new(old),
        old_length,
        new_length,
        may_move: has(raw::MREMAP_MAYMOVE),
        fixed: has(raw::MREMAP_FIXED).then_some(VirtAddr::new(new)),
        dont_unmap: has(raw::MREMAP_DONTUNMAP),
    };
    let moved = telling(context, |space, witness| {
        let remap = || space.remap_telling(request, witness);
        context.kernel.with_relief(remap)
    });
    let moved = moved.map_err(remap_errno)?;
    make_resident(context, moved.to_populate);
    Ok(moved.start.as_u64())
}

/// What `madvise` is asked for. Hints have a name, by which the account lists them.
pub(super) fn advice(number: u64) -> Option<(Advice, &'static str)> {
    Some(match number as u32 {
        raw::MADV_NORMAL => (Advice::Normal, "MADV_NORMAL"),
        raw::MADV_RANDOM => (Advice::Random, "MADV_RANDOM"),
        raw::MADV_SEQUENTIAL => (Advice::Sequential, "MADV_SEQUENTIAL"),
        raw::MADV_WILLNEED => (Advice::Hint, "MADV_WILLNEED"),
        raw::MADV_MERGEABLE => (Advice::Mergeable, "MADV_MERGEABLE"),
        raw::MADV_UNMERGEABLE => (Advice::Unmergeable, "MADV_UNMERGEABLE"),
        raw::MADV_HUGEPAGE => (Advice::Huge, "MADV_HUGEPAGE"),
        raw::MADV_NOHUGEPAGE => (Advice::NotHuge, "MADV_NOHUGEPAGE"),
        raw::MADV_COLLAPSE => (Advice::Collapse, "MADV_COLLAPSE"),
        raw::MADV_COLD => (Advice::Cold, "MADV_COLD"),
        raw::MADV_PAGEOUT => (Advice::PageOut, "MADV_PAGEOUT"),
        raw::MADV_DONTNEED => (Advice::DontNeed, "MADV_DONTNEED"),
        raw::MADV_DONTNEED_LOCKED => (Advice::DontNeedLocked, "MADV_DONTNEED_LOCKED"),
        raw::MADV_FREE => (Advice::Free, "MADV_FREE"),
        raw::MADV_REMOVE => (Advice::Remove, "MADV_REMOVE"),
        raw::MADV_DONTFORK => (Advice::DontFork, "MADV_DONTFORK"),
        raw::MADV_DOFORK => (Advice::DoFork, "MADV_DOFORK"),
        raw::MADV_DONTDUMP => (Advice::DontDump, "MADV_DONTDUMP"),
        raw::MADV_DODUMP => (Advice::DoDump, "MADV_DODUMP"),
        raw::MADV_WIPEONFORK => (Advice::WipeOnFork, "MADV_WIPEONFORK"),
        raw::MADV_KEEPONFORK => (Advice::KeepOnFork, "MADV_KEEPONFORK"),
        raw::MADV_POPULATE_READ => (Advice::PopulateRead, "MADV_POPULATE_READ"),
        raw::MADV_POPULATE_WRITE => (Advice::PopulateWrite, "MADV_POPULATE_WRITE"),
        MADV_GUARD_INSTALL => (Advice::GuardInstall, "MADV_GUARD_INSTALL"),
        MADV_GUARD_REMOVE => (Advice::GuardRemove, "MADV_GUARD_REMOVE"),
        _ => return None,
    })
}

/// `asm-generic/mman-common.h`.
const MADV_GUARD_INSTALL: u32 = 102;
/// `asm-generic/mman-common.h`.
const MADV_GUARD_REMOVE: u32 = 103;

/// `madvise`. What only advises is counted as a stub of that name.
pub fn madvise(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, number, ..] = *arguments;
    let (advice, name) = advice(number).ok_or(Errno::EINVAL)?;
    let address = VirtAddr::new(address);
    let advised = advise(context, &context.space(), (address, length), advice)?;
    if advice == Advice::Huge {
        context.kernel.huge_scan.want(context.kernel);
    }
    if advice == Advice::Mergeable {
        context.kernel.merge_scan.want(context.kernel);
    }
    if advised == Advised::AdvisedOnly {
        context.kernel.calls.count_stub(name);
    }
    Ok(0)
}

/// Advice on memory. Watchers are told of contents that go before they do: they are not to fill them again.
///
/// # Errors
/// As `madvise`.
pub(super) fn advise(
    context: &Context<'_>,
    space: &Arc<Space>,
    (address, length): (VirtAddr, u64),
    advice: Advice,
) -> Result<Advised, Errno> {
    if let Some(write) = advice.populates() {
        return populate(context, space, (address, length), write).map(|()| Advised::Done);
    }
    let advised = if advice.takes_contents() {
        let mut tell = |watch: &Watch, event| {
            let mut announced = Announced::new(context.kernel);
            announced.note(watch, event);
            announced.tell(context);
        };
        let discard = || space.discard(address, length, advice, &mut tell);
        let done = context.kernel.with_relief(discard);
        done.map(|()| Advised::Done)
    } else {
        awaiting(context, space, || {
            let advise = || space.advise(address, length, advice);
            match context.kernel.with_relief(advise) {
                Err(AdviseError::Watched(awaited)) => Err(awaited),
                advised => Ok(advised),
            }
        })?
    };
    advised.map_err(advise_errno)
}

/// Makes memory resident, and goes on where it was once pages have gone out for it, or a watcher has answered.
fn populate(
    context: &Context<'_>,
    space: &Arc<Space>,
    (address, length): (VirtAddr, u64),
    write: bool,
) -> Result<(), Errno> {
    let mut rest = space.to_populate(address, length).map_err(advise_errno)?;
    awaiting(context, space, || {
        let populate = || (space.populate_onward(&mut rest, write), rest.next());
        match context.kernel.with_relief_onward(populate) {
            Err(AdviseError::Watched(awaited)) => Err(awaited),
            populated => Ok(populated),
        }
    })?
    .map_err(advise_errno)
}

/// `mincore`.
pub fn mincore(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, vector, ..] = *arguments;
    if address % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    crate::user::check_range(address, length as usize).map_err(|_| Errno::ENOMEM)?;
    let mut next = address;
    let end = address + length.next_multiple_of(PAGE);
    let mut out = vector;
    // A page of the vector at a time: user memory is not written under the space's lock.
    while next < end {
        let step = (end - next).min(PAGE * PAGE);
        let mut bytes = Vec::new();
        bytes
            .try_reserve_exact((step / PAGE) as usize)
            .map_err(|_| Errno::EAGAIN)?;
        let found = context.with_space(|space| {
            space.resident(VirtAddr::new(next), step, &mut |_, resident| {
                #[expect(clippy::disallowed_methods, reason = "there is room for each page")]
                bytes.push(u8::from(resident));
            })
        });
        // What lies below a hole is reported before the hole is.
        context.write_bytes(out, &bytes)?;
        found.map_err(advise_errno)?;
        out += bytes.len() as u64;
        next += step;
    }
    Ok(0)
}

/// `mseal`.
pub fn mseal(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let address = VirtAddr::new(address);
    let seal = || context.with_space(|space| space.seal(address, length));
    context.kernel.with_relief(seal).map_err(seal_errno)?;
    Ok(0)
}

/// `mlock`.
pub fn mlock(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    lock(context, arguments[0], arguments[1], false)
}

/// `mlock2`.
pub fn mlock2(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    if flags & !u64::from(raw::MLOCK_ONFAULT) != 0 {
        return Err(Errno::EINVAL);
    }
    lock(context, address, length, flags != 0)
}

fn lock_failed(context: &Context<'_>, error: LockError) -> Errno {
    lock_errno(error, context.with_space(|space| space.limits().locked))
}

fn lock(context: &Context<'_>, address: u64, length: u64, on_fault: bool) -> CallResult {
    let address = VirtAddr::new(address);
    let space = context.space();
    let lock = || space.begin_lock(address, length, on_fault);
    let begun = context.kernel.with_relief(lock);
    let mut rest = begun.map_err(|error| lock_failed(context, error))?;
    let locked = awaiting(context, &space, || {
        let populate = || (space.populate_locked(&mut rest), rest.next());
        match context.kernel.with_relief_onward(populate) {
            Err(LockError::Watched(awaited)) => Err(awaited),
            locked => Ok(locked),
        }
    });
    // Whatever keeps a page from being had (`__mlock_posix_error_return`).
    let locked = locked.map_err(|_| Errno::ENOMEM)?;
    locked.map_err(|error| lock_failed(context, error))?;
    Ok(0)
}

/// `munlock`.
pub fn munlock(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let address = VirtAddr::new(arguments[0]);
    let unlock = || context.with_space(|space| space.unlock(address, arguments[1]));
    let unlocked = context.kernel.with_relief(unlock);
    unlocked.map_err(|error| lock_failed(context, error))?;
    Ok(0)
}

/// `mlockall`.
pub fn mlockall(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let flags = arguments[0] as u32;
    let known = raw::MCL_CURRENT | raw::MCL_FUTURE | raw::MCL_ONFAULT;
    if flags & !known != 0 || flags & (raw::MCL_CURRENT | raw::MCL_FUTURE) == 0 {
        return Err(Errno::EINVAL);
    }
    let on_fault = flags & raw::MCL_ONFAULT != 0;
    let future = match (flags & raw::MCL_FUTURE != 0, on_fault) {
        (false, _) => LockFuture::No,
        (true, false) => LockFuture::Populated,
        (true, true) => LockFuture::OnFault,
    };
    let current = flags & raw::MCL_CURRENT != 0;
    let lock = || context.with_space(|space| space.lock_all(current, future, on_fault));
    let locked = context.kernel.with_relief(lock);
    let to_populate = locked.map_err(|error| lock_failed(context, error))?;
    make_resident(context, to_populate);
    Ok(0)
}

/// `munlockall`.
pub fn munlockall(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    let unlock = || context.with_space(|space| space.unlock_all());
    let unlocked = context.kernel.with_relief(unlock);
    unlocked.map_err(|error| lock_failed(context, error))?;
    Ok(0)
}

/// `msync`.
pub fn msync(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, length, flags, ..] = *arguments;
    let flags = flags as u32;
    let known = raw::MS_ASYNC | raw::MS_INVALIDATE | raw::MS_SYNC;
    let both = raw::MS_ASYNC | raw::MS_SYNC;
    if flags & !known != 0 || flags & both == both {
        return Err(Errno::EINVAL);
    }
    let mut wanted = SyncFlags::empty();
    wanted.set(SyncFlags::WAIT, flags & raw::MS_SYNC != 0);
    wanted.set(SyncFlags::INVALIDATE, flags & raw::MS_INVALIDATE != 0);
    let address = VirtAddr::new(address);
    // Rounding up may wrap, to nothing.
    let length = length.wrapping_add(PAGE - 1) & !(PAGE - 1);
    context
        .with_space(|space| space.sync(address, length, wanted))
        .map_err(sync_errno)?;
    Ok(0)
}

/// `brk`: never fails, but returns where the heap ends.
pub fn brk(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let wanted = arguments[0];
    let Some(image) = context.process().image() else {
        return Ok(0);
    };
    let heap = *image.heap.lock();
    if wanted < heap.start || wanted > USER_END {
        return Ok(heap.end);
    }
    let data_limit = context.process().limits.lock().get(Resource::Data).current;
    if wanted - heap.start > data_limit {
        return Ok(heap.end);
    }
    let old = heap.end.next_multiple_of(PAGE);
    let new = wanted.next_multiple_of(PAGE);
    let mut to_populate = None;
    let moved = if new > old {
        let request = MapRequest::anonymous(new - old, Rights::READ | Rights::WRITE)
            .at(Placement::FixedNoReplace(VirtAddr::new(old)))
            .with(AreaFlags::HEAP);
        // Nothing is replaced, and so nobody told.
        let map = || context.with_space(|space| space.map_telling(&request, &mut |_, _| {}));
        if context.check_heap().is_ok() {
            let mapped = context.kernel.with_relief(map).ok();
            to_populate = mapped.map(|mapped| mapped.to_populate);
        }
        to_populate.is_some()
    } else if new < old {
        let end = VirtAddr::new(new);
        let unmapped = telling(context, |space, witness| {
            let unmap = || space.unmap_telling(end, old - new, witness);
            context.kernel.with_relief(unmap)
        });
        unmapped.is_ok()
    } else {
        true
    };
    if !moved {
        return Ok(heap.end);
    }
    image.heap.lock().end = wanted;
    if let Some(to_populate) = to_populate {
        make_resident(context, to_populate);
    }
    Ok(wanted)
}

/// `PR_SET_MDWE`: refuses to make memory executable that was not. It cannot be taken back or changed
/// (`prctl_set_mdwe` of Linux 7.2, `kernel/sys.c`).
pub fn set_exec_gain(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, bits, rest @ .., _] = *arguments;
    let wanted = exec_gain(bits).ok_or(Errno::EINVAL)?;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    context.with_space(|space| {
        let now = space.exec_gain();
        if now != ExecGain::Granted && now != wanted {
            return Err(Errno::EPERM);
        }
        space.set_exec_gain(wanted);
        Ok(0)
    })
}

/// `PR_GET_MDWE`.
pub fn get_exec_gain(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    let refuse = u64::from(prctl::PR_MDWE_REFUSE_EXEC_GAIN);
    Ok(match context.with_space(|space| space.exec_gain()) {
        ExecGain::Granted => 0,
        ExecGain::Refused { inherited: true } => refuse,
        ExecGain::Refused { inherited: false } => refuse | u64::from(prctl::PR_MDWE_NO_INHERIT),
    })
}

/// `PR_SET_THP_DISABLE` with `flags` where it is disabled, `linux/prctl.h` since Linux 6.18.
const PR_THP_DISABLE_EXCEPT_ADVISED: u64 = 1 << 1;

/// `PR_SET_THP_DISABLE` (`prctl_set_thp_disable` of Linux 7.2, `kernel/sys.c`).
pub fn set_huge_refusal(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, disable, flags, rest @ .., _] = *arguments;
    if rest != [0; 2] {
        return Err(Errno::EINVAL);
    }
    let refusal = match (disable != 0, flags) {
        (false, 0) => HugeRefusal::Nothing,
        (true, 0) => HugeRefusal::Everywhere,
        (true, PR_THP_DISABLE_EXCEPT_ADVISED) => HugeRefusal::ExceptAdvised,
        (false | true, _) => return Err(Errno::EINVAL),
    };
    context.with_space(|space| space.refuse_huge(refusal));
    Ok(0)
}

/// `PR_GET_THP_DISABLE`.
pub fn get_huge_refusal(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(match context.with_space(|space| space.huge_refusal()) {
        HugeRefusal::Nothing => 0,
        HugeRefusal::Everywhere => 1,
        HugeRefusal::ExceptAdvised => 1 | PR_THP_DISABLE_EXCEPT_ADVISED,
    })
}

/// `PR_SET_MEMORY_MERGE` (`kernel/sys.c` of Linux 7.2).
pub fn set_merging(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, on, rest @ .., _] = *arguments;
    if rest != [0; 3] {
        return Err(Errno::EINVAL);
    }
    let merge = || context.with_space(|space| space.merge_all(on != 0));
    let set = context.kernel.with_relief(merge);
    set.map_err(|_| Errno::ENOMEM)?;
    context.kernel.merge_scan.want(context.kernel);
    Ok(0)
}

/// `PR_GET_MEMORY_MERGE`.
pub fn get_merging(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [_, rest @ .., _] = *arguments;
    if rest != [0; 4] {
        return Err(Errno::EINVAL);
    }
    Ok(context.with_space(|space| space.merges_all()).into())
}

/// What the bits of `PR_SET_MDWE` ask for.
fn exec_gain(bits: u64) -> Option<ExecGain> {
    let refuse = u64::from(prctl::PR_MDWE_REFUSE_EXEC_GAIN);
    let alone = refuse | u64::from(prctl::PR_MDWE_NO_INHERIT);
    match bits {
        0 => Some(ExecGain::Granted),
        bits if bits == refuse => Some(ExecGain::Refused { inherited: true }),
        bits if bits == alone => Some(ExecGain::Refused { inherited: false }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, MapPlan, Placement, VirtAddr, map_plan, rights};
    use memwright::{AreaFlags, Rights};

    #[test]
    fn protections() {
        for (bits, expected) in [
            (0, Ok(Rights::empty())),
            (1, Ok(Rights::READ)),
            (3, Ok(Rights::READ | Rights::WRITE)),
            (7, Ok(Rights::all())),
            (8, Ok(Rights::empty())),
            (0x10, Err(Errno::EINVAL)),
        ] {
            assert_eq!(rights(bits), expected, "{bits:#x}");
        }
    }

    #[test]
    fn mapping_flags() {
        let private = MapPlan {
            rights: Rights::READ,
            shared: false,
            anonymous: true,
            placement: Placement::Anywhere,
            flags: AreaFlags::empty(),
            populate: false,
            huge: false,
            low: false,
        };
        let at = VirtAddr::new(0x10_0000);
        for (address, flags, expected) in [
            (0, 0x22, Ok(private)),
            (0x123, 0x22, Ok(private)),
            (
                0x10_0123,
                0x22,
                Ok(MapPlan {
                    placement: Placement::Hint(at),
                    ..private
                }),
            ),
            (
                0x10_0000,
                0x32,
                Ok(MapPlan {
                    placement: Placement::Fixed(at),
                    ..private
                }),
            ),
            (
                0x10_0000,
                0x10_0022,
                Ok(MapPlan {
                    placement: Placement::FixedNoReplace(at),
                    ..private
                }),
            ),
            (
                0,
                0x21,
                Ok(MapPlan {
                    shared: true,
                    ..private
                }),
            ),
            (0, 0x23, Err(Errno::EINVAL)),
            (
                0,
                0x03,
                Ok(MapPlan {
                    shared: true,
                    anonymous: false,
                    ..private
                }),
            ),
            (
                0,
                0x4022,
                Ok(MapPlan {
                    flags: AreaFlags::NORESERVE,
                    ..private
                }),
            ),
            (
                0,
                0x2022,
                Ok(MapPlan {
                    flags: AreaFlags::LOCKED,
                    populate: true,
                    ..private
                }),
            ),
            (
                0,
                0x8022,
                Ok(MapPlan {
                    populate: true,
                    ..private
                }),
            ),
            (0, 0x1_8022, Ok(private)),
            (
                0,
                0x0122,
                Ok(MapPlan {
                    flags: AreaFlags::GROWSDOWN,
                    ..private
                }),
            ),
            (0, 0x0121, Err(Errno::EINVAL)),
            (
                0,
                0x28,
                Ok(MapPlan {
                    flags: AreaFlags::DROPPABLE
                        | AreaFlags::NORESERVE
                        | AreaFlags::WIPEONFORK
                        | AreaFlags::DONTDUMP,
                    ..private
                }),
            ),
            (0, 0x08, Err(Errno::EINVAL)),
            (0, 0x2028, Err(Errno::EINVAL)),
            (0, 0x0128, Err(Errno::EINVAL)),
            (0, 0x20, Err(Errno::EINVAL)),
            (
                0,
                0x4_0022,
                Ok(MapPlan {
                    huge: true,
                    ..private
                }),
            ),
            // Pages of 1 GiB.
            (0, 0x7804_0022, Err(Errno::EINVAL)),
            (0, 0x8000_0023, Err(Errno::EINVAL)),
            (0, 0x8000_0003, Err(Errno::EOPNOTSUPP)),
        ] {
            assert_eq!(
                map_plan(address, 1, flags),
                expected,
                "{address:#x} {flags:#x}"
            );
        }
    }
}
