//! The hash of a spec: equal specs, equal hashes.

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::JobSpec;

/// sha256 of the spec's canonical JSON (sorted keys, no spaces), in lower-case hex. `source` is left out: the bytes of
/// `code` are what the job runs, wherever they come from.
pub fn hash(spec: &JobSpec) -> String {
    let mut text = String::new();
    // A spec has only string keys and finite numbers, so that it always has a JSON form.
    let mut value = serde_json::to_value(spec).unwrap_or(Value::Null);
    if let Value::Object(fields) = &mut value {
        fields.remove("source");
    }
    canonical(&value, &mut text);
    hex::encode(Sha256::digest(text.as_bytes()))
}

/// Sorted here and not by the map: its order depends on a feature that any crate of a build may switch on.
fn canonical(value: &Value, text: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort();
            text.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                canonical(&map[key], text);
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                canonical(item, text);
            }
            text.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => text.push_str(&value.to_string()),
    }
}
