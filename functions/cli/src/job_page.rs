//! `JOB.md` is made here, from the fields of a job. To take over what has changed:
//! `REKINDLE_BLESS=1 cargo test -p rekindle job_page`, and read the diff.

use std::fmt::Write as _;
use std::path::Path;

use rekindle_core::spec::fields::FIELDS;

const HEAD: &str = "\
# What may stand in a job

<!-- Made by a test: REKINDLE_BLESS=1 cargo test -p rekindle job_page -->

A job is YAML or JSON: a file for `rekindle run`, the body of `POST /v1/jobs`, a message to the topic
`rekindle-jobs`. `run` and `tpu.accelerator` are enough. A dot goes down into a map: `limits.total` is
`limits: {total: 24h}`, on the command line `--set limits.total=24h`; `[]` stands for each of a list. A duration is
`90s`, `30m`, `24h`, `7d`, or seconds. An unknown field is refused with the nearest known one. `rekindle fields` tells
the same, `rekindle show JOB --spec` what a job came to with every default filled in, `rekindle run … --dry-run` what
would be sent.

| Field | Is | Default | Meaning | Example |
|---|---|---|---|---|
";

#[test]
fn job_page_tells_every_field() {
    let mut page = HEAD.to_owned();
    for field in FIELDS {
        let example = if field.example.is_empty() { String::new() } else { format!("`{}`", field.example) };
        let (name, is, absent) = (field.name, field.is, field.absent.words());
        let _ = writeln!(page, "| `{name}` | {is} | {absent} | {} | {example} |", field.meaning);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("JOB.md");
    if std::env::var_os("REKINDLE_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let is = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(is == page, "JOB.md is out of date; REKINDLE_BLESS=1 cargo test -p rekindle job_page writes it");
}
