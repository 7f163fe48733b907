//! `resume`: a job that goes on from what another has left.

use super::*;

#[test]
fn it_needs_a_folder_that_another_job_may_have_filled() {
    let deployment = open_deployment();
    let mut spec = with(&["resume"], json!(true));
    for checkpoint in [Value::Null, json!({"us-central1": "gs://b"})] {
        spec["checkpoint"] = checkpoint;
        let (field, message) = fault(&deployment, &spec);
        assert_eq!(field, "resume");
        assert!(message.contains("needs in `checkpoint` the folder that the earlier job has left"), "{message}");
    }
    spec["checkpoint"] = json!("gs://b/old");
    assert!(good(&spec).resume);
    assert_eq!(fault(&deployment, &with(&["resume"], json!("yes"))).1, "must be true or false; it is text");
    let workspace = json!({
        "workspace": true, "resume": true, "checkpoint": "gs://b/old", "tpu": {"accelerator": "v5litepod-16"},
    });
    assert!(fault(&deployment, &workspace).1.starts_with("a workspace has no program"));
}

#[test]
fn it_is_part_of_what_the_job_is_and_its_absence_changes_no_hash() {
    let plain = good(&with(&["checkpoint"], json!("gs://b/old")));
    assert!(!serde_json::to_string(&plain).unwrap().contains("resume\":false"));
    let resumed = JobSpec { resume: true, ..plain.clone() };
    assert_ne!(hash(&plain), hash(&resumed));
    assert_eq!(serde_json::from_value::<JobSpec>(serde_json::to_value(&resumed).unwrap()).unwrap(), resumed);
}
