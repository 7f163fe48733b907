//! Papers, and how an end is told.

use super::*;

/// Of nothing, and its streams.
fn spec_in(home: &Path, root: &Path) -> (Spec, [Arc<Stream>; 2]) {
    let spec = Spec {
        argv: Vec::new(),
        env: BTreeMap::new(),
        secrets: Vec::new(),
        cwd: home.into(),
        boot_id: String::new(),
        syncs: false,
        root: root.into(),
        stdout: home.join("stdout"),
        stderr: home.join("stderr"),
    };
    let streams = [&spec.stdout, &spec.stderr].map(|path| Arc::new(Stream::new(path.clone(), root).unwrap().0));
    (spec, streams)
}

#[tokio::test]
async fn an_end_is_kept_until_it_can_be_told_and_no_longer_than_there_is_a_place_for_it() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("vm");
    let folder = root.join("g1/a1");
    let (spec, streams) = spec_in(home.path(), &root);
    let (papers, me) = (Papers::new(&folder, "run"), Birth { pid: 0, start: 0 });
    let kept = Kept { streams, papers: &papers, me, spec: &spec };
    let ended = Some(Ended { exit: Exit::Code(3), at: Timestamp::now() });
    let mut untold = ended;
    // A way that leads nowhere: nobody knows whether it is gone.
    std::os::unix::fs::symlink(&root, &root).unwrap();
    kept.tell(&mut untold);
    assert_eq!(untold, ended, "it cannot be told now");
    let (disk, there) = (home.path().join("disk"), home.path().join("there"));
    fs::create_dir(&disk).unwrap();
    std::os::unix::fs::symlink(&disk, &there).unwrap();
    fs::rename(there, &root).unwrap();
    kept.tell(&mut untold);
    assert_eq!((untold, papers.end(me)), (None, ended));
    fs::remove_dir_all(root.join("g1")).unwrap();
    untold = ended;
    kept.tell(&mut untold);
    assert_eq!((untold, papers.end(me)), (None, ended), "it is made again");
    fs::remove_dir_all(&disk).unwrap();
    untold = ended;
    kept.tell(&mut untold);
    assert_eq!(untold, None, "nobody looks there");
}

#[tokio::test]
async fn an_end_is_told_whatever_the_program_put_where_it_is_written() {
    let home = tempfile::tempdir().unwrap();
    let (folder, elsewhere) = (home.path().join("a1"), home.path().join("elsewhere"));
    let (spec, streams) = spec_in(home.path(), home.path());
    let (papers, me) = (Papers::new(&folder, "run"), Birth { pid: 7, start: 7 });
    let kept = Kept { streams, papers: &papers, me, spec: &spec };
    let pipe = |path: &Path| {
        rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
    };
    let blank = papers.blank();
    let put: [&dyn Fn(); 4] = [
        &|| {
            fs::rename(&blank, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &blank).unwrap();
        },
        &|| fs::write(&blank, "x".repeat(2 * BLANK)).unwrap(),
        &|| {
            fs::remove_file(&blank).unwrap();
            pipe(&blank);
        },
        &|| {},
    ];
    fs::create_dir(&folder).unwrap();
    pipe(&blank);
    for (code, put) in (0..).zip(put) {
        kept.make_room();
        assert_eq!(files::file_at(&blank).map(|blank| blank.len()), Some(BLANK as u64), "{code}");
        put();
        let ended = Some(Ended { exit: Exit::Code(code), at: Timestamp::now() });
        let mut untold = ended;
        kept.tell(&mut untold);
        assert_eq!((untold, papers.end(me)), (None, ended));
    }
}

#[test]
fn papers_of_the_former_form_are_those_of_their_attempt() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("a2");
    fs::create_dir(&folder).unwrap();
    let (papers, me) = (Papers::new(&folder, "run"), Birth { pid: 7, start: 8 });
    fs::write(papers.claim(), r#"{"pid":7,"start":8}"#).unwrap();
    let start = r#"{"family":{"shim":{"pid":7,"start":8},"program":{"pid":9,"start":9}},"at":"2026-01-01T00:00:00Z"}"#;
    fs::write(papers.started(), start).unwrap();
    assert_eq!((papers.claimed(), papers.is_of_another()), (Some(me), false));
    assert_eq!(papers.begun().map(|started| started.family.shim), Some(me));
    assert_eq!(papers.end(me), None);
    let at = "2026-01-01T00:00:01Z".parse().unwrap();
    let ended = Ended { exit: Exit::Code(0), at };
    replace(&papers.ended(), &ended);
    assert_eq!(papers.end(me), Some(ended));
    // The shim of today would have said whose word it is.
    replace(&papers.claim(), &papers.paper(me));
    assert_eq!(papers.end(me), None);
    let spec =
        r#"{"argv":["a"],"env":{},"cwd":"/w","has_buffer":true,"stdout":"/b/g1/a2/stdout","stderr":"/b/g1/a2/stderr"}"#;
    fs::write(papers.spec(), spec).unwrap();
    assert_eq!(Spec::read(&papers.spec()).unwrap().root, Path::new("/b/g1"));
}

fn replace<T: Serialize>(path: &Path, value: &T) {
    files::replace_json(path, value).unwrap();
}
