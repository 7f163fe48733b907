//! What is sent next, when, and what is let go.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Mutex;

use axum::extract::{Path as At, State};
use axum::http::StatusCode;
use rekindle_core::classify::Exit;
use rekindle_core::ids::JobId;
use rustix::io::Errno;

use super::patience::AWAY_MAX;
use super::*;
use crate::metadata::Metadata;

#[test]
fn under_notice_output_is_waited_for_while_the_machine_is_there() {
    let second = Duration::from_secs(1);
    assert_eq!(patience(Exit::Code(1), Some(28 * second), None).left, 27 * second);
    assert_eq!(patience(Exit::Code(0), Some(Duration::ZERO), None).left, second, "the notice is late");
    assert_eq!(patience(Exit::Signal(9), None, None).left, 2 * second, "the others are to know");
    assert_eq!(patience(Exit::Code(0), None, None).left, 30 * second);
    let ordered = |left| patience(Exit::Code(0), None, Some(left * second)).left;
    assert_eq!([0, 8, 600].map(ordered), [10 * second, 18 * second, 30 * second], "it is waited for 20 s after that");
    let away = patience(Exit::Code(1), None, None).after(60 * second, true);
    assert_eq!(
        (away.left, away.away_left),
        (2 * second, AWAY_MAX.saturating_sub(60 * second)),
        "nobody can be told meanwhile"
    );
    assert_eq!(away.after(AWAY_MAX, true).left, Duration::ZERO, "not for ever");
    assert_eq!(patience(Exit::Code(1), Some(9 * second), None).after(9 * second, true).left, Duration::ZERO, "it goes");
}

#[test]
fn what_is_said_while_output_is_sent_waits_no_longer_than_what_is_said_after() {
    let (begun, second) = (Instant::now(), Duration::from_secs(1));
    let mut rhythm = Rhythm { flush: 2 * second, failures: 3, due: begun };
    let mut due = |shipped, took: Duration| {
        rhythm.after(shipped, begun, begun + took, false);
        (rhythm.due - begun, rhythm.failures)
    };
    assert_eq!(due(Ok(()), Duration::ZERO), (2 * second, 0));
    assert_eq!(due(Ok(()), second), (2 * second, 0), "from its beginning on");
    assert_eq!(due(Ok(()), 5 * second), (2 * second, 0), "which is past: at once");
    assert_eq!(due(Err(Stop::NoToken), second), (second + second / 5, 0));
    let (wait, failures) = due(Err(Stop::Later), 5 * second);
    assert!(wait >= 5 * second && failures == 1, "a server in need is left alone: {wait:?}");
    assert_eq!(due(Err(Stop::Held), second), (2 * second, 0), "the other streams go on");
    rhythm.after(Err(Stop::Held), begun, begun, true);
    assert!(rhythm.due - begun < second, "somebody waits");
}

#[test]
fn a_chunk_ends_after_a_line_unless_all_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    let mut cursor = Cursor::default();
    assert_eq!(plan(&path, &cursor, u64::MAX, true), None, "nothing was written yet");
    std::fs::write(&path, "one\ntwo\nthr").unwrap();
    assert_eq!(plan(&path, &cursor, u64::MAX, false), Some(Pending { len: 8, ..Pending::default() }));
    assert_eq!(plan(&path, &cursor, u64::MAX, true), Some(Pending { len: 11, ..Pending::default() }));
    cursor.offset = 8;
    assert_eq!(
        plan(&path, &cursor, u64::MAX, false),
        Some(Pending { len: 3, ..Pending::default() }),
        "a bar without an end"
    );
    cursor.pending = Some(Pending { len: 2, ..Pending::default() });
    assert_eq!(plan(&path, &cursor, u64::MAX, true), cursor.pending, "what was begun stays the same");
}

