//! Keys and values of the file. Keys sort as queries want their documents.
//!
//! `docs`: `<collection> 0 <id>` → revision, index fields, body. `index`: `<collection> 0 <field> 0 <value> <id>` →
//! nothing, one entry for each value (each text of a set is one). `meta`: schema, last revision.

use redb::TableDefinition;
use rekindle_ports::body::Body;
use rekindle_ports::docs::{Content, Doc, Index, IndexValue, Revision};
use rekindle_ports::limits;

/// Documents.
pub(super) const DOCS: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("docs");
/// Index entries.
pub(super) const INDEX: TableDefinition<'_, &[u8], ()> = TableDefinition::new("index");
/// Figures about the file.
pub(super) const META: TableDefinition<'_, &str, i64> = TableDefinition::new("meta");
/// Key of the layout's version in `meta`.
pub(super) const SCHEMA: &str = "schema";
/// Key of the last revision in `meta`.
pub(super) const REVISION: &str = "revision";

/// Greater than every byte of an id, so that it ends a range of ids.
pub(super) const AFTER_IDS: u8 = 0xff;

/// First byte of an encoded value; the order of types is that of [`IndexValue`]. Sets come last and have no order of
/// their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Tag {
    Bool = 1,
    Int = 2,
    Text = 3,
    OfSet = 4,
}

/// The key of a document.
pub(super) fn doc_key(path: &str) -> Vec<u8> {
    let (collection, id) = limits::split(path);
    let mut key = collection_key(collection);
    key.extend_from_slice(id.as_bytes());
    key
}

/// What every document key of a collection begins with.
pub(super) fn collection_key(collection: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(collection.len() + 64);
    key.extend_from_slice(collection.as_bytes());
    key.push(0);
    key
}

/// What every index entry of a field begins with.
pub(super) fn field_key(collection: &str, field: &str) -> Vec<u8> {
    let mut key = collection_key(collection);
    key.extend_from_slice(field.as_bytes());
    key.push(0);
    key
}

/// Appends a value so that the bytes sort as the values do. Sets have no encoding of their own: nothing is appended.
pub(super) fn push_value(key: &mut Vec<u8>, value: &IndexValue) {
    match value {
        IndexValue::Bool(is) => key.extend_from_slice(&[Tag::Bool as u8, u8::from(*is)]),
        IndexValue::Int(number) => {
            key.push(Tag::Int as u8);
            // With the sign bit turned, negative numbers sort before the others.
            key.extend_from_slice(&(number.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        IndexValue::Text(text) => push_text(key, Tag::Text, text),
        IndexValue::Texts(_) => {}
    }
}

/// Appends a text of a set.
pub(super) fn push_member(key: &mut Vec<u8>, text: &str) {
    push_text(key, Tag::OfSet, text);
}

fn push_text(key: &mut Vec<u8>, tag: Tag, text: &str) {
    key.push(tag as u8);
    for byte in text.bytes() {
        key.push(byte);
        if byte == 0 {
            key.push(0xff);
        }
    }
    // `0 1` ends the text: less than any byte that a longer text goes on with, and than the escaped `0 255`.
    key.extend_from_slice(&[0, 1]);
}

/// The type byte of a value.
pub(super) fn tag(value: &IndexValue) -> u8 {
    match value {
        IndexValue::Bool(_) => Tag::Bool as u8,
        IndexValue::Int(_) => Tag::Int as u8,
        IndexValue::Text(_) => Tag::Text as u8,
        IndexValue::Texts(_) => Tag::OfSet as u8,
    }
}

/// Every index entry of a document.
pub(super) fn index_keys(path: &str, index: &Index) -> Vec<Vec<u8>> {
    let (collection, id) = limits::split(path);
    let mut keys = Vec::new();
    for (field, value) in index {
        let prefix = field_key(collection, field);
        match value {
            IndexValue::Texts(texts) => keys.extend(texts.iter().map(|text| {
                let mut key = prefix.clone();
                push_member(&mut key, text);
                key
            })),
            IndexValue::Bool(_) | IndexValue::Int(_) | IndexValue::Text(_) => {
                let mut key = prefix;
                push_value(&mut key, value);
                keys.push(key);
            }
        }
    }
    for key in &mut keys {
        key.extend_from_slice(id.as_bytes());
    }
    keys
}

/// The bytes of a stored document.
pub(super) fn encode(revision: Revision, index: &Index, body: &str) -> Result<Vec<u8>, String> {
    let index = serde_json::to_vec(index).map_err(|e| e.to_string())?;
    let mut bytes = Vec::with_capacity(12 + index.len() + body.len());
    bytes.extend_from_slice(&revision.0.to_be_bytes());
    bytes.extend_from_slice(&(index.len() as u32).to_be_bytes());
    bytes.extend_from_slice(&index);
    bytes.extend_from_slice(body.as_bytes());
    Ok(bytes)
}

/// The revision of stored bytes; `None`: they are damaged.
pub(super) fn revision(bytes: &[u8]) -> Option<Revision> {
    Some(Revision(i64::from_be_bytes(bytes.get(..8)?.try_into().ok()?)))
}

/// The index fields of stored bytes; `None`: they are damaged.
pub(super) fn index(bytes: &[u8]) -> Option<Index> {
    serde_json::from_slice(bytes.get(12..12 + index_len(bytes)?)?).ok()
}

/// The document of stored bytes; `None`: they are damaged.
pub(super) fn decode(path: String, bytes: &[u8]) -> Option<Doc> {
    let text = std::str::from_utf8(bytes.get(12 + index_len(bytes)?..)?).ok()?;
    let body = Body::cached(text.to_owned()).ok()?;
    Some(Doc { path, content: Content { body, index: index(bytes)?.into() }, revision: revision(bytes)? })
}

fn index_len(bytes: &[u8]) -> Option<usize> {
    Some(u32::from_be_bytes(bytes.get(8..12)?.try_into().ok()?) as usize)
}
