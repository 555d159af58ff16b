//! A program on any kernel image, Linux's or Memwright's, counted from outside.

pub mod column;
pub mod image;
pub mod input;
pub mod laboratory;
pub mod run;
