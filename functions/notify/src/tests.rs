//! Events to webhooks: who is told, what, and what becomes of failures.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use rekindle_core::ids::JobId;
use rekindle_core::job::{OutEvent, Phase};
use rekindle_core::reason::Reason;
use rekindle_core::spec::{ParseContext, parse};
use rekindle_rig::{Log, Rig, push, raw, send, spec};
use rekindle_web::Door;
use rekindle_wire::event::JobEvent;
use rekindle_wire::webhook::Secret;

use crate::{Notify, Sender, router};

const PATH: &str = "/functions/notify";

/// A web server that keeps what it is told, and answers a status.
#[derive(Clone)]
struct Hook {
    told: Arc<Mutex<Vec<(HeaderMap, Value)>>>,
    bytes: Arc<Mutex<Vec<Bytes>>>,
    status: Arc<Mutex<StatusCode>>,
    retry_after: Arc<Mutex<Option<String>>>,
    url: String,
}

impl Hook {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let status = Arc::new(Mutex::new(StatusCode::OK));
        let hook = Self { told: Arc::default(), bytes: Arc::default(), status, retry_after: Arc::default(), url };
        let app = Router::new()
            .route(
                "/hook",
                post(async |State(hook): State<Self>, headers: HeaderMap, body: Bytes| hook.take(headers, &body)),
            )
            .with_state(hook.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        hook
    }

    fn take(&self, headers: HeaderMap, body: &Bytes) -> (StatusCode, HeaderMap) {
        self.told.lock().unwrap().push((headers, serde_json::from_slice(body).unwrap()));
        self.bytes.lock().unwrap().push(body.clone());
        let mut answered = HeaderMap::from_iter([(header::LOCATION, self.url.parse().unwrap())]);
        answered
            .extend(self.retry_after.lock().unwrap().iter().map(|text| (header::RETRY_AFTER, text.parse().unwrap())));
        (*self.status.lock().unwrap(), answered)
    }

    fn count(&self) -> usize {
        self.told.lock().unwrap().len()
    }

    fn answer(&self, status: u16) {
        *self.status.lock().unwrap() = StatusCode::from_u16(status).unwrap();
    }
}

async fn rig(allow_private: bool, hooks: &[(&str, &[&str])]) -> (Rig, Router) {
    let rig = Rig::new().await;
    let context = ParseContext { deployment: &rig.engine.deployment, caller: "ann@example.com", caller_is_admin: true };
    let mut submit = parse(&spec("train"), &context).unwrap();
    // The parser takes https alone; the test's server speaks http.
    submit.spec.notify = hooks
        .iter()
        .map(|(url, events)| rekindle_core::spec::Notify {
            webhook: (*url).to_owned(),
            events: events.iter().map(|e| (*e).to_owned()).collect(),
            shape: None,
        })
        .collect();
    rig.engine.submit(submit, "ann@example.com", "k").await.unwrap();
    let secret = rig.engine.installation.secret.clone();
    let sender = Arc::new(Sender::new(allow_private));
    let notify = Notify { ports: rig.engine.ports.clone(), sender, secret };
    let router = rig.mount(router(notify), Door::Notify);
    (rig, router)
}

fn event(rig: &Rig, job: &str, phase: Phase) -> JobEvent {
    use rekindle_ports::world::Clock;
    let out = OutEvent {
        sequence: 5,
        at: rig.fakes.clock.now(),
        phase,
        reason: Reason::Succeeded,
        message: "all workers ended well".into(),
        attempt: 4,
        generation: 3,
    };
    JobEvent::new(&rig.engine.installation.id, &JobId::parse(job).unwrap(), &out)
}

async fn tell(router: &Router, event: &JobEvent) -> u16 {
    let attributes = event.attributes();
    let pairs: Vec<(&str, &str)> = attributes.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let data = serde_json::to_vec(&event.data).unwrap();
    send(router, push(PATH, "1", &pairs, &data)).await.status.as_u16()
}

