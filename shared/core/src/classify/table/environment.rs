//! Rows for modules, commands and versions that are missing or do not fit together.

use crate::classify::signature::{Row, Trust};
use crate::failure::FailureKind::Environment;

pub(super) const ROWS: &[Row] = &[
    Row::new("bundle-digest", Environment, Trust::High, &["the bundle has digest"])
        .also(r"^rekindle: cannot fetch the bundle \S+: the bundle has digest ")
        .says(
            "the bundle with the code is damaged, or another file lies under its name",
            &["rekindle: cannot fetch the bundle gs://b/bundles/00000000.tar.zst: the bundle has digest \
                 0123456789ab…, not 000000000000… as its name says: remove it, and `rekindle run` sends it anew"],
            &["checking that the bundle has digest 0123456789ab"],
        ),
    Row::new("bundle", Environment, Trust::High, &["rekindle: cannot fetch the bundle"])
        .also(r"^rekindle: cannot fetch the bundle ")
        .unless("the bundle has digest")
        .says(
            "the bundle with the code cannot be fetched",
            &["rekindle: cannot fetch the bundle gs://b/bundles/00000000.tar.zst: HTTP status client error \
                 (404 Not Found)"],
            &["INFO cannot fetch the bundle; will try again"],
        ),
    Row::new(
        "import",
        Environment,
        Trust::High,
        &["ModuleNotFoundError", "ImportError", "No module named", "cannot import name", "DLL load failed"],
    )
    .unless(r"(?i)^\s*(?:except|raise)\b")
    .says(
        "a Python module is missing or does not fit",
        &["ModuleNotFoundError: No module named 'grain'", "/usr/bin/python3: No module named pip"],
        &["except ImportError:"],
    ),
    Row::new(
        "shared-library",
        Environment,
        Trust::High,
        &[
            "cannot open shared object file",
            "undefined symbol",
            "GLIBC_",
            "GLIBCXX_",
            "CXXABI_",
            "error while loading shared libraries",
            "symbol lookup error",
            "wrong ELF class",
        ],
    )
    .says(
        "a shared library is missing or of another version",
        &["ImportError: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.34' not found (required by x.so)"],
        &["ldd (Ubuntu GLIBC 2.35) 2.35"],
    ),
    Row::new("not-executable", Environment, Trust::High, &["rekindle: cannot start"])
        .also(r"^rekindle: cannot start .*: Permission denied")
        .says(
            "the file to run is there and may not be executed: `chmod +x` it, or let its interpreter run it",
            &["rekindle: cannot start \"./train.py\": Permission denied (os error 13)"],
            &["rekindle: cannot start \"./train.py\": No such file or directory (os error 2)"],
        ),
    Row::new(
        "command-missing",
        Environment,
        Trust::High,
        &[
            "rekindle: cannot start",
            "command not found",
            "executable file not found",
            "can't open file",
            "No such file or directory",
            "Exec format error",
            "not found",
        ],
    )
    .also(concat!(
        r"(?i)^(?:/\S+: |-?(?:ba|da|z)?sh: |\S+\.sh: |sudo: |env: |/usr/bin/env: )?.{0,80}: command not found",
        r"|executable file not found|can't open file|^(?:/\S+/)?(?:-?(?:ba|da|z)?sh|env|python[\d.]*|nohup",
        r"|exec|timeout|\S+\.sh):.*(?:No such file or directory|Exec format error|: not found)",
        r"|exec format error|Exec format error|: \d+: \S+: not found$|^rekindle: cannot start ",
    ))
    .unless(r"^rekindle: cannot start .*: Permission denied")
    .says(
        "the command or script to run does not exist here",
        &[
            "bash: line 1: torchrun: command not found",
            "python3: can't open file '/home/user/train.py': [Errno 2] No such file or directory",
            "/usr/bin/env: 'python': No such file or directory",
            "rekindle: cannot start \"pyhton3\": No such file or directory (os error 2)",
        ],
        &["FileNotFoundError: [Errno 2] No such file or directory: 'data/train.txt'"],
    ),
    Row::new("pjrt-version", Environment, Trust::High, &["PJRT", "libtpu version", "libtpu"])
        .also(concat!(
            r"(?i)Mismatched PJRT|PJRT_\w+ size: expected|later version than the framework",
            r"|PJRT API version.{0,60}(?:mismatch|incompatible|not supported|older|newer)",
            r"|not available in this library|libtpu.{0,80}(?:too old|incompatib|not compatib|mismatch|older than",
            r"|not found|could not be found|unsupported version)",
        ))
        .unless(r"already in use")
        .says(
            "the TPU library and the framework are of versions that do not fit",
            &[
                "status: INVALID_ARGUMENT: Mismatched PJRT plugin PJRT API version (0.47) and framework PJRT \
                 API version 0.40).",
                "Unexpected PJRT_Plugin_Attributes_Args size: expected 32, got 24. The plugin is likely \
                 built with a later version than the framework.",
            ],
            &["WARNING:root:PJRT is now the default runtime."],
        ),
    Row::new(
        "version",
        Environment,
        Trust::High,
        &[
            "requires version",
            "requires jaxlib",
            "is not compatible with",
            "incompatible with",
            "binary incompatibility",
            "compiled using NumPy",
            "Descriptors cannot",
            "VersionConflict",
            "DistributionNotFound",
            "PackageNotFoundError",
            "requires a different Python",
            "Requires-Python",
            "is not a supported wheel",
            "externally-managed-environment",
            "requires Python",
            "version mismatch",
            "not available in this library",
            "has no attribute",
            "minimum required version",
            "_ARRAY_API not found",
        ],
    )
    .also(concat!(
        r"(?i)requires version|requires jaxlib|jaxlib.{0,40}(?:incompatible|not compatible)",
        r"|binary incompatibility|compiled using NumPy|Descriptors cannot|VersionConflict|DistributionNotFound",
        r"|PackageNotFoundError|requires a different Python|is not a supported wheel|externally-managed",
        r"|requires Python",
        r"|(?:package|library|driver|runtime|python|plugin) version mismatch|not available in this library",
        r"|(?:AttributeError: (?:partially initialized )?|backend 'tpu': )module '(?:jax|libtpu|jaxlib|flax|optax",
        r"|orbax|torch|torch_xla|tensorflow|numpy|np|ml_dtypes|chex|transformers|pkg_resources|collections",
        r"|asyncio)\b|minimum required version|_ARRAY_API not found",
    ))
    .says(
        "installed packages are of versions that do not fit",
        &[
            "RuntimeError: jaxlib is version 0.3.25, but this version of jax requires version >= 0.4.19.",
            "AttributeError: module 'jax' has no attribute 'linear_util'",
        ],
        &["AttributeError: 'Config' object has no attribute 'lr'"],
    ),
    Row::new(
        "pip-no-match",
        Environment,
        Trust::High,
        &[
            "No matching distribution",
            "Could not find a version",
            "ResolutionImpossible",
            "Unable to locate package",
            "EnvironmentNameNotFound",
            "EnvironmentLocationNotFound",
            "manifest unknown",
            "Unable to find image",
            "Could not get lock",
            "subprocess-exited-with-error",
            "Failed building wheel",
            "Could not open requirements file",
            "PackagesNotFoundError",
            "No solution found when resolving",
            "ImagePullBackOff",
            "ErrImagePull",
            "CreateContainerConfigError",
        ],
    )
    .unless(r"(?i)^Unable to find image '.*' locally$")
    .says(
        "a package or image to install does not exist",
        &["ERROR: No matching distribution found for libtpu-nightly==0.1.dev20230727; extra == \"tpu\""],
        &["Requirement already satisfied: numpy"],
    ),
    Row::new(
        "processor",
        Environment,
        Trust::High,
        &[
            "Illegal instruction",
            "compiled to use AVX",
            "AVX512",
            "your machine doesn't have",
            "but these aren't available on your machine",
        ],
    )
    .also(r"(?i)Illegal instruction|aren't available on your machine|doesn't have.{0,40}\bAVX|CPU does not support")
    .says(
        "it was built for another processor",
        &["run.sh: line 8:  4410 Illegal instruction     (core dumped) python3 main.py"],
        &["This TensorFlow binary is optimized with oneAPI to use AVX512"],
    ),
    Row::new(
        "backend-unknown",
        Environment,
        Trust::High,
        &[
            "known backends",
            "Unknown backend",
            "No module named 'libtpu'",
            "PJRT_DEVICE",
            "Could not find libtpu",
            "libtpu not found",
            "XRT_TPU_CONFIG",
            "Missing XLA configuration",
        ],
    )
    .also(concat!(
        r"(?i)not in the list of known backends|Unknown backend:? '?tpu|Could not find libtpu",
        r"|libtpu not found|Missing XLA configuration|requires `?jaxlib`? .* TPU",
    ))
    .says(
        "the framework is installed without TPU support or configuration",
        &[
            "RuntimeError: Backend 'tpu' is not in the list of known backends: cpu, cuda.",
            "RuntimeError: Missing XLA configuration",
        ],
        &["Setting PJRT_DEVICE=TPU"],
    ),
    Row::new("operation-missing", Environment, Trust::Medium, &["not registered"])
        .also(concat!(
            r"(?i)\b(?:op(?:eration)?(?: type)?|kernel|custom op|codec|extension)\b.{0,80}\bnot registered\b.{0,80}",
            r"\b(?:in|for)\b",
        ))
        .says(
            "an operation that the program uses is not part of what is installed",
            &[
                "errors_impl.NotFoundError: Op type not registered 'SentencepieceOp' in binary running on t1v-n-1-w-0.",
                "NotFoundError: Op type not registered in this binary",
            ],
            &["hook not registered in the trainer"],
        ),
    Row::new("shell-not-set-up", Environment, Trust::Medium, &["CommandNotFoundError", "conda init"])
        .also(r"CommandNotFoundError: |run 'conda init' before")
        .says(
            "the shell is not set up for the tool that it calls",
            &["CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'."],
            &["$ conda init <SHELL_NAME>"],
        ),
    Row::new("file-of-tool", Environment, Trust::Low, &["No such file or directory", "cannot stat"])
        .also(concat!(
            r"^[a-z][\w.-]*: .*(?:No such file or directory|cannot stat)",
            r"|^\S+: line \d+: .*: No such file or directory$",
        ))
        .says(
            "a file that a command of the script needs does not exist here",
            &[
                "cp: cannot stat 'config.yaml': No such file or directory",
                "run.sh: line 3: /opt/env.sh: No such file or directory",
            ],
            &["FileNotFoundError: [Errno 2] No such file or directory: 'data/train.txt'"],
        ),
    Row::new("node-module", Environment, Trust::High, &["Cannot find module", "could not find or load main class"])
        .says(
            "a module of another language is missing",
            &["Error: Cannot find module 'yargs'"],
            &["cannot find the modules you asked for"],
        ),
];
