//! What a walk draws from its seed: numbers, and the job that it takes.

use serde_json::{Value, json};

use crate::fixture::small;

/// Numbers from a seed (splitmix64), the same wherever they are drawn.
pub(super) struct Draws(u64);

impl Draws {
    pub(super) const fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 on, below that.
    pub(super) fn below(&mut self, end: i64) -> i64 {
        (self.next() % end.unsigned_abs()).cast_signed()
    }

    /// True so many times of a hundred.
    pub(super) fn happens(&mut self, percent: i64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as i64) as usize].clone()
    }
}

/// A job of any sort: a program or a workspace, on one slice or two, with budgets and limits or without.
pub(super) fn job(draws: &mut Draws) -> Value {
    let mut spec = small();
    spec["budgets"] = budgets(draws);
    spec["recovery"] = json!({"preset": draws.one_of(&["pre", "pre", "reapply", "rerun", "resume", "pass"])});
    spec["tpu"] = tpu(draws);
    let (field, value) = draws.one_of(&[
        ("stop_grace", json!("10m")),
        ("stop_grace", json!("1s")),
        ("attempt", json!("5m")),
        ("total", json!("10m")),
        ("queue", json!("2m")),
        ("start", json!("30s")),
        ("cost_usd", json!(1.5)),
    ]);
    if draws.happens(40) {
        spec["limits"] = json!({field: value});
    }
    if draws.happens(10) {
        spec["workspace"] = json!(true);
        spec["limits"] = json!({"idle": "5m"});
        spec.as_object_mut().unwrap().remove("run");
    }
    spec
}

fn budgets(draws: &mut Draws) -> Value {
    let free = "unlimited";
    let unlimited = json!({"user_failures": free, "infra_failures": free, "no_progress": free});
    draws.one_of(&[
        unlimited.clone(),
        unlimited,
        json!({}),
        json!({"infra_failures": 0}),
        json!({"preemptions": 0}),
        json!({"user_failures": 2, "no_progress": 1}),
    ])
}

fn tpu(draws: &mut Draws) -> Value {
    let mut tpu = small()["tpu"].clone();
    tpu["queued"] = json!(draws.one_of(&["auto", "auto", "never", "always"]));
    tpu["capacity"] = draws.one_of(&[json!(["spot"]), json!(["spot", "on_demand"]), json!(["on_demand"])]);
    if draws.happens(20) {
        (tpu["queued"], tpu["reservation"]) = (json!("auto"), json!("ours"));
        tpu["capacity"] = draws.one_of(&[json!(["reserved"]), json!(["reserved", "spot"])]);
    }
    if tpu["queued"] != json!("never") && draws.happens(25) {
        tpu["slices"] = json!(2);
    }
    tpu
}
