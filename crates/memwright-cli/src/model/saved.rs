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

/// The SHA-256 of a program's standard output and of its standard error; `None` where the document does not contain the
/// hash.
pub type Printed<'a> = (Option<&'a str>, Option<&'a str>);

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

    /// Returns whether a second run gives the same counts; `None` if that was not checked.
    pub fn repeats(&self) -> Option<bool> {
        match self {
            Self::Memwright(document) => Some(document.repeatable),
            Self::Kernel(document) => document.repeats,
        }
    }

    /// Returns the names of the regions that the program marked; none for a run on Memwright, whose document has no
    /// regions.
    pub fn region_names(&self) -> RegionNames {
        match self {
            Self::Memwright(_) => RegionNames::default(),
            Self::Kernel(document) => RegionNames::of_regions(document.regions.iter().flatten()),
        }
    }

    /// Returns how the program ended.
    pub fn outcome(&self) -> Option<Ending> {
        match self {
            Self::Memwright(document) => document.outcome,
            Self::Kernel(document) => Some(document.outcome),
        }
    }

    /// Returns the hashes of the program's standard output and standard error.
    pub fn printed(&self) -> Printed<'_> {
        match self {
            Self::Memwright(_) => (None, None),
            Self::Kernel(document) => (
                document.output_sha256.as_deref(),
                document.errors_sha256.as_deref(),
            ),
        }
    }
}