#[tokio::test]
async fn webhooks_of_the_job_get_the_phases_they_want_as_structured_cloudevents() {
    let (all, failures) = (Hook::start().await, Hook::start().await);
    let (rig, router) = rig(true, &[(&all.url, &[]), (&failures.url, &["failed", "paused"])]).await;
    assert_eq!(tell(&router, &event(&rig, "train", Phase::Succeeded)).await, 204);
    assert_eq!((all.count(), failures.count()), (1, 0));
    assert_eq!(tell(&router, &event(&rig, "train", Phase::Failed)).await, 204);
    assert_eq!((all.count(), failures.count()), (2, 1));
    let (headers, body) = all.told.lock().unwrap()[0].clone();
    assert!(headers["content-type"].to_str().unwrap().starts_with("application/cloudevents+json"));
    assert_eq!(body["type"], "dev.rekindle.job.succeeded.v1");
    assert_eq!((&body["subject"], &body["id"]), (&json!("train"), &json!("train-5")));
    assert_eq!((&body["data"]["attempt"], &body["data"]["reason"]), (&json!(4), &json!("succeeded")));
    assert!(body["source"].as_str().unwrap().contains("abcdef"));
}

#[tokio::test]
async fn each_try_is_signed_with_the_owners_secret_and_keeps_its_id() {
    let hook = Hook::start().await;
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    let event = event(&rig, "train", Phase::Succeeded);
    hook.answer(503);
    assert_eq!(tell(&router, &event).await, 503);
    rig.advance(60);
    hook.answer(200);
    assert_eq!(tell(&router, &event).await, 204);
    let secret = Secret::of(&rig.engine.installation.secret, "ann@example.com");
    let told = hook.told.lock().unwrap().clone();
    let bytes = hook.bytes.lock().unwrap().clone();
    let mut times = Vec::new();
    for ((headers, _), body) in told.iter().zip(&bytes) {
        let text = |name: &str| headers[name].to_str().unwrap().to_owned();
        let at: i64 = text("webhook-timestamp").parse().unwrap();
        assert_eq!(text("webhook-id"), "train-5");
        assert_eq!(text("webhook-signature"), secret.sign("train-5", at, body));
        times.push(at);
    }
    assert_eq!(times[1] - times[0], 60, "a receiver can refuse what is old");
}

#[tokio::test]
async fn a_webhook_that_took_an_event_is_not_told_again_because_another_is_down() {
    let (up, down, gone) = (Hook::start().await, Hook::start().await, Hook::start().await);
    let (rig, router) = rig(true, &[(&up.url, &[]), (&down.url, &[]), (&gone.url, &[])]).await;
    let event = event(&rig, "train", Phase::Succeeded);
    down.answer(503);
    gone.answer(410);
    for _ in 0..3 {
        assert_eq!(tell(&router, &event).await, 503);
    }
    assert_eq!((up.count(), down.count(), gone.count()), (1, 3, 1));
    down.answer(200);
    assert_eq!(tell(&router, &event).await, 204);
    assert_eq!((up.count(), down.count(), gone.count()), (1, 4, 1));
    let dead = rig.dead_reasons();
    assert!(
        dead.len() == 1 && dead[0].contains("answered 410") && !dead[0].contains("answered 503"),
        "what was refused: {dead:?}"
    );
    // Another event is for all of them.
    let mut next = event.clone();
    next.id = "train-6".into();
    down.answer(503);
    assert_eq!(tell(&router, &next).await, 503);
    assert_eq!((up.count(), down.count(), gone.count()), (2, 5, 2));
}

#[tokio::test]
async fn a_structured_event_is_taken_too_and_an_unknown_job_is_done() {
    let hook = Hook::start().await;
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    let body = serde_json::to_vec(&event(&rig, "train", Phase::Running)).unwrap();
    assert_eq!(send(&router, raw(PATH, "application/cloudevents+json", body)).await.status, 204);
    assert_eq!(hook.count(), 1);
    assert_eq!(tell(&router, &event(&rig, "other", Phase::Running)).await, 204);
    assert_eq!((hook.count(), rig.dead_reasons().len()), (1, 0));
}

#[tokio::test]
async fn failures_that_may_pass_bring_the_event_again_until_it_is_old() {
    let hook = Hook::start().await;
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    let event = event(&rig, "train", Phase::Succeeded);
    for status in [500, 503, 429, 408] {
        hook.answer(status);
        assert_eq!(tell(&router, &event).await, 503, "{status}");
    }
    rig.advance(601);
    assert_eq!(tell(&router, &event).await, 204, "given up");
    assert_eq!(rig.dead_reasons().len(), 1);
    let refused = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let (rig, router) = rig_with(&format!("http://{refused}/")).await;
    assert_eq!(tell(&router, &self::event(&rig, "train", Phase::Succeeded)).await, 503, "nobody listens");
}

