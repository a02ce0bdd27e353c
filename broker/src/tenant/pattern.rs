//! Patterns for the values of required labels and annotations.

use std::str::FromStr;

use regex::{Regex, RegexBuilder};

use super::limits::MAX_PATTERN_LENGTH;

/// Limit of a compiled pattern, because a short one, such as `(\w{99}){99}`, can become large.
const MAX_COMPILED_BYTES: usize = 1024 * 1024;

/// A regular expression (RE2 syntax) that has to match a value as a whole.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    regex: Regex,
}

/// A text that is no [`Pattern`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a regular expression of at most 253 characters, such as prod|test or [a-z]+")]
pub struct PatternError;

impl Pattern {
    /// The pattern as the Tenant has it.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it matches the whole value.
    pub fn matches(&self, value: &str) -> bool {
        self.regex.is_match(value)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.chars().count() > MAX_PATTERN_LENGTH {
            return Err(PatternError);
        }
        let compile = |text: &str| {
            RegexBuilder::new(text).size_limit(MAX_COMPILED_BYTES).build().map_err(|_| PatternError)
        };
        // A pattern such as `a)|(b` is valid in the group only.
        compile(text)?;
        let regex = compile(&format!("^(?:{text})$"))?;
        Ok(Self { text: text.to_owned(), regex })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_matches_whole_values() {
        let pattern: Pattern = "prod|test".parse().unwrap();
        assert!(pattern.matches("prod") && pattern.matches("test"));
        for value in ["", "production", "a-prod", "prod\n", "prod\nx"] {
            assert!(!pattern.matches(value), "{value:?}");
        }
        assert!("^[0-9]{3}$".parse::<Pattern>().unwrap().matches("123"));
        assert!("".parse::<Pattern>().unwrap().matches(""));
    }

    #[test]
    fn texts_that_are_no_patterns_are_refused() {
        for text in ["(", "a)|(b", "(?=a)", r"(\w{99}){999}", "[z-a]"] {
            assert_eq!(text.parse::<Pattern>(), Err(PatternError), "{text}");
        }
        assert!("a".repeat(253).parse::<Pattern>().is_ok());
        assert_eq!("a".repeat(254).parse::<Pattern>(), Err(PatternError));
    }

    proptest! {
        #[test]
        fn no_input_panics(text in ".{0,40}", value in ".{0,20}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                let _ = pattern.matches(&value);
                prop_assert_eq!(pattern.as_str(), text);
            }
        }
    }
}
