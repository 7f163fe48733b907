//! Faults of workspaces, and of jobs that are called as if they were one.

use super::table::Row;

pub(super) const WORKSPACES: &[Row] = &[
    (
        "$REKINDLE exec boxx -- true",
        &["there is no workspace boxx"],
        "did you mean box? Otherwise make it: rekindle up",
    ),
    ("$REKINDLE sync . boxx:", &["there is no workspace boxx"], "did you mean box? Otherwise make it"),
    // A job with a program is no workspace.
    (
        "$REKINDLE exec trian-1 -- true",
        &["there is no workspace trian-1", "\nnext: make it: rekindle up trian-1"],
        "`rekindle status` lists",
    ),
    ("$REKINDLE up boxx", &["there is no workspace boxx yet"], "did you mean box? Otherwise say which TPU"),
    (
        "$REKINDLE up old",
        &["the workspace old was deleted\n", "only `pause` keeps what a workspace is made of"],
        "rekindle up old --tpu v5litepod-16 --capacity spot,on_demand --setup 'pip install flax', with its --folder;",
    ),
    (
        "$REKINDLE status old",
        &["the workspace old was deleted\n", "ada@example.com"],
        "rekindle up old --tpu v5litepod-16 ",
    ),
    ("$REKINDLE ssh old", &["the workspace old was deleted\n"], "rekindle up old --tpu v5litepod-16 "),
    ("$REKINDLE exec asleep -- true", &["asleep has no workers: it is paused"], "`rekindle up asleep` brings it up"),
    (
        "$REKINDLE sync piped:pipe new; code=$?; [ ! -e new ] && exit $code",
        &["not every worker has something to bring", "w0: pipe is neither file, folder nor link", "w1: pipe is"],
        "name a file or a folder; what a program writes into a pipe or a socket is kept nowhere",
    ),
    ("$REKINDLE sync . asleep:", &["asleep has no workers: it is paused"], "`rekindle up asleep`"),
    ("$REKINDLE ssh asleep", &["asleep has no TPU now: it is paused"], "rekindle up asleep"),
    ("$REKINDLE ssh nobody", &["There is no job \"nobody\""], "rekindle up nobody"),
    ("$REKINDLE exec box --worker 9 -- true", &["\"9\" is no worker; there are w0 to w1"], "name one that is there"),
    (
        "$REKINDLE sync nothing.txt box:",
        &["cannot send nothing.txt", "No such file"],
        "name a folder or a file that is there",
    ),
    (
        "mkfifo pipe; $REKINDLE sync pipe box:",
        &["pipe is neither file nor folder"],
        "name a folder or a file; what a pipe gives can be written to one first",
    ),
    (
        "truncate -s 600M big; $REKINDLE sync big box:",
        &["the file big is too large to send", "512.0 MiB"],
        "bring it by way of a bucket",
    ),
    (
        "$REKINDLE exec left -- true",
        &["left went away before all workers had ended it"],
        "`rekindle explain left` tells where it is; what ran is not run again by itself",
    ),
    ("$REKINDLE sync . full:", &["not every worker has the files", "w1: No space left on device"], "disk has room"),
    (
        "$REKINDLE sync a:b c:d",
        &["both places are in a workspace"],
        "one of them must be here; within a workspace `rekindle exec NAME -- cp` copies",
    ),
    (
        "mkdir empty; $REKINDLE sync empty box:",
        &["there is nothing to send in empty"],
        "see what .gitignore and .rekindleignore name",
    ),
    ("$REKINDLE up restless", &["restless did not come up", "somebody paused it meanwhile"], "rekindle up restless"),
    (
        "$REKINDLE up stuck",
        &["stuck did not come up: setup failed"],
        "see `rekindle logs stuck` and `rekindle explain stuck`",
    ),
    (
        "PATH= $REKINDLE ssh box",
        &["cannot start gcloud", "No such file"],
        "install the Google Cloud CLI (https://cloud.google.com/sdk/docs/install); `rekindle exec` needs none",
    ),
    (
        "$REKINDLE sync full: out",
        &["not every worker could send the files", "w1: No space left"],
        "see that the path is there on each worker, and that its disk has room",
    ),
    (
        "$REKINDLE sync napped: out",
        &["not every worker could send the files", "w1: ended with 143: it is being paused"],
        "run it again once `rekindle status napped` says that it is up",
    ),
    (
        "$REKINDLE sync none: out; CODE=$?; test ! -e out || exit 9; exit $CODE",
        &["not every worker could send", "w1: tar: results: Cannot open"],
        "path",
    ),
    (
        "$REKINDLE sync half: out; CODE=$?; grep -q a out/w0/a.txt || exit 9; exit $CODE",
        &["w1: tar: results: Cannot open: No such file"],
        "path",
    ),
    (
        "touch file; $REKINDLE sync half: file",
        &["cannot unpack what came into file", "directory"],
        "name a folder that you may write to, on a disk with room",
    ),
    (
        "TMPDIR=/nowhere $REKINDLE sync half: out",
        &["cannot keep what came", "No such file"],
        "set TMPDIR to a folder that you may write to, on a disk with room",
    ),
    (
        "$REKINDLE ssh sliced --worker all",
        &["sliced has 4 workers, and a terminal goes to one"],
        "name one with --worker",
    ),
    ("$REKINDLE ssh sliced --worker 2-0", &["sliced has no worker \"2-0\""], "one of s0w0 to s1w1"),
    ("$REKINDLE ssh train-1 --worker 9", &["train-1 has no worker \"9\""], "one of w0 to w3"),
    ("$REKINDLE delete boxx box", &["there is no workspace boxx"], "did you mean box? Otherwise make it"),
    ("$REKINDLE wait trian-1; test $? = 4 || exit 9; exit 1", &["there is no job trian-1"], "did you mean train-1?"),
    ("$REKINDLE cancel trian-1 nobody", &["There is no job \"trian-1\""], "did you mean train-1? Otherwise"),
    (
        "$REKINDLE sync job.yaml box:half",
        &["half is a folder on w0 alone"],
        "write box:half/ for a folder on each worker, or name one with --worker",
    ),
    ("$REKINDLE sync job.yaml full:conf/b", &["cannot look at conf/b", "w1: No space left on device"], "disk has room"),
    ("$REKINDLE exec worn -- true", &["worn was made and deleted 500 times"], "choose another name"),
    (
        "$REKINDLE exec box -- ''",
        &["the command to run is empty"],
        "write it behind `--`: `rekindle exec box -- COMMAND`",
    ),
    (
        "$REKINDLE status crashed",
        &["the workspace crashed has ended (failed)\n", "setup failed: No module named 'flax'"],
        "make one as it was: rekindle up crashed --tpu v5litepod-16; `rekindle explain crashed` tells why it ended",
    ),
    (
        "$REKINDLE ssh crashed",
        &["the workspace crashed has ended (failed)\n"],
        "rekindle up crashed --tpu v5litepod-16",
    ),
    (
        "$REKINDLE status leaving",
        &["the workspace leaving is being deleted\n", "ada@example.com deletes it"],
        "make one as it was: rekindle up leaving --tpu v5litepod-16; `rekindle explain leaving` tells why it ended",
    ),
    ("$REKINDLE ssh held", &["held has no TPU now: it is paused"], "rekindle unpause held"),
];
