//! What the configuration would make: a small `terraform plan` without providers.
//!
//! Everything is evaluated as soon as what it refers to is known, until nothing is left; what is left then refers to something that is not there.
//! Attributes that only the provider knows come from `data/computed.json`, as templates of the resource's own attributes.

use std::collections::BTreeMap;
use std::path::Path;

use hcl::eval::{Context, Evaluate};
use hcl::{Block, Body, Expression, Map, Value};

use crate::files::{Module, attribute, infra, label};
use crate::functions;
use crate::schema::{Computed, META, computed};

/// One instance of a resource.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    /// Such as `module.trigger.google_pubsub_topic.topic["jobs"]`.
    pub(crate) address: String,
    /// Type.
    pub(crate) ty: String,
    /// What it would be made with; each block is a list.
    pub(crate) values: serde_json::Value,
}

/// All resources.
#[derive(Debug)]
pub(crate) struct Plan {
    /// In no order.
    pub(crate) resources: Vec<Planned>,
}

impl Plan {
    /// The resources of a type.
    pub(crate) fn of<'a>(&'a self, ty: &'a str) -> impl Iterator<Item = &'a Planned> + 'a {
        self.resources.iter().filter(move |r| r.ty == ty)
    }

    /// The resource with this type and value of `name`.
    pub(crate) fn named(&self, ty: &str, name: &str) -> &Planned {
        self.named_by(ty, "name", name)
    }

    /// The resource with this type and value of an attribute.
    pub(crate) fn named_by(&self, ty: &str, attribute: &str, value: &str) -> &Planned {
        let found = self.resources.iter().find(|r| r.ty == ty && r.values[attribute] == value);
        found.unwrap_or_else(|| panic!("no {ty} with {attribute} {value}"))
    }
}

/// A module that is called, or the root.
struct Instance {
    prefix: String,
    module: Module,
    caller: Option<(usize, Block)>,
    scope: BTreeMap<String, Map<String, Value>>,
}

/// One thing to evaluate.
#[derive(Clone)]
enum Unit {
    Variable(Block),
    Local(String, Expression),
    Data(Block),
    Resource(Block),
    Output(Block),
}

impl Unit {
    fn describe(&self) -> String {
        match self {
            Self::Variable(b) => format!("var.{}", label(b, 0)),
            Self::Local(name, _) => format!("local.{name}"),
            Self::Data(b) => format!("data.{}.{}", label(b, 0), label(b, 1)),
            Self::Resource(b) => format!("{}.{}", label(b, 0), label(b, 1)),
            Self::Output(b) => format!("output.{}", label(b, 0)),
        }
    }
}

fn units(module: &Module) -> Vec<Unit> {
    let mut all = Vec::new();
    for block in &module.blocks {
        match block.identifier() {
            "variable" => all.push(Unit::Variable(block.clone())),
            "data" => all.push(Unit::Data(block.clone())),
            "resource" => all.push(Unit::Resource(block.clone())),
            "output" => all.push(Unit::Output(block.clone())),
            "locals" => {
                all.extend(block.body().attributes().map(|a| Unit::Local(a.key().to_owned(), a.expr().clone())));
            }
            _ => {}
        }
    }
    all
}

/// The plan of a root module with these variables.
pub(crate) fn plan(root: &Path, variables: &Map<String, Value>) -> Plan {
    let mut planner = Planner { instances: Vec::new(), variables, computed: computed(), resources: Vec::new() };
    planner.enter("", Module::read(root), None);
    planner.run();
    Plan { resources: planner.resources }
}

/// The example environment with every optional list filled, so that each edge is there.
pub(crate) fn example() -> Plan {
    plan(&infra().join("envs/example"), &example_variables())
}

/// What must be there before the example: its own root module.
pub(crate) fn bootstrap() -> Plan {
    let variables = tfvars(
        r#"
        project          = "my-project"
        region           = "us-central1"
        bucket_locations = ["us-central1", "us-west1"]
        capacity         = [{ zone = "us-central1-a" }]
    "#,
    );
    plan(&infra().join("envs/example/bootstrap"), &variables)
}

