//! Where a kernel's instructions go: by function, with what each called.

mod callgrind;
pub mod difference;
mod flamegraph;
mod folded;
mod matching;
mod outputs;
mod pprof;
pub mod raw;
pub mod source;
pub mod symbols;
pub mod table;
pub mod tree;

pub use outputs::Outputs;

#[cfg(test)]
mod tests {
    use super::tree::{Call, Profile};

    /// A tree of `caller index, function, instructions`, of functions a, b and c.
    pub fn profile(calls: &[(Option<u32>, u32, u64)]) -> Profile {
        let call = |(caller, function, instructions): &(Option<u32>, u32, u64)| Call {
            caller: *caller,
            function: *function,
            interrupt: false,
            count: 1,
            instructions: *instructions,
        };
        Profile {
            region: None,
            region_name: None,
            total: calls.iter().map(|(.., count)| count).sum(),
            mismatches: 0,
            symbols_sha256: None,
            functions: ["a", "b", "c"].map(str::to_owned).to_vec(),
            calls: calls.iter().map(call).collect(),
            lines: Vec::new(),
        }
    }
}
