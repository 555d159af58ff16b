//! Documents of runs that were saved, of either kind.

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
    /// On Memwright.
    Memwright(Box<report::Document>),
    /// On a kernel image.
    Kernel(Box<Document>),
}

/// What a program printed, as hashes; absent where the document does not tell.
pub type Printed<'a> = (Option<&'a str>, Option<&'a str>);

impl Saved {
    /// The document of a run in JSON.
    ///
    /// # Errors
    /// When it is none, or one of another version.
    pub fn parse(value: Value) -> anyhow::Result<Self> {
        if value["kind"] == KIND && value["schema"] == document::SCHEMA {
            let document = serde_json::from_value(value).context("damaged")?;
            return Ok(Self::Kernel(document));
        }
        if value["schema"] == report::SCHEMA && value["account"].is_object() {
            let document = serde_json::from_value(value).context("damaged")?;
            return Ok(Self::Memwright(document));
        }
        Err(anyhow!("no account that memwright run --json wrote"))
    }

    /// Whether another run was the same; `None` where that was not looked at.
    pub fn repeats(&self) -> Option<bool> {
        match self {
            Self::Memwright(document) => Some(document.repeatable),
            Self::Kernel(document) => document.repeats,
        }
    }

    /// The names that the program gave the regions which it marked.
    pub fn region_names(&self) -> RegionNames {
        match self {
            Self::Memwright(_) => RegionNames::default(),
            Self::Kernel(document) => RegionNames::of_regions(document.regions.iter().flatten()),
        }
    }

    /// How the program ended.
    pub fn outcome(&self) -> Option<Ending> {
        match self {
            Self::Memwright(document) => document.outcome,
            Self::Kernel(document) => Some(document.outcome),
        }
    }

    /// What the program printed.
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
