//! A new user's way as the README tells it: the own folder to a finished run over two preemptions, followed all the way;
//! and the full-screen view in a terminal.
//!
//! `transcripts/walk.txt` holds the commands and what they printed. They are run again, and what must be the same
//! is compared: numbers, and what is as long as they are, are not. `REKINDLE_BLESS=1` takes over what is printed now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, LONG, Options, binary, is_ci, say, scenario, until};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};

use super::jobs::{counting, node_of};

const JOB: &str = "walk";

/// A person at a shell in their own folder.
struct Person<'a> {
    dev: &'a Dev,
    folder: tempfile::TempDir,
}

impl Person<'_> {
    fn shell(&self, script: &str) -> Result<Command> {
        let binary = binary()?;
        let folder = binary.parent().context("no folder")?;
        let path = std::env::var("PATH")?;
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .current_dir(self.folder.path().join("train"))
            .env("PATH", format!("{}:{path}", folder.display()))
            .env("HOME", self.folder.path())
            .env("REKINDLE_SERVER", &self.dev.url)
            .env("TPU", self.dev.cloud.url.trim_end_matches('/'))
            .env("NO_COLOR", "1")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_STATE_HOME")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        Ok(command)
    }

    /// Everything that a line prints; it must end well.
    async fn types(&self, line: &str) -> Result<String> {
        let output = self.shell(&format!("{{ {line}\n}} 2>&1"))?.output();
        let output = tokio::time::timeout(LONG, output).await.with_context(|| format!("{line} hangs"))??;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{line}: {}:\n{text}", output.status);
        let text = text.replace(&self.folder.path().display().to_string(), "/home/ada");
        Ok(text.replace(&self.dev.url, "http://127.0.0.1:8080"))
    }
}

/// What of an output is the same each time: no numbers, no measures, no bars; one blank for many, and for the ends of
/// lines too, because sentences are broken where they are long.
fn masked(text: &str) -> String {
    let line = |line: &str| {
        let mut out = String::new();
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            // A timeline's bar, and the words beside it.
            if line.contains('|') {
                out.push_str("BAR");
                break;
            }
            let has_number = word.chars().any(|c| c.is_ascii_digit());
            let kept = if has_number { "#" } else { word };
            out.push_str(kept);
            if words.peek().is_some() {
                out.push(' ');
            }
        }
        out
    };
    // Lengths of time that have words of their own, also where a line ends among them.
    let moment = ["less than a second", "less than a\nsecond", "less than\na second", "less\nthan a second"];
    let text = moment.iter().fold(text.replace("just now", "for 0s"), |text, words| text.replace(words, "0s"));
    let lines: Vec<String> = text.lines().map(line).collect();
    lines.join(" ")
}

fn transcript() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("transcripts/walk.txt")
}

/// The commands of a transcript, each with what it printed.
fn parts(text: &str) -> Vec<(String, String)> {
    let mut parts: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("$ "), parts.last_mut()) {
            (Some(command), _) => parts.push((command.to_owned(), String::new())),
            (None, Some((_, printed))) => {
                printed.push_str(line);
                printed.push('\n');
            }
            (None, None) => {}
        }
    }
    parts
}

/// Waits until the attempt is well under way, as a person does who looks now and then.
async fn under_way(dev: &Dev, attempt: u32) -> Result<Value> {
    dev.job_until(JOB, &format!("attempt {attempt} makes steps"), |job| {
        let is_new = job["progress"]["step"].as_u64() > job["last_end"]["step"].as_u64();
        // The slice before it may be shown for as long as its delete takes, which differs.
        let is_alone = job["resources"].as_array().is_some_and(|resources| resources.len() == 1);
        let runs = job["phase"] == "running" && job["attempt"] == attempt;
        runs && is_new && is_alone && job["progress"]["step_at"].is_string()
    })
    .await
}

