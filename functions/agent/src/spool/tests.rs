//! What is held, what is dropped, and what is made again.

use std::fs::OpenOptions;

use rustix::fs::{CWD, FileType, Mode};

use super::*;

#[test]
fn what_is_dropped_is_the_oldest_and_is_counted_where_it_would_stand() {
    let mut held = Held { refused: Some("the worker's disk was full"), ..Held::default() };
    let piece = vec![b'x'; PIECE];
    for _ in 0..HELD_MAX / PIECE {
        held.push(&piece);
    }
    assert_eq!((held.len, held.dropped), (HELD_MAX, 0), "up to the bound nothing is");
    held.push(b"the end");
    held.refused = None;
    let dropped = HELD_MAX as u64 / 2 + PIECE as u64;
    let due = mark(dropped, "the worker's disk was full");
    assert_eq!(held.next().unwrap(), due.into_bytes(), "also when the disk takes bytes again");
    let rest: Vec<u8> = std::iter::from_fn(|| held.next()).flatten().collect();
    assert_eq!((rest.len() as u64 + dropped, held.len), (HELD_MAX as u64 + 7, 0), "in = out + marked");
    assert!(rest.ends_with(b"xthe end"));
}

#[test]
fn a_disk_that_hangs_without_an_error_is_not_waited_for() {
    let pushed = |begun: Instant| {
        let mut held = Held { writes_since: Some(begun), ..Held::default() };
        held.push(&vec![b'x'; HELD_MAX + PIECE]);
        held
    };
    let now = Instant::now();
    let mut hung = pushed(now.checked_sub(2 * STUCK).unwrap());
    let dropped = HELD_MAX as u64 / 2 + PIECE as u64;
    assert_eq!((hung.len as u64, hung.dropped), (HELD_MAX as u64 / 2, dropped));
    let due = format!("\nrekindle: {dropped} bytes of output were dropped here: the worker's disk took nothing\n");
    assert_eq!(hung.next().unwrap(), due.into_bytes());
    // Begun later than now, so that no machine is too slow for it.
    let begun = pushed(now + Duration::from_hours(1));
    assert_eq!((begun.len, begun.dropped), (HELD_MAX + PIECE, 0), "a write that has only begun is waited for");
}

#[test]
fn a_disk_that_takes_bytes_is_waited_for() {
    let mut held = Held::default();
    held.push(&vec![0; 2 * HELD_MAX]);
    assert_eq!((held.len, held.dropped), (2 * HELD_MAX, 0));
}

#[tokio::test]
async fn a_file_that_cannot_be_made_yet_gets_everything_once_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("later");
    let path = root.join("a1/stdout");
    // A way that leads nowhere: nobody knows whether it is gone.
    std::os::unix::fs::symlink(&root, &root).unwrap();
    let spool = Spool::open(path.clone(), &root).unwrap();
    spool.push(b"one\n");
    assert!(!spool.settled(Duration::from_millis(1)).await, "no folder can be made there");
    spool.push(b"two");
    // At once: in between it would be gone.
    let there = folder.path().join("there");
    std::fs::create_dir(folder.path().join("disk")).unwrap();
    std::os::unix::fs::symlink("disk", &there).unwrap();
    std::fs::rename(there, &root).unwrap();
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read(path).unwrap(), b"one\ntwo");
}

#[tokio::test]
async fn what_a_program_removes_is_there_again_with_its_bytes_where_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a1/stdout");
    let spool = Spool::open(path.clone(), folder.path()).unwrap();
    let long = vec![b'x'; 2 * PIECE];
    spool.push(&long);
    assert!(spool.settled(Duration::from_mins(1)).await);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    let is_freed = rustix::fs::fallocate(&file, hole, 0, PIECE as u64).is_ok();
    let blocks = file.metadata().unwrap().blocks();
    std::fs::remove_dir_all(folder.path().join("a1")).unwrap();
    assert!(spool.settled(Duration::from_mins(1)).await, "nothing more is said");
    assert_eq!(std::fs::read(&path).unwrap()[PIECE..], long[PIECE..]);
    assert!(!is_freed || std::fs::metadata(&path).unwrap().blocks() <= blocks, "what is freed stays so");
    std::fs::remove_file(&path).unwrap();
    spool.push(b"the end");
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read(&path).unwrap()[PIECE..], [&long[PIECE..], b"the end"].concat());
}

#[tokio::test]
async fn what_has_no_place_any_more_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    for root in ["gone", "file", "file/in_it"].map(|name| folder.path().join(name)) {
        let _ = std::fs::write(folder.path().join("file"), "");
        let spool = Spool::open(root.join("g1/a1/stdout"), &root).unwrap();
        spool.push(b"one");
        assert!(spool.settled(Duration::MAX).await, "nobody makes the disk again");
        spool.push(b"two");
        assert!(spool.settled(Duration::MAX).await);
        assert!(!root.is_dir());
    }
}

