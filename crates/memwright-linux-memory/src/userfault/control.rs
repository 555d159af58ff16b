//! The `ioctl` commands of a userfaultfd (`userfaultfd_ioctl`).

use super::{Features, Userfault, UserfaultFile, Userfaults};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use linux_raw_sys::{general as raw, ioctl};
use memwright::uffd::{
    Fill, MoveError, Relocation, Watch, WatchError, WatchEvents, WatchModes, Watcher,
};
use memwright_linux_abi::{Space, abi_struct, errno::Errno};
use memwright_linux_base::sync::{self, PausePoints};
use memwright_linux_vfs::{
    direct_reclaim::Retry,
    fs::caller::Caller,
    identity::Capabilities,
    user::{LOWEST, USER_END, UserMemory, check_range},
};
use memwright_table::{PAGE_SIZE, PageRange, PageSize, TryPush, VirtAddr};

/// `UFFDIO_POISON` (`include/uapi/linux/userfaultfd.h`). linux-raw-sys lacks this command and `UFFDIO_MOVE`.
const POISON: u32 = 0xc020_aa08;
/// `UFFDIO_MOVE`, and its mode flag that skips holes in the source.
const MOVE: u32 = 0xc028_aa05;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 2;
/// `UFFDIO_RWPROTECT` and `UFFDIO_SET_MODE` of Linux 7.3.
const READ_WRITE_PROTECT: u32 = 0xc018_aa09;
const SET_MODE: u32 = 0x4010_aa0a;

/// Bit masks of commands, which `UFFDIO_API` and `UFFDIO_REGISTER` return to the program.
mod offered {
    use linux_raw_sys::general as raw;

    /// The bit number of `UFFDIO_SET_MODE` in a mask.
    const SET_MODE: u32 = super::SET_MODE & 0xff;
    pub const ALWAYS: u64 = 1 << raw::_UFFDIO_REGISTER
        | 1 << raw::_UFFDIO_UNREGISTER
        | 1 << SET_MODE
        | 1 << raw::_UFFDIO_API;
    pub const RANGE: u64 = 1 << raw::_UFFDIO_WAKE
        | 1 << raw::_UFFDIO_COPY
        | 1 << raw::_UFFDIO_ZEROPAGE
        | 1 << raw::_UFFDIO_MOVE
        | 1 << raw::_UFFDIO_POISON;
    /// The commands of `RANGE` that hugetlb areas do not support.
    pub const SMALL_ONLY: u64 = 1 << raw::_UFFDIO_ZEROPAGE | 1 << raw::_UFFDIO_MOVE;
    pub const WRITE_PROTECT: u64 = 1 << raw::_UFFDIO_WRITEPROTECT;
    pub const CONTINUE: u64 = 1 << raw::_UFFDIO_CONTINUE;
    pub const READ_WRITE_PROTECT: u64 = 1 << (super::READ_WRITE_PROTECT & 0xff);
}

/// The bits of all `ioctl` commands that `UFFDIO_API` reports.
pub(super) const EVERY_COMMAND: u64 = offered::ALWAYS
    | offered::RANGE
    | offered::WRITE_PROTECT
    | offered::CONTINUE
    | offered::READ_WRITE_PROTECT;

abi_struct! {
    /// `struct uffdio_api`.
    pub struct Api {
        /// `UFFD_API`.
        pub api: u64,
        /// In: the requested features. Out: the supported features.
        pub features: u64,
        /// Out: the supported commands.
        pub commands: u64,
    }
}

abi_struct! {
    /// `struct uffdio_register` without its last field.
    pub struct Register {
        /// First address.
        pub start: u64,
        /// Length in bytes.
        pub length: u64,
        /// `UFFDIO_REGISTER_MODE_...`.
        pub mode: u64,
    }
}

abi_struct! {
    /// `struct uffdio_range`.
    pub struct Range {
        /// First address.
        pub start: u64,
        /// Length in bytes.
        pub length: u64,
    }
}

abi_struct! {
    /// `struct uffdio_set_mode`.
    pub struct Modes {
        /// Features to enable.
        pub enable: u64,
        /// Features to disable.
        pub disable: u64,
    }
}

