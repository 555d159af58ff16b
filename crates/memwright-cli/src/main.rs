//! The `memwright` command.
fn main() {}
