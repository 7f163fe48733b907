//! What each answer of Firestore means, and what is written.

use std::collections::HashMap;

use super::*;

fn put(when: Precondition) -> Write {
    let content = rekindle_ports::docs::Content { body: serde_json::json!({}).into(), index: BTreeMap::new().into() };
    Write::Put { path: "jobs/a".into(), content, when }
}

fn kind(error: &DocsError) -> &'static str {
    match error {
        DocsError::Conflict { .. } => "conflict",
        DocsError::Unclear(_) => "unclear",
        DocsError::Unavailable(_) => "unavailable",
        DocsError::Full(_) => "full",
        DocsError::Refused(_) => "refused",
    }
}

/// Every code, and what it means for: a commit without preconditions, one with `Absent`, one with `At`, a read.
#[test]
fn each_code_has_its_meaning() {
    let free = Guards::of(&[put(Precondition::None)]);
    let absent = Guards::of(&[put(Precondition::None), put(Precondition::Absent)]);
    let at = Guards::of(&[put(Precondition::At(Revision(1)))]);
    let table = [
        (Code::FailedPrecondition, ["refused", "conflict", "conflict", "refused"]),
        (Code::AlreadyExists, ["refused", "conflict", "conflict", "refused"]),
        (Code::NotFound, ["refused", "refused", "conflict", "refused"]),
        (Code::Aborted, ["unavailable"; 4]),
        (Code::ResourceExhausted, ["unavailable"; 4]),
        (Code::Unauthenticated, ["unavailable"; 4]),
        (Code::InvalidArgument, ["refused"; 4]),
        (Code::PermissionDenied, ["refused"; 4]),
        (Code::OutOfRange, ["refused"; 4]),
        (Code::Unimplemented, ["refused"; 4]),
        (Code::DeadlineExceeded, ["unclear", "unclear", "unclear", "unavailable"]),
        (Code::Unavailable, ["unclear", "unclear", "unclear", "unavailable"]),
        (Code::Cancelled, ["unclear", "unclear", "unclear", "unavailable"]),
        (Code::Unknown, ["unclear", "unclear", "unclear", "unavailable"]),
        (Code::Internal, ["unclear", "unclear", "unclear", "unavailable"]),
        (Code::DataLoss, ["unclear", "unclear", "unclear", "unavailable"]),
    ];
    for (code, meanings) in table {
        let status = Status::new(code, "m");
        let commits = [&free, &absent, &at].map(|guards| commit_error(&status, guards));
        let read = read_error(&status);
        let seen = [kind(&commits[0]), kind(&commits[1]), kind(&commits[2]), kind(&read)];
        assert_eq!(seen, meanings, "{code:?}");
    }
}

#[test]
fn two_equal_writes_differ_so_that_the_update_time_moves() {
    let fields = |write: proto::Write| match write.operation {
        Some(proto::write::Operation::Update(document)) => document.fields,
        _ => HashMap::new(),
    };
    let one = fields(shape::write("r", put(Precondition::None), "{}".into()));
    let two = fields(shape::write("r", put(Precondition::None), "{}".into()));
    assert_eq!(one["body"], two["body"]);
    assert_ne!(one["rev"], two["rev"]);
}

#[test]
fn only_documents_with_a_lifetime_say_when_they_end() {
    let end = |path: &str| {
        let content =
            rekindle_ports::docs::Content { body: serde_json::json!({}).into(), index: BTreeMap::new().into() };
        let write = shape::write("r", Write::Put { path: path.into(), content, when: Precondition::None }, "{}".into());
        let Some(proto::write::Operation::Update(mut document)) = write.operation else { panic!("no update") };
        document.fields.remove("expire_at").map(|v| v.value_type)
    };
    for path in ["jobs/a", "jobs/a/history/1", "jobs/a/workers/1", "meta/installation", "limits/creates", "zones/z"] {
        assert_eq!(end(path), None, "{path}");
    }
    for path in ["jobs/a/commands/c", "dead/d", "told/t", "instances/i"] {
        let lifetime = rekindle_ports::kinds::lifetime(path).unwrap();
        let wanted = (std::time::SystemTime::now() + lifetime).duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let Some(Some(proto::value::ValueType::TimestampValue(time))) = end(path) else { panic!("{path} has no end") };
        assert!(time.seconds.unsigned_abs().abs_diff(wanted) < 60, "{path}: {time:?}");
    }
}

/// A server that takes connections and says nothing is not waited for: a read was not possible, a commit may have been.
#[tokio::test]
async fn a_silent_server_is_given_up_in_time() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let silent = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    });
    let service = Service::emulator(&address).with_timeout(Duration::from_millis(300));
    let docs = FirestoreDocs::connect("p", DEFAULT_DATABASE, &service).await.unwrap();
    let calls = async {
        assert_eq!(kind(&docs.get("jobs/a").await.unwrap_err()), "unavailable");
        assert_eq!(kind(&docs.commit(vec![put(Precondition::Absent)]).await.unwrap_err()), "unclear");
    };
    tokio::time::timeout(Duration::from_secs(30), calls).await.unwrap();
    silent.abort();
}