abi_struct! {
    /// `struct uffdio_copy` without its last field.
    pub struct Copy {
        /// Destination address.
        pub to: u64,
        /// Source address.
        pub from: u64,
        /// Length in bytes.
        pub length: u64,
        /// `UFFDIO_COPY_MODE_...`.
        pub mode: u64,
    }
}

/// Returns the kinds of events that a context with the features `features` receives.
fn events_of(features: Features) -> WatchEvents {
    let mut events = WatchEvents::empty();
    for (feature, event) in [
        (Features::FORK, WatchEvents::FORK),
        (Features::REMAP, WatchEvents::REMAP),
        (Features::REMOVE, WatchEvents::REMOVE),
        (Features::UNMAP, WatchEvents::UNMAP),
    ] {
        events.set(event, features.contains(feature));
    }
    events
}

/// Checks the features that `wanted` requests. Returns these features and the features that they imply.
/// `UFFD_FEATURE_EVENT_FORK` requires a privileged caller, because the reader of the event gets access to the child's
/// memory.
fn acceptable(wanted: &Api, privileged: bool) -> Result<Features, Errno> {
    if wanted.api != u64::from(raw::UFFD_API) {
        return Err(Errno::EINVAL);
    }
    if wanted.features & Features::FORK.bits() != 0 && !privileged {
        return Err(Errno::EPERM);
    }
    let mut features = Features::from_bits(wanted.features).ok_or(Errno::EINVAL)?;
    if features.contains(Features::COUNTS_ACCESSES) && !features.contains(Features::ACCESSES) {
        return Err(Errno::EINVAL);
    }
    if features.contains(Features::ASYNCHRONOUS) {
        features |= Features::UNPOPULATED;
    }
    Ok(features)
}

/// Checks the features that `UFFDIO_SET_MODE` enables and disables. `agreed` contains the features of the context
/// before the command. Returns the new features of the context (`userfaultfd_set_mode`).
fn switched(agreed: Features, modes: &Modes) -> Result<Features, Errno> {
    let (enable, disable) = (modes.enable, modes.disable);
    let switchable = Features::COUNTS_ACCESSES.bits();
    let enables = enable & switchable != 0;
    if enable & disable != 0
        || (enable | disable) & !switchable != 0
        || enables && !agreed.contains(Features::ACCESSES)
    {
        return Err(Errno::EINVAL);
    }
    Features::from_bits((agreed.bits() | enable) & !disable).ok_or(Errno::EINVAL)
}

/// Returns the error number for an error of a `userfaultfd` operation or of a page scan. `EPERM` means that a page scan
/// found an area in which writes are not tracked.
pub fn watch_errno(error: WatchError) -> Errno {
    match error {
        WatchError::BadRange
        | WatchError::NoArea
        | WatchError::Modes
        | WatchError::NotApplicable(_) => Errno::EINVAL,
        WatchError::NotWritable => Errno::EPERM,
        WatchError::Busy => Errno::EBUSY,
        WatchError::NotWatched => Errno::ENOENT,
        WatchError::OverLimit(_) | WatchError::OutOfMemory => Errno::ENOMEM,
        WatchError::Unsupported => Errno::ENOSYS,
    }
}

fn move_errno(error: MoveError) -> Errno {
    match error {
        MoveError::SeveralAreas | MoveError::NotRegistered | MoveError::NotApplicable => {
            Errno::EINVAL
        }
        MoveError::NotWatched | MoveError::NotThere => Errno::ENOENT,
        MoveError::Marked => Errno::EFAULT,
        MoveError::Exists => Errno::EEXIST,
        MoveError::Busy => Errno::EBUSY,
        MoveError::OutOfMemory => Errno::ENOMEM,
    }
}

