//! A real `terraform plan` of the example, with each resource of the provider replaced by Terraform's own `terraform_data`.
//!
//! No provider can be had without a network, but Terraform itself can judge types, conditions, keys that must be known beforehand, and cycles.
//! A resource becomes `terraform_data.TYPE__NAME` whose `input` holds what is written into it; what only the provider would know is read
//! from `output`, which is unknown while planning, as in the cloud.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use hcl_edit::structure::{Block, Body, Structure};
use regex::{Captures, Regex};

use crate::files::{Module, infra, modules};
use crate::plan::{example, example_variables, tfvars};
use crate::schema::{Computed, META, Schema, computed, schema};
use crate::tools::skip;

fn label(block: &Block, n: usize) -> &str {
    block.labels[n].as_str()
}

fn attribute(body: &Body, name: &str) -> Option<String> {
    body.attributes().find(|a| a.key.as_str() == name).map(|a| a.value.to_string())
}

/// What a body says, as an object; each block is a list.
fn object(body: &Body) -> String {
    let mut text = String::from("{\n");
    for attribute in body.attributes().filter(|a| !META.contains(&a.key.as_str())) {
        let _ = writeln!(text, "{} = {}", attribute.key.as_str(), attribute.value);
    }
    let mut names: Vec<&str> = Vec::new();
    for block in body.blocks().filter(|b| b.ident.as_str() != "lifecycle") {
        let name = if block.ident.as_str() == "dynamic" { label(block, 0) } else { block.ident.as_str() };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    for name in names {
        let plain = body.blocks().filter(|b| b.ident.as_str() == name).map(|b| format!("[{}]", object(&b.body)));
        let dynamic = body.blocks().filter(|b| b.ident.as_str() == "dynamic" && label(b, 0) == name).map(dynamic);
        let _ = writeln!(text, "{name} = concat({})", plain.chain(dynamic).collect::<Vec<_>>().join(", "));
    }
    text + "}"
}

/// Fields of an object, a line each.
fn fields<'a>(all: impl Iterator<Item = (&'a str, String)>) -> String {
    all.fold(String::new(), |text, (name, value)| text + name + " = " + &value + "\n")
}

fn dynamic(block: &Block) -> String {
    let content = block.body.blocks().find(|b| b.ident.as_str() == "content").unwrap();
    let each = attribute(&block.body, "for_each").unwrap();
    let name = label(block, 0);
    let inner = object(&content.body);
    let inner =
        Regex::new(&format!(r"\b{name}\.(key|value)\b")).unwrap().replace_all(&inner, format!("${{1}}_of_{name}"));
    format!("[for key_of_{name}, value_of_{name} in {each} : {inner}]")
}

fn resource(block: &Block, computed: &Computed) -> String {
    let (ty, name) = (label(block, 0), label(block, 1));
    let mut text = format!("resource \"terraform_data\" \"{ty}__{name}\" {{\n");
    for meta in ["count", "for_each", "depends_on"] {
        if let Some(expr) = attribute(&block.body, meta) {
            let _ = writeln!(text, "{meta} = {expr}");
        }
    }
    for block in block.body.blocks().filter(|b| b.ident.as_str() == "lifecycle") {
        let _ = writeln!(text, "lifecycle {{\n{}}}", block.body);
    }
    let known = computed.resources.get(ty).into_iter().flatten();
    let known = fields(known.map(|(name, _)| (name.as_str(), "\"unknown\"".to_owned())));
    let _ = writeln!(text, "input = merge({{\nid = \"unknown\"\n{known}}}, {})\n}}", object(&block.body));
    text
}

fn data(block: &Block, computed: &Computed) -> String {
    let (ty, name) = (label(block, 0), label(block, 1));
    let values = &computed.data[ty].values;
    let values = fields(values.iter().map(|(name, value)| (name.as_str(), format!("\"{value}\""))));
    format!("resource \"terraform_data\" \"data_{ty}__{name}\" {{\ninput = {{\n{values}}}\n}}\n")
}