#[tokio::test]
async fn an_event_that_is_tried_again_is_shown_until_it_is_told_or_given_up() {
    let (hook, train) = (Hook::start().await, JobId::parse("train").unwrap());
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    let letters = async || rig.fakes.store().dead_letters(Some(&train), None, 9).await.unwrap().0;
    let first = event(&rig, "train", Phase::Succeeded);
    hook.answer(503);
    assert_eq!(tell(&router, &first).await, 503);
    assert!(letters().await.is_empty(), "it may be a blip");
    rig.advance(30);
    assert_eq!(tell(&router, &first).await, 503);
    hook.answer(500);
    rig.advance(30);
    assert_eq!(tell(&router, &first).await, 503);
    let shown = letters().await;
    let until = first.time.checked_add(jiff::SignedDuration::from_mins(10)).unwrap();
    assert_eq!((shown.len(), shown[0].tried_until), (1, Some(until)), "once, however often it fails");
    assert!(shown[0].reason.contains(": it answered 500") && shown[0].at > first.time, "{shown:?}");
    assert!(rig.dead_reasons().is_empty());
    hook.answer(200);
    assert_eq!(tell(&router, &first).await, 204);
    assert!(letters().await.is_empty(), "it was told");

    let second = event(&rig, "train", Phase::Succeeded);
    hook.answer(503);
    for secs in [0, 60, 541] {
        rig.advance(secs);
        tell(&router, &second).await;
    }
    let left = letters().await;
    assert_eq!((left.len(), left[0].tried_until), (1, None), "given up: {left:?}");
}

#[tokio::test]
async fn a_webhook_that_asks_for_a_pause_is_not_called_before_its_end_nor_left_alone_for_ever() {
    use rekindle_ports::world::Clock as _;
    let hook = Hook::start().await;
    let ask = |text: Option<String>| *hook.retry_after.lock().unwrap() = text;
    let train = JobId::parse("train").unwrap();
    let (largest, larger) = ("18446744073709551615", "99999999999999999999");
    let cases =
        [("120", 120), ("DATE", 120), ("86400", 300), (largest, 300), (larger, 300), ("0", 0), ("-1", 0), ("soon", 0)];
    for (status, (asked, pause)) in cases.into_iter().flat_map(|case| [(429, case), (503, case)]) {
        let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
        let date = (rig.fakes.clock.now() + jiff::SignedDuration::from_secs(120)).to_zoned(jiff::tz::TimeZone::UTC);
        let date = jiff::fmt::rfc2822::to_string(&date).unwrap().replace("+0000", "GMT");
        assert!(date.ends_with(" GMT"), "as HTTP writes it: {date}");
        let (first, before) = (event(&rig, "train", Phase::Running), hook.count());
        let second = JobEvent { id: "train-6".into(), ..event(&rig, "train", Phase::Failed) };
        hook.answer(status);
        ask(Some(asked.replace("DATE", &date)));
        assert_eq!(tell(&router, &first).await, 503);
        hook.answer(200);
        ask(None);
        if pause > 0 {
            assert_eq!(tell(&router, &second).await, 503, "{asked}: another event does not reach it either");
            rig.advance(pause - 1);
            assert_eq!((tell(&router, &first).await, hook.count() - before), (503, 1), "{asked}");
            let shown = rig.fakes.store().dead_letters(Some(&train), None, 1).await.unwrap().0[0].reason.clone();
            let told = [&format!(": it answered {status} "), " with a Retry-After, and is called again at 20"];
            assert!(told.iter().all(|told| shown.contains(*told)), "{shown}");
            rig.advance(1);
        }
        assert_eq!((tell(&router, &first).await, hook.count() - before), (204, 2), "{asked}");
    }
}

