//! Text from outside without characters that a terminal obeys.

pub(crate) use tenant_shared::{escape_json, is_terminal_unsafe, sanitize, sanitize_lines};

/// Maximum length of a message, in characters.
const MAX_MESSAGE_CHARS: usize = 2000;

/// Like [`sanitize`], and truncates the text to [`MAX_MESSAGE_CHARS`] characters.
pub(crate) fn sanitize_message(text: &str) -> String {
    let mut characters = text.chars();
    let line: String = characters.by_ref().take(MAX_MESSAGE_CHARS).collect();
    let end = if characters.next().is_some() { "…" } else { "" };
    sanitize(&line) + end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_one_line_of_limited_length_that_does_not_control_the_terminal() {
        assert_eq!(sanitize_message("a\u{1b}b\nc"), "a b c");
        assert_eq!(sanitize_message(&"x".repeat(3000)).chars().count(), MAX_MESSAGE_CHARS + 1);
    }
}
