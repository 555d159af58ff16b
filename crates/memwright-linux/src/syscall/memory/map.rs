//! The `mmap` system call.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::int,
        memory::{
            changes::telling,
            hugetlb, keys,
            lock::check_lock,
            plan::{MapPlan, PAGE, map_plan, placement, secret_plan},
            populate::make_resident,
        },
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright::{
    AreaFlags, MapError, MapKind, MapRequest, OvercommitMode, Placement, Rights, SharedSetting,
    object::{HUGE_BYTES, Object, ObjectIdentity, Shmem},
};
use memwright_linux_abi::{M, Memory, Space, errno::Errno, protection_keys::ProtectionKeys};
use memwright_linux_memory::{memory::map_errno, userfault::Userfaults};
use memwright_linux_tasks::{probes::Probes, process::Process};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::{
        Mapping, OpenFile,
        regular::{Seals, WritableMapping},
        secret::is_secret,
        tmpfs::MountFlags,
    },
    user::USER_END,
};
use memwright_table::VirtAddr;

/// A new mapping.
pub(crate) struct Mapped {
    address: VirtAddr,
    /// Whether the mapping can contain breakpoints of uprobes.
    probed: bool,
}

impl Mapped {
    /// Sets the breakpoints of uprobes in the mapping, and returns the address of the mapping.
    pub(in crate::syscall) fn finish(self, probes: &Probes, process: &Process) -> CallResult {
        if probes.exist() && self.probed {
            probes.mapped(process);
        }
        Ok(self.address.as_u64())
    }
}

/// Implements `mmap`. The caller must complete the call with [`Mapped::finish`].
pub fn mmap(
    current: &Current<'_>,
    userfaults: &Userfaults,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
) -> Result<Mapped, Errno> {
    let [_, length, _, flags, descriptor, offset] = *arguments;
    current.check_heap()?;
    if offset % PAGE != 0 {
        return Err(Errno::EINVAL);
    }
    let open = mapped_file(current, flags, descriptor)?;
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    match map_anything(
        current,
        userfaults,
        protection_keys,
        arguments,
        open.as_ref(),
    ) {
        Ok(mapped) => Ok(mapped),
        Err(error) => Err(first_refusal(current, arguments, open.as_ref())
            .err()
            .unwrap_or(error)),
    }
}

/// Checks the length, the number of areas, the placement, and the permission to lock memory, which Linux checks before
/// anything that depends on the kind of mapping (`do_mmap` of Linux 7.3). Called only after `mmap` has failed, to
/// return the error that Linux would return first.
#[cold]
fn first_refusal(
    current: &Current<'_>,
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
    let checked = current.with_space(|space| space.check_place(length, placement, huge));
    checked.map_err(map_errno)?;
    if has(raw::MAP_LOCKED) {
        check_lock(current, length)?;
    }
    // Only regular files have a maximum offset (`file_mmap_ok`).
    let limited = open.is_some_and(|open| open.inode().regular().is_some());
    let end = offset.checked_add(length);
    if limited && end.is_none_or(|end| end > i64::MAX as u64) {
        return Err(Errno::EOVERFLOW);
    }
    Ok(())
}

fn map_anything(
    current: &Current<'_>,
    userfaults: &Userfaults,
    protection_keys: &ProtectionKeys,
    arguments: &Arguments,
    open: Option<&Arc<OpenFile>>,
) -> Result<Mapped, Errno> {
    let [address, length, protection, flags, _, offset] = *arguments;
    let mut plan = map_plan(address, protection, flags)?;
    if plan.rights == Rights::EXECUTE {
        let key = keys::execute_only(current, protection_keys).unwrap_or_default();
        plan.rights = plan.rights.with_key(key);
    }
    let memory = &current.vfs().memory;
    let strict = memory.commit().mode() == OvercommitMode::Never;
    if strict && !plan.flags.contains(AreaFlags::DROPPABLE) {
        plan.flags -= AreaFlags::NORESERVE;
    }
    let mut being_made = None;
    let (kind, max_rights) = match open {
        None => anonymous(current, memory, &plan, length)?,
        Some(open) => {
            if is_secret(open) {
                plan = secret_plan(plan)?;
            }
            if plan.shared && open.is_writable() {
                being_made = WritableMapping::begin(open)?;
            }
            file(current, memory, &plan, open, length, offset)?
        }
    };
    if plan.low {
        let address = map_low(current, userfaults, plan, length, kind, max_rights)?;
        return Ok(Mapped {
            address,
            probed: false,
        });
    }
    let request = request(plan, length, kind, max_rights);
    let address = map(current, userfaults, &request).map_err(map_errno)?;
    drop(being_made);
    Ok(Mapped {
        address,
        probed: !plan.anonymous,
    })
}

/// Returns the file to map. The error of this lookup has precedence over all other errors (`ksys_mmap_pgoff`).
fn mapped_file(
    current: &Current<'_>,
    flags: u64,
    descriptor: u64,
) -> Result<Option<Arc<OpenFile>>, Errno> {
    if flags as u32 & raw::MAP_ANONYMOUS != 0 {
        return Ok(None);
    }
    let open = current.files().get_usable(int(descriptor))?;
    Ok(Some(open))
}

