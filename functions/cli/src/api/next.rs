//! What a person does next about an answer of the server that is no success.

use rekindle_core::job::Phase;
use rekindle_core::spec::fields;
use rekindle_wire::v1::Problem;
use reqwest::StatusCode;

use crate::commands::quoted;
use crate::human;

/// Sections and fields of a job that are about what can be had where.
const OFFERED: [&str; 8] = [
    "tpu.accelerator",
    "tpu.zones",
    "tpu.capacity",
    "tpu.queued",
    "tpu.reservation",
    "tpu.runtime_version",
    "tpu.topology",
    "tpu.slices",
];

/// The next step; `None`: nobody here knows better than the command's help. `path` is what was asked for.
pub(super) fn step(status: StatusCode, path: &str, problem: Option<&Problem>) -> Option<String> {
    let job = job_of(path);
    let text = match status {
        StatusCode::UNAUTHORIZED => "log in with `gcloud auth login`, or set REKINDLE_TOKEN",
        StatusCode::FORBIDDEN => "ask an administrator of this installation for the right to do this",
        StatusCode::NOT_FOUND if problem.is_none() => "check the address: what answers there is no Rekindle",
        StatusCode::NOT_FOUND if job.is_some() => "`rekindle ps` lists the jobs",
        StatusCode::CONFLICT if path == "/v1/jobs" => {
            let another = "choose another --id, or leave it out to get a new one".to_owned();
            return Some(match left(problem) {
                Some(options) => format!("{another}; with `{options}` that goes on from what the ended one has saved"),
                None => another,
            });
        }
        StatusCode::CONFLICT if path.ends_with("/exec") => {
            return Some(bring_up(job.unwrap_or("NAME"), phase(problem)));
        }
        StatusCode::CONFLICT => {
            let job = job.unwrap_or("JOB");
            let phase = phase(problem);
            let goes_on = left(problem).filter(|_| path.ends_with("/restart") || path.ends_with("/unpause"));
            return Some(if let Some(options) = goes_on {
                // Two programs that save in one folder spoil it.
                let then = if phase.is_some_and(Phase::is_terminal) {
                    format!("`rekindle explain {job}` tells why it ended")
                } else {
                    format!("begin it once `rekindle show {job}` says that it has ended, for it may save until then")
                };
                format!(
                    "`rekindle run {options}`, with the job file or --tpu and the program as before, goes on from what \
                     {job} has saved; {then}"
                )
            } else if phase.is_some_and(Phase::is_terminal) {
                format!("`rekindle explain {job}` tells why it ended; `rekindle run` with another --id runs it again")
            } else {
                format!("`rekindle explain {job}` tells what it does now")
            });
        }
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY if path == "/v1/jobs" => {
            return Some(submit(problem));
        }
        StatusCode::BAD_REQUEST if path.ends_with("/exec") && is_about_worker(problem) => {
            "name one that is there with --worker, or leave it out for all of them"
        }
        StatusCode::BAD_REQUEST if path.ends_with("/logs") => {
            return Some(format!("`rekindle show {}` tells its TPU and attempts", job.unwrap_or("JOB")));
        }
        StatusCode::PAYLOAD_TOO_LARGE => "make it smaller: what is large belongs into a bucket",
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::GONE => "compare `rekindle version` on both sides",
        _ if status.is_redirection() => {
            "check the address: what answers there sends elsewhere, as a login page or a proxy does"
        }
        StatusCode::SERVICE_UNAVAILABLE if problem.is_some_and(|problem| problem.ty.ends_with(":disk-full")) => {
            "make room on that disk, and run the command again"
        }
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            "try again in a few seconds; if it stays, `rekindle doctor` tells why (of `rekindle dev --state FOLDER`, with the same --state)"
        }
        _ if status.is_server_error() => "try again; if it stays, the server's log tells why",
        _ => return None,
    };
    Some(text.to_owned())
}

/// The phase that a refusal tells.
fn phase(problem: Option<&Problem>) -> Option<Phase> {
    problem.and_then(|problem| problem.more.get("phase")?.as_str()).and_then(Phase::parse)
}

