//! Reads and sets the options of sockets.

use crate::{
    abi::Timeval,
    errno::Errno,
    fs::socket::{
        Credentials, Socket,
        options::{OptionValue, Options, buffer_size, noted_bit},
    },
};
use linux_raw_sys::net;

impl Socket {
    /// Returns the value of an option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn option(&self, name: u32) -> Result<OptionValue, Errno> {
        let mut state = self.state.lock();
        let options = &state.options;
        let number = match name {
            net::SO_TYPE => self.kind.number() as i32,
            net::SO_DOMAIN => net::AF_UNIX as i32,
            net::SO_PROTOCOL => 0,
            net::SO_ERROR => state
                .error
                .take()
                .map_or(0, |errno| i32::from(errno.number())),
            net::SO_SNDBUF => options.send_buffer as i32,
            net::SO_RCVBUF => options.receive_buffer as i32,
            net::SO_PASSCRED => options.pass_credentials.into(),
            net::SO_ACCEPTCONN => state.listening.is_some().into(),
            net::SO_RCVTIMEO_OLD => {
                return Ok(OptionValue::Time(Timeval::from_nanoseconds(
                    options.receive_timeout,
                )));
            }
            net::SO_SNDTIMEO_OLD => {
                return Ok(OptionValue::Time(Timeval::from_nanoseconds(
                    options.send_timeout,
                )));
            }
            net::SO_PEERCRED => {
                let nobody = Credentials {
                    process: 0,
                    user: u32::MAX,
                    group: u32::MAX,
                };
                let peer = state.peer_credentials.unwrap_or(nobody);
                return Ok(OptionValue::Credentials(peer));
            }
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                i32::from(options.noted & bit != 0)
            }
        };
        Ok(OptionValue::Number(number))
    }

    /// Sets a numeric option of `SOL_SOCKET`.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn set_option(&self, name: u32, value: i32) -> Result<(), Errno> {
        let options = &mut self.state.lock().options;
        match name {
            net::SO_SNDBUF => options.send_buffer = buffer_size(value),
            net::SO_RCVBUF => options.receive_buffer = buffer_size(value),
            net::SO_PASSCRED => options.pass_credentials = value != 0,
            _ => {
                let bit = noted_bit(name).ok_or(Errno::ENOPROTOOPT)?;
                options.noted = (options.noted & !bit) | if value != 0 { bit } else { 0 };
            }
        }
        Ok(())
    }

    /// Sets the timeout of receives or of sends, which `name` selects.
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&self, name: u32, time: Timeval) -> Result<(), Errno> {
        if !(0..1_000_000).contains(&time.microseconds) {
            return Err(Errno::EDOM);
        }
        // A negative time expires immediately, so it becomes the shortest timeout.
        let length = time.to_nanoseconds().unwrap_or(1);
        let options = &mut self.state.lock().options;
        if name == net::SO_RCVTIMEO_OLD {
            options.receive_timeout = length;
        } else {
            options.send_timeout = length;
        }
        Ok(())
    }

    /// Returns whether receivers get the sender's credentials.
    #[must_use]
    pub fn passes_credentials(&self) -> bool {
        self.options().pass_credentials
    }

    pub(super) fn options(&self) -> Options {
        self.state.lock().options
    }
}
