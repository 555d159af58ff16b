//! Linux kernels as guests: their images, and a guest's inputs and outputs.

pub mod built_tree;
pub mod config_fragment;
pub mod fetch;
pub mod frames;
pub mod guest;
pub mod image;
pub mod kept;
pub mod modules;
pub mod no_result;
pub mod unpacked;
