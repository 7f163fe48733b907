//! The body of a document: JSON towards the outside, and inside one process also the value that it was made of.
//!
//! A store that stays within the process (the simulation's) hands the value back, so that nothing is encoded and decoded in between. Every
//! other store asks for the text, once.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde_json::Value;

/// A body. Copies share it.
#[derive(Clone)]
pub struct Body(Arc<Inner>);

struct Inner {
    json: OnceLock<Result<Value, String>>,
    made_of: Option<Arc<dyn Source>>,
}

trait Source: Any + Send + Sync {
    fn json(&self) -> Result<Value, String>;
}

impl<T: Serialize + Send + Sync + 'static> Source for T {
    fn json(&self) -> Result<Value, String> {
        serde_json::to_value(self).map_err(|e| e.to_string())
    }
}

impl Body {
    /// A body that is encoded when somebody asks for its JSON.
    pub fn of<T: Serialize + Send + Sync + 'static>(value: Arc<T>) -> Self {
        Self(Arc::new(Inner { json: OnceLock::new(), made_of: Some(value) }))
    }

    /// The value that it was made of, if it is of this type and at hand.
    pub fn made_of<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let any: Arc<dyn Any + Send + Sync> = self.0.made_of.clone()?;
        any.downcast().ok()
    }

    /// The JSON text; the error says what cannot be written as JSON.
    pub fn text(&self) -> Result<String, String> {
        self.encoded().as_ref().map(Value::to_string).map_err(Clone::clone)
    }

    fn encoded(&self) -> &Result<Value, String> {
        let encode = || self.0.made_of.as_ref().map_or(Ok(Value::Null), |source| Source::json(source.as_ref()));
        self.0.json.get_or_init(encode)
    }
}

impl From<Value> for Body {
    fn from(json: Value) -> Self {
        Self(Arc::new(Inner { json: OnceLock::from(Ok(json)), made_of: None }))
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
    fn what_is_no_json_says_so() {
        let body = Body::of(Arc::new(BTreeMap::from([((1, 2), 3)])));
        assert!(body.text().unwrap_err().contains("key"), "{:?}", body.text());
        assert!(body.is_null());
    }
}
