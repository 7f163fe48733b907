//! The run of one worker: start, steps, checkpoints, and the ways it ends.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::Options;
use crate::checkpoint::{Snapshot, Store};
use crate::data::{self, Dataset, Order};
use crate::environment::Environment;
use crate::group::{Agreement, Application, Exchange, Group, Invitation, Leader, Patience, Peer, run_identity};
use crate::model::{self, Model};
use crate::progress::Progress;
use crate::talk::{complain, say};

/// Rows that one worker reads in one step.
const BATCH: u64 = 32;
/// Steps between two lines of output; progress lines are written at every step.
const SAY_EVERY: u64 = 20;

/// How the run of one worker ended without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All steps are done and saved.
    Finished,
    /// It was told to stop, and what there was to save is saved.
    Stopped,
}

/// A copy of the model with its place in the data: the same on every worker at every step.
#[derive(Debug)]
pub(crate) struct Replica {
    seed: u64,
    data: Dataset,
    order: Order,
    model: Model,
    /// Completed steps.
    pub(crate) step: u64,
    /// Rows read so far, over all workers.
    position: u64,
    /// Mean loss of the last completed step.
    pub(crate) loss: f64,
}

impl Replica {
    /// The beginning of a run.
    pub(crate) fn new(seed: u64, data: Dataset) -> Self {
        let order = Order::new(seed, data.rows());
        Self { seed, data, order, model: Model::new(seed), step: 0, position: 0, loss: f64::NAN }
    }

    /// Goes on from a snapshot.
    fn restore(&mut self, snapshot: Snapshot) -> anyhow::Result<()> {
        let same = snapshot.seed == self.seed && snapshot.dataset == self.data.digest;
        ensure!(same, "the checkpoint of step {} belongs to another run (seed or dataset differ)", snapshot.step);
        self.model = Model { parameters: snapshot.parameters, velocity: snapshot.velocity };
        (self.step, self.position, self.loss) = (snapshot.step, snapshot.position, snapshot.loss);
        Ok(())
    }

    fn snapshot(&self, attempt: u64) -> Snapshot {
        Snapshot {
            step: self.step,
            position: self.position,
            seed: self.seed,
            dataset: self.data.digest.to_vec(),
            loss: self.loss,
            parameters: self.model.parameters.clone(),
            velocity: self.model.velocity.clone(),
            attempt,
        }
    }

    /// One worker's contribution to the next step: a function of the state, the seed and its rank alone.
    pub(crate) fn contribution(&mut self, rank: u32) -> Vec<f64> {
        let first = self.position + u64::from(rank) * BATCH;
        let rows: Vec<usize> = (first..first + BATCH).map(|position| self.order.row_at(position)).collect();
        self.model.gradient(&self.data, &rows)
    }

    /// Completes a step with the mean of the contributions of `world` workers.
    pub(crate) fn advance(&mut self, mean: &[f64], world: u32) {
        self.model.apply(mean);
        self.loss = mean.get(model::PARAMETERS).copied().unwrap_or(f64::NAN);
        self.step += 1;
        self.position += u64::from(world) * BATCH;
    }

    /// `sha256:` and the digest of the parameters.
    pub(crate) fn digest(&self) -> String {
        self.model.digest()
    }
}

/// One worker of a run that has begun.
struct Run<'a> {
    options: &'a Options,
    env: &'a Environment,
    patience: Patience,
    stop: watch::Receiver<bool>,
    replica: Replica,
    progress: Progress,
    /// The checkpoints, on worker 0 alone.
    store: Option<Store>,
    /// The step of the newest checkpoint of this run.
    saved: Option<u64>,
    notice_seen: bool,
}

