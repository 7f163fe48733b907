//! What a program writes is what people read, byte for byte.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, LONG, Options, binary, holds, scenario, until};
use serde_json::json;

use super::jobs::node_of;

const LINES: usize = 30_000;

/// The output of one worker, in the shell's words.
const PROGRAM: &str = r#"
seq -f "worker $REKINDLE_WORKER line %.0f" 1 30000
printf 'no text: \000\001\377\376 é\n'
echo "said on stderr by $REKINDLE_WORKER" >&2
head -c 400000 /dev/zero | tr '\0' x
printf '\nhalf a line'
"#;

fn expected(worker: u32) -> Vec<u8> {
    let mut lines = String::new();
    for line in 1..=LINES {
        let _never = writeln!(lines, "worker {worker} line {line}");
    }
    let long = "x".repeat(400_000);
    [lines.as_bytes(), b"no text: \0\x01\xff\xfe \xc3\xa9\n", long.as_bytes(), b"\nhalf a line\n"].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_byte_of_the_output_is_kept() -> Result<()> {
    scenario("logs", Options::speed(10.0), async |dev| {
        dev.submit(&json!({"id": "talk", "run": PROGRAM, "tpu": {"accelerator": "v5litepod-16"}})).await?;
        dev.phase("talk", "succeeded").await?;
        let mut all = 0;
        for worker in 0..4 {
            let out = dev.bytes(&format!("/v1/jobs/talk/logs?worker={worker}&stream=stdout")).await?;
            let due = expected(worker);
            let same = out.iter().zip(&due).take_while(|(a, b)| a == b).count();
            ensure!(out == due, "worker {worker}: {} bytes, not {}; the first {same} agree", out.len(), due.len());
            let errors = dev.bytes(&format!("/v1/jobs/talk/logs?worker={worker}&stream=stderr")).await?;
            let errors = String::from_utf8(errors)?;
            ensure!(errors == format!("said on stderr by {worker}\n"), "stderr of {worker}: {errors:?}");
            all += due.len();
        }
        // All workers together: the same lines, each with its worker before it.
        let together = dev.bytes("/v1/jobs/talk/logs?attempt=1").await?;
        ensure!(together.len() > all, "{} bytes of {all}", together.len());
        let text = String::from_utf8_lossy(&together);
        let of_two = text.lines().filter_map(|line| line.strip_prefix("[w2] worker 2 line ")).map(str::parse::<usize>);
        ensure!(of_two.collect::<Result<Vec<_>, _>>()? == (1..=LINES).collect::<Vec<_>>(), "lines of worker 2");
        Ok(())
    })
    .await
}

/// Most bytes of output that wait on a worker.
const BOUND: u64 = 2 << 20;
/// A minute of the workers, at the speed of the test.
const MINUTE: Duration = Duration::from_secs(10);
const WORKERS: u32 = 4;
/// Two seconds, at the speed of the test.
const FLUSH_MS: u64 = 333;
/// Lines of the attempt that goes without a word: for about ten flushes. One for each 0.04 s.
const TALK: u64 = 90;

/// Says lines, each also to a file of the test; after SIGTERM many more, and last words. Attempt 1 has filled its disk,
/// 2 says much while the network is cut, 5 more than may wait; then it ends by itself.
const WHOLE: &str = r#"
copy="$SAID/$REKINDLE_ATTEMPT.$REKINDLE_WORKER"; me="attempt $REKINDLE_ATTEMPT worker $REKINDLE_WORKER"
gone=; i=0; did=; trap 'gone=1' TERM
say() { i=$((i+1)); line="$me line $i at $EPOCHREALTIME"; echo "$line" >>"$copy"; echo "$line"; }
much() {
  [ -n "$did" ] || [ ! -e "$SAID/$1" ] && return
  seq -f "$me $1 %.0f" "$2" | tee -a "$copy"; did=1; touch "$copy.$1"
}
[ "$REKINDLE_ATTEMPT" = 1 ] && [ -n "$SMALL" ] && head -c 8000000 /dev/zero 2>/dev/null >full && exit 9
while [ -z "$gone" ]; do
  say; echo "step=$((REKINDLE_ATTEMPT * 100000 + i))" >>"$REKINDLE_PROGRESS_FILE"
  [ "$REKINDLE_ATTEMPT" = 2 ] && much cut 20000
  [ "$REKINDLE_ATTEMPT" = 5 ] && much flood 150000 && [ -e "$SAID/end" ] && exit 0
  sleep 0.04
done
while [ $i -lt 600 ]; do say; done
echo "last words" >>"$copy"; echo "last words"
[ "$REKINDLE_ATTEMPT" = 1 ] && [ -n "$SMALL" ] && umount --lazy "$PWD"
exit 1
"#;

/// The first slice's working directories are disks of 1 MiB.
const SMALL_DISK: &str = r#"[ "$REKINDLE_ATTEMPT" != 1 ] || [ -z "$SMALL" ] || mount -t tmpfs -o size=1m small "$PWD""#;

/// What a worker said in an attempt, by its own record.
fn said(dev: &Dev, attempt: u32, worker: u32) -> PathBuf {
    dev.root().join("said").join(format!("{attempt}.{worker}"))
}

/// Lets all workers of an attempt say much, and waits until they have, whatever else they can reach.
async fn much(dev: &Dev, attempt: u32, name: &str) -> Result<()> {
    let folder = dev.root().join("said");
    std::fs::write(folder.join(name), "")?;
    let has_said = |worker| folder.join(format!("{attempt}.{worker}.{name}")).exists();
    until("no program is held up", LONG, async || Ok((0..WORKERS).all(has_said).then_some(()))).await
}

/// What stands behind the output of a machine that went without a word.
const LOST: &str = "rekindle: output may be missing here: the machine was gone before it told of its program's end\n";

/// Bytes that the marks in an output count. All else must be what was said, in order.
fn marked(out: &[u8], due: &[u8]) -> Result<usize> {
    let (mut rest, mut at, mut marked) = (std::str::from_utf8(out)?, 0, 0);
    while let Some((before, behind)) = rest.split_once("\nrekindle: ") {
        let mark = behind.split_once(" bytes of output were dropped here: api was out of reach\n");
        let (count, behind) = mark.context("a mark without an end")?;
        let count: usize = count.parse()?;
        ensure!(due[at..].starts_with(before.as_bytes()), "in order up to byte {at}");
        (rest, at, marked) = (behind, at + before.len() + count, marked + count);
    }
    ensure!(due.get(at..) == Some(rest.as_bytes()), "in = out + marked: {} = {} + {marked}", due.len(), out.len());
    Ok(marked)
}

/// From the first of these lines to the last, in seconds by their own words.
fn span(lines: &[u8]) -> Result<f64> {
    let text = std::str::from_utf8(lines)?;
    let times = text.lines().filter_map(|line| line.rsplit_once(" at ")?.1.parse::<f64>().ok());
    let (first, last) = times.fold((f64::MAX, f64::MIN), |(first, last), at| (first.min(at), last.max(at)));
    Ok((last - first).max(0.0))
}

async fn check_worker(dev: &Dev, attempt: u32, worker: u32) -> Result<()> {
    let due = std::fs::read(said(dev, attempt, worker))?;
    let path = format!("/v1/jobs/kept/logs?attempt={attempt}&worker={worker}&stream=stdout");
    let out = dev.bytes(&path).await?;
    ensure!(!out.is_empty(), "nothing came");
    if attempt == 5 {
        let marked = marked(&out, &due)?;
        ensure!(marked as u64 > BOUND, "{marked} of {} bytes are marked as dropped", due.len());
        return Ok(());
    }
    let mut out = out.as_slice();
    if attempt == 4 {
        // What may be lost without notice is said, also in the middle of a line.
        out = out.strip_suffix(LOST.as_bytes()).context("nothing says that the end may be missing")?;
        out = if due.starts_with(out) { out } else { out.strip_suffix(b"\n").unwrap_or(out) };
    }
    let same = out.iter().zip(&due).take_while(|(a, b)| a == b).count();
    let (had, whole) = (out.len(), due.len());
    ensure!(same == had, "{had} bytes of {whole}; the first {same} agree");
    if attempt == 4 {
        // The last flush interval may be lost, and nothing before it. At this speed that is a third of a second, and two are
        // allowed: the rest is room for a busy machine. At real speed it would be two of two and no room, since how long a
        // machine lets an agent wait that is due cannot be told from here. That the next flush is due two seconds after the
        // last began, by the agent's own clock, is held by a test of the agent's `logs`; that none is left out, by [`rhythm`].
        let lost = span(&due[had..])?;
        rekindle_e2e::say(&format!("without notice worker {worker} lost {} bytes of {lost:.2} s", whole - had));
        ensure!(lost <= 2.0, "what was said over {lost} s is lost");
        return Ok(());
    }
    ensure!(had == whole, "{had} bytes of {whole}");
    ensure!(due.ends_with(b"last words\n"), "{}", String::from_utf8_lossy(&due[due.len() - 80..]));
    Ok(())
}

/// When the chunks of a worker's output came, in milliseconds.
fn came(dev: &Dev, attempt: u32, worker: u32) -> Result<Vec<u64>> {
    let folder = dev.state().join(format!("bucket/jobs/kept/logs/{attempt:06}/0000-{worker:04}/stdout"));
    let mut times = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name().into_string().ok().context("a name that is no text")?;
        times.extend(name.split_once('@').and_then(|(_, at)| at.parse::<u64>().ok()));
    }
    times.sort_unstable();
    Ok(times)
}

