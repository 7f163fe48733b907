//! Views with something in them: the output of each worker of a job that is over, and a fleet of every sort.

use anyhow::{Context as _, Result, ensure};
use fantoccini::Locator;
use rekindle_e2e::{Dev, LONG, until};
use reqwest::Method;
use serde_json::{Value, json};

use super::browser::Browser;
use crate::sweep::{installation, labels, make};

/// What the other parts of the test look at: a job that runs, one that sets up, an orphan and a stranger.
pub(super) struct Stage {
    orphan: String,
    stranger: String,
}

impl Stage {
    pub(super) async fn set(dev: &Dev) -> Result<Self> {
        // Neither ends by itself.
        let run = "echo it has begun; echo step=1 loss=2.5 >>$REKINDLE_PROGRESS_FILE; exec tail -f /dev/null";
        dev.submit(&json!({"id": "runs", "run": run, "tpu": {"accelerator": "v5litepod-4", "capacity": "spot"}}))
            .await?;
        let setup = "tail -f /dev/null";
        let tpu = json!({"accelerator": "v5litepod-4", "capacity": "on_demand"});
        let source = json!({"folder": "train", "branch": "main", "commit": "1a2b3c4", "dirty": true});
        dev.submit(&json!({
            "id": "sets-up", "run": ["true"], "setup": setup, "tpu": tpu, "notes": "a note", "tags": ["a-tag"],
            "source": source,
        }))
        .await?;
        let tpu = json!({"accelerator": "v5litepod-4"});
        dev.submit(&json!({"id": "fails", "run": "exit 3", "tpu": tpu, "recovery": {"preset": "pass"}})).await?;
        let ours = installation(dev).await?;
        let (orphan, stranger) = (format!("rk-{ours}-ghost-g1"), "notebook".to_owned());
        make(dev, &orphan, &labels(&ours, "ghost")).await?;
        make(dev, &stranger, &json!({"team": "vision"})).await?;
        dev.step("runs", 1, 1).await?;
        dev.phase("sets-up", "starting").await?;
        dev.phase("fails", "failed").await?;
        Ok(Self { orphan, stranger })
    }

    pub(super) async fn clear(&self, dev: &Dev) -> Result<()> {
        dev.command("runs", "cancel", &json!({})).await?;
        dev.phase("runs", "cancelled").await?;
        for name in [&self.orphan, &self.stranger] {
            // The sweep may have been there before.
            if let Some(node) = dev.cloud.node(&format!("/{name}")).await? {
                let path = node["name"].as_str().context("no name")?;
                dev.cloud.call(Method::DELETE, &format!("v2/{path}"), None).await?;
            }
        }
        Ok(())
    }
}

/// Every worker of every slice can be chosen, also when the job owns nothing any more.
pub(super) async fn logs_of_any_worker(dev: &Dev, page: &Browser) -> Result<()> {
    let run = "echo this is slice $REKINDLE_SLICE";
    let tpu = json!({"accelerator": "v5litepod-4", "slices": 2});
    dev.submit(&json!({"id": "pair", "run": run, "tpu": tpu})).await?;
    dev.phase("pair", "succeeded").await?;
    page.client.goto(&format!("{}/#/job/pair", dev.url)).await?;
    page.sees("#log", "the output of both", |text| {
        text.contains("[s0w0] this is slice 0") && text.contains("[s1w0] this is slice 1")
    })
    .await?;
    let workers = "return [...document.querySelectorAll('[aria-label=Worker] option')].map((of) => of.textContent)";
    let due = json!(["all workers", "slice 0, worker 0", "slice 1, worker 0"]);
    ensure!(page.script(workers).await? == due, "{}", page.script(workers).await?);
    page.client.find(Locator::Css("[aria-label=Worker]")).await?.select_by_label("slice 1, worker 0").await?;
    page.sees("#log", "the output of one", |text| text.trim() == "== attempt 1 ==\nthis is slice 1").await?;
    // What is shown may be its end alone.
    let whole = page.wait_for("return (await fetch(document.getElementById('whole').href)).text()").await?;
    ensure!(whole == "this is slice 1\n", "{whole}");
    Ok(())
}

