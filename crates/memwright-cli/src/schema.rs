//! The published schemas, and whether a document fits one.

use serde_json::Value;

/// The schemas, by the names of their files in `docs/schema`.
const PUBLISHED: [(&str, &str); 4] = [
    ("run.json", include_str!("../../../docs/schema/run.json")),
    (
        "kernel-run.json",
        include_str!("../../../docs/schema/kernel-run.json"),
    ),
    (
        "comparison.json",
        include_str!("../../../docs/schema/comparison.json"),
    ),
    (
        "bench.json",
        include_str!("../../../docs/schema/bench.json"),
    ),
];

/// A published schema.
pub fn published(name: &str) -> Value {
    let (_, text) = PUBLISHED
        .iter()
        .find(|(file, _)| *file == name)
        .expect("a schema is published");
    serde_json::from_str(text).expect("it is JSON")
}

/// What is wrong with a document, by the schema of that name.
pub fn faults(name: &str, value: &Value) -> Vec<String> {
    let root = published(name);
    validate(&root, &root, value, "")
}

/// A validator of the words of JSON Schema that the published ones use; any other word is a mistake.
fn validate(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (word, rule) in schema.as_object().into_iter().flatten() {
        match word.as_str() {
            "$schema" | "title" | "$defs" => {}
            "$ref" => found.extend(refer(root, rule.as_str().unwrap_or_default(), value, at)),
            "enum" => {
                let allowed = rule.as_array().is_some_and(|values| values.contains(value));
                found.extend((!allowed).then(|| format!("{at}: none of {rule}")));
            }
            "const" => found.extend((value != rule).then(|| format!("{at}: not {rule}"))),
            "type" => {
                let fits = match rule.as_array() {
                    Some(types) => types.iter().any(|one| is_a(one, value)),
                    None => is_a(rule, value),
                };
                found.extend((!fits).then(|| format!("{at}: no {rule}")));
            }
            "required" => {
                for name in rule.as_array().into_iter().flatten() {
                    if value.get(name.as_str().unwrap_or_default()).is_none() {
                        found.push(format!("{at}: {name} is missing"));
                    }
                }
            }
            "additionalProperties" => {
                for (name, part) in value.as_object().into_iter().flatten() {
                    if schema["properties"].get(name).is_some() {
                        continue;
                    }
                    match rule {
                        Value::Bool(false) => {
                            found.push(format!("{at}: {name} is not in the schema"));
                        }
                        rule => {
                            found.extend(validate(root, rule, part, &format!("{at}/{name}")));
                        }
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

/// By a definition of the same file, or by another file.
fn refer(root: &Value, to: &str, value: &Value, at: &str) -> Vec<String> {
    let Some(pointer) = to.strip_prefix('#') else {
        let other = published(to);
        return validate(&other, &other, value, at);
    };
    let target = root
        .pointer(pointer)
        .expect("the reference leads somewhere");
    validate(root, target, value, at)
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_u64() || value.is_i64(),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("type {name}"),
    }
}
