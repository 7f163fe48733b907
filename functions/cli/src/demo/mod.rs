//! `demo`: a real training job in the local mode that loses its TPU and its connections, and ends with the bits of an
//! undisturbed run.
//!
//! Nothing but the faults is special here: the stack is that of `dev`, the job is submitted and watched over HTTP, the
//! faults go through the emulator's admin path, and what the demonstration claims in the end is looked at, not assumed.

mod account;
mod cloud;
mod faults;
mod left;
pub(crate) mod plan;
mod timeline;
mod watch;

use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rekindle_core::settings::Settings;
use rekindle_tpu_emulator::{Scenario, Vms};

use crate::api::Api;
use crate::args::Demo;
use crate::config::{Origin, Server};
use crate::dev::places::Places;
use crate::dev::signals::Signals;
use crate::dev::stack::{Options, Stack};
use crate::dev::{log, runtime};
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::printer::Printer;
use account::Account;
use plan::Plan;
use timeline::Timeline;

/// Waits of manager and emulator are divided by this. The training program is not: it takes the time it takes.
const SPEED: f64 = 10.0;
/// What a slice of the real service needs at the very least; divided by the speed as all waits.
const SCENARIO: &str = "defaults: {create_latency: 20s, delete_latency: 10s}";

/// A demonstration that is killed takes its machines with it so soon after.
const AWAY_LIMIT: Duration = Duration::from_secs(15);

/// An exit is explained by a loss that is seen so soon after it. The program here lives seconds, not hours: with the
/// usual window, divided, a broken connection would be put down to the preemption that follows seconds later.
const SETTLE: Duration = Duration::from_millis(1500);

/// Runs the demonstration; 0 only if everything it claims was seen.
pub(crate) fn run(options: &Demo, printer: Printer) -> Result<ExitCode> {
    let plan = Plan::new(options)?;
    let runtime = runtime()?;
    // Before anything is made that would have to be removed.
    let mut signals = runtime.block_on(async { Signals::listen() })?;
    // It holds secrets, and what is in it is run.
    let private = std::fs::Permissions::from_mode(0o700);
    let folder = tempfile::Builder::new().prefix("rekindle-demo-").permissions(private).tempdir();
    let folder = folder.map_err(|error| {
        Fault::input("cannot make a folder for the state")
            .caused_by(&error)
            .next("set TMPDIR to a folder that can be written to")
    })?;
    let places = Places::open(folder.path())?;
    log::to_file(&places.log())?;
    let seen = runtime.block_on(on_a_stack(&plan, &places, printer, &mut signals));
    drop(runtime);
    let mut account = match seen {
        Ok(Some(account)) => account,
        Ok(None) => {
            printer.talk("interrupted; every process was ended");
            return Ok(Exit::Interrupted.into());
        }
        Err(fault) => {
            keep(folder, &places, printer, true);
            return Err(fault);
        }
    };
    account.processes_left = account.processes_left.max(left::processes(places.root()).len());
    let missed = account.missed(&plan);
    account.show(&plan, printer)?;
    for miss in &missed {
        printer.talk(&format!("not as claimed: {miss}"));
    }
    keep(folder, &places, printer, options.keep || !missed.is_empty());
    Ok(if missed.is_empty() { Exit::Done } else { Exit::Fault }.into())
}

/// Starts everything, demonstrates, and ends every process, whatever came of it. `None`: a signal cut it short.
async fn on_a_stack(plan: &Plan, places: &Places, printer: Printer, signals: &mut Signals) -> Result<Option<Account>> {
    let begin = Instant::now();
    let start = Stack::start(Options {
        places: places.clone(),
        port: 0,
        tpu_port: 0,
        scenario: Some(scenario()?),
        seed: plan.seed,
        speed: SPEED,
        settings: Settings { settle: SETTLE, ..Settings::default().scaled(SPEED) },
        away_limit: AWAY_LIMIT,
        firestore: None,
        pubsub: None,
        log_backlog: None,
    });
    // Not to be cut: what is started here is stopped below.
    let stack = start.await?;
    let timeline = Timeline::new(printer, begin, plan.steps);
    let seen = tokio::select! {
        seen = demonstrate(plan, &stack, places, &timeline) => seen.map(Some),
        () = signals.next() => Ok(None),
    };
    timeline.close();
    stack.stop(Vms::End).await;
    seen
}

fn scenario() -> Result<Scenario> {
    Scenario::parse(SCENARIO).map_err(|error| Fault::unexpected("the scenario is wrong").caused_by(&error))
}

/// Removes the state folder, or keeps what a person needs to find out what went wrong.
fn keep(folder: tempfile::TempDir, places: &Places, printer: Printer, is_kept: bool) {
    if is_kept {
        printer.talk(&format!("the state is kept in {} (log: {})", folder.keep().display(), places.log().display()));
    } else if let Err(error) = folder.close() {
        printer.warn(&format!("the state folder could not be removed: {error}"));
    }
}

/// Submits, disturbs, watches to the end, and looks at what is left.
async fn demonstrate(plan: &Plan, stack: &Stack, places: &Places, timeline: &Timeline) -> Result<Account> {
    let server = Server { url: stack.url.clone(), origin: Origin::Given, token_command: None };
    let api = Api::new(server, None)?;
    let cloud = cloud::Cloud::new(&stack.tpu_url)?;
    timeline.say(&plan.describe());
    // The undisturbed run is computed meanwhile: the same arithmetic, without processes, faults or waits.
    let (seed, workers, steps) = (plan.seed, plan.workers, plan.steps);
    let undisturbed = tokio::task::spawn_blocking(move || rekindle_trainer::run_reference(seed, workers, steps));
    let mut account = watch::to_the_end(plan, &api, &cloud, stack, timeline).await?;
    let undisturbed = undisturbed.await;
    account.undisturbed_digest =
        undisturbed.map_err(|error| Fault::unexpected("the undisturbed run failed").caused_by(&error))?;
    account.digest = Plan::final_digest(&places.bucket());
    account.resources_left = cloud.resources().await?;
    account.processes_left = left::until_none(places.root()).await.len();
    Ok(account)
}
