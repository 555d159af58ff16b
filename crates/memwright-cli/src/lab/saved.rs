//! Documents of runs that were saved, of either kind.

use std::path::Path;

use anyhow::{Context, anyhow};
use serde::Serialize;
use serde_json::Value;

use super::document::{self, Document, KIND};
use super::region_names::RegionNames;
use super::side_by_side;
use crate::account_sheet;
use crate::host_file::{self, LARGEST_DOCUMENT};
use crate::report::{self, Ending};
use crate::sheet::Sheet;

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

/// The JSON of a file.
///
/// # Errors
/// One line that says what is wrong with it.
pub fn value(path: &Path) -> anyhow::Result<Value> {
    let context = || path.display().to_string();
    let text = host_file::read(path, LARGEST_DOCUMENT).with_context(context)?;
    serde_json::from_slice(&text).with_context(context)
}

/// Documents of one kind side by side under these names; `None` where they are of both kinds.
pub fn sheet(columns: &[(String, &Saved)]) -> Option<Sheet> {
    let names = || columns.iter().map(|(name, _)| name.clone());
    let kernels: Option<Vec<Document>> = columns
        .iter()
        .map(|(_, saved)| match saved {
            Saved::Kernel(document) => Some((**document).clone()),
            Saved::Memwright(_) => None,
        })
        .collect();
    if let Some(mut documents) = kernels {
        for (document, name) in documents.iter_mut().zip(names()) {
            document.kernel.name = name;
        }
        return Some(side_by_side::comparison(&documents));
    }
    let accounts: Option<Vec<&report::Document>> = columns
        .iter()
        .map(|(_, saved)| match saved {
            Saved::Memwright(document) => Some(&**document),
            Saved::Kernel(_) => None,
        })
        .collect();
    let columns: Vec<_> = names().zip(accounts?).collect();
    Some(account_sheet::sheet(&columns))
}
