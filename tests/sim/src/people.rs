//! People: they submit, cancel, pause, unpause and restart at any moment, by message or by HTTP, and send each message up to five times.

use std::sync::Arc;

use serde_json::{Value, json};

use rekindle_core::ids::JobId;

use crate::deliver::{self, Parcel};
use crate::exec::lock;
use crate::fault::Fault;
use crate::plan::{JobPlan, Told, ZONES};
use crate::roll::{DAY, For, HOUR, MIN, SEC};
use crate::stage::Stage;

/// The reservation of every zone.
pub(crate) const RESERVATION: &str = "ours";

/// The spec of a job.
pub(crate) fn spec(job: &JobPlan) -> Value {
    let mut spec = json!({
        "id": job.id,
        "run": ["python3", "train.py"],
        "tpu": {
            "accelerator": job.accelerator,
            "capacity": job.capacity,
            "queued": job.queued,
            "slices": job.slices,
        },
        "priority": job.priority,
        "owner": "research",
    });
    if job.capacity.contains(&"reserved") {
        spec["tpu"]["reservation"] = RESERVATION.into();
    }
    if !job.zones.is_empty() {
        spec["tpu"]["zones"] = job.zones.iter().map(|z| ZONES[z % ZONES.len()]).collect();
    }
    if job.setup_us > 0 {
        spec["setup"] = "pip install -r requirements.txt".into();
    }
    for (key, value) in job.more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    spec
}

/// Everybody does what is planned.
pub(crate) fn begin(stage: &Arc<Stage>) {
    for job in &stage.world.plan.jobs {
        let data = serde_json::to_vec(&spec(job)).unwrap_or_default();
        message(stage, &format!("submit-{}", job.id), "submit", &data, job.submit_at - stage.world.now());
    }
    let stage2 = stage.clone();
    stage.world.exec.spawn(async move {
        let acts = stage2.world.plan.acts.clone();
        for (n, act) in acts.iter().enumerate() {
            stage2.world.exec.sleep_until(act.at).await;
            if stage2.world.is_calm() {
                return;
            }
            tell(&stage2, &stage2.world.plan.jobs[act.job].id, act.told, &format!("act-{n}"));
            stage2.world.count_fault(Fault::Person);
        }
    });
    stage.world.exec.spawn(freeze(stage.clone()));
}

/// Tells a job something, by a message.
pub(crate) fn tell(stage: &Arc<Stage>, job: &str, told: Told, key: &str) {
    let (command, body) = match told {
        Told::Cancel => ("cancel", json!({"id": job})),
        Told::Pause => ("pause", json!({"id": job})),
        Told::Unpause => ("unpause", json!({"id": job})),
        Told::Wake => ("wake", json!({"id": job})),
        Told::Restart { new_slice, from_scratch } => {
            ("restart", json!({"id": job, "new_slice": new_slice, "from_scratch": from_scratch}))
        }
    };
    if let Ok(id) = JobId::parse(job) {
        lock(&stage.world.truth).of(&id).told.push(told);
    }
    stage.world.trace(|| format!("person: {command} {job}"));
    message(stage, key, command, &serde_json::to_vec(&body).unwrap_or_default(), 0);
}

/// A message, once or up to five times, perhaps late.
fn message(stage: &Arc<Stage>, id: &str, command: &str, data: &[u8], wait: i64) {
    let world = &stage.world;
    let again = world.strikes(Fault::MessageAgain, For::Delivery);
    let copies = if again { world.rolls.between(For::Delivery, 2, 5) } else { 1 };
    for _ in 0..copies {
        let late = world.strikes(Fault::MessageLate, For::Delivery);
        let days = world.strikes(Fault::MessageDays, For::Delivery);
        let more = if days {
            let more = world.rolls.between(For::Delivery, DAY, 3 * DAY);
            // What is submitted is to live through some of the faults.
            let last = world.plan.calm_from() - HOUR - world.now() - wait;
            if command == "submit" { more.min(last.max(0)) } else { more }
        } else if late {
            world.rolls.between(For::Delivery, SEC, HOUR)
        } else {
            world.rolls.about(For::Delivery, SEC / 10)
        };
        let parcel = Parcel::message(id, command, data.to_owned(), world.now() + wait);
        deliver::send(stage, parcel, wait + more);
    }
}

/// A person freezes the installation while the plan says so.
async fn freeze(stage: Arc<Stage>) {
    let world = stage.world.clone();
    let mut windows: Vec<(i64, i64)> =
        world.plan.windows.iter().filter(|w| w.fault == Fault::Freeze).map(|w| (w.from, w.to)).collect();
    windows.sort_unstable();
    for (from, to) in windows {
        world.exec.sleep_until(from).await;
        world.count_fault(Fault::Freeze);
        insist(&stage, "/v1/freeze").await;
        world.exec.sleep_until(to).await;
        insist(&stage, "/v1/thaw").await;
    }
}

/// Calls until it is answered well.
pub(crate) async fn insist(stage: &Arc<Stage>, path: &str) {
    for _ in 0..200 {
        let (status, _) = deliver::post(stage, path, None, b"{}".to_vec()).await;
        if status.is_success() {
            return;
        }
        stage.world.exec.sleep(MIN / 4).await;
    }
}
