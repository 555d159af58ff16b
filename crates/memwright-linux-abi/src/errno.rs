//! Error numbers of the system-call interface.

use core::fmt;
use memwright::uffd::FillError;
use memwright_table::OutOfMemory;

/// A Linux error number.
///
/// Numbers from 512 on are never returned to a program. They belong to an interrupted call: the code that delivers the
/// signal restarts the call, or replaces the number with `EINTR`.
///
/// The number is stored in 64 bits, the width of a system call's result, so that functions return a `Result<u64,
/// Errno>` in registers.
#[derive(Clone, Copy, Eq, PartialEq, PartialOrd, Ord, Hash)]
pub struct Errno(u64);

macro_rules! errnos {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "` of `asm-generic/errno*.h`.")]
                pub const $name: Self = Self(linux_raw_sys::errno::$name as u64);
            )*
        }
        /// All error numbers that have a name, with their names.
        const NAMES: &[(Errno, &str)] = &[$((Errno::$name, stringify!($name)),)*];
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENODATA ETIME EPROTO EBADMSG EOVERFLOW ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE
    ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
    EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
    ECONNREFUSED ETOOMANYREFS EALREADY EINPROGRESS ESTALE EDQUOT ECANCELED EHWPOISON EIDRM
    ELIBBAD
}

impl From<OutOfMemory> for Errno {
    fn from(_: OutOfMemory) -> Self {
        Self::ENOMEM
    }
}

impl Errno {
    /// Restarts the call if no handler runs or the handler's action has `SA_RESTART`; otherwise `EINTR`
    /// (`include/linux/errno.h` of Linux 7.2).
    pub const ERESTARTSYS: Self = Self(512);
    /// Restarts the call even if a handler runs.
    pub const ERESTARTNOINTR: Self = Self(513);
    /// Restarts the call if no handler runs; otherwise `EINTR`.
    pub const ERESTARTNOHAND: Self = Self(514);
    /// Restarts the call through `restart_syscall` if no handler runs; otherwise `EINTR`.
    pub const ERESTART_RESTARTBLOCK: Self = Self(516);

    /// Returns the number, which is positive.
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// Returns the value that a system call returns in RAX for this error.
    pub const fn as_result(self) -> u64 {
        (self.0 as i64).wrapping_neg() as u64
    }

    /// Returns the error that `value`, the result of a system call, encodes; `None` if the call succeeded.
    pub const fn from_result(value: u64) -> Option<Self> {
        let negated = (value as i64).wrapping_neg();
        if negated >= 1 && negated <= 4095 {
            Some(Self(negated as u64))
        } else {
            None
        }
    }

    /// Returns the symbolic name, as in `errno(3)`.
    pub fn name(self) -> &'static str {
        match self.0 {
            512 => return "ERESTARTSYS",
            513 => return "ERESTARTNOINTR",
            514 => return "ERESTARTNOHAND",
            516 => return "ERESTART_RESTARTBLOCK",
            _ => {}
        }
        NAMES
            .iter()
            .find(|(errno, _)| *errno == self)
            .map_or("unknown", |(_, name)| name)
    }
}

impl From<FillError> for Errno {
    fn from(error: FillError) -> Self {
        match error {
            FillError::NotApplicable | FillError::NotProtectable | FillError::Unavailable => {
                Self::EINVAL
            }
            FillError::NotWatched => Self::ENOENT,
            FillError::Exists => Self::EEXIST,
            FillError::NotThere => Self::EFAULT,
            FillError::Busy => Self::EAGAIN,
            FillError::BeyondEnd | FillError::OutOfMemory => Self::ENOMEM,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn results_are_negated_numbers() {
        assert_eq!(Errno::ENOMEM.as_result(), (-12i64) as u64);
        assert_eq!(Errno::from_result((-12i64) as u64), Some(Errno::ENOMEM));
        assert_eq!(Errno::from_result(0), None);
        assert_eq!(Errno::from_result(0x7fff_f000), None);
        assert_eq!(Errno::from_result((-4096i64) as u64), None);
    }

    #[test]
    fn names_match_numbers() {
        assert_eq!(Errno::EPERM.number(), 1);
        assert_eq!(Errno::EPERM.name(), "EPERM");
        assert_eq!(Errno::EHWPOISON.number(), 133);
        assert_eq!(Errno::ERESTARTSYS.name(), "ERESTARTSYS");
    }
}
