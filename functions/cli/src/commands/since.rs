//! `since`: what happened since somebody last looked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp, Zoned};
use owo_colors::OwoColorize as _;
use rekindle_core::digest::JobDigest;
use rekindle_core::failure::FailureKind;
use rekindle_core::job::{Outcome, Phase};
use rekindle_wire::seeing::DigestView;

use super::Context;
use crate::api::typed;
use crate::args::{Named, Since};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;
use crate::moment;
use crate::state;
use crate::table::{Table, number, text};

/// How far the first look goes back.
const FIRST: SignedDuration = SignedDuration::from_hours(24);

/// Shows the digest, and remembers the look.
pub(crate) async fn run(context: &Context, options: &Since) -> Result<()> {
    let zoned = Zoned::now();
    let now = zoned.timestamp();
    let memory = options.time.is_none().then(|| memory(|name| std::env::var_os(name))).flatten();
    let look = match &memory {
        Some(path) => last(&looks(path)?, context.api.url(), options.owner.as_deref()),
        None => None,
    };
    let since = match &options.time {
        Some(text) => parse(text, &zoned)?,
        None => look.unwrap_or(now - FIRST),
    };
    let query = [("since", Some(since.to_string())), ("owner", options.owner.clone())];
    let value = context.api.get("/v1/digest", &query).await?;
    let digest: DigestView = typed(value.clone())?;
    if context.printer.is_json {
        context.printer.json(&value)?;
    } else {
        show(context, &digest, now, look.is_some())?;
    }
    // Only now: what was not shown has not been seen, and what a program reads no person has.
    match &memory {
        Some(path) if !digest.is_cut && !context.printer.is_json => {
            remember(context, path, options.owner.as_deref(), digest.through);
        }
        _ => {}
    }
    Ok(())
}

fn parse(text: &str, now: &Zoned) -> Result<Timestamp> {
    // Of a command line that cannot be read, as clap's own.
    let at = moment::parse(text, now);
    let at =
        at.ok_or_else(|| Fault::input(format!("{text:?} is no time")).next(moment::FORMS).exits(Exit::Unexpected))?;
    if at > now.timestamp() {
        return Err(Fault::input(format!("{text:?} is still to come")).next(moment::FORMS).exits(Exit::Unexpected));
    }
    Ok(at)
}

/// Where looks are remembered.
fn memory(get: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    state::folder(get).map(|folder| folder.join("looks.json"))
}

/// The name of a look: its server, and the owner whose jobs alone it was at. No address holds a blank.
fn name_of(url: &str, owner: Option<&str>) -> String {
    owner.map_or_else(|| url.to_owned(), |owner| format!("{url} {owner}"))
}

/// The last look at these jobs. One at everybody's was at each owner's too; one at an owner's was not at everybody's.
fn last(looks: &BTreeMap<String, Timestamp>, url: &str, owner: Option<&str>) -> Option<Timestamp> {
    let of = |owner: Option<&str>| looks.get(&name_of(url, owner)).copied();
    of(owner).max(of(None))
}

/// The last looks, by their names. A file that cannot be read is told, not overwritten.
fn looks(path: &Path) -> Result<BTreeMap<String, Timestamp>> {
    let cannot = |error: &(dyn std::error::Error + 'static)| {
        let what = format!("cannot read when you last looked, {}", path.display());
        Fault::unexpected(what).caused_by(error).next("name a time, such as `rekindle since 24h`, or delete the file")
    };
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| cannot(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(cannot(&error)),
    }
}

fn remember(context: &Context, path: &Path, owner: Option<&str>, through: Timestamp) {
    let write = || -> std::io::Result<()> {
        let folder = path.parent().unwrap_or(path);
        std::fs::create_dir_all(folder)?;
        let mut looks = looks(path).unwrap_or_default();
        looks.insert(name_of(context.api.url(), owner), through);
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer(&mut file, &looks)?;
        file.persist(path)?;
        Ok(())
    };
    if let Err(error) = write() {
        context.printer.warn(&format!("this look is not remembered: {}: {error}", path.display()));
    }
}

fn show(context: &Context, digest: &DigestView, now: Timestamp, is_look: bool) -> Result<()> {
    let printer = context.printer;
    let ago = within(digest.since, now);
    if digest.jobs.is_empty() {
        printer.talk(&nothing(digest.since, &ago, is_look));
        return Ok(());
    }
    let mut owners: BTreeMap<&str, Vec<&JobDigest>> = BTreeMap::new();
    for job in &digest.jobs {
        owners.entry(&job.owner).or_default().push(job);
    }
    let mut is_first = true;
    for (owner, jobs) in owners {
        let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
        let head = format!("{gap}{}: {} {ago}", human::tame(owner).bold(), summary(&jobs));
        printer.line(&head)?;
        printer.data(&table(&jobs).render(printer.width()))?;
    }
    if digest.is_cut {
        let next = "there is more; name a later time, or --owner";
        printer.talk(&format!("only the first {}; {next}", human::count(digest.jobs.len() as u64, "job")));
    }
    Ok(())
}

