//! Compares documents, and renders a comparison as a sheet with the rows that differ and notes about the differences.

pub mod account_sheet;
pub mod again;
pub mod bench_sheet;
pub mod comparison;
pub mod faults;
pub mod functions;
pub mod growth;
pub mod identity;
pub mod limit;
pub mod matching;
pub mod names;
pub mod rows;
#[cfg(test)]
pub mod schema;
pub mod side_by_side;
pub mod sweep_sheet;
pub mod verdict;
