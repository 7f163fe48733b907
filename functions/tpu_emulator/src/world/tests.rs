//! Transitions on a clock of the test's own: days pass in no time, and random walks look for what must never be.

use jiff::{SignedDuration, Timestamp};
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use super::*;
use crate::duration::Span;
use crate::model::{Leave, NodeState, Power};

const ZONE: &str = "us-central1-a";

struct Walk {
    world: World,
    now: Timestamp,
}

impl Walk {
    fn new(seed: u64, scenario: &str) -> Self {
        let scenario = Scenario::parse(scenario).unwrap();
        Self { world: World::new(seed, scenario), now: "2026-11-20T10:00:00Z".parse().unwrap() }
    }

    fn moment(&self) -> Moment {
        Moment { now: self.now, speed: 1.0 }
    }

    fn call(method: &str) -> Call {
        Call {
            method: method.to_owned(),
            api_version: "v2".to_owned(),
            location: Location { project: "p".to_owned(), zone: ZONE.to_owned() },
            request_id: None,
        }
    }

    /// Time passes; power-offs that were asked for are carried out at once.
    fn pass(&mut self, span: SignedDuration) {
        let end = self.now + span;
        loop {
            self.carry_out();
            match self.world.next_due().filter(|due| *due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
            let moment = self.moment();
            self.world.tick(moment);
        }
        self.now = end;
        self.check();
    }

    fn carry_out(&mut self) {
        for effect in std::mem::take(&mut self.world.effects) {
            if let Effect::PowerOff(key, _) = effect {
                let moment = self.moment();
                self.world.powered_off(moment, &key);
            }
        }
    }

    fn create(&mut self, id: &str, body: &Value) -> Result<String, crate::wire::errors::ApiError> {
        let (moment, call) = (self.moment(), Self::call("CreateNode"));
        let draft = self.world.draft_node(&call, id, body.as_object().unwrap(), None)?;
        self.world.create_node(moment, &call, draft)
    }

    fn key(&self, id: &str) -> Option<NodeKey> {
        self.world.nodes.get(&Self::call("").location.node(id)).map(Node::key)
    }

    fn state(&self, id: &str) -> Option<NodeState> {
        self.world.nodes.get(&Self::call("").location.node(id)).map(|node| node.state)
    }

    /// What must hold at any moment.
    fn check(&self) {
        let settings = self.world.zone(ZONE);
        let location = Self::call("").location;
        for (family, capacity) in &settings.capacity {
            let free = self.world.free_chips(ZONE, family).unwrap();
            assert!(free <= *capacity);
            let making = self.world.nodes.values().filter(|node| node.power == Power::On);
            let chips: u64 = making.map(|node| u64::from(node.catalogue().chips)).sum();
            assert!(chips <= *capacity, "{chips} chips run, {capacity} exist");
        }
        for is_spot in [true, false] {
            let held = self.world.held_chips(&location, "v5litepod", is_spot);
            assert!(settings.quota_of("v5litepod", is_spot).is_none_or(|limit| held <= limit));
        }
        let mut addresses = std::collections::BTreeSet::new();
        for node in self.world.nodes.values() {
            assert!(node.workers.iter().all(|worker| addresses.insert(worker.ip)), "an address was given out twice");
            let may_run = matches!(node.state, NodeState::Ready);
            assert!(may_run || node.power != Power::On, "{} runs in {:?}", node.name, node.state);
            if let Some(operation) = &node.operation {
                assert!(self.world.operations[operation].outcome.is_none(), "held by an operation that ended");
            }
            assert!(node.queued_resource.as_ref().is_none_or(|name| self.world.queued_resources.contains_key(name)));
        }
        for operation in self.world.operations.values().filter(|operation| operation.outcome.is_none()) {
            let holds = self.world.nodes.values().any(|node| node.operation.as_ref() == Some(&operation.name))
                || self
                    .world
                    .queued_resources
                    .values()
                    .any(|queued| queued.operation.as_ref() == Some(&operation.name));
            assert!(holds, "{} can never end", operation.name);
        }
    }
}

fn body(accelerator: &str, scheduling: &Value) -> Value {
    json!({"acceleratorType": accelerator, "runtimeVersion": "v2-alpha-tpuv5-lite", "schedulingConfig": scheduling})
}

#[test]
fn preemptible_nodes_end_after_a_day_and_spot_nodes_do_not() {
    let mut walk = Walk::new(1, "{}");
    walk.create("day", &body("v5litepod-8", &json!({"preemptible": true}))).unwrap();
    walk.create("spot", &body("v5litepod-8", &json!({"spot": true}))).unwrap();
    walk.pass(SignedDuration::from_mins(23 * 60 + 59));
    assert_eq!((walk.state("day"), walk.state("spot")), (Some(NodeState::Ready), Some(NodeState::Ready)));
    walk.pass(SignedDuration::from_mins(2));
    assert_eq!((walk.state("day"), walk.state("spot")), (Some(NodeState::Terminated), Some(NodeState::Ready)));
}

#[test]
fn a_node_deleted_during_its_notice_is_not_preempted_again() {
    let mut walk = Walk::new(1, "{}");
    walk.create("n", &body("v5litepod-8", &json!({"spot": true}))).unwrap();
    walk.pass(SignedDuration::from_secs(5));
    let (moment, key) = (walk.moment(), walk.key("n").unwrap());
    walk.world.preempt(moment, &key, &PreemptOrder::default()).unwrap();
    walk.world.delete_node(moment, &Walk::call("DeleteNode"), "n").unwrap();
    walk.pass(SignedDuration::from_secs(5));
    assert_eq!(walk.state("n"), None);
    walk.create("n", &body("v5litepod-8", &json!({"spot": true}))).unwrap();
    walk.pass(SignedDuration::from_mins(5));
    assert_eq!(walk.state("n"), Some(NodeState::Ready));
}

#[test]
fn waits_follow_the_settings_the_speed_and_the_jitter() {
    let mut walk = Walk::new(1, "defaults: {create_latency: 10s, jitter: 0.2}");
    let waits: Vec<Duration> = (0..100).map(|_| walk.world.wait(ZONE, Wait::Create)).collect();
    assert!(waits.iter().all(|wait| (8.0..=12.0).contains(&wait.as_secs_f64())));
    assert!(waits.iter().any(|wait| wait.as_secs_f64() < 9.0) && waits.iter().any(|wait| wait.as_secs_f64() > 11.0));
    let moment = Moment { now: walk.now, speed: 4.0 };
    assert_eq!(moment.after(Duration::from_secs(10)), walk.now + SignedDuration::from_millis(2500));
}

/// One random act upon the world. Refusals are fine: they must only leave nothing half done.
fn act(walk: &mut Walk, rng: &mut ChaCha8Rng) {
    let moment = walk.moment();
    let id = format!("n{}", rng.random_range(0..5));
    let queued_id = format!("q{}", rng.random_range(0..3));
    let kinds = ["v5litepod-8", "v5litepod-16", "v5litepod-32"];
    let kind = kinds[rng.random_range(0..kinds.len())];
    let tier = [json!({"spot": true}), json!({"preemptible": true}), json!({})][rng.random_range(0..3)].clone();
    let leaves = [Leave::Preempted, Leave::Terminated, Leave::Stopped, Leave::Gone, Leave::Ready, Leave::Failed];
    let order = PreemptOrder {
        notice: Span::secs(rng.random_range(0..40)),
        leave: leaves[rng.random_range(0..leaves.len())],
        shows_after: rng.random_bool(0.5).then_some(Span::secs(20)),
    };
    let call = Walk::call;
    match rng.random_range(0..14) {
        0 | 1 => drop(walk.create(&id, &body(kind, &tier))),
        2 => drop(walk.world.delete_node(moment, &call("DeleteNode"), &id)),
        3 => drop(walk.world.stop_node(moment, &call("StopNode"), &id)),
        4 => drop(walk.world.start_node(moment, &call("StartNode"), &id)),
        5 => {
            let patch = json!({"labels": {"a": "b"}});
            drop(walk.world.update_node(moment, &call("UpdateNode"), &id, patch.as_object().unwrap(), "labels"));
        }
        6 => create_queued(walk, &queued_id, &id, kind),
        7 => drop(walk.world.delete_queued(moment, &call("DeleteQueuedResource"), &queued_id, rng.random_bool(0.5))),
        8 => drop(walk.world.reset_queued(moment, &call("ResetQueuedResource"), &queued_id)),
        9 => {
            let names: Vec<String> = walk.world.operations.keys().cloned().collect();
            if !names.is_empty() {
                drop(walk.world.cancel_operation(moment, &names[rng.random_range(0..names.len())]));
            }
        }
        what => {
            let keys: Vec<NodeKey> = walk.world.nodes.values().map(Node::key).collect();
            let Some(key) = (!keys.is_empty()).then(|| keys[rng.random_range(0..keys.len())].clone()) else { return };
            match what {
                10 | 11 => drop(walk.world.preempt(moment, &key, &order)),
                12 => {
                    let repair = rng.random_bool(0.7).then_some(Duration::from_secs(20));
                    drop(walk.world.host_error(moment, &key, 0, repair));
                }
                _ => drop(walk.world.maintenance(moment, &key, &MaintenanceOrder::default())),
            }
        }
    }
}

fn create_queued(walk: &mut Walk, queued_id: &str, node_id: &str, kind: &str) {
    let (moment, call) = (walk.moment(), Walk::call("CreateQueuedResource"));
    let spec = json!({"nodeId": node_id, "node": body(kind, &json!({}))});
    let given: Map<String, Value> =
        json!({"tpu": {"nodeSpec": [spec]}, "spot": {}}).as_object().cloned().unwrap_or_default();
    if let Ok(draft) = walk.world.draft_queued(moment, &call, queued_id, &given) {
        drop(walk.world.create_queued(moment, &call, draft));
    }
}

#[test]
fn random_walks_never_break_the_rules_and_always_come_to_rest() {
    for seed in 0..200 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut walk = Walk::new(seed, "defaults: {capacity: {v5litepod: 64}, quota: {v5litepod: 48}}");
        for _ in 0..150 {
            act(&mut walk, &mut rng);
            walk.pass(SignedDuration::from_millis(rng.random_range(0..4_000)));
        }
        // Everything can be deleted from wherever it is.
        for _ in 0..3 {
            let moment = walk.moment();
            for queued in walk.world.queued_resources.keys().cloned().collect::<Vec<_>>() {
                let id = crate::model::short_name(&queued).to_owned();
                drop(walk.world.delete_queued(moment, &Walk::call("DeleteQueuedResource"), &id, true));
            }
            walk.pass(SignedDuration::from_mins(2));
            let moment = walk.moment();
            for node in walk.world.nodes.keys().cloned().collect::<Vec<_>>() {
                let id = crate::model::short_name(&node).to_owned();
                drop(walk.world.delete_node(moment, &Walk::call("DeleteNode"), &id));
            }
            walk.pass(SignedDuration::from_mins(2));
        }
        assert!(
            walk.world.nodes.is_empty() && walk.world.queued_resources.is_empty(),
            "seed {seed}: something is left"
        );
        let text = serde_json::to_string(&walk.world).unwrap();
        let mut again: World = serde_json::from_str(&text).unwrap();
        again.effects.clone_from(&walk.world.effects);
        assert_eq!(again, walk.world, "seed {seed}: the state does not survive being stored");
    }
}

#[test]
fn more_workers_than_a_machine_carries_are_refused() {
    let mut walk = Walk::new(1, "{}");
    let body = json!({"acceleratorType": "v5litepod-256", "runtimeVersion": "v2-alpha-tpuv5-lite"});
    for index in 0..16 {
        walk.create(&format!("node-{index}"), &body).unwrap();
    }
    let error = walk.create("node-16", &body).unwrap_err();
    assert_eq!(error.http, 429);
    assert!(error.message.contains("1024 are taken and 64 are asked for"), "{}", error.message);
    let (moment, call) = (walk.moment(), Walk::call("DeleteNode"));
    walk.world.delete_node(moment, &call, "node-3").unwrap();
    walk.pass(SignedDuration::from_secs(60));
    walk.create("node-16", &body).unwrap();
}
