//! Whose jobs messages may tell what: as the policy says of their common name, also while jobs come.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use axum::{Extension, Router};
use serde_json::json;

use rekindle_core::access::Access;
use rekindle_core::job::Desired;
use rekindle_core::settings::Deployment;
use rekindle_core::spec::{ParseContext, parse};
use rekindle_fakes::MemoryDocs;
use rekindle_ports::docs::{self, Doc, Docs, DocsError, Page, Precondition, Revision, Write};
use rekindle_ports::store::Store;
use rekindle_rig::{CALLER, Rig, spec};
use rekindle_web::Caller;

use super::message;
use crate::{Jobs, Name, router};

const JOB: &str = "jobs/train";

/// A store into which a job comes right after somebody was told that it is not there.
struct Late {
    docs: Arc<MemoryDocs>,
    job: Mutex<Vec<Write>>,
}

#[async_trait]
impl Docs for Late {
    async fn get(&self, path: &str) -> Result<Option<Doc>, DocsError> {
        let found = self.docs.get(path).await?;
        let job = if path == JOB { std::mem::take(&mut *self.job.lock().unwrap()) } else { Vec::new() };
        if !job.is_empty() {
            self.docs.commit(job).await?;
        }
        Ok(found)
    }

    async fn get_many(&self, paths: &[String]) -> Result<(Vec<Option<Doc>>, Revision), DocsError> {
        self.docs.get_many(paths).await
    }

    async fn query(&self, query: &docs::Query) -> Result<Page, DocsError> {
        self.docs.query(query).await
    }

    async fn commit(&self, writes: Vec<Write>) -> Result<Revision, DocsError> {
        self.docs.commit(writes).await
    }
}

/// What is written for a job that a person submits.
async fn of_a_person() -> Vec<Write> {
    let rig = Rig::new().await;
    let context = ParseContext { deployment: &rig.engine.deployment, caller: CALLER, caller_is_admin: false };
    let submit = parse(&spec("train"), &context).unwrap();
    Box::pin(rig.engine.submit(submit, CALLER, "1")).await.unwrap();
    let docs = rig.fakes.docs.dump().into_iter().filter(|doc| doc.path.starts_with(JOB));
    docs.map(|doc| Write::Put { path: doc.path, content: doc.content, when: Precondition::None }).collect()
}

/// Behind a door that lets triggers in, where messages may do everything to jobs of their own.
async fn mount(job: Vec<Write>) -> (Rig, Router) {
    let mut rig = Rig::new().await;
    let access: Access = serde_json::from_value(json!({"rules": []})).unwrap();
    rig.engine.deployment = Arc::new(Deployment { access, ..Deployment::clone(&rig.engine.deployment) });
    rig.engine.ports.store = Store::new(Arc::new(Late { docs: rig.fakes.docs.clone(), job: Mutex::new(job) }));
    let jobs = Jobs { engine: rig.engine.clone(), may: Arc::new(Name::ALL.into_iter().collect()) };
    let trigger = Caller { identity: "push@p.iam.gserviceaccount.com".into(), is_admin: false };
    let router = router(jobs).layer(Extension(trigger));
    (rig, router)
}

#[tokio::test]
async fn a_command_does_nothing_to_a_job_that_another_owner_submits_meanwhile() {
    let train = json!({"id": "train"});
    for command in ["cancel", "pause"] {
        let (rig, router) = mount(of_a_person().await).await;
        assert_eq!(message(&router, "1", Some(command), &train).await, 503, "{command}: not yet");
        let job = rig.job("train").await.unwrap();
        assert_eq!((job.spec.owner.as_str(), job.desired, job.revision), (CALLER, Desired::Run, 1), "{command}");
        assert_eq!(message(&router, "1", Some(command), &train).await, 204);
        let told = rig.dead_reasons().concat();
        assert!(told.contains(&format!("does not let messages {command} job train")), "{told}");
        assert_eq!(rig.job("train").await.unwrap().desired, Desired::Run);
        assert!(rig.hints().is_empty());
    }
}

#[tokio::test]
async fn a_command_waits_for_a_job_of_messages_and_changes_it_then() {
    let (rig, router) = mount(Vec::new()).await;
    let train = json!({"id": "train"});
    assert_eq!(message(&router, "1", Some("cancel"), &train).await, 503);
    assert_eq!(message(&router, "2", None, &spec("train")).await, 204);
    assert_eq!(message(&router, "1", Some("cancel"), &train).await, 204);
    assert_eq!(rig.job("train").await.unwrap().desired, Desired::Cancel);
    rig.advance(620);
    assert_eq!(message(&router, "3", Some("cancel"), &json!({"id": "nobody"})).await, 204);
    assert!(rig.dead_reasons().concat().contains("there is no job nobody"), "{:?}", rig.dead_reasons());
}
