//! The programs that the README shows, as they stand there: they save when their TPU will be taken away, and go on.

use anyhow::{Context as _, Result, ensure};
use rekindle_e2e::{Dev, all, part};
use rekindle_jax::ENVIRONMENT;
use serde_json::{Map, Value, json};

use super::with_jax;

/// Without an end in the first attempt, fifty steps in the second.
const STEPS: &str = r#"
saved=${REKINDLE_CHECKPOINT_DIR#file://}; steps=1000000000; cd "$PROGRAMS"
"#;

const PLAIN: &str = r#"
if [ "$REKINDLE_RESUME" = 1 ]; then
  [[ "$(cat "$saved/$REKINDLE_SLICE-$REKINDLE_WORKER.json")" =~ [0-9]+ ]] && steps=$((BASH_REMATCH[0] + 50))
fi
exec "$PYTHON" plain.py $steps 0.01
"#;

const JAX_ORBAX: &str = r#"
[ "$REKINDLE_RESUME" = 1 ] && steps=$(($(ls "$saved" | sort -n | tail -n 1) + 50))
exec "$PYTHON" jax_orbax.py $steps
"#;

/// Takes the TPU of a program away once it has done some steps, and follows it to its end.
async fn saves_and_resumes(dev: &Dev, spec: &Value) -> Result<()> {
    let id = spec["id"].as_str().context("no id")?;
    dev.submit(spec).await?;
    let job = dev.step(id, 1, 120).await?;
    let node = job["resources"][0]["name"].as_str().context("no node")?.to_owned();
    dev.cloud.preempt(&node, "30s", "PREEMPTED").await?;
    let job = dev.phase(id, "succeeded").await?;
    let counters = &job["counters"];
    ensure!(job["attempt"] == 2 && counters["preemptions"] == 1 && counters["resumes"] == 1, "{job:#}");
    // What it saved on notice is the last step that it had done.
    ensure!(counters["steps_repeated"] == 0, "{counters}");
    let said = String::from_utf8(dev.bytes(&format!("/v1/jobs/{id}/logs?attempt=2&stream=stdout")).await?)?;
    ensure!(said.contains("done at"), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_programs_of_the_readme_save_on_notice_and_resume() -> Result<()> {
    with_jax("the README's programs", async |dev, python| {
        let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../programs");
        let mut env = Map::from_iter(ENVIRONMENT.map(|(name, value)| (name.to_owned(), json!(value))));
        env.extend([("PYTHON".to_owned(), json!(python)), ("PROGRAMS".to_owned(), json!(programs))]);
        let spec = |id: &str, run: &str, accelerator: &str| {
            let tpu = json!({"accelerator": accelerator, "capacity": "spot"});
            json!({"id": id, "run": format!("{STEPS}{run}"), "env": env, "tpu": tpu})
        };
        let (plain, jax) = (spec("plain", PLAIN, "v5litepod-8"), spec("jax-orbax", JAX_ORBAX, "v5litepod-16"));
        let dev: &Dev = dev;
        all(vec![
            part("plain Python", saves_and_resumes(dev, &plain)),
            part("JAX with Orbax", saves_and_resumes(dev, &jax)),
        ])
        .await
    })
    .await
}
