//! Control messages of sockets in user memory.

use crate::{current::Current, syscall::file::socket::message::MessageHeader};
use alloc::{sync::Arc, vec::Vec};
use linux_raw_sys::{general as raw, net};
use memwright_linux_abi::{abi::Plain, abi_struct, errno::Errno};
use memwright_linux_vfs::{
    fs::{
        OpenFile,
        caller::Caller,
        control::{ControlMessage, ControlMessages},
        socket::{Credentials, Received, Request},
    },
    identity::Capabilities,
    user::UserMemory,
};
use memwright_table::TryPush;

/// `SCM_RIGHTS` of `linux/socket.h`.
const RIGHTS: u32 = 1;
/// `SCM_CREDENTIALS` of `linux/socket.h`.
const CREDENTIALS: u32 = 2;
/// Maximum number of open files in one message (`SCM_MAX_FD` of Linux 7.2, `net/core/scm.c`).
const MOST_RIGHTS: usize = 253;
/// Maximum size in bytes of the control messages of one send.
const CONTROL_MAX: u64 = 4096;

abi_struct! {
    /// `struct cmsghdr` of `linux/socket.h`.
    pub struct ControlHeader {
        /// Length in bytes, including this header.
        pub length: u64,
        /// The level, for example `SOL_SOCKET`.
        pub level: u32,
        /// The type, whose meaning depends on the level.
        pub kind: u32,
    }
}

/// Reads the control messages of a send from user memory.
///
/// # Errors
/// `ENOBUFS` if the control messages are too long; `EFAULT`; `ENOMEM`.
pub fn read(user: UserMemory<'_>, header: &MessageHeader) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    if header.control_length > CONTROL_MAX {
        return Err(Errno::ENOBUFS);
    }
    if header.control_length >= ControlHeader::SIZE as u64 {
        bytes.try_fill(header.control_length as usize, 0)?;
        user.read_bytes(header.control, &mut bytes)?;
    }
    Ok(bytes)
}

/// Decodes the control messages of a send to a Unix socket. Adds the open files and credentials that they pass to
/// `request`.
///
/// # Errors
/// `EINVAL` for a malformed or unknown message, `EBADF` for a descriptor that is not open, `EPERM` for credentials that
/// the sender is not allowed to claim.
pub fn take(current: &Current<'_>, control: &[u8], request: &mut Request) -> Result<(), Errno> {
    for message in ControlMessages(control) {
        let ControlMessage { level, kind, data } = message?;
        match (level, kind) {
            (net::SOL_SOCKET, RIGHTS) => take_rights(current, data, request)?,
            (net::SOL_SOCKET, CREDENTIALS) => {
                if data.len() != Credentials::SIZE {
                    return Err(Errno::EINVAL);
                }
                let given = Credentials::from_bytes(data);
                check_credentials(current, &given)?;
                request.credentials = Some(given);
            }
            (net::SOL_SOCKET, _) => return Err(Errno::EINVAL),
            // Unix sockets ignore control messages of other levels.
            _ => {}
        }
    }
    Ok(())
}

fn take_rights(current: &Current<'_>, data: &[u8], request: &mut Request) -> Result<(), Errno> {
    let (numbers, _) = data.as_chunks::<4>();
    if request.rights.len() + numbers.len() > MOST_RIGHTS {
        return Err(Errno::EINVAL);
    }
    let files = current.files();
    for number in numbers {
        let number = i32::from_le_bytes(*number);
        request.rights.try_push(files.get(number)?)?;
    }
    Ok(())
}

/// Checks the credentials in a message. The sender is allowed to claim a process, user or group id other than its own
/// only with the capability for that kind of id (`scm_check_creds` of Linux 7.2).
fn check_credentials(caller: &dyn Caller, given: &Credentials) -> Result<(), Errno> {
    let process = caller.ids().process;
    let credentials = caller.identity().credentials.lock();
    let (user, group) = (credentials.user, credentials.group);
    let allowed = |own: bool, needed: Capabilities| own || credentials.has(needed);
    let process_given = given.process == process;
    let user_given = [user.real, user.effective, user.saved].contains(&given.user);
    let group_given = [group.real, group.effective, group.saved].contains(&given.group);
    let granted = allowed(process_given, Capabilities::ADMINISTER)
        && allowed(user_given, Capabilities::SET_USER)
        && allowed(group_given, Capabilities::SET_GROUP);
    if granted { Ok(()) } else { Err(Errno::EPERM) }
}

