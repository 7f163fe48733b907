//! The embedded store alone: its file, its order of keys, its speed. What it answers is compared in `tests/contract`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rekindle_ports::docs::{Content, Cursor, Docs, DocsError, Index, IndexValue, Op, Precondition, Query, Write};

use super::{OpenError, RedbDocs, layout};

fn put(path: &str, index: &[(&str, IndexValue)], when: Precondition) -> Write {
    let index: Index = index.iter().map(|(k, v)| ((*k).to_owned().into(), v.clone())).collect();
    let body = serde_json::json!({"path": path, "pad": "x".repeat(2_000)});
    Write::Put { path: path.to_owned(), content: Content { body: body.into(), index: index.into() }, when }
}

#[test]
fn encoded_values_sort_as_the_values_do() {
    let texts = ["", "\0", "\0\u{1}", "\0\0", "a", "a\0", "a\0b", "a\u{1}", "aa", "b", "é", "\u{10ffff}"];
    let mut values: Vec<IndexValue> = vec![IndexValue::Bool(false), IndexValue::Bool(true)];
    values.extend([i64::MIN, -1, 0, 1, 1_767_225_600_000_000, i64::MAX].map(IndexValue::Int));
    values.extend(texts.map(|t| IndexValue::Text(t.to_owned())));
    values.sort();
    let keys: Vec<Vec<u8>> = values
        .iter()
        .map(|v| {
            let mut key = Vec::new();
            layout::push_value(&mut key, v);
            key.extend_from_slice(b"zz");
            key
        })
        .collect();
    assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
}

#[tokio::test]
async fn a_file_in_use_and_a_newer_file_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let docs = RedbDocs::open(&path).unwrap();
    assert!(matches!(RedbDocs::open(&path), Err(OpenError::InUse(_))));
    drop(docs);
    {
        let db = redb::Database::create(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(layout::META).unwrap().insert(layout::SCHEMA, 2).unwrap();
        txn.commit().unwrap();
    }
    assert!(matches!(RedbDocs::open(&path), Err(OpenError::Newer { found: 2, .. })));
}

#[tokio::test]
async fn a_store_whose_writer_has_ended_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let mut docs = RedbDocs::open(dir.path().join("store.redb")).unwrap();
    docs.commit(vec![put("jobs/a", &[], Precondition::Absent)]).await.unwrap();
    assert!(docs.writes().is_ok());
    // As after a panic in it: nobody takes what is sent.
    let (requests, queue) = tokio::sync::mpsc::channel(1);
    drop(queue);
    docs.requests = Some(requests);
    assert!(docs.get("jobs/a").await.unwrap().is_some(), "reads go on");
    let told = docs.writes().unwrap_err().to_string();
    assert!(told.contains("writer has ended") && told.contains("restart"), "{told}");
    assert_eq!(docs.commit(vec![put("jobs/b", &[], Precondition::Absent)]).await.unwrap_err().to_string(), told);
}

#[tokio::test]
async fn revisions_grow_over_a_reopening_with_a_clock_that_stepped_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    let docs = RedbDocs::open(&path).unwrap();
    docs.commit(vec![put("jobs/a", &[], Precondition::Absent)]).await.unwrap();
    drop(docs);
    // A file last written by a clock an hour ahead is what a step back leaves behind.
    let ahead = jiff::Timestamp::now().as_microsecond() + 3_600_000_000;
    {
        let db = redb::Database::create(&path).unwrap();
        let txn = db.begin_write().unwrap();
        txn.open_table(layout::META).unwrap().insert(layout::REVISION, ahead).unwrap();
        txn.commit().unwrap();
    }
    let docs = RedbDocs::open(&path).unwrap();
    let first = docs.commit(vec![put("jobs/a", &[], Precondition::None)]).await.unwrap();
    let second = docs.commit(vec![put("jobs/a", &[], Precondition::At(first))]).await.unwrap();
    assert_eq!((first.0, second.0), (ahead + 1, ahead + 2));
    assert_eq!(docs.get("jobs/a").await.unwrap().unwrap().revision, second);
}

