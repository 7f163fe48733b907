//! The screen on a buffer, and what keys do.

use ratatui_core::backend::TestBackend;
use ratatui_core::buffer::Buffer;
use ratatui_core::style::Color;
use ratatui_core::terminal::Terminal;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::json;

use super::state::{Action, State, View};
use super::*;
use crate::config::{Origin, Server};
use crate::printer::Printer;
use ratatui_core::style::Modifier;
use rekindle_wire::v1::{FleetEntry, JobView, Owner};

fn noon() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn ago(secs: i64) -> Timestamp {
    noon() - jiff::SignedDuration::from_secs(secs)
}

fn job(id: &str, phase: &str, age: i64, message: &str) -> JobView {
    let held = json!([{
        "generation": 2, "name": format!("rk-abc123-{id}-g2"), "kind": "node", "zone": "us-central1-a",
        "accelerator": "v5litepod-16", "capacity": "spot", "slices": 1, "workers": 4, "chips": 16,
        "state": "ready", "created_at": ago(1690), "ready_at": ago(1570), "notice_deadline": null,
        "usd_per_hour": 3.92,
    }]);
    let resources = if phase == "running" { held } else { json!([]) };
    serde_json::from_value(json!({
        "id": id, "phase": phase, "phase_since": ago(90), "outcome": null, "reason": "running", "message": message,
        "desired": "run", "attempt": 2, "generation": 2, "waiting_for": null, "next_wake_at": null,
        "resources": resources,
        "counters": {
            "preemptions": 1, "infra_failures": 0, "user_failures": 0, "stockouts": 0, "resumes": 1, "steps_repeated": 25,
        },
        "progress": {"step": 1200, "step_at": null, "loss": "2.31", "checkpoint": 1175},
        "cost_usd": 1.234, "chip_hours": {"total": 5.0, "useful": 4.5, "repeated": 0.1, "waiting": 0.4},
        "last_end": {
            "attempt": 1, "generation": 1, "at": ago(1750), "kind": "preempted",
            "summary": "The provider took the slice back.",
        },
        "created_at": ago(age), "first_started_at": ago(1000), "submitted_by": "ada", "owner": "research",
        "tags": [], "run_id": "r1", "line": 0, "revision": 12, "spec": {},
    }))
    .unwrap()
}

fn progress_of(id: &str) -> ProgressList {
    let point = |step: i64| json!({"at": ago(3000 - step), "step": step, "loss": 9.0 - step as f64 / 400.0});
    serde_json::from_value(json!({
        "id": id,
        "attempts": [
            {"attempt": 1, "points": (1..20).map(|n| point(n * 50)).collect::<Vec<_>>()},
            {"attempt": 2, "points": (18..30).map(|n| point(n * 50)).collect::<Vec<_>>()},
        ],
        "workers": (0..4).map(|worker| json!({
            "slice": 0, "worker": worker, "attempt": 2, "state": "running", "heard_at": ago(4), "step": 1450 + worker,
            "loss": "1.9", "checkpoint": null, "disk_free_bytes": null, "memory_free_bytes": 34_359_738_368_u64,
            "notice_deadline": null,
        })).collect::<Vec<_>>(),
    }))
    .unwrap()
}

fn fleet_of(owner: &str) -> Fleet {
    serde_json::from_value(json!({"resources": [{
        "name": "rk-abc123-old-g1", "kind": "node", "zone": "us-central1-a", "accelerator": "v5litepod-16",
        "preemptible": true, "state": "ready", "created_at": null, "age_secs": 7400, "owner": owner, "job": "train-1",
        "generation": 2, "usd_per_hour": 3.92, "owned_by": null,
    }, {
        "name": "rk-abc123-box-g1", "kind": "node", "zone": "us-central1-a", "accelerator": "v5litepod-16",
        "preemptible": true, "state": "ready", "created_at": null, "age_secs": 7400, "owner": "box", "job": "box",
        "generation": 1, "usd_per_hour": 3.92, "owned_by": null,
        "idle": {"cause": "unused", "since": "2026-11-28T09:00:00Z", "secs": 4000},
    }], "unreachable": []}))
    .unwrap()
}