#[tokio::test]
async fn no_event_is_given_up_by_a_pause_before_it_was_called_after_it() {
    let hook = Hook::start().await;
    let ask = |status: u16, text: Option<&str>| {
        hook.answer(status);
        *hook.retry_after.lock().unwrap() = text.map(str::to_owned);
    };
    let train = JobId::parse("train").unwrap();
    // How old both are when the pause begins: of a backlog after an outage, and such that grow old in it.
    for (age, pause) in [(660, 30), (3_600, 300), (301, 300), (400, 300), (599, 300)] {
        let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
        let first = event(&rig, "train", Phase::Running);
        let second = JobEvent { id: "train-6".into(), ..event(&rig, "train", Phase::Failed) };
        let before = hook.count();
        rig.advance(age);
        ask(429, Some(&pause.to_string()));
        assert_eq!(tell(&router, &first).await, 503, "{age}: it asks for a pause");
        assert_eq!(tell(&router, &second).await, 503, "{age}: not called, not given up");
        rig.advance(pause - 1);
        assert_eq!((tell(&router, &second).await, hook.count() - before), (503, 1), "{age}");
        let shown = rig.fakes.store().dead_letters(Some(&train), None, 9).await.unwrap().0;
        let sure = jiff::SignedDuration::from_secs(i64::max(600, age + pause));
        assert!(shown.iter().all(|letter| letter.tried_until == first.time.checked_add(sure).ok()), "{age}: {shown:?}");
        rig.advance(1);
        ask(200, None);
        for event in [&first, &second] {
            assert_eq!(tell(&router, event).await, 204, "{age}");
        }
        assert_eq!((hook.count() - before, rig.dead_reasons().len()), (3, 0), "{age}: both are told");
    }
}

#[tokio::test]
async fn a_webhook_that_asks_for_a_pause_each_time_keeps_no_event_for_ever() {
    let hook = Hook::start().await;
    hook.answer(429);
    *hook.retry_after.lock().unwrap() = Some("200".into());
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    let event = event(&rig, "train", Phase::Running);
    rig.advance(660);
    assert_eq!(tell(&router, &event).await, 503);
    // Also where the subscription takes its longest back-off: it is one pause.
    rig.advance(260);
    assert_eq!((tell(&router, &event).await, hook.count()), (503, 2));
    rig.advance(40);
    assert_eq!(tell(&router, &event).await, 503, "five minutes of it");
    rig.advance(1);
    assert_eq!((tell(&router, &event).await, hook.count()), (204, 2));
    assert!(rig.dead_reasons()[0].contains("answered 429"), "{:?}", rig.dead_reasons());
}

#[tokio::test]
async fn all_webhooks_that_fail_are_told_each_on_a_line_of_its_own() {
    let (down, gone, train) = (Hook::start().await, Hook::start().await, JobId::parse("train").unwrap());
    let twin = format!("{}?other", gone.url);
    let (rig, router) = rig(true, &[(&down.url, &[]), (&gone.url, &[]), (&twin, &[])]).await;
    let event = event(&rig, "train", Phase::Succeeded);
    down.answer(503);
    gone.answer(410);
    rig.advance(60);
    assert_eq!(tell(&router, &event).await, 503);
    let letter = async || rig.fakes.store().dead_letters(Some(&train), None, 1).await.unwrap().0[0].reason.clone();
    let host = |hook: &Hook| hook.url.trim_start_matches("http://").trim_end_matches("/hook").to_owned();
    let (down_at, gone_at) = (host(&down), host(&gone));
    let both =
        |mark: &str| [1, 2].map(|place| format!("{gone_at} (notify[{place}]): it answered 410 Gone{mark}")).join("\n");
    let waits = format!("{down_at}: it answered 503 Service Unavailable");
    assert_eq!(letter().await, format!("{waits}\n{}", both(" (not tried again)")));
    rig.advance(601);
    assert_eq!(tell(&router, &event).await, 204);
    assert_eq!(letter().await, format!("{}\n{waits}", both("")));
}

async fn rig_with(url: &str) -> (Rig, Router) {
    rig(true, &[(url, &[])]).await
}

#[tokio::test]
async fn refusals_and_redirects_are_final_and_recorded() {
    let hook = Hook::start().await;
    let (rig, router) = rig(true, &[(&hook.url, &[])]).await;
    for status in [400, 401, 404, 410, 301, 302, 307, 308] {
        hook.answer(status);
        let before = hook.count();
        assert_eq!(tell(&router, &event(&rig, "train", Phase::Succeeded)).await, 204, "{status}");
        assert_eq!(hook.count(), before + 1, "{status}: a redirect is not followed");
        assert!(rig.dead_reasons().pop().unwrap().contains(&format!("answered {status}")));
    }
}

