//! Every field of a job spec, for people: what it is, what its absence means, an example, its meaning in a sentence.
//!
//! Held true by tests: the fields are those that the parser knows, every example is accepted, and what stands as a default
//! is what the field's absence means.

/// A field of a job spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its path, such as `tpu.zones`; `[]` after a list of objects.
    pub name: &'static str,
    /// What its value is.
    pub is: &'static str,
    /// What its absence means.
    pub absent: Absent,
    /// A value that is accepted, as JSON; empty for what this version refuses.
    pub example: &'static str,
    /// What it is for, in one sentence.
    pub meaning: &'static str,
}

/// What the absence of a field means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The spec is refused.
    Refused,
    /// The same as this value, as JSON.
    Value(&'static str),
    /// What the words say: the deployment, the caller or another field decides.
    Means(&'static str),
}

impl Absent {
    /// In a word or a few, for a column.
    pub fn words(self) -> &'static str {
        match self {
            Self::Refused => "required",
            Self::Value(text) => text.trim_matches('"'),
            Self::Means(text) => text,
        }
    }
}

use Absent::{Means, Refused, Value};

const NONE: Absent = Means("none");
const TEXT: &str = "text";
const WORDS: &str = "text or list";
const COMMAND: &str = "text or list";
const TEXTS: &str = "map of texts";
const FLAG: &str = "true or false";
const TIME: &str = "duration";
const TIME_NONE: &str = "duration or none";
const COUNT: &str = "number or unlimited";

const fn field(
    name: &'static str,
    is: &'static str,
    absent: Absent,
    example: &'static str,
    meaning: &'static str,
) -> Field {
    Field { name, is, absent, example, meaning }
}

