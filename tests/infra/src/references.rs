//! Every reference resolves: variables, locals, module inputs and outputs, resources and their attributes. Nothing declared is unused.

use std::collections::{BTreeMap, BTreeSet};

use hcl::template::{Directive, Element, Template};
use hcl::{Block, Body, Expression, ObjectKey, Operation, Structure, TraversalOperator};

use crate::files::{Module, attribute, label, modules};
use crate::schema::{Computed, Schema, computed, schema};

/// A reference: the root and the attributes after it, as far as they are plain names.
type Reference = Vec<String>;

/// What a body or expression refers to, names that it binds itself left out.
#[derive(Default)]
struct Found {
    references: Vec<Reference>,
    bound: Vec<String>,
}

impl Found {
    fn body(&mut self, body: &Body) {
        for structure in body {
            match structure {
                Structure::Attribute(attribute) => self.expression(attribute.expr()),
                Structure::Block(block) if block.identifier() == "dynamic" => {
                    let bound = self.bound.len();
                    if let Some(expr) = attribute(block.body(), "for_each") {
                        self.expression(expr);
                    }
                    self.bound.push(label(block, 0).to_owned());
                    block.body().blocks().for_each(|b| self.body(b.body()));
                    self.bound.truncate(bound);
                }
                Structure::Block(block) => self.body(block.body()),
            }
        }
    }

    fn refer(&mut self, names: Reference) {
        if !self.bound.contains(&names[0]) {
            self.references.push(names);
        }
    }

    fn expression(&mut self, expression: &Expression) {
        match expression {
            Expression::Variable(name) => self.refer(vec![name.to_string()]),
            Expression::Array(items) => items.iter().for_each(|e| self.expression(e)),
            Expression::Object(fields) => {
                for (key, value) in fields {
                    if let ObjectKey::Expression(key) = key {
                        self.expression(key);
                    }
                    self.expression(value);
                }
            }
            Expression::TemplateExpr(template) => self.template(&Template::from_expr(template).unwrap()),
            Expression::Parenthesis(inner) => self.expression(inner),
            Expression::FuncCall(call) => call.args.iter().for_each(|e| self.expression(e)),
            Expression::Conditional(c) => {
                for part in [&c.cond_expr, &c.true_expr, &c.false_expr] {
                    self.expression(part);
                }
            }
            Expression::Operation(operation) => match operation.as_ref() {
                Operation::Unary(op) => self.expression(&op.expr),
                Operation::Binary(op) => [&op.lhs_expr, &op.rhs_expr].into_iter().for_each(|e| self.expression(e)),
            },
            Expression::ForExpr(each) => {
                self.expression(&each.collection_expr);
                let bound = self.bound.len();
                self.bound.extend(each.key_var.iter().chain([&each.value_var]).map(ToString::to_string));
                each.key_expr
                    .iter()
                    .chain([&each.value_expr])
                    .chain(each.cond_expr.iter())
                    .for_each(|e| self.expression(e));
                self.bound.truncate(bound);
            }
            Expression::Traversal(traversal) => self.traversal(&traversal.expr, &traversal.operators),
            Expression::Null | Expression::Bool(_) | Expression::Number(_) | Expression::String(_) => {}
            other => panic!("a kind of expression that this test does not know: {other}"),
        }
    }

    fn traversal(&mut self, root: &Expression, operators: &[TraversalOperator]) {
        for operator in operators {
            if let TraversalOperator::Index(index) = operator {
                self.expression(index);
            }
        }
        let Expression::Variable(root) = root else { return self.expression(root) };
        let mut names = vec![root.to_string()];
        for operator in operators {
            match operator {
                TraversalOperator::GetAttr(name) => names.push(name.to_string()),
                // The instance of a resource: its attributes come after the key.
                TraversalOperator::Index(_) if names.len() == 2 => {}
                TraversalOperator::Index(_)
                | TraversalOperator::AttrSplat
                | TraversalOperator::FullSplat
                | TraversalOperator::LegacyIndex(_) => break,
            }
        }
        self.refer(names);
    }

    fn template(&mut self, template: &Template) {
        for element in template.elements() {
            match element {
                Element::Interpolation(inner) => self.expression(&inner.expr),
                Element::Directive(directive) => match directive.as_ref() {
                    Directive::If(_) | Directive::For(_) => panic!("template directives are not used here"),
                },
                Element::Literal(_) => {}
            }
        }
    }
}

/// What a module has.
struct Names {
    variables: BTreeMap<String, bool>,
    locals: BTreeSet<String>,
    outputs: BTreeSet<String>,
    calls: BTreeMap<String, Block>,
}

fn names(module: &Module) -> Names {
    let firsts = |kind: &str| module.of(kind).map(|b| label(b, 0).to_owned()).collect();
    Names {
        variables: module
            .of("variable")
            .map(|b| (label(b, 0).to_owned(), attribute(b.body(), "default").is_some()))
            .collect(),
        locals: module.of("locals").flat_map(|b| b.body().attributes().map(|a| a.key().to_owned())).collect(),
        outputs: firsts("output"),
        calls: module.of("module").map(|b| (label(b, 0).to_owned(), b.clone())).collect(),
    }
}

fn callee(module: &Module, call: &Block) -> Module {
    let Some(Expression::String(source)) = attribute(call.body(), "source") else { panic!("a module without source") };
    Module::read(&module.dir.join(source))
}

struct Check<'a> {
    module: &'a Module,
    names: Names,
    schema: &'a Schema,
    computed: &'a Computed,
    faults: Vec<String>,
    used: BTreeSet<String>,
}

