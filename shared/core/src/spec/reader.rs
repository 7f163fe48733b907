//! Reading JSON by field: the path of each value, and every fault with the next step.
//!
//! Owns the shapes (text, list, number, duration, object); knows nothing of what the fields mean.

use std::fmt::Write as _;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use super::parse::FieldError;
use crate::text::is_unseen;

/// Faults that are told; more help nobody, and an answer must not grow with a hostile body.
const FAULTS_MAX: usize = 100;

/// The longest duration taken.
// Ten years: longer than any job, and short enough that no time of a job can leave the calendar.
const DURATION_MAX: Duration = Duration::from_hours(3650 * 24);

/// Every fault found so far.
#[derive(Default)]
pub(super) struct Faults {
    list: Vec<FieldError>,
    untold: usize,
}

impl Faults {
    /// Adds one.
    pub(super) fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        if self.list.len() < FAULTS_MAX {
            // A name may hold anything; it ends on a terminal.
            let field = shorten(&field.into(), 200).replace(is_unseen, "?");
            self.list.push(FieldError { field, message: message.into() });
        } else {
            self.untold += 1;
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.list.len() + self.untold
    }

    /// All of them, and how many more there were.
    pub(super) fn into_vec(mut self) -> Vec<FieldError> {
        if self.untold > 0 {
            let message = format!("and {} more faults; correct the ones named first", self.untold);
            self.list.push(FieldError { field: "spec".into(), message });
        }
        self.list
    }
}

/// An object whose fields are read by name.
pub(super) struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    /// The value as an object of these fields. Unknown ones are faults, each with the nearest known word.
    pub(super) fn open(value: &'a Value, path: &str, known: &[&str], faults: &mut Faults) -> Option<Self> {
        let name = if path.is_empty() { "spec" } else { path };
        let Value::Object(map) = value else {
            let fields = known.join(", ");
            faults.add(name, format!("must be an object with fields of: {fields}; it is {}", sort_of(value)));
            return None;
        };
        let object = Self { path: path.to_owned(), map };
        for field in map.keys().filter(|field| !known.contains(&field.as_str())) {
            // Whole, as it is written behind `--set`.
            let advice = match meant(field, known) {
                Some(near) => format!("did you mean `{}`?", object.at(near)),
                None => advise(field, known),
            };
            faults.add(object.at(field), format!("unknown field; {advice}"));
        }
        Some(object)
    }

    /// The value of a field; an explicit `null` is the same as none.
    pub(super) fn get(&self, field: &str) -> Option<&'a Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// The path of a field.
    pub(super) fn at(&self, field: &str) -> String {
        let field = if field.is_empty() { "\"\"" } else { field };
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// The text of a field, if it is given and right.
    pub(super) fn text(&self, field: &str, faults: &mut Faults) -> Option<String> {
        text(self.get(field)?, &self.at(field), faults).map(str::to_owned)
    }

    /// The words of a field that is one word or a list of them; none if it is absent.
    pub(super) fn words(&self, field: &str, faults: &mut Faults) -> Vec<Word> {
        self.get(field).map_or_else(Vec::new, |value| words(value, &self.at(field), faults))
    }
}

/// A value of a field that may also say that there is no limit.
pub(super) enum Bound<T> {
    /// `none` or `unlimited`.
    Free,
    /// So much.
    At(T),
}

impl<T> Bound<T> {
    /// The value; `None` for no limit.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Free => None,
            Self::At(value) => Some(value),
        }
    }
}

/// A word of a list, and where it stands.
pub(super) struct Word {
    pub(super) path: String,
    pub(super) text: String,
}

/// The value as text that is not blank and has no NUL.
pub(super) fn text<'a>(value: &'a Value, path: &str, faults: &mut Faults) -> Option<&'a str> {
    let Value::String(text) = value else {
        faults.add(path, no_text(value));
        return None;
    };
    if text.trim().is_empty() {
        faults.add(path, "is empty; give a value, or leave the field out");
        return None;
    }
    if text.contains('\0') {
        faults.add(path, "has a NUL character, which no program can be given; remove it");
        return None;
    }
    Some(text)
}

/// What is wrong with a value that is to be text.
// It is not turned into text here: 1e-3 would arrive as 0.001, and of 010 nothing but 10.0 is left.
pub(super) fn no_text(value: &Value) -> String {
    let advice = match value {
        Value::Number(number) if number.is_f64() => "; put it in quotes as you wrote it".to_owned(),
        Value::Number(_) | Value::Bool(_) => format!("; write \"{value}\", in quotes"),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => String::new(),
    };
    format!("must be text; it is {}{advice}", sort_of(value))
}