#[tokio::test]
async fn what_is_read_again_is_read_once_and_never_stale() {
    let dir = tempfile::tempdir().unwrap();
    let docs = RedbDocs::open(dir.path().join("store.redb")).unwrap();
    docs.commit(vec![put("jobs/a", &[], Precondition::Absent)]).await.unwrap();
    let read = async || docs.get("jobs/a").await.unwrap();
    read().await.unwrap().content.body.keep(&Arc::new(7_u8));
    let again = read().await.unwrap();
    assert_eq!(again.content.body.kept::<u8>().as_deref(), Some(&7), "the body is the one that was read before");
    let revision = docs.commit(vec![put("jobs/a", &[], Precondition::None)]).await.unwrap();
    let fresh = read().await.unwrap();
    assert_eq!((fresh.revision, fresh.content.body.kept::<u8>()), (revision, None));
    docs.commit(vec![Write::Delete { path: "jobs/a".into(), when: Precondition::None }]).await.unwrap();
    assert!(read().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_five_thousand_jobs_are_quick() {
    let dir = tempfile::tempdir().unwrap();
    let docs = RedbDocs::open(dir.path().join("store.redb")).unwrap();
    for chunk in 0..50_i64 {
        let writes = (0..100)
            .map(|i| {
                let n = chunk * 100 + i;
                let index = [
                    ("created_us", IndexValue::Int(n)),
                    ("phase", IndexValue::Text(if n % 500 == 0 { "running" } else { "succeeded" }.into())),
                    ("live", IndexValue::Bool(n % 500 == 0)),
                ];
                put(&format!("jobs/j{n:05}"), &index, Precondition::Absent)
            })
            .collect();
        docs.commit(writes).await.unwrap();
    }
    let mut query = Query {
        collection: "jobs".into(),
        filters: vec![("phase".into(), Op::Eq, IndexValue::Text("running".into()))],
        order_by: Some("created_us".into()),
        descending: true,
        after: None,
        limit: 100,
    };
    // The rare phase is the worst case: the walk passes over every job.
    let started = Instant::now();
    assert_eq!(docs.query(&query).await.unwrap().docs.len(), 10);
    let rare = started.elapsed();
    query.filters.clear();
    let started = Instant::now();
    let page = docs.query(&query).await.unwrap();
    let first = started.elapsed();
    assert_eq!(page.docs.len(), 100);
    let last = page.docs.last().unwrap();
    query.after = Some(Cursor { value: last.content.index.get("created_us").cloned(), path: last.path.clone() });
    assert_eq!(docs.query(&query).await.unwrap().docs[0].path, "jobs/j04899");
    // Ten times what a loaded machine needs with an unoptimised build: only a scan of documents would pass it.
    assert!(rare < Duration::from_secs(1) && first < Duration::from_secs(1), "{rare:?} {first:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn commits_of_many_callers_share_flushes_and_keep_their_own_answers() {
    let dir = tempfile::tempdir().unwrap();
    let docs = std::sync::Arc::new(RedbDocs::open(dir.path().join("store.redb")).unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..200 {
        let docs = docs.clone();
        tasks.spawn(async move {
            let path = format!("jobs/j{}", n / 2);
            docs.commit(vec![put(&path, &[("n", IndexValue::Int(n))], Precondition::Absent)]).await
        });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().filter(|a| a.is_ok()).count(), 100);
    let mut revisions: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
    revisions.sort();
    revisions.dedup();
    assert_eq!(revisions.len(), 100, "each commit has a revision of its own");
}

/// A disk of this size; `None` where nothing may be mounted, which root may.
struct Disk(tempfile::TempDir);

impl Disk {
    fn new(mib: u64) -> Option<Self> {
        let disk = Self(tempfile::tempdir().unwrap());
        let size = format!("size={mib}m");
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "none"]).arg(disk.0.path());
        let is_mounted = mount.status().is_ok_and(|status| status.success());
        assert!(is_mounted || !rustix::process::geteuid().is_root(), "root may mount a disk of its own");
        is_mounted.then_some(disk)
    }

    fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(self.0.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_store_whose_disk_was_full_goes_on_when_there_is_room() {
    let Some(disk) = Disk::new(32) else { return };
    let docs = RedbDocs::open(disk.0.path().join("store.redb")).unwrap();
    let first = docs.commit(vec![put("jobs/a", &[], Precondition::Absent)]).await.unwrap();
    let fill = disk.0.path().join("fill");
    std::fs::write(&fill, vec![1; (disk.free() - (6 << 20)) as usize]).unwrap();
    // More than there is room for, and it is seen only while it is written.
    let large = |n: usize| {
        let body = serde_json::json!({"pad": "x".repeat(800_000)}).into();
        let content = Content { body, index: Index::new().into() };
        Write::Put { path: format!("large/{n}"), content, when: Precondition::Absent }
    };
    let failed = docs.commit((0..16).map(large).collect()).await.unwrap_err().to_string();
    assert!(failed.contains("No space left"), "it was tried: {failed}");
    let deadline = Instant::now() + Duration::from_secs(30);
    let read = loop {
        match docs.get("jobs/a").await {
            Ok(read) => break read.unwrap(),
            Err(error) => assert!(Instant::now() < deadline, "reads go on while the disk is full: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await; // between two looks
    };
    assert_eq!(read.revision, first);
    if disk.free() < 4 << 20 {
        let refused = docs.commit(vec![put("jobs/b", &[], Precondition::Absent)]).await.unwrap_err().to_string();
        assert!(refused.contains("is full") && refused.contains("make room on it"), "{refused}");
    }
    std::fs::remove_file(&fill).unwrap();
    let second = docs.commit(vec![put("jobs/a", &[], Precondition::At(first))]).await.unwrap();
    assert!(second > first);
    drop(docs);
    let docs = RedbDocs::open(disk.0.path().join("store.redb")).unwrap();
    assert_eq!(docs.get("jobs/a").await.unwrap().unwrap().revision, second);
    let there: Vec<String> = (0..16).map(|n| format!("large/{n}")).collect();
    let (large, _) = docs.get_many(&there).await.unwrap();
    assert!(large.iter().all(Option::is_none) || large.iter().all(Option::is_some), "all of a commit or nothing");
}

#[tokio::test]
async fn a_full_disk_is_told_before_anything_is_tried() {
    let Some(disk) = Disk::new(16) else { return };
    let docs = RedbDocs::open(disk.0.path().join("store.redb")).unwrap();
    let first = docs.commit(vec![put("jobs/a", &[], Precondition::Absent)]).await.unwrap();
    let fill = disk.0.path().join("fill");
    std::fs::write(&fill, vec![1; (disk.free() - (1 << 20)) as usize]).unwrap();
    let refused = docs.commit(vec![put("jobs/a", &[], Precondition::At(first))]).await.unwrap_err();
    assert!(matches!(&refused, DocsError::Full(why) if why.contains("is full")), "{refused}");
    assert_eq!(docs.writes().map_err(|error| error.to_string().contains("is full")), Err(true));
    assert_eq!(docs.get("jobs/a").await.unwrap().unwrap().revision, first);
    std::fs::remove_file(&fill).unwrap();
    docs.commit(vec![put("jobs/a", &[], Precondition::At(first))]).await.unwrap();
    assert!(docs.writes().is_ok());
}
