//! Saved documents of runs, on Memwright's kernel or on a kernel image.

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::Value;

use crate::model::kernel_run::{Document, KIND};
use crate::model::memwright_run::Ending;
use crate::model::region_names::RegionNames;
use crate::model::{kernel_run as document, memwright_run as report};

/// The document of a run.
#[derive(Debug, Clone, Serialize)]
#[serde(untagged)]
pub enum Saved {
    /// The document of a run on Memwright.
    Memwright(Box<report::Document>),
    /// The document of a run on a kernel image.
    Kernel(Box<Document>),
}

/// How a program behaved in a run, and whether the run repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Behaviour<'a> {
    /// How the program ended.
    pub outcome: Option<Ending>,
    /// SHA-256 of the program's standard output; `None` if the document does not contain it.
    pub output: Option<&'a str>,
    /// SHA-256 of the program's standard error; `None` if the document does not contain it.
    pub errors: Option<&'a str>,
    /// Whether a second run gives the same counts; `None` if that was not checked.
    pub repeats: Option<bool>,
}

impl Saved {
    /// Parses the document of a run.
    ///
    /// # Errors
    /// If the value is not such a document, or is of another version.
    pub fn parse(value: Value) -> anyhow::Result<Self> {
        if value["kind"] == KIND && value["schema"] == document::SCHEMA {
            let document = serde_json::from_value(value).context("damaged")?;
            return Ok(Self::Kernel(document));
        }
        if value["schema"] == report::SCHEMA && value["account"].is_object() {
            let document = serde_json::from_value(value).context("damaged")?;
            return Ok(Self::Memwright(document));
        }
        Err(anyhow!("not an account written by memwright run --json"))
    }

    /// Returns the names of the regions that the program marked. Returns no names for a run on Memwright, whose
    /// document has no regions.
    pub fn region_names(&self) -> RegionNames {
        match self {
            Self::Memwright(_) => RegionNames::default(),
            Self::Kernel(document) => RegionNames::of_regions(document.regions.iter().flatten()),
        }
    }

    /// Returns how the program behaved, and whether its run repeats.
    pub fn behaviour(&self) -> Behaviour<'_> {
        match self {
            Self::Memwright(document) => Behaviour {
                outcome: document.outcome,
                output: None,
                errors: None,
                repeats: Some(document.repeatable),
            },
            Self::Kernel(document) => Behaviour {
                outcome: Some(document.outcome),
                output: document.output_sha256.as_deref(),
                errors: document.errors_sha256.as_deref(),
                repeats: document.repeats,
            },
        }
    }
}