#[tokio::test]
async fn what_comes_while_all_is_gone_is_counted_and_what_comes_afterwards_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let (root, away) = (folder.path().join("home"), folder.path().join("away"));
    std::fs::create_dir(&root).unwrap();
    let path = root.join("a1/stdout");
    let spool = Spool::open(path.clone(), &root).unwrap();
    spool.push(b"one\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    std::fs::rename(&root, &away).unwrap();
    for lost in ["two\n", "three\n"] {
        spool.push(lost.as_bytes());
        assert!(spool.settled(Duration::from_mins(1)).await);
    }
    std::fs::rename(&away, &root).unwrap();
    assert!(spool.settled(Duration::from_mins(1)).await);
    spool.push(b"four\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read_to_string(path).unwrap(), format!("one\n{}four\n", mark(10, GONE)));
}

#[tokio::test]
async fn a_folder_is_made_again_with_all_that_it_was_in() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rekindle/g1/a1/stdout");
    let spool = Spool::open(path.clone(), folder.path()).unwrap();
    spool.push(b"one\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    std::fs::remove_dir_all(folder.path().join("rekindle")).unwrap();
    spool.push(b"two\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\n");
    let mode = std::fs::metadata(folder.path().join("rekindle/g1")).unwrap().mode();
    assert_eq!(mode & 0o777, 0o700, "nobody else reads it");
}

#[tokio::test]
async fn what_a_program_puts_in_the_place_of_a_file_or_a_folder_is_put_aside() {
    let folder = tempfile::tempdir().unwrap();
    let (generation, attempt) = (folder.path().join("g1"), folder.path().join("g1/a1"));
    let path = attempt.join("stdout");
    let link = |to: &str, at: &Path| std::os::unix::fs::symlink(to, at).unwrap();
    let fifo = || rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let instead: [&dyn Fn(); 8] = [
        &fifo,
        &fifo,
        &|| link("/dev/null", &path),
        &|| std::fs::create_dir_all(path.join("deep")).unwrap(),
        &|| std::fs::create_dir_all(path.join("again")).unwrap(),
        &|| std::fs::remove_dir_all(&attempt).and_then(|()| std::fs::write(&attempt, "a file")).unwrap(),
        &|| std::fs::remove_dir_all(&attempt).map(|()| link("nowhere", &attempt)).unwrap(),
        &|| std::fs::remove_dir_all(&generation).and_then(|()| std::fs::write(&generation, "a file")).unwrap(),
    ];
    std::fs::create_dir_all(&attempt).unwrap();
    link("/dev/null", &path);
    let spool = Spool::open(path.clone(), folder.path()).unwrap();
    let mut due = Vec::new();
    for (count, put) in (0_u8..).zip(instead) {
        due.push(count);
        spool.push(&[count]);
        assert!(spool.settled(Duration::from_mins(1)).await);
        let _ = std::fs::remove_file(&path);
        put();
        assert!(spool.settled(Duration::from_mins(1)).await);
        assert_eq!(std::fs::read(&path).unwrap(), due);
    }
    assert_eq!(std::fs::read(folder.path().join("g1.aside")).unwrap(), b"a file");
}

#[tokio::test]
async fn two_that_make_a_file_again_at_the_same_time_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a1/stdout");
    let two = ["run\n", "setup\n"].map(|word| (word, Spool::open(path.clone(), folder.path()).unwrap()));
    let settled = async || {
        let waits = two.iter().map(|(_, spool)| spool.settled(Duration::from_mins(1)));
        assert_eq!(futures::future::join_all(waits).await, [true; 2]);
    };
    for round in 1..=100 {
        for (word, spool) in &two {
            spool.push(word.as_bytes());
        }
        settled().await;
        std::fs::remove_dir_all(folder.path().join("a1")).unwrap();
        settled().await;
        let said = std::fs::read_to_string(&path).unwrap();
        for (word, _) in &two {
            assert_eq!(said.matches(word).count(), round, "{said:?}");
        }
        assert_eq!(std::fs::read_dir(folder.path().join("a1")).unwrap().count(), 1, "nothing else is left there");
    }
}

#[tokio::test]
async fn what_a_program_moves_elsewhere_is_there_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a1/stdout");
    let spool = Spool::open(path.clone(), folder.path()).unwrap();
    spool.push(b"one\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    std::fs::rename(folder.path().join("a1"), folder.path().join("elsewhere")).unwrap();
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read(&path).unwrap(), b"one\n");
    // The keeper of what `setup` left writes to it too, and has made it again.
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "one\nof setup\n").unwrap();
    spool.push(b"two\n");
    assert!(spool.settled(Duration::from_mins(1)).await);
    assert_eq!(std::fs::read(&path).unwrap(), b"one\nof setup\ntwo\n");
}