/// References to resources, in the text of a module.
fn refer(text: &str, schema: &Schema, computed: &Computed) -> String {
    let data = Regex::new(r"\bdata\.(google_\w+)\.(\w+)\.(\w+)").unwrap();
    let text = data.replace_all(text, "terraform_data.data_${1}__$2.input.$3");
    let reference = Regex::new(r"\b(google_\w+)\.(\w+)(\[[^\]]*\])?(?:\.(\w+))?").unwrap();
    let text = reference.replace_all(&text, |found: &Captures<'_>| {
        let (ty, name) = (&found[1], &found[2]);
        let base = format!("terraform_data.{ty}__{name}{}", found.get(3).map_or("", |m| m.as_str()));
        match found.get(4).map(|m| m.as_str()) {
            // `id` is in the schema, but nobody writes it.
            Some(name) if name != "id" && schema.resources[ty].contains_key(name) => format!("{base}.input.{name}"),
            Some(name) => format!("{base}.output.{name}"),
            None => base,
        }
    });
    // All instances: what is iterated over has the attributes one level down.
    let all = Regex::new(r"in terraform_data\.(google_\w+?)__(\w+)( |\n)").unwrap();
    all.replace_all(&text, |found: &Captures<'_>| {
        let (ty, name, space) = (&found[1], &found[2], &found[3]);
        let known = computed.resources.get(ty).into_iter().flat_map(|c| c.keys()).map(String::as_str);
        let known = fields(known.chain(["id"]).map(|n| (n, format!("r.output.{n}"))));
        format!("in {{for k, r in terraform_data.{ty}__{name} : k => merge(r.input, {{\n{known}}})}}{space}")
    })
    .into_owned()
}

fn write(module: &Module, to: &Path, schema: &Schema, computed: &Computed) {
    let mut text = String::new();
    for file in std::fs::read_dir(&module.dir).unwrap().map(|e| e.unwrap().path()) {
        if file.extension().is_none_or(|e| e != "tf") {
            continue;
        }
        let body: Body = std::fs::read_to_string(file).unwrap().parse().unwrap();
        for block in body.blocks() {
            match block.ident.as_str() {
                "terraform" | "provider" => {}
                "resource" => text.push_str(&resource(block, computed)),
                "data" => text.push_str(&data(block, computed)),
                _ => text.push_str(&Body::from_iter([Structure::from(block.clone())]).to_string()),
            }
        }
    }
    std::fs::create_dir_all(to).unwrap();
    std::fs::write(to.join("main.tf"), refer(&text, schema, computed)).unwrap();
}

/// The standing configuration of all modules, in the same folders.
fn stand_ins() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (schema, computed) = (schema(), computed());
    for module in modules() {
        let below = module.dir.strip_prefix(infra()).unwrap();
        write(&module, &folder.path().join(below), &schema, &computed);
    }
    std::fs::copy(infra().join("firestore.indexes.json"), folder.path().join("firestore.indexes.json")).unwrap();
    folder
}

fn terraform(at: &Path, words: &[&str]) -> Option<(bool, String)> {
    let mut command = Command::new("terraform");
    command
        .arg(format!("-chdir={}", at.display()))
        .args(words)
        .env("CHECKPOINT_DISABLE", "1")
        .env("TF_IN_AUTOMATION", "1");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{error}"),
    };
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Some((output.status.success(), said))
}

/// Plans `below`, a folder of `infra/`, with these variables; what Terraform says, and whether it is content.
pub(crate) fn planned(below: &str, variables: &str) -> Option<(bool, String)> {
    let folder = stand_ins();
    let at = folder.path().join(below);
    let (is_ready, said) = terraform(&at, &["init", "-no-color", "-input=false"])?;
    assert!(is_ready, "{said}");
    std::fs::write(at.join("terraform.tfvars"), variables).unwrap();
    terraform(&at, &["plan", "-no-color", "-input=false", "-lock=false"])
}

#[test]
fn terraform_plans_the_example() {
    let variables = hcl::to_string(&example_variables()).unwrap();
    let Some((is_content, said)) = planned("envs/example", &variables) else {
        return skip("terraform is not installed");
    };
    assert!(is_content, "{said}");
    // As many as our own plan makes, and the project's data.
    let count = example().resources.len() + 1;
    assert!(said.contains(&format!("Plan: {count} to add, 0 to change, 0 to destroy.")), "{count}: {said}");
}

