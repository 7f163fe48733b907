//! The conformance suite's feature file, and what it does not cover.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::*;
use crate::delivery::decode;

const FEATURE: &str =
    include_str!("../../../../tests/samples/events/cloudevents-conformance/features/http-protocol-binding.feature");

/// One scenario outline: the texts between `"""`, the attribute table, the values of the example column.
struct Outline {
    request: String,
    attributes: Vec<(String, String)>,
    data: String,
    examples: Vec<String>,
}

fn outlines() -> Vec<Outline> {
    FEATURE.split("Scenario Outline:").skip(1).map(outline).collect()
}

fn outline(text: &str) -> Outline {
    let quoted: Vec<&str> = text.split("\"\"\"").collect();
    let cells =
        |line: &str| -> Vec<String> { line.trim().trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect() };
    let rows = |part: &str| -> Vec<Vec<String>> {
        part.lines().filter(|l| l.trim_start().starts_with('|')).skip(1).map(cells).collect()
    };
    Outline {
        request: dedent(quoted[1]),
        attributes: rows(quoted[2]).into_iter().map(|c| (c[0].clone(), c[1].clone())).collect(),
        data: quoted[3].trim().to_owned(),
        examples: rows(quoted[4]).into_iter().map(|c| c[0].clone()).collect(),
    }
}

fn dedent(text: &str) -> String {
    let lines: Vec<&str> = text.lines().skip(1).collect();
    let indent = lines[0].len() - lines[0].trim_start().len();
    lines.iter().map(|l| l.get(indent..).unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn headers(pairs: &[(&str, &[u8])]) -> HeaderMap {
    pairs.iter().map(|(n, v)| (n.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(v).unwrap())).collect()
}

#[test]
fn conformance_suite() {
    let mut cases = 0;
    for outline in outlines() {
        for example in &outline.examples {
            let request = outline.request.replace("<contentType>", example);
            let (head, body) = request.split_once("\n\n").unwrap();
            let pairs: Vec<(&str, &[u8])> =
                head.lines().skip(1).map(|l| l.split_once(": ").unwrap()).map(|(n, v)| (n, v.as_bytes())).collect();
            let deliveries = decode(&headers(&pairs), body.as_bytes()).unwrap();
            let [delivery] = deliveries.as_slice() else { panic!("one event") };
            let event = delivery.event.as_ref().unwrap();
            for (key, want) in &outline.attributes {
                let got = match key.as_str() {
                    "id" => event.id.clone(),
                    "type" => event.ty.clone(),
                    "source" => event.source.clone(),
                    "time" => event.time.unwrap().to_string(),
                    "datacontenttype" => event.datacontenttype.clone().unwrap(),
                    // Which version it was is not kept; that it was a known one is checked by reading it.
                    "specversion" => "1.0".into(),
                    other => panic!("attribute {other}"),
                };
                assert_eq!(got, want.replace("<contentType>", example), "{key} of {example}");
            }
            let got: Value = serde_json::from_slice(delivery.data.as_ref().unwrap()).unwrap();
            assert_eq!(got, serde_json::from_str::<Value>(&outline.data).unwrap(), "{example}");
            cases += 1;
        }
    }
    assert_eq!(cases, 4);
}

fn binary_with(more: &[(&str, &[u8])]) -> Result<Delivery, String> {
    let mut pairs: Vec<(&str, &[u8])> =
        vec![("ce-specversion", b"1.0"), ("ce-id", b"1"), ("ce-source", b"/s"), ("ce-type", b"t")];
    for (name, value) in more {
        pairs.retain(|(n, _)| n != name);
        pairs.push((name, value));
    }
    binary(&headers(&pairs), b"x")
}

#[test]
fn header_values_are_unquoted_and_percent_decoded_once() {
    for (raw, want) in [
        (&b"plain"[..], "plain"),
        (b"Euro%20%E2%82%AC%20%F0%9F%98%80", "Euro \u{20ac} \u{1f600}"),
        (b"Euro%20%e2%82%ac", "Euro \u{20ac}"),
        (b"%41%2541", "A%41"),
        (b"100%", "100%"),
        (b"\"a \\\"b\\\" %25\"", "a \"b\" %"),
    ] {
        let delivery = binary_with(&[("ce-subject", raw)]).unwrap();
        assert_eq!(delivery.event.unwrap().subject.as_deref(), Some(want));
    }
}

#[test]
fn bad_binary_events_are_refused() {
    for (name, value) in [
        ("ce-id", &b""[..]),
        ("ce-source", b""),
        ("ce-type", b""),
        ("ce-specversion", b"2.0"),
        ("ce-specversion", b""),
        ("ce-time", b"yesterday"),
        ("ce-subject", b"%C0%A0"),
        ("ce-subject", b"\xff"),
        ("ce-datacontenttype", b"text/plain"),
    ] {
        assert!(binary_with(&[(name, value)]).is_err(), "{name}: {value:?}");
    }
    assert!(binary(&headers(&[("ce-id", b"1"), ("ce-type", b"t")]), b"").is_err(), "source is missing");
}

#[test]
fn extensions_and_version_0_3_are_read() {
    let delivery = binary_with(&[("ce-myext", b"a%20b"), ("ce-specversion", b"0.3")]).unwrap();
    assert_eq!(delivery.attributes.get("myext").map(String::as_str), Some("a b"));
    let body = serde_json::json!({
        "specversion": "0.3", "id": "1", "source": "/s", "type": "t",
        "datacontenttype": "text/plain", "datacontentencoding": "base64", "data": "aGk=",
    });
    let delivery = structured(body.to_string().as_bytes()).unwrap();
    assert_eq!(delivery.id.as_deref(), Some("/s 1"));
}

#[test]
fn structured_data_in_every_form() {
    for (data, want) in [
        (r#""data":{"a":1}"#, &b"{\"a\":1}"[..]),
        (r#""data_base64":"aGk=""#, b"hi"),
        (r#""datacontenttype":"text/plain","data":"hi""#, b"hi"),
        (r#""subject":null"#, b""),
    ] {
        let body = format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"t",{data}}}"#);
        assert_eq!(structured(body.as_bytes()).unwrap().data.as_deref(), Ok(want), "{data}");
    }
    assert!(structured(br#"{"specversion":"1.0","id":"","source":"/s","type":"t"}"#).is_err());
}

#[test]
fn a_batch_gives_its_events_in_order() {
    let batched = |body: &str| {
        decode(&headers(&[("content-type", b"application/cloudevents-batch+json; charset=utf-8")]), body.as_bytes())
    };
    let event = |id: u32| format!(r#"{{"specversion":"1.0","id":"{id}","source":"/s","type":"t"}}"#);
    let ids: Vec<Option<String>> =
        batched(&format!("[{},{}]", event(1), event(2))).unwrap().into_iter().map(|d| d.id).collect();
    assert_eq!(ids, [Some("/s 1".to_owned()), Some("/s 2".to_owned())]);
    assert_eq!(batched("[]").unwrap(), []);
    assert!(batched(&event(1)).is_err(), "not a list");
    assert!(batched(&format!("[{},{{}}]", event(1))).is_err(), "one bad event");
}
