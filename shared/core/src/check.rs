//! Lints a decision before it is committed: what must hold of any step of a job, whoever made it.

use crate::effect::Effect;
use crate::job::{Create, Desired, Job};

/// A broken rule, in words.
pub type Fault = String;

/// Every rule that the step from `before` to `after` breaks; empty when it is sound.
///
/// `fenced` are the attempts that this step proved to be over; only they may leave the job.
pub fn check(before: &Job, after: &Job, effects: &[Effect], fenced: &[u32]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut must = |holds: bool, text: &str| {
        if !holds {
            faults.push(text.to_owned());
        }
    };
    must(before.id == after.id && before.spec == after.spec, "a job's id and spec never change");
    must(after.last_attempt >= before.last_attempt, "attempts never go back");
    must(after.last_generation >= before.last_generation, "generations never go back");
    must(after.line >= before.line, "checkpoint lines never go back");
    must(after.revision >= before.revision, "revisions never go back");
    must(after.sequence >= before.sequence, "event numbers never go back");
    if before.phase.is_terminal() {
        must(after.phase == before.phase, "a terminal phase is final");
        must(after.outcome == before.outcome, "an outcome is final");
    }
    if let Some(outcome) = before.outcome {
        must(after.outcome == Some(outcome), "an outcome is final");
    }
    if after.phase.is_terminal() {
        must(after.generations.is_empty(), "a terminal job owns nothing");
        must(after.outcome.map(crate::job::Outcome::phase) == Some(after.phase), "a terminal phase is its outcome");
    }
    check_generations(before, after, &mut must);
    check_attempts(before, after, fenced, &mut must);
    check_effects(after, effects, &mut must);
    faults
}

fn check_generations(before: &Job, after: &Job, must: &mut impl FnMut(bool, &str)) {
    must(after.generations.len() <= 2, "at most two generations exist");
    must(after.generations.windows(2).all(|w| w[0].number < w[1].number), "generations are in order");
    must(
        after.generations.iter().all(|g| g.number <= after.last_generation),
        "no generation is beyond the last number",
    );
    for g in &after.generations {
        if let Some(was) = before.generation(g.number)
            && was.placement == g.placement
            && was.intended_at == g.intended_at
        {
            must(was.delete.is_none() || g.delete.is_some(), "a delete is never taken back");
            must(was.lost.is_none() || g.lost.is_some(), "a loss is never taken back");
        }
    }
    if after.outcome.is_some() || after.desired != Desired::Run {
        let new = after.generations.iter().any(|g| before.generation(g.number).is_none());
        must(!new, "an ending or pausing job asks for nothing");
    }
}

fn check_attempts(before: &Job, after: &Job, fenced: &[u32], must: &mut impl FnMut(bool, &str)) {
    must(after.attempts.windows(2).all(|w| w[0].number < w[1].number), "attempts are in order");
    must(after.attempts.iter().all(|a| a.number <= after.last_attempt), "no attempt is beyond the last number");
    let may_run = after.attempts.iter().filter(|a| a.released_at.is_some() && a.fenced_at.is_none()).count();
    must(may_run <= 1, "at most one attempt can be running");
    for a in before.attempts.iter().filter(|a| a.fenced_at.is_none() && a.released_at.is_some()) {
        let kept = after.attempts.iter().any(|b| b.number == a.number) || fenced.contains(&a.number);
        must(kept, "a released attempt is kept until it is fenced");
    }
    for a in &after.attempts {
        let Some(was) = before.attempts.iter().find(|b| b.number == a.number) else { continue };
        must(was.stop.is_none() || a.stop.is_some(), "a stop is never taken back");
        must(was.released_at.is_none() || a.released_at.is_some(), "a release is never taken back");
        must(was.fenced_at.is_none() || a.fenced_at.is_some(), "a fence is never taken back");
        must(was.ended.is_none() || a.ended.is_some(), "a judgement is never taken back");
    }
}

fn check_effects(after: &Job, effects: &[Effect], must: &mut impl FnMut(bool, &str)) {
    for effect in effects {
        match effect {
            Effect::CreateGeneration { generation } => {
                let intended =
                    after.generation(*generation).is_some_and(|g| g.create == Create::Intended && g.delete.is_none());
                must(intended, "a create has a committed intent");
                must(
                    after.outcome.is_none() && after.desired == Desired::Run,
                    "an ending or pausing job creates nothing",
                );
            }
            Effect::DeleteGeneration { generation } => {
                let intended = after.generation(*generation).is_some_and(|g| g.delete.is_some());
                must(intended, "a delete has a committed intent");
            }
            Effect::PublishEvents => must(!after.outbox.is_empty(), "events that are published are committed"),
        }
    }
}
