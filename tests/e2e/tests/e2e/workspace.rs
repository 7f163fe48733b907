//! A workspace from `up` to `delete`, by the command line, on real parts.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::processes::Process;
use rekindle_e2e::{Dev, LONG, Options, binary, scenario, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

use super::jobs::node_of;

/// `rekindle` in a folder; programs in `bin` are found first.
fn command(dev: &Dev, here: &Path, words: &[&str]) -> Result<Command> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(binary()?);
    command
        .args(["--server", &dev.url])
        .args(words)
        .current_dir(here)
        .env("PATH", format!("{}:{path}", dev.root().join("bin").display()))
        .env("HOME", here)
        .env("CLOUDSDK_CONFIG", here)
        .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU", &dev.cloud.url)
        .env("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{}compute/v1/", dev.cloud.url))
        .env("CLOUDSDK_AUTH_DISABLE_CREDENTIALS", "true")
        .env("CLOUDSDK_CORE_DISABLE_PROMPTS", "1")
        .env("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true")
        .env("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    Ok(command)
}

/// Runs it to its end.
async fn rekindle(dev: &Dev, here: &Path, words: &[&str]) -> Result<Output> {
    Ok(command(dev, here, words)?.output().await?)
}

/// The same, with the exit code that is due; standard output.
async fn says(dev: &Dev, here: &Path, code: i32, words: &[&str]) -> Result<String> {
    let output = rekindle(dev, here, words).await?;
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.code() == Some(code), "{words:?}: {}\n{out}\n{err}\n{}", output.status, dev.log_tail());
    Ok(if code == 0 { out.into_owned() } else { format!("{out}{err}") })
}

/// The lines of several workers come in any order.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

async fn commands_and_files(dev: &Dev, here: &Path) -> Result<()> {
    let said = says(dev, here, 0, &["exec", "box", "--", "echo from $REKINDLE_WORKER; cat made"]).await?;
    let due: Vec<String> =
        (0..4).flat_map(|w| [format!("[w{w}] from {w}"), format!("[w{w}] made for attempt 1")]).collect();
    let mut due: Vec<&str> = due.iter().map(String::as_str).collect();
    due.sort_unstable();
    ensure!(sorted(&said) == due, "{said}");
    // One worker alone: its bytes, its code.
    let one = ["exec", "box", "--worker", "2", "--", "bash", "-c", "printf 'no end'; exit 7"];
    ensure!(says(dev, here, 7, &one).await? == "no endw2 ended with 7\n");
    let worst = ["exec", "box", "--", "exit $REKINDLE_WORKER"];
    let said = says(dev, here, 3, &worst).await?;
    ensure!(said.contains("w3 ended with 3") && said.contains("w1 ended with 1") && !said.contains("w0"), "{said}");
    let said = says(dev, here, 126, &["exec", "box", "--worker", "0", "--", "no-such-program", "x"]).await?;
    ensure!(said.contains("cannot start \"no-such-program\""), "{said}");
    let said = says(dev, here, 1, &["exec", "box", "--worker", "9", "--", "true"]).await?;
    ensure!(said.contains("\"9\" is no worker"), "{said}");

    std::fs::create_dir_all(here.join("src/deep"))?;
    std::fs::write(here.join("src/deep/a.txt"), "what is sent")?;
    says(dev, here, 0, &["sync", "src", "box:code"]).await?;
    let said = says(dev, here, 0, &["exec", "box", "--worker", "3", "--", "cat code/deep/a.txt made"]).await?;
    ensure!(said == "what is sentmade for attempt 1\n", "{said}");
    says(
        dev,
        here,
        0,
        &["exec", "box", "--", "mkdir -p out; head -c 3000000 /dev/zero >out/big; echo $REKINDLE_WORKER >out/who"],
    )
    .await?;
    says(dev, here, 0, &["sync", "box:out", "back"]).await?;
    for worker in 0..4 {
        let place = here.join(format!("back/w{worker}"));
        ensure!(std::fs::read_to_string(place.join("who"))? == format!("{worker}\n"), "worker {worker}");
        ensure!(std::fs::metadata(place.join("big"))?.len() == 3_000_000, "worker {worker}");
    }
    // One file is one file on both sides.
    says(dev, here, 0, &["sync", "src/deep/a.txt", "box:conf/b.txt"]).await?;
    says(dev, here, 0, &["sync", "src/deep/a.txt", "box:conf/"]).await?;
    // A folder that is there takes it, and its time is kept: compiled files beside it are as old as they are.
    says(dev, here, 0, &["sync", "src/deep/a.txt", "box:out"]).await?;
    let told =
        says(dev, here, 0, &["exec", "box", "--worker", "3", "--", "cat out/a.txt; stat -c %Y out/a.txt"]).await?;
    let changed = std::fs::metadata(here.join("src/deep/a.txt"))?.mtime();
    ensure!(told == format!("what is sent{changed}\n"), "{told}");
    let said = says(dev, here, 0, &["exec", "box", "--worker", "3", "--", "cat conf/a.txt conf/b.txt"]).await?;
    ensure!(said == "what is sentwhat is sent", "{said}");
    says(dev, here, 0, &["sync", "box:conf/b.txt", "one.txt", "--worker", "3"]).await?;
    ensure!(std::fs::read_to_string(here.join("one.txt"))? == "what is sent", "one file");
    let said = says(dev, here, 1, &["sync", "box:nowhere", "back"]).await?;
    ensure!(said.contains("nowhere"), "{said}");
    Ok(())
}