fn state() -> State {
    let mut state = State::new("http://127.0.0.1:8080", true, noon());
    state.all(vec![
        job("old", "succeeded", 9000, "All 4 workers ended well."),
        job("train-1", "running", 5000, "The program runs on 4 workers."),
        job("waits", "pending", 100, "No capacity in us-central1-a."),
    ]);
    assert_eq!(state.selected.as_deref(), Some("train-1"), "what runs is looked at first, and not what is newest");
    state.selected = Some("waits".into());
    state
}

fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, state)).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> String {
    let width = usize::from(buffer.area.width);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui_core::buffer::Cell::symbol).collect();
    let lines = cells.chunks(width).map(|line| line.concat().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

fn screen(state: &State, width: u16, height: u16) -> String {
    text(&drawn(state, width, height))
}

fn press(state: &mut State, code: KeyCode) -> Option<Action> {
    state.key(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn the_fleet_tells_how_old_it_is_and_workers_that_have_no_room_can_be_scrolled_to() {
    let mut state = state();
    state.progress = None;
    press(&mut state, KeyCode::Down);
    let mut list = progress_of("train-1");
    let one = list.workers[0].clone();
    list.workers = (0..64).map(|worker| rekindle_wire::seeing::WorkerView { worker, ..one.clone() }).collect();
    state.progress = Some(list);
    state.fleet = Some(fleet_of("ORPHAN"));
    state.fleet_at = ago(12);
    let text = screen(&state, 140, 32);
    assert!(text.contains("fleet 12s ago: 2"), "{text}");
    assert!(
        text.contains("workers 1 to 7 of 64, ← → for more") && text.contains("w6 ") && !text.contains("w7 "),
        "{text}"
    );
    press(&mut state, KeyCode::Right);
    let text = screen(&state, 140, 32);
    assert!(text.contains("workers 6 to 12 of 64") && text.contains("w11 ") && !text.contains("w4 "), "{text}");
    for _ in 0..30 {
        press(&mut state, KeyCode::Right);
    }
    let text = screen(&state, 140, 32);
    assert!(text.contains("workers 58 to 64 of 64") && text.contains("w63 "), "{text}");
    press(&mut state, KeyCode::Up);
    assert_eq!(state.workers_from, 0, "of another job");
}

#[test]
fn before_the_first_answer_nothing_is_counted() {
    let mut state = State::new("http://127.0.0.1:8080", true, noon());
    let text = screen(&state, 140, 32);
    assert!(text.starts_with("rekindle http://127.0.0.1:8080  …loading\n…loading\n"), "{text}");
    assert!(!text.contains("jobs"), "{text}");
    state.all(Vec::new());
    let text = screen(&state, 140, 32);
    assert!(text.starts_with("rekindle http://127.0.0.1:8080  0 jobs\nno jobs; `rekindle run"), "{text}");
}

#[test]
fn the_whole_screen_shows_jobs_attempts_workers_fleet_and_events() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    state.progress = Some(progress_of("train-1"));
    state.fleet = Some(fleet_of("ORPHAN"));
    let text = screen(&state, 140, 32);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "rekindle http://127.0.0.1:8080  3 jobs, 1 running, 1 waiting  $11.76 an hour");
    assert!(lines[1].starts_with("JOB     PHASE        FOR"), "{text}");
    assert!(lines[2].starts_with("waits   pending      90s"), "those that are not over come first:\n{text}");
    assert!(lines[3].starts_with("train-1 running") && lines[3].contains("1453"), "the workers' own step:\n{text}");
    assert!(lines[4].starts_with("old     succeeded"), "{text}");
    for words in [
        "train-1: attempts",
        "loss 8.875 → 5.375",
        "attempt 2: steps 900 to 1450 in 9m",
        "attempt 1 ended: preempted: The provider took the slice back.",
        "WORKER STATE",
        "w3     running    1453       1.9        4s      32.0 GiB",
        "fleet 0s ago: 2",
        "idle 1h06m",
        "ORPHAN",
        "events",
        "waits pending No capacity in us-central1-a.",
        "↑↓ select",
    ] {
        assert!(text.contains(words), "{words:?} in\n{text}");
    }
    assert!(text.chars().any(|c| ('▁'..='█').contains(&c)), "a sparkline:\n{text}");
}

#[test]
fn a_single_loss_is_no_way_from_itself_to_itself() {
    let mut state = state();
    let mut progress = progress_of("waits");
    progress.attempts.truncate(1);
    progress.attempts[0].points.truncate(1);
    state.progress = Some(progress.clone());
    let shown = screen(&state, 120, 30);
    assert!(shown.contains("one loss so far") && shown.contains("loss 8.875"), "{shown}");
    assert!(!shown.contains("8.875 →") && !shown.contains("no loss"), "{shown}");
    progress.attempts[0].points[0].loss = None;
    state.progress = Some(progress);
    let shown = screen(&state, 120, 30);
    assert!(shown.contains("no loss was reported") && !shown.contains("loss so far"), "{shown}");
}

#[test]
fn a_small_terminal_loses_panes_and_columns_and_the_smallest_is_told() {
    let mut state = state();
    state.progress = Some(progress_of("waits"));
    let narrow = screen(&state, 60, 30);
    assert!(narrow.contains("events") && narrow.contains("attempts") && !narrow.contains("fleet"), "{narrow}");
    assert!(!narrow.contains("WORKER") && !narrow.contains("COST"), "{narrow}");
    let low = screen(&state, 120, 20);
    assert!(low.contains("attempts") && !low.contains("events"), "{low}");
    let list = screen(&state, 40, 8);
    assert!(list.contains("train-1") && !list.contains("attempts") && !list.contains("FOR"), "{list}");
    assert!(screen(&state, 20, 5).starts_with("too small: 30 by 6"), "{}", screen(&state, 20, 5));
    for (width, height) in [(1, 1), (30, 6), (31, 16), (89, 26), (90, 26), (300, 100)] {
        for view in [View::Main, View::Help, View::Ask { job: "train-1".into(), attempt: 2 }] {
            state.view = view;
            assert!(screen(&state, width, height).lines().count().max(1) <= usize::from(height));
        }
    }
}

#[test]
fn why_a_job_is_where_it_is_ends_with_dots_where_it_is_cut() {
    let mut state = state();
    let long = "No capacity of v5litepod-16 in us-central1-a, us-west4-a, europe-west4-b and five more zones, tried again in 4 minutes";
    state.jobs.insert("old".into(), job("old", "pending", 9000, long));
    for width in [31, 60, 80, 100, 130] {
        let text = screen(&state, width, 24);
        let line = text.lines().find(|line| line.contains("pending") && line.contains("old")).unwrap();
        assert!(line.trim_end().ends_with('…') && line.contains("No"), "{width}: {text}");
    }
    assert!(screen(&state, 300, 24).contains(long), "{}", screen(&state, 300, 24));
}

#[test]
fn tab_shows_what_has_no_room() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    state.progress = Some(progress_of("train-1"));
    state.fleet = Some(fleet_of("ORPHAN"));
    // In the order of the keys: what is seen, of all that there is.
    let panes = ["train-1: attempts", "WORKER STATE", "fleet 0s ago: 2", " events "];
    let seen = |state: &State, width, height| {
        let text = screen(state, width, height);
        assert!(text.contains("↑↓ select  Tab panes") && (width < 80 || text.contains("q quit")), "{text}");
        panes.map(|pane| text.contains(pane))
    };
    let both = |first: usize, second: usize| std::array::from_fn(|at| at == first || at == second);
    for (at, low_and_wide, high_and_narrow) in [
        (0, both(0, 1), both(0, 3)),
        (1, both(0, 1), both(1, 3)),
        (2, both(2, 3), both(0, 2)),
        (3, both(2, 3), both(0, 3)),
    ] {
        assert_eq!(seen(&state, 80, 24), both(at, at));
        assert_eq!(seen(&state, 120, 24), low_and_wide);
        assert_eq!(seen(&state, 80, 40), high_and_narrow);
        assert_eq!(seen(&state, 120, 40), [true; 4]);
        assert_eq!(press(&mut state, KeyCode::Tab), None);
    }
    assert_eq!(seen(&state, 80, 24), both(0, 0), "and again from the first");
    for at in [3, 2, 1, 0] {
        press(&mut state, KeyCode::BackTab);
        assert_eq!(seen(&state, 80, 24), both(at, at), "back");
    }
}