#[test]
fn a_backlog_is_bounded_and_what_was_sent_is_freed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    std::fs::write(&path, "0123456\n".repeat(1 << 20)).unwrap();
    let mut cursor = Cursor { pending: Some(Pending { len: 8, ..Pending::default() }), ..Cursor::default() };
    assert_eq!(bound(&path, &mut cursor, 1 << 20), Some((8, (8 << 20) - (1 << 19))), "8 MiB wait, 1 MiB may");
    assert_eq!(bound(&path, &mut cursor, 1 << 20), None, "once");
    assert_eq!(plan(&path, &cursor, u64::MAX, false), cursor.pending, "what was begun stays the same");
    (cursor.offset, cursor.number, cursor.pending) = (8, 1, None);
    let pending = plan(&path, &cursor, u64::MAX, false).unwrap();
    assert_eq!(pending, Pending { dropped: (8 << 20) - (1 << 19) - 8, len: CHUNK_MAX, lost: 0 });
    cursor.offset = 6 << 20;
    let before = std::fs::metadata(&path).unwrap();
    free(&path, &mut cursor);
    let after = std::fs::metadata(&path).unwrap();
    assert_eq!(after.len(), before.len(), "offsets stay as they are");
    if cursor.freed > 0 {
        assert!(after.blocks() < before.blocks() / 2, "{} of {} blocks", after.blocks(), before.blocks());
    }
    assert_eq!(read_at(&path, 6 << 20, 8).unwrap(), b"0123456\n");
}

#[test]
fn a_file_that_the_program_emptied_is_read_from_its_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    std::fs::write(&path, "new\n").unwrap();
    let mut cursor = Cursor { offset: 100, number: 3, freed: 50, ..Cursor::default() };
    assert_eq!(bound(&path, &mut cursor, 1 << 20), None);
    assert_eq!(cursor, Cursor { number: 3, seen: 4, ..Cursor::default() });
    assert_eq!(plan(&path, &cursor, u64::MAX, false), Some(Pending { len: 4, ..Pending::default() }));
    cursor.pending = Some(Pending { len: 9, ..Pending::default() });
    assert_eq!(bound(&path, &mut cursor, 1 << 20), None);
    let count = Pending { lost: 9, ..Pending::default() };
    let due = Cursor { number: 3, seen: 4, lost: 9, pending: Some(count.clone()), ..Cursor::default() };
    assert_eq!(cursor, due, "chunk 3 may have been sent, and then its number is taken");
    assert_eq!(plan(&path, &cursor, u64::MAX, false).as_ref(), Some(&count));
    cursor.taken(&count);
    assert_eq!(plan(&path, &cursor, u64::MAX, false), Some(Pending { len: 4, ..Pending::default() }));
}

#[test]
fn what_waited_in_a_file_that_is_gone_is_counted_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    std::fs::write(&path, "sent\nwaits\n").unwrap();
    let mut cursor = Cursor { offset: 5, number: 1, ..Cursor::default() };
    assert_eq!(bound(&path, &mut cursor, 1 << 20), None);
    cursor.pending = plan(&path, &cursor, u64::MAX, true);
    std::fs::remove_file(&path).unwrap();
    cursor = cursor.removed();
    let count = Pending { dropped: 0, len: 0, lost: 6 };
    assert_eq!((cursor.number, cursor.lost, &cursor.pending), (1, 6, &Some(count.clone())));
    assert_eq!(plan(&path, &cursor, u64::MAX, true), cursor.pending);
    assert_eq!(cursor.removed(), cursor, "once, also where the answer to it is lost");
    cursor.taken(&count);
    assert_eq!((cursor.number, cursor.lost, cursor.removed()), (2, 0, cursor.clone()), "once");
    // Its program's shim still had it.
    std::fs::write(&path, "sent\nwaits\nmore\n").unwrap();
    assert_eq!(bound(&path, &mut cursor, 1 << 20), None);
    assert_eq!(plan(&path, &cursor, u64::MAX, true), Some(Pending { len: 5, ..Pending::default() }));
    assert_eq!(Cursor::default().removed(), Cursor::default(), "nothing was written yet");
}

#[test]
fn what_was_taken_while_its_file_was_emptied_is_in_no_gap() {
    let pending = Pending { dropped: 3, len: 4, lost: 9 };
    let sending =
        Cursor { offset: 5, number: 1, lost: 9, seen: 20, pending: Some(pending.clone()), ..Cursor::default() };
    let mut cursor = sending.clone();
    cursor.taken(&pending);
    assert_eq!(cursor, Cursor { offset: 12, number: 2, seen: 20, ..Cursor::default() });
    cursor = sending.emptied();
    assert_eq!((cursor.number, cursor.lost), (1, 9 + 15));
    let behind = Cursor { number: 2, lost: 8, ..Cursor::default() };
    let again = cursor.pending.clone().unwrap();
    let mut asked_again = cursor.clone();
    asked_again.taken(&again);
    assert_eq!(asked_again, behind, "the number is taken, whatever came first");
    cursor.taken(&pending);
    assert_eq!(cursor, behind, "the 8 bytes behind what was taken");
    // Once more before the answer to the count.
    cursor = sending.emptied().emptied();
    cursor.taken(&pending);
    assert_eq!(cursor, behind);
}

