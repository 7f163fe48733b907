//! What commands ask of the server, of the browser, and of what they remember.

use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use serde_json::Value;

use super::{project, rekindle, server, shell};

#[tokio::test]
async fn a_follow_asks_for_the_part_that_is_wanted_alone() {
    let server = server::start().await;
    for (options, name, value) in [("--attempt 2", "attempt", "2"), ("--worker 1", "worker", "1")] {
        let before = server.queries().len();
        let output = rekindle(&server, &format!("rekindle logs good -f {options}")).await;
        assert!(output.status.success(), "{output:?}");
        let asked = server.queries();
        // Also after the break in its middle.
        assert_eq!(asked.len() - before, 2, "{asked:?}");
        for query in &asked[before..] {
            let told = (query.get("follow").map(String::as_str), query.get(name).map(String::as_str));
            assert_eq!(told, (Some("true"), Some(value)), "{query:?}");
            assert_eq!(query.len(), 3, "nothing else but the form: {query:?}");
        }
    }
    let began = Timestamp::now();
    let output = rekindle(&server, "rekindle logs good -f --since 10m").await;
    assert!(output.status.success(), "{output:?}");
    let asked = server.queries();
    let [.., first, again] = asked.as_slice() else { panic!("{asked:?}") };
    assert_eq!(first, again, "of the same moment after the break");
    let since: Timestamp = first["since"].parse().unwrap();
    let secs = began.duration_since(since).as_secs();
    assert!((540..=600).contains(&secs) && first.contains_key("follow"), "{secs} s before it was asked: {first:?}");
}

#[tokio::test]
async fn a_second_look_goes_on_where_the_first_one_ended() {
    let server = server::start().await;
    let home = project();
    let look = async |form: &str| {
        let output = shell(&server, home.path(), &format!("XDG_STATE_HOME=$PWD/state $REKINDLE since {form}")).await;
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let read = async || -> Value { serde_json::from_slice(&look("--json").await).unwrap() };
    let moment = |look: &Value, name: &str| look[name].as_str().unwrap().parse::<Timestamp>().unwrap();
    for _ in 0..2 {
        let first = read().await;
        let span = moment(&first, "through").duration_since(moment(&first, "since")).as_secs();
        assert!((86_400..86_460).contains(&span), "a program's look is no person's: {first}");
    }
    let before = Timestamp::now();
    look("").await;
    let (second, third) = (read().await, read().await);
    // The server of the test tells whole seconds.
    assert!(moment(&second, "since").as_second() >= before.as_second(), "{second}");
    assert_eq!(moment(&third, "since"), moment(&second, "since"), "{third}");
}

#[tokio::test]
async fn open_starts_the_browser_with_the_address_of_the_job() {
    let server = server::start().await;
    let home = project();
    let opener = home.path().join("xdg-open");
    std::fs::write(&opener, "#!/bin/sh\necho \"$@\" >opened\n").unwrap();
    std::fs::set_permissions(&opener, std::fs::Permissions::from_mode(0o755)).unwrap();
    // Who reads the pipe waits for the browser, which the command does not.
    let open = "mkfifo opened; PATH=$PWD:$PATH $REKINDLE open train-1 >told; cat opened told";
    let output = shell(&server, home.path(), open).await;
    let address = format!("{}/#/job/train-1\n", server.url());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), address.repeat(2));
    let output = shell(&server, home.path(), "PATH=/nonexistent $REKINDLE open train-1").await;
    assert_eq!(String::from_utf8(output.stdout).unwrap(), address);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "open the address in a browser\n");
}
