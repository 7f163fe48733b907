//! What a program writes is what people read, byte for byte.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use rekindle_e2e::{Options, scenario};
use serde_json::json;

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
