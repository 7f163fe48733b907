//! Jobs as they change: a list, then the server's stream of changes, for as long as somebody looks.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::{Context, list, ps};
use crate::args::Ps;
use crate::exit::Exit;
use crate::fault::{Fault, Result};

/// Before a stream that broke off is opened again; doubled up to the longest.
const AGAIN_FIRST: Duration = Duration::from_millis(200);
const AGAIN_MAX: Duration = Duration::from_secs(5);
/// A server that does not answer for so long is given up.
const OUTAGE_MAX: Duration = Duration::from_mins(10);

/// The list is read again so often, for the steps of jobs that only go on.
const RELIST_EVERY: Duration = Duration::from_secs(30);
/// The same of a server on this machine, whose answers cost nothing, and whose workers tell their steps as often.
const RELIST_EVERY_HERE: Duration = Duration::from_secs(3);

/// What is new.
#[derive(Debug)]
pub(crate) enum News {
    /// All jobs that are wanted; what was known before is void.
    All(Vec<Value>),
    /// One job changed. Whether it is wanted, [`is_wanted`] says.
    One(Value),
    /// The server does not answer, in words; the next news says that it does again.
    Down(String),
}

/// Where a feed is.
struct Place {
    last_id: Option<String>,
    /// The server answered once: then its address and the rights are good, and a failure will pass.
    is_known: bool,
    heard: Instant,
}

/// Tells of jobs for ever. The first call must work.
pub(crate) async fn feed(context: &Context, options: &Ps, news: &Sender<News>) -> Result<Infallible> {
    let mut place = Place { last_id: None, is_known: false, heard: Instant::now() };
    let mut pause = AGAIN_FIRST;
    loop {
        match one_stream(context, options, news, &mut place).await {
            // The server ends a silent stream.
            Ok(()) => pause = AGAIN_FIRST,
            Err(fault) if !place.is_known || fault.exit() != Exit::Unexpected => return Err(fault),
            Err(fault) if place.heard.elapsed() > OUTAGE_MAX => return Err(fault),
            Err(fault) => tell(news, News::Down(fault.what().to_owned())).await?,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(AGAIN_MAX);
    }
}

/// The stream is opened before the list is read, so that nothing is missed between them; also after a break, since the
/// list says what is left.
async fn one_stream(context: &Context, options: &Ps, news: &Sender<News>, place: &mut Place) -> Result<()> {
    let mut events = context.api.events("/v1/watch", &[], place.last_id.as_deref()).await?;
    let (jobs, _) = ps::list(context, options).await?;
    (place.heard, place.is_known) = (Instant::now(), true);
    tell(news, News::All(jobs)).await?;
    let every = relist_every(context.api.is_on_loopback());
    let mut relist = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
    loop {
        let next = events.next();
        tokio::pin!(next);
        let event = loop {
            tokio::select! {
                event = &mut next => break event?,
                // Steps go on without a change of the job.
                _ = relist.tick() => tell(news, News::All(ps::list(context, options).await?.0)).await?,
            }
        };
        let Some(event) = event else { return Ok(()) };
        place.heard = Instant::now();
        if event.kind != "job" {
            continue;
        }
        if let Ok(job) = serde_json::from_str(&event.data) {
            tell(news, News::One(job)).await?;
        }
        place.last_id = Some(event.id).filter(|id| !id.is_empty());
    }
}

fn relist_every(is_here: bool) -> Duration {
    if is_here { RELIST_EVERY_HERE } else { RELIST_EVERY }
}

async fn tell(news: &Sender<News>, one: News) -> Result<()> {
    news.send(one).await.map_err(|_closed| Fault::unexpected("nobody looks any more"))
}

/// Whether a job is one that was asked for.
pub(crate) fn is_wanted(job: &Value, options: &Ps) -> bool {
    let id = job.get("id").and_then(Value::as_str).unwrap_or_default();
    let is_named = options.jobs.is_empty() || options.jobs.iter().any(|job| job == id);
    is_named && list::is_like(job, options)
}

#[cfg(test)]
mod tests {
    use rekindle_core::job::Phase;
    use serde_json::json;

    use super::*;
    use crate::args::Named;

    #[test]
    fn where_calls_cost_nothing_the_list_is_as_fresh_as_the_steps() {
        assert_eq!([true, false].map(|is_here| relist_every(is_here).as_secs()), [3, 30]);
    }

    #[test]
    fn only_a_workspace_is_deleted() {
        let options = Ps { phase: vec![Named::Deleted], ..Ps::default() };
        let job =
            |phase: &str, is_workspace: bool| json!({"id": "a", "phase": phase, "spec": {"workspace": is_workspace}});
        assert!(is_wanted(&job("cancelled", true), &options));
        assert!(!is_wanted(&job("cancelled", false), &options));
        assert!(!is_wanted(&job("running", true), &options));
    }

    #[test]
    fn what_was_asked_for_is_found_again_among_all_changes() {
        let job =
            json!({"id": "a", "owner": "ada", "tags": ["x"], "phase": "running", "created_at": "2020-01-01T00:00:00Z"});
        let wants = |change: &dyn Fn(&mut Ps)| {
            let mut options = Ps::default();
            change(&mut options);
            is_wanted(&job, &options)
        };
        assert!(wants(&|_| {}));
        assert!(wants(&|options| options.jobs = vec!["a".into()]));
        assert!(!wants(&|options| options.jobs = vec!["b".into()]));
        assert!(wants(&|options| options.owner = Some("ada".into())));
        assert!(!wants(&|options| options.owner = Some("bob".into())));
        assert!(wants(&|options| options.tag = Some("x".into())));
        assert!(!wants(&|options| options.tag = Some("y".into())));
        assert!(wants(&|options| options.phase = vec![Named::Phase(Phase::Failed), Named::Phase(Phase::Running)]));
        assert!(!wants(&|options| options.phase = vec![Named::Phase(Phase::Failed)]));
        assert!(!wants(&|options| options.within = Some(Duration::from_hours(1))));
    }
}
