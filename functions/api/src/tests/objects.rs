//! The embedded object store over HTTP.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::Served;
use crate::Uploads;

/// Takes the signature `good` until 1000.
pub(super) struct Gate;

impl Uploads for Gate {
    fn accept(&self, _: &str, expires: i64, signature: &str) -> Result<(), String> {
        if expires == 1000 && signature == "good" { Ok(()) } else { Err("not given out".into()) }
    }
}

#[tokio::test]
async fn the_agent_and_bundles_are_served_whole() {
    let served = Served::new().await;
    let bytes = Bytes::from((0..3_000_000_u32).map(|i| i as u8).collect::<Vec<_>>());
    let objects = &served.rig.engine.ports.objects;
    objects.put("agent/abc", bytes.clone()).await.unwrap();
    objects.put("jobs/train/logs/x", bytes.clone()).await.unwrap();
    let answer = served.get("/objects/agent/abc").await;
    assert_eq!((answer.status.as_u16(), answer.body == bytes), (200, true));
    assert_eq!(answer.headers["content-length"], "3000000");
    for missing in ["agent/other", "jobs/train/logs/x", "agent/../jobs/train/logs/x"] {
        assert_eq!(served.get(&format!("/objects/{missing}")).await.status, 404, "{missing}");
    }
}

#[tokio::test]
async fn a_reader_that_was_cut_off_goes_on_where_it_was() {
    let served = Served::new().await;
    let bytes = Bytes::from((0..3_000_000_u32).map(|i| (i / 7) as u8).collect::<Vec<_>>());
    served.rig.engine.ports.objects.put("agent/abc", bytes.clone()).await.unwrap();
    let from = async |range: &str| served.get_with("/objects/agent/abc", "range", range).await;
    let rest = from("bytes=1234567-").await;
    assert_eq!((rest.status.as_u16(), rest.body == bytes.slice(1_234_567..)), (206, true));
    assert_eq!(rest.headers["content-range"], "bytes 1234567-2999999/3000000");
    assert_eq!(rest.headers["content-length"], "1765433");
    for over in ["bytes=3000000-", "bytes=99999999999-"] {
        let answer = from(over).await;
        assert_eq!(
            (answer.status.as_u16(), &answer.headers["content-range"]),
            (416, &"bytes */3000000".parse().unwrap())
        );
    }
    // What is not understood is answered with the whole.
    for other in ["bytes=0-9", "bytes=-5", "bytes=1-,5-", "lines=1-", "bytes=x-"] {
        let answer = from(other).await;
        assert_eq!((answer.status.as_u16(), answer.body == bytes), (200, true), "{other}");
    }
}

#[tokio::test]
async fn uploads_need_their_address_and_their_digest() {
    let served = Served::new().await;
    let digest = hex::encode(Sha256::digest(b"bytes"));
    let path = |digest: &str, query: &str| format!("/objects/bundles/{digest}.tar.zst?{query}");
    let good = "expires=1000&signature=good";
    for bad in ["expires=1000&signature=x", "expires=999&signature=good"] {
        assert_eq!(served.put(&path(&digest, bad), "", "bytes").await.status, 403, "{bad}");
    }
    assert_eq!(served.put(&path(&digest, ""), "", "bytes").await.status, 400);
    assert_eq!(served.put(&path(&digest, good), "", "other bytes").await.status, 400, "another digest");
    assert_eq!(served.put(&path(&digest, good), "", "bytes").await.status, 204);
    assert_eq!(served.get(&path(&digest, "")).await.text(), "bytes");
}
