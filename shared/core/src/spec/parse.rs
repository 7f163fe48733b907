//! From the outside shape of a job spec (contract section 1) to a [`JobSpec`], or to every fault in it at once.
//!
//! **Invariant:** total: any JSON brings a spec or at least one fault, never a panic. A spec that comes out has at
//! least one candidate (see `placement`) in this deployment, and every default is filled in.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

use super::reader::{self, Faults, Object, quote};
use super::{
    CheckpointSpec, CommandLine, HookShape, JobSpec, Notify, execve, limits, outputs, recovery, secrets, source, tpu,
};
use crate::access::{self, Right};
use crate::address;
use crate::catalog;
use crate::ids::JobId;
use crate::job::Phase;
use crate::placement;
use crate::policy;
use crate::settings::Deployment;

/// A fault of a field, for the person who wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// Path of the field, such as `tpu.zones[1]`; `spec` for the whole.
    pub field: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

/// Who submits to what.
#[derive(Debug, Clone, Copy)]
pub struct ParseContext<'a> {
    /// The capacity list, and where checkpoints are.
    pub deployment: &'a Deployment,
    /// The caller's identity: the owner, unless an admin names another.
    pub caller: &'a str,
    /// Whether the caller may name another owner.
    pub caller_is_admin: bool,
}

/// A submit that passed every check.
#[derive(Debug, Clone, PartialEq)]
pub struct Submit {
    /// The id it names; absent: one is made of the message id.
    pub id: Option<JobId>,
    /// The spec with all defaults.
    pub spec: JobSpec,
}

/// Fields of the whole spec.
pub(super) const FIELDS: &[&str] = &[
    "id",
    "run",
    "setup",
    "image",
    "code",
    "env",
    "secrets",
    "tpu",
    "recovery",
    "budgets",
    "limits",
    "checkpoint",
    "resume",
    "regions",
    "workspace",
    "outputs",
    "priority",
    "owner",
    "tags",
    "notes",
    "notify",
    "source",
];

/// Fields of a webhook.
pub(super) const HOOK: &[&str] = &["webhook", "events", "shape"];

/// Fields that the outside interface names and this version does not build, and what to do instead.
const NOT_BUILT: &[(&str, &str)] = &[("image", "leave it out and install what the program needs in `setup`")];

/// Most bytes of an owner or a tag. Firestore indexes at most 1,500 bytes of a value.
pub const LABEL_MAX: usize = 256;

/// The longest spec, in bytes of JSON.
// A job is one document of at most 1 MiB in the store, and holds its generations, attempts and events beside the spec.
const SPEC_MAX: usize = 256 * 1024;

/// Longest address of a place, in bytes.
// A bucket's has 1,100 at most, a file's `PATH_MAX`. Programs find it in a variable, which has an end too.
const ADDRESS_MAX: usize = 4096;

/// Variables that are always ours (contract section 4), so that setting them would do nothing.
const OURS: &[&str] = &[
    "REKINDLE_JOB",
    "REKINDLE_ATTEMPT",
    "REKINDLE_GENERATION",
    "REKINDLE_RESUME",
    "REKINDLE_STAGE",
    "REKINDLE_RUN_ID",
    "REKINDLE_CHECKPOINT_DIR",
    "REKINDLE_LINE",
    "REKINDLE_WORKER",
    "REKINDLE_WORKERS",
    "REKINDLE_SLICE",
    "REKINDLE_SLICES",
    "REKINDLE_COORDINATOR",
    "REKINDLE_TPU",
    "REKINDLE_ZONE",
    "REKINDLE_PROGRESS_FILE",
    "REKINDLE_NOTICE_FILE",
    "TP_ASIC_NAME",
    "TP_ASIC_WORKER",
];

