//! What the demonstration saw, against what it claims.

use std::time::Duration;

use owo_colors::OwoColorize as _;
use rekindle_core::job::Outcome;
use rekindle_wire::v1::JobView;

use super::plan::{Kind, Plan};
use super::timeline::millis;
use crate::answers::Demonstration;
use crate::fault::Result;
use crate::human;
use crate::printer::Printer;

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Account {
    outcome: Option<Outcome>,
    attempts: u32,
    generations: u32,
    preemptions: u32,
    infra_failures: u32,
    user_failures: u32,
    resumes: u32,
    steps_repeated: u64,
    highest_step: Option<u64>,
    message: String,
    all_faults: bool,
    /// From each notice to the next create request.
    pub(crate) reaction: Vec<Duration>,
    /// From each notice to the first new step.
    pub(crate) recovery: Vec<Duration>,
    /// Nodes and queued resources after the end.
    pub(crate) resources_left: usize,
    /// Processes after the end.
    pub(crate) processes_left: usize,
    /// Of the final parameters; `None`: the program wrote none.
    pub(crate) digest: Option<String>,
    /// Of the parameters of an undisturbed run.
    pub(crate) undisturbed_digest: String,
}

impl Account {
    /// Takes over what the ended job says of itself.
    pub(crate) fn take(&mut self, job: &JobView, all_faults: bool) {
        let counters = &job.counters;
        self.outcome = job.outcome;
        (self.attempts, self.generations) = (job.attempt, job.generation);
        (self.preemptions, self.infra_failures) = (counters.preemptions, counters.infra_failures);
        (self.user_failures, self.resumes) = (counters.user_failures, counters.resumes);
        (self.steps_repeated, self.highest_step) = (counters.steps_repeated, job.progress.step);
        self.message.clone_from(&job.message);
        self.all_faults = all_faults;
    }

    /// Everything that is not as the demonstration claims; empty when all is.
    pub(crate) fn missed(&self, plan: &Plan) -> Vec<String> {
        let (preemptions, cuts) = (plan.count(Kind::Preemption), plan.count(Kind::GrpcFailure));
        let faults = preemptions + cuts;
        let mut missed = Vec::new();
        let mut claim = |holds: bool, text: String| {
            if !holds {
                missed.push(text);
            }
        };
        let word = self.outcome.map_or("without an outcome", |outcome| outcome.phase().as_str());
        claim(self.outcome == Some(Outcome::Succeeded), format!("the job is {word}: {}", human::tame(&self.message)));
        claim(self.all_faults, format!("the job ended before all {faults} faults were injected"));
        let counts = [
            ("preemptions", self.preemptions, preemptions),
            ("infra failures", self.infra_failures, cuts),
            ("user failures", self.user_failures, 0),
            ("attempts", self.attempts, faults + 1),
            ("resumes from a checkpoint", self.resumes, faults),
        ];
        for (name, seen, wanted) in counts {
            claim(seen == wanted, format!("{seen} {name}, not {wanted}"));
        }
        // One broken connection is repaired on the same TPU; one that follows it within ten minutes may bring a new TPU.
        let generations = preemptions + 1..=preemptions + cuts.max(1);
        claim(generations.contains(&self.generations), format!("{} TPUs, not {generations:?}", self.generations));
        claim(self.highest_step == Some(plan.steps), format!("the highest step is {:?}", self.highest_step));
        let digest = self.digest.as_deref().unwrap_or("(none)");
        claim(
            self.digest.as_ref() == Some(&self.undisturbed_digest),
            format!("the parameters are {digest}, those of an undisturbed run {}", self.undisturbed_digest),
        );
        claim(self.resources_left == 0, format!("{} resources are left", self.resources_left));
        claim(self.processes_left == 0, format!("{} processes are left", self.processes_left));
        let measured = (self.reaction.len() as u32, self.recovery.len() as u32);
        claim(measured == (preemptions, preemptions), "not every reaction and recovery was seen".to_owned());
        missed
    }

