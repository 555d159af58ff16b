//! Linux kernels as guests: images, and what goes into a guest and comes out.

pub mod fetch;
pub mod frames;
pub mod guest;
pub mod image;
pub mod kept;
pub mod no_result;
