//! Source files as tokens: which modules they use, and which SQL they contain.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr as _,
};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::log_events::{self, LogEvent};

/// A path that a file uses, without `crate`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Use(Vec<String>);

impl Use {
    /// Name of the module of the crate.
    pub(crate) fn module(&self) -> Option<&str> {
        self.segment(0)
    }

    /// A segment of the path.
    pub(crate) fn segment(&self, index: usize) -> Option<&str> {
        self.0.get(index).map(String::as_str)
    }

    /// The file or folder that the path has in this folder below `src`; `None` if the path is
    /// elsewhere, or names an item.
    pub(crate) fn part_in(&self, src: &Path, folder: &[&str]) -> Option<&str> {
        let is_below =
            self.0.len() > folder.len() && self.0.iter().zip(folder).all(|(a, b)| a == b);
        let part = self.segment(folder.len()).filter(|_| is_below)?;
        exists(src, &folder.join("/"), part).then_some(part)
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("::"))
    }
}

/// A source file without its tests.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path of the file below `src`.
    path: String,
    uses: Vec<Use>,
    names: Vec<String>,
    literals: Vec<String>,
    undocumented: Vec<String>,
    log_events: Vec<LogEvent>,
}

/// Folder with the sources of a crate; `path` is that of the crate in the repository.
pub(crate) fn src_of(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path).join("src")
}

/// Whether a folder below `src` has a file or folder of this name.
pub(crate) fn exists(src: &Path, folder: &str, part: &str) -> bool {
    let folder = src.join(folder);
    folder.join(format!("{part}.rs")).is_file() || folder.join(part).is_dir()
}

/// All source files below `src` without files of tests.
pub(crate) fn sources(src: &Path) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut folders = vec![src.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_dir() {
                if name != "tests" && name != "snapshots" {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
                let text = std::fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(src).unwrap().to_str().unwrap();
                sources.push(Source::parse(path, &text));
            }
        }
    }
    sources
}

impl Source {
    /// Parses a file.
    pub(crate) fn parse(path: &str, text: &str) -> Self {
        let tokens = without_tests(TokenStream::from_str(text).unwrap());
        let mut source = Self {
            path: path.to_owned(),
            uses: Vec::new(),
            names: Vec::new(),
            literals: Vec::new(),
            undocumented: Vec::new(),
            log_events: log_events::events(path, &tokens),
        };
        source.scan(&tokens);
        source
    }

    /// Path of the file below `src`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Name of the top-level module.
    pub(crate) fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    /// The file or folder inside of the module; `None` for its `mod.rs`.
    pub(crate) fn part(&self) -> Option<&str> {
        let part = self.path.split('/').nth(1)?;
        Some(part.strip_suffix(".rs").unwrap_or(part)).filter(|part| *part != "mod")
    }

    /// The folders that contain the file, from `src` itself on, each with the file or folder in it
    /// that is or contains the file. A folder's own `mod.rs`, the roots of a library and a program,
    /// and `bin/` are no part of it, because they are facades, or crates of their own.
    pub(crate) fn parts(&self) -> Vec<(Vec<&str>, &str)> {
        let segments: Vec<&str> = self.path.trim_end_matches(".rs").split('/').collect();
        let parts = (0..segments.len()).map(|depth| (segments[..depth].to_vec(), segments[depth]));
        let is_root = |part: &str| ["lib", "main", "bin"].contains(&part);
        parts
            .filter(|(folder, part)| *part != "mod" && !(folder.is_empty() && is_root(part)))
            .collect()
    }

    /// Whether the file belongs to the HTTP interface of its module, or is one as a whole.
    pub(crate) fn is_api(&self) -> bool {
        self.part() == Some("api")
    }

    /// The paths of the crate that the file uses.
    pub(crate) fn uses(&self) -> &[Use] {
        &self.uses
    }

    /// Whether the file names this identifier.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Names of the public functions and types without a docstring.
    pub(crate) fn undocumented(&self) -> &[String] {
        &self.undocumented
    }

    /// The events and spans of the log.
    pub(crate) fn log_events(&self) -> &[LogEvent] {
        &self.log_events
    }

    /// Whether a text of the file is SQL on this table.
    pub(crate) fn has_sql_on(&self, table: &str) -> bool {
        const BEFORE: [&str; 5] = ["FROM", "JOIN", "INTO", "UPDATE", "TABLE"];
        self.literals.iter().any(|text| {
            let words: Vec<&str> = text
                .split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .filter(|word| !word.is_empty())
                .collect();
            words.windows(2).any(|pair| BEFORE.contains(&pair[0]) && pair[1] == table)
        })
    }

