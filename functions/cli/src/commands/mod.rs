//! One file for each command that asks a server, and what they share.

mod account;
mod catalog;
mod classify;
mod control;
mod doctor;
mod exec;
mod explain;
mod fields;
mod fleet;
mod freeze;
mod history;
mod labels;
mod leave;
mod letters;
mod list;
mod live;
mod logs;
mod nearest;
mod open;
mod outputs;
mod pages;
mod ps;
mod run;
mod secret;
mod settings;
mod show;
mod since;
mod ssh;
mod sync;
mod timeline;
mod top;
mod version;
mod wait;
pub(crate) mod workspace;

use std::path::PathBuf;
use std::process::ExitCode;

use crate::api::Api;
use crate::args::{Cli, Client, Command, Global, Ps, Restart};
use crate::config;
use crate::fault::{Fault, Result};
use crate::printer::Printer;

pub(crate) use run::arguments::quoted;

/// What a command works with.
pub(crate) struct Context {
    pub(crate) printer: Printer,
    pub(crate) api: Api,
    /// The configuration that was named, if one was.
    pub(crate) config: Option<PathBuf>,
}

impl Context {
    /// A context whose server is the one that the options and the configuration name.
    pub(crate) fn new(global: &Global, printer: Printer) -> Result<Self> {
        let server = config::server(global.server.as_deref(), global.config.as_deref())?;
        let api = Api::new(server, global.token.clone().filter(|token| !token.is_empty()))?;
        Ok(Self { printer, api, config: global.config.clone() })
    }
}

/// Runs the command; what it answers is the exit code.
pub(crate) fn run(cli: Cli, printer: Printer) -> Result<ExitCode> {
    match cli.command {
        Command::Dev(options) => crate::dev::run(&options, printer),
        Command::Demo(options) => crate::demo::run(&options, printer),
        Command::Classify(options) => classify::run(&options, printer),
        Command::Fields(options) => fields::run(&options, printer),
        Command::Config => settings::run(&cli.global, printer),
        Command::Completion(options) => pages::completion(&options, printer),
        Command::Man(options) => pages::man(&options, printer),
        Command::Client(client) => {
            let context = Context::new(&cli.global, printer)?;
            // One thread: a client waits for one answer at a time, and starts at once.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.map_err(|error| Fault::unexpected("cannot start").caused_by(&error))?;
            runtime.block_on(async {
                match ask(context, client).await {
                    Ok(code) => Ok(code),
                    Err(fault) if fault.lacks().is_none() => Err(fault),
                    Err(fault) => Err(match Context::new(&cli.global, printer) {
                        Ok(context) => nearest::told(&context, fault).await,
                        Err(_) => fault,
                    }),
                }
            })
        }
    }
}

async fn ask(context: Context, command: Client) -> Result<ExitCode> {
    match command {
        Client::Run(options) => return run::run(&context, &options).await,
        Client::Wait(options) => return wait::run(&context, &options).await,
        Client::Exec(options) => return exec::run(&context, &options).await,
        Client::Ssh(options) => return ssh::run(&context, &options).await,
        Client::Doctor(options) => return doctor::run(&context, &options).await,
        Client::Ps(options) => ps::run(&context, &options).await?,
        Client::Monitor(options) => ps::run(&context, &Ps { watch: true, ..options }).await?,
        Client::Show(options) => show::run(&context, &options).await?,
        Client::Explain(options) => explain::run(&context, &options.job).await?,
        Client::History(options) => history::run(&context, &options).await?,
        Client::Logs(options) => logs::run(&context, &options).await?,
        Client::Cancel(options) => control::run(&context, &options, "cancel").await?,
        Client::Pause(options) => control::run(&context, &options, "pause").await?,
        Client::Up(options) => workspace::up(&context, *options).await?,
        Client::Status(options) => workspace::status(&context, &options).await?,
        Client::Delete(options) => workspace::delete(&context, &options).await?,
        Client::Sync(options) => sync::run(&context, &options).await?,
        Client::Unpause(options) => control::run(&context, &options, "unpause").await?,
        Client::Wake(options) => control::run(&context, &options, "wake").await?,
        Client::Restart(options) => control::restart(&context, &options).await?,
        Client::Rerun(options) => {
            control::restart(&context, &Restart { from_scratch: true, ..options }).await?;
        }
        Client::Fleet => fleet::run(&context).await?,
        Client::Account(options) => account::run(&context, &options).await?,
        Client::Since(options) => since::run(&context, &options).await?,
        Client::Top(options) => top::run(&context, options).await?,
        Client::Catalog(options) => catalog::run(&context, &options).await?,
        Client::Outputs(options) => outputs::run(&context, &options).await?,
        Client::Open(options) => open::run(context, &options).await?,
        Client::Freeze => freeze::run(&context, "freeze").await?,
        Client::Thaw => freeze::run(&context, "thaw").await?,
        Client::Version => version::run(&context).await?,
        Client::Tag(options) => labels::tag(&context, options).await?,
        Client::Note(options) => labels::note(&context, options).await?,
        Client::DeadLetters(options) => letters::run(&context, &options).await?,
        Client::WebhookSecret(options) => secret::run(&context, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder that the command is given in.
fn current_folder() -> Result<PathBuf> {
    std::env::current_dir().map_err(|error| {
        let fault = Fault::unexpected("the current folder is not there any more").caused_by(&error);
        fault.next("go to a folder that is there")
    })
}

/// The path of a job, or of something below it.
pub(crate) fn job_path(job: &str, below: &str) -> Result<String> {
    Ok(format!("/v1/jobs/{}{below}", crate::api::segment(job)?))
}
