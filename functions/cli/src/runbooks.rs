//! The commands of the pages below `infra/` and of the root README: each is one that this command line takes, with its options.

use clap::Parser as _;
use rekindle_infra_tests::pages;

use crate::args::Cli;

fn parsed(words: &[String]) -> Result<(), String> {
    Cli::try_parse_from(words).map(drop).map_err(|error| error.to_string())
}

#[test]
fn every_command_of_the_pages_is_taken() {
    let mut count = 0;
    for (page, line) in pages::all_lines() {
        for words in pages::commands(&line).iter().filter(|words| words[0] == "rekindle") {
            count += 1;
            if let Err(why) = parsed(words) {
                panic!("{page}: {}: {why}", words.join(" "));
            }
        }
    }
    assert!(count >= 20, "{count}");
    let ours = pages::ours();
    for words in &ours {
        if let Err(why) = parsed(words) {
            panic!("README.md: {}: {why}", words.join(" "));
        }
    }
    assert!(ours.len() >= 18, "{ours:#?}");
    let readme = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md")).unwrap();
    let strays = pages::strays(&readme);
    assert!(strays.is_empty(), "README.md: in no block of sh: {strays:#?}");
    assert_eq!(pages::strays("```\nrekindle ps\n```\n```sh\nrekindle top\n```\n"), ["rekindle ps"]);
    assert_eq!(pages::our_call("cargo run --release -- demo     # all of it").unwrap(), ["rekindle", "demo"]);
    for wrong in ["rekindle pausse first", "rekindle ps --alive", "rekindle doctor --follow", "rekindle restart"] {
        let words: Vec<String> = wrong.split(' ').map(str::to_owned).collect();
        assert!(parsed(&words).is_err(), "{wrong}");
    }
}
