//! What the demonstration is going to do, fixed before it begins: the job, and which fault follows after which step.

use std::collections::BTreeSet;
use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rekindle_core::catalog::{self, Accelerator};
use serde_json::{Value, json};

use crate::args::Demo;
use crate::embedded;
use crate::fault::{Fault, Result};
use crate::human;

/// Id of the job.
pub(crate) const JOB: &str = "demo";
/// Steps of a run without faults; each further fault adds some, so that there is always work left to disturb.
const STEPS: u64 = 400;
const STEPS_PER_FAULT: u64 = 100;
/// Faults that `STEPS` has room for.
const FAULTS_FREE: u64 = 3;
/// Least time of a step, in milliseconds.
const STEP_MS: u64 = 20;
const CHECKPOINT_EVERY: u64 = 25;
/// More would take longer than anybody watches.
const FAULTS_MAX: u32 = 100;
/// Each worker is a supervisor, an agent and a program; one machine plays no more of them.
const WORKERS_MAX: u32 = 64;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The TPU is taken away, with a notice.
    Preemption,
    /// The connections between the workers are cut.
    GrpcFailure,
}

/// A fault and its moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Which.
    pub(crate) kind: Kind,
    /// Not before this step, and not before a checkpoint that is newer than the fault before.
    pub(crate) after_step: u64,
}

/// The plan.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Seed of data and moments.
    pub(crate) seed: u64,
    /// Workers of the slice.
    pub(crate) workers: u32,
    /// Steps of the job.
    pub(crate) steps: u64,
    /// The faults in order.
    pub(crate) faults: Vec<Moment>,
    accelerator: &'static Accelerator,
}

impl Plan {
    /// Draws the moments of the faults from the seed.
    pub(crate) fn new(options: &Demo) -> Result<Self> {
        let accelerator = accelerator(options.workers).ok_or_else(|| {
            let fault = Fault::input(format!("no TPU has {} workers", options.workers));
            fault.next("take 1, 4, 8, 16 or more of them; `rekindle catalog --builtin` lists what there is")
        })?;
        if options.grpc_failures > 0 && options.workers < 2 {
            return Err(Fault::input("one worker has no connection to another that could be cut")
                .next("add --grpc-failures 0, or take --workers 4"));
        }
        let count = options.preemptions.saturating_add(options.grpc_failures);
        if count > FAULTS_MAX {
            return Err(Fault::input(format!("{count} faults are too many; at most {FAULTS_MAX}"))
                .next("take fewer with --preemptions and --grpc-failures"));
        }
        let mut kinds = vec![Kind::Preemption; options.preemptions as usize];
        kinds.extend(vec![Kind::GrpcFailure; options.grpc_failures as usize]);
        let mut random = StdRng::seed_from_u64(options.seed);
        kinds.shuffle(&mut random);
        let count = u64::from(count);
        let steps = STEPS + count.saturating_sub(FAULTS_FREE) * STEPS_PER_FAULT;
        let part = steps / (count + 1);
        let faults = kinds.into_iter().zip(1..).map(|(kind, number)| Moment {
            kind,
            // Within the second half of its part, so that a checkpoint lies between two faults.
            after_step: part * (number - 1) + part / 2 + random.random_range(0..=part / 4),
        });
        let faults = faults.collect();
        Ok(Self { seed: options.seed, workers: options.workers, steps, faults, accelerator })
    }

    /// How many faults of a kind.
    pub(crate) fn count(&self, kind: Kind) -> u32 {
        self.faults.iter().filter(|fault| fault.kind == kind).count() as u32
    }

    /// The job message.
    pub(crate) fn job(&self, binary: &Path) -> Value {
        let words = [
            embedded::TRAIN.to_owned(),
            format!("--steps={}", self.steps),
            format!("--step-ms={STEP_MS}"),
            format!("--checkpoint-every={CHECKPOINT_EVERY}"),
            format!("--seed={}", self.seed),
        ];
        let run: Vec<String> = [binary.display().to_string()].into_iter().chain(words).collect();
        json!({
            "id": JOB,
            "run": run,
            "tpu": {"accelerator": self.accelerator.name, "capacity": "spot"},
            "tags": ["demo"],
        })
    }

    /// The digest of the final parameters, as the program wrote it beside its checkpoints.
    pub(crate) fn final_digest(bucket: &Path) -> Option<String> {
        let file = bucket.join("jobs").join(JOB).join("checkpoints").join("final.json");
        let value: Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        Some(value.get("digest")?.as_str()?.to_owned())
    }

    /// One line for the beginning of the timeline.
    pub(crate) fn describe(&self) -> String {
        format!(
            "{} on {} of a {}: {} and {}; seed {}",
            human::count(self.steps, "step"),
            human::count(u64::from(self.workers), "worker"),
            self.accelerator.name,
            human::count(u64::from(self.count(Kind::Preemption)), "preemption"),
            human::count(u64::from(self.count(Kind::GrpcFailure)), "gRPC failure"),
            self.seed
        )
    }
}