#[test]
fn a_good_end_is_said_once_losses_are_short_and_no_fleet_costs_nothing() {
    let mut state = state();
    state.jobs.retain(|id, _| id == "old");
    let mut done = job("old", "succeeded", 9000, "All 4 workers ended well.");
    done.last_end.as_mut().unwrap().kind = None;
    done.last_end.as_mut().unwrap().summary = "It succeeded: all 4 workers ended with exit code 0".into();
    state.one(done, true);
    state.selected = Some("old".into());
    let mut list = progress_of("old");
    list.attempts[0].points[0].loss = Some(15.3695);
    list.attempts[1].points.last_mut().unwrap().loss = Some(3.5e-12);
    state.progress = Some(list);
    state.fleet = Some(serde_json::from_value(json!({"resources": [], "unreachable": []})).unwrap());
    let text = screen(&state, 140, 32);
    assert!(text.contains("attempt 1 ended: It succeeded: all 4") && !text.contains("ended: ended"), "{text}");
    assert!(text.contains("loss 15.3695 → 3.5e-12"), "{text}");
    assert!(text.contains("  $0.00 an hour"), "{text}");
}

#[test]
fn where_it_is_narrow_whole_keys_are_left_out_and_the_counts_stay() {
    let mut state = state();
    state.fleet = Some(fleet_of("ORPHAN"));
    for (width, head, foot) in [
        (
            140,
            "rekindle http://127.0.0.1:8080  3 jobs, 1 running, 1 waiting  $11.76 an hour",
            "↑↓ select  Tab panes  ←→ workers  l logs",
        ),
        (60, "rekindle  3 jobs, 1 running, 1 waiting  $11.76 an hour", "l logs  e explain  c cancel  ? keys  q quit"),
        (44, "3 jobs, 1 running, 1 waiting  $11.76 an hour", "l logs  e explain  c cancel  ? keys  q quit"),
        (30, "3 jobs, 1 running, 1 waiting", "l logs  ? keys  q quit"),
    ] {
        let text = screen(&state, width, 12);
        assert!(text.lines().next().is_some_and(|line| line.starts_with(head)), "{text}");
        assert!(text.lines().last().is_some_and(|line| line.contains(foot)), "{width}: {text}");
    }
}

