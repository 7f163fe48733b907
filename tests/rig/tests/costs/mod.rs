//! What things cost: calls are counted in whole runs of the real functions over memory parts, and priced by the published
//! prices. `infra/README.md` has the table that comes out, word for word.

use rekindle_core::catalog;
use rekindle_core::job::Phase;
use rekindle_core::settings::Settings;

use self::bill::{Bill, HOURS_A_MONTH, Kind};
use self::play::{End, News, Play};

mod bill;
mod entries;
mod play;
mod stream;

/// Zones of the catalogue at their spot price: the cheapest worker by its number of chips.
fn cheapest_worker(chips: u32) -> f64 {
    let all = catalog::accelerators().iter().filter(|a| a.chips / a.workers == chips);
    let prices = all.flat_map(|a| {
        let zones = catalog::zones_offering(&a.name);
        zones.into_iter().filter_map(|zone| catalog::price_in_zone(&a.name, zone, true)).collect::<Vec<f64>>()
    });
    prices.fold(f64::INFINITY, f64::min) * f64::from(chips)
}

/// An hour of heartbeats, some minutes after it runs.
async fn beats(mut play: Play) -> Bill {
    play.until(Phase::Running).await;
    play.minutes(10).await;
    let before = play.bill(&[Kind::Heartbeat]);
    play.minutes(60).await;
    play.bill(&[Kind::Heartbeat]).without(&before)
}

#[tokio::test]
async fn heartbeats_cost_at_most_a_thousandth_of_the_cheapest_worker() {
    let settings = Settings::default();
    // In the first hour of an attempt, in which each also keeps a point of progress.
    for (chips, accelerator) in [(1, "v5litepod-1"), (4, "v5litepod-4"), (8, "v5litepod-8")] {
        let price = cheapest_worker(chips);
        for play in [Play::begin(accelerator).await, Play::workspace(accelerator, false).await] {
            let hour = beats(play).await;
            let cost = hour.usd();
            assert!(hour.writes >= 3600 / settings.heartbeat_for(chips).as_secs(), "{hour:?}");
            let share = cost / price;
            assert!(share <= 0.001, "{chips} chips: {cost:.6} an hour of {price:.3}, {:.3} %", 100.0 * share);
        }
    }
}

#[tokio::test]
async fn without_a_bell_they_cost_what_the_page_says() {
    let share = async |play: Play, chips: u32| 100.0 * beats(play).await.usd() / cheapest_worker(chips);
    let job = [
        share(Play::deaf("v5litepod-1").await, 1).await,
        share(Play::deaf("v5litepod-4").await, 4).await,
        share(Play::deaf("v5litepod-8").await, 8).await,
    ];
    let space = share(Play::workspace("v5litepod-1", true).await, 1).await;
    // The first five minutes.
    let mut play = Play::workspace("v5litepod-1", false).await;
    play.until(Phase::Running).await;
    let before = play.bill(&[Kind::Heartbeat]);
    play.minutes(5).await;
    let awaited = play.bill(&[Kind::Heartbeat]).without(&before);
    assert!(awaited.requests >= 290, "each second: {awaited:?}");
    let order = format!("after each order, ${:.4} a worker and time", awaited.usd());
    let shares = format!(
        "{:.1} % of a worker's price with one chip, {:.1} % with four, {:.1} % with eight; an idle workspace {space:.1} % with one",
        job[0], job[1], job[2]
    );
    said(&[order, shares]);
}

/// A life: created, started, preempted twice, done.
async fn life(accelerator: &str) -> Play {
    let mut play = Play::begin(accelerator).await;
    for _ in 0..2 {
        play.until(Phase::Running).await;
        play.minutes(30).await;
        play.preempt().await;
    }
    play.until(Phase::Running).await;
    play.minutes(30).await;
    play.end(End::Success).await;
    play
}

