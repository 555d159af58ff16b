//! The commands of a userfaultfd (`userfaultfd_ioctl`).

use super::{Features, Userfault};
use crate::{
    Space, abi_struct,
    context::Context,
    errno::Errno,
    process::Capabilities,
    user::{USER_END, check_range},
};
use alloc::{sync::Arc, vec};
use core::sync::atomic::Ordering;
use linux_raw_sys::{general as raw, ioctl};
use memwright::uffd::{
    Fill, FillError, MoveError, Relocation, Watch, WatchError, WatchModes, Watcher,
};
use memwright_table::{PAGE_SIZE, VirtAddr};

/// `UFFDIO_POISON` (`include/uapi/linux/userfaultfd.h`); this and the next have no constant in linux-raw-sys.
const POISON: u32 = 0xc020_aa08;
/// `UFFDIO_MOVE`, and its mode that passes over holes.
const MOVE: u32 = 0xc028_aa05;
const MOVE_MODE_ALLOW_SRC_HOLES: u64 = 2;

/// Bits of the commands, as `UFFDIO_API` and `UFFDIO_REGISTER` return them.
mod offered {
    use linux_raw_sys::general as raw;

    pub const ALWAYS: u64 =
        1 << raw::_UFFDIO_REGISTER | 1 << raw::_UFFDIO_UNREGISTER | 1 << raw::_UFFDIO_API;
    pub const RANGE: u64 = 1 << raw::_UFFDIO_WAKE
        | 1 << raw::_UFFDIO_COPY
        | 1 << raw::_UFFDIO_ZEROPAGE
        | 1 << raw::_UFFDIO_MOVE
        | 1 << raw::_UFFDIO_POISON;
    pub const WRITE_PROTECT: u64 = 1 << raw::_UFFDIO_WRITEPROTECT;
    pub const CONTINUE: u64 = 1 << raw::_UFFDIO_CONTINUE;
}

abi_struct! {
    /// `struct uffdio_api`.
    pub struct Api {
        /// `UFFD_API`.
        pub api: u64,
        /// In: wanted; out: there are.
        pub features: u64,
        /// Commands that there are.
        pub commands: u64,
    }
}

abi_struct! {
    /// `struct uffdio_register` without its last field.
    pub struct Register {
        /// First address.
        pub start: u64,
        /// Bytes.
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
        /// Bytes.
        pub length: u64,
    }
}

abi_struct! {
    /// `struct uffdio_copy` without its last field.
    pub struct Copy {
        /// Where to.
        pub to: u64,
        /// Where from.
        pub from: u64,
        /// Bytes.
        pub length: u64,
        /// `UFFDIO_COPY_MODE_...`.
        pub mode: u64,
    }
}

fn watch_errno(error: WatchError) -> Errno {
    match error {
        WatchError::Invalid => Errno::EINVAL,
        WatchError::NotWritable => Errno::EPERM,
        WatchError::Busy => Errno::EBUSY,
        WatchError::NotWatched => Errno::ENOENT,
        WatchError::OverLimit(_) | WatchError::OutOfMemory => Errno::ENOMEM,
    }
}

fn fill_errno(error: FillError) -> Errno {
    match error {
        FillError::Invalid => Errno::EINVAL,
        FillError::NotWatched => Errno::ENOENT,
        FillError::Exists => Errno::EEXIST,
        FillError::NotThere => Errno::EFAULT,
        FillError::OutOfMemory => Errno::ENOMEM,
    }
}

fn move_errno(error: MoveError) -> Errno {
    match error {
        MoveError::Invalid => Errno::EINVAL,
        MoveError::NotWatched | MoveError::NotThere => Errno::ENOENT,
        MoveError::Exists => Errno::EEXIST,
        MoveError::Busy => Errno::EBUSY,
        MoveError::OutOfMemory => Errno::ENOMEM,
    }
}

