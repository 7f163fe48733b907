//! Rows for disks, and for storage, hubs and trackers across the network.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::{DiskFull, StorageNetwork};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "no-space",
        DiskFull,
        Trust::High,
        &[
            "No space left on device",
            "Errno 28]",
            "os error 28",
            "ENOSPC",
            "Disk quota exceeded",
            "Errno 122]",
            "Could not append to the internal temporary file",
            "database or disk is full",
            "disk is full",
            "ephemeral-storage",
            "StorageFull",
            "No usable temporary directory",
            "enough free space in",
            "out of disk space",
        ],
    )
    .says(
        "no space was left on a disk",
        &[
            "OSError: [Errno 28] No space left on device",
            "  (1) Internal: Could not append to the internal temporary file.",
            "tar: data.bin: Wrote only 4096 of 10240 bytes: Disk quota exceeded",
        ],
        &["W1127 disk usage 93%"],
    ),
    Row::new(
        "little-space",
        DiskFull,
        Trust::Low,
        &["Not enough free disk space", "not enough disk space", "insufficient disk space"],
    )
    .says(
        "a download does not fit on the disk",
        &["OSError: not enough disk space to store the dataset"],
        &["enough disk space: yes"],
    ),
    Row::new(
        "http-status",
        StorageNetwork,
        Trust::High,
        &[
            "HTTP response code",
            "Server Error",
            "Too Many Requests",
            "TooManyRequests",
            "ServiceUnavailable",
            "InternalServerError",
            "BadGateway",
            "GatewayTimeout",
            "rateLimitExceeded",
            "userRateLimitExceeded",
            "backendError",
            "SlowDown",
            "HttpError",
            "HTTPError",
            "status code",
            "HTTP/1.1\" 50",
            "Status: 50",
            "HTTP error 50",
            "Backend Error",
            "HTTP error 429",
            "response status 50",
        ],
    )
    .also(concat!(
        r"(?i)HTTP (?:response code:?|status|error:?|error code:?) ?(?:429|50[0234])\b|\b(?:429",
        r"|50[0234])\b:? (?:Client|Server) Error|\b(?:429|50[0234]) (?:Too Many|Internal|Bad Gateway|Service",
        r"|Gateway|POST|GET|PUT|DELETE|PATCH|HEAD)",
        r"|exceptions\.(?:ServiceUnavailable|TooManyRequests|InternalServerError|BadGateway|GatewayTimeout)\b",
        r"|rateLimitExceeded|\bbackendError|\bSlowDown\b|HTTP ?Error:?.{0,20}\b(?:429|50[0234])\b",
        r"|status code:? (?:429|50[0234])\b|status:? (?:429|50[0234])\b|HttpError: .*, (?:429|50[0234])$",
        r"|Request failed with status code', (?:429|50[0234])|\b50[0234] Backend Error|HTTP/1\.\d\W* (?:429",
        r"|50[0234])\b",
    ))
    .says(
        "a storage or web service answered that it cannot serve now",
        &[
            "google.api_core.exceptions.ServiceUnavailable: 503 POST https://storage.googleapis.com/upload",
            "huggingface_hub.errors.HfHubHTTPError: 429 Client Error: Too Many Requests for url: \
             https://huggingface.co/x",
            "ValueError: UNAVAILABLE: Error reading \"p\" in gs://my-bucket/ckpt: HTTP response code: 503, \
             with body: x",
        ],
        &["HTTP response code 403", "404 Client Error: Not Found for url", "torch.distributed.DistBackendError: x"],
    ),
    Row::new(
        "name-resolution",
        StorageNetwork,
        Trust::High,
        &[
            "name resolution",
            "Name or service not known",
            "Could not resolve host",
            "getaddrinfo",
            "nodename nor servname",
            "Couldn't resolve host",
            "no such host",
            "NameResolutionError",
            "Temporary failure resolving",
            "Name resolution",
        ],
    )
    .also(concat!(
        r"(?i)failure in name resolution|Name or service not known|could(?: not|n't) resolve|getaddrinfo.*fail",
        r"|nodename nor|no such host|NameResolutionError|failure resolving",
    ))
    .says(
        "a host name could not be resolved",
        &["urllib3.exceptions.NameResolutionError: Failed to resolve 'storage.googleapis.com' ([Errno -3] \
         Temporary failure in name resolution)"],
        &["resolution: 224x224"],
    ),
    Row::new(
        "http-transport",
        StorageNetwork,
        Trust::High,
        &[
            "Read timed out",
            "ReadTimeout",
            "ConnectTimeout",
            "read operation timed out",
            "Max retries exceeded with url",
            "RemoteDisconnected",
            "Remote end closed connection",
            "IncompleteRead",
            "ChunkedEncodingError",
            "urllib3.exceptions",
            "requests.exceptions",
            "ServerDisconnected",
            "ClientConnector",
            "ClientOSError",
            "ClientPayloadError",
            "FSTimeoutError",
            "EndpointConnectionError",
            "SSLEOFError",
            "CommError",
            "libcurl code",
            "CURL error",
            "curl: (",
            "curl error",
            "RPC failed; curl",
            "couldn't connect to 'https://",
            "RetryError",
            "TransportError",
            "httpx.",
            "httpcore.",
            "TLS handshake timeout",
            "i/o timeout",
            "Failed to fetch",
            "Failed to download",
            "DATA_LOSS",
            "ConnectionBrokenError",
            "socket.timeout",
            "URLError",
        ],
    )
    .also(concat!(
        r"(?i)timed? ?out|socket\.timeout|URLError|ReadTimeout|ConnectTimeout|Max retries exceeded",
        r"|RemoteDisconnected|Remote end closed|IncompleteRead|ChunkedEncoding|urllib3\.exceptions\.(?:Protocol",
        r"|NewConnection|SSL|Max|Incomplete)|requests\.exceptions\.(?:Connection|SSL|Proxy|Retry|Chunked)",
        r"|ServerDisconnected|Client(?:Connector|OS|Payload)|FSTimeout|EndpointConnection|SSLEOF",
        r"|HTTP request: libcurl code|curl:? (?:error )?\(?(?:6|7|16|18|28|35|52|55|56|92)\b|curl \d+",
        r"|couldn't connect|RetryError|TransportError|httpx\.|httpcore\.|Failed to (?:fetch|download)",
        r"|CommError.{0,80}(?:network|connect|5\d\d)|DATA_LOSS|CURL error \d+",
    ))
    .unless(concat!(
        r"(?i)\b40[13]\b|permission|unauthorized|forbidden|libcurl code 22|404|InvalidURL|MissingSchema",
        r"|UnsupportedProtocol",
    ))
    .says(
        "a connection to storage, a hub or a tracker failed",
        &[
            "requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='huggingface.co', port=443): Read \
             timed out. (read timeout=10)",
            "urllib3.exceptions.ProtocolError: (\"Connection broken: ConnectionResetError(104, 'Connection \
             reset by peer')\", x)",
            "wandb.errors.CommError: Run initialization has timed out after 90.0 sec.",
        ],
        &["requests.exceptions.HTTPError: 403 Client Error: Forbidden for url"],
    ),
    Row::new(
        "socket-errno",
        StorageNetwork,
        Trust::High,
        &[
            "Errno 104]",
            "Errno 107]",
            "Errno 110]",
            "Errno 113]",
            "Errno 116]",
            "Errno 101]",
            "Errno 5]",
            "Errno 112]",
            "Errno 103]",
            "Transport endpoint is not connected",
            "Stale file handle",
            "Input/output error",
            "NFS server",
            "os error 116",
            "os error 107",
            "os error 5)",
        ],
    )
    .unless(r"(?i)/dev/(?:accel|vfio)|NFS server .* OK")
    .says(
        "a file or connection behind the network failed",
        &[
            "OSError: [Errno 107] Transport endpoint is not connected: '/mnt/gcs/shards'",
            "OSError: [Errno 5] Input/output error: '/tmp/gcsfuse/corpus/part-00012.array_record'",
            "OSError: [Errno 116] Stale file handle",
        ],
        &["[Errno 2] No such file or directory"],
    ),
    Row::new(
        "object-store",
        StorageNetwork,
        Trust::Medium,
        &[
            "gs://",
            "s3://",
            "gcsfs",
            "gcs_key_value_store",
            "tensorstore",
            "storage.googleapis.com",
            "huggingface.co",
            "api.wandb.ai",
        ],
    )
    .also(concat!(
        r"(?i)\b(?:UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED|timed? ?out|connection (?:reset|refused|aborted",
        r"|broken)|unreachable|INTERNAL: )",
    ))
    .unless(r"(?i)\b40[134]\b|permission|NOT_FOUND|retrying")
    .says(
        "an object store, hub or tracker could not be reached",
        &["ValueError: UNAVAILABLE: Error reading in gs://my-bucket/ckpt/8000/params/"],
        &["Saving checkpoint to gs://my-bucket/ckpt/step-8802"],
    ),
    Row::new(
        "rate-quota",
        StorageNetwork,
        Trust::Medium,
        &["Quota exceeded", "quotaExceeded", "RATE_LIMIT_EXCEEDED", "rate limit", "rate-limit"],
    )
    .also(concat!(
        r"(?i)quota exceeded for|quotaExceeded|RATE_LIMIT_EXCEEDED|rate.?limit(?:ed|s)? (?:exceeded|reached",
        r"|hit|your|for)|exceeded.{0,30}rate.?limit",
    ))
    .says(
        "a service was asked too often",
        &["RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Read requests' and limit 'Read requests \
             per minute'"],
        &["learning rate limit 0.1"],
    ),
    Row::new(
        "hub-unreachable",
        StorageNetwork,
        Trust::High,
        &[
            "LocalEntryNotFoundError",
            "Couldn't reach",
            "check your connection",
            "check your internet",
            "OfflineModeIsEnabled",
        ],
    )
    .unless(r"(?i)\b40[134]\b|permission|gated")
    .says(
        "a model hub could not be reached",
        &["huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the file \
         on the Hub"],
        &["ConnectionError: Couldn't reach https://huggingface.co/x (error 404)"],
    ),
    Row::new(
        "tracker",
        StorageNetwork,
        Trust::Medium,
        &[
            "CommError",
            "communicating with wandb process",
            "WandbService",
            "wandb-core",
            "wandb.",
            "mlflow.",
            "neptune.",
        ],
    )
    .also(concat!(
        r"CommError|communicating with wandb process|WandbService\w*Error|wandb-core.{0,40}(?:exit|fail|died)",
        r"|^(?:wandb|mlflow|neptune)\.[\w.]+: .{0,200}?(?i:communicat|connect|timed? ?out|unreachable|\b5\d\d\b)",
    ))
    .unless(r"(?i)permission|\b40[134]\b|not found|not logged in|unauthorized|forbidden")
    .says(
        "the experiment tracker could not be reached",
        &[
            "wandb.errors.CommError: Error communicating with wandb process, exiting...",
            "wandb.errors.error.Error: Couldn't communicate with backend after 15 seconds",
            "mlflow.exceptions.MlflowException: API request to https://mlflow/api failed with exception timed out",
        ],
        &["wandb.errors.CommError: It appears that you do not have permission to access the requested resource."],
    ),
    Row::new(
        "stream-cut",
        StorageNetwork,
        Trust::High,
        &[
            "payload is not completed",
            "ContentLengthError",
            "TransferEncodingError",
            "SSLError",
            "SSLZeroReturn",
            "[SSL:",
            "unexpected end of data",
            "early EOF",
            "hung up unexpectedly",
            "unexpected disconnect",
            "rsync",
            "incomplete chunked read",
            "Connection reset by peer",
            "Errno 108]",
            "Errno 121]",
            "ResumableUpload",
            "DownloadError",
        ],
    )
    .also(concat!(
        r"(?i)payload is not completed|ContentLengthError|TransferEncodingError|\bSSL\w*(?:Error|Return)\b|\[SSL: ",
        r"|unexpected end of data.{0,40}(?:<Pipe|pipe:).{0,40}(?:gsutil|gcloud|aws |curl|wget|s3)|early EOF",
        r"|hung up unexpectedly|unexpected disconnect|^rsync(?: error)?: .*(?:connection|socket|timeout|io timeout)",
        r"|incomplete chunked read|^(?:\S+ ){0,12}?OSError: Connection reset by peer|Errno 1(?:08|21)\]",
        r"|ResumableUpload\w*Exception",
        r"|^(?:\w+\.)*DownloadError\b",
    ))
    .unless(r"(?i)CERTIFICATE_VERIFY_FAILED|\b40[134]\b|gloo|nccl")
    .says(
        "a transfer was cut off in the middle",
        &[
            "RuntimeError: Failed to get item 6: Response payload is not completed: <ContentLengthError: 400>",
            "tarfile.ReadError: unexpected end of data @ <Pipe (('gsutil cat gs://b/0.tar',), {'shell': True})>",
            "fetch-pack: unexpected disconnect while reading sideband packet",
            "ssl.SSLError: [SSL: RECORD_LAYER_FAILURE] record layer failure (_ssl.c:2580)",
        ],
        &[
            "tarfile.ReadError: unexpected end of data",
            "SSLError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed",
        ],
    ),
    Row::new(
        "cloud-sdk",
        StorageNetwork,
        Trust::High,
        &["botocore.", "An error occurred (", "azure.core", "google.api_core.exceptions", "ServiceException:"],
    )
    .also(concat!(
        r"botocore\.exceptions\.(?:Connect|ConnectionClosed|EndpointConnection|ReadTimeout|HTTPClient|IncompleteRead",
        r"|ResponseStreaming|Proxy|SSL)\w*|An error occurred \((?:SlowDown|InternalError|RequestTimeout",
        r"|RequestTimeTooSkewed|ServiceUnavailable|Throttling\w*|TooManyRequests\w*|50[0234]|429)\)",
        r"|azure\.core\.exceptions\.(?:ServiceRequest|ServiceResponse|IncompleteRead)\w*",
        r"|google\.api_core\.exceptions\.(?:RetryError|Aborted|Cancelled|Unknown|DeadlineExceeded|GatewayTimeout)",
        r"|ServiceException: (?:429|50\d)",
    ))
    .says(
        "a cloud's library could not reach its service, or was told to come later",
        &[
            "botocore.exceptions.ReadTimeoutError: Read timeout on endpoint URL: \"https://s3.amazonaws.com/b/k\"",
            "botocore.exceptions.ClientError: An error occurred (SlowDown) when calling the PutObject operation",
            "ServiceException: 503 Server Error",
        ],
        &["botocore.exceptions.ClientError: An error occurred (AccessDenied) when calling the GetObject operation"],
    ),
    Row::new(
        "database",
        StorageNetwork,
        Trust::Medium,
        &["redis.exceptions", "OperationalError", "ServerSelectionTimeout", "pymongo.errors"],
    )
    .also(concat!(
        r"redis\.exceptions\.(?:Connection|Timeout)Error|OperationalError\b.*(?:connect|server closed|timed? ?out",
        r"|lost connection)|ServerSelectionTimeoutError|pymongo\.errors\.(?:AutoReconnect|NetworkTimeout)",
    ))
    .says(
        "a database that the program writes to could not be reached",
        &[
            "redis.exceptions.ConnectionError: Error 111 connecting to 10.0.0.5:6379. Connection refused.",
            "sqlalchemy.exc.OperationalError: (psycopg2.OperationalError) could not connect to server",
        ],
        &["sqlalchemy.exc.OperationalError: no such column: trials.name"],
    ),
    Row::new("torch-writer", DiskFull, Trust::Low, &["PytorchStreamWriter failed", "enforce fail at inline_container"])
        .also(r"failed writing|write failed|unexpected pos")
        .says(
            "a checkpoint could not be written, most often for want of space",
            &["RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 640 vs 534"],
            &["RuntimeError: PytorchStreamReader failed finding central directory"],
        ),
    Row::new("connection-class", StorageNetwork, Trust::Low, &["ConnectionError", "ConnectionResetError"])
        .also(r"^(?:\w+\.)*Connection(?:Reset)?Error\b")
        .says(
            "a connection of the program broke",
            &["ConnectionError: Connection to the server was lost"],
            &["BrokenConnectionErrorHandler installed"],
        ),
];
