//! What a webhook gets: the event as it is, or a line of chat for the services that take nothing else.

use reqwest::Url;
use serde_json::json;

use rekindle_core::job::Phase;
use rekindle_wire::event::JobEvent;

const CLOUD_EVENT: &str = "application/cloudevents+json; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// Content type and body for an address.
pub(crate) fn of(url: &Url, event: &JobEvent) -> serde_json::Result<(&'static str, Vec<u8>)> {
    let host = url.host_str().unwrap_or_default();
    let path = url.path();
    if ["hooks.slack.com", "hooks.slack-gov.com"].contains(&host) {
        return Ok((JSON, serde_json::to_vec(&json!({"text": line(event, "*", escape_slack)}))?));
    }
    if ["discord.com", "discordapp.com"].contains(&host) && path.starts_with("/api/webhooks/") {
        // Nobody is called by what a program wrote.
        let body = json!({"content": line(event, "**", str::to_owned), "allowed_mentions": {"parse": []}});
        return Ok((JSON, serde_json::to_vec(&body)?));
    }
    Ok((CLOUD_EVENT, serde_json::to_vec(event)?))
}

/// `✅ *train* succeeded: all workers ended well (attempt 4)`.
fn line(event: &JobEvent, bold: &str, escape: fn(&str) -> String) -> String {
    let data = &event.data;
    let mark = match data.phase {
        Phase::Succeeded => "\u{2705}",
        Phase::Failed => "\u{274c}",
        Phase::Cancelled => "\u{1f6ab}",
        Phase::Paused => "\u{23f8}",
        Phase::Recovering => "\u{1f501}",
        Phase::Pending | Phase::Provisioning | Phase::Starting | Phase::Running | Phase::Stopping => "\u{2022}",
    };
    let message: String = data.message.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect();
    let (job, phase) = (&data.job, data.phase.as_str());
    format!("{mark} {bold}{job}{bold} {phase}: {} (attempt {})", escape(&message), data.attempt)
}

/// Slack reads links and commands between angle brackets.
fn escape_slack(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use rekindle_core::ids::{InstallationId, JobId};
    use rekindle_core::job::OutEvent;
    use rekindle_core::reason::Reason;
    use serde_json::Value;

    use super::*;

    #[test]
    fn chat_services_get_a_line_and_all_others_the_event() {
        let out = OutEvent {
            sequence: 5,
            at: jiff::Timestamp::UNIX_EPOCH,
            phase: Phase::Failed,
            reason: Reason::ProgramFailed,
            message: "it wrote <!channel>\n& died".into(),
            attempt: 2,
            generation: 1,
        };
        let event = JobEvent::new(&InstallationId::parse("abc123").unwrap(), &JobId::parse("train").unwrap(), &out);
        let told = |url: &str| -> (&'static str, Value) {
            let (content_type, body) = of(&Url::parse(url).unwrap(), &event).unwrap();
            (content_type, serde_json::from_slice(&body).unwrap())
        };
        let (content_type, body) = told("https://hooks.slack.com/services/T/B/x");
        assert_eq!(content_type, JSON);
        let want = "\u{274c} *train* failed: it wrote &lt;!channel&gt; &amp; died (attempt 2)";
        assert_eq!(body["text"], want);
        let (_, body) = told("https://discord.com/api/webhooks/1/x");
        assert!(body["content"].as_str().unwrap().starts_with("\u{274c} **train** failed"), "{body}");
        assert_eq!(body["allowed_mentions"], json!({"parse": []}));
        for other in ["https://example.com/hook", "https://discord.com/x", "https://hooks.slack.com.example.com/"] {
            let (content_type, body) = told(other);
            assert_eq!((content_type, &body["data"]["attempt"]), (CLOUD_EVENT, &json!(2)), "{other}");
        }
    }
}
