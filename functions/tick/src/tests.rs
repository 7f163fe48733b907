//! Every answer of the tick.

use rekindle_rig::{Rig, raw, send, spec};
use rekindle_web::Door;

use crate::router;

async fn tick(rig: &Rig, body: Vec<u8>) -> u16 {
    let router = rig.mount(router(rig.engine.clone()), Door::Tick);
    send(&router, raw("/functions/tick", "application/octet-stream", body)).await.status.as_u16()
}

#[tokio::test]
async fn a_tick_hints_due_jobs() {
    let rig = Rig::new().await;
    let context = rekindle_core::spec::ParseContext {
        deployment: &rig.engine.deployment,
        caller: "ann@example.com",
        caller_is_admin: true,
    };
    let submit = rekindle_core::spec::parse(&spec("train"), &context).unwrap();
    rig.engine.submit(submit, "ann@example.com", "k").await.unwrap();
    rig.advance(60);
    assert_eq!(tick(&rig, Vec::new()).await, 204);
    assert_eq!(rig.hints().len(), 1, "the job is due from its submit on");
    assert_eq!(rig.hints()[0].0, "train");
}

#[tokio::test]
async fn any_body_is_taken_up_to_the_limit() {
    let rig = Rig::new().await;
    assert_eq!(tick(&rig, b"\xff\xfe not json".to_vec()).await, 204);
    assert_eq!(tick(&rig, vec![0; 10 << 20]).await, 413);
}

#[tokio::test]
async fn a_store_that_is_down_brings_503() {
    let rig = Rig::new().await;
    rig.fakes.docs.set_down(true);
    assert_eq!(tick(&rig, Vec::new()).await, 503);
}

#[tokio::test]
async fn fifty_ticks_at_once_are_all_answered() {
    let rig = Rig::new().await;
    let ticks = (0..50).map(|_| {
        let rig = rig.clone();
        tokio::spawn(async move { tick(&rig, Vec::new()).await })
    });
    for tick in ticks.collect::<Vec<_>>() {
        assert_eq!(tick.await.unwrap(), 204);
    }
}
