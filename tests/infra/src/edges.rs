//! Who may do what: the plan's edges against `infra/iam-edges.csv`, in both directions, and what must hold for all of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use crate::files::infra;
use crate::plan::{Plan, Planned, bootstrap, example};

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct Edge {
    principal: String,
    role: String,
    resource: String,
    #[serde(default)]
    why: String,
}

fn listed() -> Vec<Edge> {
    let mut reader = csv::Reader::from_path(infra().join("iam-edges.csv")).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

fn text<'a>(planned: &'a Planned, name: &str) -> &'a str {
    planned.values[name].as_str().unwrap_or_else(|| panic!("{} has no {name}", planned.address))
}

/// What both root modules would make: an edge may stand in either.
fn everything() -> Plan {
    let mut plan = example();
    plan.resources.extend(bootstrap().resources);
    plan
}

/// The example's further worker account, one for all that there may be.
const RESEARCH: &str = "research@my-project.iam.gserviceaccount.com";

/// The name by which the file knows a principal of the example.
fn principal(member: &str) -> String {
    let (kind, email) = member.split_once(':').unwrap();
    let name = match email {
        "ada@example.com" | "ci@my-project.iam.gserviceaccount.com" => "people",
        "cron@my-project.iam.gserviceaccount.com" => "publishers",
        RESEARCH => "worker accounts",
        "service-123456789012@gcp-sa-pubsub.iam.gserviceaccount.com" => "pubsub agent",
        "service-123456789012@gcp-sa-logging.iam.gserviceaccount.com" => "sink writer",
        other => other.strip_suffix("@my-project.iam.gserviceaccount.com").unwrap_or_else(|| panic!("who is {other}?")),
    };
    let is_person = email == "ada@example.com";
    assert_eq!(kind, if is_person { "user" } else { "serviceAccount" }, "{member}");
    name.to_owned()
}

/// The name by which the file knows a role: predefined ones as they are, ours by their id.
fn role(name: &str) -> String {
    name.strip_prefix("projects/my-project/roles/").unwrap_or(name).to_owned()
}

/// What the edge is on, with the title of its condition.
fn resource(planned: &Planned) -> String {
    let of = |name: &str| text(planned, name);
    let last = |name: &str| of(name).rsplit('/').next().unwrap().to_owned();
    let what = match planned.ty.as_str() {
        "google_project_iam_member" => "project".to_owned(),
        "google_service_account_iam_member" => {
            let account = last("service_account_id");
            let named = principal(&format!("serviceAccount:{account}"));
            if account == RESEARCH { named } else { format!("account {named}") }
        }
        "google_cloud_tasks_queue_iam_member" => format!("queue {}", of("name")),
        "google_pubsub_topic_iam_member" => format!("topic {}", of("topic")),
        "google_pubsub_subscription_iam_member" => format!("subscription {}", of("subscription")),
        "google_cloud_run_v2_service_iam_member" => format!("service {}", of("name")),
        "google_storage_bucket_iam_member" => "bucket".to_owned(),
        "google_secret_manager_secret_iam_member" if of("member").ends_with(RESEARCH) => {
            "secrets lent to whoever may name it".to_owned()
        }
        "google_secret_manager_secret_iam_member" => "secrets that jobs may borrow".to_owned(),
        other => panic!("{other} is a kind of edge that this test does not know"),
    };
    match planned.values["condition"][0]["title"].as_str() {
        Some(title) => format!("{what} if {title}"),
        None => what,
    }
}

fn planned(plan: &Plan) -> Vec<(Edge, &Planned)> {
    let lets_in = |ty: &str| ["_iam_", "_acl", "access_control"].iter().any(|part| ty.contains(part));
    let is_edge = |r: &&Planned| lets_in(&r.ty) && r.ty != "google_project_iam_custom_role";
    let edge = |r| Edge {
        principal: principal(text(r, "member")),
        role: role(text(r, "role")),
        resource: resource(r),
        why: String::new(),
    };
    plan.resources.iter().filter(is_edge).map(|r| (edge(r), r)).collect()
}

#[test]
fn every_edge_is_listed_and_every_listed_edge_is_there() {
    let plan = everything();
    let there: BTreeSet<Edge> = planned(&plan).into_iter().map(|(edge, _)| edge).collect();
    let listed_with_why = listed();
    let listed: BTreeSet<Edge> = listed_with_why.iter().map(|e| Edge { why: String::new(), ..e.clone() }).collect();
    let line = |e: &Edge| format!("{},{},{}", e.principal, e.role, e.resource);
    let extra: Vec<String> = there.difference(&listed).map(line).collect();
    let missing: Vec<String> = listed.difference(&there).map(line).collect();
    assert!(extra.is_empty(), "not in iam-edges.csv:\n{}", extra.join("\n"));
    assert!(missing.is_empty(), "in iam-edges.csv only:\n{}", missing.join("\n"));
    assert_eq!(listed.len(), listed_with_why.len(), "a line stands twice");
    assert!(listed_with_why.iter().all(|e| e.why.split_whitespace().count() >= 3), "each line says why");
}

