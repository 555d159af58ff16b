//! A profile by function: the call tree, with the number of instructions that each function itself executed at each
//! node.

use serde::{Deserialize, Serialize};

use crate::model::region_names;

/// The name that profiles give to instructions of code outside all named functions.
pub const UNATTRIBUTED: &str = "[unattributed]";

/// Instructions of a kernel by function, for a run or a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The region's number; absent for the complete run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u16>,
    /// The name that the program gives the region; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_name: Option<String>,
    /// The total number of kernel instructions, counted independently of the functions.
    pub total: u64,
    /// The number of stack frames that ended without a return.
    pub mismatches: u64,
    /// SHA-256 of the kernel's list of functions; absent if the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols_sha256: Option<String>,
    /// The names of the executed functions; [`Call::function`] is an index into this list.
    pub functions: Vec<String>,
    /// The nodes of the call tree; each node is after its caller.
    pub calls: Vec<Call>,
    /// Instructions by source line, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// A source line in one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The function that contains the line in the source.
    pub function: String,
    /// The file, relative to the root of the source, and the line number.
    pub place: String,
    /// The number of instructions that were executed for this line.
    pub instructions: u64,
}

/// A function at one node of the call tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The index of the caller in [`Profile::calls`]; absent for an entry to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<u32>,
    /// The index of the function's name in [`Profile::functions`].
    pub function: u32,
    /// Whether an interrupt, and not a call, entered the function at this node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
    /// How often the function was entered at this node.
    pub count: u64,
    /// The number of instructions that the function itself executed.
    pub instructions: u64,
}

impl Profile {
    /// Returns the title of what the profile covers: a region, or the complete run.
    pub fn subject(&self) -> String {
        match self.region {
            Some(region) => region_names::title(region, self.region_name.as_deref()),
            None => "run".to_owned(),
        }
    }

    /// Returns the number of instructions at each node, including all nodes below it.
    pub fn inclusive_places(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.calls.iter().map(|call| call.instructions).collect();
        for (index, call) in self.calls.iter().enumerate().rev() {
            if let Some(caller) = call.caller {
                sums[caller as usize] += sums[index];
            }
        }
        sums
    }

    /// Returns the number of instructions outside named functions.
    pub fn unattributed(&self) -> u64 {
        let own = self
            .calls
            .iter()
            .filter(|call| self.functions[call.function as usize] == UNATTRIBUTED);
        own.map(|call| call.instructions).sum()
    }

    /// Returns whether the function of this node is also the function of one of the node's callers, direct or indirect.
    fn is_recursive(&self, place: usize) -> bool {
        let function = self.calls[place].function;
        let mut above = self.calls[place].caller;
        while let Some(caller) = above {
            let call = &self.calls[caller as usize];
            if call.function == function {
                return true;
            }
            above = call.caller;
        }
        false
    }

    /// Returns one row per function, with the instructions of the function itself, and with those of the function and
    /// its callees.
    pub fn rows(&self) -> Vec<FunctionRow> {
        let mut rows: Vec<FunctionRow> = self
            .functions
            .iter()
            .map(|name| FunctionRow {
                name: name.clone(),
                calls: 0,
                own: 0,
                with_callees: 0,
            })
            .collect();
        for (place, sum) in self.inclusive_places().into_iter().enumerate() {
            let call = &self.calls[place];
            let row = &mut rows[call.function as usize];
            row.calls += call.count;
            row.own += call.instructions;
            if !self.is_recursive(place) {
                row.with_callees += sum;
            }
        }
        rows
    }
}

/// The counts of a function, summed over the nodes of the call tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionRow {
    /// The name of the function.
    pub name: String,
    /// How often the function was called or entered by a jump.
    pub calls: u64,
    /// Instructions that the function itself executed ("self").
    pub own: u64,
    /// Instructions of the function and its callees ("children"). In recursion, the instructions of the inner call are
    /// counted once.
    pub with_callees: u64,
}

/// Parses a percentage.
///
/// # Errors
/// If the text is not a number from 0 to 100.
pub fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    let percent = percent.filter(|percent| (0.0..=100.0).contains(percent));
    percent.ok_or_else(|| "not a number from 0 to 100".to_owned())
}

/// Which functions of a profile are printed, and in which order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Order {
    /// Whether to sort by instructions including callees.
    pub children: bool,
    /// The minimum percentage of all instructions for a separate row; one row sums up all other functions.
    pub percent_limit: f64,
}

impl Order {
    /// Returns the number of instructions by which a row is sorted.
    pub fn figure(self, row: &FunctionRow) -> u64 {
        if self.children {
            row.with_callees
        } else {
            row.own
        }
    }

    /// Returns whether this number of instructions out of `total` is printed as a row.
    pub fn is_shown(self, instructions: u64, total: u64) -> bool {
        instructions as f64 * 100.0 >= self.percent_limit * total as f64
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a profile with the call tree `calls`. Each tuple has the caller's index, the index of one of the
    /// functions a, b and c, and the number of instructions.
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

    #[test]
    fn percentages_are_from_0_to_100() {
        for (text, expected) in [("0", Some(0.0)), ("0.5", Some(0.5)), ("100", Some(100.0))] {
            assert_eq!(parse_percent(text).ok(), expected, "{text}");
        }
        for text in ["-1", "100.1", "NaN", "inf", "", "x", "1e9"] {
            assert!(parse_percent(text).is_err(), "{text}");
        }
    }
}