/// Runs one worker to its end. `stop` turns true at SIGTERM.
pub(crate) async fn run(
    options: &Options,
    env: &Environment,
    patience: Patience,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<Ended> {
    let (path, data) = data::open(options.data.as_deref(), &env.checkpoint_dir, options.seed)?;
    say(format_args!(
        "worker {} of {}, attempt {}: {} rows from {}",
        env.rank,
        env.world,
        env.attempt,
        data.rows(),
        path.display()
    ));
    let mut run = Run {
        options,
        env,
        patience,
        replica: Replica::new(options.seed, data),
        progress: Progress::open(env.progress_file.as_deref()),
        store: None,
        saved: None,
        notice_seen: false,
        stop: stop.clone(),
    };
    let mut signal = stop;
    let group = tokio::select! {
        group = run.begin() => group?,
        () = stopped(&mut signal) => {
            say(format_args!("SIGTERM: no step of this attempt is done, nothing to save"));
            return Ok(Ended::Stopped);
        }
    };
    run.steps(group).await
}

impl Run<'_> {
    /// Finds the state to begin from and brings the group together.
    async fn begin(&mut self) -> anyhow::Result<Group> {
        let env = self.env;
        let identity = run_identity(self.options.seed, self.options.steps, &self.replica.data.digest);
        let group = if env.leads() {
            let store = Store::open(&env.checkpoint_dir)?;
            self.load(&store)?;
            self.store = Some(store);
            if env.world == 1 {
                Group::Solo
            } else {
                let invitation = Invitation {
                    coordinator: env.coordinator.clone(),
                    attempt: env.attempt,
                    world: env.world,
                    run: identity,
                    patience: self.patience,
                };
                Group::Leader(Leader::gather(invitation, self.replica.snapshot(env.attempt)).await?)
            }
        } else {
            let application = Application {
                coordinator: env.coordinator.clone(),
                attempt: env.attempt,
                rank: env.rank,
                world: env.world,
                run: identity,
                patience: self.patience,
            };
            let (peer, state) = Peer::join(&application).await?;
            self.replica.restore(state)?;
            Group::Peer(peer)
        };
        if env.resume {
            self.progress.resumed(self.replica.step);
            say(format_args!("resumed_from={}", self.replica.step));
        }
        Ok(group)
    }

    fn load(&mut self, store: &Store) -> anyhow::Result<()> {
        if !self.env.resume {
            return store.set_aside(self.env.attempt);
        }
        let Some(snapshot) = store.newest()? else {
            say(format_args!("no checkpoint in {}, from the beginning", self.env.checkpoint_dir.display()));
            return Ok(());
        };
        self.saved = Some(snapshot.step);
        self.replica.restore(snapshot)
    }

    async fn steps(mut self, mut group: Group) -> anyhow::Result<Ended> {
        while self.replica.step < self.options.steps {
            let signalled = *self.stop.borrow();
            if signalled {
                let own = self.env.rank;
                return self.stop(group, own).await;
            }
            let started = Instant::now();
            let step = self.replica.step + 1;
            match self.exchange(&mut group, step).await? {
                Exchange::Mean(mean) => self.replica.advance(&mean, self.env.world),
                Exchange::Stop { worker } => return self.stop(group, worker).await,
            }
            let checkpoint = self.checkpoint_when_due()?;
            self.progress.step(step, self.replica.loss, checkpoint);
            if step.is_multiple_of(SAY_EVERY) || checkpoint.is_some() {
                let note = if checkpoint.is_some() { ", checkpoint saved" } else { "" };
                say(format_args!("step {step}: loss {:.6}{note}", self.replica.loss));
            }
            let mut signal = self.stop.clone();
            tokio::select! {
                () = tokio::time::sleep_until(started + Duration::from_millis(self.options.step_ms)) => {}
                () = stopped(&mut signal) => {}
            }
        }
        self.finish(group).await
    }

    /// One all-reduce. After SIGTERM it may take a moment longer, and then the step does not count.
    async fn exchange(&mut self, group: &mut Group, step: u64) -> anyhow::Result<Exchange> {
        let own = self.replica.contribution(self.env.rank);
        let mut signal = self.stop.clone();
        let given_up = async {
            stopped(&mut signal).await;
            tokio::time::sleep(self.patience.last_step).await;
        };
        let result = tokio::select! {
            result = group.all_reduce(step, own) => result,
            () = given_up => return Ok(Exchange::Stop { worker: self.env.rank }),
        };
        match result {
            Err(error) if *self.stop.borrow() => {
                // The others had the same signal and may be gone before us: no failure of this run.
                complain(format_args!("SIGTERM: step {step} was cut off: {:#}", anyhow::Error::new(error)));
                Ok(Exchange::Stop { worker: self.env.rank })
            }
            other => other.with_context(|| format!("all-reduce at step {step} failed")),
        }
    }

    /// Saves at every K-th step, and once when the notice appears: it may be the last chance.
    fn checkpoint_when_due(&mut self) -> anyhow::Result<Option<u64>> {
        if self.store.is_none() {
            return Ok(None);
        }
        let noticed = !self.notice_seen && self.env.notice_file.as_deref().is_some_and(Path::exists);
        self.notice_seen |= noticed;
        if noticed {
            say(format_args!("notice: the slice will be taken away, saving at step {}", self.replica.step));
        }
        let due = self.replica.step.is_multiple_of(self.options.checkpoint_every);
        if due || noticed || self.replica.step == self.options.steps {
            return self.save();
        }
        Ok(None)
    }

    /// Saves the last completed step, unless it is saved or there is none.
    fn save(&mut self) -> anyhow::Result<Option<u64>> {
        let step = self.replica.step;
        let Some(store) = self.store.as_ref().filter(|_| step > 0 && self.saved != Some(step)) else { return Ok(None) };
        store.save(&self.replica.snapshot(self.env.attempt))?;
        self.saved = Some(step);
        Ok(Some(step))
    }

    /// Stops with the others: worker 0 saves and says so, and everybody waits for the own signal.
    async fn stop(mut self, group: Group, worker: u32) -> anyhow::Result<Ended> {
        let step = self.replica.step;
        if let Some(saved) = self.save()? {
            self.progress.step(saved, self.replica.loss, Some(saved));
        }
        let done = match (self.env.leads(), step) {
            (true, 1..) => "saved checkpoint",
            (true, 0) => "nothing to save",
            (false, _) => "stopped",
        };
        if worker != self.env.rank {
            say(format_args!("worker {worker} has to stop: {done} at step {step}"));
        }
        let signalled = *self.stop.borrow();
        if signalled {
            say(format_args!("SIGTERM: {done} at step {step}"));
        }
        match group {
            Group::Solo => {}
            Group::Leader(leader) => leader.stop(worker).await,
            Group::Peer(peer) if worker == self.env.rank => peer.leave(step).await,
            // Worker 0 has said it; closing the stream is the answer.
            Group::Peer(peer) => drop(peer),
        }
        if !signalled && tokio::time::timeout(self.patience.own_signal, stopped(&mut self.stop)).await.is_ok() {
            say(format_args!("SIGTERM: {done} at step {step}"));
        }
        Ok(Ended::Stopped)
    }

    /// The end of a complete run. The own signal changes nothing any more: all steps are done and saved.
    async fn finish(mut self, mut group: Group) -> anyhow::Result<Ended> {
        let digest = self.replica.digest();
        if let Some(saved) = self.save()? {
            self.progress.step(saved, self.replica.loss, Some(saved));
        }
        let agreed = match &mut group {
            Group::Solo => Ok(Agreement::All),
            Group::Leader(leader) => leader.agree(&digest).await,
            Group::Peer(peer) => peer.agree(&digest).await,
        };
        match agreed {
            Ok(Agreement::All) => {}
            // Somebody gave up the last step at its signal. The next attempt has nothing left but this agreement.
            Ok(Agreement::Stop { worker }) => return self.stop(group, worker).await,
            Err(error) if *self.stop.borrow() => {
                complain(format_args!("SIGTERM: the end was cut off: {:#}", anyhow::Error::new(error)));
                let own = self.env.rank;
                return self.stop(group, own).await;
            }
            Err(error) => return Err(error).context("the end of the run failed"),
        }
        if self.env.leads() {
            self.write_final(&digest)?;
        }
        if let Group::Leader(leader) = group {
            leader.finish(digest.clone()).await;
        }
        say(format_args!("final digest {digest}"));
        Ok(Ended::Finished)
    }

    fn write_final(&self, digest: &str) -> anyhow::Result<()> {
        let path = self.env.checkpoint_dir.join("final.json");
        let content = serde_json::json!({ "step": self.replica.step, "loss": self.replica.loss, "digest": digest });
        data::write(&path, format!("{content}\n").as_bytes()).with_context(|| format!("write {}", path.display()))
    }
}