#[test]
fn terraform_plans_the_example_with_everything_optional_off() {
    let mut variables = example_variables();
    for name in ["publishers", "worker_accounts", "worker_prefixes", "worker_secrets"] {
        variables.shift_remove(name);
    }
    variables.insert("nat".into(), false.into());
    variables.insert("budget".into(), false.into());
    variables.insert("alerts".into(), false.into());
    if let Some((is_content, said)) = planned("envs/example", &hcl::to_string(&variables).unwrap()) {
        assert!(is_content, "{said}");
        assert!(said.contains("Plan: "), "{said}");
    } else {
        skip("terraform is not installed");
    }
}

#[test]
fn terraform_plans_the_example_with_what_is_off_by_default() {
    let mut variables = example_variables();
    variables.insert("tick_absence".into(), true.into());
    if let Some((is_content, said)) = planned("envs/example", &hcl::to_string(&variables).unwrap()) {
        let count = example().resources.len() + 2;
        assert!(is_content && said.contains(&format!("Plan: {count} to add,")), "{count}: {said}");
    } else {
        skip("terraform is not installed");
    }
}

#[test]
fn terraform_plans_bootstrap() {
    for (locations, zone) in [
        (r#"["us-central1"]"#, "us-central1-a"),
        (r#"["EU"]"#, "europe-west4-b"),
        (r#"["us-central1", "us-west1"]"#, "us-west1-c"),
    ] {
        let Some((is_content, said)) = planned("envs/example/bootstrap", &of_bootstrap(locations, zone)) else {
            return skip("terraform is not installed");
        };
        assert!(is_content, "{locations}: {said}");
    }
}

/// Variables of bootstrap, and one more of an entry's fields than it looks at.
fn of_bootstrap(locations: &str, zone: &str) -> String {
    format!(
        "project = \"p\"\nregion = \"us-central1\"\nbucket_locations = {locations}\n\
         capacity = [{{ zone = \"{zone}\", kind = \"spot\" }}]\n"
    )
}

#[test]
fn bootstrap_makes_no_bucket_that_no_zone_could_use() {
    let outside = of_bootstrap(r#"["us-central1"]"#, "us-west4-a");
    let empty = outside.replace("{ zone = \"us-west4-a\", kind = \"spot\" }", "");
    for variables in [outside, empty] {
        let Some((is_content, said)) = planned("envs/example/bootstrap", &variables) else {
            return skip("terraform is not installed");
        };
        assert!(!is_content && said.contains("No zone of capacity lies in bucket_locations"), "{variables}: {said}");
    }
}

/// Whether Terraform refuses the example with other values of some variables, with each of these words.
pub(crate) fn refuses(other: &str, words: &[&str]) {
    let mut variables = example_variables();
    variables.extend(tfvars(other));
    let Some((is_content, said)) = planned("envs/example", &hcl::to_string(&variables).unwrap()) else {
        return skip("terraform is not installed");
    };
    // Terraform breaks lines.
    let said = said.split_whitespace().filter(|word| *word != "│").collect::<Vec<_>>().join(" ");
    for words in words {
        assert!(!is_content && said.contains(words), "{words}: {said}");
    }
}

#[test]
fn terraform_refuses_wrong_variables() {
    refuses(r#"max_chips = "many""#, &["max_chips"]);
    let entry = r#"{ accelerator = "v5litepod-*", kind = "spot", zone = "us-west4-a", usd_per_chip_hour = "#;
    refuses(
        &format!("region = \"us-central1-a\"\nmax_chips = -64\nmax_usd_per_day = -5\ncapacity = [{entry} -1 }}]"),
        &[
            "us-central1-a is a zone",
            "A whole number of chips",
            "Not below zero",
            "usd_per_chip_hour may not be below zero",
            "No zone of capacity lies in bucket_locations",
        ],
    );
    let unknown = entry.replace("us-west4-a", "us-west9-a");
    refuses(
        &format!("bucket_locations = [\"US\"]\ncapacity = [{unknown} 1 }}]"),
        &["has no number for one of these regions: us-west9"],
    );
    let policy = r#"policy = {
        rules  = [{ who = ["group:a@example.com"], whose = ["re*"], may = ["look"] }]
        borrow = { research = { secrets = ["secrets/x"] } }
    }"#;
    refuses(
        policy,
        &["Rights are see", "who and whose have whole names, without", "Secrets are lent by how their names begin"],
    );
}