/// The variables of `example.tfvars`, of a release, and of every optional list.
pub(crate) fn example_variables() -> Map<String, Value> {
    let mut variables = tfvars(&std::fs::read_to_string(infra().join("envs/example/example.tfvars")).unwrap());
    variables.extend(tfvars(&format!(
        r#"
        image           = "us-central1-docker.pkg.dev/my-project/rekindle/server@sha256:{0}"
        agent_sha256    = "{0}"
        publishers      = ["cron@my-project.iam.gserviceaccount.com"]
        worker_accounts = ["research@my-project.iam.gserviceaccount.com"]
        worker_prefixes = {{ "research@my-project.iam.gserviceaccount.com" = "research-" }}
        worker_secrets  = ["wandb", "research-key", "other-key"]
        policy = {{
          rules  = [{{ who = ["*"], whose = ["*"], may = ["see"] }}]
          borrow = {{
            "bob@example.com" = {{
              service_accounts = ["research@my-project.iam.gserviceaccount.com"]
              secrets          = ["projects/my-project/secrets/research-"]
            }}
            "eve@example.com" = {{ service_accounts = [], secrets = ["projects/my-project/secrets/other-key/versions/2"] }}
          }}
        }}
        "#,
        "5".repeat(64)
    )));
    variables
}

/// A file of variables.
pub(crate) fn tfvars(source: &str) -> Map<String, Value> {
    hcl::from_str(source).unwrap()
}

struct Planner<'a> {
    instances: Vec<Instance>,
    variables: &'a Map<String, Value>,
    computed: Computed,
    resources: Vec<Planned>,
}