/// The permissions of the custom roles.
fn custom_roles(plan: &Plan) -> BTreeMap<String, Vec<String>> {
    let permissions = |r: &Planned| {
        r.values["permissions"].as_array().unwrap().iter().map(|p| p.as_str().unwrap().to_owned()).collect()
    };
    plan.of("google_project_iam_custom_role").map(|r| (text(r, "role_id").to_owned(), permissions(r))).collect()
}

/// The predefined roles that may be used: each is for one kind of call, and none holds a right on TPUs.
const PREDEFINED: &[&str] = &[
    "roles/cloudtasks.enqueuer",
    "roles/eventarc.eventReceiver",
    "roles/iam.serviceAccountUser",
    "roles/pubsub.publisher",
    "roles/pubsub.subscriber",
    "roles/run.invoker",
    "roles/secretmanager.secretAccessor",
];

#[test]
fn only_reconcile_holds_rights_on_tpus() {
    let plan = everything();
    let roles = custom_roles(&plan);
    let mut holders = BTreeSet::new();
    for (edge, planned) in planned(&plan) {
        match roles.get(&edge.role) {
            Some(permissions) if permissions.iter().any(|p| p.starts_with("tpu.")) => {
                holders.insert(edge.principal);
            }
            Some(_) => {}
            None => assert!(PREDEFINED.contains(&edge.role.as_str()), "{}: {}", planned.address, edge.role),
        }
    }
    assert_eq!(holders, BTreeSet::from(["rekindle-reconcile".to_owned()]));
}

/// Each custom role: its permissions, and what calls them. A call without its permission is refused, and one that nobody makes is too much.
const CUSTOM: &[(&str, &[(&str, &str)])] = &[
    (
        "rekindleDocuments",
        &[
            ("datastore.databases.get", "every call names the database; Google's own roles for documents hold it"),
            (
                "datastore.entities.create",
                "Commit of a document that is to be absent: a submit, a receipt, an entry of history",
            ),
            ("datastore.entities.delete", "Commit that takes one away: the jobs and receipts that the sweep ends"),
            ("datastore.entities.get", "BatchGetDocuments, and RunQuery"),
            ("datastore.entities.list", "RunQuery: due jobs, lists of jobs, history"),
            ("datastore.entities.update", "Commit of a document that is there: each decision of a pass, each report"),
        ],
    ),
    (
        "rekindleTpu",
        // The documented permissions of Cloud TPU. Queued resources have none of their own.
        &[
            ("tpu.nodes.create", "CreateNode, CreateQueuedResource"),
            ("tpu.nodes.delete", "DeleteNode, DeleteQueuedResource"),
            ("tpu.nodes.get", "GetNode, GetQueuedResource"),
            ("tpu.nodes.list", "ListNodes, ListQueuedResources"),
            ("tpu.operations.get", "GetOperation"),
        ],
    ),
    (
        "rekindleObjects",
        &[
            ("storage.objects.create", "a chunk of a log is put, and an upload of a bundle is begun"),
            ("storage.objects.get", "logs and outputs are read, and the size of a bundle is looked at"),
            ("storage.objects.list", "the chunks of a log and the outputs of a job are listed"),
        ],
    ),
    ("rekindleReplace", &[("storage.objects.delete", "a put in the place of an object that is there")]),
    (
        "rekindleBucket",
        &[
            ("storage.buckets.get", "Orbax looks at the bucket before it saves"),
            ("storage.objects.list", "only who may list is told 404 for what is not there"),
        ],
    ),
    (
        "rekindleCheckpoints",
        &[
            ("storage.multipartUploads.abort", "a client gives up an upload in parts"),
            ("storage.multipartUploads.create", "clients write great files in parts"),
            ("storage.multipartUploads.listParts", "and ask which parts are there"),
            ("storage.objects.create", "a checkpoint is written"),
            ("storage.objects.delete", "old checkpoints are deleted, and a rename deletes the old name"),
            ("storage.objects.get", "a checkpoint is restored"),
            ("storage.objects.list", "the newest checkpoint is looked for"),
        ],
    ),
    ("rekindleArtefacts", &[("storage.objects.get", "the agent, or a bundle, by its digest")]),
];

#[test]
fn custom_roles_hold_what_is_called_and_no_more() {
    let roles = custom_roles(&everything());
    let names = |holds: &[(&str, &str)]| holds.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>();
    let wanted: BTreeMap<String, Vec<String>> =
        CUSTOM.iter().map(|(role, holds)| ((*role).to_owned(), names(holds))).collect();
    assert_eq!(roles, wanted);
    for (role, permissions) in roles {
        for permission in permissions {
            let parts: Vec<&str> = permission.split('.').collect();
            assert!(parts.len() == 3 && !permission.contains('*'), "{role}: {permission}");
            assert!(!permission.ends_with("etIamPolicy"), "{role}: {permission}");
        }
    }
}

