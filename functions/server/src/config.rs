//! Configuration of the server: flags, each with its environment variable.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Parser;

use rekindle_core::access::{Access, PUBSUB, Right};
use rekindle_core::placement;
use rekindle_core::settings::{CapacityEntry, Deployment, Limits, WorkerNetwork};
use rekindle_core::spec::{LABEL_IS, is_label};
use rekindle_fn_jobs::Name;
use rekindle_gcp::oidc::{Mode, OidcSettings};

use crate::Role;

/// Rekindle's functions, for Cloud Run.
#[derive(Debug, Clone, Parser)]
#[command(name = "rekindle-server", version, about)]
pub struct Config {
    /// Which functions to serve.
    #[arg(value_enum)]
    pub role: Role,

    /// Port to listen on.
    #[arg(long, env = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// Address to listen on: 0.0.0.0, but 127.0.0.1 when callers are not checked.
    #[arg(long, env = "REKINDLE_HOST")]
    pub host: Option<std::net::IpAddr>,

    /// Project id.
    #[arg(long, env = "GOOGLE_CLOUD_PROJECT", value_parser = word)]
    pub project: String,

    /// Firestore database.
    #[arg(long, env = "REKINDLE_DATABASE", default_value = "(default)")]
    pub database: String,

    /// Bucket for checkpoints, logs and bundles, as gs://NAME.
    #[arg(long, env = "REKINDLE_BUCKET", value_parser = bucket)]
    pub bucket: String,

    /// Regions of that bucket.
    #[arg(long, env = "REKINDLE_BUCKET_REGIONS", value_delimiter = ',', value_parser = word)]
    pub bucket_regions: Vec<String>,

    /// File with the capacity list: YAML or JSON, a list of {accelerator, zone, kind, max_chips, usd_per_chip_hour}.
    #[arg(long, env = "REKINDLE_CAPACITY_FILE", required_unless_present = "capacity")]
    pub capacity_file: Option<PathBuf>,

    /// The capacity list itself, instead of a file.
    #[arg(long, env = "REKINDLE_CAPACITY", conflicts_with = "capacity_file", allow_hyphen_values = true)]
    pub capacity: Option<String>,

    /// Most chips of all jobs at once.
    #[arg(long, env = "REKINDLE_MAX_CHIPS")]
    pub max_chips: Option<u32>,

    /// Most US dollars a day of all jobs.
    #[arg(long, env = "REKINDLE_MAX_USD_PER_DAY")]
    pub max_usd_per_day: Option<f64>,

    /// Limits of single owners: YAML or JSON, a map of owner to {max_chips, max_usd_per_day}.
    #[arg(long, env = "REKINDLE_OWNER_LIMITS", value_parser = owner_limits)]
    pub owner_limits: Option<OwnerLimits>,

    /// Who may see, submit for and stop whose jobs, and what jobs may borrow: YAML or JSON, {rules: [{who, whose, may}],
    /// borrow: {OWNER: {service_accounts, secrets, capacity}}}. Absent: everyone their own jobs, and nothing beside the
    /// workers' default account and the capacity list.
    #[arg(long, env = "REKINDLE_POLICY", value_parser = policy)]
    pub policy: Option<Access>,

    /// Address at which workers reach the service `api`.
    #[arg(long, env = "REKINDLE_API_URL", value_parser = address)]
    pub api_url: String,

    /// Address of the service `reconcile`, for wake-ups.
    #[arg(long, env = "REKINDLE_RECONCILE_URL", value_parser = address)]
    pub reconcile_url: String,

    /// Default service account of the workers.
    #[arg(long, env = "REKINDLE_WORKER_SERVICE_ACCOUNT", value_parser = own_account)]
    pub worker_service_account: Option<String>,

    /// Network of the workers of jobs that name none; absent: `default`, with external addresses.
    #[arg(long, env = "REKINDLE_WORKER_NETWORK", value_parser = word)]
    pub worker_network: Option<String>,

