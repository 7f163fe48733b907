//! What Linux gives to a program: one argument or variable has a longest form, and none holds a NUL.
//!
//! Told at submit, since a worker finds it out only when it starts the program, on a TPU that was waited and paid for.

use super::CommandLine;
use super::parse::FieldError;

/// Longest argument, and longest `NAME=VALUE` of a variable, in bytes: `MAX_ARG_STRLEN` without the NUL at its end.
// What they may have together (2 MiB with the usual stack, pointers included) needs no check of its own: a spec and an
// order are far smaller.
pub const WORD_MAX: usize = 128 * 1024 - 1;

/// What is wrong with an argument, if anything is.
pub(super) fn argument_fault(word: &str) -> Option<String> {
    if word.contains('\0') {
        return Some("has a NUL character, which no program can be given; remove it".into());
    }
    too_long("has", word.len(), "into a file of `code`, and give the program its path")
}

/// What is wrong with the value of a variable, if anything is.
pub(super) fn variable_fault(name: &str, value: &str) -> Option<String> {
    if value.contains('\0') {
        return Some("has a NUL character, which no environment can hold; remove it".into());
    }
    let size = name.len() + 1 + value.len();
    too_long("has, with its name,", size, "into a file of `code`, and its path into the variable")
}

fn too_long(has: &str, size: usize, step: &str) -> Option<String> {
    let told = || format!("{has} {size} bytes; Linux gives a program at most {WORD_MAX} in one: put it {step}");
    (size > WORD_MAX).then(told)
}

/// Every word of a command that no program can be given. `field` is the path of the command.
pub fn faults(command: &CommandLine, field: &str) -> Vec<FieldError> {
    match command {
        CommandLine::Shell(line) => {
            let fault = argument_fault(line).map(|message| FieldError { field: field.to_owned(), message });
            fault.into_iter().collect()
        }
        CommandLine::Argv(words) => {
            let of = |(at, word): (usize, &String)| {
                argument_fault(word).map(|message| FieldError { field: format!("{field}[{at}]"), message })
            };
            words.iter().enumerate().filter_map(of).collect()
        }
    }
}
