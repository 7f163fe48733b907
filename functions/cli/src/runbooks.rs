//! The commands of the pages below `infra/`: each is one that this command line takes, with its options.

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
    for wrong in ["rekindle pausse first", "rekindle ps --alive", "rekindle doctor --follow", "rekindle restart"] {
        let words: Vec<String> = wrong.split(' ').map(str::to_owned).collect();
        assert!(parsed(&words).is_err(), "{wrong}");
    }
}
