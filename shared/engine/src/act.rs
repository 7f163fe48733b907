//! Carries out committed effects: look, done already?, act, classify. One failure does not stop the others; nothing waits for an operation.

use std::collections::BTreeMap;

use futures::future::join_all;
use jiff::Timestamp;

use rekindle_core::catalog;
use rekindle_core::decide::EffectOutcome;
use rekindle_core::effect::Effect;
use rekindle_core::job::{Generation, Job};
use rekindle_core::names;
use rekindle_core::observation::{CreateError, CreateErrorKind, SliceState};
use rekindle_ports::tpu::{CreateRequest, TpuError};

use crate::observe::{is_ours, slice_ref};
use crate::{Engine, tokens};

/// Node metadata keys that the agent reads.
pub mod metadata {
    /// Job id.
    pub const JOB: &str = "rekindle-job";
    /// Generation.
    pub const GENERATION: &str = "rekindle-generation";
    /// How many slices there are, if more than one: then the end of a node's name tells which it is.
    pub const SLICES: &str = "rekindle-slices";
    /// Nonce that admits the first hello.
    pub const NONCE: &str = "rekindle-nonce";
    /// Address of `api`.
    pub const API: &str = "rekindle-api";
}

impl Engine {
    pub(crate) async fn act(&self, job: &Job, effects: &[Effect], began: Timestamp) -> Vec<EffectOutcome> {
        let acts = effects.iter().map(|effect| async {
            if self.past_deadline(began) {
                return None;
            }
            match effect {
                Effect::CreateGeneration { generation } => match job.generation(*generation) {
                    Some(g) => Some(self.create(job, g).await),
                    None => None,
                },
                Effect::DeleteGeneration { generation } => match job.generation(*generation) {
                    Some(g) => Some(self.delete(job, g).await),
                    None => None,
                },
                Effect::PublishEvents => self.publish(job, began).await,
            }
        });
        join_all(acts).await.into_iter().flatten().collect()
    }

    async fn create(&self, job: &Job, g: &Generation) -> EffectOutcome {
        let generation = g.number;
        let request = self.create_request(job, g);
        let refused = |error| EffectOutcome::CreateRefused { generation, error };
        match self.ports.tpu.create(&request).await {
            Ok(operation) => EffectOutcome::CreateSent { generation, operation },
            Err(TpuError::Refused(error)) => refused(error),
            Err(TpuError::Exists) => self.adopt(g, &request).await,
            Err(TpuError::Denied(message)) => refused(CreateError { kind: CreateErrorKind::Forbidden, message }),
            Err(TpuError::Bad(message)) => refused(CreateError { kind: CreateErrorKind::Other, message }),
            Err(error @ (TpuError::Unclear(_) | TpuError::State(_) | TpuError::NotFound)) => {
                EffectOutcome::CreateUnclear { generation, why: error.to_string() }
            }
        }
    }

    /// The name exists: ours by every label, then it is the create that was sent before; else it is somebody else's.
    async fn adopt(&self, g: &Generation, request: &CreateRequest) -> EffectOutcome {
        let generation = g.number;
        match self.ports.tpu.get(&slice_ref(g)).await {
            Ok(Some(view)) if view.labels == request.labels => {
                EffectOutcome::CreateSent { generation, operation: String::new() }
            }
            Ok(Some(_)) => EffectOutcome::CreateRefused {
                generation,
                error: CreateError { kind: CreateErrorKind::NameTaken, message: not_this_jobs(g) },
            },
            Ok(None) => EffectOutcome::CreateUnclear { generation, why: "the name exists, but a read says 404".into() },
            Err(error) => EffectOutcome::CreateUnclear { generation, why: error.to_string() },
        }
    }

