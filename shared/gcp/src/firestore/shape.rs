//! Documents, writes and queries in Firestore's own shapes.

use std::collections::{BTreeMap, HashMap};

use firestore::gcloud_sdk::google::firestore::v1 as proto;
use firestore::gcloud_sdk::google::firestore::v1::structured_query::{
    CollectionSelector, CompositeFilter, Direction, FieldFilter, FieldReference, Filter, Order, composite_filter,
    field_filter, filter::FilterType,
};
use firestore::gcloud_sdk::google::firestore::v1::value::ValueType;
use firestore::gcloud_sdk::prost_types::Timestamp;
use rekindle_ports::docs::{Content, Doc, IndexValue, Op, Precondition, Query, Revision, Write};
use rekindle_ports::{kinds, limits};

/// The field of the body.
const BODY: &str = "body";
/// The field that differs in each write.
const REV: &str = "rev";
/// The field with the time after which Firestore may delete the document, by the policy in `infra/firestore.indexes.json`.
const EXPIRE: &str = "expire_at";
/// What the names of indexed fields begin with.
const INDEX: &str = "i_";
/// Firestore's name for the name of a document.
const NAME: &str = "__name__";

/// An update, commit or read time as a revision. Firestore's times are whole microseconds.
pub(super) fn revision(time: &Timestamp) -> Revision {
    Revision(time.seconds * 1_000_000 + i64::from(time.nanos) / 1_000)
}

fn timestamp(revision: Revision) -> Timestamp {
    let nanos = revision.0.rem_euclid(1_000_000) * 1_000;
    Timestamp { seconds: revision.0.div_euclid(1_000_000), nanos: nanos as i32 }
}

/// A stored document; `Err`: another program wrote it.
pub(super) fn doc(root: &str, document: proto::Document) -> Result<Doc, String> {
    let path = document.name.strip_prefix(root).and_then(|rest| rest.strip_prefix('/'));
    let path = path.ok_or_else(|| format!("{} is not below {root}", document.name))?.to_owned();
    let update_time = document.update_time.as_ref().ok_or_else(|| format!("{path} has no update time"))?;
    let revision = revision(update_time);
    let mut body = None;
    let mut index = BTreeMap::new();
    for (name, value) in document.fields {
        if name == BODY {
            if let Some(ValueType::StringValue(text)) = value.value_type {
                let json = serde_json::from_str::<serde_json::Value>(&text);
                body = Some(json.map_err(|e| format!("the body of {path} is no JSON: {e}"))?.into());
            }
        } else if let Some(name) = name.strip_prefix(INDEX) {
            let value = index_value(value).ok_or_else(|| format!("{path} has a strange field {name}"))?;
            index.insert(name.to_owned().into(), value);
        }
    }
    let body = body.ok_or_else(|| format!("{path} has no body"))?;
    Ok(Doc { path, content: Content { body, index: index.into() }, revision })
}

/// A write with its precondition.
pub(super) fn write(root: &str, write: Write, body: String) -> proto::Write {
    let name = format!("{root}/{}", write.path());
    let lifetime = kinds::lifetime(write.path());
    let (operation, when) = match write {
        Write::Put { content, when, .. } => {
            let mut fields: HashMap<String, proto::Value> = content
                .index
                .iter()
                .map(|(field, value)| (format!("{INDEX}{field}"), proto_value(value.clone())))
                .collect();
            fields.insert(BODY.to_owned(), of(ValueType::StringValue(body)));
            fields.insert(REV.to_owned(), of(ValueType::IntegerValue(rand::random())));
            if let Some(lifetime) = lifetime {
                let end = Timestamp::from(std::time::SystemTime::now() + lifetime);
                // A whole second: Firestore deletes within a day or so anyway.
                let end = Timestamp { nanos: 0, ..end };
                fields.insert(EXPIRE.to_owned(), of(ValueType::TimestampValue(end)));
            }
            let document = proto::Document { name, fields, create_time: None, update_time: None };
            (proto::write::Operation::Update(document), when)
        }
        Write::Delete { when, .. } => (proto::write::Operation::Delete(name), when),
    };
    let condition = match when {
        Precondition::None => None,
        Precondition::Absent => Some(proto::precondition::ConditionType::Exists(false)),
        Precondition::At(revision) => Some(proto::precondition::ConditionType::UpdateTime(timestamp(revision))),
    };
    proto::Write {
        operation: Some(operation),
        current_document: condition.map(|c| proto::Precondition { condition_type: Some(c) }),
        ..Default::default()
    }
}