/// In which time it was.
fn within(since: Timestamp, now: Timestamp) -> String {
    if now.as_second() <= since.as_second() {
        return "just now".to_owned();
    }
    format!("in the last {}", human::age(since, now))
}

/// Seconds after a look, its time of day says more than how long ago it was.
fn nothing(since: Timestamp, ago: &str, is_look: bool) -> String {
    if is_look {
        return format!("nothing is new since your last look at {}", since.strftime("%Y-%m-%d %H:%M:%S UTC"));
    }
    format!("nothing happened {ago}")
}

fn table(jobs: &[&JobDigest]) -> Table {
    let mut table = Table::new(&[
        text("JOB", 0),
        text("NOW", 0),
        number("STEP", 2),
        text("LOSS", 3),
        number("COST", 1),
        text("WHAT HAPPENED", 0),
    ]);
    // The newest first: it was asked for last.
    for job in jobs.iter().rev() {
        table.row(vec![
            job.id.to_string(),
            human::said(job.phase, job.is_workspace),
            job.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
            job.loss.as_deref().map_or_else(|| "-".to_owned(), human::loss),
            human::usd(job.cost_usd),
            human::tame(&happened(job)),
        ]);
    }
    table
}

/// In words: the most important last, where the eye stays.
fn happened(job: &JobDigest) -> String {
    let mut parts = Vec::new();
    if job.is_new {
        parts.push("submitted".to_owned());
    }
    match job.attempts {
        0 => {}
        // The first start of a new job is no news of its own.
        1 if job.is_new => parts.push("started".to_owned()),
        attempts => parts.push(human::count(u64::from(attempts), "start")),
    }
    parts.extend(job.ends.iter().map(|(kind, times)| times_of(ended(*kind), *times)));
    // One command of a person may take several orders.
    let same = job.by_people.chunk_by(|one, next| one == next);
    parts.extend(same.map(|told| times_of(&told[0], told.len() as u64)));
    if let Some(steps) = job.steps.filter(|steps| *steps > 0) {
        parts.push(human::count(steps, "step"));
    }
    // Nothing but that it ran.
    if parts.is_empty() && job.phase == Phase::Running {
        parts.push("runs on".to_owned());
    }
    let mut text = parts.join(", ");
    let end = match job.outcome.filter(|_| job.has_ended) {
        Some(Outcome::Succeeded) => Some("succeeded".to_owned()),
        Some(Outcome::Failed) => Some(format!("failed: {}", job.message)),
        Some(Outcome::Cancelled) if job.is_workspace => Some(Named::DELETED.to_owned()),
        Some(Outcome::Cancelled) => Some("cancelled".to_owned()),
        // One that is at work says so by its phase.
        None => (!matches!(job.phase, Phase::Running) && !job.phase.is_terminal()).then(|| job.message.clone()),
    };
    if let Some(end) = end {
        let gap = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{gap}{end}");
    }
    text
}

/// Why an attempt ended, for who does not know the names of kinds.
const fn ended(kind: FailureKind) -> &'static str {
    match kind {
        FailureKind::Preempted => "preempted",
        FailureKind::Maintenance => "taken for maintenance",
        FailureKind::Lost => "TPU lost",
        FailureKind::InfraGrpc => "connection between workers lost",
        FailureKind::TpuRuntime => "TPU runtime failed",
        FailureKind::OomHbm => "out of TPU memory",
        FailureKind::OomHost => "out of memory",
        FailureKind::DiskFull => "disk full",
        FailureKind::StorageNetwork => "storage not reached",
        FailureKind::Auth => "access denied",
        FailureKind::Environment => "module or command missing",
        FailureKind::UserError => "program failed",
        FailureKind::Stalled => "stalled",
        FailureKind::Timeout => "out of time",
        FailureKind::Unknown => "ended for an unknown cause",
    }
}

fn times_of(word: &str, times: impl Into<u64>) -> String {
    match times.into() {
        1 => word.to_owned(),
        2 => format!("{word} twice"),
        times => format!("{word} {times} times"),
    }
}

