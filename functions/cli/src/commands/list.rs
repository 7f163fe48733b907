//! The list of jobs, page by page: the next page is on its way while one is read.

use bytes::Bytes;
use jiff::Timestamp;
use rekindle_core::job::Phase;
use rekindle_wire::v1::JobView;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Context, workspace};
use crate::api;
use crate::args::{Named, Ps};
use crate::fault::{Fault, Result};

/// Most jobs in one page of the API.
const PAGE: usize = 500;
/// Where they are.
const PATH: &str = "/v1/jobs";

/// A job in the form that somebody needs: as the API gives it, or read into its shape.
pub(super) trait Listed: DeserializeOwned + Send + 'static {
    /// Its phase, if this version knows it.
    fn phase(&self) -> Option<Phase>;
    /// When it was submitted.
    fn created_at(&self) -> Option<Timestamp>;
    /// Who pays.
    fn owner(&self) -> Option<&str>;
    /// Whether it has a tag.
    fn has_tag(&self, tag: &str) -> bool;
    /// Whether it is a workspace.
    fn is_workspace(&self) -> bool;
}

impl Listed for Value {
    fn phase(&self) -> Option<Phase> {
        Phase::parse(self.get("phase").and_then(Value::as_str)?)
    }

    fn created_at(&self) -> Option<Timestamp> {
        self.get("created_at").and_then(Value::as_str)?.parse().ok()
    }

    fn owner(&self) -> Option<&str> {
        self.get("owner").and_then(Value::as_str)
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.get("tags").and_then(Value::as_array).is_some_and(|tags| tags.iter().any(|known| known == tag))
    }

    fn is_workspace(&self) -> bool {
        self["spec"]["workspace"] == true
    }
}

impl Listed for JobView {
    fn phase(&self) -> Option<Phase> {
        Some(self.phase)
    }

    fn created_at(&self) -> Option<Timestamp> {
        Some(self.created_at)
    }

    fn owner(&self) -> Option<&str> {
        Some(&self.owner)
    }

    fn has_tag(&self, tag: &str) -> bool {
        self.tags.iter().any(|known| known == tag)
    }

    fn is_workspace(&self) -> bool {
        workspace::is_workspace(self)
    }
}

/// What a page says beside its jobs.
#[derive(Deserialize)]
struct Rest {
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
struct Page<T> {
    jobs: Vec<T>,
}

/// The jobs that are wanted, newest first, and whether there are more.
pub(super) async fn jobs<T: Listed>(context: &Context, options: &Ps) -> Result<(Vec<T>, bool)> {
    let limit = if options.all { usize::MAX } else { options.limit };
    let mut jobs: Vec<T> = Vec::new();
    let mut size = limit.clamp(1, PAGE);
    let mut answer = ask(context, options, size, None).await?;
    loop {
        let place = format!("{}{PATH}", context.api.url());
        // Found without building anything: a page is read for longer than its end is looked for.
        let token = api::read::<Rest>(&place, &answer)?.next_page_token;
        let reading = tokio::task::spawn_blocking(move || api::read::<Page<T>>(&place, &answer));
        let reading =
            async { reading.await.map_err(|error| Fault::unexpected("the pages cannot be read").caused_by(&error))? };
        let left = limit.saturating_sub(jobs.len() + size);
        let (page, next) = if token.is_some() && left > 0 {
            size = left.min(PAGE);
            let (page, next) = tokio::join!(reading, ask(context, options, size, token.clone()));
            (page?, Some(next))
        } else {
            (reading.await?, None)
        };
        // Newest first: behind the first that is too old there are only older ones.
        let is_past = page.jobs.last().is_some_and(|job| !is_within(job, options));
        jobs.extend(page.jobs.into_iter().filter(|job| fits(job, options)));
        let is_last = token.is_none() || is_past;
        if is_last || jobs.len() >= limit {
            let is_cut = !is_last || jobs.len() > limit;
            jobs.truncate(limit);
            return Ok((jobs, is_cut));
        }
        answer = if let Some(next) = next {
            next?
        } else {
            size = (limit - jobs.len()).min(PAGE);
            ask(context, options, size, token).await?
        };
    }
}

async fn ask(context: &Context, options: &Ps, size: usize, token: Option<String>) -> Result<Bytes> {
    // Whole specs are most of an answer, and no column of the table.
    let view = (!context.printer.is_json).then(|| "list".to_owned());
    // The API takes one phase; several are filtered here.
    let phase = match options.phase.as_slice() {
        [one] => Some(one.phase().as_str().to_owned()),
        _ => None,
    };
    let query = [
        ("phase", phase),
        ("owner", options.owner.clone()),
        ("tag", options.tag.clone()),
        ("page_size", Some(size.to_string())),
        ("page_token", token),
        ("view", view),
    ];
    context.api.get_bytes(PATH, &query).await
}

/// Whether every filter holds for a job that was not found by the list of the API.
pub(super) fn is_like(job: &impl Listed, options: &Ps) -> bool {
    let is_owners = options.owner.as_deref().is_none_or(|owner| job.owner() == Some(owner));
    let has_tag = options.tag.as_deref().is_none_or(|tag| job.has_tag(tag));
    is_owners && has_tag && fits(job, options)
}

/// Whether what the API does not filter by holds for a job.
fn fits(job: &impl Listed, options: &Ps) -> bool {
    let phase = job.phase();
    let is_so = |named: &Named| phase == Some(named.phase()) && (*named != Named::Deleted || job.is_workspace());
    let is_wanted = options.phase.is_empty() || options.phase.iter().any(is_so);
    let has_ended = phase.is_some_and(Phase::is_terminal);
    is_wanted && !(options.live && has_ended) && is_within(job, options)
}

fn is_within(job: &impl Listed, options: &Ps) -> bool {
    let Some(within) = options.within else { return true };
    let is_young = |created| Timestamp::now().duration_since(created).as_secs_f64() <= within.as_secs_f64();
    job.created_at().is_none_or(is_young)
}
