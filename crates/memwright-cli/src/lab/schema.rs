//! The published schema against what the command writes.

use serde_json::Value;

use super::counts::{Counts, Instructions};
use super::document::{Document, Host, KIND, Kernel, Qemu, SCHEMA};
use super::log::Region;
use super::tables::PageTables;
use crate::report::{Ending, HashedFile};

const PUBLISHED: &str = include_str!("../../../../docs/schema/kernel-run.json");

/// A validator of the words of JSON Schema that the published one uses; any other word is a mistake.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().into_iter().flatten() {
        match word.as_str() {
            "$schema" | "title" | "$defs" => {}
            "$ref" => {
                let pointer = rule.as_str().unwrap_or_default().trim_start_matches('#');
                let target = root
                    .pointer(pointer)
                    .expect("the reference leads somewhere");
                found.extend(validate(root, target, value, at));
            }
            "const" => found.extend((value != rule).then(|| format!("{at}: not {rule}"))),
            "type" => {
                let fits = match rule.as_str() {
                    Some("object") => value.is_object(),
                    Some("array") => value.is_array(),
                    Some("string") => value.is_string(),
                    Some("integer") => value.is_u64() || value.is_i64(),
                    Some("boolean") => value.is_boolean(),
                    _ => panic!("{at}: type {rule}"),
                };
                if !fits {
                    found.push(format!("{at}: no {rule}"));
                }
            }
            "required" => {
                for name in rule.as_array().into_iter().flatten() {
                    if value.get(name.as_str().unwrap_or_default()).is_none() {
                        found.push(format!("{at}: {name} is missing"));
                    }
                }
            }
            "additionalProperties" => {
                for name in value
                    .as_object()
                    .into_iter()
                    .flat_map(serde_json::Map::keys)
                {
                    if schema["properties"].get(name).is_none() {
                        found.push(format!("{at}: {name} is not in the schema"));
                    }
                }
            }
            "properties" => {
                for (name, rule) in rule.as_object().into_iter().flatten() {
                    if let Some(part) = value.get(name) {
                        found.extend(validate(root, rule, part, &format!("{at}/{name}")));
                    }
                }
            }
            "items" => {
                for (index, part) in value.as_array().into_iter().flatten().enumerate() {
                    found.extend(validate(root, rule, part, &format!("{at}/{index}")));
                }
            }
            other => panic!("{at}: the validator does not know {other}"),
        }
    }
    found
}

fn document() -> Document {
    let file = HashedFile {
        path: "/x".to_owned(),
        sha256: "00".to_owned(),
    };
    let counts = Counts {
        instructions: Some(Instructions::default()),
        ..Counts::default()
    };
    Document {
        schema: SCHEMA,
        kind: KIND.to_owned(),
        program: file.clone(),
        arguments: vec!["x".to_owned()],
        companions: vec![file],
        kernel: Kernel {
            name: "k".to_owned(),
            sha256: String::new(),
            config_sha256: Some(String::new()),
            version: String::new(),
            command_line: String::new(),
        },
        qemu: Qemu {
            version: String::new(),
            sha256: String::new(),
        },
        memory: 1,
        cpus: 1,
        outcome: Ending::Exited(0),
        repeats: Some(false),
        differs: vec!["output".to_owned()],
        run: Some(counts),
        regions: Some(vec![Region {
            region: 1,
            passes: 1,
            counts,
            at_beginning: Some(PageTables::default()),
            at_end: Some(PageTables::default()),
        }]),
        host: Host {
            image: String::new(),
            command: String::new(),
        },
    }
}

#[test]
fn what_is_written_is_what_is_published() {
    let schema: Value = serde_json::from_str(PUBLISHED).unwrap();
    let whole = serde_json::to_value(document()).unwrap();
    assert_eq!(validate(&schema, &schema, &whole, ""), Vec::<String>::new());
    let mut bare = document();
    (bare.run, bare.regions, bare.repeats, bare.differs) = (None, None, None, Vec::new());
    bare.kernel.config_sha256 = None;
    let bare = serde_json::to_value(bare).unwrap();
    assert_eq!(validate(&schema, &schema, &bare, ""), Vec::<String>::new());
    let read: Document = serde_json::from_value(whole.clone()).unwrap();
    assert_eq!(serde_json::to_value(read).unwrap(), whole);
}

#[test]
fn every_published_name_is_written() {
    let schema: Value = serde_json::from_str(PUBLISHED).unwrap();
    let whole = serde_json::to_value(document()).unwrap();
    for name in schema["properties"].as_object().unwrap().keys() {
        assert!(whole.get(name).is_some(), "{name}");
    }
}

#[test]
fn what_is_wrong_is_found() {
    let schema: Value = serde_json::from_str(PUBLISHED).unwrap();
    let mut wrong = serde_json::to_value(document()).unwrap();
    wrong["cpus"] = "one".into();
    wrong["more"] = 1.into();
    wrong["run"].as_object_mut().unwrap().remove("invlpg");
    assert_eq!(validate(&schema, &schema, &wrong, "").len(), 3);
}