/// Maps an area, sends the userfaultfd events of the areas that the mapping replaced, and populates the new area.
/// Returns its address.
///
/// # Errors
/// The errors of [`AddressSpace::map`](memwright::AddressSpace::map).
pub(in crate::syscall) fn map(
    current: &Current<'_>,
    userfaults: &Userfaults,
    request: &MapRequest<M>,
) -> Result<VirtAddr, MapError> {
    let mapped = telling(current, userfaults, |space, witness| {
        let map = || space.map_telling(request, witness);
        current.reclaim().retry(map)
    })?;
    make_resident(current, userfaults, mapped.to_populate);
    Ok(mapped.start)
}

/// Builds the request for `AddressSpace::map`.
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

/// Maps at the lowest free address below 2 GiB (`MAP_32BIT`).
fn map_low(
    current: &Current<'_>,
    userfaults: &Userfaults,
    plan: MapPlan,
    length: u64,
    kind: MapKind<M>,
    max_rights: Rights,
) -> Result<VirtAddr, Errno> {
    const LOW: (u64, u64) = (0x4000_0000, 0x8000_0000);
    let pages = length.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    let mut request = request(plan, length, kind, max_rights);
    if !matches!(
        plan.placement,
        Placement::Fixed(_) | Placement::FixedNoReplace(_)
    ) {
        let free = current.with_space(|space| first_free(space, LOW, pages));
        let free = free.ok_or(Errno::ENOMEM)?;
        request.placement = Placement::FixedNoReplace(VirtAddr::new(free));
    }
    map(current, userfaults, &request).map_err(map_errno)
}

/// Returns the start of the first gap of `length` bytes between `start` and `end`.
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

/// Creates the object of an anonymous mapping. Returns it with the maximum rights of the mapping (`VM_MAY*` on Linux).
fn anonymous(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    plan: &MapPlan,
    length: u64,
) -> Result<(MapKind<M>, Rights), Errno> {
    if plan.huge {
        let object: Arc<dyn Object<M>> = hugetlb::nameless_file(current, memory, length)?;
        return huge_pages(current, memory, plan, object, (0, length));
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
    // Like on Linux, the mapping counts as an open file (`shmem_zero_setup`).
    current.caller().check_open_files()?;
    let identity = ObjectIdentity::default();
    let mut shmem = Shmem::new(memory.clone(), size, identity).map_err(|_| Errno::ENOMEM)?;
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

/// Reserves the pages for a mapping of a hugetlb file. Returns the object to map, with the maximum rights of the
/// mapping.
fn huge_pages(
    current: &Current<'_>,
    memory: &Arc<Memory>,
    plan: &MapPlan,
    object: Arc<dyn Object<M>>,
    (offset, length): (u64, u64),
) -> Result<(MapKind<M>, Rights), Errno> {
    // Like Linux, choose the placement before reserving pages: if no placement is found, no reservation is left behind.
    let rounded = length.checked_next_multiple_of(HUGE_BYTES);
    let rounded = rounded.ok_or(Errno::EINVAL)?;
    let checked = current.with_space(|space| space.check_place(rounded, plan.placement, true));
    checked.map_err(map_errno)?;
    // Check `RLIMIT_MEMLOCK` before reserving pages, too. Huge pages count against this limit only in a locked mapping.
    if plan.flags.contains(AreaFlags::LOCKED) {
        check_lock(current, length)?;
    }
    let reserved = !plan.flags.contains(AreaFlags::NORESERVE);
    let promise = hugetlb::Promise::of(plan.shared, reserved);
    let grows = plan.rights.contains(Rights::WRITE);
    let kind = MapKind::Object {
        object: hugetlb::promised(memory, object, (offset, length), promise, grows)?,
        offset,
        shared: plan.shared,
    };
    Ok((kind, Rights::all()))
}

/// Checks the permissions of a file. Returns the object to map, with the maximum rights of the mapping.
fn file(
    current: &Current<'_>,
    memory: &Arc<Memory>,
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
        // A writable mapping is denied, and a read-only mapping must not become writable later (`mm/memfd.c`,
        // `check_write_seal`).
        if !growing && plan.rights.contains(Rights::WRITE) {
            return Err(Errno::EPERM);
        }
        max_rights -= Rights::WRITE;
    }
    let mounted = open.inode().file_system.flags();
    // Secretmem files belong to a mount with the option `noexec` (`secretmem_init`).
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
            let (kind, _) = huge_pages(current, memory, plan, object, (offset, length))?;
            Ok((kind, max_rights))
        }
        // `MAP_HUGETLB` is valid only for hugetlb files, whose pages are allocated from the pool.
        Mapping::Zeroes | Mapping::Object(_) if plan.huge => Err(Errno::EINVAL),
        Mapping::Zeroes => {
            anonymous(current, memory, plan, length).map(|(kind, _)| (kind, max_rights))
        }
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
