//! Parser of label selectors (API concepts, "Label selectors"). Pure.
//!
//! A selector of a client is joined with another one, and must only narrow it. So it is parsed, and
//! what is sent is written anew from its requirements: no character of it can begin, end or change
//! another requirement.

/// Reason why a text is no label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// A character that neither keys and values nor operators have.
    #[error("{0:?} is not allowed")]
    Character(char),
    /// It ends where something must follow.
    #[error("it ends where {0} is expected")]
    End(&'static str),
    /// Another part is expected.
    #[error("found {found:?}, expected {expected}")]
    Unexpected {
        /// The part that was found.
        found: String,
        /// What must be there.
        expected: &'static str,
    },
}

/// A part of a selector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A key, a value, `in` or `notin`.
    Word(&'a str),
    Comma,
    Open,
    Close,
    Not,
    /// `=`, `==`, `!=`, `<` or `>`.
    Operator(&'a str),
}

impl<'a> Token<'a> {
    fn text(self) -> &'a str {
        match self {
            Self::Word(text) | Self::Operator(text) => text,
            Self::Comma => ",",
            Self::Open => "(",
            Self::Close => ")",
            Self::Not => "!",
        }
    }
}

/// The requirements of a selector, each as it is written in one. An empty selector has none.
///
/// # Errors
/// It is no selector. Keys and values have the characters that the API server allows; it checks the
/// rest.
pub(super) fn parse(selector: &str) -> Result<Vec<String>, SelectorError> {
    let mut parser = Parser { rest: selector };
    let mut requirements = Vec::new();
    if parser.peek()?.is_none() {
        return Ok(requirements);
    }
    loop {
        requirements.push(parser.requirement()?);
        match parser.next()? {
            None => return Ok(requirements),
            Some(Token::Comma) => {}
            Some(other) => return Err(unexpected(Some(other), "a comma or the end")),
        }
    }
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Result<Option<Token<'a>>, SelectorError> {
        let text = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = text.chars().next() else {
            self.rest = text;
            return Ok(None);
        };
        let (token, length) = match first {
            ',' => (Token::Comma, 1),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '=' if text.starts_with("==") => (Token::Operator("=="), 2),
            '=' => (Token::Operator("="), 1),
            '!' if text.starts_with("!=") => (Token::Operator("!="), 2),
            '!' => (Token::Not, 1),
            '<' => (Token::Operator("<"), 1),
            '>' => (Token::Operator(">"), 1),
            first if is_of_word(first) => {
                let end = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
                (Token::Word(text.get(..end).unwrap_or_default()), end)
            }
            other => return Err(SelectorError::Character(other)),
        };
        self.rest = text.get(length..).unwrap_or_default();
        Ok(Some(token))
    }

    fn peek(&self) -> Result<Option<Token<'a>>, SelectorError> {
        Parser { rest: self.rest }.next()
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, SelectorError> {
        match self.next()? {
            Some(Token::Word(word)) => Ok(word),
            other => Err(unexpected(other, expected)),
        }
    }

    /// `[!]KEY`, `KEY OPERATOR VALUE`, or `KEY in|notin (VALUES)`.
    fn requirement(&mut self) -> Result<String, SelectorError> {
        if self.peek()? == Some(Token::Not) {
            self.next()?;
            return Ok(format!("!{}", self.word("a key")?));
        }
        let key = self.word("a key")?;
        match self.peek()? {
            None | Some(Token::Comma) => Ok(key.to_owned()),
            Some(Token::Operator(operator)) => {
                self.next()?;
                Ok(format!("{key}{operator}{}", self.value()?))
            }
            Some(Token::Word(operator @ ("in" | "notin"))) => {
                self.next()?;
                Ok(format!("{key} {operator} ({})", self.values()?.join(",")))
            }
            other => Err(unexpected(other, "an operator, a comma or the end")),
        }
    }

    /// A value, which may be empty.
    fn value(&mut self) -> Result<&'a str, SelectorError> {
        match self.peek()? {
            None | Some(Token::Comma | Token::Close) => Ok(""),
            _ => self.value_word(),
        }
    }

    fn value_word(&mut self) -> Result<&'a str, SelectorError> {
        let word = self.word("a value")?;
        if word.contains('/') { Err(SelectorError::Character('/')) } else { Ok(word) }
    }

    /// Values in parentheses.
    fn values(&mut self) -> Result<Vec<&'a str>, SelectorError> {
        match self.next()? {
            Some(Token::Open) => {}
            other => return Err(unexpected(other, "(")),
        }
        let mut values = Vec::new();
        loop {
            values.push(self.value()?);
            match self.next()? {
                Some(Token::Close) => return Ok(values),
                Some(Token::Comma) => {}
                other => return Err(unexpected(other, "a comma or )")),
            }
        }
    }
}

/// Whether a character is one of keys and values.
fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/')
}

fn unexpected(found: Option<Token<'_>>, expected: &'static str) -> SelectorError {
    match found {
        None => SelectorError::End(expected),
        Some(token) => SelectorError::Unexpected { found: token.text().to_owned(), expected },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn selectors_are_written_anew() {
        for (selector, expected) in [
            ("", &[][..]),
            (" ", &[]),
            ("a", &["a"]),
            ("! a ", &["!a"]),
            ("a=b,c == d,e!=f", &["a=b", "c==d", "e!=f"]),
            ("a=", &["a="]),
            ("a=,b", &["a=", "b"]),
            ("a>5,b < 7", &["a>5", "b<7"]),
            ("x.io/a in (b, c),d notin(e)", &["x.io/a in (b,c)", "d notin (e)"]),
            ("a in (,b,)", &["a in (,b,)"]),
            ("in in (in)", &["in in (in)"]),
            ("a=in,notin", &["a=in", "notin"]),
        ] {
            assert_eq!(parse(selector).unwrap(), expected, "{selector:?}");
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for selector in [
            ",",
            "a,",
            ",a",
            "a,,b",
            "a b",
            "a)",
            "a in (b",
            "a in (b))",
            "a in b",
            "a=(b)",
            "a=b)",
            "!a=b",
            "!!a",
            "!",
            "=b",
            "a=b=c",
            "a=b c",
            "a|b",
            "a=b/c",
            "a%2Cb",
            "a;b",
            "a&b",
            "ä",
            "a\u{0}",
            "a\u{a0}",
            "(a)",
            "a in (b) in (c)",
        ] {
            assert!(parse(selector).is_err(), "{selector:?}");
        }
    }

    #[test]
    fn a_refusal_says_where() {
        let text = |selector| parse(selector).unwrap_err().to_string();
        assert_eq!(text("a in (b"), "it ends where a comma or ) is expected");
        assert_eq!(text("a b"), "found \"b\", expected an operator, a comma or the end");
        assert_eq!(text("a|b"), "'|' is not allowed");
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn an_accepted_selector_keeps_its_requirements(
            text in "([a-c./]{1,3}|in|notin|[ !=<>(),]){0,14}"
        ) {
            if let Ok(requirements) = parse(&text) {
                // What is sent is read as the same requirements, each on its own too.
                let joined = parse(&requirements.join(","));
                prop_assert_eq!(joined.as_ref(), Ok(&requirements));
                for one in &requirements {
                    prop_assert_eq!(parse(one), Ok(vec![one.clone()]));
                }
            }
        }
    }
}