#[test]
fn preemptions_are_shown_before_zones() {
    let state = state();
    let at_110 = screen(&state, 110, 12);
    assert!(at_110.contains("PREEMPTED") && !at_110.contains("ZONE"), "{at_110}");
    assert!(at_110.contains("No capacity in us"), "and why a job waits: {at_110}");
    assert!(screen(&state, 126, 12).contains("ZONE"));
}

#[test]
fn without_colours_there_are_none() {
    let mut state = state();
    state.progress = Some(progress_of("waits"));
    let colours = |state: &State| {
        let buffer = drawn(state, 140, 32);
        buffer.content.iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert!(colours(&state) > 0);
    state.has_colours = false;
    assert_eq!(colours(&state), 0);
}

#[test]
fn a_list_that_is_longer_than_the_screen_scrolls_with_the_selection() {
    let mut state = State::new("http://s", false, noon());
    state.all((0..50).map(|n| job(&format!("job-{n:02}"), "running", n, "")).collect());
    assert_eq!(state.selected.as_deref(), Some("job-00"));
    assert_eq!(press(&mut state, KeyCode::PageDown), Some(Action::Select("job-10".into())));
    assert_eq!(press(&mut state, KeyCode::End), Some(Action::Select("job-49".into())));
    assert_eq!(press(&mut state, KeyCode::Down), None);
    let text = screen(&state, 80, 10);
    assert!(text.contains("job-49") && !text.contains("job-00"), "{text}");
    assert!(text.contains("6 of 50 jobs; ↑↓ PgDn for the others"), "{text}");
    assert_eq!(press(&mut state, KeyCode::Home), Some(Action::Select("job-00".into())));
    assert!(text.starts_with("rekindle http://s  50 jobs, 50 running"), "{text}");
    state.all((0..JOBS as i64).map(|n| job(&format!("job-{n:03}"), "running", n, "")).collect());
    let text = screen(&state, 80, 10);
    assert!(text.starts_with("rekindle http://s  the newest 500 jobs, 500 running"), "there may be more: {text}");
}

#[test]
fn cancel_asks_and_only_a_clear_yes_counts() {
    let mut state = state();
    press(&mut state, KeyCode::Down);
    for no in [KeyCode::Char('n'), KeyCode::Esc, KeyCode::Enter, KeyCode::Char('q')] {
        press(&mut state, KeyCode::Char('c'));
        let text = screen(&state, 80, 24);
        assert!(text.contains("Cancel train-1?") && text.contains("ended for good"), "{text}");
        assert_eq!(press(&mut state, no), None);
        assert_eq!(state.view, View::Main);
    }
    press(&mut state, KeyCode::Char('c'));
    let yes = press(&mut state, KeyCode::Char('y'));
    assert_eq!(yes, Some(Action::Cancel { job: "train-1".into(), attempt: 2 }));
    let mut over = job("over", "stopping", 1, "");
    over.outcome = Some(rekindle_core::job::Outcome::Failed);
    state.one(over, true);
    state.selected = Some("over".into());
    press(&mut state, KeyCode::Char('c'));
    assert!(screen(&state, 80, 24).contains("over has its end already: failed"));
}

#[test]
fn logs_follow_their_end_until_one_scrolls_and_hostile_text_is_tame() {
    let mut state = state();
    state.sized(60, 12);
    assert_eq!(press(&mut state, KeyCode::Char('l')), Some(Action::Logs("waits".into())));
    assert!(screen(&state, 60, 12).contains("nothing yet"));
    let add = |state: &mut State, from: usize, to: usize| {
        let View::Logs(pane) = &mut state.view else { panic!("{:?}", state.view) };
        (from..to).for_each(|n| pane.push(&format!("\u{1b}[2Jline {n}")));
    };
    add(&mut state, 0, 50);
    let text = screen(&state, 60, 12);
    assert!(text.contains("line 49") && !text.contains("line 39\n") && !text.contains('\u{1b}'), "{text}");
    press(&mut state, KeyCode::PageUp);
    let before = screen(&state, 60, 12);
    assert!(before.contains("line 39") && !before.contains("line 49"), "{before}");
    add(&mut state, 50, 55);
    assert_eq!(screen(&state, 60, 12), before, "what one reads stays where it is");
    press(&mut state, KeyCode::Home);
    assert!(screen(&state, 60, 12).contains("line 0\n"));
    press(&mut state, KeyCode::Down);
    let below = screen(&state, 60, 12);
    assert!(!below.contains("line 0\n") && below.contains("line 9"), "one line at once: {below}");
    press(&mut state, KeyCode::End);
    assert!(screen(&state, 60, 12).contains("line 54"));
    add(&mut state, 55, 20_000);
    let View::Logs(pane) = &state.view else { panic!() };
    assert_eq!(pane.lines.len(), 5000, "memory is bounded");
    assert_eq!(press(&mut state, KeyCode::Esc), Some(Action::Close));
    assert_eq!(press(&mut state, KeyCode::Esc), None, "one Esc too many does not end it");
    assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Action::Quit));
}