    /// Subnetwork of that network, of the same name in each region.
    #[arg(long, env = "REKINDLE_WORKER_SUBNETWORK", requires = "worker_network")]
    pub worker_subnetwork: Option<String>,

    /// Address of the agent, for workers: gs://… or https://….
    #[arg(long, env = "REKINDLE_AGENT_URL", value_parser = agent)]
    pub agent_url: Option<String>,

    /// sha256 of the agent.
    #[arg(long, env = "REKINDLE_AGENT_SHA256", requires = "agent_url", value_parser = sha256)]
    pub agent_sha256: Option<String>,

    /// UDP port of the workers' bells, where this service reaches the workers' network; absent: agents ask every 4 s.
    #[arg(long, env = "REKINDLE_BELL_PORT")]
    pub bell_port: Option<u16>,

    /// What job messages may ask for at most: submit, cancel, pause, unpause, restart, wake [default: submit, and what the policy grants
    /// `pubsub`]
    #[arg(long, env = "REKINDLE_MESSAGES_MAY", value_delimiter = ',', value_parser = name)]
    pub messages_may: Vec<Name>,

    /// How callers are checked: verify, platform (Cloud Run has checked the signature) or none (loopback only).
    #[arg(long, env = "REKINDLE_AUTH", value_parser = mode)]
    pub auth: Mode,

    /// Audiences that tokens may have: the root addresses of the services. One `*` stands for the part of a Cloud Run address that
    /// nobody chooses (`https://NAME-*.a.run.app`), in mode `platform` alone.
    #[arg(long, env = "REKINDLE_AUDIENCES", value_delimiter = ',', value_parser = audience)]
    pub audiences: Vec<String>,

    /// Who may call.
    #[command(flatten)]
    pub callers: Callers,

    /// Wake-ups.
    #[command(flatten)]
    pub tasks: Tasks,

    /// Emulators.
    #[command(flatten)]
    pub emulators: Emulators,

    /// Where spans of traces are sent before each answer: the address of an OpenTelemetry collector (OTLP over HTTP),
    /// such as http://127.0.0.1:4318; absent: traces only pass through.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub otlp_endpoint: Option<String>,

    /// What to log, such as `info,rekindle_engine=debug`.
    #[arg(long, env = "RUST_LOG", default_value = "info")]
    pub log: String,
}

/// Limits by owner.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnerLimits(BTreeMap<String, Limits>);

/// Accounts that may call, by door; an empty list lets nobody in.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Callers {
    /// Accounts of the push subscriptions.
    #[arg(id = "push-callers", long = "push-callers", env = "REKINDLE_PUSH_CALLERS", value_delimiter = ',', value_parser = account)]
    pub push: Vec<String>,

    /// Accounts of the Eventarc triggers.
    #[arg(
        id = "eventarc-callers",
        long = "eventarc-callers",
        env = "REKINDLE_EVENTARC_CALLERS",
        value_delimiter = ',', value_parser = account
    )]
    pub eventarc: Vec<String>,

    /// Accounts of Cloud Tasks.
    #[arg(id = "tasks-callers", long = "tasks-callers", env = "REKINDLE_TASKS_CALLERS", value_delimiter = ',', value_parser = account)]
    pub tasks: Vec<String>,

    /// Accounts of Cloud Scheduler.
    #[arg(
        id = "scheduler-callers",
        long = "scheduler-callers",
        env = "REKINDLE_SCHEDULER_CALLERS",
        value_delimiter = ',', value_parser = account
    )]
    pub scheduler: Vec<String>,

    /// People who may use the HTTP API; `*`: everyone with a verified account.
    #[arg(id = "people", long = "people", env = "REKINDLE_PEOPLE", value_delimiter = ',', value_parser = person)]
    pub people: Vec<String>,

    /// Further audiences of people's tokens, such as gcloud's client id.
    #[arg(
        id = "people-audiences",
        long = "people-audiences",
        env = "REKINDLE_PEOPLE_AUDIENCES",
        value_delimiter = ',', value_parser = people_audience
    )]
    pub people_audiences: Vec<String>,

    /// People who may act for other owners.
    #[arg(id = "admins", long = "admins", env = "REKINDLE_ADMINS", value_delimiter = ',', value_parser = admin)]
    pub admins: Vec<String>,
}

