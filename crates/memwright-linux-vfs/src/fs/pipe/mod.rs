//! Pipes, both named and anonymous.

mod capacity;
mod end;
mod room;
mod splice;

pub use crate::fs::body::{pipe::Pipe, ring, room::Room};
pub use capacity::rounded_size;
pub use end::{Lender, PIPE_FLAGS, Partner, PipeEnd};