/// The options with which a new job goes on from the checkpoints that an ended one has left, if a refusal names their place.
fn left(problem: Option<&Problem>) -> Option<String> {
    let folder = problem?.more.get("checkpoint")?.as_str()?;
    Some(format!("--resume --checkpoint {}", quoted(&human::tame(folder))))
}

/// What gives a workspace workers again.
fn bring_up(name: &str, phase: Option<Phase>) -> String {
    match phase {
        Some(Phase::Stopping) => format!(
            "`rekindle up {name}` brings it back once it is paused; if it ends, give `up` its definition again, with --tpu"
        ),
        Some(Phase::Succeeded | Phase::Failed | Phase::Cancelled) => {
            format!(
                "`rekindle up {name}` tells how one as it was is made; `rekindle explain {name}` tells why it ended"
            )
        }
        Some(
            Phase::Pending | Phase::Provisioning | Phase::Starting | Phase::Running | Phase::Recovering | Phase::Paused,
        )
        | None => format!("`rekindle up {name}` brings it up, and waits until it can be used"),
    }
}

/// The job that a path is of.
pub(super) fn job_of(path: &str) -> Option<&str> {
    path.strip_prefix("/v1/jobs/")?.split('/').next()
}

fn is_about_worker(problem: Option<&Problem>) -> bool {
    problem.is_some_and(|problem| problem.ty.ends_with(":worker"))
}

