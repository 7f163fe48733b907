//! What an agent should do now: derived from the job document alone, so that any `api` instance gives the same answer.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::exec::{ExecOrder, orders_for};
use crate::ids::WorkerKey;
use crate::job::{Attempt, Generation, Job, StopCause};
use crate::names;
use crate::observation::{Notice, NoticeKind};
use crate::settings::{Deployment, Settings};
use crate::spec::{CheckpointSpec, CommandLine};

/// What the agent is to bring about for its attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Want {
    /// End anything older than this attempt, prove it, run `setup` if it was not done, and say ready.
    Prepare,
    /// Run the program (once for this attempt).
    Run,
    /// End the program of this attempt: SIGTERM, then SIGKILL at the deadline; report the exit.
    Stop,
    /// End everything and leave: this generation is of no use any more.
    Retire,
}

/// The answer to every call of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The attempt it speaks of. A higher one than the agent knows ends the older program first.
    pub attempt: u32,
    /// What to bring about.
    pub want: Want,
    /// Next call after so many milliseconds.
    pub poll_after_ms: u64,
    /// A heartbeat is written at least each so many milliseconds.
    pub heartbeat_ms: u64,
    /// With `stop`: when the program is killed if it still lives.
    pub kill_at: Option<Timestamp>,
    /// With `stop`: why.
    pub cause: Option<StopCause>,
    /// A notice of the slice, for the notice file.
    pub notice: Option<Notice>,
    /// What to run; absent when the agent has it already or must leave.
    pub work: Option<Work>,
    /// Orders of people to a workspace; one with a number that was carried out is not again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exec: Vec<ExecOrder>,
}

/// What runs in one attempt on one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// The program.
    pub run: CommandLine,
    /// Once per worker and generation.
    pub setup: Option<CommandLine>,
    /// Bundle address.
    pub code: Option<String>,
    /// The job's own environment and ours (contract section 4), ours not overridden where it must not be.
    pub env: BTreeMap<String, String>,
    /// Variables whose values the agent reads from Secret Manager, and the versions that it reads. Never their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Empty the working directory before this attempt, unpack the code anew and run `setup` again.
    #[serde(default)]
    pub clean: bool,
    /// Patterns of files that are collected at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outputs: Vec<String>,
    /// Between SIGTERM and SIGKILL, in milliseconds, when the agent itself ends the program (a notice it saw).
    pub stop_grace_ms: u64,
    /// The highest step of the job so far: the next is not far beyond it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub highest_step: Option<u64>,
}

impl Work {
    /// True where no program runs, but what people order.
    pub fn is_workspace(&self) -> bool {
        matches!(&self.run, CommandLine::Argv(words) if words.is_empty())
    }
}

/// The attempt that this generation's agents serve: the newest on it.
pub fn attempt_of(job: &Job, generation: u32) -> Option<&Attempt> {
    job.attempts.iter().rev().find(|a| a.generation == generation)
}

/// The order for one worker of one generation, which has the work of the attempt `held` already, if it has any.
pub fn order_for(job: &Job, generation: u32, key: WorkerKey, held: Option<u32>, at: &Context<'_>) -> Order {
    let mut order = order_to_all(job, generation, at.settings);
    let (Some(g), Some(attempt)) = (job.generation(generation), attempt_of(job, generation)) else { return order };
    // Where the workers meet is told by the API with READY, and an agent keeps the first work that it gets: one that calls while its slice
    // is still being made gets it a moment later. (Found by the simulation: programs had a coordinator without a host.)
    let is_too_soon = order.want == Want::Prepare && g.addresses.is_empty();
    if held != Some(attempt.number) && !is_too_soon {
        order.work = Some(work_for(job, g, attempt, key, at));
    }
    if order.want == Want::Run {
        order.exec = orders_for(job, attempt.number, key, at.now);
    }
    if job.spec.workspace {
        order.poll_after_ms = poll_of_workspace(&order, is_awaited(job, generation, at.now), at.settings);
    }
    order
}

/// Whether somebody may wait for what the workers of a workspace do next: it comes up, or was given an order lately.
pub fn is_awaited(job: &Job, generation: u32, now: Timestamp) -> bool {
    let Some(attempt) = attempt_of(job, generation).filter(|_| job.spec.workspace) else { return false };
    let ordered = job.execs.iter().map(ExecOrder::told_at).max();
    let last = [Some(attempt.created_at), attempt.started_at, ordered].into_iter().flatten().max();
    last.is_some_and(|last| now.duration_since(last) < AWAITED_FOR)
}

