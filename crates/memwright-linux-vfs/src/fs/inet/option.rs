//! Reads and sets the options of internet sockets.

use crate::fs::{
    inet::{
        choices::{level, tcp},
        claims::Protocol,
        info::{INFO_SIZE, SEGMENT},
        socket::InetSocket,
        state::Phase,
    },
    socket::buffer_size,
};
use linux_raw_sys::net;
use memwright_linux_abi::{
    abi::{SECOND, Timeval},
    errno::Errno,
};

/// Minimum size in bytes of a receive buffer (`SOCK_MIN_RCVBUF` of Linux 7.2).
const LEAST_RECEIVE_BUFFER: usize = 2304;
/// The name of the only congestion control, padded as `TCP_CONGESTION` returns it.
const CONGESTION: [u8; 16] = *b"cubic\0\0\0\0\0\0\0\0\0\0\0";

/// The value of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(i32),
    /// A time.
    Time(Timeval),
    /// `struct linger`.
    Linger([i32; 2]),
    /// `struct tcp_info`.
    Info([u8; INFO_SIZE]),
    /// The name of a congestion control.
    Name([u8; 16]),
}

impl InetSocket {
    /// Returns the value of an option. `SO_ERROR` also clears the error.
    ///
    /// # Errors
    /// `ENOPROTOOPT`.
    pub fn option(&self, level: u32, name: u32) -> Result<Value, Errno> {
        match (level, name) {
            (net::SOL_SOCKET, _) => {
                if let Some(value) = self.general_option(name) {
                    return Ok(value);
                }
            }
            (level::TCP, tcp::INFO) if self.is_stream() => return Ok(Value::Info(self.info())),
            (level::TCP, tcp::CONGESTION) if self.is_stream() => {
                return Ok(Value::Name(CONGESTION));
            }
            (level::TCP, tcp::MAXSEG) if self.is_stream() => {
                let open = self.state.lock().progress.is_open();
                if open {
                    return Ok(Value::Number(SEGMENT as i32));
                }
            }
            _ => {}
        }
        let choices = self.settings().choices;
        let number = choices.get(self.family, self.protocol, level, name)?;
        Ok(Value::Number(number))
    }

    /// Returns the value of an option of `SOL_SOCKET` that is not in [`Choices`](crate::fs::inet::choices::Choices);
    /// `None` for other options.
    fn general_option(&self, name: u32) -> Option<Value> {
        let mut state = self.state.lock();
        let settings = &state.settings;
        let number = match name {
            net::SO_TYPE if self.is_stream() => net::SOCK_STREAM as i32,
            net::SO_TYPE => net::SOCK_DGRAM as i32,
            net::SO_DOMAIN => self.family.number() as i32,
            net::SO_PROTOCOL => match self.protocol {
                Protocol::Tcp => level::TCP as i32,
                Protocol::Udp => level::UDP as i32,
            },
            net::SO_ERROR => state
                .error
                .take()
                .map_or(0, |errno| i32::from(errno.number())),
            net::SO_SNDBUF => settings.send_buffer as i32,
            net::SO_RCVBUF => settings.receive_buffer as i32,
            net::SO_ACCEPTCONN => i32::from(state.progress.phase == Phase::Listening),
            net::SO_SNDLOWAT => 1,
            net::SO_RCVTIMEO_OLD => {
                return Some(Value::Time(Timeval::from_nanoseconds(
                    settings.receive_timeout,
                )));
            }
            net::SO_SNDTIMEO_OLD => {
                return Some(Value::Time(Timeval::from_nanoseconds(
                    settings.send_timeout,
                )));
            }
            net::SO_LINGER => {
                let on = i32::from(settings.linger.is_some());
                return Some(Value::Linger([on, settings.linger.unwrap_or(0) as i32]));
            }
            _ => return None,
        };
        Some(Value::Number(number))
    }

    /// Sets an option whose value is a number.
    ///
    /// # Errors
    /// `ENOPROTOOPT`, `EINVAL`.
    pub fn set_option(&self, level: u32, name: u32, value: i32) -> Result<(), Errno> {
        {
            let mut state = self.state.lock();
            let state = &mut *state;
            let settings = &mut state.settings;
            match (level, name) {
                (net::SOL_SOCKET, net::SO_SNDBUF) => {
                    settings.send_buffer = buffer_size(value);
                    settings.send_buffer_set = true;
                    return Ok(());
                }
                (net::SOL_SOCKET, net::SO_RCVBUF) => {
                    let wanted = usize::try_from(value).unwrap_or(0).saturating_mul(2);
                    settings.receive_buffer =
                        buffer_size(value).min(wanted).max(LEAST_RECEIVE_BUFFER);
                    return Ok(());
                }
                (level::IPV6, net::IPV6_V6ONLY) if self.held.lock().claim.is_some() => {
                    return Err(Errno::EINVAL);
                }
                _ => {}
            }
            let choices = &mut settings.choices;
            choices.set(self.family, self.protocol, level, name, value)?;
        }
        if level == net::SOL_SOCKET && matches!(name, net::SO_REUSEADDR | net::SO_REUSEPORT) {
            let new = self.terms(false);
            self.network.change_terms(self, |terms| {
                terms.reuse = new.reuse;
                terms.sharing = new.sharing;
            });
        }
        Ok(())
    }

    /// Sets the timeout of receives or that of sends. `name` selects which (`SO_RCVTIMEO_OLD` or `SO_SNDTIMEO_OLD`).
    ///
    /// # Errors
    /// `EDOM` if the microseconds are out of range.
    pub fn set_timeout(&self, name: u32, time: Timeval) -> Result<(), Errno> {
        if !(0..1_000_000).contains(&time.microseconds) {
            return Err(Errno::EDOM);
        }
        // A negative time must expire immediately, so the shortest timeout is stored. 0 stands for no timeout.
        let length = time.to_nanoseconds().unwrap_or(1);
        let settings = &mut self.state.lock().settings;
        if name == net::SO_RCVTIMEO_OLD {
            settings.receive_timeout = length;
        } else {
            settings.send_timeout = length;
        }
        Ok(())
    }

    /// Sets `SO_LINGER`. `close` never waits, because sent bytes arrive at once. With a time of 0, `close` resets the
    /// connection.
    pub fn set_linger(&self, on: bool, seconds: u32) {
        let most = (u64::MAX / SECOND) as u32;
        self.state.lock().settings.linger = on.then_some(seconds.min(most));
    }

    /// Selects the congestion control `name`.
    ///
    /// # Errors
    /// `ENOENT` if there is no congestion control with this name.
    pub fn set_congestion(&self, name: &[u8]) -> Result<(), Errno> {
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        match &name[..end] {
            b"cubic" => Ok(()),
            _ => Err(Errno::ENOENT),
        }
    }
}