#[test]
fn what_cannot_be_read_now_is_not_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    std::fs::write(&path, "waits\n").unwrap();
    for passes in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR] {
        assert_eq!(unread(&path, &passes.into()), Stop::Held, "{passes}");
    }
    let short = read_at(&path, 0, 7).unwrap_err();
    for gone in [short, Errno::NOENT.into(), Errno::NOTDIR.into(), Errno::ISDIR.into(), Errno::ACCESS.into()] {
        assert_eq!(unread(&path, &gone), Stop::Unreadable, "{gone}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(unread(&path, &Errno::NXIO.into()), Stop::Unreadable, "a pipe, say");
}

/// Chunks by attempt, stream and number, as `api` has them.
type Chunks = Arc<Mutex<BTreeMap<(u32, String, u64), String>>>;

/// What was put first under a number stays.
async fn put(
    State(chunks): State<Chunks>,
    At((_job, attempt, _worker, stream, number)): At<(String, u32, String, String, u64)>,
    bytes: String,
) -> StatusCode {
    let mut chunks = chunks.lock().unwrap();
    let is_new = !chunks.contains_key(&(attempt, stream.clone(), number));
    chunks.entry((attempt, stream, number)).or_insert(bytes);
    if is_new { StatusCode::OK } else { StatusCode::CONFLICT }
}

/// A shipper of the attempts in a folder, and what it has sent.
async fn shipper(home: &Path) -> (Shipper, Chunks) {
    let chunks = Chunks::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let place = "/agent/v1/logs/{job}/{attempt}/{worker}/{stream}/{number}";
    let app = axum::Router::new().route(place, axum::routing::put(put)).with_state(Arc::clone(&chunks));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    let job = JobId::parse("a").unwrap();
    let layout = Layout::new(&home.join("disk"), &home.join("memory"), &job, 1);
    layout.make().unwrap();
    let node = Node::of(base);
    let api = Api::new(&node, Metadata::new("127.0.0.1:9").unwrap()).unwrap();
    let (flush, backlog_max, read) = (Duration::from_secs(1), 1 << 20, read_at);
    let (_, snapshots) = watch::channel(crate::first_snapshot());
    let shipper = Shipper {
        api,
        node: Arc::new(node),
        layout,
        snapshots,
        flush,
        backlog_max,
        sent: None,
        is_rebooted: false,
        read,
    };
    (shipper, chunks)
}

/// What a stream holds by now where it is read.
fn told(chunks: &Chunks, attempt: u32, stream: &str) -> String {
    let chunks = chunks.lock().unwrap();
    chunks.iter().filter(|((a, s, _), _)| *a == attempt && s == stream).map(|(_, bytes)| bytes.as_str()).collect()
}

#[tokio::test]
async fn a_stream_that_cannot_be_read_holds_up_no_other_and_none_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let (mut shipper, chunks) = shipper(folder.path()).await;
    for (attempt, stream, text) in [(1, "stdout", "lost\n"), (1, "stderr", "why\n"), (2, "stdout", "two\n")] {
        let folder = shipper.layout.attempt(attempt);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(stream), text).unwrap();
    }
    shipper.read = |path, offset, len| {
        if path.ends_with("a1/stdout") { Err(Errno::IO.into()) } else { read_at(path, offset, len) }
    };
    let (_token, token) = watch::channel(Some("t".to_owned()));
    let mut known = BTreeMap::new();
    assert_eq!(shipper.ship_all(&mut known, &token, true).await, Err(Stop::Held), "not all is sent");
    let texts = || [(1, "stdout"), (1, "stderr"), (2, "stdout")].map(|(a, stream)| told(&chunks, a, stream));
    assert_eq!(texts(), ["", "why\n", "two\n"]);
    shipper.layout.close(1).unwrap();
    let mut rounds = 1;
    while shipper.ship_all(&mut known, &token, false).await.is_err() {
        rounds += 1;
        assert!(rounds < 1000, "for ever");
    }
    assert_eq!(rounds, 61, "it may pass meanwhile");
    assert_eq!(texts(), [&spool::mark(5, REMOVED), "why\n", "two\n"]);
    assert!(known[&1].is_complete && !known[&2].is_complete);
}