fn summary(jobs: &[&JobDigest]) -> String {
    let ended = |outcome: Outcome| jobs.iter().filter(|job| job.has_ended && job.outcome == Some(outcome)).count();
    let cancelled = ended(Outcome::Cancelled);
    let is_deleted = |job: &&&JobDigest| job.has_ended && job.outcome == Some(Outcome::Cancelled) && job.is_workspace;
    let deleted = jobs.iter().filter(is_deleted).count();
    let preempted: u32 = jobs.iter().filter_map(|job| job.ends.get(&FailureKind::Preempted)).sum();
    let parts = [
        (jobs.iter().filter(|job| job.is_new).count(), "submitted"),
        (ended(Outcome::Succeeded), "succeeded"),
        (ended(Outcome::Failed), "failed"),
        (cancelled - deleted, "cancelled"),
        (deleted, Named::DELETED),
        (preempted as usize, "preempted"),
    ];
    let told: Vec<String> =
        parts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
    let jobs = human::count(jobs.len() as u64, "job");
    if told.is_empty() { jobs } else { format!("{jobs}, {}", told.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_time_is_told_with_the_forms_that_are() {
        let text = parse("soon", &Zoned::now()).unwrap_err().text();
        assert!(text.contains("\"soon\" is no time") && text.contains("yesterday, 2026-11-27"), "{text}");
        let now: Zoned = "2026-11-29T05:00:00+01:00[+01:00]".parse().unwrap();
        let text = parse("2026-11-30", &now).unwrap_err().text();
        assert!(text.contains("\"2026-11-30\" is still to come") && text.contains("write 12h"), "{text}");
        assert_eq!(parse("2026-11-29T04:00:00Z", &now).unwrap(), now.timestamp());
    }

    #[test]
    fn looks_are_remembered_where_the_desktop_says() {
        let at = |pairs: &[(&str, &str)]| {
            memory(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
        };
        assert_eq!(at(&[("HOME", "/h")]), Some("/h/.local/state/rekindle/looks.json".into()));
        assert_eq!(at(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/rekindle/looks.json".into()));
        assert_eq!(at(&[]), None);
    }

    #[test]
    fn a_look_at_one_owner_is_none_at_the_others() {
        let at = |hour: u8| -> Timestamp { format!("2026-11-28T{hour:02}:00:00Z").parse().unwrap() };
        let looks = |pairs: &[(Option<&str>, u8)]| -> BTreeMap<String, Timestamp> {
            pairs.iter().map(|(owner, hour)| (name_of("https://a", *owner), at(*hour))).collect()
        };
        let one = looks(&[(Some("ada"), 9)]);
        assert_eq!(last(&one, "https://a", Some("ada")), Some(at(9)));
        assert_eq!(last(&one, "https://a", None), None, "the others' jobs were not seen");
        assert_eq!(last(&one, "https://a", Some("bob")), None);
        assert_eq!(last(&one, "https://b", Some("ada")), None);
        let all_later = looks(&[(Some("ada"), 9), (None, 11)]);
        assert_eq!(last(&all_later, "https://a", Some("ada")), Some(at(11)), "everybody's are ada's too");
        let all_earlier = looks(&[(Some("ada"), 9), (None, 7)]);
        assert_eq!(last(&all_earlier, "https://a", Some("ada")), Some(at(9)));
        assert_eq!(last(&all_earlier, "https://a", None), Some(at(7)));
    }

    #[test]
    fn a_broken_memory_is_named_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("looks.json");
        std::fs::write(&path, "{").unwrap();
        let text = looks(&path).unwrap_err().text();
        let what = format!("cannot read when you last looked, {}\n", path.display());
        assert!(text.contains(&what), "{text}");
        assert!(text.contains("name a time, such as `rekindle since 24h`, or delete the file"), "{text}");
        assert!(looks(&folder.path().join("none.json")).unwrap().is_empty());
    }

    #[test]
    fn a_second_look_names_the_time_of_the_last() {
        let since: Timestamp = "2026-11-28T09:00:07.5Z".parse().unwrap();
        assert_eq!(nothing(since, "just now", true), "nothing is new since your last look at 2026-11-28 09:00:07 UTC");
        let day_later: Timestamp = "2026-11-29T09:00:07.5Z".parse().unwrap();
        assert_eq!(nothing(since, &within(since, day_later), false), "nothing happened in the last 1d");
        assert_eq!(within(since, since), "just now");
    }

    #[test]
    fn ends_are_told_in_words_and_not_by_the_names_of_kinds() {
        for kind in FailureKind::ALL {
            assert!(!ended(kind).contains('_'), "{kind:?}");
        }
        assert_eq!(times_of(ended(FailureKind::Unknown), 3_u32), "ended for an unknown cause 3 times");
    }

    #[test]
    fn the_page_tells_ends_in_the_same_words() {
        let page = include_str!("../../../api/src/site/views.js");
        let (_, words) = page.split_once("\nconst ENDED = {").unwrap();
        let (words, _) = words.split_once("};").unwrap();
        // Key and word take turns: `  lost: "TPU lost", timeout: "out of time"`.
        let parts: Vec<&str> = words.split('"').collect();
        let key = |text: &'static str| text.trim_matches(|c: char| c.is_whitespace() || ",:".contains(c));
        let mut on_page: BTreeMap<&str, &str> = parts.chunks_exact(2).map(|pair| (key(pair[0]), pair[1])).collect();
        for kind in FailureKind::ALL {
            // Where the page has no word, it shows the name of the kind.
            assert_eq!(on_page.remove(kind.as_str()).unwrap_or(kind.as_str()), ended(kind), "{kind:?}");
        }
        assert!(on_page.is_empty(), "no kinds: {on_page:?}");
    }

    #[test]
    fn words_say_how_often() {
        let times = [1_u32, 2, 3].map(|times| times_of("preempted", times));
        assert_eq!(times, ["preempted", "preempted twice", "preempted 3 times"]);
    }
}
