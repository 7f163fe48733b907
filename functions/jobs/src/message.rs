//! One job message: its command, its payload, what became of it.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use rekindle_core::access::Right;
use rekindle_core::decide::Command;
use rekindle_core::ids::JobId;
use rekindle_core::names;
use rekindle_core::spec::{FieldError, ParseContext, parse};
use rekindle_engine::{Commanded, Submitted};
use rekindle_ports::store::StoreError;
use rekindle_web::{Answer, BODY_MAX, Caller, about, dead, hint};
use rekindle_wire::delivery::{Delivery, Via};
use rekindle_wire::once::Once;

use crate::{ACTOR, Jobs};

/// As much of a word that is not known is repeated, in characters.
const SHOWN: usize = 200;

/// The attribute `command` of a job message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// Submit a job; the default.
    Submit,
    /// End it.
    Cancel,
    /// Give its TPU back until `unpause`.
    Pause,
    /// Go on.
    Unpause,
    /// Start again.
    Restart,
    /// Act now.
    Wake,
}

impl Name {
    /// Every name.
    pub const ALL: [Self; 6] = [Self::Submit, Self::Cancel, Self::Pause, Self::Unpause, Self::Restart, Self::Wake];

    /// As in the attribute.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Submit => "submit",
            Self::Cancel => "cancel",
            Self::Pause => "pause",
            Self::Unpause => "unpause",
            Self::Restart => "restart",
            Self::Wake => "wake",
        }
    }

    /// The command with that name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|n| n.as_str() == text)
    }
}

/// The payload of every command but `submit`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Payload {
    id: JobId,
    #[serde(default)]
    new_slice: Option<bool>,
    #[serde(default)]
    from_scratch: Option<bool>,
    #[serde(default)]
    if_attempt: Option<u32>,
}

/// Why a message was not carried out.
enum No {
    /// It never can be: record it.
    Unusable(String),
    /// It should come again.
    Transient(String),
}

impl From<StoreError> for No {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(why) => Self::Unusable(why),
            StoreError::Conflict(_)
            | StoreError::Unclear(_)
            | StoreError::Unavailable(_)
            | StoreError::Full(_)
            | StoreError::Unreadable { .. } => Self::Transient(error.to_string()),
        }
    }
}

/// Carries out one message.
pub(crate) async fn handle(jobs: &Jobs, caller: &Caller, delivery: &Delivery) -> Answer {
    match carry_out(jobs, caller, delivery).await {
        // Also for a message that changed nothing: the first delivery may have ended between store and hint.
        Ok((job, name)) => {
            let cause = format!("message: {}", name.as_str());
            hint::publish(&jobs.engine.ports, &job, &cause, None).await
        }
        Err(No::Unusable(reason)) => dead::record(&jobs.engine.ports, "jobs", delivery, &reason).await,
        Err(No::Transient(why)) => Answer::Transient(why),
    }
}

async fn carry_out(jobs: &Jobs, caller: &Caller, delivery: &Delivery) -> Result<(JobId, Name), No> {
    let text = delivery.attributes.get("command").map_or("submit", String::as_str);
    let name = Name::parse(text).ok_or_else(|| {
        let known = Name::ALL.map(Name::as_str).join(", ");
        // Whatever stands there is told in the log and in the dead letter, both of which have limits.
        let shown: String = text.chars().take(SHOWN).collect();
        No::Unusable(format!("command {shown:?} is unknown; one of {known}"))
    })?;
    if !jobs.may.contains(&name) {
        return Err(No::Unusable(format!("messages may not {text} here; use the HTTP API")));
    }
    let data = delivery.data.as_ref().map_err(|e| No::Unusable(e.clone()))?;
    if data.len() > BODY_MAX {
        return Err(No::Unusable(format!(
            "the message has {} bytes; a job is at most {BODY_MAX}: put what is big into the bundle of `code`",
            data.len()
        )));
    }
    let Once(value) =
        serde_json::from_slice(data).map_err(|e| No::Unusable(format!("the message cannot be read as JSON: {e}")))?;
    let job = match name {
        Name::Submit => submit(jobs, caller, delivery, &value).await?,
        Name::Cancel | Name::Pause | Name::Unpause | Name::Restart | Name::Wake => {
            command(jobs, caller, name, delivery, value).await?
        }
    };
    Ok((job, name))
}

/// What names the message over its redeliveries, for the record of carried-out commands.
// Message ids are unique in a topic only, and a client may choose the id of a CloudEvent: keep them apart.
fn key(delivery: &Delivery) -> Option<String> {
    let kind = match delivery.via {
        Via::PubSub | Via::PubSubUnwrapped => "message",
        Via::CloudEvent | Via::Scheduler | Via::Tasks | Via::LogEntry | Via::Bare => delivery.via.as_str(),
    };
    delivery.id.as_ref().map(|id| format!("{kind} {id}"))
}