/// A range of whole pages, at least one, in user memory (`validate_range`).
fn check_pages(start: u64, length: u64) -> Result<(), Errno> {
    let page = PAGE_SIZE as u64;
    let fits = start
        .checked_add(length)
        .is_some_and(|end| end <= USER_END && start >= crate::memory::LOWEST);
    if fits && length > 0 && start % page == 0 && length % page == 0 {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// A filling of several pages: what all commands that fill have in common.
struct Filling<'a> {
    start: u64,
    length: u64,
    /// Bit 0: nobody is woken.
    mode: u64,
    /// Where the number of bytes, or the error, is told.
    told_at: u64,
    page: &'a mut dyn FnMut(u64) -> Result<(), Errno>,
}

impl Userfault {
    /// Does one command.
    ///
    /// # Errors
    /// `EINVAL` for an unknown one, and as each says.
    pub(super) fn control(
        &self,
        context: &Context<'_>,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        if command == ioctl::UFFDIO_API {
            return self.agree(context, argument);
        }
        let (_, watch) = self.state.lock().agreed.clone().ok_or(Errno::EINVAL)?;
        let space = || self.space.upgrade().ok_or(Errno::ESRCH);
        if self.changing.load(Ordering::SeqCst) > 0 {
            self.refuse_while_changing(context, command, argument)?;
        }
        match command {
            ioctl::UFFDIO_REGISTER => self.register(context, &space()?, &watch, argument),
            ioctl::UFFDIO_UNREGISTER => {
                let range: Range = context.read_value(argument)?;
                check_pages(range.start, range.length)?;
                space()?
                    .unwatch(VirtAddr::new(range.start), range.length, &watch)
                    .map_err(watch_errno)?;
                self.wake_range(context, range.start, range.length);
                Ok(0)
            }
            ioctl::UFFDIO_WAKE => {
                let range: Range = context.read_value(argument)?;
                check_pages(range.start, range.length)?;
                self.wake_range(context, range.start, range.length);
                Ok(0)
            }
            ioctl::UFFDIO_COPY => self.copy(context, &space()?, &watch, argument),
            ioctl::UFFDIO_ZEROPAGE => {
                let wanted: Register = context.read_value(argument)?;
                self.fill_range(context, &space()?, &watch, argument, &wanted, Fill::Zeroes)
            }
            ioctl::UFFDIO_CONTINUE => {
                let wanted: Register = context.read_value(argument)?;
                self.fill_range(context, &space()?, &watch, argument, &wanted, Fill::Object)
            }
            POISON => {
                let wanted: Register = context.read_value(argument)?;
                self.fill_range(context, &space()?, &watch, argument, &wanted, Fill::Poison)
            }
            MOVE => self.relocate(context, &space()?, &watch, argument),
            ioctl::UFFDIO_WRITEPROTECT => self.write_protect(context, &space()?, &watch, argument),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Memory is not filled or protected while what was done to it is not read of.
    #[cold]
    fn refuse_while_changing(
        &self,
        context: &Context<'_>,
        command: u32,
        argument: u64,
    ) -> Result<(), Errno> {
        let told_at = match command {
            ioctl::UFFDIO_COPY | MOVE => Some(32),
            ioctl::UFFDIO_ZEROPAGE | ioctl::UFFDIO_CONTINUE | POISON => Some(24),
            ioctl::UFFDIO_WRITEPROTECT => None,
            _ => return Ok(()),
        };
        if let Some(offset) = told_at {
            context.write_value(argument + offset, &Errno::EAGAIN.as_result())?;
        }
        Err(Errno::EAGAIN)
    }

    /// The handshake (`userfaultfd_api`): once, and only for features that there are.
    fn agree(&self, context: &Context<'_>, argument: u64) -> Result<u64, Errno> {
        let wanted: Api = context.read_value(argument)?;
        let agreed = match Features::from_bits(wanted.features) {
            Some(features) if wanted.api == u64::from(raw::UFFD_API) => {
                self.settle(context, features)
            }
            Some(_) | None => Err(Errno::EINVAL),
        };
        let told = match agreed {
            Ok(()) => Api {
                api: wanted.api,
                features: Features::all().bits(),
                commands: offered::ALWAYS,
            },
            Err(_) => Api::default(),
        };
        context.write_value(argument, &told)?;
        agreed.map(|()| 0)
    }

    fn settle(&self, context: &Context<'_>, features: Features) -> Result<(), Errno> {
        // Who reads of a fork gets to see the child's memory.
        if features.contains(Features::FORK) && !Self::may_see_kernel_faults(context) {
            return Err(Errno::EPERM);
        }
        let events = Features::FORK | Features::REMAP | Features::REMOVE | Features::UNMAP;
        if features.intersects(events) {
            context
                .kernel
                .userfaults
                .eventful
                .fetch_add(1, Ordering::Relaxed);
        }
        let asynchronous = features.contains(Features::ASYNCHRONOUS);
        let watch = Watch::try_new(Watcher {
            number: self.number,
            asynchronous,
            unpopulated: asynchronous || features.contains(Features::UNPOPULATED),
            follows: features.contains(Features::REMAP),
        });
        let watch = watch.map_err(|_| Errno::ENOMEM)?;
        let mut state = self.state.lock();
        if state.agreed.is_some() {
            return Err(Errno::EINVAL);
        }
        state.agreed = Some((features, watch));
        Ok(())
    }

    fn register(
        &self,
        context: &Context<'_>,
        space: &Arc<Space>,
        watch: &Watch,
        argument: u64,
    ) -> Result<u64, Errno> {
        let wanted: Register = context.read_value(argument)?;
        let modes = u8::try_from(wanted.mode)
            .ok()
            .and_then(WatchModes::from_bits);
        let modes = modes
            .filter(|modes| !modes.is_empty())
            .ok_or(Errno::EINVAL)?;
        check_pages(wanted.start, wanted.length)?;
        space
            .watch(VirtAddr::new(wanted.start), wanted.length, watch, modes)
            .map_err(watch_errno)?;
        let mut commands = offered::RANGE;
        if modes.contains(WatchModes::WRITE_PROTECT) {
            commands |= offered::WRITE_PROTECT;
        }
        if modes.contains(WatchModes::MINOR) {
            commands |= offered::CONTINUE;
        }
        context.write_value(argument + 24, &commands)?;
        Ok(0)
    }

    fn write_protect(
        &self,
        context: &Context<'_>,
        space: &Arc<Space>,
        watch: &Watch,
        argument: u64,
    ) -> Result<u64, Errno> {
        let wanted: Register = context.read_value(argument)?;
        check_pages(wanted.start, wanted.length)?;
        // Bit 0: protect; bit 1: nobody is woken, which means nothing when protecting.
        if wanted.mode > 2 {
            return Err(Errno::EINVAL);
        }
        let protect = wanted.mode == 1;
        space
            .write_protect(VirtAddr::new(wanted.start), wanted.length, watch, protect)
            .map_err(watch_errno)?;
        if wanted.mode == 0 {
            self.wake_range(context, wanted.start, wanted.length);
        }
        Ok(0)
    }

    fn copy(
        &self,
        context: &Context<'_>,
        space: &Arc<Space>,
        watch: &Watch,
        argument: u64,
    ) -> Result<u64, Errno> {
        let wanted: Copy = context.read_value(argument)?;
        check_pages(wanted.to, wanted.length)?;
        check_range(wanted.from, wanted.length as usize).map_err(|_| Errno::EINVAL)?;
        if wanted.mode & !u64::from(raw::UFFDIO_COPY_MODE_DONTWAKE | raw::UFFDIO_COPY_MODE_WP) != 0
        {
            return Err(Errno::EINVAL);
        }
        let protect = wanted.mode & u64::from(raw::UFFDIO_COPY_MODE_WP) != 0;
        context.check_heap()?;
        let mut bytes = vec![0; PAGE_SIZE];
        let mut one_page = |ahead: u64| {
            context.read_bytes(wanted.from + ahead, &mut bytes)?;
            let contents: &[u8; PAGE_SIZE] =
                bytes.as_slice().try_into().map_err(|_| Errno::EFAULT)?;
            let page = VirtAddr::new(wanted.to + ahead).page();
            space
                .fill(page, watch, Fill::Bytes(contents), protect)
                .map_err(fill_errno)
        };
        self.fill_pages(
            context,
            &mut Filling {
                start: wanted.to,
                length: wanted.length,
                mode: wanted.mode,
                told_at: argument + 32,
                page: &mut one_page,
            },
        )
    }

    fn relocate(
        &self,
        context: &Context<'_>,
        space: &Arc<Space>,
        watch: &Watch,
        argument: u64,
    ) -> Result<u64, Errno> {
        let wanted: Copy = context.read_value(argument)?;
        check_pages(wanted.to, wanted.length)?;
        check_pages(wanted.from, wanted.length)?;
        let woken = wanted.mode & 1 == 0;
        if wanted.mode & !(1 | MOVE_MODE_ALLOW_SRC_HOLES) != 0 {
            return Err(Errno::EINVAL);
        }
        let relocation = Relocation {
            from: VirtAddr::new(wanted.from).page(),
            to: VirtAddr::new(wanted.to).page(),
            pages: wanted.length / PAGE_SIZE as u64,
            holes: wanted.mode & MOVE_MODE_ALLOW_SRC_HOLES != 0,
        };
        let moved = space.relocate(&relocation, watch).map_err(move_errno);
        let done = match moved {
            Ok((pages, _)) => pages * PAGE_SIZE as u64,
            Err(error) => error.as_result(),
        };
        context.write_value(argument + 32, &done)?;
        let (pages, _) = moved?;
        if woken {
            self.wake_range(context, wanted.to, done);
        }
        if pages == relocation.pages {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }

    /// `UFFDIO_ZEROPAGE`, `UFFDIO_CONTINUE` and `UFFDIO_POISON`.
    fn fill_range(
        &self,
        context: &Context<'_>,
        space: &Arc<Space>,
        watch: &Watch,
        argument: u64,
        wanted: &Register,
        fill: Fill<'_>,
    ) -> Result<u64, Errno> {
        check_pages(wanted.start, wanted.length)?;
        let known = if matches!(fill, Fill::Object) { 3 } else { 1 };
        if wanted.mode & !known != 0 {
            return Err(Errno::EINVAL);
        }
        let protect = wanted.mode & 2 != 0;
        let mut one_page = |ahead: u64| {
            let page = VirtAddr::new(wanted.start + ahead).page();
            space.fill(page, watch, fill, protect).map_err(fill_errno)
        };
        self.fill_pages(
            context,
            &mut Filling {
                start: wanted.start,
                length: wanted.length,
                mode: wanted.mode,
                told_at: argument + 24,
                page: &mut one_page,
            },
        )
    }

    /// Fills page after page up to the first that cannot be; tells how many bytes were filled, or why not even the
    /// first page was.
    fn fill_pages(&self, context: &Context<'_>, filling: &mut Filling<'_>) -> Result<u64, Errno> {
        let mut done = 0;
        let mut failure = None;
        while done < filling.length {
            match (filling.page)(done) {
                Ok(()) => done += PAGE_SIZE as u64,
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let told = match failure {
            Some(error) if done == 0 => error.as_result(),
            Some(_) | None => done,
        };
        context.write_value(filling.told_at, &told)?;
        if let (Some(error), 0) = (failure, done) {
            return Err(error);
        }
        if filling.mode & 1 == 0 {
            self.wake_range(context, filling.start, done);
        }
        if done == filling.length {
            Ok(0)
        } else {
            Err(Errno::EAGAIN)
        }
    }

    fn wake_range(&self, context: &Context<'_>, start: u64, length: u64) {
        self.wake(context.kernel, |address| {
            (start..start + length).contains(&address)
        });
    }

    /// Whether the caller may make one that sees faults of the kernel (`userfaultfd_syscall_allowed`).
    pub fn may_see_kernel_faults(context: &Context<'_>) -> bool {
        let credentials = context.process().credentials.lock();
        credentials.has(Capabilities::TRACE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