#[test]
fn an_explanation_is_read_from_its_beginning_and_is_that_of_the_job_that_was_asked_for() {
    let mut state = state();
    state.sized(40, 12);
    let lines = |job: &str| -> Vec<String> {
        let facts = (0..9).map(|n| format!("- fact {n} of {job}"));
        [format!("{job} waits: {}", "there is none ".repeat(9)), String::new()].into_iter().chain(facts).collect()
    };
    press(&mut state, KeyCode::Char('e'));
    press(&mut state, KeyCode::Esc);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('e'));
    state.explained("waits", &lines("waits"));
    assert!(screen(&state, 40, 12).contains("nothing yet"), "that of another job comes late");
    for _twice in 0..2 {
        state.explained("train-1", &lines("train-1"));
    }
    let begin = screen(&state, 40, 12);
    assert!(begin.contains("train-1 waits: there is") && !begin.contains("fact 8"), "{begin}");
    press(&mut state, KeyCode::End);
    let end = screen(&state, 40, 12);
    assert!(end.contains("- fact 8 of train-1") && end.matches("fact").count() == 9, "{end}");
    press(&mut state, KeyCode::Home);
    assert_eq!(screen(&state, 40, 12), begin);
    // What is new of it is shown where one reads, and a look that fails takes nothing away.
    press(&mut state, KeyCode::End);
    assert_eq!(state.explaining(), Some("train-1"));
    let anew: Vec<String> = lines("train-1").iter().map(|line| line.replace("fact 8", "news 8")).collect();
    state.explained("train-1", &anew);
    state.unexplained("train-1", "the server is away");
    assert_eq!(screen(&state, 40, 12), end.replace("fact 8", "news 8"));
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.explaining(), None);
}