/// What a job is at its end: what people wrote to it, and the files that it left.
pub(super) async fn notes_and_outputs(dev: &Dev, page: &Browser) -> Result<()> {
    let tpu = json!({"accelerator": "v5litepod-4"});
    let run = "mkdir -p results; echo 42 >'results/a b.txt'";
    dev.submit(&json!({"id": "leaves", "run": run, "outputs": ["results"], "notes": "the last try", "tpu": tpu}))
        .await?;
    dev.phase("leaves", "succeeded").await?;
    page.client.goto(&format!("{}/#/job/leaves", dev.url)).await?;
    page.sees("dl", "its note", |text| text.contains("Notes") && text.contains("the last try")).await?;
    // Every colour of the timeline has its word.
    let plain =
        "const drawn = [...document.querySelectorAll('#timeline rect')].map((rect) => rect.getAttribute('class'));
        return drawn.length > 2 && drawn.every((kind) => document.querySelector(`.legend .${kind}`))";
    page.sees(".legend", "the legend", |text| text.contains("waits, stops, is paused")).await?;
    ensure!(page.script(plain).await? == true, "a colour without a word");
    page.sees("#outputs", "its file", |text| text.contains("w0/results/a b.txt")).await?;
    let file = page.wait_for("return (await fetch(document.querySelector('#outputs a').href)).text()").await?;
    ensure!(file == "42\n", "{file}");
    Ok(())
}

/// A progress bar is seen before its line ends, each state in the place of the one before; words that look like ours are
/// the program's.
pub(super) async fn a_bar_of_the_program(dev: &Dev, page: &Browser) -> Result<()> {
    let go = dev.root().join("bar-goes-on");
    let run = "echo '== attempt 9 =='; printf '\\r 10%%\\r 20%%\\r 30%%'; until [ -e $GO ]; do sleep 0.05; done; printf '\\r100%%\\n'";
    let tpu = json!({"accelerator": "v5litepod-4"});
    dev.submit(&json!({"id": "bar", "run": run, "env": {"GO": go}, "tpu": tpu})).await?;
    page.client.goto(&format!("{}/#/job/bar", dev.url)).await?;
    page.sees("#log", "the newest state", |text| text.contains(" 20%")).await?;
    std::fs::write(&go, "")?;
    dev.phase("bar", "succeeded").await?;
    page.sees("#log", "the end in its place", |text| text.trim() == "== attempt 1 ==\n== attempt 9 ==\n100%").await?;
    let marks = page.script("return document.querySelectorAll('#log .mark').length").await?;
    ensure!(marks == 1, "{marks} headings, of one attempt");
    Ok(())
}

/// The table as text: for each row its cells by the title of their column.
const ROWS: &str = "
    const titles = [...document.querySelectorAll('#fleet th')].map((th) => th.textContent);
    return [...document.querySelectorAll('#fleet tbody tr')].map((row) =>
      Object.fromEntries([...row.cells].map((cell, at) => [titles[at], cell.textContent])));";

/// What each row is due to say; `Unused` by its cause alone, since its time goes on.
fn due(entry: &Value) -> Value {
    let words = |name: &str| entry[name].as_str().unwrap_or_default().replace('_', " ");
    let owner = match (entry["owner"].as_str(), &entry["generation"]) {
        (Some(owner @ ("ORPHAN" | "FOREIGN")), _) => owner.to_owned(),
        (owner, generation) => format!("{} g{generation}", owner.unwrap_or_default()),
    };
    // Before the program began it is waiting, as in the account.
    let cause = entry["idle"]["cause"].as_str().unwrap_or("-").replace('_', " ").replace("starting", "waiting");
    let usd = entry["usd_per_hour"].as_f64().map_or_else(|| "-".to_owned(), |usd| format!("{usd:.2}"));
    json!({
        "Name": entry["name"], "Job": owner, "Owner": entry["job_owner"].as_str().unwrap_or("-"), "State": words("state"), "Unused": cause, "TPU": words("accelerator"),
        "Zone": words("zone"), "Kind": words("kind"), "Bought": words("capacity"), "$/h": usd,
    })
}