/// Sentences of the page that the counts have to bear out.
fn said(sentences: &[String]) {
    // Where its lines end is nobody's business.
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = words(&readme());
    let missing: Vec<&String> = sentences.iter().filter(|sentence| !page.contains(&words(sentence))).collect();
    assert!(missing.is_empty(), "infra/README.md should say:\n{missing:#?}");
}

#[tokio::test]
async fn a_jobs_life_with_two_preemptions_costs_less_than_a_tenth_of_a_cent() {
    // Of one worker, and without the ticks, which serve all jobs: each further worker says hello and reports news of its own.
    let play = life("v5litepod-4").await;
    let bill = play.bill(&[Kind::Life]);
    assert!(bill.usd() < 0.001, "{:.6}: {bill:?}", bill.usd());
    assert!(bill.reads > 20 && bill.tpu_calls >= 9, "{bill:?}");
    let four = life("v5litepod-16").await.bill(&[Kind::Life]);
    assert!(four.usd_counted() < 0.001, "{:.6}: {four:?}", four.usd_counted());
    let (four, counted) = (four.usd(), four.usd_counted());
    let ticks = 1.75 * busy_ticks().await.usd();
    let News { entries, hints, looks } = play.news();
    said(&[
        format!("in a life with two preemptions {entries} come, {hints} become hints, and {looks} of those a look"),
        format!(
            "With four workers that life costs ${counted:.4}, and ${four:.4} with the time that is assumed for calls"
        ),
        format!(
            "A job that lives all alone for the hour and three quarters of that life has ${ticks:.4} of ticks beside it"
        ),
        format!("which is {:.0} % of a job's life here", 100.0 * bill.tpu_share()),
    ]);
}

