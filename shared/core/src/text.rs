//! What of a text nobody sees, and programs that show it obey.

/// Control characters, and those that Unicode has for the direction of writing (UAX 9): terminals and browsers obey them, so that
/// a name or a message that holds one may show what it does not say, or turn around what stands beside it.
pub fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_all_scripts_are_seen_and_what_turns_them_around_is_not() {
        let turns = "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        let obeyed = "\0\t\n\u{1b}\u{7f}\u{9b}";
        assert!(turns.chars().chain(obeyed.chars()).all(is_unseen));
        // Signs are made of several characters, and letters may be written to the left.
        assert!(!"שלום مرحبا 訓練 👩\u{200d}🚀 e\u{301} ␛".chars().any(is_unseen));
    }
}
