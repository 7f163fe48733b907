//! JSON in which each field is given once, of bounded depth and number of values.
//!
//! RFC 8259 leaves open which of two equal names counts, and parsers differ: of a job with two `id`s or two values of one
//! variable, one would be dropped without a word.

use std::cell::Cell;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::bounds::{self, DEPTH_MAX, VALUES_MAX};

/// A value that was read so.
#[derive(Debug, Clone, PartialEq)]
pub struct Once(pub Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let left = Cell::new(VALUES_MAX);
        Reader { left: &left, depth: 0 }.deserialize(deserializer).map(Self)
    }
}

/// Reads one value, `depth` objects and lists deep, of those that are `left`.
#[derive(Clone, Copy)]
struct Reader<'a> {
    left: &'a Cell<usize>,
    depth: usize,
}

impl Reader<'_> {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        if self.depth == DEPTH_MAX {
            return Err(E::custom(bounds::too_deep()));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| D::Error::custom(bounds::too_many()))?);
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("a number without bounds"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            all.push(item);
        }
        Ok(all.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("the field {name:?} is given twice; leave one of them out")));
            }
            let value = fields.next_value_seed(inner)?;
            all.insert(name, value);
        }
        Ok(all.into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_given_twice_is_named_at_any_depth() {
        for (text, name) in [
            (r#"{"id": "a", "run": ["x"], "id": "b"}"#, "id"),
            (r#"{"env": {"LR": "1", "LR": "1"}}"#, "LR"),
            (r#"[{"a": [{"b": 1, "b": 2}]}]"#, "b"),
            (r#"{"\u0061": 1, "a": 2}"#, "a"),
        ] {
            let told = serde_json::from_str::<Once>(text).unwrap_err().to_string();
            assert!(told.contains(&format!("the field {name:?} is given twice")), "{told}");
        }
    }

    #[test]
    fn depth_and_number_are_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(serde_json::from_str::<Once>(&nested(DEPTH_MAX)).is_ok());
        let told = serde_json::from_str::<Once>(&nested(DEPTH_MAX + 1)).unwrap_err().to_string();
        assert!(told.contains("more than 32 objects and lists"), "{told}");
        let objects = r#"{"a":"#.repeat(DEPTH_MAX + 1) + "1" + &"}".repeat(DEPTH_MAX + 1);
        assert!(serde_json::from_str::<Once>(&objects).is_err());
        let fields = |count: usize| {
            let fields: Vec<String> = (0..count).map(|n| format!(r#""{n}":0"#)).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert!(serde_json::from_str::<Once>(&fields(VALUES_MAX - 1)).is_ok(), "the object itself is one");
        let told = serde_json::from_str::<Once>(&fields(VALUES_MAX)).unwrap_err().to_string();
        assert!(told.contains("more than 10000 fields and items"), "{told}");
        let spread = format!("[{},{}]", fields(VALUES_MAX / 2), fields(VALUES_MAX / 2));
        assert!(serde_json::from_str::<Once>(&spread).is_err(), "wherever they are");
    }

    #[test]
    fn everything_else_is_read_as_it_stands() {
        for text in [
            r#"{"a": [1, -2, 3.5, 18446744073709551615, 1e300, true, null, "x\n\u00e9", {}, []]}"#,
            r#"{"a": {"b": 1}, "c": {"b": 1}}"#,
            r#""text""#,
            "7",
        ] {
            let Once(read) = serde_json::from_str(text).unwrap();
            assert_eq!(read, serde_json::from_str::<Value>(text).unwrap(), "{text}");
        }
        assert!(serde_json::from_str::<Once>("1e999").is_err());
        assert_eq!(serde_json::from_str::<Once>("null").unwrap(), Once(json!(null)));
    }
}
