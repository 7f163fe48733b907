//! Types as their source tells them: fields with their comments, words of an enum.

use std::collections::BTreeMap;

use serde_json::Value;

/// A type by name.
#[derive(Debug)]
pub(super) struct Shape {
    pub(super) doc: String,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Fields(Vec<Field>),
    /// What it may be, and what that means.
    Words(Vec<(String, String)>),
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) of: Type,
    pub(super) may_be_absent: bool,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Text,
    Whole,
    Number,
    Flag,
    Time,
    Day,
    Any,
    Object,
    Optional(Box<Type>),
    List(Box<Type>),
    ByName(Box<Type>),
    Shape(String),
}

impl Type {
    /// The type of a field, from its Rust name; a comment that links to a shape says what a plain value is.
    fn of(rust: &str, doc: &str) -> Self {
        let rust = rust.trim().trim_start_matches('&').trim_start_matches("'a ").trim();
        let inside = |outer: &str| rust.strip_prefix(outer)?.strip_suffix('>');
        if let Some(inner) = inside("Option<") {
            return Self::Optional(Box::new(Self::of(inner, doc)));
        }
        if let Some(inner) = inside("Vec<").or_else(|| rust.strip_prefix('[')?.strip_suffix(']')) {
            return Self::List(Box::new(Self::of(inner, doc)));
        }
        if let Some((_, value)) = inside("BTreeMap<").and_then(|inner| inner.split_once(',')) {
            return Self::ByName(Box::new(Self::of(value, doc)));
        }
        match rust {
            "String" | "str" | "JobId" | "Owner" => Self::Text,
            "u8" | "u16" | "u32" | "u64" | "usize" | "i32" | "i64" => Self::Whole,
            "f64" => Self::Number,
            "bool" => Self::Flag,
            "Timestamp" => Self::Time,
            "Date" => Self::Day,
            "Map<String, Value>" => Self::Object,
            "Value" => linked(doc).map_or(Self::Any, |name| Self::Shape(name.to_owned())),
            other => Self::Shape(other.trim_end_matches("<'a>").to_owned()),
        }
    }

    /// In words, with links to the shapes.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Text => "text".to_owned(),
            Self::Whole => "whole number".to_owned(),
            Self::Number => "number".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Time => "time".to_owned(),
            Self::Day => "day".to_owned(),
            Self::Any => "anything".to_owned(),
            Self::Object => "object".to_owned(),
            Self::Optional(inner) => format!("{}, or null", inner.words()),
            Self::List(inner) => format!("list of {}", inner.words()),
            Self::ByName(inner) => format!("object: {} by name", inner.words()),
            Self::Shape(name) => format!("[{name}](#{})", name.to_lowercase()),
        }
    }

    /// The shapes that it names.
    pub(super) fn shape(&self) -> Option<&str> {
        match self {
            Self::Optional(inner) | Self::List(inner) | Self::ByName(inner) => inner.shape(),
            Self::Shape(name) => Some(name),
            Self::Text
            | Self::Whole
            | Self::Number
            | Self::Flag
            | Self::Time
            | Self::Day
            | Self::Any
            | Self::Object => None,
        }
    }
}

/// The type that a comment links to.
fn linked(doc: &str) -> Option<&str> {
    Some(doc.split_once("[`")?.1.split_once("`]")?.0)
}

/// A comment as the page shows it.
fn plain(doc: &[&str]) -> String {
    let text = doc.join(" ").replace("[`", "`").replace("`]", "`").replace('|', "\\|");
    let link = regex::Regex::new(r"`\(crate::[A-Za-z_:]+\)").unwrap();
    link.replace_all(&text, "`").into_owned()
}

/// Reads the named types of a source file; each must be there.
pub(super) fn read(source: &str, names: &[&str]) -> BTreeMap<String, Shape> {
    let mut shapes = BTreeMap::new();
    let (mut doc, mut is_snake) = (Vec::new(), false);
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
            continue;
        }
        if line.starts_with("#[") {
            is_snake |= line.contains("rename_all = \"snake_case\"");
            continue;
        }
        let head = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let is_struct = head.starts_with("struct ");
        let name = head.strip_prefix("struct ").or_else(|| head.strip_prefix("enum "));
        let name = name.map(|rest| rest.split([' ', '<', '(']).next().unwrap_or_default());
        if let Some(name) = name.filter(|name| names.contains(name)) {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
            let kind = if is_struct { Kind::Fields(fields(&body)) } else { Kind::Words(words(name, &body, is_snake)) };
            shapes.insert(name.to_owned(), Shape { doc: plain(&doc), kind });
        }
        (doc, is_snake) = (Vec::new(), false);
    }
    let missing: Vec<_> = names.iter().filter(|name| !shapes.contains_key(**name)).collect();
    assert!(missing.is_empty(), "not found: {missing:?}");
    shapes
}

