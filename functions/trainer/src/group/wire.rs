//! The gRPC service `rekindle.trainer.v1.AllReduce`: its messages and its server glue, written by hand so that a
//! build needs no protobuf compiler.
//!
//! `Reduce` is one stream in both directions for each worker but worker 0. In: a join, then for each step a
//! contribution, then either a leave or a done. Out: a welcome, for each step a mean, then either a stop or a finished.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{NamedService, StreamingService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::checkpoint::Snapshot;

/// The path of the one method.
pub(super) const REDUCE: &str = "/rekindle.trainer.v1.AllReduce/Reduce";

/// A worker's message to worker 0.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ToLeader {
    #[prost(oneof = "Said", tags = "1, 2, 3, 4")]
    pub(super) said: Option<Said>,
}

/// The kinds of [`ToLeader`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Said {
    #[prost(message, tag = "1")]
    Join(Join),
    #[prost(message, tag = "2")]
    Contribution(Numbers),
    /// This worker has to stop; the number is its last completed step.
    #[prost(uint64, tag = "3")]
    Leave(u64),
    /// All steps are done; the text is the digest of this worker's parameters.
    #[prost(string, tag = "4")]
    Done(String),
}

/// The first message of a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Join {
    /// The fence.
    #[prost(uint64, tag = "1")]
    pub(super) attempt: u64,
    #[prost(uint32, tag = "2")]
    pub(super) rank: u32,
    #[prost(uint32, tag = "3")]
    pub(super) world: u32,
    /// See [`super::run_identity`].
    #[prost(string, tag = "4")]
    pub(super) run: String,
}

/// A contribution to a step, or its mean.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Numbers {
    #[prost(uint64, tag = "1")]
    pub(super) step: u64,
    #[prost(double, repeated, tag = "2")]
    pub(super) values: Vec<f64>,
}

/// Worker 0's message to another worker.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FromLeader {
    #[prost(oneof = "Told", tags = "1, 2, 3, 4")]
    pub(super) told: Option<Told>,
}

/// The kinds of [`FromLeader`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub(super) enum Told {
    /// All have joined; the state to begin from.
    #[prost(message, tag = "1")]
    Welcome(Snapshot),
    #[prost(message, tag = "2")]
    Mean(Numbers),
    /// All stop, because this worker has to.
    #[prost(uint32, tag = "3")]
    Stop(u32),
    /// All agree on this digest and it is saved.
    #[prost(string, tag = "4")]
    Finished(String),
}

/// What worker 0 sends on one stream.
pub(super) type Replies = mpsc::Sender<Result<FromLeader, Status>>;

/// What happens on the streams, in the order worker 0 learns it.
#[derive(Debug)]
pub(super) enum Event {
    /// A worker whose join was accepted by the fence.
    Joined { rank: u32, stream: u64, replies: Replies },
    /// A later message.
    Said { rank: u32, stream: u64, said: Said },
    /// The stream has ended, with what tonic says about it.
    Ended { rank: u32, stream: u64, status: Status },
}

/// Decides about a join before worker 0's own loop hears of it.
pub(super) trait Gate: Clone + Send + Sync + 'static {
    /// Refuses a worker of another attempt, run or size; otherwise gives the stream a number.
    fn admit(&self, join: &Join) -> Result<u64, Status>;
}

/// The server side: reads the streams and turns them into events.
#[derive(Debug, Clone)]
pub(super) struct AllReduce<G> {
    pub(super) gate: G,
    pub(super) events: mpsc::Sender<Event>,
}

impl<G> NamedService for AllReduce<G> {
    const NAME: &'static str = "rekindle.trainer.v1.AllReduce";
}

impl<G: Gate, B> Service<http::Request<B>> for AllReduce<G>
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let method = self.clone();
        Box::pin(async move {
            if request.uri().path() != REDUCE {
                return Ok(Status::unimplemented(request.uri().path().to_owned()).into_http());
            }
            Ok(tonic::server::Grpc::new(ProstCodec::default()).streaming(method, request).await)
        })
    }
}

type Accepted = Result<Response<ReceiverStream<Result<FromLeader, Status>>>, Status>;

impl<G: Gate> StreamingService<ToLeader> for AllReduce<G> {
    type Response = FromLeader;
    type ResponseStream = ReceiverStream<Result<FromLeader, Status>>;
    type Future = Pin<Box<dyn Future<Output = Accepted> + Send>>;

    fn call(&mut self, request: Request<Streaming<ToLeader>>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { this.accept(request.into_inner()).await })
    }
}

impl<G: Gate> AllReduce<G> {
    async fn accept(self, mut inbound: Streaming<ToLeader>) -> Accepted {
        let Some(ToLeader { said: Some(Said::Join(join)) }) = inbound.message().await? else {
            return Err(Status::invalid_argument("the first message of a stream is a join"));
        };
        let stream = self.gate.admit(&join)?;
        let rank = join.rank;
        // A worker sends nothing before it has the answer to its last message, so few are ever under way.
        let (replies, outbound) = mpsc::channel(4);
        let gone = || Status::unavailable("worker 0 has ended");
        self.events.send(Event::Joined { rank, stream, replies }).await.map_err(|_| gone())?;
        tokio::spawn(async move {
            let status = loop {
                match inbound.message().await {
                    Ok(Some(ToLeader { said: Some(said) })) => {
                        if self.events.send(Event::Said { rank, stream, said }).await.is_err() {
                            return;
                        }
                    }
                    Ok(Some(ToLeader { said: None })) => break Status::invalid_argument("a message of no known kind"),
                    Ok(None) => break Status::aborted("the stream was closed from the other side"),
                    Err(status) => break status,
                }
            };
            // Worker 0's loop has ended, then nobody needs to know.
            let _ = self.events.send(Event::Ended { rank, stream, status }).await;
        });
        Ok(Response::new(ReceiverStream::new(outbound)))
    }
}
