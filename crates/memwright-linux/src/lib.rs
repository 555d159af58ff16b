//! The Linux personality.
#![no_std]
#![forbid(unsafe_code)]
