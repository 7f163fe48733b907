//! Against a bucket in memory that speaks the five calls of the JSON API.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use serde_json::json;

use super::*;

#[derive(Clone, Default)]
struct Bucket {
    objects: Arc<Mutex<BTreeMap<String, Bytes>>>,
    /// Sends whole objects, whatever range is asked for.
    ignores_ranges: bool,
    /// Has rights on folders alone: what is not there is forbidden, and so are objects of this name.
    forbids: Option<&'static str>,
    /// Most names in one answer.
    page: Option<usize>,
    address: Arc<Mutex<String>>,
}

type Params = Query<BTreeMap<String, String>>;

impl Bucket {
    async fn serve(self) -> GcsObjects {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        (*self.address.lock().unwrap()).clone_from(&address);
        let router = Router::new()
            .route("/upload/storage/v1/b/my-bucket/o", post(upload))
            .route("/session/{name}", put(finish))
            .route("/storage/v1/b/my-bucket/o", get(list))
            .route("/storage/v1/b/my-bucket/o/{name}", get(read))
            .with_state(self);
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        GcsObjects::connect("my-bucket", &Service::emulator(&address)).unwrap()
    }
}

async fn upload(State(bucket): State<Bucket>, Query(params): Params, body: Bytes) -> Response {
    let name = params["name"].clone();
    if params["uploadType"] == "media" {
        bucket.objects.lock().unwrap().insert(name, body);
        return "{}".into_response();
    }
    let location = format!("http://{}/session/{}", bucket.address.lock().unwrap(), hex::encode(name));
    ([(header::LOCATION, location)], "").into_response()
}

async fn finish(State(bucket): State<Bucket>, uri: Uri, body: Bytes) -> &'static str {
    let name = hex::decode(uri.path().rsplit('/').next().unwrap()).unwrap();
    bucket.objects.lock().unwrap().insert(String::from_utf8(name).unwrap(), body);
    "{}"
}

async fn read(State(bucket): State<Bucket>, uri: Uri, Query(params): Params, headers: HeaderMap) -> Response {
    // As the service reads it: one segment, in which a slash must have been written as %2F.
    let segment = uri.path().rsplit('/').next().unwrap();
    let name = percent_encoding::percent_decode_str(segment).decode_utf8().unwrap().into_owned();
    let object = bucket.objects.lock().unwrap().get(&name).filter(|_| bucket.forbids != Some(&name)).cloned();
    let Some(object) = object else {
        let status = if bucket.forbids.is_some() { StatusCode::FORBIDDEN } else { StatusCode::NOT_FOUND };
        return (status, "No such object").into_response();
    };
    if params.get("alt").is_none_or(|alt| alt != "media") {
        return json!({ "size": object.len().to_string() }).to_string().into_response();
    }
    if bucket.ignores_ranges {
        return object.into_response();
    }
    let range = headers[header::RANGE].to_str().unwrap().strip_prefix("bytes=").unwrap();
    let (from, last) = range.split_once('-').unwrap();
    let (from, last): (usize, u64) = (from.parse().unwrap(), last.parse().unwrap());
    if from >= object.len() {
        return StatusCode::RANGE_NOT_SATISFIABLE.into_response();
    }
    let end = usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1).min(object.len());
    (StatusCode::PARTIAL_CONTENT, object.slice(from..end)).into_response()
}

async fn list(State(bucket): State<Bucket>, Query(params): Params) -> String {
    let objects = bucket.objects.lock().unwrap();
    let from = params.get("pageToken").or(params.get("startOffset")).cloned().unwrap_or_default();
    let most: usize = params["maxResults"].parse().unwrap();
    let most = bucket.page.unwrap_or(most).min(most);
    let mut names = objects.keys().filter(|name| name.starts_with(&params["prefix"]) && **name >= from);
    let items: Vec<_> = names.by_ref().take(most).map(|name| json!({ "name": name })).collect();
    match names.next() {
        Some(next) => json!({ "items": items, "nextPageToken": next }).to_string(),
        // An empty list has no `items` at all.
        None if items.is_empty() => "{}".to_owned(),
        None => json!({ "items": items }).to_string(),
    }
}