/// Cloud Tasks.
#[derive(Debug, Clone, clap::Args)]
pub struct Tasks {
    /// Region of the queue.
    #[arg(id = "tasks-location", long = "tasks-location", env = "REKINDLE_TASKS_LOCATION", value_parser = word)]
    pub location: String,

    /// Name of the queue.
    #[arg(id = "tasks-queue", long = "tasks-queue", env = "REKINDLE_TASKS_QUEUE", default_value = "rekindle-wakeups")]
    pub queue: String,

    /// Account whose identity token wake-ups carry.
    #[arg(id = "tasks-service-account", long = "tasks-service-account", env = "REKINDLE_TASKS_SERVICE_ACCOUNT", value_parser = own_account)]
    pub service_account: Option<String>,
}

/// Addresses of emulators; absent: Google's services.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Emulators {
    /// Firestore, HOST:PORT.
    #[arg(id = "firestore-emulator", long = "firestore-emulator", env = "FIRESTORE_EMULATOR_HOST")]
    pub firestore: Option<String>,

    /// Pub/Sub, HOST:PORT.
    #[arg(id = "pubsub-emulator", long = "pubsub-emulator", env = "PUBSUB_EMULATOR_HOST")]
    pub pubsub: Option<String>,

    /// Cloud TPU API.
    #[arg(id = "tpu-emulator", long = "tpu-emulator", env = "REKINDLE_TPU_EMULATOR")]
    pub tpu: Option<String>,

    /// Cloud Tasks.
    #[arg(id = "tasks-emulator", long = "tasks-emulator", env = "REKINDLE_TASKS_EMULATOR")]
    pub tasks: Option<String>,

    /// Keys of identity tokens, instead of Google's: an address of a JSON Web Key Set. Refused on Cloud Run.
    #[arg(id = "identity-keys", long = "identity-keys", env = "REKINDLE_IDENTITY_KEYS")]
    pub identity_keys: Option<String>,

    /// Cloud Storage.
    #[arg(id = "storage-emulator", long = "storage-emulator", env = "STORAGE_EMULATOR_HOST")]
    pub storage: Option<String>,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The capacity list cannot be read.
    #[error("the capacity list cannot be read: {0}")]
    Capacity(String),
    /// The capacity list allows nothing.
    #[error("the capacity list is empty: nothing could ever be created")]
    NoCapacity,
    /// Nothing that the capacity list has is offered where it has it.
    #[error("nothing in the capacity list could ever be created: {0}; `rekindle catalog` shows what is offered where")]
    NothingOffered(String),
    /// An amount of money that is none.
    #[error("{0} is {1}: name US dollars, 0 or more")]
    Money(String, f64),
    /// Callers are not checked, and the address is not loopback.
    #[error("callers are not checked (auth none), so the address must be loopback, not {0}")]
    OpenToOthers(std::net::IpAddr),
    /// Other keys than Google's, on Cloud Run.
    #[error("identity tokens would be checked with other keys than Google's, and this is Cloud Run")]
    OtherKeysOnCloudRun,
}

