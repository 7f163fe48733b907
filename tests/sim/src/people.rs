//! People: they submit, cancel, pause, unpause and restart at any moment, by message or by HTTP, and send each message up to five times.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};

use rekindle_core::ids::JobId;

use crate::check;
use crate::deliver::{self, Parcel};
use crate::envelope::Envelope;
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
    // One of four goes by HTTP.
    if stage.world.rolls.index(For::Form, 4) == 0 {
        let (stage2, job, key) = (stage.clone(), job.to_owned(), key.to_owned());
        stage.world.exec.spawn(async move { ask(&stage2, &job, command, body, &key).await });
        return;
    }
    message(stage, key, command, &serde_json::to_vec(&body).unwrap_or_default(), 0);
}

/// A command by HTTP, again with the same key until it is answered, and perhaps once more after that. A restart may be for the attempt alone
/// that its person sees.
async fn ask(stage: &Arc<Stage>, job: &str, command: &str, mut body: Value, key: &str) {
    let world = &stage.world;
    let Ok(id) = JobId::parse(job) else { return };
    if let Some(fields) = body.as_object_mut() {
        fields.remove("id");
        let seen = lock(&world.checks).jobs.get(&id).map(|job| job.last_attempt);
        if let Some(attempt) = seen.filter(|_| command == "restart" && world.rolls.chance(For::Form, 0.5)) {
            fields.insert("if_attempt".into(), attempt.into());
        }
    }
    let path = format!("/v1/jobs/{job}/{command}");
    let mut again = world.rolls.chance(For::Form, 0.3);
    for _ in 0..60 {
        let headers = vec![("content-type", "application/json".into()), ("idempotency-key", key.to_owned())];
        let sent = Envelope { headers, body: serde_json::to_vec(&body).unwrap_or_default() };
        let away = world.goes_on(Fault::ApiOutage, None);
        let answer = if away { None } else { deliver::crashing(world, 60, deliver::send_to(stage, &path, sent)).await };
        if let Some((status, text)) = answer {
            world.trace(|| format!("api: {path} {status}"));
            check::on_answer(world, &id, command, key, status, &text);
            // Its submit may come later; what makes no sense, or is for another attempt, is told once.
            let is_over = status.is_success() || status == StatusCode::CONFLICT;
            if is_over && !std::mem::take(&mut again) {
                return;
            }
        }
        world.exec.sleep(world.rolls.between(For::Form, SEC, MIN)).await;
    }
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
            // Of hours, where faults go on for hours: what never comes is lost, and not late.
            let chaos = world.plan.chaos_us;
            let more = world.rolls.between(For::Delivery, DAY.min(chaos / 2), (3 * DAY).min(chaos / 4 * 3));
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
