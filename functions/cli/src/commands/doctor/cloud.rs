//! The project of a deployment, seen through gcloud: with the rights of the person who asks, and nothing that cannot be
//! asked again by hand.

mod judge;
mod permissions;

use std::process::Stdio;

use futures::{StreamExt as _, stream};
use serde_json::Value;
use tokio::process::Command;

use super::{Check, bad, good};
use judge::Judged;

/// gcloud is a large program: more at once only wait for each other.
const AT_ONCE: usize = 3;

/// What Terraform makes, and gcloud describes only where it is.
const APPLIED: [&str; 4] = ["tick", "wake-ups", "sink", "indexes"];

/// Where the deployment is.
pub(super) struct Place<'a> {
    pub(super) project: &'a str,
    pub(super) region: &'a str,
    pub(super) database: &'a str,
}

/// What an answer means.
type Judge = Box<dyn Fn(&Value, &Place<'_>) -> Judged + Send>;

/// One question to gcloud.
struct Question {
    name: &'static str,
    words: Vec<String>,
    judge: Judge,
    /// What makes the thing that is asked for, where it is one thing that may be lacking: gcloud fails then.
    made_by: Option<String>,
}

/// Asks everything. The services come first: their environment names the bucket, the zones and the agent.
pub(super) async fn checks(place: &Place<'_>) -> Vec<Check> {
    let services = Question {
        name: "services",
        words: words(place, &["run", "services", "list", &format!("--region={}", place.region)]),
        judge: Box::new(judge::services),
        made_by: None,
    };
    let (answer, first) = ask(services, place).await;
    let environment = answer.as_ref().map(judge::Environment::of);
    let mut questions = questions(place);
    questions.push(quotas(place, environment.as_ref().map(|of| of.capacity.clone()).unwrap_or_default()));
    questions.extend(environment.iter().flat_map(|of| of_environment(place, of)));
    let rest = stream::iter(questions).map(|question| async { ask(question, place).await.1 }).buffered(AT_ONCE);
    let mut checks = vec![first];
    if let Some(of) = &environment {
        checks.push(checked("zones", judge::zones(of)));
    }
    checks.extend(rest.collect::<Vec<_>>().await);
    if let Some(address) = environment.as_ref().and_then(|of| of.agent.as_ref()) {
        checks.push(digest(place, address).await);
    }
    checks.push(permissions::check(place).await);
    checks
}

fn words(place: &Place<'_>, own: &[&str]) -> Vec<String> {
    let shared = [format!("--project={}", place.project), "--format=json".to_owned(), "--quiet".to_owned()];
    own.iter().map(|word| (*word).to_owned()).chain(shared).collect()
}

fn questions(place: &Place<'_>) -> Vec<Question> {
    type Plain = fn(&Value, &Place<'_>) -> Judged;
    let question = |name, own: &[&str], judge: Plain| Question {
        name,
        words: words(place, own),
        judge: Box::new(judge),
        made_by: APPLIED.contains(&name).then(|| judge::APPLY.to_owned()),
    };
    let location = format!("--location={}", place.region);
    let refused = "resource.type=\"cloud_run_revision\" AND resource.labels.service_name=~\"^rekindle-\" AND \
                   jsonPayload.message=(\"a call without a good token was refused\" OR \"a caller who may not call here was refused\")";
    let mut questions = vec![
        question("apis", &["services", "list", "--enabled"], judge::apis),
        question("topics", &["pubsub", "topics", "list"], judge::topics),
        question("pushes", &["pubsub", "subscriptions", "list"], judge::subscriptions),
        question("tick", &["scheduler", "jobs", "describe", "rekindle-tick", &location], judge::tick),
        question("wake-ups", &["tasks", "queues", "describe", "rekindle-wakeups", &location], judge::queue),
        question("triggers", &["eventarc", "triggers", "list", "--location=global"], judge::triggers),
        question("sink", &["logging", "sinks", "describe", "rekindle-tpu-events"], judge::sink),
        question(
            "indexes",
            &["firestore", "indexes", "composite", "list", &format!("--database={}", place.database)],
            judge::indexes,
        ),
        question("roles", &["projects", "get-iam-policy", place.project], judge::roles),
        question("callers", &["logging", "read", refused, "--freshness=1h", "--limit=20"], judge::refused),
    ];
    questions.extend(["rekindle-api", "rekindle-events", "rekindle-reconcile"].map(|service| Question {
        name: "invokers",
        words: words(place, &["run", "services", "get-iam-policy", service, &format!("--region={}", place.region)]),
        judge: Box::new(move |answer: &Value, place: &Place<'_>| judge::invokers(answer, place, service)),
        made_by: Some(judge::APPLY.to_owned()),
    }));
    questions
}

/// Quotas, against the capacity list where it is known.
fn quotas(place: &Place<'_>, capacity: Vec<judge::Bought>) -> Question {
    Question {
        name: "quotas",
        words: words(place, &["beta", "quotas", "info", "list", "--service=tpu.googleapis.com"]),
        judge: Box::new(move |answer: &Value, place: &Place<'_>| judge::quotas(answer, place, &capacity)),
        made_by: None,
    }
}

/// What is known only from the services' environment.
fn of_environment(place: &Place<'_>, of: &judge::Environment) -> Vec<Question> {
    let mut questions = Vec::new();
    if let Some(bucket) = &of.bucket {
        let words = words(place, &["storage", "buckets", "describe", bucket]);
        let regions = of.regions.clone();
        let judge = Box::new(move |answer: &Value, place: &Place<'_>| judge::bucket(answer, place, &regions));
        questions.push(Question { name: "bucket", words, judge, made_by: Some(judge::BOOTSTRAP.to_owned()) });
    }
    let taken = of.audiences.clone();
    questions.push(Question {
        name: "audiences",
        words: words(place, &["pubsub", "subscriptions", "list"]),
        judge: Box::new(move |answer: &Value, place: &Place<'_>| judge::audiences(answer, place, &taken)),
        made_by: None,
    });
    if let Some(agent) = &of.agent {
        let words = words(place, &["storage", "objects", "describe", agent]);
        let made_by = Some(judge::publish());
        questions.push(Question { name: "agent", words, judge: Box::new(judge::agent), made_by });
    }
    questions
}

fn checked(name: &'static str, judged: Judged) -> Check {
    Check { name, verdict: judged.verdict, found: judged.found, next: judged.next }
}

async fn ask(question: Question, place: &Place<'_>) -> (Option<Value>, Check) {
    let shown = format!("gcloud {}", shown(&question.words));
    match gcloud(&question.words).await {
        Ok(answer) => {
            let check = checked(question.name, (question.judge)(&answer, place));
            (Some(answer), check)
        }
        Err(why) => (None, failed(question.name, why, question.made_by, &shown)),
    }
}

/// What gcloud could not answer: what is not there is made, and who may not ask, or is not known, must be able to.
fn failed(name: &'static str, why: String, made_by: Option<String>, shown: &str) -> Check {
    let next = made_by.filter(|_| is_absence(&why));
    let next = next.unwrap_or_else(|| {
        let who = if why.contains("gcloud auth login") { "say who you are: `gcloud auth login`; then " } else { "" };
        format!("{who}`{shown}` must work; see infra/runbooks/first-deployment.md")
    });
    bad(name, why, next)
}

/// Whether gcloud failed because the thing is not there, in its own words: those of Cloud Storage are others.
fn is_absence(why: &str) -> bool {
    ["NOT_FOUND: ", " not found: 404", "matched no objects or files"].iter().any(|words| why.contains(words))
}

/// As a person would type it.
fn shown(words: &[String]) -> String {
    let quoted = |word: &String| {
        if word.contains([' ', '"', '(', '~']) { format!("'{word}'") } else { word.clone() }
    };
    words.iter().map(quoted).collect::<Vec<_>>().join(" ")
}

async fn gcloud(words: &[String]) -> Result<Value, String> {
    serde_json::from_slice(&told(words).await?).map_err(|error| format!("gcloud's answer is no JSON: {error}"))
}

/// What gcloud writes.
async fn told(words: &[String]) -> Result<Vec<u8>, String> {
    let output = Command::new("gcloud").args(words).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let output = output.map_err(|error| format!("gcloud cannot be run: {error}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let line = told.lines().find(|line| line.contains("ERROR")).or_else(|| told.lines().last());
        return Err(line.unwrap_or("gcloud failed and said nothing").trim().to_owned());
    }
    Ok(output.stdout)
}

/// An access token of a service's account, for whoever may make one.
async fn token_of(email: &str) -> Result<String, String> {
    let account = format!("--impersonate-service-account={email}");
    let words = ["auth", "print-access-token", &account, "--quiet"].map(str::to_owned);
    Ok(String::from_utf8_lossy(&told(&words).await?).trim().to_owned())
}

/// Whether the agent's bytes are those that its name says: workers refuse others.
async fn digest(place: &Place<'_>, address: &str) -> Check {
    let project = format!("--project={}", place.project);
    let words = ["storage", "cat", address, &project, "--quiet"].map(str::to_owned);
    match told(&words).await {
        Ok(bytes) => checked("digest", judge::digest(address, &bytes)),
        Err(why) => failed("digest", why, Some(judge::publish()), &format!("gcloud {}", shown(&words))),
    }
}

/// Checked only where a project is named.
pub(super) fn unnamed() -> Check {
    good("project", "not checked: --project and --region name a deployment")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_they_are_typed() {
        let place = Place { project: "p", region: "r", database: "rekindle" };
        let texts: Vec<String> = questions(&place).iter().map(|question| shown(&question.words)).collect();
        assert!(texts[0].starts_with("services list --enabled --project=p"), "{}", texts[0]);
        assert!(texts.iter().any(|text| text.contains("'resource.type=")), "{texts:?}");
    }
}