/// What a program that never stops talking says is sent at every flush. A busy machine puts off any of them, but not all of all
/// workers, so the shortest time between two chunks tells what the agents are up to.
fn rhythm(dev: &Dev) -> Result<()> {
    let mut shortest = Vec::new();
    for worker in 0..WORKERS {
        let times = came(dev, 4, worker)?;
        // The last ones are sent at once where the agent still sees how its program ends.
        let regular = times.len().saturating_sub(3);
        shortest.extend(times[..regular].windows(2).map(|two| two[1] - two[0]).min());
    }
    let shortest = shortest.into_iter().min().context("no worker has sent twice")?;
    rekindle_e2e::say(&format!("two chunks are {shortest} ms apart or more"));
    ensure!(
        shortest < 3 * FLUSH_MS,
        "no two chunks are less than {shortest} ms apart, with a flush each {FLUSH_MS} ms"
    );
    Ok(())
}

async fn over_everything(dev: &mut Dev) -> Result<()> {
    std::fs::create_dir(dev.root().join("said"))?;
    let small = if rekindle_e2e::is_root() { "1" } else { "" };
    ensure!(!small.is_empty() || !rekindle_e2e::is_ci(), "CI mounts a small disk, which needs root");
    let env = json!({"SAID": dev.root().join("said"), "SMALL": small});
    let spec = json!({
        "id": "kept", "run": WHOLE, "setup": SMALL_DISK, "env": env, "tpu": {"accelerator": "v5litepod-16"},
    });
    dev.submit(&spec).await?;
    for attempt in 1..=4 {
        let lines = if attempt == 4 { TALK } else { 20 };
        let job = dev.step("kept", attempt, u64::from(attempt) * 100_000 + lines).await?;
        if attempt == 2 {
            dev.freeze();
            much(dev, attempt, "cut").await?;
            holds(MINUTE, async || Ok(())).await?;
            dev.thaw();
        }
        // The last slice goes without a word.
        let notice = if attempt < 4 { "30s" } else { "0s" };
        dev.cloud.preempt(&node_of(&job)?, notice, "PREEMPTED").await?;
    }
    dev.step("kept", 5, 500_020).await?;
    dev.kill()?;
    much(dev, 5, "flood").await?;
    dev.launch().await?;
    std::fs::write(dev.root().join("said/end"), "")?;
    dev.phase("kept", "succeeded").await?;
    for attempt in 1..=5 {
        for worker in 0..WORKERS {
            check_worker(dev, attempt, worker).await.with_context(|| format!("attempt {attempt} worker {worker}"))?;
        }
    }
    rhythm(dev)
}

