//! Rows for the user's own program, where a generic exception would not say it or would be taken for something else.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::{Timeout, UserError};

pub(super) const ROWS: &[Row] = &[
    Row::new(
        "usage",
        UserError,
        Trust::High,
        &[
            "unrecognized arguments",
            "following arguments are required",
            "invalid choice",
            "Flags parsing error",
            "Unknown command line flag",
            "error: argument",
            "No such option",
            "Missing option",
            "Could not override",
            "Unknown flag in XLA_FLAGS",
            "Unknown flag",
        ],
    )
    .also(concat!(
        r"(?i)error: (?:unrecognized arguments|the following arguments|argument )|invalid choice",
        r"|Flags parsing error|Unknown command line flag|No such option|Missing option|Could not override",
        r"|Unknown flags? in XLA_FLAGS|Unknown flag",
    ))
    .says(
        "the program was called with wrong arguments",
        &[
            "FATAL Flags parsing error:",
            "train.py: error: unrecognized arguments: --lr",
            "parse_flags_from_env.cc:226] Unknown flag in XLA_FLAGS: --xla_tpu_enable_foo=true",
        ],
        &["argument parsing done"],
    ),
    Row::new("message-size", UserError, Trust::High, &["message larger than max"]).says(
        "a message is larger than the channel allows, which no retry changes",
        &["details = \"Received message larger than max (8421376 vs. 4194304)\""],
        &["message size 4194304"],
    ),
    Row::new("kernel-of-user", UserError, Trust::High, &["Mosaic", "Pallas"])
        .also(concat!(
            r"(?i)Mosaic failed to compile|upon exit from a Mosaic kernel|(?:Pallas",
            r"|Mosaic).{0,120}(?:not (?:implemented|supported)|unsupported|invalid|failed|halted)",
            r"|halted.{0,200}(?:Pallas|Mosaic)",
        ))
        .says(
            "a kernel of the program's own does not compile or fails",
            &["INTERNAL: Mosaic failed to compile TPU kernel: unsupported shape cast"],
            &["using Pallas attention"],
        ),
    Row::new("not-a-number", UserError, Trust::Even, &["NaN", "nan"])
        .also(concat!(
            r"(?i)\b(?:loss|grad\w*|params?|weights?|value)\b.{0,30}\b(?:is|are|became|was",
            r"|contains?)\b.{0,12}\b(?:nan|non-?finite|inf)\b|(?:nan|non-?finite).{0,30}(?:detected|encountered",
            r"|abort|stopping|FloatingPointError)|FloatingPointError: invalid value \(nan\)",
        ))
        .says(
            "the numbers of the training went bad",
            &[
                "levanter.callbacks - ERROR :: Loss is NaN at step 21, aborting",
                "FloatingPointError: invalid value (nan) encountered in jit(f)",
            ],
            &["step 20 loss nan_to_num applied"],
        ),
    Row::new(
        "shell-script",
        UserError,
        Trust::Even,
        &["unbound variable", "syntax error near", "unexpected EOF while looking", "SyntaxError", "IndentationError"],
    )
    .says(
        "a script has an error",
        &["run.sh: line 3: DATA_DIR: unbound variable", "SyntaxError: invalid syntax"],
        &["syntax check passed"],
    ),
    Row::new(
        "too-large",
        UserError,
        Trust::High,
        &["requires more parameters", "exceeds the maximum", "larger than the maximum"],
    )
    .also(concat!(
        r"requires more parameters \(\d+\) than supported|(?:tensor|shape|proto|graph",
        r"|protobuf).{0,40}(?:exceeds|larger than) the maximum",
    ))
    .says(
        "the program asks for something larger than the compiler supports",
        &["RuntimeError: Resource exhausted: Computation requires more parameters (546) than supported \
             (limit 236)."],
        &["learning rate exceeds the maximum of the plot"],
    ),
    Row::new("c-assertion", UserError, Trust::Even, &["Assertion"])
        .also(r": Assertion [`'].*' failed\.")
        .unless(r"(?i)tpu|xla|pjrt")
        .says(
            "an assertion in native code failed",
            &["loader: src/reader.cc:40: int read(): Assertion `n > 0' failed."],
            &["AssertionError: n must be positive"],
        ),
    Row::new("time-limit", Timeout, Trust::Medium, &["DUE TO TIME LIMIT", "time limit reached", "walltime"])
        .also(r"DUE TO TIME LIMIT|(?i)exceeded (?:the )?(?:wall ?time|time limit)|time limit reached")
        .says(
            "a time limit of the scheduler passed",
            &["slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-27T10:00:00 DUE TO TIME LIMIT ***"],
            &["walltime left: 3600 s"],
        ),
];
