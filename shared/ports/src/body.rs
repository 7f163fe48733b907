//! The body of a document: JSON towards the outside, and inside one process also the value that it was made of.
//!
//! A store that stays within the process (the simulation's) hands the value back, so that nothing is encoded and decoded in between. Every
//! other store asks for the text, once.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

/// A body. Copies share it.
#[derive(Clone)]
pub struct Body(Arc<Inner>);

/// At least one of the first three is there from the beginning.
struct Inner {
    json: OnceLock<Result<Value, String>>,
    /// As a store keeps it.
    written: Option<String>,
    made_of: Option<Arc<dyn Source>>,
    /// What it was read as, where the store keeps the body for further reads.
    kept: Option<OnceLock<Arc<dyn Any + Send + Sync>>>,
}

trait Source: Any + Send + Sync {
    fn json(&self) -> Result<Value, String>;
    fn text(&self) -> Result<String, String>;
}

impl<T: Serialize + Send + Sync + 'static> Source for T {
    fn json(&self) -> Result<Value, String> {
        serde_json::to_value(self).map_err(|e| e.to_string())
    }

    fn text(&self) -> Result<String, String> {
        serde_json::to_string(self).map_err(|e| e.to_string())
    }
}

impl Body {
    /// A body that is encoded when somebody asks for its JSON.
    pub fn of<T: Serialize + Send + Sync + 'static>(value: Arc<T>) -> Self {
        Self(Arc::new(Inner { json: OnceLock::new(), written: None, made_of: Some(value), kept: None }))
    }

    /// The value that it was made of, if it is of this type and at hand.
    pub fn made_of<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let any: Arc<dyn Any + Send + Sync> = self.0.made_of.clone()?;
        any.downcast().ok()
    }

    /// A body as a store keeps it; the error says why it is no JSON. It is decoded when somebody asks for what it holds.
    pub fn written(text: String) -> Result<Self, String> {
        serde_json::from_str::<IgnoredAny>(&text).map_err(|e| e.to_string())?;
        Ok(Self(Arc::new(Inner { json: OnceLock::new(), written: Some(text), made_of: None, kept: None })))
    }

    /// The same for a store that hands the body out more than once: what it is read as first is kept beside the text.
    pub fn cached(text: String) -> Result<Self, String> {
        serde_json::from_str::<IgnoredAny>(&text).map_err(|e| e.to_string())?;
        let kept = Some(OnceLock::new());
        Ok(Self(Arc::new(Inner { json: OnceLock::new(), written: Some(text), made_of: None, kept })))
    }

    /// Bytes of the text that a store keeps; 0 of a body that was not read from one.
    pub fn written_len(&self) -> usize {
        self.0.written.as_ref().map_or(0, String::len)
    }

    /// What it was read as before, if that is of this type.
    pub fn kept<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.kept.as_ref()?.get()?.clone().downcast().ok()
    }

    /// Keeps what it was read as, if it is a body that keeps.
    pub fn keep<T: Send + Sync + 'static>(&self, value: &Arc<T>) {
        if let Some(kept) = &self.0.kept {
            // Another read of the same text was faster: it holds the same.
            let _ = kept.set(value.clone());
        }
    }

    /// The JSON text; the error says what cannot be written as JSON.
    pub fn text(&self) -> Result<String, String> {
        match (&self.0.written, &self.0.made_of) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(source)) => Source::text(source.as_ref()),
            (None, None) => self.encoded().as_ref().map(Value::to_string).map_err(Clone::clone),
        }
    }

    /// What the JSON holds.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        match &self.0.written {
            Some(text) => serde_json::from_str(text).map_err(|e| e.to_string()),
            None => T::deserialize(&**self).map_err(|e| e.to_string()),
        }
    }

    fn encoded(&self) -> &Result<Value, String> {
        self.0.json.get_or_init(|| match (&self.0.written, &self.0.made_of) {
            (Some(text), _) => serde_json::from_str(text).map_err(|e| e.to_string()),
            (None, Some(source)) => Source::json(source.as_ref()),
            (None, None) => Ok(Value::Null),
        })
    }
}

impl From<Value> for Body {
    fn from(json: Value) -> Self {
        Self(Arc::new(Inner { json: OnceLock::from(Ok(json)), written: None, made_of: None, kept: None }))
    }
}

/// What cannot be written as JSON reads as null here; no store takes it (see [`Body::text`]).
impl Deref for Body {
    type Target = Value;

    fn deref(&self) -> &Value {
        self.encoded().as_ref().unwrap_or(&Value::Null)
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || **self == **other
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_value_comes_back_as_it_was_put_in_and_as_json() {
        let body = Body::of(Arc::new(vec![1_u8, 2]));
        assert_eq!(body.made_of::<Vec<u8>>().as_deref(), Some(&vec![1, 2]));
        assert!(body.made_of::<Vec<u16>>().is_none(), "another type");
        assert_eq!(*body, serde_json::json!([1, 2]));
        assert_eq!(body, Body::from(serde_json::json!([1, 2])));
        assert!(Body::from(serde_json::json!([1, 2])).made_of::<Vec<u8>>().is_none(), "only JSON is at hand");
    }

    #[test]
    fn what_a_store_keeps_is_read_without_being_written_again() {
        let body = Body::written("{\"b\": 1, \"a\": [2]}".to_owned()).unwrap();
        assert_eq!(body.text().unwrap(), "{\"b\": 1, \"a\": [2]}");
        assert_eq!(body, Body::from(serde_json::json!({"a": [2], "b": 1})));
        assert_eq!(body.read::<BTreeMap<String, Value>>().unwrap().len(), 2);
        assert!(body.read::<Vec<u8>>().unwrap_err().contains("sequence"));
        assert!(Body::written("{\"b\": ".to_owned()).is_err());
    }

    #[test]
    fn only_a_cached_body_keeps_what_it_was_read_as() {
        let value = Arc::new(vec![1_u8]);
        let written = Body::written("[1]".to_owned()).unwrap();
        written.keep(&value);
        assert!(written.kept::<Vec<u8>>().is_none());
        let cached = Body::cached("[1]".to_owned()).unwrap();
        assert!(cached.kept::<Vec<u8>>().is_none(), "nobody has read it");
        cached.keep(&value);
        assert!(Arc::ptr_eq(&cached.clone().kept::<Vec<u8>>().unwrap(), &value), "copies share it");
        assert!(cached.kept::<Vec<u16>>().is_none(), "another type");
        assert!(Body::cached("[1".to_owned()).is_err());
    }

    #[test]
    fn what_is_no_json_says_so() {
        let body = Body::of(Arc::new(BTreeMap::from([((1, 2), 3)])));
        assert!(body.text().unwrap_err().contains("key"), "{:?}", body.text());
        assert!(body.is_null());
    }
}
