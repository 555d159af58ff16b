//! Reads and sets the options of Unix sockets.

use crate::fs::socket::{
    Credentials, Socket,
    options::{OptionValue, Options},
};
use linux_raw_sys::net;
use memwright_linux_abi::{abi::Timeval, errno::Errno};

impl Socket {
    /// Returns the value of an option of `SOL_SOCKET`. `SO_ERROR` also clears the error.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn option(&self, name: u32) -> Result<OptionValue, Errno> {
        let mut state = self.state.lock();
        let number = match name {
            net::SO_TYPE => self.kind.number() as i32,
            net::SO_DOMAIN => net::AF_UNIX as i32,
            net::SO_PROTOCOL => 0,
            net::SO_ERROR => state
                .error
                .take()
                .map_or(0, |errno| i32::from(errno.number())),
            net::SO_ACCEPTCONN => state.listening.is_some().into(),
            net::SO_PEERCRED => {
                let nobody = Credentials {
                    process: 0,
                    user: u32::MAX,
                    group: u32::MAX,
                };
                let peer = state.peer_credentials.unwrap_or(nobody);
                return Ok(OptionValue::Credentials(peer));
            }
            _ => return state.options.get(name),
        };
        Ok(OptionValue::Number(number))
    }

    /// Sets a numeric option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set_option(&self, name: u32, value: i32) -> Result<(), Errno> {
        self.state.lock().options.set(name, value)
    }

    /// Sets the timeout of receives or that of sends. `name` selects which (`SO_RCVTIMEO_OLD` or `SO_SNDTIMEO_OLD`).
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&self, name: u32, time: Timeval) -> Result<(), Errno> {
        self.state.lock().options.set_timeout(name, time)
    }

    /// Returns whether receives return the sender's credentials (`SO_PASSCRED`).
    #[must_use]
    pub fn passes_credentials(&self) -> bool {
        self.options().pass_credentials
    }

    pub(super) fn options(&self) -> Options {
        self.state.lock().options
    }
}
