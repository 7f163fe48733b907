//! Text of JSON as it stands in the body, where nothing in it is escaped.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// Borrowed from what is read, or owned where it had to be put together.
// serde borrows a `Cow` only where it is a field by itself, not in an `Option`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text<'a>(Cow<'a, str>);

impl Text<'_> {
    /// As a text of its own.
    pub fn into_owned(self) -> String {
        self.0.into_owned()
    }
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_escaped_is_copied() {
        let read: Vec<Option<Text<'_>>> = serde_json::from_str(r#"["plain", "a\nb", null, ""]"#).unwrap();
        let is_borrowed = |text: &Option<Text<'_>>| text.as_ref().map(|text| matches!(text.0, Cow::Borrowed(_)));
        assert_eq!(read.iter().map(is_borrowed).collect::<Vec<_>>(), [Some(true), Some(false), None, Some(true)]);
        assert_eq!(read.into_iter().flatten().map(Text::into_owned).collect::<Vec<_>>(), ["plain", "a\nb", ""]);
        assert!(serde_json::from_str::<Text<'_>>("7").is_err());
    }
}
