//! A profile by function: the call tree, with the instructions that each function in it executed itself.

use serde::{Deserialize, Serialize};

use crate::model::region_names;

/// The name of all code that is not in a named function.
pub const UNATTRIBUTED: &str = "[unattributed]";

/// Instructions of a kernel by function, for a run or a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The region; absent for the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<u16>,
    /// The name that the program gives it; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region_name: Option<String>,
    /// All instructions of the kernel, counted without regard to functions.
    pub total: u64,
    /// Frames that ended without a return.
    pub mismatches: u64,
    /// SHA-256 of the list of functions; absent if the kernel has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub symbols_sha256: Option<String>,
    /// The names of functions that were executed, in order.
    pub functions: Vec<String>,
    /// The call tree; each node comes after its caller.
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
    /// Instructions that were executed for this line.
    pub instructions: u64,
}

/// A function at one node of the call tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The index of the caller in the tree; absent for an entry to the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<u32>,
    /// The index of its name.
    pub function: u32,
    /// Whether it was entered by an interrupt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupt: bool,
    /// How often it was called at this node.
    pub count: u64,
    /// The instructions that it executed itself.
    pub instructions: u64,
}

impl Profile {
    /// Describes what the profile covers.
    pub fn subject(&self) -> String {
        match self.region {
            Some(region) => region_names::title(region, self.region_name.as_deref()),
            None => "run".to_owned(),
        }
    }

    /// Returns the instructions that were executed at each node and below it.
    pub fn inclusive_places(&self) -> Vec<u64> {
        let mut sums: Vec<u64> = self.calls.iter().map(|call| call.instructions).collect();
        for (index, call) in self.calls.iter().enumerate().rev() {
            if let Some(caller) = call.caller {
                sums[caller as usize] += sums[index];
            }
        }
        sums
    }

    /// Returns the instructions without a function name.
    pub fn unattributed(&self) -> u64 {
        let own = self
            .calls
            .iter()
            .filter(|call| self.functions[call.function as usize] == UNATTRIBUTED);
        own.map(|call| call.instructions).sum()
    }

    /// Returns whether this function also occurs among the callers of a node.
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

    /// Returns each function once, with its own instructions and those including its callees.
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

/// A function's share of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionRow {
    /// Its name.
    pub name: String,
    /// How often it was called, including by jumps.
    pub calls: u64,
    /// Its own instructions ("self").
    pub own: u64,
    /// Its instructions including those of its callees ("children").
    pub with_callees: u64,
}

/// Parses a percentage.
///
/// # Errors
/// A text that is not a number from 0 to 100.
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
    /// Functions with a smaller percentage of all instructions are summed up in one row.
    pub percent_limit: f64,
}

impl Order {
    /// Returns the figure by which rows are sorted.
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

    /// Returns a tree of `caller index, function, instructions`, of functions a, b and c.
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