impl Check<'_> {
    fn fault(&mut self, text: &str) {
        let fault = format!("{}: {text}", self.module.name());
        self.faults.push(fault);
    }

    fn reference(&mut self, names: &[String], by: &str) {
        let path = names.join(".");
        let in_resource = by == "resource";
        if by != "variable" || names[0] == "local" {
            // That a validation looks at a variable is no use of it.
            self.used.insert(names.iter().take(2).cloned().collect::<Vec<_>>().join("."));
        }
        let second = names.get(1).map(String::as_str).unwrap_or_default();
        let third = names.get(2).map(String::as_str);
        let is_there = match names[0].as_str() {
            "var" => self.names.variables.contains_key(second),
            "local" => self.names.locals.contains(second),
            "path" => second == "module",
            "each" => in_resource && ["key", "value"].contains(&second),
            "count" => in_resource && second == "index",
            "module" => self.names.calls.get(second).cloned().is_some_and(|call| {
                third
                    .is_none_or(|output| crate::references::names(&callee(self.module, &call)).outputs.contains(output))
            }),
            "data" => self.is_resource("data", second, third) && names.get(3).is_none_or(|a| self.has_data(second, a)),
            ty => self.is_resource("resource", ty, Some(second)) && third.is_none_or(|a| self.has_attribute(ty, a)),
        };
        if !is_there {
            self.fault(&format!("{path} is not there"));
        }
    }

    fn is_resource(&self, kind: &str, ty: &str, name: Option<&str>) -> bool {
        self.module.of(kind).any(|b| label(b, 0) == ty && name.is_none_or(|n| label(b, 1) == n))
    }

    fn has_attribute(&self, ty: &str, name: &str) -> bool {
        self.schema.resources.get(ty).is_some_and(|fields| fields.contains_key(name))
            || self.computed.resources.get(ty).is_some_and(|more| more.contains_key(name))
    }

    fn has_data(&self, ty: &str, name: &str) -> bool {
        self.computed.data.get(ty).is_some_and(|d| d.values.contains_key(name) || d.arguments.iter().any(|a| a == name))
    }

    fn calls(&mut self) {
        for (name, call) in self.names.calls.clone() {
            let inputs = names(&callee(self.module, &call)).variables;
            let given: BTreeSet<&str> = call.body().attributes().map(hcl::Attribute::key).collect();
            for input in given.iter().filter(|i| **i != "source" && !inputs.contains_key(**i)) {
                self.fault(&format!("module {name} has no variable {input}"));
            }
            for (input, _) in inputs.iter().filter(|(i, has_default)| !**has_default && !given.contains(i.as_str())) {
                self.fault(&format!("module {name} is not given {input}"));
            }
        }
    }

    fn unused(&mut self) {
        let variables = self.names.variables.keys().map(|n| format!("var.{n}"));
        let locals = self.names.locals.iter().map(|n| format!("local.{n}"));
        let unused: Vec<String> = variables.chain(locals).filter(|n| !self.used.contains(n)).collect();
        for name in unused {
            self.fault(&format!("{name} is not used"));
        }
    }
}

fn faults_of(module: &Module) -> Vec<String> {
    let (schema, computed) = (schema(), computed());
    let mut check = Check {
        module,
        names: names(module),
        schema: &schema,
        computed: &computed,
        faults: Vec::new(),
        used: BTreeSet::new(),
    };
    for block in module.blocks.iter().filter(|b| b.identifier() != "terraform") {
        let mut found = Found::default();
        if block.identifier() == "variable" {
            // Its type is no expression.
            block.body().blocks().for_each(|b| found.body(b.body()));
        } else {
            found.body(block.body());
        }
        for names in found.references {
            check.reference(&names, block.identifier());
        }
    }
    check.calls();
    check.unused();
    check.faults
}

#[test]
fn every_reference_resolves_and_nothing_is_unused() {
    let faults: Vec<String> = modules().iter().flat_map(faults_of).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_variable_and_output_says_what_it_is() {
    let mut faults = Vec::new();
    for module in modules() {
        for block in module.of("variable").chain(module.of("output")) {
            let needed: &[&str] =
                if block.identifier() == "variable" { &["description", "type"] } else { &["description"] };
            for name in needed.iter().filter(|n| attribute(block.body(), n).is_none()) {
                faults.push(format!("{}: {} {} has no {name}", module.name(), block.identifier(), label(block, 0)));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn faults_are_found() {
    let source = r#"
        variable "given" { type = string }
        variable "idle" { type = string }
        locals { here = [for k, v in var.given : "${k}-${v}-${local.gone}"] }
        resource "google_pubsub_topic" "t" { name = local.here[var.gone] }
        resource "google_pubsub_topic" "u" {
          for_each = toset(["a"])
          name     = "${each.value}${google_pubsub_topic.t.colour}${google_pubsub_topic.w.name}"
        }
        output "o" { value = each.key }
        module "store" {
          source = "../infra/modules/store"
          colour = data.google_project.p.number
        }
    "#;
    let body: Body = hcl::parse(source).unwrap();
    let module = Module { dir: crate::files::infra(), blocks: body.into_blocks().collect() };
    let faults = faults_of(&module).join("\n");
    for fault in [
        "local.gone is not there",
        "var.gone is not there",
        "google_pubsub_topic.t.colour is not there",
        "google_pubsub_topic.w.name is not there",
        "each.key is not there",
        "data.google_project.p.number is not there",
        "module store has no variable colour",
        "module store is not given project",
        "var.idle is not used",
    ] {
        assert!(faults.contains(fault), "{fault}\n--\n{faults}");
    }
}