/// `rekindle ssh` by the real gcloud, which asks the emulator; its `ssh` only writes down what it is asked.
async fn ssh(dev: &Dev, here: &Path) -> Result<()> {
    if std::process::Command::new("gcloud").arg("--version").output().is_err() {
        ensure!(!rekindle_e2e::is_ci(), "CI needs gcloud (package google-cloud-cli)");
        rekindle_e2e::say("skipped: gcloud is not installed");
        return Ok(());
    }
    let bin = dev.root().join("bin");
    std::fs::create_dir(&bin)?;
    // A key is made where it is asked for.
    let make = r#"for word; do [ "$file" = -f ] && { echo x >"$word"; echo ssh-ed25519 QUJD a@b >"$word.pub"; }; file=$word; done"#;
    for (name, does) in [("ssh", ""), ("ssh-keygen", make)] {
        let stub = bin.join(name);
        std::fs::write(&stub, format!("#!/bin/bash\necho \"{name} $*\" >>\"$HOME/called\"\n{does}\n:\n"))?;
        std::fs::set_permissions(&stub, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    std::fs::write(here.join("key"), "none is needed")?;
    std::fs::write(here.join("key.pub"), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIA a@b\n")?;
    let node = dev.cloud.node(&node_of(&dev.job("box").await?)?).await?.context("no node")?;
    let project = node["name"].as_str().and_then(|name| name.split('/').nth(1)).context("no project")?.to_owned();
    let address = node["workers"][1]["ip"].as_str().context("no address")?.to_owned();
    let before = dev.cloud.calls(&["GetNode"]).await?.len();
    let plain = ["--internal-ip", "--plain", "--ssh-key-file", "key", "--project", &project];
    let line = [&["ssh", "box", "--worker", "1", "--forward"], &plain[..], &["--", "-L", "9000:x:1"]].concat();
    says(dev, here, 0, &line).await?;
    ensure!(dev.cloud.calls(&["GetNode"]).await?.len() > before, "gcloud asked for the node");
    let called = std::fs::read_to_string(here.join("called"))?;
    let asked = called.lines().find(|line| line.starts_with("ssh ")).context(called.clone())?;
    ensure!(asked.contains(&format!("@{address}")), "{asked}");
    let ports = "-L 6006:localhost:6006 -L 8888:localhost:8888 -L 9000:x:1";
    ensure!(asked.contains(ports), "{asked}");
    as_people_type_it(dev, here, &project, &node).await
}

/// Without a word more: gcloud makes a key, puts it on the node, and goes to the worker's external address.
async fn as_people_type_it(dev: &Dev, here: &Path, project: &str, node: &Value) -> Result<()> {
    std::fs::remove_file(here.join("called"))?;
    let seen = dev.cloud.calls(&["UpdateNode"]).await?.len();
    ensure!(seen == 0, "nothing has changed the node before");
    let output = command(dev, here, &["ssh", "box"])?.env("CLOUDSDK_CORE_PROJECT", project).output().await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = node["name"].as_str().context("no name")?;
    let calls = dev.cloud.calls(&["UpdateNode"]).await?;
    let asked: Vec<_> = calls.iter().map(|call| (call.http_method.as_str(), call.path.as_str(), call.status)).collect();
    ensure!(asked == [("PATCH", format!("/v2/{name}").as_str(), 200)], "{asked:?}");
    ensure!(calls[0].query.split('&').any(|part| part == "updateMask=metadata"), "{}", calls[0].query);
    let looked = dev.cloud.calls(&["GetProject"]).await?;
    let looked = looked.last().map(|call| (call.http_method.as_str(), call.path.as_str()));
    ensure!(looked == Some(("GET", format!("/compute/v1/projects/{project}").as_str())), "{looked:?}");
    let node = dev.cloud.node(name.rsplit('/').next().unwrap_or_default()).await?.context("no node")?;
    let called = std::fs::read_to_string(here.join("called"))?;
    let asked = called.lines().find(|line| line.starts_with("ssh ")).context(called.clone())?;
    ensure!(asked.contains("@203.0.113."), "the external address: {asked}");
    let internal = node["workers"][0]["ip"].as_str().context("no address")?;
    ensure!(!asked.contains(internal), "{asked}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_lives_until_it_is_deleted() -> Result<()> {
    scenario("workspace", Options::speed(10.0), async |dev| {
        let home = tempfile::tempdir()?;
        let here = home.path();
        let said = says(dev, here, 1, &["up", "box"]).await?;
        ensure!(said.contains("rekindle up box --tpu"), "{said}");
        let setup = "echo made for attempt $REKINDLE_ATTEMPT >made";
        let up = ["up", "box", "--tpu", "v5litepod-16", "--setup", setup];
        ensure!(says(dev, here, 0, &up).await? == "box\n");
        ensure!(says(dev, here, 0, &["up", "box"]).await? == "box\n", "it is up already");
        commands_and_files(dev, here).await?;
        ssh(dev, here).await?;

        // Its TPU is taken away: another one, set up again.
        let job = dev.job("box").await?;
        dev.cloud.preempt(&node_of(&job)?, "0s", "PREEMPTED").await?;
        dev.job_until("box", "it is there again", |job| job["attempt"] == 2 && job["phase"] == "running").await?;
        let said = says(dev, here, 0, &["exec", "box", "--worker", "0", "--", "cat made"]).await?;
        ensure!(said == "made for attempt 2\n", "{said}");
        // Somebody who does not know what holds it ends that.
        let is_held = |p: &Process| p.arguments.starts_with("rekindle-workspace");
        let holder = dev.workers().into_iter().find(|p| is_held(p) && p.variable("REKINDLE_WORKER") == Some("1"));
        holder.context("nothing holds the workspace")?.signal(Signal::TERM);
        dev.job_until("box", "it goes on", |job| job["attempt"] == 3 && job["phase"] == "running").await?;

        says(dev, here, 0, &["pause", "box"]).await?;
        dev.phase("box", "paused").await?;
        ensure!(dev.cloud.resources().await?.is_empty(), "a paused workspace costs nothing");
        let said = says(dev, here, 1, &["exec", "box", "--", "true"]).await?;
        ensure!(said.contains("paused") && said.contains("rekindle up box"), "{said}");
        let list: Value = serde_json::from_str(&says(dev, here, 0, &["--json", "status"]).await?)?;
        ensure!(list["jobs"][0]["id"] == "box" && list["jobs"][0]["phase"] == "paused", "{list}");
        says(dev, here, 0, &["up", "box"]).await?;
        let said = says(dev, here, 0, &["exec", "box", "--worker", "0", "--", "cat made"]).await?;
        ensure!(said == "made for attempt 4\n", "{said}");

        says(dev, here, 0, &["delete", "box"]).await?;
        dev.phase("box", "cancelled").await?;
        let said = says(dev, here, 1, &["exec", "box", "--", "true"]).await?;
        let told = ["the workspace box was deleted", "rekindle up box --tpu v5litepod-16 "];
        ensure!(told.iter().all(|told| said.contains(told)), "{said}");
        // The name again is another job; unused it is paused by itself.
        let again = ["up", "box", "--tpu", "v5litepod-4", "--idle", "20s"];
        ensure!(says(dev, here, 0, &again).await? == "box-2\n");
        let job = dev.phase("box-2", "paused").await?;
        ensure!(job["message"].as_str().is_some_and(|text| text.contains("nobody has used it")), "{}", job["message"]);
        says(dev, here, 0, &["delete", "box"]).await?;
        dev.phase("box-2", "cancelled").await?;
        let counters = dev.job("box").await?["counters"].clone();
        ensure!(counters["user_failures"] == 0 && counters["infra_failures"] == 0, "{counters}");
        ensure!(counters["preemptions"] == json!(1), "{counters}");
        Ok(())
    })
    .await
}

/// Processes of commands in the workspace, by a word of their arguments.
fn of_command(dev: &Dev, word: &str) -> Vec<Process> {
    dev.workers().into_iter().filter(|process| process.arguments.contains(word)).collect()
}

/// Reads until so many lines have come that hold a text.
async fn lines(from: &mut (impl AsyncBufRead + Unpin), count: usize, text: &str) -> Result<()> {
    let mut found = 0;
    while found < count {
        let mut line = String::new();
        let read = tokio::time::timeout(LONG, from.read_line(&mut line)).await.with_context(|| text.to_owned())?;
        ensure!(read? > 0, "it ended after {found} of {count} lines with {text:?}");
        found += usize::from(line.contains(text));
    }
    Ok(())
}

/// Ctrl-C, once or twice, at an `exec` whose command has begun on all four workers; its exit code, and what it said then.
async fn interrupted(dev: &Dev, here: &Path, line: &str, is_twice: bool) -> Result<(Option<i32>, String)> {
    let mut exec = command(dev, here, &["exec", "box", "--", line])?;
    let mut exec = exec.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let pid = exec.id().and_then(|pid| Pid::from_raw(pid.cast_signed())).context("it has no process")?;
    let mut out = BufReader::new(exec.stdout.take().context("no pipe")?);
    let mut err = BufReader::new(exec.stderr.take().context("no pipe")?);
    lines(&mut out, 4, "begun").await?;
    kill_process(pid, Signal::INT)?;
    // Two signals at the same time may be one: the second waits until the first was heard.
    lines(&mut err, 1, "ending it on the workers; Ctrl-C again does not wait for that").await?;
    if is_twice {
        kill_process(pid, Signal::INT)?;
    }
    let mut said = String::new();
    tokio::time::timeout(LONG, err.read_to_string(&mut said)).await.context("it does not end")??;
    Ok((exec.wait().await?.code(), said))
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_command_and_its_children_on_every_worker() -> Result<()> {
    scenario("ctrl-c", Options::speed(10.0), async |dev| {
        let home = tempfile::tempdir()?;
        let here = home.path();
        let up = ["up", "box", "--tpu", "v5litepod-16", "--set", "limits.stop_grace=20s"];
        ensure!(says(dev, here, 0, &up).await? == "box\n");

        let (code, said) = interrupted(dev, here, "sleep 86399 & echo begun; wait", false).await?;
        ensure!(code == Some(143), "{code:?}: {said}");
        for worker in 0..4 {
            ensure!(said.contains(&format!("w{worker} ended with 143\n")), "{said}");
        }
        let left = of_command(dev, "sleep 86399");
        ensure!(left.is_empty(), "an `exec` that has ended leaves nothing: {left:?}");

        // One that does not listen: the second Ctrl-C leaves it, and the grace ends it.
        let deaf = "trap '' TERM; sleep 86398 & echo begun; wait";
        let (code, said) = interrupted(dev, here, deaf, true).await?;
        ensure!(code == Some(130), "{code:?}: {said}");
        ensure!(said.contains("error: order 2 of box may still run on w0, w1, w2, w3\n"), "{said}");
        ensure!(said.contains("its workers are told to end it, and kill it after `limits.stop_grace`"), "{said}");
        ensure!(said.contains("\nnext: `rekindle exec box -- ps aux`"), "{said}");
        until("the grace ends it", LONG, async || Ok(of_command(dev, "sleep 86398").is_empty().then_some(()))).await?;

        // The workspace goes on.
        ensure!(says(dev, here, 0, &["exec", "box", "--worker", "3", "--", "echo here"]).await? == "here\n");
        says(dev, here, 0, &["delete", "box"]).await?;
        dev.phase("box", "cancelled").await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_in_a_workspace_that_is_paused_has_the_time_to_save() -> Result<()> {
    scenario("pause", Options::speed(10.0), async |dev| {
        let home = tempfile::tempdir()?;
        let here = home.path();
        let up = ["up", "box", "--tpu", "v5litepod-4", "--set", "limits.stop_grace=200s"];
        ensure!(says(dev, here, 0, &up).await? == "box\n");
        // What a dead program leaves behind is killed after two seconds; this is no such thing.
        let saved = here.join("saved");
        let line = format!(
            "trap 'sleep 4; echo all >{}; exit' TERM; echo begun; while :; do sleep 0.1; done",
            saved.display()
        );
        let mut exec = command(dev, here, &["exec", "box", "--", &line])?;
        let mut exec = exec.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        lines(&mut BufReader::new(exec.stdout.take().context("no pipe")?), 1, "begun").await?;
        says(dev, here, 0, &["pause", "box"]).await?;
        dev.phase("box", "paused").await?;
        ensure!(std::fs::read_to_string(&saved)? == "all\n", "it was killed before it had saved");
        exec.kill().await?;
        says(dev, here, 0, &["delete", "box"]).await?;
        dev.phase("box", "cancelled").await.map(drop)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_kept_and_brought() -> Result<()> {
    scenario("outputs", Options::speed(10.0), async |dev| {
        let home = tempfile::tempdir()?;
        let here = home.path();
        let run =
            "mkdir -p results/deep; echo $REKINDLE_WORKER >results/who; head -c 3000000 /dev/zero >results/deep/big
            echo x >other; echo é >'.a b'";
        let spec =
            json!({"id": "made", "run": run, "outputs": ["results", ".a*"], "tpu": {"accelerator": "v5litepod-16"}});
        dev.submit(&spec).await?;
        dev.phase("made", "succeeded").await?;
        let listed = says(dev, here, 0, &["outputs", "made", "--worker", "2"]).await?;
        ensure!(sorted(&listed) == ["w2/.a b", "w2/results/deep/big", "w2/results/who"], "{listed}");
        says(dev, here, 0, &["outputs", "made", "--to", "back"]).await?;
        for worker in 0..4 {
            let place = here.join(format!("back/w{worker}"));
            ensure!(std::fs::read_to_string(place.join("results/who"))? == format!("{worker}\n"), "worker {worker}");
            ensure!(std::fs::metadata(place.join("results/deep/big"))?.len() == 3_000_000, "worker {worker}");
            ensure!(std::fs::read_to_string(place.join(".a b"))? == "é\n", "worker {worker}");
            ensure!(!place.join("other").exists(), "worker {worker}");
        }
        Ok(())
    })
    .await
}