    /// One line of JSON, or an account for a person.
    pub(crate) fn show(&self, plan: &Plan, printer: Printer) -> Result<()> {
        let outcome = self.outcome.map_or("unknown", |outcome| outcome.phase().as_str());
        if printer.is_json {
            let ms = |times: &[Duration]| times.iter().map(|time| time.as_millis() as u64).collect();
            return printer.json_line(&Demonstration {
                outcome,
                attempts: self.attempts,
                generations: self.generations,
                preemptions: self.preemptions,
                infra_failures: self.infra_failures,
                steps_repeated: self.steps_repeated,
                resources_left: self.resources_left,
                digest: self.digest.as_deref(),
                undisturbed_digest: &self.undisturbed_digest,
                reaction_ms: ms(&self.reaction),
                recovery_ms: ms(&self.recovery),
                processes_left: self.processes_left,
                resumes: self.resumes,
            });
        }
        let painted = self.outcome.map_or_else(|| outcome.to_owned(), |outcome| human::phase(outcome.phase()));
        printer.line(&format!("\n{}", painted.bold()))?;
        let row = |name: &str, text: &str| printer.line(&format!("  {:<10} {text}", name.dimmed()));
        let count = |number: u32, word: &str| human::count(u64::from(number), word);
        row("attempts", &format!("{} on {}", self.attempts, count(self.generations, "TPU")))?;
        let lost = [count(self.preemptions, "preemption"), count(self.infra_failures, "infra failure")];
        row("survived", &format!("{}, resumed {}", lost.join(", "), count(self.resumes, "time")))?;
        row("repeated", &format!("{} of {}", human::count(self.steps_repeated, "step"), plan.steps))?;
        let all = |times: &[Duration]| times.iter().map(|time| millis(*time)).collect::<Vec<_>>().join(", ");
        if !self.reaction.is_empty() {
            row("reaction", &format!("{} from the notice to the next create request", all(&self.reaction)))?;
            row("recovery", &format!("{} from the notice to the first new step", all(&self.recovery)))?;
        }
        let same = if self.digest.as_ref() == Some(&self.undisturbed_digest) { "the same as" } else { "not that of" };
        let digest = self.digest.as_deref().unwrap_or("none");
        row("result", &format!("{digest}\n{:13}{same} an undisturbed run", ""))?;
        let left =
            [human::count(self.resources_left as u64, "TPU"), human::count(self.processes_left as u64, "process")];
        row(
            "left",
            &if self.resources_left + self.processes_left == 0 { "nothing".to_owned() } else { left.join(", ") },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Demo;

    fn plan() -> Plan {
        Plan::new(&Demo { preemptions: 2, grpc_failures: 1, workers: 4, seed: 0, keep: false }).unwrap()
    }

    fn as_claimed() -> Account {
        Account {
            outcome: Some(Outcome::Succeeded),
            attempts: 4,
            generations: 3,
            preemptions: 2,
            infra_failures: 1,
            user_failures: 0,
            resumes: 3,
            steps_repeated: 20,
            highest_step: Some(plan().steps),
            message: String::new(),
            all_faults: true,
            reaction: vec![Duration::from_millis(40); 2],
            recovery: vec![Duration::from_secs(4); 2],
            resources_left: 0,
            processes_left: 0,
            digest: Some("sha256:a".into()),
            undisturbed_digest: "sha256:a".into(),
        }
    }

    #[test]
    fn what_was_seen_as_claimed_misses_nothing() {
        assert_eq!(as_claimed().missed(&plan()), Vec::<String>::new());
    }

    #[test]
    fn each_claim_that_does_not_hold_is_named() {
        type Change = fn(&mut Account);
        let broken: [(&str, Change); 11] = [
            ("failed", |a| a.outcome = Some(Outcome::Failed)),
            ("before all", |a| a.all_faults = false),
            ("1 preemptions, not 2", |a| a.preemptions = 1),
            ("infra failures", |a| a.infra_failures = 2),
            ("user failures", |a| a.user_failures = 1),
            ("4 TPUs", |a| a.generations = 4),
            ("resumes", |a| a.resumes = 2),
            ("sha256:b", |a| a.digest = Some("sha256:b".into())),
            ("(none)", |a| a.digest = None),
            ("1 resources", |a| a.resources_left = 1),
            ("2 processes", |a| a.processes_left = 2),
        ];
        for (word, change) in broken {
            let mut account = as_claimed();
            change(&mut account);
            let missed = account.missed(&plan());
            assert!(missed.len() == 1 && missed[0].contains(word), "{word}: {missed:?}");
        }
    }
}