#[tokio::test]
async fn an_upload_of_output_costs_what_the_page_says() {
    let mut play = Play::begin("v5litepod-4").await;
    play.until(Phase::Running).await;
    play.upload(0).await;
    let bill = play.upload(1).await;
    let Bill { reads, writes, requests, lists, puts, .. } = bill;
    assert_eq!((requests, reads, lists, puts, writes), (1, 1, 1, 1, 0), "{bill:?}");
    let flush = include_str!("../../../../functions/agent/src/config.rs");
    let flush = flush.split_once(r#""REKINDLE_LOG_FLUSH_MS", default_value_t = "#).expect("how often at most").1;
    let ms: u64 = flush.split(',').next().unwrap().parse().unwrap();
    said(&[
        format!("each upload is a request, a read of the job, a list and a write of an object, ${:.6}", bill.usd()),
        format!("while a program prints, at most one for each stream each {} s", ms / 1000),
        format!(
            "a held stream of output (${:.2} an hour while `rekindle logs -f` follows a job, and ${:.3} for each stream that prints",
            3600.0 * bill::SECOND,
            3600.0 / HELD_LOOK_SECS * bill::OBJECT_CALL
        ),
    ]);
}

#[tokio::test]
async fn handlers_answer_within_the_time_that_is_billed_at_least() {
    let mut times = life("v5litepod-4").await.times();
    times.sort();
    let median = times[times.len() / 2];
    // The median alone: a machine that does other things beside may hold up any single one.
    assert!(median.as_secs_f64() < bill::QUANTUM / 2.0, "{median:?} of {}", times.len());
    said(&[format!("the median of a life's calls is below {} ms", bill::QUANTUM * 500.0)]);
}

/// The table's own number, which the tests of `infra/` compare with the Terraform files.
fn references(readme: &str) -> u64 {
    let begin = "| alert conditions on metrics | ";
    let row = readme.lines().find_map(|line| line.strip_prefix(begin)).expect("a row for conditions");
    row.split(',').next().unwrap().parse().unwrap()
}

/// The image as it was measured, in GB: the table further down.
fn image_gb(readme: &str) -> f64 {
    let row = readme.lines().find_map(|line| line.strip_prefix("| image | ")).expect("a row for the image");
    row.split(" MB").next().unwrap().parse::<f64>().unwrap() / 1000.0
}

/// How often each instance is probed, in seconds: as Terraform sets it.
fn probe_secs() -> u64 {
    let service = include_str!("../../../../infra/modules/service/main.tf");
    let probe = service.split_once("liveness_probe {").expect("a probe").1;
    let period = probe.split_once("period_seconds").expect("a period").1;
    period.lines().next().unwrap().trim_matches([' ', '=']).parse().unwrap()
}

#[tokio::test]
async fn an_idle_month_costs_less_than_a_dollar() {
    let month = play::idle_hour().await.times(HOURS_A_MONTH);
    let readme = readme();
    let (rows, standing) = bill::standing(&month, references(&readme), image_gb(&readme), probe_secs());
    let calls = month.usd() + bill::SCHEDULER;
    let [now, later] = standing.map(|more| calls + more);
    assert!(now < 1.0 && later < 1.0, "{now:.3}, and {later:.3} from September 2027 on: {month:?}");
    assert!(month.requests > 40_000 && month.tpu_calls > 4_000, "the tick runs each minute, and looks now and then");
    // Of cold starts one an hour is in it: thrice as many leave it below.
    assert!(later + 2.0 * HOURS_A_MONTH as f64 * bill::COLD_START < 1.0, "{later:.3}");
    let each = format!("${:.5} each, one an hour", bill::COLD_START);
    let period = format!("each {} minutes whether it answers", probe_secs() / 60);
    assert!(readme.contains(&each) && readme.contains(&period), "infra/README.md should say: {each}; {period}");
    let first = format!("| calls, as above, and the tick's job | | {calls:.2} | {calls:.2} |");
    let last = format!("| **an idle month, all of it** | | **{now:.2}** | **{later:.2}** |");
    let rows = [vec![first], rows, vec![last]].concat();
    let missing: Vec<&String> = rows.iter().filter(|row| !readme.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "infra/README.md should have these rows:\n{}", rows.join("\n"));
}

#[tokio::test]
async fn a_day_with_one_page_open_costs_less_than_ten_cents() {
    let day = play::page_hour().await.times(24);
    assert!(day.usd() < 0.10, "{:.3}: {day:?}", day.usd());
    assert!(day.requests > 1000, "it does look for news");
}

/// A day in which a page shows a job that runs.
async fn job_view_day(accelerator: &str) -> Bill {
    let mut play = Play::begin(accelerator).await;
    play.until(Phase::Running).await;
    play.minutes(30).await;
    play.job_view_hour().await.times(24)
}

#[tokio::test]
async fn so_does_a_day_with_the_page_of_a_job_that_runs_and_prints() {
    let mut told = Vec::new();
    let (mut in_two_regions, mut listing) = (0.0, 0.0);
    for (workers, accelerator) in [(1, "v5litepod-4"), (4, "v5litepod-16")] {
        let day = job_view_day(accelerator).await;
        assert!(day.usd() < 0.10, "{workers}: {:.3}: {day:?}", day.usd());
        assert!(day.requests > 10_000 && day.gets >= 2 * workers * 60 * 24, "both streams and the looks: {day:?}");
        told.push(format!("{} times a day for {workers}", day.lists));
        // Beyond the least time of a look, which takes one for each stream.
        let looks = day.lists / (2 * workers);
        listing = (day.lists as f64 * 0.05 - looks as f64 * bill::QUANTUM) * bill::SECOND;
        assert!(day.usd() + listing < 0.10, "{listing:.3} for the time of lists: {day:?}");
        in_two_regions = day.usd() + day.lists as f64 * bill::OBJECT_CALL;
    }
    let [one, four] = told.try_into().unwrap();
    let rarest = 24.0 * 3600.0 / 120.0;
    said(&[
        format!("lists its output's objects, too: {one} worker, {four}."),
        format!("each further one ${:.4} a day", rarest * bill::OBJECT_CALL),
        format!("a chunk that is read costs ${:.7}", bill::OBJECT_READ),
        format!("which follow each other, ${listing:.2} a day at 50 ms each"),
        format!("four workers that print on both streams is ${in_two_regions:.2} there"),
    ]);
}

/// How often a held stream of output looks in the cloud.
const HELD_LOOK_SECS: f64 = 2.0;

fn readme() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../infra/README.md");
    std::fs::read_to_string(path).unwrap()
}