#[tokio::test]
async fn of_a_webhook_that_fails_only_host_and_port_are_told() {
    const TOKEN: &str = "T0-very-secret";
    let (hook, log) = (Hook::start().await, Log::default());
    let _guard = log.listen();
    let address = hook.url.trim_start_matches("http://").trim_end_matches("/hook").to_owned();
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (url, first, host) in [
        (format!("{}/{TOKEN}?key={TOKEN}", hook.url), 204, format!("{address}: it answered 404")),
        (format!("http://{nobody}/{TOKEN}?key={TOKEN}"), 503, format!("{nobody}: cannot connect: Connection refused")),
        (format!("http://:{TOKEN}"), 204, "a webhook without a host: ".to_owned()),
    ] {
        let (rig, router) = rig(true, &[(&url, &[])]).await;
        let body = serde_json::to_vec(&event(&rig, "train", Phase::Succeeded)).unwrap();
        let tell = async || send(&router, raw(PATH, "application/cloudevents+json", body.clone())).await;
        let answer = tell().await;
        assert_eq!(answer.status, first, "{url}");
        rig.advance(601);
        assert_eq!(tell().await.status, 204, "{url}: given up");
        let dead = rig.fakes.docs.dump().into_iter().find(|doc| doc.path.as_str().starts_with("dead/")).unwrap();
        // It is listed with its job, and says which event was not told.
        let train = JobId::parse("train").unwrap();
        let (letters, _) = rig.fakes.store().dead_letters(Some(&train), None, 9).await.unwrap();
        let data: rekindle_wire::event::Data = serde_json::from_str(&letters[0].excerpt).unwrap();
        assert_eq!((letters.len(), data.phase), (1, Phase::Succeeded), "{url}");
        let mut told = vec![log.take(), rig.dead_reasons().concat(), format!("{dead:?}")];
        if first == 503 {
            told.push(answer.text().to_owned());
        }
        for text in told {
            assert!(text.contains(&host) && !text.contains(TOKEN), "{url}: {text}");
        }
    }
}

#[tokio::test]
async fn nothing_inside_is_reached() {
    let hook = Hook::start().await;
    let port = hook.url.rsplit(':').next().unwrap();
    let inside = [
        hook.url.clone(),
        format!("https://127.0.0.1:{port}"),
        format!("https://localhost:{port}"),
        format!("https://[::1]:{port}"),
        format!("https://[::ffff:127.0.0.1]:{port}"),
        // The URL standard reads these as 127.0.0.1.
        format!("https://2130706433:{port}"),
        format!("https://0x7f.1:{port}"),
        "https://169.254.169.254/computeMetadata/v1/".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "ftp://example.com/".to_owned(),
        "not an address".to_owned(),
    ];
    for url in &inside {
        let (rig, router) = rig(false, &[(url, &[])]).await;
        assert_eq!(tell(&router, &event(&rig, "train", Phase::Succeeded)).await, 204, "{url}");
        assert_eq!(rig.dead_reasons().len(), 1, "{url} is refused for good");
    }
    assert_eq!(hook.count(), 0);
}

#[tokio::test]
async fn poison_is_recorded_and_no_envelope_refused() {
    let (rig, router) = rig(true, &[]).await;
    for (id, data) in [("1", &b"x"[..]), ("2", b"{}"), ("3", b"\xff")] {
        assert_eq!(send(&router, push(PATH, id, &[], data)).await.status, 204);
    }
    let mut liar = event(&rig, "train", Phase::Failed);
    liar.ty = "dev.rekindle.job.succeeded.v1".into();
    assert_eq!(tell(&router, &liar).await, 204);
    assert_eq!(rig.dead_reasons().len(), 4);
    assert_eq!(send(&router, raw(PATH, "application/json", "[]")).await.status, 400);
    assert_eq!(send(&router, raw(PATH, "application/json", vec![b' '; 10 << 20])).await.status, 413);
    rig.fakes.docs.set_down(true);
    assert_eq!(tell(&router, &event(&rig, "train", Phase::Failed)).await, 503);
}
