//! The file operations of character devices.

use crate::{
    fs::{
        abilities::Splices,
        caller::Caller,
        device::Device,
        files::console::write_channel,
        open_file::{File, Mapping, OpenFile},
        seek::Whence,
        transfer::{Sink, Source},
    },
    user::TRANSFER_MAX,
};
use alloc::sync::Arc;
use memwright_linux_abi::{errno::Errno, host::Channel};

/// `USERFAULTFD_IOC_NEW` (`include/uapi/linux/userfaultfd.h`).
const USERFAULTFD_IOC_NEW: u32 = 0xaa00;

/// Number of bytes that are copied through the kernel stack at a time.
const CHUNK: usize = 256;

impl File for Device {
    fn splices(&self) -> Splices {
        match self {
            Self::Null => Splices::Writes,
            Self::Zero | Self::Random | Self::Urandom | Self::Console => Splices::Both,
            Self::Full => Splices::Reads,
            Self::Userfaultfd | Self::Terminal | Self::Unknown(_) => Splices::Neither,
        }
    }

    fn read(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        sink: &mut Sink<'_>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Null | Self::Console => Ok(0),
            Self::Zero | Self::Full => sink.put_zeroes(sink.left()),
            Self::Random | Self::Urandom => {
                let mut buffer = [0; CHUNK];
                let mut done = 0;
                while sink.left() > 0 {
                    let count = sink.left().min(CHUNK);
                    caller.vfs().random.lock().fill(&mut buffer[..count]);
                    match sink.put(&buffer[..count]) {
                        Ok(put) => done += put,
                        Err(_) if done > 0 => break,
                        Err(error) => return Err(error),
                    }
                    if caller.interrupted() {
                        break;
                    }
                }
                Ok(done)
            }
            Self::Userfaultfd => Err(Errno::EINVAL),
            Self::Terminal | Self::Unknown(_) => Err(Errno::EIO),
        }
    }

    fn write(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        _position: &mut u64,
        source: &mut Source<'_>,
    ) -> Result<usize, Errno> {
        match self {
            Self::Null | Self::Zero => {
                let count = source.left().min(TRANSFER_MAX as usize);
                source.skip(count);
                Ok(count)
            }
            Self::Full => Err(Errno::ENOSPC),
            // Linux mixes written bytes into the random pool. This kernel discards them, because only the seed of the
            // run determines random bytes.
            Self::Random | Self::Urandom => {
                let count = source.left();
                source.skip(count);
                Ok(count)
            }
            Self::Console => write_channel(caller, Channel::Log, source),
            Self::Userfaultfd => Err(Errno::EINVAL),
            Self::Terminal | Self::Unknown(_) => Err(Errno::EIO),
        }
    }

    fn control(
        &self,
        caller: &dyn Caller,
        _open: &OpenFile,
        command: u32,
        argument: u64,
    ) -> Result<u64, Errno> {
        match self {
            // The permission to open the device is sufficient to create any kind of userfaultfd
            // (`userfaultfd_dev_ioctl` of Linux 7.2).
            Self::Userfaultfd if command == USERFAULTFD_IOC_NEW => {
                let maker = *caller.vfs().userfaultfds.lock();
                maker.ok_or(Errno::EINVAL)?.make(caller, argument as u32)
            }
            Self::Userfaultfd => Err(Errno::EINVAL),
            Self::Null
            | Self::Zero
            | Self::Full
            | Self::Random
            | Self::Urandom
            | Self::Console
            | Self::Terminal
            | Self::Unknown(_) => Err(Errno::ENOTTY),
        }
    }

    fn seek(
        &self,
        _caller: &dyn Caller,
        _open: &OpenFile,
        position: u64,
        offset: i64,
        whence: Whence,
    ) -> Result<u64, Errno> {
        match self {
            // Seeking leaves the position at 0 (`null_lseek` of Linux 7.2).
            Self::Null | Self::Zero | Self::Full => Ok(0),
            Self::Random | Self::Urandom => crate::fs::seek::sought(position, offset, whence, None),
            Self::Userfaultfd => crate::fs::seek::moved(position, offset),
            Self::Console | Self::Terminal | Self::Unknown(_) => Err(Errno::ESPIPE),
        }
    }

    fn mapping(&self, _open: &Arc<OpenFile>) -> Result<Mapping, Errno> {
        match self {
            Self::Zero => Ok(Mapping::Zeroes),
            Self::Null
            | Self::Full
            | Self::Random
            | Self::Urandom
            | Self::Userfaultfd
            | Self::Console
            | Self::Terminal
            | Self::Unknown(_) => Err(Errno::ENODEV),
        }
    }
}
