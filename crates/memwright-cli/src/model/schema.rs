//! Validates documents against the published schemas.

use jsonschema::Registry;
use serde_json::Value;

/// The schemas, by the names of their files in `docs/schema`.
const PUBLISHED: [(&str, &str); 5] = [
    ("run.json", include_str!("../../../../docs/schema/run.json")),
    (
        "kernel-run.json",
        include_str!("../../../../docs/schema/kernel-run.json"),
    ),
    (
        "comparison.json",
        include_str!("../../../../docs/schema/comparison.json"),
    ),
    (
        "sweep.json",
        include_str!("../../../../docs/schema/sweep.json"),
    ),
    (
        "bench.json",
        include_str!("../../../../docs/schema/bench.json"),
    ),
];

/// Returns a published schema.
pub fn published(name: &str) -> Value {
    let (_, text) = PUBLISHED
        .iter()
        .find(|(file, _)| *file == name)
        .expect("a schema is published");
    serde_json::from_str(text).expect("it is JSON")
}

/// Returns one line for each violation of the schema `name` in the document `value`.
pub fn faults(name: &str, value: &Value) -> Vec<String> {
    let mut registry = Registry::new();
    for (file, _) in PUBLISHED {
        registry = registry.add(address(file), published(file)).unwrap();
    }
    let registry = registry.prepare().unwrap();
    let validator = jsonschema::options()
        .with_registry(&registry)
        .with_base_uri(address(name))
        .build(&published(name))
        .expect("it is a schema");
    let faults = validator.iter_errors(value);
    faults
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect()
}

/// Returns the URI of a schema, for references between schemas.
fn address(file: &str) -> String {
    format!("schema:/{file}")
}

/// A schema with an error could accept every document.
#[test]
fn every_schema_is_valid_and_refuses_something() {
    for (file, _) in PUBLISHED {
        let schema = published(file);
        assert!(jsonschema::meta::is_valid(&schema), "{file}");
        assert!(!faults(file, &serde_json::json!({})).is_empty(), "{file}");
        assert!(!faults(file, &serde_json::json!([])).is_empty(), "{file}");
    }
}