fn fields(body: &[&str]) -> Vec<Field> {
    let mut fields = Vec::new();
    let (mut doc, mut may_be_absent) = (Vec::new(), false);
    for line in body.iter().map(|line| line.trim()) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if line.starts_with("#[") {
            may_be_absent |= line.contains("skip_serializing_if");
        } else if let Some((name, of)) = line.trim_end_matches(',').split_once(": ") {
            let name = name.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
            assert!(!doc.is_empty(), "{name} has no comment");
            let of = Type::of(of, &doc.join(" "));
            fields.push(Field { name: name.to_owned(), doc: plain(&doc), of, may_be_absent });
            (doc, may_be_absent) = (Vec::new(), false);
        }
    }
    fields
}

fn words(name: &str, body: &[&str], is_snake: bool) -> Vec<(String, String)> {
    assert!(is_snake, "the words of {name} are not known");
    let mut words = Vec::new();
    let mut doc = Vec::new();
    for line in body.iter().map(|line| line.trim()) {
        if let Some(text) = line.strip_prefix("/// ") {
            doc.push(text);
        } else if let Some(variant) = line.strip_suffix(',') {
            let mut word = String::new();
            for (place, letter) in variant.chars().enumerate() {
                if letter.is_uppercase() && place > 0 {
                    word.push('_');
                }
                word.extend(letter.to_lowercase());
            }
            words.push((word, plain(&doc)));
            doc = Vec::new();
        }
    }
    words
}

/// What is not as the type says; empty: all is.
pub(super) fn faults(shapes: &BTreeMap<String, Shape>, at: &str, of: &Type, value: &Value) -> Vec<String> {
    let wrong = |is_right: bool| if is_right { Vec::new() } else { vec![format!("{at} is no {of:?}: {value}")] };
    match (of, value) {
        (Type::Any, _) | (Type::Optional(_), Value::Null) => Vec::new(),
        (Type::Optional(inner), _) => faults(shapes, at, inner, value),
        (Type::List(inner), Value::Array(items)) => {
            items.iter().enumerate().flat_map(|(i, item)| faults(shapes, &format!("{at}[{i}]"), inner, item)).collect()
        }
        (Type::ByName(inner), Value::Object(map)) => {
            map.iter().flat_map(|(name, value)| faults(shapes, &format!("{at}.{name}"), inner, value)).collect()
        }
        (Type::Shape(name), _) => match (&shapes[name].kind, value) {
            (Kind::Words(words), Value::String(text)) => wrong(words.iter().any(|(word, _)| word == text)),
            (Kind::Fields(fields), Value::Object(map)) => {
                let mut found: Vec<String> = map
                    .keys()
                    .filter(|key| !fields.iter().any(|field| field.name == **key))
                    .map(|key| format!("{at}.{key} is no field of {name}"))
                    .collect();
                for field in fields {
                    let at = format!("{at}.{}", field.name);
                    match map.get(&field.name) {
                        Some(value) => found.extend(faults(shapes, &at, &field.of, value)),
                        None if field.may_be_absent => {}
                        None => found.push(format!("{at} is not there")),
                    }
                }
                found
            }
            _ => wrong(false),
        },
        (Type::Text, _) => wrong(value.is_string()),
        (Type::Time, _) => wrong(value.as_str().is_some_and(|text| text.parse::<jiff::Timestamp>().is_ok())),
        (Type::Day, _) => wrong(value.as_str().is_some_and(|text| text.parse::<jiff::civil::Date>().is_ok())),
        (Type::Whole, _) => wrong(value.is_u64() || value.is_i64()),
        (Type::Number, _) => wrong(value.is_number()),
        (Type::Flag, _) => wrong(value.is_boolean()),
        (Type::Object, _) => wrong(value.is_object()),
        (Type::List(_) | Type::ByName(_), _) => wrong(false),
    }
}