#[test]
fn output_that_looks_like_a_heading_is_no_heading() {
    let mut state = state();
    press(&mut state, KeyCode::Char('l'));
    let View::Logs(pane) = &mut state.view else { panic!() };
    for (workers, worker, line, is_open) in [
        (1, "", None, false),
        (1, "w0", Some("== attempt 9 =="), false),
        (4, "w1", Some(" 10%"), true),
        (4, "w1", Some(" 20%"), true),
        (4, "w2", Some("done"), false),
    ] {
        let (worker, line) = (worker.to_owned(), line.map(str::to_owned));
        pane.output(&OutputLine { attempt: 1, workers, worker, line, is_open });
    }
    let shown: Vec<_> = pane.lines.iter().map(|line| (line.text.as_str(), line.is_ours)).collect();
    let want = [("== attempt 1 ==", true), ("== attempt 9 ==", false), ("[w1]  20%", false), ("[w2] done", false)];
    assert_eq!(shown, want, "of a progress bar the newest state is seen");
    let buffer = drawn(&state, 60, 12);
    let is_bold = |row| buffer[(0, row)].modifier.contains(Modifier::BOLD);
    // Below the head of the screen and the title of the pane.
    assert_eq!([2, 3, 4].map(is_bold), [true, false, false]);
}

#[tokio::test]
async fn output_is_asked_for_from_near_its_end_and_as_objects() {
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = Server { url, origin: Origin::Given, token_command: None };
    let api = crate::api::Api::new(server, None).unwrap();
    let context = Context { printer: Printer::new(false, anstream::ColorChoice::Never), api, config: None };
    let served = async {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut asked = String::new();
        stream.read_line(&mut asked).await.unwrap();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrekindle-version: 0\r\n\r\n";
        let events = "id: 1;a\ndata: {\"attempt\":1,\"workers\":4}\n\n";
        stream.write_all(format!("{head}{events}").as_bytes()).await.unwrap();
        asked
    };
    let mut output = output(&context, "train-1".to_owned());
    let (asked, lines) = tokio::join!(served, output.next());
    assert!(asked.starts_with("GET /v1/jobs/train-1/logs?"), "{asked}");
    for part in ["follow=true", "form=lines", "tail=1048576"] {
        assert!(asked.contains(part), "{asked}");
    }
    assert!(matches!(lines.unwrap().as_slice(), [Said::Output(line)] if line.attempt == 1 && line.line.is_none()));
}