async fn walk(person: &Person<'_>) -> Result<()> {
    let dev = person.dev;
    let program = include_str!("../../../programs/plain.py");
    std::fs::create_dir(person.folder.path().join("train"))?;
    std::fs::write(person.folder.path().join("train/plain.py"), program)?;
    let want = std::fs::read_to_string(transcript())?;
    let mut got = String::new();
    let mut follow = None;
    for (command, _) in parts(&want) {
        let printed = if let Some(line) = command.strip_suffix(" &") {
            follow = Some(person.shell(&format!("{{ {line}\n}} 2>&1"))?.stdout(Stdio::piped()).spawn()?);
            String::new()
        } else if command == "fg" {
            ended(follow.take().context("nothing runs behind")?).await?
        } else {
            for attempt in [1, 2, 3] {
                // Only what is running is taken away or looked at.
                if command.ends_with(&format!("# attempt {attempt} runs")) {
                    under_way(dev, attempt).await?;
                }
            }
            person.types(&command).await?
        };
        let _never = write!(got, "$ {command}\n{printed}");
    }
    let page = dev.get("/").await?;
    ensure!(page.as_str().is_some_and(|page| page.contains("<title>Rekindle</title>")), "the page is served");
    super::page::walk::ended(dev, JOB).await.context("the page in a browser")?;
    if std::env::var_os("REKINDLE_BLESS").is_some() {
        std::fs::write(transcript(), &got)?;
    }
    let (is, was) = (masked(&got), masked(&want));
    ensure!(
        is == was || std::env::var_os("REKINDLE_BLESS").is_some(),
        "--- the transcript\n{was}\n+++ now\n{is}\n{got}"
    );
    Ok(())
}

