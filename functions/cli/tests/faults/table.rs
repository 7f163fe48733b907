//! Faults that no transcript shows: what brings each about, what is said, and the next step.

/// What is run, what must be said, and what the next step must name.
pub(super) type Row = (&'static str, &'static [&'static str], &'static str);

pub(super) const FAULTS: &[Row] = &[
    // Configuration.
    (
        "$REKINDLE --config / ps",
        &["cannot read the configuration /", "directory"],
        "let this user read it, or name another with --config",
    ),
    (
        "echo 'colour = 1' >c; $REKINDLE --config c ps",
        &["the configuration c is wrong", "colour"],
        "it knows `server = \"https://…\"`, `token_command = [\"gcloud\", …]`, `folder`, and the tables [aliases], [presets.NAME] and [folders]",
    ),
    (
        "echo 'token_command = []' >c; $REKINDLE --config c ps",
        &["`token_command` in the configuration file is empty"],
        "write it as [\"gcloud\", \"auth\", \"print-identity-token\"], or leave it out",
    ),
    (
        "echo 'token_command = [\"sh\", \"-c\", \"echo no account >&2; exit 1\"]' >c; $REKINDLE --config c ps",
        &["cannot get a token with `sh -c echo no account >&2; exit 1`", "no account"],
        "log in with `gcloud auth login`, or set REKINDLE_TOKEN, or `token_command` in the configuration file",
    ),
    (
        "echo 'x = [' >rekindle.toml; $REKINDLE run job.yaml",
        &["rekindle.toml", "x = ["],
        "it knows `folder`, and the tables [aliases], [presets.NAME] and [folders]",
    ),
    (
        "printf '\\377\\n' >rekindle.toml; $REKINDLE run job.yaml",
        &["cannot use /", "rekindle.toml", "valid UTF-8"],
        "save it as UTF-8",
    ),
    (
        "ln -sf /proc/self/mem rekindle.toml; $REKINDLE run job.yaml",
        &["cannot use /", "rekindle.toml", "Input/output error"],
        "make it a file that you may read",
    ),
    // Jobs.
    (
        "$REKINDLE run job.yaml lr",
        &["\"lr\" is no argument of the program"],
        "write KEY=VALUE; the program itself goes behind `--`",
    ),
    (
        "echo 'tpu: {accelerator: v5litepod-8}' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["there is no program for --config.training.learning_rate=1"],
        "give `run` in the job file, or the program behind `--`",
    ),
    (
        "$REKINDLE run job.yaml -- --lr=3",
        &["--lr=3 behind `--` is an option, and no program"],
        "rekindle run job.yaml -- python3 train.py --lr=3",
    ),
    (
        "$REKINDLE run --tpu v5litepod-8 -- --lr=3",
        &["--lr=3 behind `--` is an option, and no program"],
        "write the whole command: rekindle run --tpu v5litepod-8 -- python3 train.py --lr=3",
    ),
    (
        "$REKINDLE run train.py",
        &["train.py is a Python program, and no job file"],
        "put it behind `--`: rekindle run --tpu TYPE -- python3 train.py",
    ),
    (
        "$REKINDLE run job.yaml --preset spot-v6e",
        &["the preset spot-v6e asks for v6e-8, which `tpu.zones` of the job do not offer: us-central1-a"],
        "name a zone that does, as --zone us-central1-b (`rekindle catalog` lists them), or leave `zones` out: then every allowed zone that has it is tried",
    ),
    (
        "$REKINDLE run job.yaml -- python3 trian.py",
        &["the program trian.py is not in the folder that is sent, /"],
        "did you mean train.py?",
    ),
    (
        "$REKINDLE run job.yaml --dry-run -- python3 -u src/train.py",
        &["the program src/train.py is not in the folder that is sent, /"],
        "did you mean train.py?",
    ),
    (
        "echo train.py >.rekindleignore; $REKINDLE run job.yaml",
        &["the program train.py is not in", "it is there, and .gitignore or .rekindleignore leaves it out"],
        "write !/train.py at the end of .rekindleignore",
    ),
    (
        "mkdir f; touch f/x; printf '[folders]\np = \"f\"\n' >rekindle.toml; $REKINDLE run job.yaml --folder p -- ./go",
        &["the program ./go is not in the folder that is sent, /", "/f\n"],
        "name a file of that folder (`--dry-run --files` lists what is sent), or another folder with --folder; or let `setup` make it",
    ),
    (
        "mkdir e; cd e; $REKINDLE run --tpu v5litepod-8 -- python3 train.py",
        &["the program train.py is not in the folder that is sent, /", "/e\n"],
        "name a file of that folder (`--dry-run --files` lists what is sent), or another folder with --folder; or let `setup` make it",
    ),
    (
        "mkdir e; cd e; touch train.py; echo '*' >.rekindleignore; $REKINDLE run --tpu v5litepod-8 --dry-run -- python3 train.py",
        &["the program train.py is not in", "it is there, and .gitignore or .rekindleignore leaves it out"],
        "take the line that does so out of them",
    ),
    (
        "echo '- a' >list.yaml; $REKINDLE run list.yaml",
        &["list.yaml is no job file", "a list"],
        "begin with `run:` and `tpu:`; `rekindle fields` tells what stands in a job",
    ),
    (
        "printf 'run: [a]\\ntags: x\\n' >j.yaml; $REKINDLE run j.yaml --tag y",
        &["`tags` of the job file is no list"],
        "write `tags: [one, two]`",
    ),
    (
        "printf 'run: [a]\\nenv: x\\n' >j.yaml; $REKINDLE run j.yaml --env A=b",
        &["`env` of the job file is no map"],
        "write `env:` with fields below it",
    ),
    ("$REKINDLE run jbo.yaml", &["cannot read jbo.yaml", "No such file"], "did you mean job.yaml?"),
    ("$REKINDLE run sweep.yml", &["cannot read sweep.yml"], "`rekindle fields` tells what stands in one"),
    ("printf 'run: [a]\\ntpu: [b\\n' >j.yaml; $REKINDLE run j.yaml", &["j.yaml is no job file"], "mend line "),
    (
        "printf 'run: [a\\ntpu: {accelerator: v4-8}\\n' >j.yaml; $REKINDLE run j.yaml",
        &["j.yaml is no job file", "--> j.yaml:2:4", "the [ in line 1 is never closed"],
        "mend line 1 of it",
    ),
    (
        "printf 'run: [a]\\ntpu: v5litepod-8\\n' >j.yaml; $REKINDLE run j.yaml",
        &["`tpu` of the job file is no map", "it is the text v5litepod-8"],
        "write `tpu: {accelerator: v5litepod-8}`; `rekindle fields tpu` tells what else stands there",
    ),
    ("printf '[alias]\\n' >rekindle.toml; $REKINDLE run job.yaml", &["unknown field `alias`"], "did you mean aliases?"),
    ("echo 'sever = \"x\"' >c; $REKINDLE --config c ps", &["unknown field `sever`"], "did you mean server?"),
    (
        "printf 'run: python3 a.py | tee log\\n' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["`run` is more than one command", "python3 a.py | tee log"],
        "python3 train.py \"$@\" | tee log",
    ),
    (
        "printf 'run: |\\n  a\\n  b\\n' >j.yaml; $REKINDLE run j.yaml lr=1",
        &["`run` is more than one command, and --config.training.learning_rate=1 may be for any of them"],
        "write \"$@\", with its quotes, where the arguments go, as in python3 train.py \"$@\" | tee log",
    ),
    (
        "printf '[presets.p]\\nfolder = \"gone\"\\n' >rekindle.toml; $REKINDLE run job.yaml --preset p",
        &["the folder of the preset \"p\" is not there: /"],
        "make it, change `folder` in /",
    ),
    (
        "printf '[folders]\\np = \"gone\"\\n' >rekindle.toml; $REKINDLE run job.yaml --folder p",
        &["the folder of the name p is not there: /"],
        "make it, or change [folders] in rekindle.toml or the configuration",
    ),
    (
        "$REKINDLE dead-letters trian-1",
        &["There is no job \"trian-1\""],
        "did you mean train-1? Otherwise `rekindle ps` lists",
    ),
    ("$REKINDLE fields tpu.zone", &["a job has no field \"tpu.zone\""], "did you mean tpu.zones? Otherwise `rekindle"),
    ("$REKINDLE fields budget", &["a job has no field \"budget\""], "did you mean budgets? Otherwise `rekindle"),
    ("$REKINDLE explain trian-1", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise `rekindle ps`"),
    (
        "$REKINDLE run job.yaml --env NOT_THERE",
        &["--env NOT_THERE: cannot take it from here", "not found"],
        "write --env NOT_THERE=VALUE",
    ),
    ("$REKINDLE run job.yaml --env =x", &["--env =x: the name is missing"], "write --env NAME=VALUE"),
    ("$REKINDLE run job.yaml --set 'notes=[a'", &["--set notes=[a: no YAML"], "quotes"),
    (
        "$REKINDLE run job.yaml --set code=gs://b/c --folder .",
        &["the job says `code` already"],
        "leave out --folder, or `code`",
    ),
    (
        "$REKINDLE run job.yaml --folder /",
        &["/ is the root of all folders; it is not sent as a program"],
        "go to the folder of the program, name it with --folder, or send none with --no-code",
    ),
    (
        "echo 'folder = \"gone\"' >rekindle.toml; $REKINDLE run job.yaml",
        &["the folder that is sent by default is not there: /", "gone"],
        ", or name another with --folder",
    ),
    ("HOME=$PWD $REKINDLE run job.yaml", &["is your home folder"], "--no-code"),
    (
        "printf '[presets.p]\\nfolder = 3\\n' >rekindle.toml; $REKINDLE run job.yaml",
        &["the folder of the preset \"p\" is no text"],
        "write folder = \"NAME or path\" in /",
    ),
    (
        "$REKINDLE run job.yaml qqqq=1",
        &["\"qqqq\" is no known argument"],
        "; a full name begins with config.; others go into [aliases] of rekindle.toml, or into the program's own words",
    ),
    (
        "$REKINDLE run job.yaml --preset qqqq",
        &["there is no preset \"qqqq\""],
        "; more go into [presets.NAME] of rekindle.toml",
    ),
    (
        "printf '[folders]\\np = \".\"\\n' >rekindle.toml; $REKINDLE run job.yaml --folder q",
        &["there is no folder q"],
        "name one that exists, or one of p",
    ),
    (
        "$REKINDLE catalog v4-8 --zone mars --builtin",
        &["nothing named \"v4-8\" is offered in mars"],
        "`rekindle catalog` without a name shows everything",
    ),
    (
        "mkdir gone; cd gone; rmdir ../gone; $REKINDLE run --tpu v5litepod-8 -- true",
        &["the current folder is not there any more"],
        "go to a folder that is there",
    ),
    ("$REKINDLE catalog v9-8 --builtin", &["nothing named \"v9-8\" is offered"], "did you mean v4-8?"),
    // Disks and limits.
    (
        "TMPDIR=/nowhere $REKINDLE run job.yaml",
        &["cannot write the bundle", "No such file"],
        "set TMPDIR to a folder that you may write to, on a disk with room",
    ),
    (
        "head -c 3000000 /dev/urandom >big; trap '' XFSZ; ulimit -f 1; exec $REKINDLE run job.yaml",
        &["cannot write the bundle", "File too large"],
        "disk with room",
    ),
    (
        "trap '' XFSZ; ulimit -f 100; $REKINDLE dev --state s --port 0 --tpu-port 0; CODE=$?
        ls -A s/bin | grep . && exit 9; exit $CODE",
        &["cannot copy this program", "File too large"],
        "--state",
    ),
    (
        "mkfifo .gitignore; $REKINDLE run job.yaml",
        &["/.gitignore is no file: it is a pipe, a socket or a device"],
        "remove it, or put a file with the rules in its place",
    ),
    (
        "$REKINDLE ps >/dev/full",
        &["cannot write the output", "No space left on device"],
        "see that whatever takes the output is there, and that its disk has room",
    ),
    (
        "printf 'run: [python3, 010]\\nenv: {A: 1}\\n' >n.yaml; $REKINDLE run n.yaml",
        &[
            "n.yaml has a number or a truth where a job has text",
            "run[1]: 010 is to be",
            "write \"010\"",
            "write \"1\"",
        ],
        "put it in quotes: the program is given what stands between them",
    ),
    (
        "$REKINDLE --help >/dev/full",
        &["cannot write the output", "No space left on device"],
        "see that whatever takes the output is there, and that its disk has room",
    ),
    ("$REKINDLE run .", &["cannot read ."], "the program's folder goes with --folder: rekindle run --folder . --tpu"),
    ("$REKINDLE ps --help >/dev/full", &["cannot write the output", "No space left on device"], "see that whatever"),
    ("$REKINDLE --version >/dev/full", &["cannot write the output", "No space left on device"], "see that whatever"),
    ("$REKINDLE completion bash >/dev/full", &["cannot write the output", "No space left"], "see that whatever"),
    ("$REKINDLE man >/dev/full", &["cannot write the output", "No space left on device"], "see that whatever"),
    ("ulimit -n 4; exec $REKINDLE ps", &["cannot start", "Too many open files"], "rekindle doctor"),
    // Servers that are none, or whose words break off.
    (
        "$REKINDLE show torn",
        &["the answer of http://", "/v1/jobs/torn broke off"],
        "run the command again; `rekindle doctor` checks the server",
    ),
    ("$REKINDLE show proxied", &["/v1/jobs/proxied answered 302 Found"], "login page"),
    (
        "$REKINDLE show elsewhere",
        &["/v1/jobs/elsewhere answered 404 Not Found", "<html>404 page not found"],
        "check the address: what answers there is no Rekindle",
    ),
    (
        "$REKINDLE wait elsewhere >out; test $? = 2 || exit 9; test -s out && exit 9; exit 1",
        &["/v1/jobs/elsewhere answered 404 Not Found"],
        "check the address",
    ),
    ("REKINDLE_SERVER= $REKINDLE ps", &["is no address of a server"], "https://"),
    (
        "P=${REKINDLE_SERVER##*:}; $REKINDLE --server http://0.0.0.0:$P open --no-browser --port $P",
        &["cannot listen on 127.0.0.1:", "Address already in use"],
        "leave out --port",
    ),
    (
        "$REKINDLE logs website; test -z \"$($REKINDLE logs website 2>/dev/null)\" || exit 9; exec $REKINDLE logs website -f",
        &["/v1/jobs/website/logs answered a web page", "no Rekindle"],
        "log in where that page says",
    ),
    (
        "$REKINDLE cancel waits torn train-1",
        &[
            "/torn/cancel broke off",
            "`cancel` is not confirmed for torn, and may have taken place; it was not sent for train-1; the server has \
             answered for waits",
        ],
        "`rekindle show torn` tells whether it took place",
    ),
    (
        "$REKINDLE pause waits broken train-1",
        &[
            "/broken/pause answered 502 Bad Gateway",
            "`pause` is not confirmed for broken, and may have taken place; it was not sent for train-1; the server has \
             answered for waits",
        ],
        "`rekindle show broken` tells whether it took place; give the command again for what it did not reach",
    ),
    (
        "$REKINDLE restart broken",
        &["answered 502 Bad Gateway", "`restart` is not confirmed for broken, and may have taken place\n"],
        "`rekindle show broken` tells",
    ),
    (
        "$REKINDLE run job.yaml --no-code --id broken",
        &["/v1/jobs answered 502", "that the job was submitted is not confirmed"],
        "give the command again: a job of one --id",
    ),
    (
        "sed -i /^id/d job.yaml; $REKINDLE run job.yaml --no-code --tag broken",
        &["/v1/jobs answered 502", "that the job was submitted is not confirmed, and may have taken place"],
        "look with `rekindle ps` whether it is there",
    ),
    (
        "$REKINDLE exec box-lost -- true",
        &["the command is not confirmed, and may run on box-lost"],
        "`rekindle history box-lost` tells whether the order was taken; give it again if not",
    ),
    (
        "REKINDLE_SERVER=http://127.0.0.1:1 $REKINDLE pause waits train-1",
        &["cannot reach http://127.0.0.1:1", "`pause` is not confirmed for waits, train-1"],
        "that the server runs",
    ),
    ("$REKINDLE cancel answers-503 nothing", &["this is of `cancel` for "], "rekindle ps"),
    ("$REKINDLE delete torn box", &["/v1/jobs/torn broke off", "`delete` is not confirmed for torn, box"], "again"),
    ("$REKINDLE open trian-1 --no-browser", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise"),
    (
        "$REKINDLE show garbled",
        &["/v1/jobs/garbled answered something that is no JSON"],
        "is this the address of Rekindle's api? `rekindle doctor` tells more",
    ),
    (
        "$REKINDLE show strange",
        &["the server answers in a way that this version does not understand"],
        "compare `rekindle version` on both sides; --json shows the answer as it is",
    ),
    (
        "$REKINDLE outputs odd --to here",
        &["2 of 3 outputs could not be brought here", "w0/../x: \"../x\" is no path of an output"],
        "nothing was written there; the object itself is w0/../x",
    ),
    ("touch file; $REKINDLE outputs good --to file", &["cannot write file"], "choose another --to"),
    (
        "touch file; $REKINDLE man file/man1",
        &["cannot write manual pages to file/man1"],
        "name a folder that you may write to, such as ~/.local/share/man/man1",
    ),
    // The local mode.
    ("unset HOME; $REKINDLE dev", &["there is no home folder"], "name a state folder with --state"),
    (
        "mkdir -p s/tpu/lock/x; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the Cloud TPU emulator", "the lock of the state folder"],
        "a new folder for --state starts from nothing",
    ),
    (
        "mkdir -p s/tpu; exec 9>s/tpu/lock; flock 9; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the Cloud TPU emulator", "another emulator uses the state folder /"],
        "another `rekindle dev` runs on this state folder; name another with --state and --tpu-port",
    ),
    (
        "mkdir -p s/tpu; echo '{' >s/tpu/world.json; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the Cloud TPU emulator", "the state in /", "/s/tpu/world.json cannot be read: EOF"],
        "put a good copy of the file in its place; or remove all of /",
    ),
    (
        "mkdir -p s/tpu; mkfifo s/tpu/world.json; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the Cloud TPU emulator", "/s/tpu/world.json cannot be read: it is no regular file"],
        "put a good copy of the file in its place; or remove all of /",
    ),
    (
        "mkdir -p s/bucket; mkfifo s/bucket/.upload-key s/ports.json s/ports.json.new
        $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the object store", ".upload-key is no regular file; without any a new one is made"],
        "a new folder for --state starts from nothing",
    ),
    (
        "mkdir -p s/store.redb; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the store", "cannot open /", "/s/store.redb: "],
        "to begin anew, or name another folder with --state",
    ),
    (
        "mkdir s; head -c 100000 /dev/urandom >s/store.redb; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the store", "cannot open /", "/s/store.redb: "],
        "put a good copy of the file in its place; or remove all of /",
    ),
    (
        "mkdir s; touch s/store.redb; flock s/store.redb $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot start the store", "/s/store.redb is in use by another process"],
        "another `rekindle dev` runs on this state folder; name another with --state",
    ),
    (
        "mkdir -p s/bucket/agent/x; $REKINDLE dev --state s --port 0 --tpu-port 0; CODE=$?
        ls s | grep -v bin | grep -v bucket | grep -v tpu && exit 9; exit $CODE",
        &["the store /", "/s/store.redb is gone, or empty", "/s/bucket/agent holds what belongs to it"],
        "put it back there; or remove all of /",
    ),
    (
        "mkdir -p s/tpu/vms/x; touch s/store.redb; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["/s/store.redb is gone, or empty", "/s/tpu/vms holds what belongs to it"],
        "to begin anew, without its jobs",
    ),
    (
        "mkdir -p s/tpu/vms/x; $REKINDLE dev --state s --port 0 --tpu-port 0 --firestore 127.0.0.1:9",
        &["the state in /", "/s/tpu/world.json cannot be read: it is gone, and /", "/s/tpu/vms holds its machines"],
        "put a good copy of the file in its place; or remove all of /",
    ),
    (
        "mkdir -p s/bin/rekindle-$(sha256sum $REKINDLE | head -c 16)/x; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot copy this program"],
        "name a folder on a disk with room with --state",
    ),
    (
        "mkdir -p s/ports.json/x; $REKINDLE dev --state s --port 0 --tpu-port 0",
        &["cannot write /", "directory"],
        "name a folder on a disk with room with --state",
    ),
    ("$REKINDLE demo --workers 4096", &["4096"], "--help"),
    (
        "TMPDIR=/nowhere $REKINDLE demo",
        &["cannot make a folder for the state", "No such file"],
        "set TMPDIR to a folder that can be written to",
    ),
    ("touch file; $REKINDLE dev --state file", &["cannot use the state folder file"], "name another with --state"),
    ("$REKINDLE dev --state s --scenario none.json", &["the scenario cannot be used", "none.json"], "--scenario"),
    (
        "$REKINDLE dev --state s --tpu-port 0 --port ${REKINDLE_SERVER##*:}",
        &["cannot listen at 127.0.0.1:", "another `rekindle dev` answers at http://127.0.0.1:"],
        "use that one (`rekindle --server http://127.0.0.1:",
    ),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port ${REKINDLE_SERVER##*:}",
        &["cannot start the Cloud TPU emulator", "the listener at 127.0.0.1:"],
        ", or take another with --tpu-port (0 takes a free one)",
    ),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port 0 --firestore 127.0.0.1:1",
        &["the Firestore emulator does not answer at 127.0.0.1:1"],
        "start it with `gcloud emulators firestore start`, and name its HOST:PORT with --firestore",
    ),
    (
        "$REKINDLE dev --state s --port 0 --tpu-port 0 --pubsub 127.0.0.1:1",
        &["the Pub/Sub emulator does not answer at 127.0.0.1:1"],
        "start it with `gcloud beta emulators pubsub start`, and name its HOST:PORT with --pubsub",
    ),
    (
        "$REKINDLE demo --workers 1",
        &["one worker has no connection to another that could be cut"],
        "add --grpc-failures 0, or take --workers 4",
    ),
    (
        "$REKINDLE demo --preemptions 60 --grpc-failures 60",
        &["120 faults are too many; at most 100"],
        "take fewer with --preemptions and --grpc-failures",
    ),
];
