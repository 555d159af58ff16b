//! Kernels that are neither Linux nor Memwright's. They boot alone, without a program.

pub mod guest;
pub mod image;
