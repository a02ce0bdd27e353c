//! The command line that is being completed, as far as it is typed.

use clap::{Arg, ArgAction, Command};

/// A command line up to the word that is being typed. Words that clap would refuse are skipped,
/// because the person may still correct them.
#[derive(Debug)]
pub(super) struct CommandLine<'a> {
    /// Names of the commands that the words select, without the program.
    pub(super) path: Vec<&'a str>,
    /// The last of these commands.
    pub(super) command: &'a Command,
    /// What the word that is being typed can be.
    pub(super) expected: Expected<'a>,
    /// What is typed of it; without the name of the option if the value follows a `=`.
    pub(super) typed: &'a str,
    /// Identifiers and values of the options.
    options: Vec<(&'a str, &'a str)>,
    /// Identifiers and values of the positional arguments.
    positionals: Vec<(&'a str, &'a str)>,
}

/// What the word that is being typed can be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected<'a> {
    /// A flag.
    Flag,
    /// The value of an option.
    Value(&'a Arg),
    /// The name of a subcommand, or the value of a positional argument.
    Word { subcommands: bool, positional: Option<&'a Arg> },
}

impl<'a> CommandLine<'a> {
    /// Parses the words before the one that is being typed. `root` is built.
    pub(super) fn parse(root: &'a Command, before: &[&'a str], typed: &'a str) -> Self {
        let mut line = Self {
            path: Vec::new(),
            command: root,
            expected: Expected::Flag,
            typed,
            options: vec![],
            positionals: vec![],
        };
        let (mut pending, mut positionals, mut escaped) = (None, 0, false);
        for &word in before {
            if let Some(option) = pending.take() {
                line.options.push((identifier(option), word));
            } else if escaped || !is_flag(word) {
                match line.command.find_subcommand(word) {
                    Some(command) if positionals == 0 && !escaped => {
                        line.command = command;
                        line.path.push(command.get_name());
                    }
                    _ => {
                        let positional = positional(line.command, positionals);
                        line.positionals.extend(positional.map(|it| (identifier(it), word)));
                        positionals += 1;
                    }
                }
            } else if word == "--" {
                escaped = true;
            } else {
                match named_option(line.command, word) {
                    Some((option, Some(value))) => line.options.push((identifier(option), value)),
                    Some((option, None)) => pending = Some(option),
                    None => {}
                }
            }
        }
        line.expected = if let Some(option) = pending {
            Expected::Value(option)
        } else if escaped || !typed.starts_with('-') {
            let positional = positional(line.command, positionals);
            let subcommands = line.command.has_subcommands() && positionals == 0 && !escaped;
            Expected::Word { subcommands, positional }
        } else if let Some((option, Some(value))) = named_option(line.command, typed)
            && typed.starts_with("--")
        {
            line.typed = value;
            Expected::Value(option)
        } else {
            Expected::Flag
        };
        line
    }

    /// Value of an argument by its identifier; of an option the last one if there are several.
    pub(super) fn value_of(&self, identifier: &str) -> Option<&'a str> {
        let mut values = self.positionals.iter().chain(&self.options);
        values.rfind(|(known, _)| *known == identifier).map(|(_, value)| *value)
    }
}

/// The positional argument of this number. The last one may have several values.
fn positional(command: &Command, number: usize) -> Option<&Arg> {
    let takes_more = |last: &&Arg| matches!(last.get_action(), ArgAction::Append);
    let mut all = command.get_positionals();
    all.nth(number).or_else(|| command.get_positionals().last().filter(takes_more))
}

fn identifier(argument: &Arg) -> &str {
    argument.get_id().as_str()
}

/// Whether a word is a flag and not a value: `-` alone is a value.
fn is_flag(word: &str) -> bool {
    word.starts_with('-') && word.len() > 1
}

/// The option that a word names, and its value if that is in the same word; [`None`] for a flag
/// without a value.
fn named_option<'a>(command: &'a Command, word: &'a str) -> Option<(&'a Arg, Option<&'a str>)> {
    let (option, value) = if let Some(long) = word.strip_prefix("--") {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (long, None),
        };
        let is_named = |argument: &&Arg| {
            argument.get_long_and_visible_aliases().is_some_and(|names| names.contains(&name))
        };
        (command.get_arguments().find(is_named)?, value)
    } else {
        let mut rest = word.strip_prefix('-')?.chars();
        let short = rest.next()?;
        let value = rest.as_str();
        let value = value.strip_prefix('=').unwrap_or(value);
        let is_named = |argument: &&Arg| argument.get_short() == Some(short);
        (command.get_arguments().find(is_named)?, (!value.is_empty()).then_some(value))
    };
    option.get_action().takes_values().then_some((option, value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::cli::Cli;

    /// Describes the last word of a line, and the options before it.
    fn describe(line: &str) -> String {
        let mut command = Cli::command();
        command.build();
        let words: Vec<&str> = line.split(' ').collect();
        let (typed, before) = words.split_last().unwrap();
        let line = CommandLine::parse(&command, before, typed);
        let expected = match line.expected {
            Expected::Flag => "flag".to_owned(),
            Expected::Value(argument) => format!("value of {}", identifier(argument)),
            Expected::Word { subcommands, positional } => {
                let positional = positional.map_or("nothing", identifier);
                if subcommands { format!("command or {positional}") } else { positional.to_owned() }
            }
        };
        format!("{}: {expected} {:?} {:?}", line.path.join(" "), line.typed, line.options)
    }

    #[test]
    fn the_typed_word_is_found_in_its_command_line() {
        for (line, expected) in [
            ("", r#": command or nothing "" []"#),
            ("sus", r#": command or nothing "sus" []"#),
            ("suspend t", r#"suspend: workspace "t" []"#),
            ("suspend t x", r#"suspend: nothing "x" []"#),
            ("suspend --reason suspend t", r#"suspend: workspace "t" [("reason", "suspend")]"#),
            (
                "suspend --wait=3 -o json t",
                r#"suspend: workspace "t" [("wait", "3"), ("output", "json")]"#,
            ),
            ("suspend -ojson t", r#"suspend: workspace "t" [("output", "json")]"#),
            ("suspend --unknown t", r#"suspend: workspace "t" []"#),
            ("suspend -- -t", r#"suspend: workspace "-t" []"#),
            ("--broker https://b suspend ", r#"suspend: workspace "" [("broker", "https://b")]"#),
            ("workspaces --all --l", r#"workspaces: flag "--l" []"#),
            ("workspaces --limit", r#"workspaces: flag "--limit" []"#),
            ("workspaces --limit ", r#"workspaces: value of limit "" []"#),
            ("kubeconfig --mode=ex", r#"kubeconfig: value of mode "ex" []"#),
            ("kubeconfig --mode=", r#"kubeconfig: value of mode "" []"#),
            (
                "kubeconfig --name x --mode ex",
                r#"kubeconfig: value of mode "ex" [("context", "x")]"#,
            ),
            ("whoami -o", r#"whoami: flag "-o" []"#),
            ("credentials t", r#"credentials: command or workspace "t" []"#),
            ("credentials revoke i", r#"credentials revoke: id "i" []"#),
            ("credentials t revoke", r#"credentials: nothing "revoke" []"#),
        ] {
            assert_eq!(describe(line), expected, "{line:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_line_causes_a_panic(line in "([a-z=-]{0,9}|suspend|--mode=|credentials|--)( [ -~é]{0,9}){0,5}") {
            let _ = describe(&line);
        }
    }
}