#[test]
fn a_file_that_cannot_be_looked_at_now_is_neither_empty_nor_gone() {
    for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR] {
        assert!(reading::passes(&errno.into()), "{errno}");
    }
    for errno in [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ACCESS] {
        assert!(!reading::passes(&errno.into()), "{errno}");
    }
    let mut cursor = Cursor { offset: 3, seen: 9, ..Cursor::default() };
    let mut tries = 0;
    while !cursor.is_given_up() {
        assert_eq!(cursor.lost, 0, "it may pass");
        cursor = cursor.held();
        tries += 1;
    }
    assert_eq!((tries, cursor.lost, cursor.offset), (60, 6, 9));
    assert!(cursor.removed().is_given_up(), "also once its loss is told");
}

/// Says "one", which is sent, and loses the paper of that; then says "two", which another agent sends. What is there then.
async fn told_after_a_loss(lose: impl Fn(&Layout)) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (shipper, chunks) = shipper(folder.path()).await;
    let attempt = shipper.layout.attempt(1);
    std::fs::create_dir_all(&attempt).unwrap();
    std::fs::write(attempt.join("stdout"), "one\n").unwrap();
    let (_token, token) = watch::channel(Some("t".to_owned()));
    shipper.ship_all(&mut shipper.found(), &token, true).await.unwrap();
    lose(&shipper.layout);
    std::fs::write(attempt.join("stdout"), "one\ntwo\n").unwrap();
    shipper.ship_all(&mut shipper.found(), &token, true).await.unwrap();
    told(&chunks, 1, "stdout")
}

#[tokio::test]
async fn nothing_is_lost_with_the_paper_of_what_was_sent() {
    fn keep(layout: &Layout) -> &Layout {
        std::fs::copy(layout.attempt(1).join(PAPER), layout.sent(1)).unwrap();
        layout
    }
    let paper = |layout: &Layout| layout.attempt(1).join(PAPER);
    let remove = |layout: &Layout| std::fs::remove_file(paper(layout)).unwrap();
    let replace = |layout: &Layout| {
        let of_another = Cursors { attempt: Some(7), ..files::read_json(&paper(layout)).unwrap() };
        files::replace_json(&paper(layout), &of_another).unwrap();
    };
    assert_eq!(told_after_a_loss(|_| ()).await, "one\ntwo\n");
    // Nobody knows how far it was sent, so all of it is sent again.
    assert_eq!(told_after_a_loss(remove).await, "one\none\ntwo\n");
    assert_eq!(told_after_a_loss(replace).await, "one\none\ntwo\n");
    // In the same boot the second paper knows it.
    assert_eq!(told_after_a_loss(|layout| remove(keep(layout))).await, "one\ntwo\n");
    assert_eq!(told_after_a_loss(|layout| replace(keep(layout))).await, "one\ntwo\n");
}

#[tokio::test]
async fn a_folder_that_a_program_calls_a_later_attempt_is_no_output() {
    let folder = tempfile::tempdir().unwrap();
    let (mut shipper, chunks) = shipper(folder.path()).await;
    let (current, snapshots) = watch::channel(Snapshot { attempt: 1, ..crate::first_snapshot() });
    shipper.snapshots = snapshots;
    for attempt in [1, 2] {
        std::fs::create_dir_all(shipper.layout.attempt(attempt)).unwrap();
        std::fs::write(shipper.layout.attempt(attempt).join("stdout"), format!("{attempt}\n")).unwrap();
    }
    let (_token, token) = watch::channel(Some("t".to_owned()));
    let mut known = shipper.found();
    for begun in [1, 2] {
        current.send_modify(|snapshot| snapshot.attempt = begun);
        shipper.ship_all(&mut known, &token, true).await.unwrap();
        assert_eq!(told(&chunks, 1, "stdout"), "1\n");
        assert_eq!(told(&chunks, 2, "stdout").is_empty(), begun == 1);
    }
}

/// So many bytes of lines.
fn lines(bytes: usize) -> String {
    let all: Vec<String> = (0..bytes / 8).map(|n| format!("{n:07}\n")).collect();
    all.concat()
}

