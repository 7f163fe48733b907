//! `PATCH /v1/jobs/{id}`: tags and notes, also of a job that has ended.

use axum::extract::State;
use http::StatusCode;

use rekindle_core::access::Right;
use rekindle_core::spec::{LABEL_IS, TAGS_MAX, is_label};
use rekindle_engine::{Labelled, Labels};
use rekindle_web::problem::FieldFault;
use rekindle_web::{Caller, Json, Path, Problem, problem};
use rekindle_wire::v1::{JobView, LabelsBody};

use crate::jobs::{job_id, store};
use crate::{Api, access};

/// Longest notes, in bytes.
const NOTES_MAX: usize = 8 * 1024;

/// 200 the job.
pub(crate) async fn change(
    State(api): State<Api>,
    caller: Caller,
    Path(id): Path<String>,
    Json(body): Json<LabelsBody>,
) -> Result<axum::Json<JobView>, Problem> {
    let id = job_id(&id)?;
    check(&body)?;
    access::check(&api, &caller, Right::Submit, &id).await?;
    let labels = Labels { add: body.add_tags, remove: body.remove_tags, notes: body.notes };
    match api.engine.label(&id, &labels, &caller.identity).await {
        Ok(Labelled::Done(job)) => Ok(axum::Json(JobView::of(&job, &[]))),
        Ok(Labelled::TooMany(tags)) => {
            let message = format!("the job would have {tags} tags; at most {TAGS_MAX}: take others away first");
            Err(refused(vec![FieldFault { field: "add_tags".to_owned(), message }]))
        }
        Ok(Labelled::NoSuchJob) => Err(Problem::not_found(&format!("job {id}"))),
        Err(error) => Err(store(&error)),
    }
}

fn check(body: &LabelsBody) -> Result<(), Problem> {
    let mut faults = Vec::new();
    let mut fault = |field: &str, message: String| {
        faults.push(FieldFault { field: field.to_owned(), message });
    };
    if body.add_tags.len() > TAGS_MAX {
        fault("add_tags", format!("has more than {TAGS_MAX} tags"));
    }
    for tag in &body.add_tags {
        if !is_label(tag) {
            fault("add_tags", format!("a tag is {LABEL_IS}"));
        }
    }
    if body.notes.as_ref().is_some_and(|notes| notes.len() > NOTES_MAX || notes.contains('\0')) {
        fault("notes", format!("are text of at most {NOTES_MAX} bytes"));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(refused(faults))
}

fn refused(faults: Vec<FieldFault>) -> Problem {
    problem(StatusCode::BAD_REQUEST, "labels", "the labels cannot be used").with_errors(faults)
}