/// Waits until `stop` turns true, for ever when nobody can turn it any more.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Trains in this process, without network, files or interruption.
pub(crate) fn undisturbed(seed: u64, world: u32, steps: u64, data: Dataset) -> Replica {
    let mut replica = Replica::new(seed, data);
    for _ in 0..steps {
        let contributions: Vec<Vec<f64>> = (0..world).map(|rank| replica.contribution(rank)).collect();
        replica.advance(&model::mean(&contributions), world);
    }
    replica
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_falls() {
        let data = Dataset::generate(7);
        let early = undisturbed(7, 4, 1, data.clone()).loss;
        let late = undisturbed(7, 4, 150, data).loss;
        assert!(late < early / 10.0, "loss {early} at step 1, {late} at step 150");
    }

    #[test]
    fn going_on_from_a_snapshot_gives_the_same_bits() {
        let data = Dataset::generate(7);
        let whole = undisturbed(7, 2, 80, data.clone());
        let half = undisturbed(7, 2, 40, data.clone());
        let mut resumed = Replica::new(7, data);
        resumed.restore(half.snapshot(1)).unwrap();
        for _ in 0..40 {
            let parts: Vec<_> = (0..2).map(|rank| resumed.contribution(rank)).collect();
            resumed.advance(&model::mean(&parts), 2);
        }
        assert_eq!(resumed.digest(), whole.digest());
        assert_ne!(half.digest(), whole.digest());
    }

    #[test]
    fn a_snapshot_of_another_run_is_refused() {
        let mut replica = Replica::new(8, Dataset::generate(8));
        let error = replica.restore(Replica::new(7, Dataset::generate(7)).snapshot(1)).unwrap_err();
        assert!(error.to_string().contains("another run"), "{error}");
    }
}
