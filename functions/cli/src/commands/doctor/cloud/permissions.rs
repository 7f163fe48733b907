//! Whether the services' accounts hold the rights that they need, by the test-permissions calls of Google's APIs: asked as each
//! account itself, since those calls answer for who asks.
//!
//! gcloud has no command for them, but gives the tokens. Rights on documents and objects hold under conditions, which such a call
//! does not look at from outside; what they are, Terraform says.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Check, bad, good, warning};
use super::Place;

const NAME: &str = "permissions";
const TIMEOUT: Duration = Duration::from_secs(20);

/// An API that answers for one of its resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Projects,
    PubSub,
    Tasks,
    Accounts,
    Run,
}

impl Api {
    /// Where it is, and the variable by which gcloud is told of another place.
    fn base(self) -> String {
        let (variable, usual) = match self {
            Self::Projects => ("CLOUDRESOURCEMANAGER", "https://cloudresourcemanager.googleapis.com/"),
            Self::PubSub => ("PUBSUB", "https://pubsub.googleapis.com/"),
            Self::Tasks => ("CLOUDTASKS", "https://cloudtasks.googleapis.com/"),
            Self::Accounts => ("IAM", "https://iam.googleapis.com/"),
            Self::Run => ("RUN", "https://run.googleapis.com/"),
        };
        std::env::var(format!("CLOUDSDK_API_ENDPOINT_OVERRIDES_{variable}")).unwrap_or_else(|_| usual.to_owned())
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Projects | Self::PubSub | Self::Accounts => "v1",
            Self::Tasks | Self::Run => "v2",
        }
    }
}

/// A right that one of the accounts needs.
struct Need {
    account: &'static str,
    api: Api,
    /// Below the version; the project is `{p}`, the region is `{r}`.
    resource: &'static str,
    permissions: &'static [&'static str],
}

const TPU: &[&str] = &["tpu.nodes.create", "tpu.nodes.delete", "tpu.nodes.get", "tpu.nodes.list", "tpu.operations.get"];
const PUBLISH: &[&str] = &["pubsub.topics.publish"];
const ACT_AS: &[&str] = &["iam.serviceAccounts.actAs"];

const fn need(account: &'static str, api: Api, resource: &'static str, permissions: &'static [&'static str]) -> Need {
    Need { account, api, resource, permissions }
}

const WORKER: &str = "projects/{p}/serviceAccounts/rekindle-worker@{p}.iam.gserviceaccount.com";
const TASKS: &str = "projects/{p}/serviceAccounts/rekindle-tasks@{p}.iam.gserviceaccount.com";
const NEEDS: &[Need] = &[
    need("api", Api::PubSub, "projects/{p}/topics/rekindle-hints", PUBLISH),
    need("events", Api::PubSub, "projects/{p}/topics/rekindle-hints", PUBLISH),
    need("events", Api::PubSub, "projects/{p}/topics/rekindle-dead-letter", PUBLISH),
    need("reconcile", Api::Projects, "projects/{p}", TPU),
    need("reconcile", Api::PubSub, "projects/{p}/topics/rekindle-hints", PUBLISH),
    need("reconcile", Api::PubSub, "projects/{p}/topics/rekindle-events", PUBLISH),
    need("reconcile", Api::PubSub, "projects/{p}/topics/rekindle-dead-letter", PUBLISH),
    need("reconcile", Api::Tasks, "projects/{p}/locations/{r}/queues/rekindle-wakeups", &["cloudtasks.tasks.create"]),
    need("reconcile", Api::Accounts, WORKER, ACT_AS),
    need("reconcile", Api::Accounts, TASKS, ACT_AS),
    need("reconcile", Api::Run, "projects/{p}/locations/{r}/services/rekindle-api", &["run.routes.invoke"]),
];

/// Tests all of them; a check for all accounts together.
pub(super) async fn check(place: &Place<'_>) -> Check {
    let client = match reqwest::Client::builder().timeout(TIMEOUT).build() {
        Ok(client) => client,
        Err(error) => return bad(NAME, error.to_string(), "`rekindle doctor` again"),
    };
    // Of an account that cannot be asked the first reason is told; the others are asked all the same.
    let mut tokens: BTreeMap<&str, Option<String>> = BTreeMap::new();
    let mut unasked: BTreeMap<&str, String> = BTreeMap::new();
    let mut lacking = Vec::new();
    for need in NEEDS {
        if !tokens.contains_key(need.account) {
            let token = super::token_of(&email(need.account, place)).await;
            if let Err(why) = &token {
                unasked.insert(need.account, why.clone());
            }
            tokens.insert(need.account, token.ok());
        }
        let Some(token) = tokens.get(need.account).and_then(Option::as_ref) else { continue };
        match held(&client, need, place, token).await {
            Ok(held) => lacking.extend(lacks(need, place, &held)),
            Err(why) => {
                unasked.entry(need.account).or_insert(why);
            }
        }
    }
    told(place, &lacking, &unasked)
}

fn email(account: &str, place: &Place<'_>) -> String {
    format!("rekindle-{account}@{}.iam.gserviceaccount.com", place.project)
}

