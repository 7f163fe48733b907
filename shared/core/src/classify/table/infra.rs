//! Rows for transports between workers: gRPC, the coordination service, collectives. Almost all are echoes.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::InfraGrpc;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "coordination",
        InfraGrpc,
        Trust::Echo,
        &[
            "coordination service",
            "CoordinationService",
            "coordination_service",
            "distributed service detected fatal errors",
            "stopped sending heartbeats",
            "another task died",
            "tasks have crashed",
            "/job:jax_worker",
            "heartbeat timeout",
            "missed heartbeats",
        ],
    )
    .also(concat!(
        r"(?i)Polled an error|PollForError|detected fatal errors|Failed to send RPC|stopped sending heartbeats",
        r"|registration failed",
        r"|RegisterTask|heartbeat (?:request )?time|missed heartbeat|unhealthy|another task died",
        r"|tasks have crashed|/tensorflow\.CoordinationService/",
        r"|(?:failed|error|abort|timed? ?out|DEADLINE|UNAVAILABLE|INTERNAL|disconnected).{0,200}coordination",
        r"|coordination.{0,200}(?:fail|error|timed? ?out|unavailable)",
    ))
    .unless(r"(?i)shutting down|has initiated shutdown|successfully")
    .says(
        "the coordination service reports that a peer is gone",
        &[
            "F1127 11:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed \
             service detected fatal errors. This most likely indicates that another task died",
            "E1127 11:42:48.594192 1 coordination_service_agent.cc:332] Polled an error from coordination \
             service (this can be an error from this or another task).",
            "RPC: /tensorflow.CoordinationService/RegisterTask",
        ],
        &["I1127 coordination_service_agent.cc:320] Cancelling error polling because the service or the agent \
         is shutting down."],
    ),
    Row::new(
        "heartbeats-stopped",
        InfraGrpc,
        Trust::Telling,
        &["stopped sending heartbeats", "heartbeat timeout", "missed heartbeats"],
    )
    .says(
        "a worker was no longer heard by the others",
        &["E1128 04:54:21.587229    2348 coordination_service.cc:1549] [68] Use error polling to propagate the following \
           error to all tasks: UNAVAILABLE: The following tasks are unhealthy (stopped sending heartbeats):"],
        &["heartbeat_timeout_seconds=10"],
    ),
    Row::new("barrier", InfraGrpc, Trust::Echo, &["barrier"])
        .also(concat!(
            r"(?i)barrier.{0,80}(?:timed? ?out|failed|error|expired|deadline)|(?:DEADLINE_EXCEEDED|timed? ?out",
            r"|failed).{0,80}barrier",
        ))
        .says(
            "workers waited for each other in vain",
            &["jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Barrier_id: \
             PjRT_Client_Connect."],
            &["all tasks passed the barrier"],
        ),
    Row::new("incarnation", InfraGrpc, Trust::Echo, &["incarnation"])
        .also(concat!(
            r"(?i)(?:different|unexpected|new|another|wrong|expects a).{0,20}incarnation",
            r"|incarnation (?:ID )?mismatch|duplicate task registration|incarnation.{0,60}(?:restarted|expected)",
        ))
        .says(
            "a peer restarted alone, and the others still know the old one",
            &["ABORTED: /job:jax_worker/replica:0/task:3 unexpectedly tried to connect with a different \
             incarnation. It has likely restarted."],
            &["task incarnation: 17"],
        ),
    Row::new(
        "grpc-status",
        InfraGrpc,
        Trust::Echo,
        &[
            "Socket closed",
            "StatusCode.CANCELLED",
            "StatusCode.ABORTED",
            "StatusCode.INTERNAL",
            "StatusCode.UNKNOWN",
            "grpc_status:14",
            "grpc_status\":14",
            "grpc_status:4",
            "UNAVAILABLE",
            "DEADLINE_EXCEEDED",
            "DeadlineExceeded",
            "Deadline Exceeded",
            "failed to connect to all addresses",
            "GOAWAY",
            "Too many pings",
            "ENHANCE_YOUR_CALM",
            "keepalive watchdog",
            "RST_STREAM",
            "Endpoint read failed",
            "recvmsg",
            "sendmsg",
            "Channel closed",
            "Stream removed",
            "Transport closed",
            "subchannel",
        ],
    )
    .says(
        "a remote call failed in transport",
        &[
            "Exception in device=TPU:0: Unavailable: Socket closed",
            "  (0) INTERNAL: {{function_node f}} failed to connect to all addresses",
            "UNAVAILABLE: keepalive watchdog timeout",
            "grpc._channel._InactiveRpcError: <_InactiveRpcError of RPC that terminated with: status = \
             StatusCode.UNAVAILABLE",
        ],
        &["Additional GRPC error information from remote target /job:worker:"],
    ),
    Row::new(
        "grpc-tonic",
        InfraGrpc,
        Trust::Echo,
        &[
            "transport error",
            "h2 protocol error",
            "http2 error",
            "service is currently unavailable",
            "status: Unavailable",
            "status: DeadlineExceeded",
            "status: Cancelled",
            "error trying to connect",
            "tcp connect error",
            "connection error",
            "code = Unavailable",
            "code = DeadlineExceeded",
            "stream closed because of a broken pipe",
            "error reading a body from connection",
        ],
    )
    .says(
        "a remote call of a Rust or Go program failed in transport",
        &[
            "Error: all-reduce at step 37 failed: status: 'The service is currently unavailable', self: \
             \"transport error\"",
            "status: Unknown, message: \"h2 protocol error: error reading a body from connection\"",
            "rpc error: code = Unavailable desc = error reading from server: EOF",
        ],
        &["status: Ok"],
    ),
    Row::new("session-lost", InfraGrpc, Trust::Medium, &["Session ", "Worker lost", "worker was lost"])
        .also(r"\bSession [0-9a-f]{8,} (?:is|was) not found|(?i)\bworker (?:was )?lost\b")
        .says(
            "the remote server restarted under its client",
            &["Exception in device=TPU:6: Aborted: Session 9d9f16636571817e is not found."],
            &["Session 3 of the course is not found interesting"],
        ),
    Row::new(
        "peer-reset",
        InfraGrpc,
        Trust::Echo,
        &[
            "by peer",
            "Broken pipe",
            "Connection refused",
            "No route to host",
            "Connection timed out",
            "Connection aborted",
        ],
    )
    .also(concat!(
        r"(?i)(?:connection (?:reset|closed|aborted|lost)|closed) by (?:peer|remote)|broken pipe",
        r"|connection refused|no route to host|connection timed out|connection aborted",
    ))
    .unless(r"BrokenPipeError|wandb: ")
    .says(
        "a connection broke",
        &["recv: Connection reset by peer", "gloo: Connection closed by peer [10.0.0.3]:40111"],
        &["BrokenPipeError: [Errno 32] Broken pipe"],
    ),
    Row::new(
        "collective",
        InfraGrpc,
        Trust::Echo,
        &[
            "Gloo",
            "NCCL",
            "ncclRemoteError",
            "ncclSystemError",
            "TCPStore",
            "ProcessGroup",
            "c10d",
            "connectFullMesh",
            "DistBackendError",
            "Rendezvous",
            "DistStoreError",
            "DistNetworkError",
            "Horovod",
            "MPI_",
            "all-reduce",
            "allreduce",
            "MegaScale",
        ],
    )
    .also(r"(?i)fail|error|timed? ?out|closed|abort|lost|unavailable|exited|reset|hang")
    .unless(r"(?i)unhandled cuda error|invalid (?:usage|argument)")
    .says(
        "a collective between workers broke",
        &[
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection closed by peer \
             [10.0.0.3]:40111",
            "torch.distributed.DistBackendError: NCCL error in: ncclRemoteError: remote process exited or \
             there was a network error",
            "torch.distributed.DistStoreError: Socket Timeout",
            "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
        ],
        &["NCCL version 2.19.3+cuda12.1"],
    ),
    Row::new(
        "mesh-service",
        InfraGrpc,
        Trust::Medium,
        &["mesh_service.cc", "client mesh master", "mesh configuration", "meet rendezvous"],
    )
    .also(r"(?i)fail|error")
    .says(
        "the processes of one host or pod could not meet",
        &["RuntimeError: tensorflow/compiler/xla/xla_client/mesh_service.cc:294 : Failed to meet \
             rendezvous 'loss_reduce': Socket closed (14)"],
        &["mesh configuration: 4x4x4"],
    ),
    Row::new(
        "address-in-use",
        InfraGrpc,
        Trust::Low,
        &[
            "Address already in use",
            "address in use",
            "EADDRINUSE",
            "Failed to add any wildcard listeners",
            "Failed to add port to server",
            "os error 98",
        ],
    )
    .says(
        "the port is still held by an earlier program, as by a coordinator left over",
        &[
            "OSError: [Errno 98] Address already in use",
            "UNKNOWN: Failed to add port to server: Address already in use",
        ],
        &["peer address 10.0.0.3:8476"],
    ),
    Row::new(
        "dns-of-peer",
        InfraGrpc,
        Trust::High,
        &["DNS resolution failed", "ARES_SUCCESS", "Domain name not found"],
    )
    .unless(r"(?i)googleapis\.com|huggingface\.co|wandb\.ai|pypi\.org|amazonaws")
    .says(
        "the name of a peer could not be resolved",
        &["UNAVAILABLE: DNS resolution failed for worker-0.svc:8476: C-ares status is not ARES_SUCCESS \
             qtype=A name=worker-0.svc is_balancer=0: Domain name not found"],
        &["DNS resolution failed for storage.googleapis.com:443"],
    ),
    Row::new(
        "status-class",
        InfraGrpc,
        Trust::Echo,
        &[
            "UnavailableError",
            "AbortedError",
            "CancelledError",
            "DeadlineExceededError",
            "XlaRuntimeError",
            "JaxRuntimeError",
            "StatusOr",
            "Cancelled:",
            "Aborted:",
            "Unavailable:",
            "Deadline exceeded:",
        ],
    )
    .also(concat!(
        r"(?:^|[\s(])(?:Cancelled|Aborted|Unavailable|Deadline exceeded): |errors(?:_impl)?\.(?:Unavailable",
        r"|Aborted|Cancelled|DeadlineExceeded)Error|(?:Xla|Jax)RuntimeError: (?:ABORTED|CANCELLED|UNAVAILABLE",
        r"|DEADLINE_EXCEEDED)|StatusOr access: (?:ABORTED|CANCELLED|UNAVAILABLE|DEADLINE_EXCEEDED)",
    ))
    .says(
        "the runtime reports that a remote part gave up",
        &[
            "tensorflow.python.framework.errors_impl.AbortedError: Step was cancelled by an explicit call to \
             `Session::Close()`.",
            "jaxlib.xla_extension.XlaRuntimeError: ABORTED: x",
        ],
        &["jaxlib.xla_extension.XlaRuntimeError: INVALID_ARGUMENT: x"],
    ),
    Row::new("timeout-class", InfraGrpc, Trust::Echo, &["TimeoutError", "timed out", "Timeout ("])
        .also(concat!(
            r"(?i:collective|operation|rendezvous) timed out|^(?:\w+\.)*TimeoutError\b",
            r"|^Timeout \(\d+:\d\d:\d\d\)!|(?i)timed out (?:after|waiting|while)",
            r"|wait\w* timed out",
        ))
        .unless(r"(?i)https?://|wandb|huggingface|googleapis|Read timed out|Connection to \S+ timed out")
        .says(
            "somebody waited in vain",
            &["concurrent.futures._base.TimeoutError", "RuntimeError: Timed out waiting for 3 peers"],
            &["requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out."],
        ),
];
