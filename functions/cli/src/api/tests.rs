//! Servers that are away, silent, or break off; the answers of one that is there are in the tests of the binary.

use std::path::PathBuf;

use super::*;

fn api(url: &str, origin: Origin) -> Api {
    Api::new(Server { url: url.to_owned(), origin, token_command: None }, None).unwrap()
}

#[test]
fn a_job_id_cannot_leave_its_place_in_the_path() {
    assert_eq!(segment("a-1").unwrap(), "a-1");
    for bad in ["", "..", "a/b", "a?b", "a b", "a%2fb"] {
        assert!(segment(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn who_named_a_server_that_is_away_is_told_where_to_look() {
    for (origin, next) in [
        (Origin::Default, "start `rekindle dev` in another terminal"),
        (Origin::Given, "check the address in --server or REKINDLE_SERVER"),
        (Origin::File(PathBuf::from("/etc/rekindle.toml")), "check `server` in /etc/rekindle.toml"),
    ] {
        let text = api("http://127.0.0.1:1", origin).get("/v1/jobs", &[]).await.unwrap_err().text();
        assert!(text.contains("cannot reach http://127.0.0.1:1") && text.contains("Connection refused"), "{text}");
        assert!(text.contains(next), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_takes_a_call_and_does_not_answer_is_told_from_one_that_is_away() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let api = api(&url, Origin::Given);
    let error = api.http.get(&url).timeout(Duration::from_millis(1)).send().await.unwrap_err();
    let text = api.unreachable(&error).text();
    assert!(text.contains(&format!("no answer from {url}")) && text.contains("that the server runs"), "{text}");
}

#[tokio::test]
async fn a_stream_without_a_word_is_given_up() {
    let mut events = Events {
        url: "http://a".into(),
        bytes: Box::pin(futures::stream::pending()),
        parser: sse::Parser::default(),
        ready: VecDeque::new(),
        silence_max: Duration::from_millis(1),
    };
    let text = events.next().await.unwrap_err().text();
    assert!(text.contains("http://a went silent") && text.contains("run the command again"), "{text}");
}