fn poll_of_workspace(order: &Order, is_awaited: bool, settings: &Settings) -> u64 {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(1000);
    match is_awaited {
        true => ms(settings.poll_busy),
        false if order.poll_after_ms == ms(settings.poll_steady) => ms(settings.poll_idle),
        false => order.poll_after_ms,
    }
}

/// What the orders for the workers of one generation have in common: all but their work and people's orders.
pub fn order_to_all(job: &Job, generation: u32, settings: &Settings) -> Order {
    let busy = u64::try_from(settings.poll_busy.as_millis()).unwrap_or(1000);
    let steady = u64::try_from(settings.poll_steady.as_millis()).unwrap_or(4000);
    let Some(g) = job.generation(generation) else {
        return Order {
            attempt: job.last_attempt,
            want: Want::Retire,
            poll_after_ms: busy,
            heartbeat_ms: steady,
            kill_at: None,
            cause: None,
            notice: None,
            work: None,
            exec: Vec::new(),
        };
    };
    let heartbeat_ms = u64::try_from(settings.heartbeat_told(g.chips_per_worker()).as_millis()).unwrap_or(20_000);
    let Some(attempt) = attempt_of(job, generation) else {
        return Order {
            attempt: job.last_attempt,
            want: Want::Stop,
            poll_after_ms: busy,
            heartbeat_ms,
            kill_at: Some(g.intended_at),
            cause: Some(StopCause::Lost),
            notice: g.notice.clone(),
            work: None,
            exec: Vec::new(),
        };
    };
    let want = match (&attempt.stop, attempt.released_at) {
        (Some(_), _) => Want::Stop,
        (None, Some(_)) => Want::Run,
        (None, None) => Want::Prepare,
    };
    let is_steady = want == Want::Run && attempt.started_at.is_some() && attempt.first_exit_at.is_none();
    Order {
        attempt: attempt.number,
        want,
        poll_after_ms: if is_steady { steady } else { busy },
        heartbeat_ms,
        kill_at: attempt.stop.as_ref().map(|s| s.deadline),
        cause: attempt.stop.as_ref().map(|s| s.cause),
        notice: g.notice.clone(),
        work: None,
        exec: Vec::new(),
    }
}

impl Order {
    /// The same for an agent that is rung when its orders change: it asks with its heartbeat, and a few times a minute
    /// while it waits for the next step.
    #[must_use]
    pub fn with_bell(mut self, settings: &Settings) -> Self {
        let steady = u64::try_from(settings.poll_steady.as_millis()).unwrap_or(4000);
        let idle = u64::try_from(settings.poll_idle.as_millis()).unwrap_or(10_000);
        let times = if self.want == Want::Prepare { PREPARING_WITH_BELL } else { BUSY_WITH_BELL };
        let rare =
            if [steady, idle].contains(&self.poll_after_ms) { self.heartbeat_ms } else { self.poll_after_ms * times };
        self.poll_after_ms = rare.min(self.heartbeat_ms);
        self
    }
}

/// Who gave an order to a workspace, or brings it up, soon gives the next one: its agents ask each second for so long, with a bell or without.
const AWAITED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The byte with which an agent is rung because its orders changed.
pub const BELL_CHANGED: u8 = b'!';

/// The byte with which an agent gets to know that it can be rung, before anything rests on it.
pub const BELL_HERE: u8 = b'.';

/// How much rarer an agent with a bell asks outside steady running: before its slice is READY nobody knows where to ring.
const BUSY_WITH_BELL: u64 = 5;

/// The same while it prepares: its own steps it reports at once, and a bell that is lost only delays the start.
const PREPARING_WITH_BELL: u64 = 15;

/// What [`order_for`] needs beside the job.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Numbers.
    pub settings: &'a Settings,
    /// Addresses.
    pub deployment: &'a Deployment,
    /// The time.
    pub now: Timestamp,
}

/// First port of the range from which coordinator ports are taken; each attempt uses another one.
// Above the ports of TPU runtimes (8431 to 8476) and below the usual ephemeral range (32768 on Linux).
const COORDINATOR_PORT_FIRST: u32 = 21_000;
const COORDINATOR_PORTS: u32 = 10_000;