/// All fields, in the order of the outside interface. A duration is `90s`, `30m`, `24h`, `7d`, or seconds.
pub const FIELDS: &[Field] = &[
    field(
        "id",
        TEXT,
        Means("made up"),
        r#""llama-7b-run3""#,
        "Name of the job: a-z, 0-9 and -, at most 40; given, the same submit again is no new job while this one has not ended",
    ),
    field(
        "run",
        COMMAND,
        Refused,
        r#"["python3", "train.py", "--lr=0.01"]"#,
        "The program, on every worker, as root, in the working directory; text is given to bash",
    ),
    field(
        "setup",
        COMMAND,
        NONE,
        r#""pip install -r requirements.txt""#,
        "Once on each worker of a new slice, before `run`. What it leaves in the background ends with the attempt that began it",
    ),
    field("image", TEXT, NONE, "", "A container to run in; not built yet, and refused"),
    field(
        "code",
        TEXT,
        NONE,
        r#""gs://bucket/bundles/5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03.tar.zst""#,
        "A bundle that is unpacked into the working directory, verified by the digest in its name; `rekindle run` makes and names it",
    ),
    field("env", TEXTS, NONE, r#"{"LR": "0.01"}"#, "Environment of `setup` and `run`"),
    field(
        "secrets",
        TEXTS,
        NONE,
        r#"{"WANDB_API_KEY": "projects/p/secrets/wandb/versions/latest"}"#,
        "Variables whose values each worker reads from Secret Manager; not in the local mode",
    ),
    field(
        "tpu.accelerator",
        WORDS,
        Refused,
        r#"["v5litepod-16", "v6e-16"]"#,
        "The type of TPU, or several in order of preference",
    ),
    field(
        "tpu.zones",
        WORDS,
        Means("all that the deployment allows"),
        r#"["us-central1-a"]"#,
        "Zones in order of preference",
    ),
    field(
        "tpu.capacity",
        WORDS,
        Value(r#""spot""#),
        r#"["spot", "on_demand"]"#,
        "How it is bought, in order of preference: spot, preemptible, on_demand, reserved",
    ),
    field(
        "tpu.queued",
        TEXT,
        Value(r#""auto""#),
        r#""always""#,
        "Whether it is asked for by a queued resource: auto, always, never",
    ),
    field(
        "tpu.reservation",
        TEXT,
        NONE,
        r#""my-reservation""#,
        "Name of the reservation; required with `reserved`, and asked for by a queued resource",
    ),
    field(
        "tpu.runtime_version",
        TEXT,
        Means("the right one for the type"),
        r#""v2-alpha-tpuv5-lite""#,
        "Software of the TPU machine",
    ),
    field("tpu.topology", TEXT, Means("the usual one of the type"), r#""4x4""#, "How the chips are arranged"),
    field("tpu.slices", "number, 1 to 256", Value("1"), "2", "More than one is multislice: all or nothing"),
    field("tpu.network", TEXT, Means("the deployment's"), r#""default""#, "VPC network of the workers"),
    field("tpu.subnetwork", TEXT, Means("the network's of the region"), r#""default""#, "Subnetwork of the workers"),
    field(
        "tpu.external_ips",
        FLAG,
        Means("true on the network `default`"),
        "false",
        "Whether workers have addresses of their own to the outside; without, the network needs Cloud NAT",
    ),
    field(
        "tpu.service_account",
        TEXT,
        Means("the deployment's"),
        r#""trainer@p.iam.gserviceaccount.com""#,
        "Account of the workers; the policy must lend it",
    ),
    field("tpu.tags", WORDS, NONE, r#"["ssh"]"#, "Network tags of the workers"),
    field("tpu.labels", TEXTS, NONE, r#"{"team": "vision"}"#, "Labels of the TPU, as bills show them"),
    field("tpu.data_disks", "list", NONE, "", "Disks to attach; not built yet, and refused"),
    field(
        "recovery.preset",
        TEXT,
        Means("pre on spot and preemptible, else resume"),
        r#""rerun""#,
        "What to do about failures: pre, resume, reapply, rerun, pass",
    ),
    field(
        "recovery.overrides",
        "map of kinds to actions",
        NONE,
        r#"{"oom_host": {"action": "resume_in_place", "max": 1}}"#,
        "Another answer for single kinds of failure: resume_in_place, restart_in_place, recreate, recreate_from_scratch, fail",
    ),
    field(
        "budgets.user_failures",
        COUNT,
        Value("0"),
        "2",
        "Failures of the program itself that are answered by another attempt, beside those whose rule says how often itself (`environment`: once); progress resets them",
    ),
    field("budgets.infra_failures", COUNT, Value("10"), "20", "Failures of machines and network; progress resets them"),
    field("budgets.preemptions", COUNT, Value(r#""unlimited""#), "50", "Preemptions and maintenance"),
    field(
        "budgets.no_progress",
        COUNT,
        Value("5"),
        "3",
        "So many slices in a row without a new step pause the job; unlimited for a workspace",
    ),
    field(
        "limits.total",
        TIME_NONE,
        Value(r#""none""#),
        r#""24h""#,
        "From the first start of the program to the end of the job; then it fails",
    ),
    field(
        "limits.attempt",
        TIME_NONE,
        Value(r#""none""#),
        r#""6h""#,
        "Of one attempt; then it goes on with a new slice",
    ),
    field("limits.queue", TIME_NONE, Value(r#""none""#), r#""12h""#, "Waiting for a TPU; then it fails"),
    field(
        "limits.start",
        TIME,
        Value(r#""30m""#),
        r#""1h""#,
        "From a TPU that is ready to the program on all workers, `setup` included",
    ),
    field(
        "limits.stall",
        "duration, none, or {steps: duration}",
        Value(r#"{"steps": "1h"}"#),
        r#""20m""#,
        "Without a new step for so long it is stuck; given as a duration it also watches output; none for a workspace",
    ),
    field(
        "limits.stop_grace",
        TIME,
        Value(r#""30s""#),
        r#""2m""#,
        "From SIGTERM to SIGKILL, at most 1h; `pause` waits 5m, the others after a worker's failure 60s",
    ),
    field("limits.cost_usd", "number or none", Value(r#""none""#), "250", "US dollars; at more it fails"),
    field(
        "limits.idle",
        TIME_NONE,
        Means("8h for a workspace"),
        r#""2h""#,
        "A workspace that nobody has used for so long is paused; use is words in a shell on it, `exec`, `sync`, or a \
         process that holds a chip",
    ),
    field(
        "checkpoint",
        "text, or map of regions to texts",
        Means("in the deployment's bucket"),
        r#""gs://bucket/ckpt/llama""#,
        "Folder of the checkpoints; a map names one for each region",
    ),
    field(
        "resume",
        FLAG,
        Value("false"),
        "true",
        "`REKINDLE_RESUME=1` from the first attempt on: goes on from what another job left in `checkpoint`",
    ),
    field(
        "regions",
        TEXT,
        Means("those of the checkpoints"),
        r#""any""#,
        "`any`: also TPUs far from the checkpoints, which costs transfer",
    ),
    field("workspace", FLAG, Value("false"), "true", "A TPU for people, without `run`; `rekindle up` makes it"),
    field(
        "outputs",
        WORDS,
        NONE,
        r#"["results/**", "*.png"]"#,
        "Files of the working directory that are kept at the end, from every worker",
    ),
    field("priority", "number, 0 to 100", Value("50"), "80", "Higher is served first where capacity is short"),
    field("owner", TEXT, Means("you"), r#""research""#, "Who pays; the policy must let you submit for them"),
    field(
        "tags",
        WORDS,
        NONE,
        r#"["ablation"]"#,
        "Labels for people, at most 100; also `rekindle tag`. On the command line a comma parts two",
    ),
    field("notes", TEXT, NONE, r#""second try with warmup""#, "Free text for people; also `rekindle note`"),
    field(
        "notify[].webhook",
        TEXT,
        Refused,
        r#""https://hooks.example.com/T0/B0""#,
        "An https address that is told of the job's phases, each at least once",
    ),
    field(
        "notify[].events",
        WORDS,
        Means("all phases"),
        r#"["succeeded", "failed", "paused"]"#,
        "The phases that are told",
    ),
    field(
        "notify[].shape",
        TEXT,
        Means("what the address takes"),
        r#""slack""#,
        "What is sent: event, slack, discord, mail",
    ),
    field(
        "source.folder",
        TEXT,
        NONE,
        r#""llama""#,
        "Where `code` was made, for people; `rekindle run` writes it, with the three below",
    ),
    field("source.commit", TEXT, NONE, r#""1a2b3c4d""#, "The commit that was checked out"),
    field("source.branch", TEXT, NONE, r#""main""#, "Its branch"),
    field("source.dirty", FLAG, Value("false"), "true", "Whether files differed from the commit"),
];

/// The fields that a word means: the field of that path, and all below it. `limits` is a section, `limits.total` a field,
/// `notify[0].webhook` the field of one of a list.
pub fn named(word: &str) -> impl Iterator<Item = &'static Field> {
    // Indices are of a job, not of its form.
    let mut path = String::new();
    for (place, part) in word.split('[').enumerate() {
        path.push_str(match part.split_once(']') {
            Some((_, rest)) if place > 0 => rest,
            _ => part,
        });
    }
    let is_below = move |name: &str| {
        let plain = name.replace("[]", "");
        plain == path || plain.strip_prefix(&path).is_some_and(|rest| rest.starts_with('.'))
    };
    FIELDS.iter().filter(move |field| is_below(field.name))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;
    use crate::fixture::{open_deployment, small};
    use crate::spec::{JobSpec, ParseContext, limits, parse, recovery, source, tpu};

    /// A spec with one field more.
    fn with(field: &Field, value: &str) -> JobSpec {
        let value: serde_json::Value = serde_json::from_str(value).unwrap();
        let mut spec = small();
        // What a field needs beside it.
        match field.name {
            "tpu.reservation" => spec["tpu"]["capacity"] = json!("reserved"),
            "resume" if value != json!(false) => spec["checkpoint"] = json!("gs://bucket/ckpt/llama"),
            "limits.idle" | "workspace" if value != json!(false) => {
                spec = json!({"workspace": true, "tpu": {"accelerator": "v5litepod-16"}});
            }
            "notify[].events" | "notify[].shape" => spec["notify"] = json!([{"webhook": "https://example.com/"}]),
            _ => {}
        }
        let place = format!("/{}", field.name.replace("[]", "/0").replace('.', "/"));
        let mut at = &mut spec;
        for part in place.split('/').skip(1) {
            at = match part.parse::<usize>() {
                Ok(_) if at.is_null() => {
                    *at = json!([null]);
                    &mut at[0]
                }
                Ok(index) => &mut at[index],
                Err(_) => &mut at[part],
            };
        }
        *at = value;
        let deployment = open_deployment();
        let context = ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: false };
        parse(&spec, &context).unwrap_or_else(|faults| panic!("{}: {faults:?} of {spec}", field.name)).spec
    }

    #[test]
    fn each_field_of_the_parser_is_told_and_none_besides() {
        let sections: [(&str, &[&str]); 6] = [
            ("tpu.", tpu::FIELDS),
            ("recovery.", recovery::FIELDS),
            ("budgets.", limits::BUDGETS),
            ("limits.", limits::LIMITS),
            ("notify[].", super::super::parse::HOOK),
            ("source.", source::FIELDS),
        ];
        let is_section = |name: &str| {
            sections
                .iter()
                .any(|(section, _)| section.trim_end_matches("[].") == name || section.trim_end_matches('.') == name)
        };
        let top = super::super::parse::FIELDS.iter().filter(|name| !is_section(name)).map(|name| (*name).to_owned());
        let below =
            sections.iter().flat_map(|(section, names)| names.iter().map(move |name| format!("{section}{name}")));
        let known: BTreeSet<String> = top.chain(below).collect();
        let told: BTreeSet<String> = FIELDS.iter().map(|field| field.name.to_owned()).collect();
        assert_eq!(known, told);
    }

    #[test]
    fn each_example_is_accepted_and_each_default_is_what_absence_means() {
        let deployment = open_deployment();
        let context = ParseContext { deployment: &deployment, caller: "ann@example.com", caller_is_admin: false };
        let plain = parse(&small(), &context).unwrap().spec;
        for field in FIELDS {
            if field.example.is_empty() {
                assert!(field.meaning.contains("refused"), "{}", field.name);
            } else {
                with(field, field.example);
            }
            // A source without a folder is still a source.
            if let Absent::Value(default) = field.absent
                && !field.name.starts_with("source.")
            {
                assert_eq!(with(field, default), plain, "{}", field.name);
            }
        }
    }

    #[test]
    fn a_word_names_a_field_or_a_section() {
        let names = |word: &str| named(word).map(|field| field.name).collect::<Vec<_>>();
        assert_eq!(names("limits.total"), ["limits.total"]);
        assert_eq!(names("notify[3].shape"), ["notify[].shape"]);
        assert_eq!(names("notify").len(), 3);
        assert_eq!(names("lim"), [""; 0]);
        assert_eq!(names("tpu.zones[1]"), ["tpu.zones"]);
    }
}
