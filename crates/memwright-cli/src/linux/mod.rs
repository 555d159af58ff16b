//! Linux kernels as guests: images, and the inputs and outputs of a guest.

pub mod fetch;
pub mod frames;
pub mod guest;
pub mod image;
pub mod kept;
pub mod modules;
pub mod no_result;
