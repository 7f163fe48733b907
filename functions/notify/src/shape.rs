//! What a webhook gets: the event as it is, or a line of chat for the services that take nothing else.

use reqwest::Url;
use serde_json::json;

use rekindle_core::job::Phase;
use rekindle_core::spec::HookShape;
use rekindle_core::text::is_unseen;
use rekindle_wire::event::JobEvent;

const CLOUD_EVENT: &str = "application/cloudevents+json; charset=utf-8";
const JSON: &str = "application/json; charset=utf-8";

/// Content type and body in the shape that was asked for, or else that the address takes.
pub(crate) fn of(url: &Url, asked: Option<HookShape>, event: &JobEvent) -> serde_json::Result<(&'static str, Vec<u8>)> {
    let body = match asked.unwrap_or_else(|| by_address(url)) {
        HookShape::Event => return Ok((CLOUD_EVENT, serde_json::to_vec(event)?)),
        HookShape::Slack => json!({"text": line(event, "*", escape_slack)}),
        // Nobody is called by what a program wrote.
        HookShape::Discord => {
            json!({"content": line(event, "**", str::to_owned), "allowed_mentions": {"parse": []}})
        }
        HookShape::Mail => {
            let (data, text) = (&event.data, line(event, "", str::to_owned));
            let subject = format!("Rekindle: {} {}", data.job, data.phase.as_str());
            let more = format!("Reason: {}. At {:.0}.", data.reason, event.time);
            json!({"subject": subject, "text": format!("{text}\n\n{more}\n`rekindle explain {}` says more.", data.job)})
        }
    };
    Ok((JSON, serde_json::to_vec(&body)?))
}

fn by_address(url: &Url) -> HookShape {
    match url.host_str().unwrap_or_default() {
        "hooks.slack.com" | "hooks.slack-gov.com" => HookShape::Slack,
        "discord.com" | "discordapp.com" if url.path().starts_with("/api/webhooks/") => HookShape::Discord,
        _ => HookShape::Event,
    }
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
    let message: String = data.message.chars().map(|c| if is_unseen(c) { ' ' } else { c }).take(500).collect();
    let (job, phase) = (&data.job, data.phase.as_str());
    let attempt = data.attempt.to_string();
    let words: Vec<&str> = message.split(|c: char| !c.is_alphanumeric()).collect();
    let is_told = words.windows(2).any(|pair| pair == ["attempt", attempt.as_str()]);
    let attempt = if is_told { String::new() } else { format!(" (attempt {attempt})") };
    format!("{mark} {bold}{job}{bold} {phase}: {}{attempt}", escape(&message))
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
            message: "it wrote\u{202e}<!channel>\n& died".into(),
            attempt: 2,
            generation: 1,
        };
        let event = JobEvent::new(&InstallationId::parse("abc123").unwrap(), &JobId::parse("train").unwrap(), &out);
        let told = |url: &str| -> (&'static str, Value) {
            let (content_type, body) = of(&Url::parse(url).unwrap(), None, &event).unwrap();
            (content_type, serde_json::from_slice(&body).unwrap())
        };
        let (content_type, body) = told("https://hooks.slack.com/services/T/B/x");
        assert_eq!(content_type, JSON);
        let want = "\u{274c} *train* failed: it wrote &lt;!channel&gt; &amp; died (attempt 2)";
        assert_eq!(body["text"], want);
        // What the message tells already is not told again.
        for (message, want) in [
            ("attempt 2 runs on generation 1", "failed: attempt 2 runs on generation 1"),
            ("attempt 21 runs", "failed: attempt 21 runs (attempt 2)"),
        ] {
            let mut event = event.clone();
            event.data.message = message.into();
            assert!(line(&event, "", str::to_owned).ends_with(want), "{}", line(&event, "", str::to_owned));
        }
        let (_, body) = told("https://discord.com/api/webhooks/1/x");
        assert!(body["content"].as_str().unwrap().starts_with("\u{274c} **train** failed"), "{body}");
        assert_eq!(body["allowed_mentions"], json!({"parse": []}));
        for other in ["https://example.com/hook", "https://discord.com/x", "https://hooks.slack.com.example.com/"] {
            let (content_type, body) = told(other);
            assert_eq!((content_type, &body["data"]["attempt"]), (CLOUD_EVENT, &json!(2)), "{other}");
        }
        let asked = |shape: HookShape| -> Value {
            let url = Url::parse("https://mail.example.com/in").unwrap();
            serde_json::from_slice(&of(&url, Some(shape), &event).unwrap().1).unwrap()
        };
        assert_eq!(asked(HookShape::Slack)["text"], want);
        let mail = asked(HookShape::Mail);
        assert_eq!(mail["subject"], "Rekindle: train failed");
        let text = "\u{274c} train failed: it wrote <!channel> & died (attempt 2)\n\nReason: program_failed. At \
                    1970-01-01T00:00:00Z.\n`rekindle explain train` says more.";
        assert_eq!(mail["text"], text);
    }
}