impl Config {
    /// What the deployment allows.
    pub fn deployment(&self) -> Result<Deployment, ConfigError> {
        let capacity = self.capacity_list()?;
        self.max_usd_per_day.map_or(Ok(()), |usd| money(|| "max_usd_per_day".into(), usd))?;
        let mut metadata = BTreeMap::new();
        if let Some(url) = &self.agent_url {
            metadata.insert("rekindle-agent-url".to_owned(), url.clone());
        }
        if let Some(sha256) = &self.agent_sha256 {
            metadata.insert("rekindle-agent-sha256".to_owned(), sha256.clone());
        }
        if let Some(port) = self.bell_port {
            metadata.insert("rekindle-bell-port".to_owned(), port.to_string());
        }
        Ok(Deployment {
            capacity,
            max_chips: self.max_chips,
            max_usd_per_day: self.max_usd_per_day,
            owners: self.owner_limits.clone().map(|limits| limits.0).unwrap_or_default(),
            access: self.policy.clone().unwrap_or_default(),
            bucket: self.bucket.trim_end_matches('/').to_owned(),
            bucket_regions: self.bucket_regions.clone(),
            api_url: self.api_url.trim_end_matches('/').to_owned(),
            worker_service_account: self.worker_service_account.clone(),
            worker_network: self
                .worker_network
                .clone()
                .map(|network| WorkerNetwork { network, subnetwork: self.worker_subnetwork.clone() }),
            startup_script: Some(rekindle_agent::STARTUP_SCRIPT.to_owned()),
            worker_metadata: metadata,
        })
    }

    /// How identity tokens are checked.
    pub fn oidc(&self) -> Result<OidcSettings, ConfigError> {
        self.oidc_where(std::env::var_os("K_SERVICE").is_some())
    }

    pub(crate) fn oidc_where(&self, on_cloud_run: bool) -> Result<OidcSettings, ConfigError> {
        let settings = OidcSettings::google(self.auth, on_cloud_run);
        match &self.emulators.identity_keys {
            Some(_) if on_cloud_run => Err(ConfigError::OtherKeysOnCloudRun),
            Some(url) => Ok(OidcSettings { jwks_url: url.clone(), ..settings }),
            None => Ok(settings),
        }
    }

    fn capacity_list(&self) -> Result<Vec<CapacityEntry>, ConfigError> {
        let unreadable = |why: String| ConfigError::Capacity(why);
        let text = match (&self.capacity, &self.capacity_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => {
                std::fs::read_to_string(path).map_err(|e| unreadable(format!("{}: {e}", path.display())))?
            }
            (None, None) => return Err(ConfigError::NoCapacity),
        };
        let entries: Vec<CapacityEntry> = serde_saphyr::from_str(&text).map_err(|e| unreadable(e.to_string()))?;
        if entries.is_empty() {
            return Err(ConfigError::NoCapacity);
        }
        for entry in &entries {
            let price = entry.usd_per_chip_hour;
            money(|| format!("usd_per_chip_hour of {} in {}", entry.accelerator, entry.zone), price)?;
        }
        let is_had = |entry: &&CapacityEntry| placement::can_be_had(&entry.accelerator, &entry.zone);
        let told = |entry: &CapacityEntry| format!("{} does not offer {}", entry.zone, entry.accelerator);
        let never: Vec<String> = entries.iter().filter(|entry| !is_had(entry)).map(told).collect();
        if never.len() == entries.len() {
            return Err(ConfigError::NothingOffered(never.join(", ")));
        }
        // Google may offer what the catalogue of this version does not know yet; what else is listed goes on.
        if !never.is_empty() {
            tracing::warn!("the capacity list has what could never be created: {}", never.join(", "));
        }
        Ok(entries)
    }

    /// What may be meant elsewhere, and on Cloud Run is hardly. Lines for the log.
    pub fn doubts(&self) -> Vec<String> {
        let Emulators { firestore, pubsub, tpu, tasks, storage, .. } = &self.emulators;
        let set: Vec<&str> = [
            (firestore, "FIRESTORE_EMULATOR_HOST"),
            (pubsub, "PUBSUB_EMULATOR_HOST"),
            (tpu, "REKINDLE_TPU_EMULATOR"),
            (tasks, "REKINDLE_TASKS_EMULATOR"),
            (storage, "STORAGE_EMULATOR_HOST"),
        ]
        .into_iter()
        .filter_map(|(emulator, name)| emulator.as_ref().map(|_| name))
        .collect();
        let emulators =
            (!set.is_empty()).then(|| format!("emulators stand in for Google's services: {}", set.join(", ")));
        let makes_tpus = matches!(self.role, Role::Reconcile | Role::All);
        let agent = match (&self.agent_url, &self.agent_sha256) {
            (None, _) => Some("REKINDLE_AGENT_URL is not set: no TPU will ever report"),
            (_, None) => Some("REKINDLE_AGENT_SHA256 is not set: workers start no agent that they cannot verify"),
            _ => None,
        };
        let agent = agent.filter(|_| makes_tpus).map(str::to_owned);
        let no_account = makes_tpus && self.worker_service_account.is_none();
        let account = no_account.then(|| {
            "REKINDLE_WORKER_SERVICE_ACCOUNT is not set: workers run as the project's default account".to_owned()
        });
        emulators.into_iter().chain(agent).chain(account).collect()
    }