#[tokio::test(flavor = "multi_thread")]
async fn no_byte_is_lost_unmarked_over_preemptions_a_cut_and_a_full_disk() -> Result<()> {
    // At this speed a program has some seconds after its notice, also on a busy machine.
    scenario("every byte", Options::speed(6.0).log_backlog(BOUND), async |dev| {
        let result = over_everything(dev).await;
        // Also after a failure: the folder of the test cannot be removed otherwise.
        rekindle_e2e::unmount_below(dev.root())?;
        result
    })
    .await
}

/// Memory that a process holds, in bytes.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(held.context("no VmRSS")?.parse::<u64>()? * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_lines_follow_without_growing_memory() -> Result<()> {
    const MANY: usize = 1_000_000;
    scenario("a million lines", Options::speed(10.0), async |dev| {
        let run = format!("seq -f 'line %.0f of a million' 1 {MANY}; until [ -e {0} ]; do sleep 0.05; done", "$SAID");
        let go = dev.root().join("go");
        let spec = json!({"id": "long", "run": run, "env": {"SAID": go}, "tpu": {"accelerator": "v5litepod-4"}});
        dev.submit(&spec).await?;
        dev.phase("long", "running").await?;
        let mut command = Command::new(binary()?);
        command.args(["--server", &dev.url, "logs", "-f", "long"]).stdin(Stdio::null());
        let mut follower = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut out = follower.stdout.take().context("no stdout")?;
        let pids = [follower.id(), dev.pid().context("no dev")?];
        let read = tokio::task::spawn_blocking(move || {
            let (mut piece, mut rest, mut lines) = (vec![0; 1 << 16], Vec::new(), 0);
            let mut held: Vec<[u64; 2]> = Vec::new();
            while lines < MANY {
                let read = out.read(&mut piece)?;
                ensure!(read > 0, "the follow ended after {lines} lines");
                rest.extend_from_slice(&piece[..read]);
                let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let whole: Vec<u8> = rest.drain(..end).collect();
                for line in std::str::from_utf8(&whole)?.lines().filter(|line| !line.starts_with("==")) {
                    lines += 1;
                    ensure!(line == format!("line {lines} of a million"), "{line:?} is no line {lines}");
                }
                if lines / (MANY / 10) >= held.len() {
                    held.push([resident(pids[0])?, resident(pids[1])?]);
                }
            }
            Ok(held)
        });
        let held = read.await??;
        std::fs::write(&go, "")?;
        until("the follow ends with the job", LONG, async || Ok(follower.try_wait()?)).await?;
        dev.phase("long", "succeeded").await?;
        for (index, name) in ["rekindle logs -f", "rekindle dev"].iter().enumerate() {
            let (early, most) = (held[1][index], held.iter().map(|at| at[index]).max().unwrap_or(0));
            rekindle_e2e::say(&format!("{name}: {early} bytes after a tenth, {most} at most"));
            // 24 MB went through both; a buffer that is let go of later is no growth.
            ensure!(most < early + (8 << 20), "{name} grew from {early} to {most} bytes");
        }
        Ok(())
    })
    .await
}
