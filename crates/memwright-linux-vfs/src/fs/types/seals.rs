//! The seals of memfds (`F_ADD_SEALS`).

use linux_raw_sys::general as raw;
use memwright_linux_base::flags;

flags! {
    /// The seals of a memfd. Each seal forbids an operation on the file.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Seals: u32 {
        /// Adding seals.
        const SEAL = raw::F_SEAL_SEAL;
        /// Shrinking the file.
        const SHRINK = raw::F_SEAL_SHRINK;
        /// Growing the file.
        const GROW = raw::F_SEAL_GROW;
        /// Writing.
        const WRITE = raw::F_SEAL_WRITE;
        /// Writing, except through mappings that exist already.
        const FUTURE_WRITE = raw::F_SEAL_FUTURE_WRITE;
        /// Changing the execute bits.
        const EXEC = raw::F_SEAL_EXEC;
    }
}
