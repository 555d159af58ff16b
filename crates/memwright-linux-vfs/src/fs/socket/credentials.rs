//! The credentials of the sender of a message.

use crate::fs::caller::Caller;
use memwright_linux_abi::abi_struct;

abi_struct! {
    /// `struct ucred` of `linux/socket.h`.
    pub struct Credentials {
        /// Process id.
        pub process: u32,
        /// User id.
        pub user: u32,
        /// Group id.
        pub group: u32,
    }
}

impl Credentials {
    /// Returns the credentials of the calling process.
    #[must_use]
    pub fn of(caller: &dyn Caller) -> Self {
        let credentials = caller.identity().credentials.lock();
        Self {
            process: caller.ids().process,
            user: credentials.user.real,
            group: credentials.group.real,
        }
    }
}
