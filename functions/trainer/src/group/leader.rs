//! Worker 0's side: the server, the joins, the barrier of each step, and the last word.
//!
//! One loop owns all state. The server's tasks only turn streams into events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tonic::Status;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::wire::{AllReduce, Event, FromLeader, Gate, Join, Numbers, Replies, Said, Told};
use super::{Agreement, Exchange, Patience, Rpc, State};
use crate::model;

/// What worker 0 opens the group with.
#[derive(Debug)]
pub(crate) struct Invitation {
    pub(crate) coordinator: String,
    pub(crate) attempt: u64,
    pub(crate) world: u32,
    /// See [`super::run_identity`].
    pub(crate) run: String,
    pub(crate) patience: Patience,
}

/// Worker 0 of a group that is complete.
#[derive(Debug)]
pub(crate) struct Leader {
    world: u32,
    patience: Patience,
    peers: BTreeMap<u32, Link>,
    events: mpsc::Receiver<Event>,
    server: JoinHandle<Result<(), tonic::transport::Error>>,
}

#[derive(Debug)]
struct Link {
    stream: u64,
    replies: Replies,
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Leader {
    /// Listens, waits until all others have joined, and sends them the state to begin from.
    ///
    /// # Errors
    /// When the address stays taken, or a worker is missing at the end of `patience.join`.
    pub(crate) async fn gather(invitation: Invitation, state: State) -> anyhow::Result<Self> {
        let deadline = Instant::now() + invitation.patience.join;
        let listener = listen(&invitation.coordinator, deadline).await?;
        let (sender, events) = mpsc::channel(2 * invitation.world as usize);
        let gate = Fence {
            attempt: invitation.attempt,
            world: invitation.world,
            run: invitation.run.into(),
            streams: Arc::default(),
        };
        let service = AllReduce { gate, events: sender };
        // Small messages that the next step waits for: Nagle's algorithm would hold each of them back.
        let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
        let server = tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
        let mut leader =
            Self { world: invitation.world, patience: invitation.patience, peers: BTreeMap::new(), events, server };
        if let Err(status) = leader.await_joins(deadline).await {
            leader.dismiss(Err(&status)).await;
            return Err(Rpc(status)).context("initialisation failed");
        }
        for rank in 1..leader.world {
            leader.tell(rank, Told::Welcome(state.clone())).await;
        }
        Ok(leader)
    }

    async fn await_joins(&mut self, deadline: Instant) -> Result<(), Status> {
        while self.peers.len() + 1 < self.world as usize {
            match timeout_at(deadline, self.events.recv()).await {
                Ok(Some(Event::Joined { rank, stream, replies })) => {
                    // A worker that lost its connection before the start may come again.
                    self.peers.insert(rank, Link { stream, replies });
                }
                Ok(Some(Event::Ended { rank, stream, .. })) => {
                    if self.is_current(rank, stream) {
                        self.peers.remove(&rank);
                    }
                }
                Ok(Some(Event::Said { rank, stream, said })) => {
                    if self.is_current(rank, stream) {
                        return Err(Status::failed_precondition(format!("worker {rank} began too early: {said:?}")));
                    }
                }
                Ok(None) => return Err(Status::internal("the server has ended")),
                Err(_) => {
                    let missing = list((1..self.world).filter(|rank| !self.peers.contains_key(rank)));
                    return Err(Status::deadline_exceeded(format!(
                        "workers {missing} of {} did not join within {:?}",
                        self.world, self.patience.join
                    )));
                }
            }
        }
        Ok(())
    }

    /// Waits for all contributions to one step and sends everybody their mean.
    ///
    /// # Errors
    /// When a worker's stream breaks, or one is missing at the end of `patience.barrier`; the others are told.
    pub(super) async fn all_reduce(&mut self, step: u64, own: Vec<f64>) -> Result<Exchange, Rpc> {
        match self.collect(step, own).await {
            Ok(Collected::All(contributions)) => {
                let values = model::mean(&contributions);
                for rank in 1..self.world {
                    self.tell(rank, Told::Mean(Numbers { step, values: values.clone() })).await;
                }
                Ok(Exchange::Mean(values))
            }
            Ok(Collected::Stop { worker }) => Ok(Exchange::Stop { worker }),
            Err(status) => {
                self.dismiss(Err(&status)).await;
                Err(Rpc(status))
            }
        }
    }

    async fn collect(&mut self, step: u64, own: Vec<f64>) -> Result<Collected, Status> {
        let deadline = Instant::now() + self.patience.barrier;
        let length = own.len();
        let mut parts = BTreeMap::from([(0, own)]);
        while parts.len() < self.world as usize {
            let Some((rank, said)) = self.next_word(deadline).await? else {
                let missing = list((1..self.world).filter(|rank| !parts.contains_key(rank)));
                return Err(Status::deadline_exceeded(format!(
                    "barrier: no contribution of workers {missing} within {:?}",
                    self.patience.barrier
                )));
            };
            match said {
                Said::Contribution(part) if part.step == step && part.values.len() == length => {
                    parts.insert(rank, part.values);
                }
                Said::Contribution(part) => {
                    let (theirs, count) = (part.step, part.values.len());
                    return Err(Status::data_loss(format!(
                        "worker {rank} is at step {theirs} with {count} numbers, worker 0 at {step} with {length}"
                    )));
                }
                Said::Leave(_) => return Ok(Collected::Stop { worker: rank }),
                Said::Join(_) | Said::Done(_) => {
                    return Err(Status::failed_precondition(format!("worker {rank} is not at step {step}")));
                }
            }
        }
        Ok(Collected::All(parts.into_values().collect()))
    }

    /// The next message of a member, `None` at the deadline.
    ///
    /// # Errors
    /// When a member's stream has ended: with the status that tonic gave for it.
    async fn next_word(&mut self, deadline: Instant) -> Result<Option<(u32, Said)>, Status> {
        loop {
            match timeout_at(deadline, self.events.recv()).await {
                Ok(Some(Event::Said { rank, stream, said })) if self.is_current(rank, stream) => {
                    return Ok(Some((rank, said)));
                }
                Ok(Some(Event::Ended { rank, stream, status })) if self.is_current(rank, stream) => {
                    self.peers.remove(&rank);
                    return Err(lost(rank, &status));
                }
                Ok(Some(Event::Joined { rank, replies, .. })) => {
                    let refusal = Status::already_exists(format!("worker {rank} came when training had begun"));
                    let _ = replies.try_send(Err(refusal));
                }
                Ok(Some(Event::Said { .. } | Event::Ended { .. })) => {}
                Ok(None) => return Err(Status::internal("the server has ended")),
                Err(_) => return Ok(None),
            }
        }
    }

    /// Waits until all others have come to the end with the same parameters.
    ///
    /// # Errors
    /// When one has other parameters, breaks off, or is missing at the end of `patience.barrier`; the others are told.
    pub(crate) async fn agree(&mut self, digest: &str) -> Result<Agreement, Rpc> {
        match self.compare(digest).await {
            Ok(agreement) => Ok(agreement),
            Err(status) => {
                self.dismiss(Err(&status)).await;
                Err(Rpc(status))
            }
        }
    }

    async fn compare(&mut self, digest: &str) -> Result<Agreement, Status> {
        let deadline = Instant::now() + self.patience.barrier;
        let mut missing: Vec<u32> = (1..self.world).collect();
        while !missing.is_empty() {
            let Some((rank, said)) = self.next_word(deadline).await? else {
                let missing = list(missing.into_iter());
                return Err(Status::deadline_exceeded(format!("workers {missing} did not come to the end")));
            };
            match said {
                Said::Done(theirs) if theirs == digest => missing.retain(|other| *other != rank),
                Said::Done(theirs) => {
                    return Err(Status::data_loss(format!(
                        "worker {rank} ended with {theirs}, worker 0 with {digest}"
                    )));
                }
                Said::Leave(_) => return Ok(Agreement::Stop { worker: rank }),
                Said::Join(_) | Said::Contribution(_) => {
                    return Err(Status::failed_precondition(format!("worker {rank} is not done")));
                }
            }
        }
        Ok(Agreement::All)
    }

    /// Tells the others that the run is over, and waits until they have heard it.
    pub(crate) async fn finish(mut self, digest: String) {
        self.dismiss(Ok(&Told::Finished(digest))).await;
    }

    /// Tells the others to stop because `worker` has to, and waits until they have heard it.
    pub(crate) async fn stop(mut self, worker: u32) {
        self.dismiss(Ok(&Told::Stop(worker))).await;
    }

    /// Says the last word on every stream, and gives the others a moment to close theirs: a process that ended at once
    /// would tear down the connection under its own message.
    async fn dismiss(&mut self, word: Result<&Told, &Status>) {
        let mut open: BTreeMap<u32, u64> = BTreeMap::new();
        for (rank, link) in std::mem::take(&mut self.peers) {
            let word = match word {
                Ok(told) => Ok(FromLeader { told: Some(told.clone()) }),
                Err(status) => Err(status.clone()),
            };
            if link.replies.try_send(word).is_ok() {
                open.insert(rank, link.stream);
            }
        }
        let deadline = Instant::now() + self.patience.farewell;
        while !open.is_empty() {
            match timeout_at(deadline, self.events.recv()).await {
                Ok(Some(Event::Ended { rank, stream, .. })) => {
                    if open.get(&rank) == Some(&stream) {
                        open.remove(&rank);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Sends without waiting for the other side; a stream that is gone shows itself as an event.
    async fn tell(&mut self, rank: u32, told: Told) {
        if let Some(link) = self.peers.get(&rank) {
            let _ = link.replies.send(Ok(FromLeader { told: Some(told) })).await;
        }
    }

    fn is_current(&self, rank: u32, stream: u64) -> bool {
        self.peers.get(&rank).is_some_and(|link| link.stream == stream)
    }
}

enum Collected {
    All(Vec<Vec<f64>>),
    Stop { worker: u32 },
}

/// Binds the coordinator's address. An earlier attempt's process may hold it for a moment longer.
async fn listen(coordinator: &str, deadline: Instant) -> anyhow::Result<TcpListener> {
    loop {
        match TcpListener::bind(coordinator).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Err(error) => return Err(error).with_context(|| format!("listen on {coordinator}")),
        }
    }
}

/// Adds whose stream it was. The code stays as tonic gave it, and the cause stays below it.
fn lost(rank: u32, status: &Status) -> Status {
    let mut named = Status::new(status.code(), format!("lost worker {rank}: {}", status.message()));
    if let Some(cause) = std::error::Error::source(status) {
        named.set_source(Arc::new(Cause(chain(cause))));
    }
    named
}

/// The causes below a status, which tonic does not let us move to another one.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Cause(String);

fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    // A status inside a status, and the box that carries it, say the same again, with all that is below.
    let repeats = |cause: &(dyn std::error::Error + 'static)| {
        cause.is::<Status>() || cause.source().is_some_and(<dyn std::error::Error>::is::<Status>)
    };
    let causes = causes.filter(|cause| !repeats(*cause));
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn list(ranks: impl Iterator<Item = u32>) -> String {
    ranks.map(|rank| rank.to_string()).collect::<Vec<_>>().join(", ")
}

/// Refuses workers of another attempt, run or size.
#[derive(Debug, Clone)]
struct Fence {
    attempt: u64,
    world: u32,
    run: Arc<str>,
    streams: Arc<AtomicU64>,
}

impl Gate for Fence {
    fn admit(&self, join: &Join) -> Result<u64, Status> {
        let (ours, theirs) = (self.attempt, join.attempt);
        if theirs > ours {
            // Our process is the stale one. The other may find its own worker 0 here in a moment.
            return Err(Status::unavailable(format!("worker 0 here is of attempt {ours}, not {theirs}")));
        }
        if theirs < ours {
            return Err(Status::failed_precondition(format!("attempt {theirs} is over, this is attempt {ours}")));
        }
        if join.world != self.world || join.rank == 0 || join.rank >= self.world {
            let (rank, world) = (join.rank, join.world);
            return Err(Status::invalid_argument(format!("worker {rank} of {world} in a group of {}", self.world)));
        }
        if join.run != *self.run {
            return Err(Status::failed_precondition(format!(
                "a worker of another run: {}; here: {}",
                join.run, self.run
            )));
        }
        Ok(self.streams.fetch_add(1, Ordering::Relaxed))
    }
}
