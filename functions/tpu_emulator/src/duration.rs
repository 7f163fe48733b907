//! Durations as people write them: `90s`, `1h 30m`, or a number of seconds.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in a scenario file or an admin request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Span(pub Duration);

impl Span {
    /// A span of whole seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// A span of milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", humantime::format_duration(self.0))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl serde::de::Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a duration such as \"30s\", or a number of seconds")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Span, E> {
        if let Ok(secs) = text.trim().parse::<f64>() {
            return self.visit_f64(secs);
        }
        humantime::parse_duration(text)
            .map(Span)
            .map_err(|error| E::custom(format!("{text:?} is no duration: {error}")))
    }

    fn visit_u64<E: serde::de::Error>(self, secs: u64) -> Result<Span, E> {
        Ok(Span::secs(secs))
    }

    fn visit_i64<E: serde::de::Error>(self, secs: i64) -> Result<Span, E> {
        u64::try_from(secs).map(Span::secs).map_err(|_| E::custom("a duration cannot be negative"))
    }

    fn visit_f64<E: serde::de::Error>(self, secs: f64) -> Result<Span, E> {
        Duration::try_from_secs_f64(secs)
            .map(Span)
            .map_err(|error| E::custom(format!("{secs} is no duration: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        let read = |text: &str| serde_json::from_str::<Span>(text);
        assert_eq!(read("\"30s\"").unwrap(), Span::secs(30));
        assert_eq!(read("2").unwrap(), Span::secs(2));
        assert_eq!(read("\"0.25\"").unwrap(), Span::millis(250));
        assert_eq!(read("\"1h 30m\"").unwrap(), Span::secs(5400));
        assert!(read("-1").is_err());
        assert!(read("\"soon\"").is_err());
        assert_eq!(serde_json::to_string(&Span::millis(1500)).unwrap(), "\"1s 500ms\"");
    }
}
