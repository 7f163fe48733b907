//! The side of every other worker: one connection, one stream.

use std::time::Duration;

use anyhow::Context as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::wire::{FromLeader, Join, Numbers, REDUCE, Said, ToLeader, Told};
use super::{Agreement, Exchange, Patience, Rpc, State};

/// Between two attempts to reach worker 0 while it starts.
const KNOCK_EVERY: Duration = Duration::from_millis(100);
/// For one attempt to open a connection: a packet may be dropped without an answer while a machine starts.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);

/// What a worker applies with.
#[derive(Debug)]
pub(crate) struct Application {
    pub(crate) coordinator: String,
    pub(crate) attempt: u64,
    pub(crate) rank: u32,
    pub(crate) world: u32,
    /// See [`super::run_identity`].
    pub(crate) run: String,
    pub(crate) patience: Patience,
}

/// A member that is not worker 0.
#[derive(Debug)]
pub(crate) struct Peer {
    patience: Patience,
    sender: mpsc::Sender<ToLeader>,
    inbound: Streaming<FromLeader>,
}

impl Peer {
    /// Connects to worker 0, trying again while it starts, and waits until all have joined.
    ///
    /// # Errors
    /// When worker 0 refuses this worker, or does not welcome it within `patience.join`.
    pub(crate) async fn join(application: &Application) -> anyhow::Result<(Self, State)> {
        let deadline = Instant::now() + application.patience.join;
        let named = || format!("initialisation failed: worker 0 at {}", application.coordinator);
        let endpoint = Endpoint::from_shared(format!("http://{}", application.coordinator))
            .with_context(named)?
            .connect_timeout(CONNECT_LIMIT)
            .tcp_nodelay(true);
        loop {
            let error = match timeout_at(deadline, try_join(&endpoint, application)).await {
                Ok(Ok(member)) => return Ok(member),
                Ok(Err(Refused::ForGood(status))) => return Err(Rpc(status)).with_context(named),
                Ok(Err(Refused::Now(error))) => error,
                Err(_) => {
                    let limit = application.patience.join;
                    anyhow::Error::new(Rpc(Status::deadline_exceeded(format!("no welcome within {limit:?}"))))
                }
            };
            if Instant::now() + KNOCK_EVERY >= deadline {
                return Err(error).with_context(named);
            }
            tokio::time::sleep(KNOCK_EVERY).await;
        }
    }

    /// Sends the contribution to one step and waits for the mean.
    pub(super) async fn all_reduce(&mut self, step: u64, own: Vec<f64>) -> Result<Exchange, Rpc> {
        self.say(Said::Contribution(Numbers { step, values: own })).await;
        match self.hear(self.patience.barrier + self.patience.answer_margin).await? {
            Told::Mean(mean) if mean.step == step => Ok(Exchange::Mean(mean.values)),
            Told::Stop(worker) => Ok(Exchange::Stop { worker }),
            other @ (Told::Mean(_) | Told::Welcome(_) | Told::Finished(_)) => Err(unexpected(&other).into()),
        }
    }

    /// Tells worker 0 the digest of the final parameters and waits for its last word.
    pub(crate) async fn agree(&mut self, digest: &str) -> Result<Agreement, Rpc> {
        self.say(Said::Done(digest.to_owned())).await;
        // Worker 0 waits for the slowest, writes the last checkpoint and only then answers.
        match self.hear(2 * self.patience.barrier + self.patience.answer_margin).await? {
            Told::Finished(theirs) if theirs == digest => Ok(Agreement::All),
            Told::Stop(worker) => Ok(Agreement::Stop { worker }),
            other @ (Told::Finished(_) | Told::Welcome(_) | Told::Mean(_)) => Err(unexpected(&other).into()),
        }
    }

    /// Tells worker 0 that this worker has to stop, and gives it a moment to save and to say so.
    pub(crate) async fn leave(mut self, step: u64) {
        self.say(Said::Leave(step)).await;
        let deadline = Instant::now() + self.patience.last_step;
        // A mean that was under way may come first. Whatever comes in the end, this worker goes.
        while let Ok(Ok(Some(message))) = timeout_at(deadline, self.inbound.message()).await {
            if matches!(message.told, Some(Told::Stop(_))) {
                return;
            }
        }
    }

    /// Queues a message. A broken stream shows itself when the answer is read, with its cause.
    async fn say(&mut self, said: Said) {
        let _ = self.sender.send(ToLeader { said: Some(said) }).await;
    }

    async fn hear(&mut self, limit: Duration) -> Result<Told, Status> {
        match timeout(limit, self.inbound.message()).await {
            Ok(Ok(Some(FromLeader { told: Some(told) }))) => Ok(told),
            Ok(Ok(Some(FromLeader { told: None }))) => Err(Status::internal("a message of no known kind")),
            Ok(Ok(None)) => Err(Status::unavailable("worker 0 closed the stream")),
            Ok(Err(status)) => Err(status),
            Err(_) => Err(Status::deadline_exceeded(format!("no answer of worker 0 within {limit:?}"))),
        }
    }
}

enum Refused {
    /// Coming again cannot help.
    ForGood(Status),
    /// Worker 0 may still be starting.
    Now(anyhow::Error),
}

async fn try_join(endpoint: &Endpoint, application: &Application) -> Result<(Peer, State), Refused> {
    let channel = endpoint.connect().await.map_err(|error| Refused::Now(error.into()))?;
    let (sender, outbound) = mpsc::channel(4);
    let join = Join {
        attempt: application.attempt,
        rank: application.rank,
        world: application.world,
        run: application.run.clone(),
    };
    let joined = async {
        let _ = sender.send(ToLeader { said: Some(Said::Join(join)) }).await;
        let inbound = reduce(channel, outbound).await?;
        let mut peer = Peer { patience: application.patience, sender, inbound };
        match peer.hear(application.patience.join).await? {
            Told::Welcome(state) => Ok((peer, state)),
            other @ (Told::Mean(_) | Told::Stop(_) | Told::Finished(_)) => Err(unexpected(&other)),
        }
    };
    joined.await.map_err(|status: Status| {
        let for_good = [Code::FailedPrecondition, Code::InvalidArgument, Code::AlreadyExists, Code::Unimplemented];
        if for_good.contains(&status.code()) { Refused::ForGood(status) } else { Refused::Now(Rpc(status).into()) }
    })
}

async fn reduce(channel: Channel, outbound: mpsc::Receiver<ToLeader>) -> Result<Streaming<FromLeader>, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::from_error(Box::new(error)))?;
    let request = Request::new(ReceiverStream::new(outbound));
    let codec: ProstCodec<ToLeader, FromLeader> = ProstCodec::default();
    Ok(client.streaming(request, PathAndQuery::from_static(REDUCE), codec).await?.into_inner())
}

fn unexpected(told: &Told) -> Status {
    let kind = match told {
        Told::Welcome(_) => "a welcome",
        Told::Mean(_) => "the mean of another step",
        Told::Stop(_) => "a stop",
        Told::Finished(_) => "a last word with another digest",
    };
    Status::failed_precondition(format!("worker 0 answered with {kind}"))
}