/// The checkpoint folder of a job's line in a region.
pub fn checkpoint_dir(job: &Job, line: u32, region: &str, bucket: &str) -> String {
    let base = match &job.spec.checkpoint {
        CheckpointSpec::Default => format!("{}/jobs/{}/checkpoints", bucket.trim_end_matches('/'), job.id),
        CheckpointSpec::Folder(folder) => folder.trim_end_matches('/').to_owned(),
        // A map names buckets, and each job has its own folder in them.
        CheckpointSpec::ByRegion(map) => {
            let bucket = map.get(region).map_or(bucket, String::as_str);
            format!("{}/jobs/{}/checkpoints", bucket.trim_end_matches('/'), job.id)
        }
    };
    match line {
        0 => base,
        // Other jobs may go on from the same folder, each with lines of its own.
        line if job.spec.resume => format!("{base}/{}/r{line}", job.id),
        line => format!("{base}/r{line}"),
    }
}

/// Where a job may have left checkpoints, for another job to go on from; `None` if its program never ran, or if the
/// region that it ran in is known no more. `bucket`: the deployment's.
pub fn checkpoint_left(job: &Job, bucket: &str) -> Option<String> {
    job.first_started_at.filter(|_| !job.spec.workspace)?;
    let region = job.generations.last().map(|g| crate::catalog::region_of(&g.placement.zone));
    let is_known = !matches!(job.spec.checkpoint, CheckpointSpec::ByRegion(_)) || region.is_some();
    is_known.then(|| checkpoint_dir(job, job.line, region.unwrap_or_default(), bucket))
}

fn work_for(job: &Job, g: &Generation, attempt: &Attempt, key: WorkerKey, at: &Context<'_>) -> Work {
    let mut env = BTreeMap::new();
    let region = crate::catalog::region_of(&g.placement.zone);
    let mut ours = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    ours("WANDB_RUN_ID", job.run_id.clone());
    ours("WANDB_RESUME", "allow".into());
    // JAX takes the path of a folder, or what its file library knows, which `file://` is not.
    let bucket = at.deployment.bucket.trim_end_matches('/');
    let bucket = bucket.strip_prefix("file://").unwrap_or(bucket);
    ours("JAX_COMPILATION_CACHE_DIR", format!("{bucket}/jobs/{}/jax-cache", job.id));
    // What the job sets itself wins over the conveniences above, never over what follows.
    env.extend(job.spec.env.clone());
    let mut ours = |name: &str, value: String| {
        env.insert(name.to_owned(), value);
    };
    let host = g.addresses.first().and_then(|s| s.first()).cloned().unwrap_or_default();
    let port = COORDINATOR_PORT_FIRST + (port_base(job.id.as_str()) + attempt.number) % COORDINATOR_PORTS;
    ours("REKINDLE_JOB", job.id.to_string());
    ours("REKINDLE_ATTEMPT", attempt.number.to_string());
    ours("REKINDLE_GENERATION", g.number.to_string());
    ours("REKINDLE_RESUME", u8::from(attempt.resume).to_string());
    ours("REKINDLE_STAGE", attempt.stage.to_string());
    ours("REKINDLE_RUN_ID", job.run_id.clone());
    ours("REKINDLE_CHECKPOINT_DIR", checkpoint_dir(job, attempt.line, region, &at.deployment.bucket));
    ours("REKINDLE_LINE", attempt.line.to_string());
    // Workers are counted within their slice: the rank over all is slice × workers + worker.
    ours("REKINDLE_WORKER", key.worker.to_string());
    ours("REKINDLE_WORKERS", g.workers.to_string());
    ours("REKINDLE_SLICE", key.slice.to_string());
    ours("REKINDLE_SLICES", g.slices.to_string());
    ours("REKINDLE_COORDINATOR", format!("{host}:{port}"));
    let node = if g.slices > 1 { names::slice_name(&g.name, key.slice) } else { g.name.clone() };
    ours("REKINDLE_TPU", node.clone());
    ours("REKINDLE_ZONE", g.placement.zone.clone());
    ours("TP_ASIC_NAME", node);
    ours("TP_ASIC_WORKER", key.worker.to_string());
    Work {
        run: job.spec.run.clone(),
        setup: job.spec.setup.clone(),
        code: job.spec.code.clone(),
        env,
        secrets: job.spec.secrets.clone(),
        clean: attempt.is_clean,
        outputs: job.spec.outputs.clone(),
        stop_grace_ms: u64::try_from(job.spec.limits.stop_grace.as_millis()).unwrap_or(30_000),
        highest_step: job.highest_step,
    }
}