/// Checks a job spec against the contract, the catalogue and the deployment.
///
/// Errors: every fault at once, in the order of the contract's fields, at most about a hundred.
pub fn parse(value: &Value, context: &ParseContext<'_>) -> Result<Submit, Vec<FieldError>> {
    let mut faults = Faults::default();
    let Some(top) = Object::open(value, "", FIELDS, &mut faults) else {
        return Err(faults.into_vec());
    };
    let id = id(&top, &mut faults);
    let workspace = flag(&top, "workspace", &mut faults);
    let run = run(&top, workspace, &mut faults);
    let setup = top.get("setup").and_then(|value| command(value, "setup", &mut faults));
    not_built(&top, &mut faults);
    let code = code(&top, context.deployment, &mut faults);
    let env = env(&top, &mut faults);
    let secrets = secrets::read(&top, &env, &mut faults);
    let checkpoint = checkpoint(&top, context.deployment, &mut faults);
    let resume = resume(&top, &checkpoint, workspace, &mut faults);
    let any_region = any_region(&top, &checkpoint, &mut faults);
    let tpu = tpu::read(&top, (&checkpoint, any_region), context.deployment, &mut faults);
    let budgets = limits::budgets(&top, workspace, &mut faults);
    let recovery = recovery::read(&top, policy::default_preset(&tpu.capacity), &budgets, &mut faults);
    let spec = JobSpec {
        run,
        setup,
        code,
        env,
        secrets,
        tpu,
        recovery,
        budgets,
        limits: limits::limits(&top, workspace, &mut faults),
        checkpoint,
        priority: priority(&top, &mut faults),
        owner: owner(&top, context, &mut faults),
        tags: tags(&top, &mut faults),
        notes: top.text("notes", &mut faults),
        notify: notify(&top, context.deployment, &mut faults),
        any_region,
        resume,
        workspace,
        outputs: outputs::read(&top, &mut faults),
        source: source::read(&top, &mut faults),
    };
    borrowed(&spec, context.deployment, &mut faults);
    let size = serde_json::to_vec(&spec).map_or(0, |bytes| bytes.len());
    if size > SPEC_MAX {
        let advice = "put what is big into the bundle of `code`";
        faults.add("spec", format!("has {size} bytes as JSON; at most {SPEC_MAX} are allowed: {advice}"));
    }
    if faults.count() > 0 { Err(faults.into_vec()) } else { Ok(Submit { id, spec }) }
}

fn id(top: &Object<'_>, faults: &mut Faults) -> Option<JobId> {
    let text = top.text("id", faults)?;
    match JobId::parse(&text) {
        Ok(id) => Some(id),
        Err(bad) => {
            faults.add("id", bad.0);
            None
        }
    }
}

fn flag(top: &Object<'_>, field: &str, faults: &mut Faults) -> bool {
    match top.get(field) {
        None => false,
        Some(Value::Bool(is)) => *is,
        Some(other) => {
            faults.add(field, format!("must be true or false; it is {}", reader::sort_of(other)));
            false
        }
    }
}

/// `resume`: only of a folder that another job may have filled. A job's own is empty when it begins, since ids are never
/// used twice.
fn resume(top: &Object<'_>, checkpoint: &CheckpointSpec, is_workspace: bool, faults: &mut Faults) -> bool {
    let is_given = flag(top, "resume", faults);
    // What is wrong with `checkpoint` is told by itself.
    let has_own_folder = match checkpoint {
        CheckpointSpec::Default => top.get("checkpoint").is_none(),
        CheckpointSpec::ByRegion(_) => true,
        CheckpointSpec::Folder(_) => false,
    };
    if is_given && is_workspace {
        faults.add("resume", "a workspace has no program that could go on; leave it out");
    } else if is_given && has_own_folder {
        faults
            .add("resume", "needs in `checkpoint` the folder that the earlier job has left: a new job's own is empty");
    }
    is_given
}

fn run(top: &Object<'_>, is_workspace: bool, faults: &mut Faults) -> CommandLine {
    let given = top.get("run");
    if is_workspace && given.is_some() {
        faults.add("run", "a workspace has no program of its own; leave it out, and use `rekindle exec` or `ssh`");
        return CommandLine::Argv(Vec::new());
    }
    if given.is_none() && !is_workspace {
        faults.add("run", "is missing; give the program and its arguments as a list, or one line for bash");
    }
    given.and_then(|value| command(value, "run", faults)).unwrap_or(CommandLine::Argv(Vec::new()))
}

fn command(value: &Value, path: &str, faults: &mut Faults) -> Option<CommandLine> {
    let Value::Array(items) = value else {
        if !value.is_string() {
            faults.add(path, format!("must be a list of words or one line for bash; it is {}", reader::sort_of(value)));
            return None;
        }
        let line = reader::text(value, path, faults)?;
        return fits(line, path, faults).then(|| CommandLine::Shell(line.to_owned()));
    };
    let before = faults.count();
    let mut words = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("{path}[{index}]");
        // Arguments may be empty, and may stand there twice; the program may not.
        let argument = item.as_str().filter(|word| index > 0 && !word.contains('\0'));
        let Some(word) = argument.or_else(|| reader::text(item, &path, faults)) else { continue };
        if fits(word, &path, faults) {
            words.push(word.to_owned());
        }
    }
    if items.is_empty() {
        faults.add(path, "is an empty list; begin with the program");
    }
    (faults.count() == before).then_some(CommandLine::Argv(words))
}