/// Every TPU, whose it is, that it is idle, and what it costs.
pub(super) async fn fleet(dev: &Dev, page: &Browser, stage: &Stage) -> Result<()> {
    page.view("#/fleet", &stage.stranger).await?;
    let mut rows = Value::Null;
    // The states of TPUs go on while we look.
    until("the page shows the fleet that the server tells", LONG, async || {
        page.click("main .bar button").await?;
        let fleet = dev.get("/v1/fleet").await?;
        let entries = fleet["resources"].as_array().context("no resources")?;
        rows = page.script(ROWS).await?;
        for row in rows.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            let unused = row["Unused"].as_str().unwrap_or_default();
            let word = unused.rsplit_once(", ").or_else(|| unused.rsplit_once(' '));
            let word = word.map_or(unused, |(_, word)| word).to_owned();
            row.insert("Unused".to_owned(), word.into());
            row.remove("Age");
        }
        let due: Vec<Value> = entries.iter().map(due).collect();
        Ok((rows == Value::from(due)).then_some(()))
    })
    .await
    .with_context(|| format!("{rows:#}"))?;
    let row = |name: &str| rows.as_array().and_then(|all| all.iter().find(|row| row["Name"] == name)).cloned();
    let owner = |name: &str| row(name).map(|row| row["Job"].clone()).unwrap_or_default();
    ensure!(owner(&stage.orphan) == "ORPHAN" && owner(&stage.stranger) == "FOREIGN", "{rows:#}");
    let of = |id: &str| rows.as_array().into_iter().flatten().find(|row| row["Job"] == format!("{id} g1"));
    let sets_up = of("sets-up").context("no row of sets-up")?;
    ensure!(sets_up["Unused"] == "waiting" && sets_up["Bought"] == "on demand", "{sets_up}");
    let runs = of("runs").context("no row of runs")?;
    ensure!(runs["Owner"] == dev.job("runs").await?["owner"] && runs["Owner"] != "-", "{runs}");
    ensure!(runs["Unused"] == "-" && runs["Bought"] == "spot", "{runs}");
    page.sees("main p", "how many are not used", |text| {
        text.contains("4 in all") && text.contains("1 waiting, $") && text.contains("0 idle, $")
    })
    .await?;
    page.shot("fleet").await
}

/// An address that is none says so, with a way back; so does a path beside the page.
pub(super) async fn unknown_addresses(dev: &Dev, page: &Browser) -> Result<()> {
    for hash in ["#/nothing", "#/job", "#/job/%", "#/constructor"] {
        page.view(hash, "There is no such view").await?;
    }
    page.click("main a[href='#/']").await?;
    page.sees("#jobs tbody", "the jobs again", |text| text.contains("runs")).await?;
    // Of a job that is not there, only that is said.
    page.script("location.hash = '#/job/nosuch'").await?;
    page.sees("main .error", "that there is none", |text| text.starts_with("404: ")).await?;
    let seen =
        "return [...document.querySelectorAll('main h3, main button')].filter((of) => of.checkVisibility()).length";
    ensure!(page.script(seen).await? == 0, "sections of a job that is not there");
    page.client.goto(&format!("{}/nothing", dev.url)).await?;
    page.sees("main", "that there is no such page", |text| text.contains("/nothing is no page")).await?;
    page.click("main a").await?;
    page.sees("#jobs tbody", "the jobs again", |text| text.contains("runs")).await
}
