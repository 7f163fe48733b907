//! Every resource, attribute and block against the provider's schema: required ones present, none unknown.

use std::collections::BTreeMap;

use hcl::{Block, Body};
use serde::Deserialize;

use crate::files::{Module, label, modules};

/// The copy of the schema: for each resource its fields.
#[derive(Deserialize)]
pub(crate) struct Schema {
    pub(crate) resources: BTreeMap<String, BTreeMap<String, Field>>,
}

/// An attribute or a block.
#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Field {
    /// An attribute.
    Attribute(Need),
    /// A block with its own fields.
    Block { required: bool, block: BTreeMap<String, Field> },
}

#[derive(Deserialize, PartialEq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Need {
    Required,
    Optional,
}

/// What Terraform itself allows in every resource.
pub(crate) const META: &[&str] = &["count", "for_each", "depends_on", "provider", "lifecycle"];

/// The copied schema.
pub(crate) fn schema() -> Schema {
    serde_json::from_str(include_str!("../data/schema.json")).unwrap()
}

/// What the provider tells of a resource or data source beyond what is written into it.
#[derive(Deserialize)]
pub(crate) struct Computed {
    pub(crate) resources: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) data: BTreeMap<String, DataSource>,
}

/// A data source.
#[derive(Deserialize)]
pub(crate) struct DataSource {
    pub(crate) arguments: Vec<String>,
    pub(crate) values: BTreeMap<String, String>,
}

/// The computed attributes that are used, with templates of their values.
pub(crate) fn computed() -> Computed {
    serde_json::from_str(include_str!("../data/computed.json")).unwrap()
}

/// The blocks of a body with their names; `dynamic "x" { content {} }` counts as `x {}`.
fn blocks(body: &Body) -> Vec<(String, &Body)> {
    let plain = |b: &'_ Block| -> bool { b.identifier() != "dynamic" };
    let mut all = Vec::new();
    for block in body.blocks() {
        if plain(block) {
            all.push((block.identifier().to_owned(), block.body()));
            continue;
        }
        let content = block.body().blocks().find(|b| b.identifier() == "content");
        let content = content.unwrap_or_else(|| panic!("a dynamic {} without content", label(block, 0)));
        all.push((label(block, 0).to_owned(), content.body()));
    }
    all
}

fn check(at: &str, fields: &BTreeMap<String, Field>, body: &Body, faults: &mut Vec<String>, is_top: bool) {
    let is_meta = |name: &str| is_top && META.contains(&name);
    for attribute in body.attributes() {
        match fields.get(attribute.key()) {
            Some(Field::Attribute(_)) => {}
            Some(Field::Block { .. }) => faults.push(format!("{at}: {} is a block", attribute.key())),
            None if is_meta(attribute.key()) => {}
            None => faults.push(format!("{at}: no attribute {}", attribute.key())),
        }
    }
    let blocks = blocks(body);
    for (name, inner) in &blocks {
        match fields.get(name) {
            Some(Field::Block { block, .. }) => check(&format!("{at}.{name}"), block, inner, faults, false),
            Some(Field::Attribute(_)) => faults.push(format!("{at}: {name} is an attribute")),
            None if is_meta(name) => {}
            None => faults.push(format!("{at}: no block {name}")),
        }
    }
    for (name, field) in fields {
        let (needed, is_there) = match field {
            Field::Attribute(need) => (*need == Need::Required, body.attributes().any(|a| a.key() == name)),
            Field::Block { required, .. } => (*required, blocks.iter().any(|(n, _)| n == name)),
        };
        if needed && !is_there {
            faults.push(format!("{at}: {name} is missing"));
        }
    }
}

fn faults_of(module: &Module, schema: &Schema, computed: &Computed) -> Vec<String> {
    let mut faults = Vec::new();
    for block in module.of("resource") {
        let at = format!("{}: {}.{}", module.name(), label(block, 0), label(block, 1));
        match schema.resources.get(label(block, 0)) {
            Some(fields) => check(&at, fields, block.body(), &mut faults, true),
            None => faults.push(format!("{at}: no such resource")),
        }
    }
    for block in module.of("data") {
        let at = format!("{}: data.{}.{}", module.name(), label(block, 0), label(block, 1));
        let Some(source) = computed.data.get(label(block, 0)) else {
            faults.push(format!("{at}: no such data source"));
            continue;
        };
        for attribute in block.body().attributes() {
            if !source.arguments.iter().any(|a| a == attribute.key()) {
                faults.push(format!("{at}: no argument {}", attribute.key()));
            }
        }
    }
    faults
}

#[test]
fn every_resource_attribute_and_block_is_the_providers() {
    let (schema, computed) = (schema(), computed());
    let mut faults = Vec::new();
    let mut resources = 0;
    for module in modules() {
        resources += module.of("resource").count();
        faults.extend(faults_of(&module, &schema, &computed));
        for block in &module.blocks {
            let known = ["resource", "data", "variable", "output", "locals", "module", "terraform", "provider"];
            assert!(known.contains(&block.identifier()), "{}: a block {}", module.name(), block.identifier());
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(resources > 40, "only {resources} resources were looked at");
}

#[test]
fn faults_are_found() {
    let source = r#"
        resource "google_pubsub_subscription" "s" {
          name  = "s"
          tpoic = "t"
          push_config {
            oidc_token { audience = "a" }
          }
          dynamic "retry_policy" {
            for_each = [1]
            content { minimum = "1s" }
          }
          labels { a = "b" }
        }
        resource "google_pubsub_subject" "s" {}
    "#;
    let body: Body = hcl::parse(source).unwrap();
    let module = Module { dir: crate::files::infra(), blocks: body.into_blocks().collect() };
    let faults = faults_of(&module, &schema(), &computed()).join("\n");
    for fault in [
        "no attribute tpoic",
        "topic is missing",
        "push_config: push_endpoint is missing",
        "push_config.oidc_token: service_account_email is missing",
        "retry_policy: no attribute minimum",
        "labels is an attribute",
        "google_pubsub_subject.s: no such resource",
    ] {
        assert!(faults.contains(fault), "{fault}\n--\n{faults}");
    }
}
