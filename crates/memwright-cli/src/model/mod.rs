//! The requests to the command, and the documents that it writes: data types without I/O.

pub mod account;
pub mod bench;
pub mod change;
pub mod counts;
pub mod failure;
pub mod hash;
pub mod hashed_file;
pub mod image;
pub mod kernel_run;
pub mod machine;
pub mod memwright_run;
pub mod nodes;
pub mod page_tables;
pub mod pairs;
pub mod parameter;
pub mod passes;
pub mod plan;
pub mod policy;
pub mod profile;
pub mod records;
pub mod region;
pub mod region_names;
pub mod saved;
#[cfg(test)]
pub mod schema;
pub mod sent;
pub mod settings;
pub mod shell;
pub mod size;
pub mod statistic;
pub mod sweep;
pub mod thp;
pub mod words;