impl Planner<'_> {
    fn enter(&mut self, prefix: &str, module: Module, caller: Option<(usize, Block)>) {
        let calls: Vec<Block> = module.of("module").cloned().collect();
        let path = Map::from_iter([("module".to_owned(), Value::from(module.dir.display().to_string()))]);
        let mut scope = BTreeMap::from([("path".to_owned(), path)]);
        for root in ["var", "local", "module", "data"] {
            scope.insert(root.into(), Map::new());
        }
        let dir = module.dir.clone();
        self.instances.push(Instance { prefix: prefix.to_owned(), module, caller, scope });
        let own = self.instances.len() - 1;
        for call in calls {
            let Some(Expression::String(source)) = attribute(call.body(), "source") else {
                panic!("{prefix}: module {} has no source", label(&call, 0))
            };
            let name = label(&call, 0).to_owned();
            self.put(own, "module", &name, Value::Object(Map::new()));
            let inner = Module::read(&dir.join(source));
            self.enter(&format!("{prefix}module.{name}."), inner, Some((own, call)));
        }
    }

    fn put(&mut self, at: usize, root: &str, name: &str, value: Value) {
        self.instances[at].scope.entry(root.to_owned()).or_default().insert(name.to_owned(), value);
    }

    fn run(&mut self) {
        let mut left: Vec<(usize, Unit)> = Vec::new();
        for (at, instance) in self.instances.iter().enumerate() {
            left.extend(units(&instance.module).into_iter().map(|u| (at, u)));
        }
        loop {
            let before = left.len();
            let mut open = Vec::new();
            let mut whys = Vec::new();
            for (at, unit) in left {
                if let Err(why) = self.evaluate(at, &unit) {
                    whys.push(format!("{}{}: {why}", self.instances[at].prefix, unit.describe()));
                    open.push((at, unit));
                }
            }
            if open.is_empty() {
                return;
            }
            assert!(open.len() < before, "cannot be evaluated:\n{}", whys.join("\n"));
            left = open;
        }
    }

    fn context(&self, at: usize) -> Context<'static> {
        let mut context = Context::new();
        functions::declare(&mut context);
        for (name, map) in &self.instances[at].scope {
            context.declare_var(name.as_str(), Value::Object(map.clone()));
        }
        context
    }

    fn evaluate(&mut self, at: usize, unit: &Unit) -> Result<(), String> {
        let context = self.context(at);
        match unit {
            Unit::Variable(block) => self.variable(at, block),
            Unit::Local(name, expr) => {
                let value = expr.evaluate(&context).map_err(|e| e.to_string())?;
                self.put(at, "local", name, value);
                Ok(())
            }
            Unit::Data(block) => {
                let (ty, name) = (label(block, 0), label(block, 1));
                let Value::Object(mut values) = body_value(block.body(), &context)? else { return Ok(()) };
                let known = self.computed.data.get(ty).ok_or_else(|| format!("no data source {ty}"))?;
                values.extend(known.values.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))));
                let mut named = self.instances[at].scope["data"].get(ty).cloned().unwrap_or(Value::Object(Map::new()));
                named.as_object_mut().unwrap().insert(name.to_owned(), values.into());
                self.put(at, "data", ty, named);
                Ok(())
            }
            Unit::Resource(block) => self.resource(at, block, &context),
            Unit::Output(block) => {
                let expr = attribute(block.body(), "value").ok_or("has no value")?;
                let value = expr.evaluate(&context).map_err(|e| e.to_string())?;
                if let Some((caller, call)) = self.instances[at].caller.clone() {
                    let modules = self.instances[caller].scope.get_mut("module").unwrap();
                    let outputs = modules.get_mut(label(&call, 0)).unwrap().as_object_mut().unwrap();
                    outputs.insert(label(block, 0).to_owned(), value);
                }
                Ok(())
            }
        }
    }

    fn variable(&mut self, at: usize, block: &Block) -> Result<(), String> {
        let name = label(block, 0);
        let given = match &self.instances[at].caller {
            Some((caller, call)) => match attribute(call.body(), name) {
                Some(expr) => Some(expr.evaluate(&self.context(*caller)).map_err(|e| e.to_string())?),
                None => None,
            },
            None => self.variables.get(name).cloned(),
        };
        let value = match (given, attribute(block.body(), "default")) {
            (Some(value), _) => value,
            (None, Some(default)) => default.evaluate(&Context::new()).map_err(|e| e.to_string())?,
            (None, None) => return Err("is not given and has no default".into()),
        };
        let value = attribute(block.body(), "type").map_or_else(|| value.clone(), |ty| typed(ty, value.clone()));
        self.put(at, "var", name, value);
        for validation in block.body().blocks().filter(|b| b.identifier() == "validation") {
            let condition = attribute(validation.body(), "condition").ok_or("a validation without condition")?;
            let holds = condition.evaluate(&self.context(at)).map_err(|e| e.to_string())?;
            let message = attribute(validation.body(), "error_message").map(ToString::to_string).unwrap_or_default();
            if holds != Value::Bool(true) {
                return Err(format!("is refused: {message}"));
            }
        }
        Ok(())
    }

    fn resource(&mut self, at: usize, block: &Block, context: &Context<'_>) -> Result<(), String> {
        let (ty, name) = (label(block, 0).to_owned(), label(block, 1).to_owned());
        let base = format!("{}{ty}.{name}", self.instances[at].prefix);
        // What must be there first is part of the graph, which must have no cycle.
        if let Some(expr) = attribute(block.body(), "depends_on") {
            expr.evaluate(context).map_err(|e| e.to_string())?;
        }
        let mut made: Vec<(Option<Value>, Planned)> = Vec::new();
        for (key, extra) in keys(block, context)? {
            let mut inner = context.clone();
            if let Some((variable, value)) = extra {
                inner.declare_var(variable, value);
            }
            let Value::Object(mut values) = body_value(block.body(), &inner)? else { return Err("no body".into()) };
            let own = values.clone();
            for (attribute, template) in self.computed.resources.get(&ty).into_iter().flatten() {
                values.entry(attribute.clone()).or_insert_with(|| Value::from(fill(template, &own)));
            }
            let address = key.as_ref().map_or_else(|| base.clone(), |k| format!("{base}[{k}]"));
            let values = serde_json::to_value(&values).map_err(|e| e.to_string())?;
            made.push((key, Planned { address, ty: ty.clone(), values }));
        }
        let value = |p: &Planned| serde_json::from_value::<Value>(p.values.clone()).unwrap();
        let whole = match made.as_slice() {
            [(None, one)] => value(one),
            many if attribute(block.body(), "count").is_some() => {
                many.iter().map(|(_, p)| value(p)).collect::<Vec<_>>().into()
            }
            many => {
                let key = |k: &Option<Value>| k.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
                Value::Object(many.iter().map(|(k, p)| (key(k), value(p))).collect())
            }
        };
        self.resources.extend(made.into_iter().map(|(_, planned)| planned));
        self.put(at, &ty, &name, whole);
        Ok(())
    }
}

/// A value with the optional attributes of its type that it does not say, as Terraform adds them.
fn typed(ty: &Expression, value: Value) -> Value {
    let Expression::FuncCall(call) = ty else { return value };
    let inner = &call.args[0];
    match (call.name.name.as_str(), value) {
        ("list" | "set", Value::Array(items)) => items.into_iter().map(|item| typed(inner, item)).collect(),
        ("map", Value::Object(fields)) => {
            Value::Object(fields.into_iter().map(|(key, field)| (key, typed(inner, field))).collect())
        }
        ("object", Value::Object(mut fields)) => {
            let Expression::Object(types) = inner else { return fields.into() };
            for (key, ty) in types {
                let given = fields.shift_remove(&key.to_string());
                if let Some(field) = given.or_else(|| default_of(ty)) {
                    fields.insert(key.to_string(), typed(ty, field));
                }
            }
            fields.into()
        }
        ("optional", value) => typed(inner, value),
        (_, value) => value,
    }
}

