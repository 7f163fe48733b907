//! What is sent next, when, and what is let go.

use std::os::unix::fs::MetadataExt as _;

use super::*;

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
        rhythm.after(&shipped, begun, begun + took, false);
        (rhythm.due - begun, rhythm.failures)
    };
    assert_eq!(due(Ok(()), Duration::ZERO), (2 * second, 0));
    assert_eq!(due(Ok(()), second), (2 * second, 0), "from its beginning on");
    assert_eq!(due(Ok(()), 5 * second), (2 * second, 0), "which is past: at once");
    assert_eq!(due(Err(Stop::NoToken), second), (second + second / 5, 0));
    let (wait, failures) = due(Err(Stop::Later), 5 * second);
    assert!(wait >= 5 * second && failures == 1, "a server in need is left alone: {wait:?}");
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
    use rustix::io::Errno;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stdout");
    std::fs::write(&path, "waits\n").unwrap();
    for passes in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO, Errno::INTR] {
        assert_eq!(unread(&path, &passes.into()), Stop::Later, "{passes}");
    }
    let short = read_at(&path, 0, 7).unwrap_err();
    for gone in [short, Errno::NOENT.into(), Errno::NOTDIR.into(), Errno::ISDIR.into(), Errno::ACCESS.into()] {
        assert_eq!(unread(&path, &gone), Stop::Unreadable, "{gone}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(unread(&path, &Errno::NXIO.into()), Stop::Unreadable, "a pipe, say");
}