/// By the fields that are wrong: where it is told what stands in each.
fn submit(problem: Option<&Problem>) -> String {
    let wrong = problem.map_or(&[][..], |problem| problem.errors.as_slice());
    let offered = |field: &str| OFFERED.iter().any(|known| field == *known || field.starts_with(&format!("{known}[")));
    let mut told = Vec::new();
    if wrong.iter().any(|fault| offered(&fault.field) || fault.field == "tpu") {
        told.push("`rekindle catalog` shows what can be asked for".to_owned());
    }
    let mut sections: Vec<&str> = wrong
        .iter()
        .filter(|fault| !offered(&fault.field))
        .filter_map(|fault| fault.field.split(['.', '[']).next())
        .filter(|section| fields::named(section).next().is_some())
        .collect();
    sections.sort_unstable();
    sections.dedup();
    match sections.as_slice() {
        [] if !told.is_empty() => {}
        [one] => told.push(format!("`rekindle fields {one}` tells what stands there")),
        _ => told.push("`rekindle fields` tells what stands in each field".to_owned()),
    }
    // Most often it is a program on the command line alone.
    let lacks_tpu = wrong.iter().any(|fault| fault.field == "tpu" && fault.message.starts_with("is missing"));
    let what = if lacks_tpu {
        "give --tpu TYPE, such as --tpu v5litepod-8, or `tpu:` in the job file"
    } else {
        "change the job and submit it again"
    };
    format!("{what}; {}", told.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(fields: &[&str], phase: Option<&str>) -> Problem {
        let errors: Vec<_> = fields.iter().map(|field| json!({"field": field, "message": "is wrong"})).collect();
        let mut value = json!({"type": "t", "title": "t", "status": 400, "detail": "d", "errors": errors});
        if let Some(phase) = phase {
            value["phase"] = json!(phase);
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_refused_job_is_told_where_the_field_is_told_of() {
        for (fields, told, not) in [
            (&["tpu.zones[1]"][..], "`rekindle catalog`", "`rekindle fields"),
            (&["limits.total"], "`rekindle fields limits` tells", "catalog"),
            (&["notify[0].webhook"], "`rekindle fields notify` tells", "catalog"),
            (&["tpu.labels.x"], "`rekindle fields tpu` tells", "catalog"),
            (&["run", "env.LR"], "`rekindle fields` tells", "catalog"),
            (&["colour"], "`rekindle fields` tells", "catalog"),
            (
                &["tpu.accelerator", "limits.total"],
                "`rekindle catalog` shows what can be asked for, `rekindle fields l",
                "x",
            ),
        ] {
            let step = step(StatusCode::BAD_REQUEST, "/v1/jobs", Some(&problem(fields, None))).unwrap();
            assert!(step.contains(told) && !step.contains(not), "{fields:?}: {step}");
        }
    }

    #[test]
    fn a_job_without_a_tpu_is_told_the_option_first() {
        let mut lacks = problem(&["tpu"], None);
        lacks.errors[0].message = "is missing; give at least `tpu: {accelerator: v5litepod-8}`".into();
        let told = step(StatusCode::BAD_REQUEST, "/v1/jobs", Some(&lacks)).unwrap();
        assert!(told.starts_with("give --tpu TYPE, such as --tpu v5litepod-8,"), "{told}");
        assert!(told.contains("; `rekindle catalog` shows what can be asked for"), "{told}");
    }

    #[test]
    fn a_workspace_without_workers_is_brought_back_as_its_phase_allows() {
        let told = |phase| step(StatusCode::CONFLICT, "/v1/jobs/dev/exec", Some(&problem(&[], Some(phase)))).unwrap();
        for phase in ["paused", "starting"] {
            assert_eq!(told(phase), "`rekindle up dev` brings it up, and waits until it can be used");
        }
        assert!(
            told("stopping").starts_with("`rekindle up dev` brings it back once it is paused"),
            "{}",
            told("stopping")
        );
        assert!(told("failed").starts_with("`rekindle up dev` tells how one as it was is made"), "{}", told("failed"));
    }

    #[test]
    fn a_full_disk_is_made_room_on() {
        let full: Problem = serde_json::from_value(
            json!({"type": "urn:rekindle:problem:disk-full", "title": "t", "status": 503, "detail": "d"}),
        )
        .unwrap();
        let told = |problem| step(StatusCode::SERVICE_UNAVAILABLE, "/v1/jobs", problem).unwrap();
        assert_eq!(told(Some(&full)), "make room on that disk, and run the command again");
        assert!(told(None).contains("`rekindle doctor`"));
    }

    #[test]
    fn of_an_ended_job_the_command_is_named_that_goes_on_from_its_checkpoint() {
        let mut ended = problem(&[], Some("failed"));
        ended.more.insert("checkpoint".into(), json!("gs://b/my jobs/a-1"));
        let told = |path| step(StatusCode::CONFLICT, path, Some(&ended)).unwrap();
        for path in ["/v1/jobs/a-1/restart", "/v1/jobs/a-1/unpause"] {
            let told = told(path);
            assert!(told.starts_with("`rekindle run --resume --checkpoint 'gs://b/my jobs/a-1'`, with"), "{told}");
            assert!(told.ends_with("`rekindle explain a-1` tells why it ended"), "{told}");
        }
        let mut stopping = problem(&[], Some("stopping"));
        stopping.more.insert("checkpoint".into(), json!("gs://b/a-1"));
        let told_early = step(StatusCode::CONFLICT, "/v1/jobs/a-1/restart", Some(&stopping)).unwrap();
        assert!(told_early.starts_with("`rekindle run --resume --checkpoint gs://b/a-1`, with"), "{told_early}");
        assert!(
            told_early
                .ends_with("begin it once `rekindle show a-1` says that it has ended, for it may save until then")
        );
        let same_id = told("/v1/jobs");
        assert!(same_id.contains("another --id") && same_id.contains("`--resume --checkpoint 'gs://"), "{same_id}");
        assert!(!told("/v1/jobs/a-1/cancel").contains("--resume"), "{}", told("/v1/jobs/a-1/cancel"));
    }

    #[test]
    fn a_command_that_makes_no_sense_names_the_job_again() {
        let told = |phase| step(StatusCode::CONFLICT, "/v1/jobs/a-1/pause", Some(&problem(&[], Some(phase)))).unwrap();
        assert!(
            told("failed").contains("`rekindle explain a-1` tells why it ended; `rekindle run`"),
            "{}",
            told("failed")
        );
        assert_eq!(told("pending"), "`rekindle explain a-1` tells what it does now");
    }
}