/// Stores the control messages of a receive from a Unix socket in the caller's buffer. Truncates what does not fit.
///
/// # Errors
/// `EFAULT` if the buffer cannot be written.
pub fn store(
    current: &Current<'_>,
    header: &mut MessageHeader,
    passes: bool,
    received: &mut Received,
    flags: u32,
) -> Result<(), Errno> {
    let mut control = ControlWriter::new(current.user, header);
    if let Some(credentials) = received.credentials.filter(|_| passes) {
        control.put_credentials(&credentials)?;
    }
    let rights = core::mem::take(&mut received.rights);
    if !rights.is_empty() {
        let numbers = control.install(current, rights, flags)?;
        if !numbers.is_empty() {
            control.put(net::SOL_SOCKET, RIGHTS, &numbers)?;
        }
    }
    control.finish(header);
    Ok(())
}

/// Writes control messages one after another to user memory.
pub struct ControlWriter<'a> {
    user: UserMemory<'a>,
    at: u64,
    left: usize,
    /// Whether some data did not fit in the buffer.
    cut: bool,
}

impl<'a> ControlWriter<'a> {
    /// Creates a writer for the buffer of a receive.
    pub const fn new(user: UserMemory<'a>, header: &MessageHeader) -> Self {
        Self {
            user,
            at: header.control,
            left: if header.control == 0 {
                0
            } else {
                header.control_length as usize
            },
            cut: false,
        }
    }

    /// Stores the number of written bytes in `header`, and sets `MSG_CTRUNC` there if some data did not fit.
    pub const fn finish(self, header: &mut MessageHeader) {
        header.control_length = self.at - header.control;
        if self.cut {
            header.flags |= net::MSG_CTRUNC;
        }
    }

    /// Writes a control message. Truncates it if it does not fit (`put_cmsg` of Linux 7.2, `net/core/scm.c`).
    ///
    /// # Errors
    /// `EFAULT` if the buffer cannot be written.
    pub fn put(&mut self, level: u32, kind: u32, data: &[u8]) -> Result<(), Errno> {
        let Some(room) = self.left.checked_sub(ControlHeader::SIZE) else {
            self.cut = true;
            return Ok(());
        };
        let count = data.len().min(room);
        self.cut |= count < data.len();
        let length = ControlHeader::SIZE + count;
        let header = ControlHeader {
            length: length as u64,
            level,
            kind,
        };
        self.user.write_value(self.at, &header)?;
        self.user
            .write_bytes(self.at + ControlHeader::SIZE as u64, &data[..count])?;
        let step = length.next_multiple_of(8).min(self.left);
        self.at += step as u64;
        self.left -= step;
        Ok(())
    }

    /// Writes the sender's credentials.
    ///
    /// # Errors
    /// `EFAULT` if the buffer cannot be written.
    pub fn put_credentials(&mut self, credentials: &Credentials) -> Result<(), Errno> {
        let mut bytes = [0; Credentials::SIZE];
        credentials.to_bytes(&mut bytes);
        self.put(net::SOL_SOCKET, CREDENTIALS, &bytes)
    }

    /// Installs descriptors for as many of the open files as fit into the control message. Drops the other files.
    /// Returns the bytes of the descriptors.
    fn install(
        &mut self,
        current: &Current<'_>,
        rights: Vec<Arc<OpenFile>>,
        flags: u32,
    ) -> Result<Vec<u8>, Errno> {
        let room = self.left.saturating_sub(ControlHeader::SIZE) / 4;
        let cloexec = if flags & net::MSG_CMSG_CLOEXEC != 0 {
            raw::O_CLOEXEC
        } else {
            0
        };
        let mut numbers: Vec<u8> = Vec::new();
        let told = rights.len().min(room);
        let room = if numbers.try_make_room(4 * told).is_ok() {
            told
        } else {
            0
        };
        self.cut |= rights.len() > room;
        for open in rights.into_iter().take(room) {
            match current.caller().add_descriptor(open, cloexec) {
                #[expect(clippy::disallowed_methods, reason = "there is room")]
                Ok(number) => numbers.extend_from_slice(&(number as u32).to_le_bytes()),
                Err(_) => {
                    self.cut = true;
                    break;
                }
            }
        }
        Ok(numbers)
    }
}
