//! Words of a command line in an environment variable, such as `BROWSER` or `EDITOR`.

/// Splits a command line into words: quotes group, a backslash escapes the next character.
pub(crate) fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (character, quote) {
            ('\\', None | Some('"')) => word.get_or_insert_default().extend(characters.next()),
            (mark, Some(open)) if mark == open => quote = None,
            ('\'' | '"', None) => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (space, None) if space.is_whitespace() => words.extend(word.take()),
            (other, _) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_as_a_shell_does() {
        assert_eq!(split_words("firefox"), ["firefox"]);
        assert_eq!(split_words("  a  'b c' \"d e\"f g\\ h ''"), ["a", "b c", "d ef", "g h", ""]);
        assert!(split_words("").is_empty());
    }
}
