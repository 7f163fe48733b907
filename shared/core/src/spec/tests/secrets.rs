//! Secrets: which versions are taken, and whose jobs may read them.

use serde_json::json;

use super::{fault, good, parse_in, refuses};
use crate::access::{Access, Borrow};
use crate::fixture::{open_deployment, small, with};

const WANDB: &str = "projects/p/secrets/research-wandb/versions/latest";

#[test]
fn a_secret_is_a_variable_and_a_version() {
    let spec = good(&with(&["secrets"], json!({"WANDB_API_KEY": WANDB, "OTHER": "projects/7/secrets/o_2/versions/3"})));
    assert_eq!(spec.secrets["WANDB_API_KEY"], WANDB);
    assert_ne!(crate::spec::hash(&spec), crate::spec::hash(&good(&small())), "another job");
    for bad in [
        json!(7),
        json!("hush"),
        json!("projects/p/secrets/k"),
        json!("projects/p/secrets/k/versions/1/x"),
        json!("projects/p/secrets//versions/1"),
        json!("projects/p/secrets/../versions/1"),
        json!("projects/p/secrets/k/versions/1?alt=x"),
        json!("projects/p/secrets/k/versions/1:access#"),
    ] {
        refuses(&with(&["secrets"], json!({"K": bad})), "secrets.K", "projects/PROJECT/secrets/NAME/versions/latest");
    }
    refuses(&with(&["secrets"], json!(["K"])), "secrets", "an object of names");
    refuses(&with(&["secrets"], json!({"A=B": WANDB})), "secrets.A=B", "no name of a variable");
    refuses(&with(&["secrets"], json!({"REKINDLE_JOB": WANDB})), "secrets.REKINDLE_JOB", "is set by Rekindle");
    let many: serde_json::Map<_, _> = (0..51).map(|n| (format!("K{n}"), json!(WANDB))).collect();
    refuses(&with(&["secrets"], json!(many)), "secrets", "more than 50");
    let mut both = with(&["secrets"], json!({"K": WANDB}));
    both["env"] = json!({"K": "open"});
    refuses(&both, "secrets.K", "`env` too");
}

#[test]
fn only_what_is_lent_to_the_owner_may_be_read() {
    let lent = Borrow { secrets: vec!["projects/p/secrets/research-".into()], ..Borrow::default() };
    let mut deployment = open_deployment();
    let owner = good(&small()).owner;
    deployment.access = Access { rules: Vec::new(), borrow: [(owner, lent)].into() };
    assert!(parse_in(&deployment, &with(&["secrets"], json!({"K": WANDB}))).is_ok());
    let others = with(&["secrets"], json!({"K": "projects/p/secrets/sales-crm/versions/1"}));
    let (field, told) = fault(&deployment, &others);
    assert_eq!(field, "secrets.K");
    assert!(told.contains("sales-crm") && told.contains("is not lent to"), "{told}");
    deployment.bucket = "file:///state/bucket".into();
    let (field, told) = fault(&deployment, &others);
    assert_eq!(field, "secrets.K");
    assert!(told.contains("the local mode has no Secret Manager") && told.contains("`--env K`"), "{told}");
    deployment.bucket = open_deployment().bucket;
    deployment.access = Access::default();
    assert_eq!(fault(&deployment, &with(&["secrets"], json!({"K": WANDB}))).0, "secrets.K", "nothing by default");
}
