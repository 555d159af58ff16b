//! Linux kernels as guests: images, a boot whose state is kept, runs that start from it, and the names of functions.

pub mod fetch;
pub mod guest;
pub mod image;
pub mod kept;
pub mod kernel_symbols;
pub mod no_result;
pub mod state;
