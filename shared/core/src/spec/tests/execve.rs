//! What no program can be given is refused at submit, by its field.

use serde_json::json;

use super::super::execve::{WORD_MAX, faults};
use super::*;

#[test]
fn a_word_that_linux_gives_no_program_is_refused_with_its_size_and_the_next_step() {
    let longest = "x".repeat(WORD_MAX);
    let longer = "x".repeat(WORD_MAX + 1);
    for (field, value) in [
        ("run", json!(longest)),
        ("run", json!(["echo", longest])),
        ("setup", json!(longest)),
        ("run", json!(["a", ""])),
    ] {
        assert!(parse_in(&open_deployment(), &with(&[field], value)).is_ok(), "{field} as long as may be");
    }
    let says = "has 131072 bytes; Linux gives a program at most 131071 in one: put it into a file of `code`";
    refuses(&with(&["run"], json!(longer)), "run", says);
    refuses(&with(&["run"], json!(["python3", "-c", longer])), "run[2]", says);
    refuses(&with(&["setup"], json!(longer)), "setup", says);
    let value = "x".repeat(WORD_MAX - "DATA=".len());
    assert!(parse_in(&open_deployment(), &with(&["env"], json!({"DATA": value}))).is_ok());
    let says = "has, with its name, 131072 bytes; Linux gives a program at most 131071";
    refuses(&with(&["env"], json!({"DATA": format!("{value}x")})), "env.DATA", says);
    let long = format!("gs://bucket/{}", "x".repeat(5000));
    refuses(&with(&["checkpoint"], json!(long)), "checkpoint", "has 5012 bytes; the name of a place has at most 4096");
}

#[test]
fn a_name_that_no_shell_can_read_is_refused() {
    for name in ["FOO BAR", "FOO=BAR", " FOO", "FOO\t", "FOO\n", "A\0"] {
        let field = format!("env.{}", name.replace(char::is_control, "?"));
        refuses(&with(&["env"], json!({name: "1"})), &field, "nor have blanks, '=' or NUL; write it like LR");
    }
    for name in ["FOO", "foo.bar", "BASH_FUNC_f%%", "é"] {
        assert!(parse_in(&open_deployment(), &with(&["env"], json!({name: "1"}))).is_ok(), "{name}");
    }
}

#[test]
fn the_faults_of_a_command_name_its_words() {
    let told = |command| faults(&command, "run").into_iter().map(|f| f.field).collect::<Vec<_>>();
    let words = |words: &[&str]| CommandLine::Argv(words.iter().map(|&word| word.to_owned()).collect());
    assert_eq!(told(words(&["a", "b\0", "", "\0"])), ["run[1]", "run[3]"]);
    assert_eq!(told(CommandLine::Shell("a\0".into())), ["run"]);
    assert!(told(CommandLine::Shell("a".into())).is_empty());
}
