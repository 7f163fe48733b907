//! Audit log entries (`LogEntryData`), from Eventarc or from a Logging sink: activity and system events.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::bounds;
use crate::delivery::Delivery;
use crate::text::Text;

/// The CloudEvents type of audit log entries.
pub const AUDIT_TYPE: &str = "google.cloud.audit.log.v1.written";

/// As much of a log entry as says which resource it speaks of.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogEntry<'a> {
    /// The audit record.
    #[serde(borrow)]
    pub proto_payload: Option<AuditLog<'a>>,
    /// The long-running call that it is an entry of, or the system event.
    #[serde(borrow)]
    pub operation: Option<LogOperation<'a>>,
    /// The entry's own id, within its log.
    #[serde(borrow)]
    pub insert_id: Text<'a>,
}

/// Which operation a log entry belongs to, and which of its entries it is. A system event is first and last.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LogOperation<'a> {
    /// The operation's name; the same in all its entries.
    #[serde(borrow)]
    pub id: Text<'a>,
    /// The operation begins.
    pub first: bool,
    /// The operation has ended.
    pub last: bool,
}

/// The audit record of a log entry.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AuditLog<'a> {
    /// Such as `google.cloud.tpu.v2.Tpu.DeleteNode`, `compute.instances.preempted`.
    #[serde(borrow)]
    pub method_name: Text<'a>,
    /// Such as `projects/P/locations/Z/nodes/N`.
    #[serde(borrow)]
    pub resource_name: Text<'a>,
    /// What the request names, where the log keeps it.
    pub request: Asked,
}

/// The names in a request: of the one that is to be created. Whatever else a request is, it has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    node: Option<String>,
    queued_resource: Option<String>,
}

/// What is wanted of a value of any sort. The rest is passed over: whatever it is, it costs no memory.
trait Part: Default {
    fn of_fields<'de, A: MapAccess<'de>>(mut fields: A) -> Result<Self, A::Error> {
        while fields.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn of_text(_: &str) -> Self {
        Self::default()
    }
}

/// A name, where the value is a text.
#[derive(Default)]
struct Name(Option<String>);

impl Part for Name {
    fn of_text(text: &str) -> Self {
        Self(Some(text.to_owned()))
    }
}

impl Part for Asked {
    fn of_fields<'de, A: MapAccess<'de>>(mut fields: A) -> Result<Self, A::Error> {
        let mut asked = Self::default();
        while let Some(name) = fields.next_key::<Text<'de>>()? {
            let place = match &*name {
                "nodeId" | "node_id" => &mut asked.node,
                "queuedResourceId" | "queued_resource_id" => &mut asked.queued_resource,
                _ => {
                    fields.next_value::<IgnoredAny>()?;
                    continue;
                }
            };
            // In either spelling; the other is not there, or says the same.
            if let Name(Some(id)) = fields.next_value()? {
                *place = Some(id);
            }
        }
        Ok(asked)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Partly(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Asked {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Partly(PhantomData))
    }
}

struct Partly<T>(PhantomData<T>);

impl<'de, T: Part> Visitor<'de> for Partly<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<T, A::Error> {
        T::of_fields(fields)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<T, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(T::default())
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::of_text(text))
    }

    fn visit_bool<E>(self, _: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, _: u64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_f64<E>(self, _: f64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }
}

/// A resource that a log entry speaks of, as far as it may be one of ours.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Resource {
    /// A node.
    Node {
        /// Zone.
        zone: String,
        /// Id.
        name: String,
    },
    /// A queued resource.
    QueuedResource {
        /// Zone.
        zone: String,
        /// Id.
        name: String,
    },
    /// A virtual machine, which may be a worker.
    Instance {
        /// Zone.
        zone: String,
        /// Name.
        name: String,
    },
}