/// Whether Linux gives a program this word.
fn fits(word: &str, path: &str, faults: &mut Faults) -> bool {
    let fault = execve::argument_fault(word);
    let is_good = fault.is_none();
    if let Some(fault) = fault {
        faults.add(path, fault);
    }
    is_good
}

fn not_built(top: &Object<'_>, faults: &mut Faults) {
    for (field, instead) in NOT_BUILT {
        // What asks for nothing is no fault: `image: null`.
        let asks = top.get(field).is_some_and(|value| match value {
            Value::Null | Value::Bool(false) => false,
            Value::Bool(true) | Value::Number(_) | Value::String(_) => true,
            Value::Array(items) => !items.is_empty(),
            Value::Object(map) => !map.is_empty(),
        });
        if asks {
            faults.add(*field, format!("this version of Rekindle does not build `{field}` yet; {instead}"));
        }
    }
}

fn code(top: &Object<'_>, deployment: &Deployment, faults: &mut Faults) -> Option<String> {
    let address = top.text("code", faults)?;
    let digest = address.rsplit_once('/').and_then(|(_, name)| name.strip_suffix(".tar.zst"));
    let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !digest.is_some_and(is_digest) {
        let advice = "the CLI uploads a folder and writes it for you";
        faults
            .add("code", format!("must end in /<sha256 in lower case>.tar.zst, so that it can be verified; {advice}"));
        return None;
    }
    is_address(&address, "code", deployment, faults).then_some(address)
}

/// Whether a place is in an object store that workers reach.
fn is_address(address: &str, path: &str, deployment: &Deployment, faults: &mut Faults) -> bool {
    let rest = address.strip_prefix("gs://").or_else(|| {
        // Files are for the local mode, where workers share the machine.
        deployment.is_local().then(|| address.strip_prefix("file:///")).flatten()
    });
    let in_bucket = !deployment.bucket.is_empty() && address.starts_with(&deployment.bucket);
    // A folder on one's own machine may have spaces in its name, a bucket's may not.
    let is_file = address.starts_with("file://");
    let plain = !address.chars().any(|c| c.is_control() || (c.is_whitespace() && !is_file));
    let good = plain && (in_bucket || rest.is_some_and(|rest| !rest.starts_with('/') && !rest.is_empty()));
    if address.len() > ADDRESS_MAX {
        let size = address.len();
        faults
            .add(path, format!("has {size} bytes; the name of a place has at most {ADDRESS_MAX}: take a shorter one"));
        return false;
    }
    if !good {
        faults.add(path, format!("{} is no place in a bucket; write gs://BUCKET/FOLDER", quote(address)));
    }
    good
}

/// A field that is an object, of what `of` says.
pub(super) fn object_of<'a>(
    top: &'a Object<'_>,
    field: &'static str,
    of: &str,
    faults: &mut Faults,
) -> Option<&'a Map<String, Value>> {
    let value = top.get(field)?;
    let Value::Object(map) = value else {
        faults.add(field, format!("must be an object of {of}; it is {}", reader::sort_of(value)));
        return None;
    };
    Some(map)
}

/// What is wrong with the name of a variable.
pub(super) fn faulty_name(name: &str) -> Option<&'static str> {
    // Programs are given others too, but no shell can read them: a slip of the pen, found out only on the TPU.
    if name.is_empty() || name.contains(|c: char| c == '=' || c.is_whitespace() || c.is_control()) {
        return Some("is no name of a variable: it must not be empty, nor have blanks, '=' or NUL; write it like LR");
    }
    OURS.contains(&name).then_some("is set by Rekindle for every attempt and cannot be given; use another name")
}

fn env(top: &Object<'_>, faults: &mut Faults) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    let Some(map) = object_of(top, "env", "names and texts", faults) else { return env };
    for (name, value) in map {
        let path = format!("env.{name}");
        if let Some(fault) = faulty_name(name) {
            faults.add(path, fault);
        } else if let Value::String(text) = value {
            match execve::variable_fault(name, text) {
                Some(fault) => faults.add(path, fault),
                None => {
                    env.insert(name.clone(), text.clone());
                }
            }
        } else {
            faults.add(path, reader::no_text(value));
        }
    }
    env
}