/// The value as one word or a list of words. Duplicates are dropped.
pub(super) fn words(value: &Value, path: &str, faults: &mut Faults) -> Vec<Word> {
    let mut found: Vec<Word> = Vec::new();
    let Value::Array(items) = value else {
        if value.is_string() {
            found.extend(text(value, path, faults).map(|text| Word { path: path.to_owned(), text: text.to_owned() }));
        } else {
            faults.add(path, format!("must be a word or a list of words; it is {}", sort_of(value)));
        }
        return found;
    };
    let mut seen = std::collections::BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        if let Some(text) = text(item, &path, faults)
            && seen.insert(text)
        {
            found.push(Word { path, text: text.to_owned() });
        }
    }
    found
}

/// The value as a whole number within bounds.
pub(super) fn integer(value: &Value, path: &str, bounds: &RangeInclusive<u64>, faults: &mut Faults) -> Option<u64> {
    let number = value.as_u64().or_else(|| {
        // YAML and spreadsheets write 50.0 for 50.
        let float = value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=9e15).contains(float))?;
        Some(float as u64)
    });
    let number = number.filter(|number| bounds.contains(number));
    if number.is_none() {
        let given = shorten(&value.to_string(), 40);
        faults.add(path, format!("must be a whole number of {} to {}, not {given}", bounds.start(), bounds.end()));
    }
    number
}

/// The value as a duration: `90s`, `30m`, `24h`, `7d`, or seconds. `none` where that is allowed.
pub(super) fn duration(value: &Value, path: &str, none: bool, faults: &mut Faults) -> Option<Bound<Duration>> {
    let given = match value {
        Value::String(text) if none && text.trim() == "none" => return Some(Bound::Free),
        Value::String(text) => {
            let text = text.trim();
            let seconds =
                text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok().map(Duration::from_secs));
            // A capital M would be a month to the library, where a minute was meant.
            let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"smhd".contains(&byte));
            seconds.unwrap_or_else(|| plain.then(|| humantime::parse_duration(text).ok()).flatten())
        }
        Value::Number(number) => number.as_f64().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match given {
        Some(duration) if duration <= DURATION_MAX => Some(Bound::At(duration)),
        Some(_) => {
            faults
                .add(path, format!("is longer than ten years{}", if none { "; for no limit write none" } else { "" }));
            None
        }
        None => {
            let or_none = if none { ", none" } else { "" };
            let given = shorten(&value.to_string(), 40);
            faults
                .add(path, format!("{given} is no duration; write it like 90s, 30m, 24h, 7d{or_none}, or in seconds"));
            None
        }
    }
}

/// What a JSON value is, for people.
pub(super) const fn sort_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The most similar known word, if one is similar at all.
pub(super) fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    // Below this the suggestion has nothing to do with what was meant: `foo` for `zones`.
    const LEAST: f64 = 0.75;
    // Similarity costs time by the square of the length, and no known word is this long.
    if word.len() > 80 {
        return None;
    }
    let word = word.trim().to_ascii_lowercase().replace('-', "_");
    let scored = known.iter().map(|known| (strsim::jaro_winkler(&word, &known.replace('-', "_")), *known));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0))?;
    (best.0 >= LEAST).then_some(best.1)
}

/// What other tools call a field of ours.
const MEANT: [(&str, &str); 7] = [
    ("retries", "budgets"),
    ("max_retries", "budgets"),
    ("retry", "budgets"),
    ("command", "run"),
    ("cmd", "run"),
    ("name", "id"),
    ("timeout", "limits"),
];

/// The known word that a word stands for, if it is one that others use or like one of ours.
fn meant<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let theirs = MEANT.iter().find(|(other, ours)| *other == word && known.contains(ours)).map(|(_, ours)| *ours);
    theirs.or_else(|| nearest(word, known))
}

/// `did you mean X?`, or the known words.
pub(super) fn advise(word: &str, known: &[&str]) -> String {
    match meant(word, known) {
        Some(nearest) => format!("did you mean `{nearest}`?"),
        None => format!("known here: {}", list(known)),
    }
}

/// The words with commas, the first dozen of them.
pub(super) fn list<T: AsRef<str>>(words: &[T]) -> String {
    const SHOWN: usize = 12;
    let mut text = words.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    if words.len() > SHOWN {
        let _ = write!(text, " and {} more", words.len() - SHOWN);
    }
    text
}

/// What was given, quoted and not longer than a line.
pub(super) fn quote(text: &str) -> String {
    format!("{:?}", shorten(text, 60))
}

fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most).chain(std::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_no_text_is_advised_with_nothing_that_was_not_written() {
        for (value, advised) in [
            (json!(1), "a number; write \"1\", in quotes"),
            (json!(true), "true or false; write \"true\", in quotes"),
            (json!(10.0), "a number; put it in quotes as you wrote it"),
            (json!(["a"]), "a list"),
        ] {
            assert_eq!(no_text(&value), format!("must be text; it is {advised}"));
        }
    }
}
