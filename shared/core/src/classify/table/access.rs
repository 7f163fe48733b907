//! Rows for credentials and permissions.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::Auth;

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "iam",
        Auth,
        Trust::High,
        &[
            "does not have storage.",
            "does not have permission",
            "does not have the required",
            "insufficient authentication scopes",
            "SCOPE_INSUFFICIENT",
            "SERVICE_DISABLED",
            "BILLING_DISABLED",
            "billing account",
            "requester pays",
            "iam.serviceAccounts",
            "AccessDenied",
            "Access denied",
            "Caller does not have",
            "Anonymous caller",
            "IAM_PERMISSION_DENIED",
            "Permission 'storage.",
            "Permission 'artifactregistry",
        ],
    )
    .also(concat!(
        r"(?i)does not have|insufficient authentication|SCOPE_INSUFFICIENT|_DISABLED",
        r"|billing account.{0,60}(?:disabled|absent|closed)|requester pays|iam\.serviceAccounts|access ?denied",
        r"|Anonymous caller|IAM_PERMISSION|Permission '\w+\.",
    ))
    .says(
        "an account lacks a permission",
        &[
            "ValueError: PERMISSION_DENIED: Error writing \"x\": HTTP response code: 403, with body: sa does \
             not have storage.objects.create access",
            "Request had insufficient authentication scopes.",
        ],
        &["the model does not have a bias"],
    ),
    Row::new("http-denied", Auth, Trust::High, &["401", "403", "Unauthorized", "Forbidden"])
        .also(concat!(
            r"(?i)\b40[13]\b:? (?:Client Error|Unauthorized|Forbidden|POST|GET|PUT|DELETE|PATCH|HEAD)",
            r"|HTTP (?:response code:?|status|error:?|error code:?) ?40[13]\b|exceptions\.(?:Forbidden",
            r"|Unauthorized)\b|\bcode\W{1,4}40[13]\b",
            r"|status(?: code)?:? 40[13]\b|HTTP ?Error:?.{0,20}\b40[13]\b|\(?\b40[13]\)? (?:Forbidden|Unauthorized)",
            r"|error (?:occurred )?\(?40[13]\b|AccessDeniedException: 403|returned error: 40[13]\b",
        ))
        .says(
            "a service refused the credentials",
            &[
                "huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-67)",
                "google.api_core.exceptions.Forbidden: 403 GET https://storage.googleapis.com/storage/v1/b/my-bucket",
                "botocore.exceptions.ClientError: An error occurred (403) when calling the HeadObject operation",
            ],
            &["step 403 loss 2.1", "429 Client Error: Too Many Requests"],
        ),
    Row::new(
        "credentials",
        Auth,
        Trust::High,
        &[
            "GatedRepoError",
            "gated repo",
            "api_key not configured",
            "Reauthentication is needed",
            "Reauthentication required",
            "publickey",
            "invalid_grant",
            "Invalid JWT",
            "Invalid Credentials",
            "Invalid API key",
            "invalid user token",
            "AuthenticationError",
            "UNAUTHENTICATED",
            "Unable to locate credentials",
            "NoCredentialsError",
            "SignatureDoesNotMatch",
            "InvalidAccessKeyId",
            "ExpiredToken",
            "token has expired",
            "token is expired",
            "could not read Username",
            "Repository not found",
            "Could not read from remote repository",
            "Authentication failed",
            "Host key verification failed",
            "pull access denied",
            "user is not logged in",
            "You must be authenticated",
            "LocalTokenNotFoundError",
            "Could not find kaggle.json",
            "kaggle.json",
            "authentication required",
            "not logged in",
            "wandb login",
        ],
    )
    .also(concat!(
        r"(?i)GatedRepo|gated repo|api_key not configured|Reauthentication|Permission denied \(.*publickey",
        r"|invalid_grant|Invalid JWT|Invalid Credentials|Invalid API key|invalid user token",
        r"|\bAuthenticationError\b|UNAUTHENTICATED",
        r"|Unable to locate credentials|NoCredentials|SignatureDoesNotMatch|InvalidAccessKeyId|ExpiredToken",
        r"|token (?:has|is) expired|could not read Username|remote: Repository not found",
        r"|Could not read from remote repository|Authentication failed(?: for|:)|Host key verification",
        r"|pull access denied|not logged in|must be authenticated|LocalTokenNotFound|could not find kaggle\.json",
        r"|authentication required",
    ))
    .unless(r"(?i)metadata server|Currently logged in")
    .says(
        "credentials are missing or no longer valid",
        &[
            "wandb: ERROR api_key not configured (no-tty). call wandb login [your_api_key]",
            "git@github.com: Permission denied (publickey).",
            "google.auth.exceptions.RefreshError: ('invalid_grant: Bad Request', {'error': 'invalid_grant'})",
        ],
        &["wandb: Currently logged in as: user. Use `wandb login --relogin` to force relogin"],
    ),
    Row::new(
        "default-credentials",
        Auth,
        Trust::Medium,
        &["DefaultCredentialsError", "RefreshError", "default credentials"],
    )
    .also(concat!(
        r"DefaultCredentialsError|RefreshError|(?i)could not automatically determine credentials",
        r"|default credentials were not found",
    ))
    .unless(r"(?i)metadata.*(?:timed? ?out|unavailable|50\d)|TransportError|Connection")
    .says(
        "no usable Google credentials were found",
        &["google.auth.exceptions.DefaultCredentialsError: Your default credentials were not found."],
        &["google.auth.exceptions.RefreshError: ('Failed to retrieve http://metadata.google.internal: \
             Connection aborted', x)"],
    ),
    Row::new("secret-missing", Auth, Trust::High, &["KeyError", "environment variable", "not set", "missing"])
        .also(concat!(
            r"(?i)(?:KeyError: ['\x22]\w*|environment variable.{0,20}\b\w*|env(?:ironment)? var.{0,20}\b\w*",
            r"|\b\w*)(?:API_?KEY|_TOKEN|_SECRET|PASSWORD|_CREDENTIALS)\b['\x22]?(?:$|.{0,30}(?:not set|missing",
            r"|not found|must be set|required|undefined|is unset|unbound))",
        ))
        .unless(r"(?i)(?:PAD|EOS|BOS|UNK|MASK|SEP|CLS)_TOKEN|num_token")
        .says(
            "a secret is missing in the environment",
            &["KeyError: 'WANDB_API_KEY'", "run.sh: line 3: HF_TOKEN: environment variable not set"],
            &["KeyError: 'fid_50k'", "KeyError: 'PAD_TOKEN'"],
        ),
    Row::new("permission-word", Auth, Trust::Low, &["PERMISSION_DENIED", "PermissionDenied"])
        .also(r"\bPERMISSION_DENIED\b|PermissionDenied")
        .unless(r"(?i)/dev/|errno")
        .says(
            "a service denied permission",
            &["grpc status PERMISSION_DENIED"],
            &["open(/dev/accel0): PERMISSION_DENIED"],
        ),
    Row::new(
        "forbidden-object",
        Auth,
        Trust::High,
        &[
            "Forbidden: https",
            "Access denied.",
            "to access the requested resource",
            "is denied on resource",
            "denied on '",
        ],
    )
    .also(concat!(
        r"Forbidden: https?://|^Access denied\.|permission to access the requested resource",
        r"|denied on (?:resource|')",
    ))
    .says(
        "access to an object was refused",
        &["OSError: Forbidden: https://storage.googleapis.com/upload/storage/v1/b/my-bucket/o"],
        &["GET https://storage.googleapis.com/upload 200"],
    ),
    Row::new("file-permission", Auth, Trust::Low, &["Permission denied", "PermissionError", "os error 13"])
        .unless(r"(?i)log file|tpu_logs|/dev/(?:accel|vfio)|libtpu_lockfile|publickey|warning")
        .says(
            "something may not be read or written by this user",
            &["PermissionError: [Errno 13] Permission denied: '/data/corpus'"],
            &["Could not open the log file '/tmp/tpu_logs/x': Permission denied"],
        ),
];