/// What a delivery speaks of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The resource.
    pub resource: Resource,
    /// The method, such as `google.cloud.tpu.v2.Tpu.DeleteNode`.
    pub method: String,
    /// What happened, the same however often and by whichever way it is told: the operation's name, else the entry's id. Nothing where the
    /// delivery names neither.
    pub fact: Option<String>,
    /// The operation was accepted, and another entry will tell of its end.
    pub is_begin: bool,
}

impl Subject {
    fn new(resource: Resource, method: &str, entry: &LogEntry<'_>) -> Self {
        let operation = entry.operation.as_ref();
        let ids = [operation.map(|operation| &operation.id), Some(&entry.insert_id)];
        let fact = ids.into_iter().flatten().find(|id| !id.is_empty()).map(|id| String::from(&**id));
        let is_begin = operation.is_some_and(|operation| operation.first && !operation.last);
        Self { resource, method: method.to_owned(), fact, is_begin }
    }
}

/// True when a JSON value looks like a log entry.
pub fn is_log_entry(value: &Value) -> bool {
    value.get("logName").is_some_and(Value::is_string) || value.get("protoPayload").is_some_and(Value::is_object)
}

/// What a delivery speaks of.
///
/// `Ok(None)`: it is an audit entry of something else (foreign). `Err`: it is no audit entry.
pub fn subject(delivery: &Delivery) -> Result<Option<Subject>, String> {
    // Entries with an empty body have been seen: then the attributes of the event are enough.
    if let (Some(event), Some(name)) = (&delivery.event, delivery.attributes.get("resourcename"))
        && event.ty == AUDIT_TYPE
        && let Some(resource) = resource(name)
    {
        let method = delivery.attributes.get("methodname").map(String::as_str).unwrap_or_default();
        let body = delivery.data.as_ref().ok();
        let entry = body.and_then(|data| serde_json::from_slice(data).ok()).unwrap_or_default();
        return Ok(Some(Subject::new(resource, method, &entry)));
    }
    let data = delivery.data.as_ref().map_err(Clone::clone)?;
    if data.is_empty() && delivery.event.as_ref().is_some_and(|e| e.ty == AUDIT_TYPE) {
        return Ok(None);
    }
    // What nearly all are, without a tree of the whole entry in between; anything odd about it is told below.
    if let Ok(entry) = serde_json::from_slice::<LogEntry>(data)
        && entry.proto_payload.is_some()
    {
        return Ok(spoken_of(&entry));
    }
    let value: Value = bounds::from_slice(data).map_err(|e| format!("not JSON: {e}"))?;
    if !is_log_entry(&value) {
        return Err("not a log entry".into());
    }
    let entry = LogEntry::deserialize(&value).map_err(|e| format!("not a log entry: {e}"))?;
    Ok(spoken_of(&entry))
}

fn spoken_of(entry: &LogEntry<'_>) -> Option<Subject> {
    let audit = entry.proto_payload.as_ref()?;
    let found = resource(&audit.resource_name).or_else(|| created(audit));
    found.map(|resource| Subject::new(resource, &audit.method_name, entry))
}

/// Reads a resource name; a leading `//service/` and a project number are allowed.
pub fn resource(name: &str) -> Option<Resource> {
    let path = match name.strip_prefix("//") {
        Some(rest) => rest.split_once('/')?.1,
        None => name,
    };
    let mut parts = path.trim_start_matches('/').split('/');
    let ("projects", _project) = (parts.next()?, parts.next()?) else { return None };
    let (place, zone, kind, id) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || zone.is_empty() || id.is_empty() {
        return None;
    }
    let (zone, name) = (zone.to_owned(), id.to_owned());
    match (place, kind) {
        ("locations", "nodes") => Some(Resource::Node { zone, name }),
        ("locations", "queuedResources") => Some(Resource::QueuedResource { zone, name }),
        ("zones", "instances") => Some(Resource::Instance { zone, name }),
        _ => None,
    }
}