    async fn delete(&self, job: &Job, g: &Generation) -> EffectOutcome {
        let generation = g.number;
        let failed = |error: &TpuError| {
            let why = error.to_string();
            if matches!(error, TpuError::Denied(_)) {
                alert_of_denial(g, &why);
            }
            EffectOutcome::DeleteFailed { generation, why }
        };
        // A delete goes by the name alone, which somebody else may have taken.
        if g.is_unproved() {
            match self.ports.tpu.get(&slice_ref(g)).await {
                Ok(Some(view)) if is_ours(&self.installation.id, job, g, &view) => {}
                Ok(Some(_)) => return EffectOutcome::DeleteFailed { generation, why: not_this_jobs(g) },
                Ok(None) => return EffectOutcome::DeleteNotFound { generation },
                Err(error) => return failed(&error),
            }
        }
        match self.ports.tpu.delete(&slice_ref(g)).await {
            Ok(_) => EffectOutcome::DeleteSent { generation },
            Err(TpuError::NotFound) => EffectOutcome::DeleteNotFound { generation },
            // Refused because it is being deleted already, by the provider or by a call whose answer was lost: that is what was wanted.
            Err(error @ TpuError::State(_)) => match self.ports.tpu.get(&slice_ref(g)).await {
                Ok(Some(view)) if view.state == SliceState::Deleting => EffectOutcome::DeleteSent { generation },
                Ok(None) => EffectOutcome::DeleteNotFound { generation },
                Ok(Some(_)) | Err(_) => failed(&error),
            },
            Err(error) => failed(&error),
        }
    }

    async fn publish(&self, job: &Job, began: Timestamp) -> Option<EffectOutcome> {
        let mut through = None;
        for event in &job.outbox {
            // Of many, which a topic that was away for long leaves, as many as there is time for: what was sent is crossed off only when all
            // effects of the pass have ended.
            if self.past_deadline(began) {
                break;
            }
            // In order; what is left goes with the next pass.
            if let Err(error) = self.ports.events.publish(&job.id, event).await {
                tracing::warn!(job = %job.id, %error, "an event could not be published");
                break;
            }
            through = Some(event.sequence);
        }
        through.map(|through| EffectOutcome::Published { through })
    }

    fn create_request(&self, job: &Job, g: &Generation) -> CreateRequest {
        let spec = &job.spec.tpu;
        let runtime = spec
            .runtime_version
            .clone()
            .unwrap_or_else(|| catalog::default_runtime(&g.placement.accelerator).to_owned());
        let own = BTreeMap::from([
            (metadata::JOB.to_owned(), job.id.to_string()),
            (metadata::GENERATION.to_owned(), g.number.to_string()),
            (metadata::NONCE.to_owned(), tokens::nonce(&self.installation.secret, &job.id, g.number)),
            (metadata::API.to_owned(), self.deployment.api_url.clone()),
        ]);
        let mut metadata: BTreeMap<String, String> =
            self.deployment.worker_metadata.clone().into_iter().chain(own).collect();
        if g.slices > 1 {
            metadata.insert(metadata::SLICES.to_owned(), g.slices.to_string());
        }
        if let Some(script) = &self.deployment.startup_script {
            metadata.insert("startup-script".into(), script.clone());
        }
        CreateRequest {
            name: g.name.clone(),
            placement: g.placement.clone(),
            via: g.via,
            slices: g.slices,
            runtime_version: runtime,
            topology: spec.topology.clone(),
            reservation: spec.reservation.clone(),
            network: spec.network.network.clone(),
            subnetwork: spec.network.subnetwork.clone(),
            external_ips: spec.network.external_ips,
            service_account: spec
                .network
                .service_account
                .clone()
                .or_else(|| self.deployment.worker_service_account.clone()),
            tags: spec.network.tags.clone(),
            labels: names::labels(&self.installation.id, &job.id, g.number, &job.spec_hash),
            extra_labels: spec.network.labels.clone(),
            metadata,
            request_id: request_id(&self.installation.secret, job, g),
        }
    }
}

fn not_this_jobs(g: &Generation) -> String {
    format!("{} exists in {} and is not this job's", g.name, g.placement.zone)
}

/// A delete is tried each minute until it is allowed, which a person must see to; told once for each answer.
fn alert_of_denial(g: &Generation, why: &str) {
    let is_known = g.delete.as_ref().is_some_and(|delete| delete.last_error.as_deref() == Some(why));
    if !is_known {
        let (name, zone) = (&g.name, &g.placement.zone);
        tracing::error!(
            generation = g.number,
            name,
            zone,
            "a delete is not allowed, and its TPU is paid for: {name} in {zone}: {why}"
        );
    }
}

/// The same UUID for each repeat of this create, another one for any other.
fn request_id(secret: &str, job: &Job, g: &Generation) -> String {
    let hash = tokens::nonce(secret, &job.id, g.number);
    let tail = rekindle_ports::kinds::short_hash(&format!("{hash}/{}/{}", g.placement.zone, g.intended_at));
    // Version 4, variant 1, so that strict parsers take it.
    format!("{}-{}-4{}-8{}-{}", &tail[..8], &tail[8..12], &tail[13..16], &tail[17..20], &tail[20..32])
}