/// A number of faults, as it is written.
pub(crate) fn faults(text: &str) -> std::result::Result<u32, String> {
    let count = text.parse().ok().filter(|count| *count <= FAULTS_MAX);
    count.ok_or_else(|| format!("take a number from 0 to {FAULTS_MAX}"))
}

/// A seed, as it is written.
pub(crate) fn seed(text: &str) -> std::result::Result<u64, String> {
    text.parse().map_err(|_| format!("take a number from 0 to {}", u64::MAX))
}

/// A number of workers, as it is written.
pub(crate) fn workers(text: &str) -> std::result::Result<u32, String> {
    let count = text.parse().ok().filter(|count| accelerator(*count).is_some());
    count.ok_or_else(|| {
        let counts: BTreeSet<u32> = offered().map(|accelerator| accelerator.workers).collect();
        let known: Vec<String> = counts.iter().map(u32::to_string).collect();
        format!("a TPU that this machine can play has {} workers", known.join(", "))
    })
}

fn offered() -> impl Iterator<Item = &'static Accelerator> {
    let fits = |a: &&Accelerator| a.workers <= WORKERS_MAX && !catalog::zones_offering(&a.name).is_empty();
    catalog::accelerators().iter().filter(fits)
}

/// The smallest accelerator with so many workers, of the usual family if it has one.
fn accelerator(workers: u32) -> Option<&'static Accelerator> {
    let fits = |accelerator: &&Accelerator| accelerator.workers == workers;
    let usual = offered().filter(fits).find(|accelerator| accelerator.family == "v5litepod");
    usual.or_else(|| offered().find(fits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(preemptions: u32, grpc_failures: u32, workers: u32, seed: u64) -> Demo {
        Demo { preemptions, grpc_failures, workers, seed, keep: false }
    }

    #[test]
    fn faults_lie_apart_and_before_the_end_whatever_the_seed() {
        for seed in 0..200 {
            for (preemptions, cuts) in [(2, 1), (0, 0), (5, 3), (0, 1), (1, 0)] {
                let plan = Plan::new(&options(preemptions, cuts, 4, seed)).unwrap();
                assert_eq!((plan.count(Kind::Preemption), plan.count(Kind::GrpcFailure)), (preemptions, cuts));
                let mut before = 0;
                for fault in &plan.faults {
                    assert!(fault.after_step >= before + CHECKPOINT_EVERY, "{plan:?}");
                    before = fault.after_step;
                }
                assert!(before + CHECKPOINT_EVERY < plan.steps, "{plan:?}");
            }
        }
    }

    #[test]
    fn workers_that_no_tpu_has_are_refused() {
        let text = Plan::new(&options(2, 1, 3, 0)).unwrap_err().text();
        assert!(
            text.contains("no TPU has 3 workers")
                && text.contains("take 1, 4, 8, 16 or more of them; `rekindle catalog --builtin` lists what there is"),
            "{text}"
        );
    }

    #[test]
    fn the_same_seed_makes_the_same_plan_and_seeds_differ() {
        let faults = |seed| Plan::new(&options(4, 2, 4, seed)).unwrap().faults;
        assert_eq!(faults(7), faults(7));
        assert!((0..20).any(|seed| faults(seed) != faults(7)));
    }

    #[test]
    fn what_cannot_be_shown_is_refused() {
        assert_eq!(Plan::new(&options(2, 1, 4, 0)).unwrap().accelerator.name, "v5litepod-16");
        assert!(Plan::new(&options(2, 1, 1, 0)).unwrap_err().text().contains("--grpc-failures 0"));
        assert!(Plan::new(&options(2, 0, 1, 0)).is_ok());
        assert!(Plan::new(&options(2, 0, 3, 0)).unwrap_err().text().contains("3 workers"));
        for (text, want) in
            [("3", "1, 2, 4, 8, "), ("65", "64 workers"), ("0", "1, 2, 4"), ("-1", "1, 2"), ("x", "1, 2")]
        {
            assert!(workers(text).unwrap_err().contains(want), "{text}: {:?}", workers(text));
        }
        assert_eq!((workers("64"), workers("1")), (Ok(64), Ok(1)));
        for text in ["-1", "101", "1.5", "many", ""] {
            assert_eq!(faults(text).unwrap_err(), "take a number from 0 to 100", "{text}");
        }
        assert_eq!(faults("100"), Ok(100));
        assert!(seed("-1").unwrap_err().contains("0 to 18446744073709551615"));
        assert!(Plan::new(&options(90, 90, 4, 0)).unwrap_err().text().contains("too many"));
    }
}
