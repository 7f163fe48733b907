//! Limits on JSON of others: how deep it goes and how many values it has.
//!
//! They are told by one look at the bytes, before anything is made of them: a tree costs far more memory than its text.
//! What is read into fields alone, and skipped besides, needs no look; serde_json bounds its depth.

use serde::de::{Deserialize, Error as _};

/// Most values in all, fields and items at any depth. A job or a log entry has some dozens; whoever lists thousands of
/// variables is at fault, and each value costs far more memory than its bytes.
pub const VALUES_MAX: usize = 10_000;

/// Most objects and lists within each other. A job has five, an audit record about ten.
pub const DEPTH_MAX: usize = 32;

/// Most attributes of a Pub/Sub message: as many as the service takes.
pub const ATTRIBUTES_MAX: usize = 100;

/// JSON within the limits, as a `T`. Errors: those of serde_json, and one that names the limit.
pub fn from_slice<'a, T: Deserialize<'a>>(json: &'a [u8]) -> serde_json::Result<T> {
    check(json).map_err(serde_json::Error::custom)?;
    serde_json::from_slice(json)
}

/// Whether bytes are within the limits. Whether they are JSON is for its reader to say. The error names the limit.
pub fn check(json: &[u8]) -> Result<(), String> {
    // Whatever it is, it has a value for each comma and each opening at the most, and the first one.
    let (mut depth, mut values) = (0_usize, 1_usize);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_text(&mut bytes),
            b'[' | b'{' => {
                depth += 1;
                values += 1;
                if depth > DEPTH_MAX {
                    return Err(too_deep());
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
        if values > VALUES_MAX {
            return Err(too_many());
        }
    }
    Ok(())
}

/// Goes on behind the quote that ends a text.
fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

pub(crate) fn too_deep() -> String {
    format!("more than {DEPTH_MAX} objects and lists within each other")
}

pub(crate) fn too_many() -> String {
    format!("more than {VALUES_MAX} fields and items")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn what_is_deeper_or_has_more_values_is_refused_by_name() {
        let nested = |depth: usize| format!("{}1{}", r#"{"a":["#.repeat(depth / 2), "]}".repeat(depth / 2));
        assert!(from_slice::<Value>(nested(DEPTH_MAX).as_bytes()).is_ok());
        let told = from_slice::<Value>(nested(DEPTH_MAX + 2).as_bytes()).unwrap_err().to_string();
        assert!(told.contains("more than 32 objects and lists"), "{told}");
        let list = |count: usize| format!("[{}]", vec!["[]"; count].join(","));
        assert!(from_slice::<Value>(list(VALUES_MAX / 2 - 1).as_bytes()).is_ok());
        let told = from_slice::<Value>(list(VALUES_MAX).as_bytes()).unwrap_err().to_string();
        assert!(told.contains("more than 10000 fields and items"), "{told}");
    }

    #[test]
    fn what_stands_in_texts_is_not_counted() {
        let marks = r#"[{,\"\\"#.repeat(VALUES_MAX);
        let text = serde_json::to_string(&[&marks, &marks]).unwrap();
        assert_eq!(from_slice::<Vec<String>>(text.as_bytes()).unwrap(), [marks.clone(), marks]);
        // After it, everything counts again.
        let after = format!(r#"["\\", {}]"#, "[".repeat(DEPTH_MAX));
        assert!(check(after.as_bytes()).is_err());
    }

    #[test]
    fn bytes_that_are_no_json_are_left_to_its_reader() {
        for bytes in [&b""[..], b"\"", b"\"\\", b"]]]]", b"\xff\xfe", b"{\"a\":"] {
            assert_eq!(check(bytes), Ok(()));
            assert!(from_slice::<Value>(bytes).is_err());
        }
    }
}