    /// Where to listen.
    pub fn address(&self) -> Result<std::net::SocketAddr, ConfigError> {
        let usual = match self.auth {
            Mode::None => std::net::Ipv4Addr::LOCALHOST,
            Mode::Verify | Mode::Platform => std::net::Ipv4Addr::UNSPECIFIED,
        };
        let host = self.host.unwrap_or(usual.into());
        if self.auth == Mode::None && !host.is_loopback() {
            return Err(ConfigError::OpenToOthers(host));
        }
        Ok((host, self.port).into())
    }

    /// What job messages may ask for. Without a list of its own: to submit, and what a rule of the policy lets their principal do.
    pub fn messages_may(&self) -> BTreeSet<Name> {
        if !self.messages_may.is_empty() {
            return self.messages_may.iter().copied().collect();
        }
        let is_granted = |right| self.policy.as_ref().is_some_and(|policy| policy.may_others(PUBSUB, right));
        let is_meant = |name: &Name| match name {
            Name::Submit => true,
            Name::Cancel | Name::Pause => is_granted(Right::Stop),
            Name::Unpause | Name::Restart | Name::Wake => is_granted(Right::Submit),
        };
        Name::ALL.into_iter().filter(is_meant).collect()
    }

    /// The bucket's name.
    pub fn bucket_name(&self) -> &str {
        let path = self.bucket.strip_prefix("gs://").unwrap_or(&self.bucket);
        path.split('/').next().unwrap_or(path)
    }
}

fn bucket(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("gs://").map(|n| n.trim_end_matches('/'));
    match name {
        // Objects are written at the bucket's root, so a folder would part them from their addresses.
        Some(name) if !name.is_empty() && !name.contains(['/', ' ']) => Ok(format!("gs://{name}")),
        _ => Err("is not of the form gs://NAME".into()),
    }
}

fn word(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && !text.contains(char::is_whitespace);
    if is_word { Ok(text.to_owned()) } else { Err("is one word; leave the setting out where there is none".into()) }
}

/// Where a service is reached.
fn address(text: &str) -> Result<String, String> {
    let url: Option<http::Uri> = text.parse().ok();
    let is_address = |url: &http::Uri| matches!(url.scheme_str(), Some("http" | "https")) && url.host().is_some();
    if url.is_some_and(|url| is_address(&url)) {
        Ok(text.to_owned())
    } else {
        Err("is no address such as https://HOST".into())
    }
}

fn audience(text: &str) -> Result<String, String> {
    let text = text.trim();
    // An empty one would be taken of a token, and the address that is meant would not.
    if text.trim_end_matches('/').is_empty() {
        return Err("is empty: name root addresses of the services, with commas between".into());
    }
    // More than the part that Cloud Run makes up would be another service's, too.
    let is_service = |(begin, end): (&str, &str)| {
        let name = begin.strip_prefix("https://").and_then(|name| name.strip_suffix('-'));
        let is_name = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let is_region = |end: &str| end.is_empty() || end.strip_prefix('-').is_some_and(is_name);
        name.is_some_and(is_name) && end.strip_suffix(".a.run.app").is_some_and(is_region)
    };
    match text.trim_end_matches('/').split_once('*') {
        Some(parts) if !is_service(parts) => {
            Err("leaves too much open: * stands in https://NAME-*.a.run.app alone".into())
        }
        Some(_) | None => Ok(text.to_owned()),
    }
}