fn checkpoint(top: &Object<'_>, deployment: &Deployment, faults: &mut Faults) -> CheckpointSpec {
    let Some(value) = top.get("checkpoint") else { return CheckpointSpec::Default };
    let Value::Object(map) = value else {
        let folder = reader::text(value, "checkpoint", faults).map(|text| text.trim_end_matches('/').to_owned());
        return match folder.filter(|folder| is_address(folder, "checkpoint", deployment, faults)) {
            Some(folder) => CheckpointSpec::Folder(folder),
            None => CheckpointSpec::Default,
        };
    };
    let mut regions: Vec<&str> = catalog::zones().into_iter().map(catalog::region_of).collect();
    regions.dedup();
    if map.is_empty() {
        faults.add("checkpoint", "has no region; give a bucket, or a bucket for each region");
        return CheckpointSpec::Default;
    }
    let mut folders = BTreeMap::new();
    for (region, value) in map {
        let path = format!("checkpoint.{region}");
        if !regions.contains(&region.as_str()) {
            faults.add(path.clone(), format!("is no region with TPUs; {}", reader::advise(region, &regions)));
        }
        // A map names buckets; the plain name of one is enough.
        let folder = reader::text(value, &path, faults).map(|text| {
            if text.contains("://") || text.starts_with('/') { text.to_owned() } else { format!("gs://{text}") }
        });
        if let Some(folder) = folder.filter(|folder| is_address(folder, &path, deployment, faults)) {
            folders.insert(region.clone(), folder.trim_end_matches('/').to_owned());
        }
    }
    CheckpointSpec::ByRegion(folders)
}

/// `regions: any`.
fn any_region(top: &Object<'_>, checkpoint: &CheckpointSpec, faults: &mut Faults) -> bool {
    let Some(word) = top.text("regions", faults) else { return false };
    if word != "any" {
        faults.add("regions", format!("{} is not known; write any, or leave it out", quote(&word)));
        return false;
    }
    if matches!(checkpoint, CheckpointSpec::ByRegion(_)) {
        faults.add("regions", "any needs one folder in `checkpoint`; a map says itself which regions there are");
    }
    true
}

fn priority(top: &Object<'_>, faults: &mut Faults) -> u8 {
    const DEFAULT: u8 = 50;
    let given = top.get("priority").and_then(|value| reader::integer(value, "priority", &(0..=100), faults));
    given.and_then(|number| u8::try_from(number).ok()).unwrap_or(DEFAULT)
}

fn owner(top: &Object<'_>, context: &ParseContext<'_>, faults: &mut Faults) -> String {
    let Some(owner) = top.text("owner", faults) else { return context.caller.to_owned() };
    let owner = access::spelled(&owner, context.caller);
    let is_own = owner == context.caller || context.caller_is_admin;
    if !is_own && !context.deployment.access.may(context.caller, Right::Submit, &owner) {
        let caller = quote(context.caller);
        faults.add("owner", format!("the policy lets {caller} not submit for it; leave it out, or write {caller}"));
    } else if !is_label(&owner) {
        faults.add("owner", format!("must be {LABEL_IS}"));
    }
    owner
}

fn tags(top: &Object<'_>, faults: &mut Faults) -> Vec<String> {
    let words = top.words("tags", faults);
    for word in words.iter().filter(|word| !is_label(&word.text)) {
        faults.add(&word.path, format!("must be {LABEL_IS}"));
    }
    let tags: Vec<String> = words.into_iter().map(|word| word.text).collect();
    if tags.len() > TAGS_MAX {
        faults.add("tags", format!("has {} tags; at most {TAGS_MAX}", tags.len()));
    }
    tags
}

/// Most tags of a job. What people write on a job must leave room for what it becomes: a document that is full takes no end either.
pub const TAGS_MAX: usize = 100;

/// Whether a text can be an owner or a tag: both are columns of tables and are queried for. Blanks within it are letters like
/// others; at an end nobody sees them.
pub fn is_label(text: &str) -> bool {
    (1..=LABEL_MAX).contains(&text.len()) && text.trim() == text && !text.contains(char::is_control)
}

