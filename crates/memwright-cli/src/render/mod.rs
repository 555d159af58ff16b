//! Renders sheets and profiles as text and in formats of other tools. Each format is a pure function.

pub mod account;
mod benchmark;
#[cfg(test)]
mod browser;
mod callgrind;
mod chart;
mod csv;
pub mod faults;
mod flamegraph;
mod folded;
pub mod functions;
mod grid;
mod html;
mod mail;
mod markdown;
pub mod outputs;
mod pprof;
pub mod profile_outputs;
pub mod short;
mod text;

pub use benchmark::benchmark;
pub use csv::csv;
pub use html::html;
pub use mail::mail;
pub use markdown::markdown;
pub use text::text;