/// What an attribute of an object is where it is not said; `None`: it has to be.
fn default_of(ty: &Expression) -> Option<Value> {
    let Expression::FuncCall(call) = ty else { return None };
    let is_optional = call.name.name.as_str() == "optional";
    is_optional.then(|| call.args.get(1).map_or(Value::Null, |e| e.evaluate(&Context::new()).unwrap()))
}

/// The keys of a resource's instances, each with the variable that its body sees.
type Keys = Vec<(Option<Value>, Option<(&'static str, Value)>)>;

fn keys(block: &Block, context: &Context<'_>) -> Result<Keys, String> {
    if let Some(expr) = attribute(block.body(), "for_each") {
        let pairs = pairs(expr.evaluate(context).map_err(|e| e.to_string())?)?;
        return Ok(pairs
            .into_iter()
            .map(|(key, value)| (Some(key.clone()), Some(("each", each(key, value)))))
            .collect());
    }
    if let Some(expr) = attribute(block.body(), "count") {
        let count = expr.evaluate(context).map_err(|e| e.to_string())?.as_u64().ok_or("count is no number")?;
        let index = |n: u64| Value::Object(Map::from_iter([("index".to_owned(), Value::from(n))]));
        return Ok((0..count).map(|n| (Some(Value::from(n)), Some(("count", index(n))))).collect());
    }
    Ok(vec![(None, None)])
}

fn each(key: Value, value: Value) -> Value {
    Value::Object(Map::from_iter([("key".to_owned(), key), ("value".to_owned(), value)]))
}

/// What is iterated over: a map by its keys, a list or set by its items.
fn pairs(value: Value) -> Result<Vec<(Value, Value)>, String> {
    match value {
        Value::Object(map) => Ok(map.into_iter().map(|(k, v)| (Value::from(k), v)).collect()),
        Value::Array(items) => Ok(items.into_iter().map(|v| (v.clone(), v)).collect()),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            Err(format!("cannot be iterated over: {other}"))
        }
    }
}

/// The values of a body; each block is a list of objects. Attributes that are null are left out, as Terraform does.
fn body_value(body: &Body, context: &Context<'_>) -> Result<Value, String> {
    let mut values = Map::new();
    for attribute in body.attributes().filter(|a| !META.contains(&a.key())) {
        let value = attribute.expr().evaluate(context).map_err(|e| format!("{}: {e}", attribute.key()))?;
        if !value.is_null() {
            values.insert(attribute.key().to_owned(), value);
        }
    }
    for block in body.blocks().filter(|b| b.identifier() != "lifecycle") {
        let (name, found) = if block.identifier() == "dynamic" {
            (label(block, 0), dynamic(block, context)?)
        } else {
            (block.identifier(), vec![body_value(block.body(), context)?])
        };
        let list = values.entry(name.to_owned()).or_insert_with(|| Value::Array(Vec::new()));
        list.as_array_mut().ok_or_else(|| format!("{name} is both"))?.extend(found);
    }
    Ok(values.into())
}

fn dynamic(block: &Block, context: &Context<'_>) -> Result<Vec<Value>, String> {
    let expr = attribute(block.body(), "for_each").ok_or("a dynamic block without for_each")?;
    let content = block.body().blocks().find(|b| b.identifier() == "content").ok_or("no content")?;
    let pairs = pairs(expr.evaluate(context).map_err(|e| e.to_string())?)?;
    let one = |(key, value)| {
        let mut inner = context.clone();
        inner.declare_var(label(block, 0), each(key, value));
        body_value(content.body(), &inner)
    };
    pairs.into_iter().map(one).collect()
}

/// `{name}` becomes the attribute of that name.
fn fill(template: &str, values: &Map<String, Value>) -> String {
    let mut text = template.to_owned();
    for (name, value) in values {
        if let Some(value) = value.as_str() {
            text = text.replace(&format!("{{{name}}}"), value);
        }
    }
    text
}

#[test]
fn the_example_can_be_planned() {
    let plan = example();
    assert!(plan.resources.len() > 100, "{}", plan.resources.len());
    assert!(plan.resources.iter().any(|r| r.address == "module.trigger.google_pubsub_topic.topic[\"jobs\"]"));
}

#[test]
fn bootstrap_can_be_planned() {
    let plan = bootstrap();
    let data = plan.named("google_storage_bucket", "my-project-rekindle");
    assert_eq!(data.values["location"], "US");
    assert_eq!(
        data.values["custom_placement_config"][0]["data_locations"],
        serde_json::json!(["US-CENTRAL1", "US-WEST1"])
    );
}
