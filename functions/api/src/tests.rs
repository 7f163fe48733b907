//! The API through its router.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Method, Request};
use serde_json::Value;

use rekindle_rig::{Answer, CALLER, Rig, post, send, spec};
use rekindle_web::caller::{Loopback, guard};
use rekindle_web::{Door, layers};

use crate::Api;

mod agents;
mod bounds;
mod ended;
mod gaps;
mod labels;
mod letters;
mod logs;
mod objects;
mod people;
mod policy;
mod retold;
mod seeing;
mod site;
mod space;
mod stored;

/// Everything that `api` serves, over one rig.
struct Served {
    rig: Rig,
    router: Router,
}

impl Served {
    async fn new() -> Self {
        Self::over(Rig::new().await, crate::SILENCE_MAX)
    }

    fn over(rig: Rig, silence_max: Duration) -> Self {
        let mut api =
            Api::new(rig.engine.clone(), Arc::new(Loopback { identity: CALLER.into() }), Some(Arc::new(objects::Gate)));
        api.silence_max = silence_max;
        let rest = crate::agents(api.clone()).merge(crate::open(api.clone())).merge(crate::local_objects(api.clone()));
        let people = guard(crate::people(api), Arc::new(Loopback { identity: CALLER.into() }), Door::People);
        let router = layers::common(people.merge(rest), rig.engine.settings.handler_deadline);
        Self { rig, router }
    }

    /// With a job `train` whose four workers are awaited.
    async fn with_job() -> Self {
        Self::new().await.and_job(&spec("train")).await
    }

    /// The same, where the job asks for outputs.
    async fn with_outputs() -> Self {
        let mut spec = spec("train");
        spec["outputs"] = serde_json::json!(["results"]);
        Self::new().await.and_job(&spec).await
    }

    /// The same, where a follow is silent for so long at most.
    async fn with_silence(silence_max: Duration) -> Self {
        Self::over(Rig::new().await, silence_max).and_job(&spec("train")).await
    }

    async fn and_job(self, spec: &Value) -> Self {
        assert!(self.post("/v1/jobs", spec).await.status.is_success());
        for _ in 0..4 {
            self.rig.pass("train").await;
            self.rig.advance(1);
        }
        self.rig.fakes.hints.take();
        self
    }

    async fn get(&self, path: &str) -> Answer {
        send(&self.router, rekindle_rig::get(path)).await
    }

    async fn get_with(&self, path: &str, header: &str, value: &str) -> Answer {
        send(&self.router, Request::get(path).header(header, value).body(Body::empty()).unwrap()).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        send(&self.router, post(path, body)).await
    }

    /// A POST without a body.
    async fn tell(&self, path: &str) -> Answer {
        send(&self.router, Request::post(path).body(Body::empty()).unwrap()).await
    }

    async fn put(&self, path: &str, token: &str, body: impl Into<Body>) -> Answer {
        let request =
            Request::builder().method(Method::PUT).uri(path).header("authorization", format!("Bearer {token}"));
        send(&self.router, request.body(body.into()).unwrap()).await
    }
}