#[test]
fn rights_on_the_project_and_the_bucket_are_bounded() {
    let plan = everything();
    let roles = custom_roles(&plan);
    for (edge, planned) in planned(&plan) {
        let condition = planned.values["condition"][0]["expression"].as_str();
        match edge.resource.as_str() {
            "project" => {
                let known = ["rekindleTpu", "roles/eventarc.eventReceiver"];
                assert!(known.contains(&edge.role.as_str()), "{} holds for the whole project", planned.address);
            }
            // Names, and no content: an absent checkpoint must be told from a forbidden one.
            "bucket" => {
                assert_eq!(edge.role, "rekindleBucket", "{} holds for the whole bucket", planned.address);
                assert_eq!(roles["rekindleBucket"], ["storage.buckets.get", "storage.objects.list"]);
            }
            "bucket if rekindle-outputs" => {
                let jobs = "resource.name.startsWith('projects/_/buckets/my-project-rekindle/objects/jobs/')";
                let outputs = "resource.name.extract('/objects/jobs/{job}/outputs/') != ''";
                assert_eq!(condition, Some(format!("{jobs} && {outputs}").as_str()), "{}", planned.address);
            }
            place if place.starts_with("bucket if rekindle-") => {
                let folder = place.strip_prefix("bucket if rekindle-").unwrap();
                // One of the worker accounts is kept to the jobs of its team.
                let is_kept = text(planned, "member").contains("research@") && edge.role == "rekindleCheckpoints";
                let begin = if is_kept { "jobs/research-".to_owned() } else { format!("{folder}/") };
                let object =
                    format!("resource.name.startsWith('projects/_/buckets/my-project-rekindle/objects/{begin}')");
                let list =
                    format!("api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('{begin}')");
                assert_eq!(condition, Some(format!("{object} || {list}").as_str()), "{}", planned.address);
            }
            "project if rekindle-database" => {
                let database = "resource.name == 'projects/my-project/databases/rekindle'";
                assert_eq!(condition, Some(database), "{}", planned.address);
            }
            _ => assert_eq!(condition, None, "{}", planned.address),
        }
    }
}

#[test]
fn workers_call_only_api_and_write_only_below_jobs() {
    let plan = everything();
    let roles = custom_roles(&plan);
    let writes = |role: &str| {
        roles
            .get(role)
            .is_some_and(|ps| ps.iter().any(|p| p.contains("create") || p.contains("delete") || p.contains("update")))
    };
    let mut called = BTreeSet::new();
    let mut written = BTreeSet::new();
    let is_worker = |e: &Edge| e.principal == "rekindle-worker" || e.principal == "worker accounts";
    for (edge, _) in planned(&plan).into_iter().filter(|(e, _)| is_worker(e)) {
        if edge.role == "roles/run.invoker" {
            called.insert(edge.resource.clone());
        }
        if writes(&edge.role) {
            written.insert(edge.resource.clone());
        }
        assert!(!edge.resource.starts_with("project"), "{edge:?}");
    }
    assert_eq!(called, BTreeSet::from(["service rekindle-api".to_owned()]));
    assert_eq!(written, BTreeSet::from(["bucket if rekindle-jobs".to_owned()]));
}

#[test]
fn a_worker_account_reads_the_secrets_that_are_lent_to_whoever_may_name_it() {
    let plan = everything();
    let of = |account: &str| -> BTreeSet<String> {
        let edges = plan.of("google_secret_manager_secret_iam_member").filter(|r| text(r, "member").ends_with(account));
        edges.map(|r| text(r, "secret_id").to_owned()).collect()
    };
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
    assert_eq!(of(":rekindle-worker@my-project.iam.gserviceaccount.com"), set(&["wandb", "research-key", "other-key"]));
    // Not what is lent to somebody who may not name it.
    assert_eq!(of(RESEARCH), set(&["research-key"]));
}

#[test]
fn each_worker_account_has_every_edge_of_the_usual_one() {
    let edges: Vec<(String, String)> = listed()
        .into_iter()
        .filter(|e| e.role != "roles/secretmanager.secretAccessor")
        .filter_map(|e| match e.principal.as_str() {
            who @ ("rekindle-worker" | "worker accounts") => {
                Some((who.to_owned(), format!("{},{}", e.role, e.resource)))
            }
            _ => None,
        })
        .collect();
    let of = |who: &str| edges.iter().filter(|(own, _)| own == who).map(|(_, edge)| edge).collect::<BTreeSet<_>>();
    assert_eq!(of("rekindle-worker"), of("worker accounts"));
}

#[test]
fn nobody_is_let_in_without_an_account() {
    let plan = everything();
    for r in &plan.resources {
        let text = r.values.to_string();
        assert!(!text.contains("allUsers") && !text.contains("allAuthenticatedUsers"), "{}", r.address);
        assert_ne!(r.values["invoker_iam_disabled"], Value::Bool(true), "{}", r.address);
    }
}
