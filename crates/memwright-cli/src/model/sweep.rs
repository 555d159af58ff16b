//! What a bench of the user's own program found, as a document.

use serde::{Deserialize, Serialize};

use crate::model::kernel_run;
use crate::model::parameter::Parameter;

/// Version of the document's form: a higher one when a name changes its meaning or goes. New names keep it.
pub const SCHEMA: u32 = 1;
/// What says that a document is one of these.
pub const KIND: &str = "sweep";

/// A program on several kernels, once for each combination of its parameters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`KIND`].
    pub kind: String,
    /// The command, with the names of parameters in braces.
    pub command: Vec<String>,
    /// The parameters, of which the last changes fastest.
    pub parameters: Vec<Parameter>,
    /// What was counted at each point.
    pub points: Vec<Point>,
}

/// A combination of values.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Point {
    /// The values, in the order of the parameters.
    pub values: Vec<String>,
    /// What was counted on each kernel.
    pub columns: Vec<kernel_run::Document>,
}

impl Document {
    /// Whether no second run was another; also where there was none.
    pub fn repeats(&self) -> bool {
        let mut columns = self.points.iter().flat_map(|point| &point.columns);
        columns.all(|one| one.repeats != Some(false))
    }
}