#[test]
fn of_a_large_fleet_what_costs_for_nothing_is_seen_first() {
    let mut state = state();
    let mut fleet = fleet_of("train-1");
    let [busy, idle] = fleet.resources.as_slice() else { panic!() };
    let (busy, idle) = (busy.clone(), idle.clone());
    let orphan = FleetEntry { owner: Some(Owner::Orphan), ..busy.clone() };
    fleet.resources = std::iter::repeat_n(busy, 20).chain([idle, orphan]).collect();
    state.fleet = Some(fleet);
    let text = screen(&state, 140, 32);
    let at = |word: &str| text.lines().position(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {text}"));
    let title = at("fleet 0s ago: 22");
    assert_eq!((at("ORPHAN"), at("idle 1h06m")), (title + 1, title + 2), "{text}");
    assert!(text.contains("and 16 more: `rekindle fleet`"), "{text}");
    state.fleet = Some(fleet_of("ORPHAN"));
    assert!(!screen(&state, 140, 32).contains("more: `rekindle fleet`"));
}

#[test]
fn a_slice_that_a_job_gave_back_is_paid_for_no_longer_though_the_fleet_was_listed_before() {
    let mut state = state();
    state.fleet = Some(fleet_of("train-1"));
    state.fleet_at = ago(14);
    let head = |state: &State| screen(state, 140, 32).lines().next().unwrap().to_owned();
    assert!(head(&state).ends_with("  $7.84 an hour"), "its own, and what is of a job that is not listed");
    assert!(screen(&state, 140, 32).contains("fleet 14s ago: 2"));
    let mut job = job("train-1", "running", 5000, "The program runs on 4 workers.");
    let held = job.resources.pop().unwrap();
    state.one(job.clone(), true);
    assert!(head(&state).ends_with("  $3.92 an hour"), "{}", head(&state));
    assert!(screen(&state, 140, 32).contains("fleet 14s ago: 1"), "{}", screen(&state, 140, 32));
    job.resources.push(rekindle_wire::v1::ResourceView { generation: 3, ready_at: None, ..held });
    state.one(job.clone(), true);
    assert!(head(&state).ends_with("  $3.92 an hour"), "what is only asked for costs nothing yet");
    job.resources[0].ready_at = Some(noon());
    state.one(job, true);
    assert!(head(&state).ends_with("  $7.84 an hour"), "the next one, which the fleet does not know yet");
}

#[test]
fn changes_are_events_and_what_goes_away_is_not_selected() {
    let mut state = state();
    state.now = ago(-60);
    let mut changed = job("waits", "running", 100, "The program runs on 4 workers.");
    changed.revision = 13;
    state.one(changed.clone(), true);
    assert_eq!((state.events[0].job.as_str(), state.events[0].phase.as_str()), ("waits", "running"));
    let count = state.events.len();
    state.one(changed.clone(), true);
    changed.revision = 11;
    changed.message = "old news".into();
    state.one(changed.clone(), true);
    assert_eq!(state.events.len(), count, "the same again, and what comes late, are no news");
    changed.revision = 14;
    state.one(changed, false);
    assert_eq!(state.selected.as_deref(), Some("train-1"));
    state.down = Some("cannot reach it".into());
    assert!(screen(&state, 80, 12).contains("cannot reach it; going on as soon as it is back"));
    state.all(Vec::new());
    assert_eq!((state.selected.as_deref(), state.down.as_deref()), (None, None));
    assert!(screen(&state, 80, 12).contains("rekindle run"));
    for key in [KeyCode::Char('l'), KeyCode::Char('e'), KeyCode::Char('c'), KeyCode::Down] {
        assert_eq!(press(&mut state, key), None);
    }
}

#[test]
fn keys_are_told_and_control_c_quits_everywhere() {
    let mut state = state();
    press(&mut state, KeyCode::Char('?'));
    assert!(screen(&state, 80, 24).contains("cancel it; asks first"));
    press(&mut state, KeyCode::Char('x'));
    assert_eq!(press(&mut state, KeyCode::Char('e')), Some(Action::Explain("waits".into())));
    assert_eq!(press(&mut state, KeyCode::Esc), None);
    press(&mut state, KeyCode::Char('c'));
    let quit = state.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(quit, Some(Action::Quit));
}