/// Spreads jobs over the port range, so that two jobs on one machine (the local mode) rarely meet.
fn port_base(job: &str) -> u32 {
    job.bytes().fold(17_u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b))) % COORDINATOR_PORTS
}

/// True when the slice goes within a minute by this notice, so that programs are ended and the next slice is asked for.
// SIGTERM comes only on `preempted` = TRUE, or a deadline within 60 s (contract section 4).
pub fn notice_is_urgent(notice: &Notice, now: Timestamp) -> bool {
    match notice.kind {
        NoticeKind::Preemption => true,
        NoticeKind::Maintenance => notice.deadline <= now + Duration::from_mins(1),
        NoticeKind::Migration => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, attempt, generation, job, noon, open_deployment, small, spec_in};

    /// The order for worker 0, who has no work yet, of a slice with these addresses.
    fn order(addresses: &[&str], stops: bool) -> Order {
        let deployment = open_deployment();
        let addresses: Vec<Vec<String>> = match addresses {
            [] => Vec::new(),
            all => vec![all.iter().map(|a| (*a).to_owned()).collect()],
        };
        let stop = crate::job::Stop { cause: StopCause::Cancel, at: noon(), deadline: noon(), put_off: false };
        let mut job = job(spec_in(&deployment, &small()));
        job.generations = vec![Generation { addresses: addresses.into(), ..generation(1) }];
        job.attempts = vec![Attempt { stop: stops.then_some(stop), ..attempt(1, 1) }];
        let context = Context { settings: &Settings::default(), deployment: &deployment, now: noon() };
        order_for(&job, 1, WorkerKey { slice: 0, worker: 0 }, None, &context)
    }

    /// What worker 1 of slice 1 of two finds in its environment.
    fn environment(own: &[(&str, &str)], number: u32, of: u32) -> BTreeMap<String, String> {
        let deployment = open_deployment();
        let mut spec = spec_in(&deployment, &small());
        spec.env = own.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut job = job(spec);
        let hosts = |slice: u32| (0..2).map(|worker| format!("10.{of}.{slice}.{worker}")).collect();
        let addresses: Vec<Vec<String>> = (0..2).map(hosts).collect();
        job.generations = vec![Generation { slices: 2, workers: 2, addresses: addresses.into(), ..generation(of) }];
        job.attempts = vec![attempt(number, of)];
        let context = Context { settings: &Settings::default(), deployment: &deployment, now: noon() };
        order_for(&job, of, WorkerKey { slice: 1, worker: 1 }, None, &context).work.unwrap().env
    }

    #[test]
    fn a_program_finds_who_and_where_it_is() {
        let env = environment(&[], 3, 2);
        let run_id = env["REKINDLE_RUN_ID"].clone();
        let node = env["REKINDLE_TPU"].clone();
        assert!(node.ends_with("-g2-1"), "the node of its slice: {node}");
        for (name, value) in [
            ("REKINDLE_JOB", "train"),
            ("REKINDLE_ATTEMPT", "3"),
            ("REKINDLE_GENERATION", "2"),
            ("REKINDLE_RESUME", "1"),
            ("REKINDLE_STAGE", "2"),
            ("REKINDLE_LINE", "0"),
            ("REKINDLE_WORKER", "1"),
            ("REKINDLE_WORKERS", "2"),
            ("REKINDLE_SLICE", "1"),
            ("REKINDLE_SLICES", "2"),
            ("TP_ASIC_NAME", &node),
            ("TP_ASIC_WORKER", "1"),
            ("WANDB_RUN_ID", &run_id),
            ("WANDB_RESUME", "allow"),
        ] {
            assert_eq!(env[name], value, "{name}");
        }
        assert_eq!(env["REKINDLE_ZONE"], generation(2).placement.zone);
        assert!(env["REKINDLE_CHECKPOINT_DIR"].ends_with("/jobs/train/checkpoints"), "{env:?}");
        assert!(env["JAX_COMPILATION_CACHE_DIR"].ends_with("/jobs/train/jax-cache"), "{env:?}");
        assert!(env["REKINDLE_COORDINATOR"].starts_with("10.2.0.0:"), "worker 0 of slice 0: {env:?}");
        let foreign = |name: &&String| name.starts_with("TPU_") || name.starts_with("JAX_");
        assert_eq!(
            env.keys().filter(foreign).collect::<Vec<_>>(),
            ["JAX_COMPILATION_CACHE_DIR"],
            "a TPU VM tells these"
        );
    }

    #[test]
    fn over_all_attempts_the_run_is_one_and_the_port_another() {
        let all: Vec<_> = (1..=3).map(|number| environment(&[], number, 1)).collect();
        assert!(all.iter().all(|env| env["REKINDLE_RUN_ID"] == all[0]["REKINDLE_RUN_ID"]));
        let mut ports: Vec<_> = all.iter().map(|env| env["REKINDLE_COORDINATOR"].clone()).collect();
        ports.dedup();
        assert_eq!(ports.len(), 3, "{ports:?}");
    }

    #[test]
    fn what_a_job_sets_wins_over_conveniences_and_not_over_who_it_is() {
        let own = [
            ("WANDB_RUN_ID", "mine"),
            ("WANDB_RESUME", "must"),
            ("JAX_COMPILATION_CACHE_DIR", "/cache"),
            ("REKINDLE_ATTEMPT", "99"),
        ];
        let env = environment(&own, 1, 1);
        let told = own.map(|(name, _)| env[name].as_str());
        assert_eq!(told, ["mine", "must", "/cache", "1"]);
    }

    #[test]
    fn the_workers_of_a_workspace_ask_often_only_while_somebody_may_wait() {
        let settings = Settings::default();
        let deployment = open_deployment();
        let mut job = job(spec_in(&deployment, &small()));
        job.spec.workspace = true;
        job.generations = vec![generation(1)];
        let up = Attempt { created_at: at(0), released_at: Some(at(60)), started_at: Some(at(60)), ..attempt(1, 1) };
        job.attempts = vec![up];
        // Without a bell and with one.
        let polls = |job: &Job, secs: i64| {
            let context = Context { settings: &settings, deployment: &deployment, now: at(secs) };
            let order = order_for(job, 1, WorkerKey { slice: 0, worker: 0 }, Some(1), &context);
            let bell = if is_awaited(job, 1, at(secs)) { order.clone() } else { order.clone().with_bell(&settings) };
            (order.poll_after_ms, bell.poll_after_ms)
        };
        let heartbeat = order_to_all(&job, 1, &settings).heartbeat_ms;
        assert_eq!(polls(&job, 61), (1000, 1000), "it has come up");
        assert_eq!(polls(&job, 60 + 300), (10_000, heartbeat), "nobody is there");
        let action = crate::exec::ExecAction::Run(CommandLine::Shell("ls".into()));
        let order = ExecOrder { id: 1, attempt: 1, worker: None, at: at(4000), action, stop_at: None };
        job.execs = vec![order];
        assert_eq!(polls(&job, 4001), (1000, 1000), "an order");
        assert_eq!(polls(&job, 4300), (10_000, heartbeat), "some minutes later");
        job.execs[0].stop_at = Some(at(5000));
        assert_eq!(polls(&job, 5001), (1000, 1000), "its end");
        job.spec.workspace = false;
        assert!(!is_awaited(&job, 1, at(5001)), "a program waits for nobody");
    }

    #[test]
    fn workers_are_told_to_beat_often_where_that_costs_nothing() {
        let mut job = job(spec_in(&open_deployment(), &small()));
        job.generations = vec![generation(1)];
        job.attempts = vec![attempt(1, 1)];
        let told = |settings: Settings| {
            let order = order_to_all(&job, 1, &settings).with_bell(&settings);
            (order.heartbeat_ms, order.poll_after_ms)
        };
        assert_eq!(told(Settings::local()), (2000, 2000));
        assert!(told(Settings::default()).0 >= 24_000);
    }

    #[test]
    fn work_is_given_once_it_is_known_where_the_workers_meet() {
        assert!(order(&[], false).work.is_none(), "an agent keeps the first work that it gets");
        let work = order(&["10.0.0.7"], false).work.unwrap();
        assert!(work.env["REKINDLE_COORDINATOR"].starts_with("10.0.0.7:"), "{}", work.env["REKINDLE_COORDINATOR"]);
        assert!(order(&[], true).work.is_some(), "whose work is to end must be clear");
    }
}
