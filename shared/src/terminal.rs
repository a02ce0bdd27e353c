//! Untrusted text in terminals and logs, without the characters that a terminal obeys.

/// Whether a terminal obeys a character instead of showing it: control characters (C0, DEL, C1),
/// and format characters that change the direction of text, are invisible or separate lines.
pub fn is_terminal_unsafe(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Replaces characters that a terminal obeys, and line feeds, by spaces, for untrusted text on one
/// line.
pub fn sanitize(text: &str) -> String {
    text.chars().map(|it| if is_terminal_unsafe(it) { ' ' } else { it }).collect()
}

/// Like [`sanitize`], but keeps line feeds, for untrusted text of several lines.
pub fn sanitize_lines(text: &str) -> String {
    text.chars().map(|it| if is_terminal_unsafe(it) && it != '\n' { ' ' } else { it }).collect()
}

/// Writes characters that a terminal obeys, except line feeds, as escapes of JSON (`\u001b`). A JSON
/// document keeps its value: it has such characters in strings only, except for white space between
/// values, where only spaces and line feeds are allowed here. `serde_json` escapes only those below
/// U+0020, because RFC 8259 section 7 requires no others.
pub fn escape_json(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if is_terminal_unsafe(character) && character != '\n' {
            let mut units = [0; 2];
            let units = character.encode_utf16(&mut units);
            escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_unsafe_characters_are_replaced() {
        let text = "a\u{1b}[2J\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200b}\u{feff}\r\tb\nc";
        assert_eq!(sanitize(text), "a [2J  31m      b c");
        assert_eq!(sanitize_lines(text), "a [2J  31m      b\nc");
        assert_eq!(sanitize("Zoë, 山田 ☃"), "Zoë, 山田 ☃");
    }

    #[test]
    fn every_bidirectional_control_character_is_unsafe() {
        for mut range in ['\u{200e}'..='\u{200f}', '\u{202a}'..='\u{202e}', '\u{2066}'..='\u{2069}']
        {
            assert!(range.all(is_terminal_unsafe));
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let text = "\u{0}\u{1b}\u{7f}\u{85}\u{9b}\u{202e}\u{2028}\u{e0001}\n\"ë";
        let shown = escape_json(&serde_json::to_string_pretty(&[text]).unwrap());
        assert!(shown.chars().all(|it| it == '\n' || !is_terminal_unsafe(it)), "{shown}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), [text]);
    }
}
