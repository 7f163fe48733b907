//! `dev`: everything on this machine, left running. State survives a restart, and so do the emulated machines.

mod cloud;
mod former;
pub(crate) mod log;
pub(crate) mod places;
mod routes;
pub(crate) mod signals;
pub(crate) mod stack;
mod world;

use std::process::ExitCode;

use owo_colors::OwoColorize as _;
use rekindle_core::settings::Settings;
use rekindle_tpu_emulator::{AWAY_LIMIT, Scenario, Vms};

use crate::answers;
use crate::args::Dev;
use crate::exit::Exit;
use crate::fault::{Fault, Result};
use crate::human;
use crate::printer::Printer;
use places::Places;
use stack::{Options, Stack};

/// Runs everything until Ctrl-C or SIGTERM.
pub(crate) fn run(options: &Dev, printer: Printer) -> Result<ExitCode> {
    let scenario = options.scenario.as_deref().map(Scenario::read).transpose().map_err(|error| {
        let next = "name another file, or leave out --scenario: then every zone has capacity";
        Fault::input("the scenario cannot be used").caused_by(&error).next(next)
    })?;
    let root = match &options.state {
        Some(root) => root.clone(),
        None => Places::usual()?,
    };
    let places = Places::open(&root)?;
    log::to_stderr();
    runtime()?.block_on(async {
        let mut signals = signals::Signals::listen()?;
        let start = Stack::start(Options {
            places: places.clone(),
            port: options.port,
            tpu_port: options.tpu_port,
            scenario,
            seed: options.seed,
            speed: options.speed,
            settings: Settings::local().scaled(options.speed),
            away_limit: AWAY_LIMIT,
            firestore: options.firestore.clone(),
            pubsub: options.pubsub.clone(),
            log_backlog: options.log_backlog,
        });
        let stack = tokio::select! {
            stack = start => stack?,
            () = signals.next() => return Ok(Exit::Interrupted.into()),
        };
        tell(&stack, &places, printer)?;
        if let Some(warning) = unreached(&stack.unreached) {
            printer.warn(&warning);
        }
        signals.next().await;
        printer.talk(&stopping(stack.machines()));
        tokio::select! {
            () = stack.stop(Vms::Leave) => {}
            () = signals.next() => printer.warn("not everything was stopped in order; the next start repairs that"),
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What becomes of what runs there.
fn stopping(machines: usize) -> String {
    if machines == 0 {
        return "stopping".to_owned();
    }
    let machines = human::count(machines as u64, "emulated machine");
    let minutes = AWAY_LIMIT.as_secs() / 60;
    format!(
        "stopping; {machines} of running jobs may go on for {minutes} minutes, until the next `rekindle dev` finds them again"
    )
}

/// Of workers that call where another program answers now.
fn unreached(ports: &[u16]) -> Option<String> {
    let named = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
    let (which, are, they) = match ports {
        [] => return None,
        [_] => ("port", "is", "it is"),
        _ => ("ports", "are", "they are"),
    };
    Some(format!(
        "{which} {named}, where workers of running jobs call since an earlier start, {are} taken by another program, or named \
         with --tpu-port: free it, or their attempts begin anew on other slices; once {they} free they are heard again"
    ))
}

/// The runtime of `dev` and `demo`.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| Fault::unexpected("cannot start").caused_by(&error))
}

fn tell(stack: &Stack, places: &Places, printer: Printer) -> Result<()> {
    let (url, tpu_url, state) = (&stack.url, &stack.tpu_url, places.root().display().to_string());
    if printer.is_json {
        return printer.json_line(&answers::Places { url, tpu_url, state: &state });
    }
    printer.talk(&format!("{}  {url}", "functions".bold()));
    printer.talk(&format!("{}    {tpu_url}", "TPU API".bold()));
    printer.talk(&format!("{}      {state}", "state".bold()));
    printer.talk("");
    printer.talk("In another terminal:");
    let server = if *url == crate::config::DEFAULT_SERVER { String::new() } else { format!(" --server {url}") };
    printer.talk(&format!("  rekindle{server} run --tpu v5litepod-8 -- bash -c 'echo hello from $REKINDLE_WORKER'"));
    printer.talk(&format!("  rekindle{server} ps --watch"));
    printer.talk(&format!("  CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU={tpu_url} CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true \\"));
    printer.talk(&format!("    gcloud compute tpus tpu-vm list --project {} --zone us-central1-a", world::PROJECT));
    printer.talk("");
    printer.talk("Ctrl-C stops it.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_of_an_earlier_start_that_is_taken_is_named() {
        assert_eq!(unreached(&[]), None);
        assert!(
            unreached(&[9001]).is_some_and(|told| told.starts_with("port 9001, where") && told.contains(" is taken"))
        );
        assert!(unreached(&[9001, 9002]).is_some_and(|told| told.starts_with("ports 9001, 9002, where")));
    }

    #[test]
    fn who_ends_it_hears_of_machines_only_where_there_are_some() {
        assert_eq!(stopping(0), "stopping");
        assert!(stopping(1).starts_with("stopping; 1 emulated machine of") && stopping(1).contains(" for 10 minutes"));
    }
}