/// The client ids of programs into which people sign in: a pattern would take the tokens of any program.
fn people_audience(text: &str) -> Result<String, String> {
    if text.contains('*') {
        return Err(
            "names client ids in full: with * whoever runs another program could act for those who sign in there"
                .into(),
        );
    }
    audience(text)
}

fn agent(text: &str) -> Result<String, String> {
    let is_object = text
        .strip_prefix("gs://")
        .is_some_and(|path| !path.contains(' ') && path.split_once('/').is_some_and(|(_, name)| !name.is_empty()));
    if is_object || address(text).is_ok() {
        Ok(text.to_owned())
    } else {
        Err("is no address of a file, gs://… or https://…".into())
    }
}

fn sha256(text: &str) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if is_digest { Ok(text.to_owned()) } else { Err("is no sha256: 64 of the digits 0 to 9 and a to f".into()) }
}

/// An empty list comes as one empty word, which is nobody's address.
fn account(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.contains('*') {
        return Err("names accounts, each by its whole address".into());
    }
    if text.contains([':', ' ']) || !(text.is_empty() || text.contains('@')) {
        return Err(
            "is no address such as NAME@PROJECT.iam.gserviceaccount.com, without a kind such as serviceAccount:".into(),
        );
    }
    Ok(text.to_owned())
}

fn own_account(text: &str) -> Result<String, String> {
    account(&word(text)?)
}

fn person(text: &str) -> Result<String, String> {
    match text.trim() {
        "*" => Ok("*".to_owned()),
        text if text.contains('*') => {
            Err("names people, each by their whole address, or * for everyone with a verified account".into())
        }
        text => account(text),
    }
}

fn admin(text: &str) -> Result<String, String> {
    if text.contains('*') {
        Err("names people, each by their whole address; a rule of the policy takes *".into())
    } else {
        account(text)
    }
}

fn owner_limits(text: &str) -> Result<OwnerLimits, String> {
    let limits: BTreeMap<String, Limits> = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    once(limits.keys())?;
    if let Some(odd) = limits.keys().find(|owner| owner.contains('*')) {
        return Err(format!(
            "{odd:?} is no owner: each is named in full; REKINDLE_MAX_CHIPS and REKINDLE_MAX_USD_PER_DAY are of all together"
        ));
    }
    for (owner, of) in &limits {
        let usd = of.max_usd_per_day.unwrap_or_default();
        money(|| format!("max_usd_per_day of {owner}"), usd).map_err(|error| error.to_string())?;
    }
    Ok(OwnerLimits(limits))
}

fn policy(text: &str) -> Result<Access, String> {
    let policy: Access = serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
    once(policy.borrow.keys())?;
    match policy.faults() {
        faults if faults.is_empty() => Ok(policy),
        faults => Err(faults.join("; ")),
    }
}

/// Owners are the same in capitals and in small letters.
fn once<'a>(mut owners: impl Iterator<Item = &'a String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    let odd = owners.find(|owner| !is_label(owner) || !seen.insert(owner.to_ascii_lowercase()));
    let Some(owner) = odd else { return Ok(()) };
    if is_label(owner) {
        return Err(format!("names {owner} twice, in capitals and in small letters"));
    }
    Err(format!("{owner:?} is no owner: one is {LABEL_IS}"))
}

fn name(text: &str) -> Result<Name, String> {
    Name::parse(text).ok_or_else(|| format!("one of {}", Name::ALL.map(Name::as_str).join(", ")))
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::parse(text).ok_or_else(|| "one of verify, platform, none".into())
}

fn money(what: impl FnOnce() -> String, usd: f64) -> Result<(), ConfigError> {
    if usd.is_finite() && usd >= 0.0 { Ok(()) } else { Err(ConfigError::Money(what(), usd)) }
}
