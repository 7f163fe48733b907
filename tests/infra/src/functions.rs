//! Terraform's own functions, as far as `infra/` uses them. One that is missing here makes the plan fail by name.

#![expect(clippy::needless_pass_by_value, reason = "the library hands its arguments over by value")]

use std::net::Ipv4Addr;

use hcl::Value;
use hcl::eval::{Context, FuncArgs, FuncDef, ParamType};

type Answer = Result<Value, String>;

/// Declares them all.
pub(crate) fn declare(context: &mut Context<'_>) {
    type Function = fn(FuncArgs) -> Answer;
    let fixed: &[(&str, usize, Function)] = &[
        ("alltrue", 1, alltrue),
        ("anytrue", 1, anytrue),
        ("ceil", 1, ceil),
        ("cidrsubnet", 3, cidrsubnet),
        ("contains", 2, contains),
        ("endswith", 2, endswith),
        ("file", 1, file),
        ("floor", 1, floor),
        ("join", 2, join),
        ("jsondecode", 1, jsondecode),
        ("jsonencode", 1, jsonencode),
        ("keys", 1, keys),
        ("length", 1, length),
        ("lookup", 3, lookup),
        ("lower", 1, lower),
        ("regex", 2, regex),
        ("regexall", 2, regexall),
        ("split", 2, split),
        ("startswith", 2, startswith),
        ("tonumber", 1, tonumber),
        ("toset", 1, toset),
        ("tostring", 1, tostring),
        ("trimsuffix", 2, trimsuffix),
        ("upper", 1, upper),
        ("values", 1, values),
    ];
    for (name, count, function) in fixed {
        context.declare_func(*name, FuncDef::new(*function, vec![ParamType::Any; *count]));
    }
    context.declare_func("merge", FuncDef::builder().variadic_param(ParamType::Any).build(merge));
    context.declare_func("concat", FuncDef::builder().variadic_param(ParamType::Any).build(concat));
}

fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(is) => Ok(is.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("no text: {value}")),
    }
}

fn list(value: &Value) -> Result<&Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("no list: {value}"))
}

fn two_texts(args: &FuncArgs) -> Result<(String, String), String> {
    Ok((text(&args[0])?, text(&args[1])?))
}

fn alltrue(args: FuncArgs) -> Answer {
    Ok(list(&args[0])?.iter().all(|v| v.as_bool() == Some(true)).into())
}

fn anytrue(args: FuncArgs) -> Answer {
    Ok(list(&args[0])?.iter().any(|v| v.as_bool() == Some(true)).into())
}

fn startswith(args: FuncArgs) -> Answer {
    let (text, begin) = two_texts(&args)?;
    Ok(text.starts_with(&begin).into())
}

fn number(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("no number: {value}"))
}

#[expect(clippy::cast_possible_truncation, reason = "small numbers of a configuration")]
fn whole(number: f64) -> Value {
    Value::from(number as i64)
}

fn ceil(args: FuncArgs) -> Answer {
    Ok(whole(number(&args[0])?.ceil()))
}

fn floor(args: FuncArgs) -> Answer {
    Ok(whole(number(&args[0])?.floor()))
}

fn cidrsubnet(args: FuncArgs) -> Answer {
    let prefix = text(&args[0])?;
    let (address, bits) = prefix.split_once('/').ok_or("no prefix")?;
    let address: Ipv4Addr = address.parse().map_err(|e| format!("{e}"))?;
    let bits: u32 = bits.parse().map_err(|e| format!("{e}"))?;
    let (more, net) = (args[1].as_u64().ok_or("no number")?, args[2].as_u64().ok_or("no number")?);
    let (more, net) = (u32::try_from(more).unwrap(), u32::try_from(net).unwrap());
    let all = bits + more;
    if all > 32 || net >= 1 << more {
        return Err(format!("{prefix} has no subnet {net} of {more} more bits"));
    }
    Ok(format!("{}/{all}", Ipv4Addr::from(u32::from(address) | net << (32 - all))).into())
}

fn contains(args: FuncArgs) -> Answer {
    Ok(list(&args[0])?.contains(&args[1]).into())
}

fn endswith(args: FuncArgs) -> Answer {
    let (text, end) = two_texts(&args)?;
    Ok(text.ends_with(&end).into())
}

fn file(args: FuncArgs) -> Answer {
    let path = text(&args[0])?;
    std::fs::read_to_string(&path).map(Value::from).map_err(|e| format!("{path}: {e}"))
}

fn join(args: FuncArgs) -> Answer {
    let parts: Result<Vec<String>, String> = list(&args[1])?.iter().map(text).collect();
    Ok(parts?.join(&text(&args[0])?).into())
}