async fn ended(child: Child) -> Result<String> {
    let output = tokio::time::timeout(LONG, child.wait_with_output()).await.context("it hangs")??;
    ensure!(output.status.success(), "{}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a terminal shows. A program draws what changes, so what it writes holds few whole words.
#[derive(Default)]
struct Screen {
    rows: BTreeMap<usize, BTreeMap<usize, char>>,
    at: (usize, usize),
    /// What came and is not whole yet: part of a character, or of a sequence.
    rest: Vec<u8>,
    /// Sequences since the last key.
    sequences: String,
}

impl Screen {
    fn take(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = String::from_utf8_lossy(&self.rest[..whole]).into_owned();
        let mut left = text.as_str();
        while let Some(c) = left.chars().next() {
            let mut length = c.len_utf8();
            match c {
                '\u{1b}' => {
                    let Some(end) = left.find(|c: char| c.is_ascii_alphabetic()) else { break };
                    length = end + 1;
                    self.obey(&left[..length]);
                }
                '\r' => self.at.1 = 1,
                '\n' => self.at.0 += 1,
                _ => {
                    self.rows.entry(self.at.0).or_default().insert(self.at.1, c);
                    self.at.1 += 1;
                }
            }
            left = &left[length..];
        }
        self.rest.drain(..whole - left.len());
    }

    fn obey(&mut self, sequence: &str) {
        self.sequences.push_str(sequence);
        let Some(body) = sequence.strip_prefix("\u{1b}[") else { return };
        if let Some(place) = body.strip_suffix('H') {
            let mut numbers = place.split(';').map(|number| number.parse().unwrap_or(1));
            self.at = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
        } else if body == "2J" {
            self.rows.clear();
        } else if body == "K" || body == "0K" {
            self.rows.entry(self.at.0).or_default().retain(|column, _| *column < self.at.1);
        }
    }

    fn text(&self) -> String {
        let row = |row: &BTreeMap<usize, char>| -> String {
            let last = row.keys().last().copied().unwrap_or(0);
            (1..=last).map(|column| row.get(&column).copied().unwrap_or(' ')).collect()
        };
        self.rows.values().map(row).collect::<Vec<_>>().join("\n")
    }

    fn shows(&self, words: &str) -> bool {
        if words.starts_with('\u{1b}') { self.sequences.contains(words) } else { self.text().contains(words) }
    }
}

/// A terminal in which a program draws, by util-linux's `script`.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Screen>>,
}

impl Terminal {
    fn open(person: &Person<'_>, line: &str) -> Result<Self> {
        let quoted = format!("stty cols 120 rows 40; exec {line}");
        let mut command = person.shell(&format!("exec script -qefc '{quoted}' /dev/null"))?;
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("script (bsdutils)")?;
        let keys = child.stdin.take().context("no input")?;
        let mut out = child.stdout.take().context("no output")?;
        let screen = Arc::<Mutex<Screen>>::default();
        let drawn = Arc::clone(&screen);
        tokio::spawn(async move {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = out.read(&mut bytes).await {
                drawn.lock().unwrap_or_else(PoisonError::into_inner).take(&bytes[..count]);
            }
        });
        Ok(Self { child, keys, screen })
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn press(&mut self, keys: &str) -> Result<()> {
        self.screen().sequences.clear();
        Ok(self.keys.write_all(keys.as_bytes()).await?)
    }

    /// Waits until the words are there; of a sequence, until it came since the last key.
    async fn sees(&self, words: &str) -> Result<()> {
        let what = format!("the terminal shows {words:?}");
        let seen = until(&what, Duration::from_mins(1), async || Ok(self.screen().shows(words).then_some(()))).await;
        seen.with_context(|| self.screen().text())
    }

    /// Waits until the words are gone. A screen is drawn from above: what was below in the one before is the last to go, and
    /// would be taken for that of the one after. An Esc that is not yet read makes the next key another one.
    async fn hides(&self, words: &str) -> Result<()> {
        let what = format!("the terminal hides {words:?}");
        let gone = until(&what, Duration::from_mins(1), async || Ok((!self.screen().shows(words)).then_some(()))).await;
        gone.with_context(|| self.screen().text())
    }
}

/// A job that runs until somebody ends it.
const LIVE: &str = "live";

/// The full-screen view shows the job, its explanation and its output, asks before it cancels, and gives the terminal
/// back.
async fn top(person: &Person<'_>) -> Result<()> {
    let mut terminal = Terminal::open(person, "rekindle top")?;
    terminal.sees("\u{1b}[?1049h").await?;
    // Its name alone may stand among the events or in the fleet before there is a job to ask about.
    terminal.sees("live: attempts").await?;
    terminal.press("e").await?;
    terminal.sees("why live is where it is").await?;
    terminal.hides("quit").await?;
    terminal.press("\u{1b}").await?;
    terminal.sees("quit").await?;
    terminal.press("l").await?;
    terminal.sees("output of live").await?;
    terminal.hides("quit").await?;
    terminal.press("\u{1b}").await?;
    terminal.sees("quit").await?;
    terminal.press("c").await?;
    terminal.sees("Cancel live?").await?;
    terminal.press("n").await?;
    terminal.sees("quit").await?;
    terminal.press("?").await?;
    terminal.sees("asks first").await?;
    terminal.press("x").await?;
    terminal.press("q").await?;
    terminal.sees("\u{1b}[?1049l").await?;
    terminal.sees("\u{1b}[?25h").await?;
    let status = tokio::time::timeout(LONG, terminal.child.wait()).await.context("top hangs")??;
    ensure!(status.success(), "top ended with {status}");
    ensure!(person.dev.job(LIVE).await?["desired"] == "run", "a no is a no");
    let mut terminal = Terminal::open(person, "rekindle top")?;
    terminal.sees("live: attempts").await?;
    terminal.press("c").await?;
    terminal.sees("Cancel live?").await?;
    terminal.press("y").await?;
    terminal.sees("cancelled").await?;
    person.dev.phase(LIVE, "cancelled").await?;
    terminal.press("\u{3}").await?;
    terminal.sees("\u{1b}[?1049l").await?;
    tokio::time::timeout(LONG, terminal.child.wait()).await.context("top hangs")??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_user_gets_from_the_own_folder_to_a_finished_run_as_the_readme_says() -> Result<()> {
    for tool in ["python3", "curl", "script"] {
        if std::process::Command::new(tool).arg("--version").output().is_err() {
            ensure!(!is_ci(), "CI needs {tool}");
            say(&format!("skipped: {tool} is not installed"));
            return Ok(());
        }
    }
    scenario("the walk", Options::speed(10.0), async |dev| {
        let dev = &*dev;
        let person = Person { dev, folder: tempfile::tempdir()? };
        walk(&person).await?;
        let job = dev.job(JOB).await?;
        ensure!(job["counters"]["preemptions"] == 2 && job["outcome"] == "succeeded", "{job}");
        ensure!(node_of(&job).is_err(), "nothing is left");
        dev.submit(&counting(dev, LIVE, 1)?).await?;
        dev.step(LIVE, 1, 1).await?;
        top(&person).await.context("top")
    })
    .await
}