/// What is lacking for sure, else who could not be asked: that is no fault of the deployment, whose owner even may not ask for others.
fn told(place: &Place<'_>, lacking: &[String], unasked: &BTreeMap<&str, String>) -> Check {
    if !lacking.is_empty() {
        return bad(NAME, lacking.join("; "), super::judge::APPLY);
    }
    if unasked.is_empty() {
        return good(NAME, "the services' accounts hold what they need");
    }
    let found: Vec<String> = unasked.iter().map(|(account, why)| format!("rekindle-{account}: {why}")).collect();
    let grants: Vec<String> = unasked
        .keys()
        .map(|account| {
            format!(
                "`gcloud iam service-accounts add-iam-policy-binding {} --project={} \
                 --role=roles/iam.serviceAccountTokenCreator --member=user:YOU`",
                email(account, place),
                place.project
            )
        })
        .collect();
    let next = format!("{} lets you ask as it, which an owner of the project may not by that alone", grants.join(", "));
    warning(NAME, format!("could not be asked as {}", found.join("; ")), next)
}

fn lacks(need: &Need, place: &Place<'_>, held: &[String]) -> Option<String> {
    let lacking: Vec<&str> = need.permissions.iter().copied().filter(|p| !held.iter().any(|have| have == p)).collect();
    let (account, of) = (need.account, named(need.resource, place));
    (!lacking.is_empty()).then(|| format!("rekindle-{account} lacks {} on {of}", lacking.join(", ")))
}

fn named(resource: &str, place: &Place<'_>) -> String {
    resource.replace("{p}", place.project).replace("{r}", place.region)
}

/// Those of the permissions that the account of the token holds.
async fn held(client: &reqwest::Client, need: &Need, place: &Place<'_>, token: &str) -> Result<Vec<String>, String> {
    let resource = named(need.resource, place);
    let url = format!("{}/{}/{resource}:testIamPermissions", need.api.base().trim_end_matches('/'), need.api.version());
    let asked = client.post(url).bearer_auth(token).json(&json!({"permissions": need.permissions}));
    let answer = asked.send().await.map_err(|error| error.to_string())?;
    let status = answer.status();
    let body: Value = answer.json().await.map_err(|error| error.to_string())?;
    if !status.is_success() {
        let told = body.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        return Err(format!("{resource}: {status} {told}"));
    }
    let held = body.get("permissions").and_then(Value::as_array).into_iter().flatten();
    Ok(held.filter_map(Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `infra/iam-edges.csv` grants a service without a condition is what is asked for, and nothing else.
    #[test]
    fn what_is_asked_for_are_the_edges_of_the_services() {
        let edges = include_str!("../../../../../../infra/iam-edges.csv");
        let granted: Vec<String> = edges
            .lines()
            .filter_map(|line| {
                let mut parts = line.split(',');
                let (who, role, on) = (parts.next()?, parts.next()?, parts.next()?);
                let is_service = ["rekindle-api", "rekindle-events", "rekindle-reconcile"].contains(&who);
                let last = if on == "project" { "p" } else { on.rsplit(' ').next()? };
                // Further accounts are not known here.
                (is_service && !on.contains(" if ") && on != "worker accounts")
                    .then(|| format!("{who} {} {last}", role_of(role)))
            })
            .collect();
        let asked: Vec<String> = NEEDS
            .iter()
            .map(|need| {
                let place = Place { project: "p", region: "r", database: "d" };
                let of = named(need.resource, &place);
                let last = of.rsplit('/').next().unwrap().split('@').next().unwrap();
                format!("rekindle-{} {} {last}", need.account, need.permissions[0])
            })
            .collect();
        let sorted = |mut all: Vec<String>| {
            all.sort();
            all
        };
        assert_eq!(sorted(asked), sorted(granted));
    }

    fn role_of(role: &str) -> &str {
        match role {
            "rekindleTpu" => TPU[0],
            "roles/pubsub.publisher" => PUBLISH[0],
            "roles/iam.serviceAccountUser" => ACT_AS[0],
            "roles/cloudtasks.enqueuer" => "cloudtasks.tasks.create",
            "roles/run.invoker" => "run.routes.invoke",
            other => other,
        }
    }

    #[test]
    fn what_is_lacking_is_named() {
        let place = Place { project: "p", region: "r", database: "d" };
        let need = NEEDS.iter().find(|need| need.api == Api::Projects).unwrap();
        let held: Vec<String> = TPU.iter().map(|p| (*p).to_owned()).collect();
        assert_eq!(lacks(need, &place, &held), None);
        let lacking = lacks(need, &place, &held[1..]).unwrap();
        assert_eq!(lacking, "rekindle-reconcile lacks tpu.nodes.create on projects/p");
    }

    #[test]
    fn an_account_that_cannot_be_asked_is_told_beside_what_is_lacking_elsewhere() {
        let place = Place { project: "p", region: "r", database: "d" };
        let unasked = BTreeMap::from([("api", "denied".to_owned()), ("events", "denied".to_owned())]);
        let check = told(&place, &[], &unasked);
        assert!(check.found.contains("rekindle-api: denied; rekindle-events: denied"), "{}", check.found);
        assert_eq!(check.next.unwrap().matches("add-iam-policy-binding").count(), 2);
        let lacking = ["rekindle-reconcile lacks x".to_owned()];
        assert_eq!(told(&place, &lacking, &unasked).found, lacking[0]);
        assert_eq!(told(&place, &[], &BTreeMap::new()).next, None);
    }
}