/// A create may be logged under its parent, `projects/P/locations/Z`, with the id in the request.
fn created(audit: &AuditLog<'_>) -> Option<Resource> {
    let parent = audit.resource_name.trim_end_matches('/');
    if let Some(id) = &audit.request.node {
        return resource(&format!("{parent}/nodes/{id}"));
    }
    let id = audit.request.queued_resource.as_ref()?;
    resource(&format!("{parent}/queuedResources/{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_names() {
        let node = |zone: &str, name: &str| Some(Resource::Node { zone: zone.into(), name: name.into() });
        assert_eq!(resource("projects/p/locations/us-central2-b/nodes/n-1"), node("us-central2-b", "n-1"));
        assert_eq!(resource("//tpu.googleapis.com/projects/123/locations/z/nodes/n"), node("z", "n"));
        assert_eq!(
            resource("projects/p/locations/z/queuedResources/q"),
            Some(Resource::QueuedResource { zone: "z".into(), name: "q".into() })
        );
        assert_eq!(
            resource("projects/p/zones/z/instances/t1v-n-1-w-0"),
            Some(Resource::Instance { zone: "z".into(), name: "t1v-n-1-w-0".into() })
        );
        for foreign in
            ["", "projects/p", "projects/p/locations/z/nodes/", "projects/p/topics/t", "projects/p/locations/z"]
        {
            assert_eq!(resource(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn a_create_logged_under_its_parent_is_found_by_the_id_in_the_request() {
        let node = Resource::Node { zone: "z".into(), name: "n".into() };
        let queued = Resource::QueuedResource { zone: "z".into(), name: "q".into() };
        for (request, found) in [
            (r#"{"nodeId": "n"}"#, Some(&node)),
            (r#"{"@type": "t", "node": {"deep": [{}]}, "node_id": "n", "x": 1.5}"#, Some(&node)),
            (r#"{"queuedResourceId": "q", "nodeId": null}"#, Some(&queued)),
            (r#"{"queued_resource_id": "\u0071"}"#, Some(&queued)),
            (r#"{"nodeId": 7}"#, None),
            (r#"{"nodeId": {"id": "n"}}"#, None),
            ("{}", None),
            ("null", None),
            ("true", None),
            ("-7", None),
            ("7", None),
            ("0.5", None),
            (r#""n""#, None),
            (r#"[{"nodeId": "n"}, 1]"#, None),
        ] {
            let text = format!(r#"{{"resourceName": "projects/p/locations/z", "request": {request}}}"#);
            let audit: AuditLog<'_> = serde_json::from_str(&text).unwrap();
            assert_eq!(created(&audit).as_ref(), found, "{request}");
            let value: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(AuditLog::deserialize(&value).unwrap(), audit, "{request}");
        }
    }

    #[test]
    fn what_happened_is_one_fact_however_it_is_told() {
        let node = Resource::Node { zone: "z".into(), name: "n".into() };
        for (more, fact, is_begin) in [
            (r#""operation": {"id": "o", "producer": "p", "first": true}"#, Some("o"), true),
            (r#""operation": {"id": "o", "last": true}, "insertId": "i""#, Some("o"), false),
            (r#""operation": {"id": "o", "first": true, "last": true}"#, Some("o"), false),
            (r#""operation": {"id": ""}, "insertId": "i""#, Some("i"), false),
            (r#""operation": null, "insertId": "i""#, Some("i"), false),
            (r#""x": 1"#, None, false),
        ] {
            let payload = r#""protoPayload": {"methodName": "m", "resourceName": "projects/p/locations/z/nodes/n"}"#;
            let text = format!("{{{payload}, {more}}}");
            let entry: LogEntry<'_> = serde_json::from_str(&text).unwrap();
            let fact = fact.map(str::to_owned);
            let wanted = Subject { resource: node.clone(), method: "m".into(), fact, is_begin };
            assert_eq!(spoken_of(&entry), Some(wanted), "{more}");
        }
    }
}