/// Checks that a range is not empty, consists of complete pages, and is in user memory (`validate_range`).
fn check_pages(start: u64, length: u64) -> Result<(), Errno> {
    let page = PAGE_SIZE as u64;
    let fits = start
        .checked_add(length)
        .is_some_and(|end| end <= USER_END && start >= LOWEST);
    if fits && length > 0 && start.is_multiple_of(page) && length.is_multiple_of(page) {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// The number of pages that a command handles between two scheduling points.
const PAGES: u32 = 64;

/// The context in which a command is executed on memory that is registered with a userfaultfd.
struct Command<'a> {
    userfault: &'a Userfault,
    userfaults: &'static Userfaults,
    caller: &'a dyn Caller,
    watch: Watch,
    /// The user address of the command's arguments.
    argument: u64,
}

/// The destination of a command: the pages that the command fills, or to which it moves pages.
struct Target {
    start: u64,
    length: u64,
    /// Whether the command wakes threads that wait for the pages of the destination.
    wakes: bool,
    /// The offset of the result field in the arguments. In this field, the kernel stores the number of bytes done, or
    /// the error.
    told_at: u64,
}

impl UserfaultFile {
    /// Executes the `ioctl` command `command` with its arguments at the user address `argument`.
    ///
    /// # Errors
    /// `EINVAL` for an unknown command, and the errors of each command.
    #[inline(always)]
    pub(super) fn execute(
        &self,
        caller: &dyn Caller,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        let (userfault, userfaults) = (&*self.userfault, self.userfaults);
        if command == ioctl::UFFDIO_API {
            return userfault.agree(userfaults.user(), caller, argument);
        }
        let agreed = userfault.state.lock().agreed.clone();
        let (_, watch) = agreed.ok_or(Errno::EINVAL)?;
        if userfault.changing.load(Ordering::SeqCst) > 0 {
            refuse_while_changing(userfaults.user(), command, argument)?;
        }
        let given = Command {
            userfault,
            userfaults,
            caller,
            watch,
            argument,
        };
        match command {
            ioctl::UFFDIO_REGISTER => given.register(),
            ioctl::UFFDIO_UNREGISTER => given.unregister(),
            ioctl::UFFDIO_WAKE => given.wake(),
            ioctl::UFFDIO_COPY => given.copy(),
            ioctl::UFFDIO_ZEROPAGE => given.fill(Fill::Zeroes),
            ioctl::UFFDIO_CONTINUE => given.fill(Fill::Object),
            POISON => given.fill(Fill::Poison),
            MOVE => given.relocate(),
            ioctl::UFFDIO_WRITEPROTECT => given.write_protect(),
            command => given.newer(command),
        }
    }
}

/// Fails with `EAGAIN` if the command fills, moves or protects memory. If the command's arguments have a result field,
/// stores this error there. Called while an event about registered memory is unread.
#[cold]
fn refuse_while_changing(user: UserMemory<'_>, command: u32, argument: u64) -> Result<(), Errno> {
    let told_at = match command {
        ioctl::UFFDIO_COPY | MOVE => Some(32),
        ioctl::UFFDIO_ZEROPAGE | ioctl::UFFDIO_CONTINUE | POISON => Some(24),
        ioctl::UFFDIO_WRITEPROTECT | READ_WRITE_PROTECT => None,
        _ => return Ok(()),
    };
    if let Some(offset) = told_at {
        user.write_value(argument + offset, &Errno::EAGAIN.as_result())?;
    }
    Err(Errno::EAGAIN)
}

impl Userfault {
    /// Executes the handshake `UFFDIO_API` (`userfaultfd_api`). It succeeds only once, and only for supported features.
    /// If the result cannot be copied to the caller, no features are enabled.
    fn agree(
        &self,
        user: UserMemory<'_>,
        caller: &dyn Caller,
        argument: u64,
    ) -> Result<u64, Errno> {
        let wanted: Api = user.read_value(argument)?;
        let offer = Api {
            api: wanted.api,
            features: Features::all().bits(),
            commands: offered::ALWAYS,
        };
        let agreed = match acceptable(&wanted, Self::is_privileged(caller)) {
            Ok(features) => {
                user.write_value(argument, &offer)?;
                self.settle(features)
            }
            Err(error) => Err(error),
        };
        if agreed.is_err() {
            user.write_value(argument, &Api::default())?;
        }
        agreed.map(|()| 0)
    }

    fn settle(&self, features: Features) -> Result<(), Errno> {
        let asynchronous = features.contains(Features::ASYNCHRONOUS);
        let watch = Watch::try_new(Watcher {
            number: self.number,
            asynchronous,
            unpopulated: features.contains(Features::UNPOPULATED),
            counts_accesses: features.contains(Features::COUNTS_ACCESSES).into(),
            events: events_of(features),
        });
        let watch = watch.map_err(|_| Errno::ENOMEM)?;
        let mut state = self.state.lock();
        if state.agreed.is_some() {
            return Err(Errno::EINVAL);
        }
        state.agreed = Some((features, watch));
        Ok(())
    }

    fn wake_range(&self, start: u64, length: u64) {
        self.wake(|address| (start..start + length).contains(&address));
    }

    /// Returns whether the caller is privileged (`CAP_SYS_PTRACE`).
    pub fn is_privileged(caller: &dyn Caller) -> bool {
        let credentials = caller.identity().credentials.lock();
        credentials.has(Capabilities::TRACE)
    }
}

impl Command<'_> {
    /// Returns the address space of the process that created the userfaultfd; `ESRCH` if that address space has been
    /// freed. Registering and unregistering memory do not call this function, because, as on Linux, they fail with
    /// `ENOMEM` instead.
    #[inline(always)]
    fn space(&self) -> Result<Arc<Space>, Errno> {
        self.userfault.space.upgrade().ok_or(Errno::ESRCH)
    }

    /// Returns the address space of the caller.
    fn space_of_caller(&self) -> Result<Arc<Space>, Errno> {
        let tasks = self.userfaults.oom.tasks;
        let process = tasks.process(self.caller.ids().process);
        let space = process.and_then(|process| process.space());
        space.ok_or(Errno::ESRCH)
    }

    /// Reads and checks the argument of a command whose argument is a `struct uffdio_range`.
    fn range(&self) -> Result<Range, Errno> {
        let range: Range = self.userfaults.user().read_value(self.argument)?;
        check_pages(range.start, range.length)?;
        Ok(range)
    }

    /// Returns the enabled features.
    fn features(&self) -> Features {
        let agreed = &self.userfault.state.lock().agreed;
        agreed
            .as_ref()
            .map_or(Features::empty(), |(features, _)| *features)
    }

    fn wake_range(&self, start: u64, length: u64) {
        self.userfault.wake_range(start, length);
    }

    fn register(&self) -> Result<u64, Errno> {
        let wanted: Register = self.userfaults.user().read_value(self.argument)?;
        let modes = u8::try_from(wanted.mode)
            .ok()
            .and_then(WatchModes::from_bits);
        let modes = modes
            .filter(|modes| !modes.is_empty())
            .ok_or(Errno::EINVAL)?;
        let accesses = modes.contains(WatchModes::READ_WRITE_PROTECT);
        if accesses && !self.features().contains(Features::ACCESSES) {
            return Err(Errno::EINVAL);
        }
        check_pages(wanted.start, wanted.length)?;
        let start = VirtAddr::new(wanted.start);
        let space = self.userfault.space.upgrade().ok_or(Errno::ENOMEM)?;
        let watched = self
            .userfaults
            .vfs
            .reclaim
            .retry(|| space.uffd().watch(start, wanted.length, &self.watch, modes));
        watched.map_err(watch_errno)?;
        let mut commands = offered::RANGE;
        if space.has_hugetlb(start, wanted.length) {
            commands &= !offered::SMALL_ONLY;
        }
        if modes.contains(WatchModes::WRITE_PROTECT) {
            commands |= offered::WRITE_PROTECT;
        }
        if modes.contains(WatchModes::MINOR) {
            commands |= offered::CONTINUE;
        }
        if accesses {
            commands |= offered::READ_WRITE_PROTECT;
        }
        self.userfaults
            .user()
            .write_value(self.argument + 24, &commands)?;
        Ok(0)
    }

    fn unregister(&self) -> Result<u64, Errno> {
        let range = self.range()?;
        let space = self.userfault.space.upgrade().ok_or(Errno::ENOMEM)?;
        space
            .uffd()
            .unwatch(VirtAddr::new(range.start), range.length, &self.watch)
            .map_err(watch_errno)?;
        self.wake_range(range.start, range.length);
        Ok(0)
    }

    fn wake(&self) -> Result<u64, Errno> {
        let range = self.range()?;
        self.wake_range(range.start, range.length);
        Ok(0)
    }

    /// Executes `UFFDIO_SET_MODE`. If the command enables [`COUNTS_ACCESSES`](Features::COUNTS_ACCESSES), accesses to
    /// protected pages no longer wait. So the command wakes the waiting threads, which retry their accesses.
    fn set_mode(&self) -> Result<u64, Errno> {
        let modes: Modes = self.userfaults.user().read_value(self.argument)?;
        switched(self.features(), &modes)?;
        let space = self.space()?;
        let switch = Features::COUNTS_ACCESSES;
        if (modes.enable | modes.disable) & switch.bits() == 0 {
            return Ok(0);
        }
        let counts = modes.enable & switch.bits() != 0;
        space.uffd().count_accesses(&self.watch, counts);
        if let Some((features, _)) = &mut self.userfault.state.lock().agreed {
            features.set(switch, self.watch.counts_accesses());
        }
        if counts {
            self.userfault.wake(|_| true);
        }
        Ok(0)
    }

    /// Executes the commands that Linux 7.3 has added. Not inlined, so that the other commands do not become slower.
    #[cold]
    #[inline(never)]
    fn newer(&self, command: u32) -> Result<u64, Errno> {
        match command {
            READ_WRITE_PROTECT => self.read_write_protect(),
            SET_MODE => self.set_mode(),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Reads and checks the argument of `UFFDIO_WRITEPROTECT` or `UFFDIO_RWPROTECT`.
    #[inline(always)]
    fn protection(&self) -> Result<Register, Errno> {
        let wanted: Register = self.userfaults.user().read_value(self.argument)?;
        check_pages(wanted.start, wanted.length)?;
        // Bit 0 requests protection. Bit 1 requests that no thread be woken, and is invalid together with bit 0.
        if wanted.mode > 2 {
            return Err(Errno::EINVAL);
        }
        Ok(wanted)
    }

    fn write_protect(&self) -> Result<u64, Errno> {
        let wanted = self.protection()?;
        let protect = wanted.mode == 1;
        let start = VirtAddr::new(wanted.start);
        let space = self.space()?;
        let protected = self
            .userfaults
            .vfs
            .reclaim
            .retry(|| space.uffd().write_protect(start, wanted.length, protect));
        protected.map_err(watch_errno)?;
        if wanted.mode == 0 {
            self.wake_range(wanted.start, wanted.length);
        }
        Ok(0)
    }

    fn read_write_protect(&self) -> Result<u64, Errno> {
        let wanted = self.protection()?;
        let start = VirtAddr::new(wanted.start);
        let space = self.space()?;
        let protected = space
            .uffd()
            .read_write_protect(start, wanted.length, wanted.mode == 1);
        protected.map_err(watch_errno)?;
        if wanted.mode == 0 {
            self.wake_range(wanted.start, wanted.length);
        }
        Ok(0)
    }

    fn copy(&self) -> Result<u64, Errno> {
        let wanted: Copy = self.userfaults.user().read_value(self.argument)?;
        check_pages(wanted.to, wanted.length)?;
        check_range(wanted.from, wanted.length as usize).map_err(|_| Errno::EINVAL)?;
        if wanted.mode & !u64::from(raw::UFFDIO_COPY_MODE_DONTWAKE | raw::UFFDIO_COPY_MODE_WP) != 0
        {
            return Err(Errno::EINVAL);
        }
        let protect = wanted.mode & u64::from(raw::UFFDIO_COPY_MODE_WP) != 0;
        self.caller.check_heap()?;
        let space = self.space()?;
        let mut bytes = Vec::new();
        bytes.try_fill(PAGE_SIZE, 0)?;
        self.fill_pages(&space, &wanted.target(), |ahead, unit| {
            if unit != PageSize::Size4K {
                return self.copy_huge(&space, &wanted, ahead, &mut bytes);
            }
            self.userfaults
                .user()
                .read_bytes(wanted.from + ahead, &mut bytes)?;
            let contents: &[u8; PAGE_SIZE] =
                bytes.as_slice().try_into().map_err(|_| Errno::EFAULT)?;
            let page = VirtAddr::new(wanted.to + ahead).page();
            let fill = Fill::Bytes(contents);
            let reclaim = &self.userfaults.vfs.reclaim;
            let filled = reclaim.retry(|| space.uffd().fill(page, fill, protect));
            filled.map_err(Errno::from)
        })
    }

    /// Copies one huge page from `wanted.from + ahead` to `wanted.to + ahead`. `bytes` is a buffer of 4 KiB for the
    /// copy.
    fn copy_huge(
        &self,
        space: &Space,
        wanted: &Copy,
        ahead: u64,
        bytes: &mut [u8],
    ) -> Result<(), Errno> {
        let page = VirtAddr::new(wanted.to + ahead).page();
        let protect = wanted.mode & u64::from(raw::UFFDIO_COPY_MODE_WP) != 0;
        let frames = self.userfaults.vfs.memory.frames();
        loop {
            let filled = space
                .uffd()
                .fill_hugetlb(page, protect, &mut |frame, part| {
                    let from = wanted.from + ahead + part * PAGE_SIZE as u64;
                    self.userfaults.user().read_bytes(from, bytes)?;
                    frames.write(frame, 0, bytes);
                    Ok(())
                });
            if filled != Err(Errno::EAGAIN) || self.caller.task().fatal_pending() {
                return filled;
            }
            // Another thread, possibly on another CPU, is filling the huge page.
            self.caller.yield_now();
            sync::relax();
        }
    }

    fn relocate(&self) -> Result<u64, Errno> {
        let wanted: Copy = self.userfaults.user().read_value(self.argument)?;
        // The source and the destination must be in the address space of the userfaultfd, and the caller must run in
        // it.
        let own = Arc::downgrade(&self.space_of_caller()?);
        if !own.ptr_eq(&self.userfault.space) {
            return Err(Errno::EINVAL);
        }
        check_pages(wanted.to, wanted.length)?;
        check_pages(wanted.from, wanted.length)?;
        if wanted.mode & !(1 | MOVE_MODE_ALLOW_SRC_HOLES) != 0 {
            return Err(Errno::EINVAL);
        }
        let space = self.space()?;
        let mut done = 0;
        let result = self.userfaults.vfs.reclaim.retry(|| {
            let relocation = Relocation {
                from: VirtAddr::new(wanted.from + done).page(),
                to: VirtAddr::new(wanted.to + done).page(),
                pages: (wanted.length - done) / PAGE_SIZE as u64,
                holes: wanted.mode & MOVE_MODE_ALLOW_SRC_HOLES != 0,
            };
            let (pages, result) = space.uffd().relocate(&relocation, &self.watch);
            done += pages * PAGE_SIZE as u64;
            result
        });
        self.conclude(&wanted.target(), done, result.map_err(move_errno))
    }

    /// Executes `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE` and `UFFDIO_POISON`.
    fn fill(&self, fill: Fill<'_>) -> Result<u64, Errno> {
        let wanted: Register = self.userfaults.user().read_value(self.argument)?;
        check_pages(wanted.start, wanted.length)?;
        let known = if matches!(fill, Fill::Object) { 3 } else { 1 };
        if wanted.mode & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let protect = wanted.mode & 2 != 0;
        let space = self.space()?;
        let target = Target {
            start: wanted.start,
            length: wanted.length,
            wakes: wanted.mode & 1 == 0,
            told_at: 24,
        };
        self.fill_pages(&space, &target, |ahead, _| {
            let page = VirtAddr::new(wanted.start + ahead).page();
            let reclaim = &self.userfaults.vfs.reclaim;
            let filled = reclaim.retry(|| space.uffd().fill(page, fill, protect));
            filled.map_err(Errno::from)
        })
    }

    /// Calls `page` for each page of `target` in order, until a call fails. Fails with `ENOENT` if the pages are not
    /// all in one area (Linux 7.2 `find_dst_vma`).
    fn fill_pages(
        &self,
        space: &Space,
        target: &Target,
        mut page: impl FnMut(u64, PageSize) -> Result<(), Errno>,
    ) -> Result<u64, Errno> {
        let range = PageRange::from_addresses(VirtAddr::new(target.start), target.length);
        let Some(unit) = range.and_then(|range| space.uffd().fill_unit(range)) else {
            return self.conclude(target, 0, Err(Errno::ENOENT));
        };
        let mut done = 0;
        let mut result = Ok(());
        if !(target.start | target.length).is_multiple_of(unit.bytes()) {
            return self.conclude(target, 0, Err(Errno::EINVAL));
        }
        let mut points = PausePoints::every(PAGES);
        while done < target.length {
            points.round();
            result = page(done, unit);
            if result.is_err() {
                break;
            }
            done += unit.bytes();
        }
        self.conclude(target, done, result)
    }

    /// Completes a command. Stores the number of bytes done in the arguments, or the error if no page was done. Wakes
    /// the threads that wait for the pages that were done. Returns 0 if all pages were done, `EAGAIN` if only some were
    /// done, and otherwise the error.
    fn conclude(
        &self,
        target: &Target,
        done: u64,
        result: Result<(), Errno>,
    ) -> Result<u64, Errno> {
        let result = if done == 0 { result } else { Ok(()) };
        let told = result.map_or_else(Errno::as_result, |()| done);
        self.userfaults
            .user()
            .write_value(self.argument + target.told_at, &told)?;
        result?;
        if target.wakes {
            self.wake_range(target.start, done);
        }
        if done == target.length {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }
}

impl Copy {
    /// Returns the destination of a copy or move.
    fn target(&self) -> Target {
        Target {
            start: self.to,
            length: self.length,
            wakes: self.mode & 1 == 0,
            told_at: 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_those_that_there_are() {
        let (fork, unknown) = (Features::FORK.bits(), 1 << 60);
        let (tracking, unpopulated) = (Features::ASYNCHRONOUS, Features::UNPOPULATED);
        let (accesses, counts) = (Features::ACCESSES, Features::COUNTS_ACCESSES);
        let api = u64::from(raw::UFFD_API);
        for (api, features, privileged, expected) in [
            (api, 0, false, Ok(Features::empty())),
            (api + 1, 0, true, Err(Errno::EINVAL)),
            (api, unknown, true, Err(Errno::EINVAL)),
            (api, fork, true, Ok(Features::FORK)),
            (api, fork, false, Err(Errno::EPERM)),
            (api, fork | unknown, false, Err(Errno::EPERM)),
            (api, tracking.bits(), false, Ok(tracking | unpopulated)),
            (api, accesses.bits(), false, Ok(accesses)),
            (api, counts.bits(), false, Err(Errno::EINVAL)),
            (
                api,
                (accesses | counts).bits(),
                false,
                Ok(accesses | counts),
            ),
        ] {
            let wanted = Api {
                api,
                features,
                commands: 0,
            };
            assert_eq!(acceptable(&wanted, privileged), expected, "{features:#x}");
        }
    }

    #[test]
    fn only_the_counting_of_accesses_can_be_switched() {
        let (accesses, counts) = (Features::ACCESSES, Features::COUNTS_ACCESSES);
        let (one, other) = (counts.bits(), Features::SIGNAL.bits());
        for (agreed, enable, disable, expected) in [
            (accesses, one, 0, Ok(accesses | counts)),
            (accesses | counts, 0, one, Ok(accesses)),
            (accesses, 0, 0, Ok(accesses)),
            (accesses, one, one, Err(Errno::EINVAL)),
            (accesses, other, 0, Err(Errno::EINVAL)),
            (accesses, 0, other, Err(Errno::EINVAL)),
            (Features::SIGNAL, one, 0, Err(Errno::EINVAL)),
            (Features::SIGNAL, 0, one, Ok(Features::SIGNAL)),
        ] {
            let modes = Modes { enable, disable };
            assert_eq!(
                switched(agreed, &modes),
                expected,
                "{enable:#x} {disable:#x}"
            );
        }
    }

    #[test]
    fn ranges_are_whole_pages_in_user_memory() {
        for (start, length, fits) in [
            (0x10_0000, 0x1000, true),
            (0x10_0000, 0, false),
            (0x10_0001, 0x1000, false),
            (0x10_0000, 0x1001, false),
            (0x1000, 0x1000, false),
            (USER_END - 0x1000, 0x1000, true),
            (USER_END, 0x1000, false),
            (u64::MAX - 0xfff, 0x1000, false),
        ] {
            assert_eq!(check_pages(start, length).is_ok(), fits, "{start:#x}");
        }
    }
}
