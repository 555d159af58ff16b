//! The results of a bench of the user's own program, as a document.

use serde::{Deserialize, Serialize};

use crate::model::kernel_run;
use crate::model::parameter::Parameter;

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 1;
/// The value of `kind` in the document of a sweep.
pub const KIND: &str = "sweep";

/// The results of a program on several kernels, with one run for each combination of its parameters' values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The command, with the names of parameters in braces.
    pub command: Vec<String>,
    /// The parameters; the value of the last one changes fastest.
    pub parameters: Vec<Parameter>,
    /// The points of the sweep, each with its counts.
    pub points: Vec<Point>,
}

/// A combination of the parameters' values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The values, in the order of the parameters.
    pub values: Vec<String>,
    /// The documents with the counts, one for each kernel.
    pub columns: Vec<kernel_run::Document>,
}

impl Document {
    /// Returns whether every second run gave the same results as the first. Also true if there were no second runs.
    pub fn repeats(&self) -> bool {
        let mut columns = self.points.iter().flat_map(|point| &point.columns);
        columns.all(|one| one.repeats != Some(false))
    }
}