async fn submit(jobs: &Jobs, caller: &Caller, delivery: &Delivery, value: &Value) -> Result<JobId, No> {
    let context = ParseContext { deployment: &jobs.engine.deployment, caller: ACTOR, caller_is_admin: caller.is_admin };
    let mut submit = parse(value, &context).map_err(|faults| No::Unusable(sentence(&faults)))?;
    let id = match (&submit.id, key(delivery)) {
        (Some(id), _) => id.clone(),
        (None, Some(key)) => names::generated_job_id(&key),
        // Without either, each redelivery would make another job.
        (None, None) => {
            return Err(No::Unusable(
                "neither the spec has an `id` nor the delivery a message id (an unwrapped push needs writeMetadata)"
                    .into(),
            ));
        }
    };
    about::job(&id);
    submit.id = Some(id.clone());
    let key = key(delivery).unwrap_or_else(|| format!("submit {id}"));
    match Box::pin(jobs.engine.submit(submit, ACTOR, &key)).await? {
        Submitted::Created(job) | Submitted::Same(job) => Ok(job.id),
        Submitted::Conflict { phase } => {
            // Another owner's job is not described.
            let phase = phase.map(|p| format!(" (it is {})", p.as_str())).unwrap_or_default();
            let why = format!("the id {id} is taken by another spec or an ended job{phase}; choose another id");
            Err(No::Unusable(why))
        }
    }
}

async fn command(jobs: &Jobs, caller: &Caller, name: Name, delivery: &Delivery, value: Value) -> Result<JobId, No> {
    let payload: Payload =
        serde_json::from_value(value).map_err(|e| No::Unusable(format!("{}: {e}", name.as_str())))?;
    let id = payload.id.clone();
    about::job(&id);
    if name != Name::Restart && (payload.new_slice.is_some() || payload.from_scratch.is_some()) {
        return Err(No::Unusable("`new_slice` and `from_scratch` belong to `restart`".into()));
    }
    let command = match name {
        Name::Cancel => Command::Cancel,
        Name::Pause => Command::Pause,
        Name::Unpause => Command::Unpause,
        Name::Restart => Command::Restart {
            new_slice: payload.new_slice.unwrap_or_default(),
            from_scratch: payload.from_scratch.unwrap_or_default(),
        },
        Name::Submit | Name::Wake => Command::Wake,
    };
    let Some(key) = key(delivery) else {
        return Err(No::Unusable("the delivery has no message id (an unwrapped push needs writeMetadata)".into()));
    };
    // Whose job it will be is not known before it is there: a command that went on could do what the policy forbids.
    if !caller.is_admin && !allowed(jobs, command, &id).await? {
        return Err(no_job(jobs, delivery, &id));
    }
    match Box::pin(jobs.engine.command(&id, command, ACTOR, &key, payload.if_attempt)).await? {
        Commanded::Accepted(_) | Commanded::AlreadyHolds(_) => Ok(id),
        Commanded::NoSense(no) => Err(No::Unusable(format!("job {id}: {no}"))),
        Commanded::OtherUnderKey(_) => {
            let why = format!("job {id}: the message id was used before for another {}", name.as_str());
            Err(No::Unusable(format!("{why}; give each message an id of its own")))
        }
        Commanded::NoSuchJob => Err(no_job(jobs, delivery, &id)),
        Commanded::WrongAttempt(attempt) => {
            Err(No::Unusable(format!("job {id} is at attempt {attempt}; `if_attempt` names another")))
        }
    }
}

/// Pub/Sub keeps no order: the submit may be behind the command.
fn no_job(jobs: &Jobs, delivery: &Delivery, id: &JobId) -> No {
    if is_young(delivery, jobs.engine.ports.clock.now()) {
        return No::Transient(format!("there is no job {id} yet"));
    }
    No::Unusable(format!("there is no job {id}"))
}

/// Messages carry no identity: what they may do to whose jobs is said of their common name. False: no such job.
///
/// A job that is there keeps its owner, so that what is found here holds for the command, which reads the job anew.
async fn allowed(jobs: &Jobs, command: Command, id: &JobId) -> Result<bool, No> {
    let Some(at) = jobs.engine.ports.store.job(id).await? else { return Ok(false) };
    let right = match command {
        Command::Cancel | Command::Pause => Right::Stop,
        Command::Unpause | Command::Restart { .. } | Command::Wake => Right::Submit,
    };
    let owner = &at.value.spec.owner;
    if jobs.engine.deployment.access.may(ACTOR, right, owner) {
        return Ok(true);
    }
    Err(No::Unusable(format!("the policy does not let messages {} job {id}: it is another owner's", command.name())))
}

/// A command waits so long for the submit of its job, by the time at which it was published.
const SUBMIT_WAIT: SignedDuration = SignedDuration::from_mins(10);

/// A time that is as far in the future is as little believed: the sender of a CloudEvent writes what it likes.
fn is_young(delivery: &Delivery, now: Timestamp) -> bool {
    delivery.published_at.is_some_and(|at| now.duration_since(at).abs() < SUBMIT_WAIT)
}

fn sentence(faults: &[FieldError]) -> String {
    faults.iter().map(|f| format!("{}: {}", f.field, f.message)).collect::<Vec<_>>().join("; ")
}