#[tokio::test]
async fn what_is_not_there_is_told_from_what_may_not_be_read() {
    let objects = Bucket { forbids: Some("jobs/j/secret"), ..Bucket::default() }.serve().await;
    for name in ["jobs/j/secret", "jobs/j/0.txt"] {
        assert_eq!(objects.size(name).await.unwrap(), None);
        assert_eq!(objects.get(name, 0, 10).await.unwrap(), None);
        // Of which it is the beginning.
        objects.put(&format!("{name}.more"), Bytes::from_static(b"0")).await.unwrap();
        assert_eq!(objects.size(name).await.unwrap(), None);
        objects.put(name, Bytes::from_static(b"0123")).await.unwrap();
    }
    assert_eq!(objects.size("jobs/j/0.txt").await.unwrap(), Some(4));
    assert!(objects.size("jobs/j/secret").await.unwrap_err().to_string().contains("403"));
    assert!(objects.get("jobs/j/secret", 0, 10).await.unwrap_err().to_string().contains("403"));
}

#[tokio::test]
async fn objects_are_written_and_read_back_in_parts() {
    for ignores_ranges in [false, true] {
        let objects = Bucket { ignores_ranges, ..Bucket::default() }.serve().await;
        let name = "jobs/llama/logs/1 ä&?#%/0.txt";
        assert_eq!(objects.get(name, 0, 10).await.unwrap(), None);
        assert_eq!(objects.size(name).await.unwrap(), None);
        objects.put(name, Bytes::from_static(b"0123456789")).await.unwrap();
        assert_eq!(objects.size(name).await.unwrap(), Some(10));
        for (from, len, expected) in [
            (0, 10, "0123456789"),
            (0, 4, "0123"),
            (4, 3, "456"),
            (8, 100, "89"),
            (3, u64::MAX, "3456789"),
            (10, 5, ""),
            (99, 5, ""),
            (2, 0, ""),
        ] {
            let bytes = objects.get(name, from, len).await.unwrap().unwrap();
            assert_eq!(bytes, expected, "{len} bytes from {from}, ranges ignored: {ignores_ranges}");
        }
        assert_eq!(objects.get("none", 2, 0).await.unwrap(), None);
        objects.put(name, Bytes::new()).await.unwrap();
        assert_eq!(objects.get(name, 0, 10).await.unwrap(), Some(Bytes::new()), "overwritten, and empty");
    }
}

#[tokio::test]
async fn names_are_listed_in_order_over_pages() {
    for page in [None, Some(1), Some(2)] {
        let objects = Bucket { page, ..Bucket::default() }.serve().await;
        assert!(objects.list("logs/", None, 5).await.unwrap().is_empty());
        for name in ["logs/3", "logs/1", "logs/2", "logs/4", "other/1"] {
            objects.put(name, Bytes::new()).await.unwrap();
        }
        let list = async |after, limit| objects.list("logs/", after, limit).await.unwrap();
        assert_eq!(list(None, 10).await, ["logs/1", "logs/2", "logs/3", "logs/4"], "{page:?}");
        assert_eq!(list(None, 2).await, ["logs/1", "logs/2"], "{page:?}");
        assert_eq!(list(Some("logs/2"), 2).await, ["logs/3", "logs/4"], "{page:?}");
        assert_eq!(list(Some("logs/25"), 2).await, ["logs/3", "logs/4"], "an offset that is no object, {page:?}");
        assert!(list(Some("logs/4"), 2).await.is_empty(), "{page:?}");
        assert!(list(None, 0).await.is_empty(), "{page:?}");
    }
}

#[tokio::test]
async fn an_upload_address_takes_the_object_from_anyone() {
    let objects = Bucket::default().serve().await;
    let address = objects.upload_address("bundles/ab.tar.zst").await.unwrap();
    let answer = reqwest::Client::new().put(address).body("bundle").send().await.unwrap();
    assert!(answer.status().is_success());
    assert_eq!(objects.get("bundles/ab.tar.zst", 0, 100).await.unwrap(), Some(Bytes::from_static(b"bundle")));
}

#[tokio::test]
async fn errors_say_what_was_tried_and_what_was_answered() {
    let objects = Bucket::default().serve().await;
    let elsewhere = GcsObjects { bucket: "no-such-bucket".into(), ..objects.clone() };
    let error = elsewhere.put("x", Bytes::new()).await.unwrap_err();
    assert!(error.to_string().starts_with("write an object: HTTP 404"), "{error}");
    // A bucket that is not there must not look like an object that is not there: nobody would notice.
    let error = elsewhere.list("x", None, 1).await.unwrap_err();
    assert!(error.to_string().starts_with("list objects: HTTP 404"), "{error}");
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let nowhere = Service::emulator(&socket.local_addr().unwrap().to_string()).with_timeout(Duration::from_secs(5));
    let objects = GcsObjects::connect("my-bucket", &nowhere).unwrap();
    let error = objects.size("x").await.unwrap_err();
    assert!(error.why.to_lowercase().contains("refused"), "{error}");
}