/// What [`is_label`] takes, in words.
pub const LABEL_IS: &str = "one line of 1 to 256 bytes that neither begins nor ends with a blank";

/// What the job would use of the deployment must be lent to its owner.
fn borrowed(spec: &JobSpec, deployment: &Deployment, faults: &mut Faults) {
    let lent = deployment.access.borrow(&spec.owner);
    let own = deployment.worker_service_account.as_deref();
    if let Some(account) = &spec.tpu.network.service_account
        && own != Some(account.as_str())
        && !lent.lends_account(account)
    {
        let told = format!("{} is not lent to {}; leave it out, or ask an admin", quote(account), quote(&spec.owner));
        faults.add("tpu.service_account", told);
    }
    secrets::borrowed(spec, deployment, lent, faults);
    // Only once everything else is right: without a candidate for another reason, that one was told.
    if faults.count() == 0 && placement::candidates(spec, deployment).is_empty() {
        let told = format!("nothing of the capacity list that this asks for is lent to {}", quote(&spec.owner));
        faults.add("tpu", format!("{told}; take another accelerator, zone or kind of capacity, or ask an admin"));
    }
}

fn notify(top: &Object<'_>, deployment: &Deployment, faults: &mut Faults) -> Vec<Notify> {
    let Some(value) = top.get("notify") else { return Vec::new() };
    let Value::Array(items) = value else {
        faults.add("notify", format!("must be a list of {{webhook, events, shape}}; it is {}", reader::sort_of(value)));
        return Vec::new();
    };
    let mut notify = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("notify[{index}]");
        let Some(object) = Object::open(item, &path, HOOK, faults) else { continue };
        let webhook = object.text("webhook", faults);
        match &webhook {
            Some(webhook) => {
                if let Err(fault) = check_webhook(webhook, deployment) {
                    faults.add(object.at("webhook"), fault);
                }
            }
            None if object.get("webhook").is_some() => {}
            None => faults.add(object.at("webhook"), "is missing; give an https address"),
        }
        let phases = Phase::ALL.map(Phase::as_str);
        let mut events = Vec::new();
        for event in object.words("events", faults) {
            if !phases.contains(&event.text.as_str()) {
                let advice = reader::advise(&event.text, &phases);
                faults.add(event.path, format!("{} is no phase; {advice}", quote(&event.text)));
            }
            events.push(event.text);
        }
        let shape = object.text("shape", faults).and_then(|name| {
            let known = HookShape::NAMES.iter().find(|(known, _)| *known == name).map(|(_, shape)| *shape);
            if known.is_none() {
                let names = HookShape::NAMES.map(|(name, _)| name);
                let advice = reader::advise(&name, &names);
                faults.add(object.at("shape"), format!("{} is no shape of a message; {advice}", quote(&name)));
            }
            known
        });
        notify.push(Notify { webhook: webhook.unwrap_or_default(), events, shape });
    }
    notify
}

/// The form, and that the host can be public. Where a name leads is checked at each call, since names change their
/// addresses.
fn check_webhook(webhook: &str, deployment: &Deployment) -> Result<(), String> {
    if webhook.starts_with("http://") {
        let why = "what is sent by http:// is read by whoever is on the way, and the address is itself a secret";
        // On one machine nobody is on the way, but a job goes to the cloud as it is.
        let how = if deployment.is_local() {
            "; for one on this machine the README of Rekindle makes a certificate, which `SSL_CERT_FILE=ca.pem rekindle dev` trusts"
        } else {
            ""
        };
        return Err(format!(
            "must begin with https://: {why}; give the receiver a certificate, or a relay that has one{how}"
        ));
    }
    // The standard's reader would mend or drop these.
    let is_plain = webhook.len() <= 2048
        && webhook.strip_prefix("https://").is_some_and(|rest| !rest.starts_with('/'))
        && !webhook.contains(|c: char| c.is_whitespace() || c.is_control());
    let url = Url::parse(webhook).ok().filter(|url| is_plain && url.username().is_empty() && url.password().is_none());
    let Some(host) = url.as_ref().and_then(Url::host) else {
        return Err("must be an address https://HOST/PATH without a user name".into());
    };
    // On one machine they are called there too.
    if deployment.is_local() || address::may_be_public(&host) {
        return Ok(());
    }
    let why = "is not on the public internet, and webhooks are told there alone";
    Err(format!("{} {why}; give an address that everyone reaches, such as that of a relay", quote(&host.to_string())))
}