/// A query. Its order ends with the name, so that pages neither skip nor repeat.
pub(super) fn query(root: &str, query: &Query) -> proto::RunQueryRequest {
    // `jobs/x/history` is the collection `history` below the document `jobs/x`.
    let (above, collection) = limits::split(&query.collection);
    let parent = if above.is_empty() { root.to_owned() } else { format!("{root}/{above}") };
    let direction = if query.descending { Direction::Descending } else { Direction::Ascending };
    let order = |path: String| Order { field: Some(FieldReference { field_path: path }), direction: direction.into() };
    let mut order_by: Vec<Order> = query.order_by.iter().map(|f| order(format!("{INDEX}{f}"))).collect();
    order_by.push(order(NAME.to_owned()));
    let start_at = query.after.as_ref().map(|after| {
        let mut values: Vec<proto::Value> = after.value.iter().cloned().map(proto_value).collect();
        values.push(of(ValueType::ReferenceValue(format!("{root}/{}", after.path))));
        proto::Cursor { values, before: false }
    });
    let mut filters: Vec<Filter> = query.filters.iter().map(|(f, op, value)| filter(f, *op, value)).collect();
    let filter = match filters.len() {
        0 | 1 => filters.pop(),
        _ => Some(Filter {
            filter_type: Some(FilterType::CompositeFilter(CompositeFilter {
                op: composite_filter::Operator::And.into(),
                filters,
            })),
        }),
    };
    let structured = proto::StructuredQuery {
        from: vec![CollectionSelector { collection_id: collection.to_owned(), all_descendants: false }],
        r#where: filter,
        order_by,
        start_at,
        limit: Some(i32::try_from(query.limit).unwrap_or(i32::MAX)),
        ..Default::default()
    };
    proto::RunQueryRequest {
        parent,
        query_type: Some(proto::run_query_request::QueryType::StructuredQuery(structured)),
        ..Default::default()
    }
}

fn filter(field: &str, op: Op, value: &IndexValue) -> Filter {
    let op = match op {
        Op::Eq => field_filter::Operator::Equal,
        Op::Le => field_filter::Operator::LessThanOrEqual,
        Op::Ge => field_filter::Operator::GreaterThanOrEqual,
        Op::Contains => field_filter::Operator::ArrayContains,
    };
    let filter = FieldFilter {
        field: Some(FieldReference { field_path: format!("{INDEX}{field}") }),
        op: op.into(),
        value: Some(proto_value(value.clone())),
    };
    Filter { filter_type: Some(FilterType::FieldFilter(filter)) }
}

fn of(value: ValueType) -> proto::Value {
    proto::Value { value_type: Some(value) }
}

fn proto_value(value: IndexValue) -> proto::Value {
    of(match value {
        IndexValue::Bool(is) => ValueType::BooleanValue(is),
        IndexValue::Int(number) => ValueType::IntegerValue(number),
        IndexValue::Text(text) => ValueType::StringValue(text),
        IndexValue::Texts(texts) => {
            let values = texts.into_iter().map(|text| of(ValueType::StringValue(text))).collect();
            ValueType::ArrayValue(proto::ArrayValue { values })
        }
    })
}

fn index_value(value: proto::Value) -> Option<IndexValue> {
    let value = value.value_type?;
    if let ValueType::BooleanValue(is) = value {
        return Some(IndexValue::Bool(is));
    }
    if let ValueType::IntegerValue(number) = value {
        return Some(IndexValue::Int(number));
    }
    if let ValueType::ArrayValue(array) = value {
        return array.values.into_iter().map(text).collect::<Option<_>>().map(IndexValue::Texts);
    }
    text(of(value)).map(IndexValue::Text)
}

fn text(value: proto::Value) -> Option<String> {
    if let Some(ValueType::StringValue(text)) = value.value_type { Some(text) } else { None }
}