#[tokio::test]
async fn what_was_sent_and_freed_is_neither_sent_again_nor_a_gap_where_the_paper_of_it_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (shipper, chunks) = shipper(folder.path()).await;
    let attempt = shipper.layout.attempt(1);
    std::fs::create_dir_all(&attempt).unwrap();
    let said = lines(800_000);
    let (_token, token) = watch::channel(Some("t".to_owned()));
    let mut known = shipper.found();
    for part in [&said[..400_000], &said[400_000..]] {
        files::append_to(&attempt.join("stdout")).unwrap().write_all(part.as_bytes()).unwrap();
        shipper.ship_all(&mut known, &token, true).await.unwrap();
    }
    let freed = usize::try_from(known[&1].streams[0].freed).unwrap();
    assert!(freed > 0 && freed % 4096 != 0, "it ends within a page: {freed}");
    assert_eq!(told(&chunks, 1, "stdout"), said);
    std::fs::remove_file(attempt.join(PAPER)).unwrap();
    files::append_to(&attempt.join("stdout")).unwrap().write_all(b"more\n").unwrap();
    shipper.ship_all(&mut shipper.found(), &token, true).await.unwrap();
    // How far it was sent nobody knows: what is left of it is sent again, from the first byte on.
    assert!(told(&chunks, 1, "stdout") == format!("{said}{}more\n", &said[freed..]));
}

#[tokio::test]
async fn what_was_dropped_and_freed_is_a_gap_with_its_count_also_where_the_paper_of_it_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (mut shipper, chunks) = shipper(folder.path()).await;
    shipper.backlog_max = END_KEPT + 8;
    let attempt = shipper.layout.attempt(1);
    std::fs::create_dir_all(&attempt).unwrap();
    let said = lines(600_000);
    std::fs::write(attempt.join("stdout"), &said).unwrap();
    // Sent before all that follows: it stays in the file.
    std::fs::write(attempt.join("stderr"), &said[..8]).unwrap();
    let (out, token) = watch::channel(Some("t".to_owned()));
    let mut known = shipper.found();
    shipper.bound(&mut known);
    shipper.ship(1, 1, &mut known, &token, (8, false, true)).await.unwrap();
    files::append_to(&attempt.join("stderr")).unwrap().write_all(&said.as_bytes()[8..]).unwrap();
    out.send_replace(None);
    assert_eq!(shipper.ship_all(&mut known, &token, true).await, Err(Stop::NoToken));
    shipper.bound(&mut known);
    let dropped = known[&1].streams.each_ref().map(|cursor| usize::try_from(cursor.drop_to).unwrap());
    std::fs::remove_file(attempt.join(PAPER)).unwrap();
    out.send_replace(Some("t".to_owned()));
    shipper.backlog_max = 1 << 20;
    shipper.ship_all(&mut shipper.found(), &token, true).await.unwrap();
    let gap = |from: usize, until: usize| spool::mark((until - from) as u64, "api was out of reach") + &said[until..];
    assert!(told(&chunks, 1, "stdout") == gap(0, dropped[0]), "nothing of it was sent");
    // How far it was sent nobody knows.
    assert!(told(&chunks, 1, "stderr") == said[..8].repeat(2) + &gap(8, dropped[1]));
}

#[test]
fn a_page_of_zeros_before_a_hole_holds_up_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    let mut said = vec![0; 4096];
    said.extend(lines(2 * 4096).bytes().chain(*b"end\n"));
    std::fs::write(&path, &said).unwrap();
    assert!(punch(&path, 4096, 3 * 4096));
    let next = plan(&path, &Cursor::default(), u64::MAX, false);
    assert_eq!(next, Some(Pending { dropped: 3 * 4096, len: 4, lost: 0 }));
    // What was said before it is sent, and the zeros are of the gap then.
    std::fs::write(&path, [&said[4096..2 * 4096], &said].concat()).unwrap();
    assert!(punch(&path, 2 * 4096, 4 * 4096));
    let first = plan(&path, &Cursor::default(), u64::MAX, false);
    assert_eq!(first, Some(Pending { len: 4096, ..Pending::default() }));
    let next = plan(&path, &Cursor { offset: 4096, ..Cursor::default() }, u64::MAX, false);
    assert_eq!(next, Some(Pending { dropped: 3 * 4096, len: 4, lost: 0 }));
}