/// What an hour of ticks costs more while a job runs than while none lives: they serve all jobs together.
async fn busy_ticks() -> Bill {
    let mut play = Play::begin("v5litepod-4").await;
    play.until(Phase::Running).await;
    play.minutes(5).await;
    let before = play.bill(&[Kind::Tick]);
    play.minutes(60).await;
    play.bill(&[Kind::Tick]).without(&before).without(&play::idle_hour().await)
}

/// One row of the table.
fn row(what: &str, bill: &Bill, more: f64) -> String {
    let Bill { reads, writes, tpu_calls, messages, tasks, requests, .. } = bill;
    let seconds = bill.seconds();
    let usd = bill.usd() + more;
    let digits = if usd < 0.01 { 6 } else { 2 };
    format!(
        "| {what} | {reads} | {writes} | {tpu_calls} | {messages} | {tasks} | {requests} | {seconds:.1} | {usd:.digits$} |"
    )
}

#[tokio::test]
async fn the_table_in_the_readme_is_what_was_counted() {
    let mut rows = Vec::new();
    for (workers, accelerator) in [("1 worker", "v5litepod-4"), ("4 workers", "v5litepod-16")] {
        let mut play = Play::begin(accelerator).await;
        play.until(Phase::Running).await;
        play.minutes(30).await;
        play.end(End::Success).await;
        let calm = play.bill(&[Kind::Life]);
        rows.push(row(&format!("a job without trouble, {workers}"), &calm, 0.0));
        let mut play = Play::begin(accelerator).await;
        play.until(Phase::Running).await;
        play.minutes(30).await;
        let before = play.bill(&[Kind::Life]);
        play.preempt().await;
        play.until(Phase::Running).await;
        play.minutes(1).await;
        let preemption = play.bill(&[Kind::Life]).without(&before);
        rows.push(row(&format!("each preemption, {workers}"), &preemption, 0.0));
        let mut play = Play::begin(accelerator).await;
        play.until(Phase::Running).await;
        play.minutes(5).await;
        let hour = play.minutes(60).await;
        rows.push(row(&format!("an hour of running, {workers}"), &hour, 0.0));
        let whole = life(accelerator).await.bill(&[Kind::Life]);
        rows.push(row(&format!("a life with two preemptions, {workers}"), &whole, 0.0));
    }
    // One chip: the cheapest worker, and so the dearest calls beside it.
    let accelerator = "v5litepod-1";
    for (what, mut play) in [
        ("an hour of running without a bell, 1 worker", Play::deaf(accelerator).await),
        ("an hour of a workspace, idle, 1 worker", Play::workspace(accelerator, false).await),
        ("an hour of a workspace without a bell, idle, 1 worker", Play::workspace(accelerator, true).await),
    ] {
        play.until(Phase::Running).await;
        play.minutes(10).await;
        rows.push(row(what, &play.minutes(60).await, 0.0));
    }
    let ticks = busy_ticks().await;
    rows.push(row("the ticks of an hour, beyond idle ones, while any job lives", &ticks, 0.0));
    rows.push(row("an idle month", &play::idle_hour().await.times(HOURS_A_MONTH), bill::SCHEDULER));
    rows.push(row("a day with one page open", &play::page_hour().await.times(24), 0.0));
    for (workers, accelerator) in [("1 worker", "v5litepod-4"), ("4 workers", "v5litepod-16")] {
        let what = format!("a day with the page of a job that prints, {workers}");
        rows.push(row(&what, &job_view_day(accelerator).await, 0.0));
    }
    let readme = readme();
    let missing: Vec<&String> = rows.iter().filter(|row| !readme.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "infra/README.md should have these rows:\n{}", rows.join("\n"));
}