fn jsondecode(args: FuncArgs) -> Answer {
    serde_json::from_str(&text(&args[0])?).map_err(|e| e.to_string())
}

fn jsonencode(args: FuncArgs) -> Answer {
    serde_json::to_string(&args[0]).map(Value::from).map_err(|e| e.to_string())
}

/// Terraform's maps are sorted by key.
fn sorted_keys(value: &Value) -> Result<Vec<String>, String> {
    let object = value.as_object().ok_or_else(|| format!("no map: {value}"))?;
    let mut keys: Vec<String> = object.keys().cloned().collect();
    keys.sort();
    Ok(keys)
}

fn keys(args: FuncArgs) -> Answer {
    Ok(sorted_keys(&args[0])?.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

fn values(args: FuncArgs) -> Answer {
    let keys = sorted_keys(&args[0])?;
    let object = args[0].as_object().ok_or("no map")?;
    Ok(keys.iter().map(|k| object[k].clone()).collect::<Vec<_>>().into())
}

fn length(args: FuncArgs) -> Answer {
    let length = match &args[0] {
        Value::Array(items) => items.len(),
        Value::Object(fields) => fields.len(),
        Value::String(text) => text.chars().count(),
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => return Err(format!("{other} has no length")),
    };
    Ok(Value::from(length as u64))
}

fn lookup(args: FuncArgs) -> Answer {
    let object = args[0].as_object().ok_or_else(|| format!("no map: {}", args[0]))?;
    Ok(object.get(&text(&args[1])?).unwrap_or(&args[2]).clone())
}

fn lower(args: FuncArgs) -> Answer {
    Ok(text(&args[0])?.to_lowercase().into())
}

fn upper(args: FuncArgs) -> Answer {
    Ok(text(&args[0])?.to_uppercase().into())
}

fn captured(found: &::regex::Captures<'_>) -> Value {
    let group = |n: usize| found.get(n).map_or(Value::Null, |m| Value::from(m.as_str()));
    if found.len() == 1 { group(0) } else { Value::from((1..found.len()).map(group).collect::<Vec<_>>()) }
}

fn regex(args: FuncArgs) -> Answer {
    let (pattern, text) = two_texts(&args)?;
    let pattern = ::regex::Regex::new(&pattern).map_err(|e| e.to_string())?;
    let found = pattern.captures(&text).ok_or_else(|| format!("{text} does not match {pattern}"))?;
    Ok(captured(&found))
}

fn regexall(args: FuncArgs) -> Answer {
    let (pattern, text) = two_texts(&args)?;
    let pattern = ::regex::Regex::new(&pattern).map_err(|e| e.to_string())?;
    Ok(pattern.captures_iter(&text).map(|c| captured(&c)).collect::<Vec<_>>().into())
}

fn split(args: FuncArgs) -> Answer {
    let (separator, text) = two_texts(&args)?;
    Ok(text.split(&separator).map(Value::from).collect::<Vec<_>>().into())
}

fn tostring(args: FuncArgs) -> Answer {
    Ok(text(&args[0])?.into())
}

fn tonumber(args: FuncArgs) -> Answer {
    match &args[0] {
        Value::String(text) => {
            let number: f64 = text.parse().map_err(|_| format!("no number: {text}"))?;
            Ok(if number.fract() == 0.0 { whole(number) } else { Value::from(number) })
        }
        value @ (Value::Number(_) | Value::Null) => Ok(value.clone()),
        value @ (Value::Bool(_) | Value::Array(_) | Value::Object(_)) => Err(format!("no number: {value}")),
    }
}

fn trimsuffix(args: FuncArgs) -> Answer {
    let (text, end) = two_texts(&args)?;
    Ok(text.strip_suffix(&end).unwrap_or(&text).into())
}

fn toset(args: FuncArgs) -> Answer {
    let texts: Result<Vec<String>, String> = list(&args[0])?.iter().map(text).collect();
    let set: std::collections::BTreeSet<String> = texts?.into_iter().collect();
    Ok(set.into_iter().map(Value::from).collect::<Vec<_>>().into())
}

fn merge(args: FuncArgs) -> Answer {
    let mut all = hcl::Map::new();
    for map in args.into_values() {
        match map {
            Value::Object(map) => all.extend(map),
            // As Terraform: what is not given adds nothing.
            Value::Null => {}
            other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                return Err(format!("no map: {other}"));
            }
        }
    }
    Ok(all.into())
}

fn concat(args: FuncArgs) -> Answer {
    let mut all = Vec::new();
    for items in args.into_values() {
        let Value::Array(items) = items else { return Err(format!("no list: {items}")) };
        all.extend(items);
    }
    Ok(all.into())
}