    fn scan(&mut self, tokens: &[TokenTree]) {
        let mut index = 0;
        while index < tokens.len() {
            match &tokens[index] {
                TokenTree::Ident(name) => {
                    let name = name.to_string();
                    if name == "pub" && !is_documented(tokens, index) {
                        self.undocumented.extend(item_name(tokens, index + 1));
                    }
                    if is_colons(tokens, index + 1)
                        && let Some(base) = self.base(&name, tokens, &mut index)
                    {
                        index = self.path_from(base, tokens, index);
                        continue;
                    }
                    self.names.push(name);
                }
                TokenTree::Literal(literal) => {
                    // A backslash at the end of a line continues it.
                    self.literals.push(literal.to_string().replace("\\\n", " "));
                }
                TokenTree::Group(group) => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    self.scan(&inner);
                }
                TokenTree::Punct(_) => {}
            }
            index += 1;
        }
    }

    /// The beginning of a path of the crate; `index` is moved to the token after its `::`.
    fn base(&self, name: &str, tokens: &[TokenTree], index: &mut usize) -> Option<Vec<String>> {
        let mut folder: Vec<String> = self.path.split('/').map(str::to_owned).collect();
        let file = folder.pop()?;
        // `super` in `a/mod.rs` is the parent of `a`, and in `a/b.rs` it is `a`.
        if file != "mod.rs" && name != "crate" {
            folder.push(file.trim_end_matches(".rs").to_owned());
        }
        match name {
            "crate" => folder.clear(),
            "self" => {}
            "super" => {
                folder.pop();
                *index += 3;
                while matches!(&tokens.get(*index), Some(TokenTree::Ident(next)) if *next == "super")
                {
                    folder.pop();
                    *index += 3;
                }
                return Some(folder);
            }
            _ => return None,
        }
        *index += 3;
        Some(folder)
    }

    /// Adds the path or tree of paths that begins at `index`; returns the index after it.
    fn path_from(
        &mut self,
        mut path: Vec<String>,
        tokens: &[TokenTree],
        mut index: usize,
    ) -> usize {
        loop {
            match tokens.get(index) {
                Some(TokenTree::Ident(name)) => {
                    let name = name.to_string();
                    self.names.push(name.clone());
                    // In braces, as in `super::{super::a, b}`.
                    if name == "super" {
                        path.pop();
                    } else {
                        path.push(name);
                    }
                    index += 1;
                    if !is_colons(tokens, index) {
                        break;
                    }
                    index += 2;
                }
                Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                    let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                    for item in inner.split(|token| is_punct(token, ',')) {
                        match item.first() {
                            None => {}
                            Some(TokenTree::Ident(name)) if *name == "self" => {
                                self.uses.push(Use(path.clone()));
                            }
                            Some(_) => {
                                self.path_from(path.clone(), item, 0);
                            }
                        }
                    }
                    return index + 1;
                }
                // A glob, or generic arguments (`::<T>`).
                _ => break,
            }
        }
        self.uses.push(Use(path));
        index
    }
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

fn is_colons(tokens: &[TokenTree], index: usize) -> bool {
    let colon = |index: usize| tokens.get(index).is_some_and(|token| is_punct(token, ':'));
    colon(index) && colon(index + 1)
}

/// Whether the attributes before this token contain a docstring.
fn is_documented(tokens: &[TokenTree], mut index: usize) -> bool {
    while index >= 2 && is_punct(&tokens[index - 2], '#') {
        if matches!(&tokens[index - 1], TokenTree::Group(group)
            if group.stream().to_string().starts_with("doc"))
        {
            return true;
        }
        index -= 2;
    }
    false
}

/// Name of the function or type that is declared after `pub`.
fn item_name(tokens: &[TokenTree], mut index: usize) -> Option<String> {
    const KEYWORDS: [&str; 5] = ["fn", "struct", "enum", "trait", "type"];
    while let Some(TokenTree::Ident(word)) = tokens.get(index) {
        let word = word.to_string();
        index += 1;
        if KEYWORDS.contains(&word.as_str()) {
            return tokens.get(index).map(ToString::to_string).filter(|name| name != "$");
        }
        if !["async", "const", "unsafe"].contains(&word.as_str()) {
            return None;
        }
    }
    None
}

/// The tokens of a file without items that are compiled for tests only.
fn without_tests(tokens: TokenStream) -> Vec<TokenTree> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut kept = Vec::new();
    let mut index = 0;
    while index < tokens.len() {
        let is_test_attribute = is_punct(&tokens[index], '#')
            && matches!(tokens.get(index + 1), Some(TokenTree::Group(group))
                if group.stream().to_string().replace(' ', "") == "cfg(test)");
        if is_test_attribute {
            // The item ends at its block or semicolon.
            index += 2;
            while index < tokens.len() {
                let ends = is_punct(&tokens[index], ';')
                    || matches!(&tokens[index], TokenTree::Group(group)
                        if group.delimiter() == Delimiter::Brace);
                index += 1;
                if ends {
                    break;
                }
            }
            continue;
        }
        match &tokens[index] {
            TokenTree::Group(group) => {
                let inner = without_tests(group.stream()).into_iter().collect();
                let mut replaced = proc_macro2::Group::new(group.delimiter(), inner);
                replaced.set_span(group.span());
                kept.push(TokenTree::Group(replaced));
            }
            token => kept.push(token.clone()),
        }
        index += 1;
    }
    kept
}
