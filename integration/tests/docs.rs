//! Tests that links, anchors and file paths in the Markdown files of the repository exist.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// Code spans that begin with one of these are paths from the root of the repository.
const FROM_ROOT: [&str; 11] = [
    ".ci/",
    "broker/src/",
    "broker/tests/",
    "deploy/",
    "docs/",
    "integration/",
    "kubectl-tenant/",
    "migrations/",
    "openapi/",
    "release/",
    "shared/",
];

/// Other code spans that are paths of `.rs` files and begin with a folder of one of these, such as
/// `attacks/network.rs`, are paths from there.
const FOLDERS_OF_SHORT_PATHS: [&str; 2] = ["broker/src", "integration/tests/e2e"];

/// A Markdown file. Code blocks are no part of it.
#[derive(Default)]
struct Document {
    anchors: HashSet<String>,
    links: Vec<Reference>,
    code_spans: Vec<Reference>,
}

/// The target of a link or the text of a code span, with the number of its line.
#[derive(Debug, PartialEq)]
struct Reference {
    line: usize,
    text: String,
}

impl Document {
    fn parse(text: &str) -> Self {
        let text = without_code_blocks(text);
        let mut document = Self::default();
        for heading in text.lines().filter_map(heading) {
            let slug = slug(heading);
            let numbered = (1..).map(|number| format!("{slug}-{number}"));
            let mut slugs = std::iter::once(slug.clone()).chain(numbered);
            let free = slugs.find(|slug| !document.anchors.contains(slug)).unwrap();
            document.anchors.insert(free);
        }
        let mut at = 0;
        while let Some(offset) = text[at..].find(['\\', '`', ']']) {
            at += offset;
            let line = text[..at].matches('\n').count() + 1;
            let rest = &text[at..];
            if rest.starts_with('\\') {
                at += 1 + rest.chars().nth(1).map_or(0, char::len_utf8);
            } else if rest.starts_with('`') {
                let delimiter = &rest[..rest.len() - rest.trim_start_matches('`').len()];
                at += delimiter.len();
                if let Some(length) = code_span_length(&text[at..], delimiter) {
                    let content = text[at..at + length].trim().to_owned();
                    document.code_spans.push(Reference { line, text: content });
                    at += length + delimiter.len();
                }
            } else {
                at += 1;
                let target = rest.strip_prefix("](").and_then(|target| target.split_once(')'));
                // A title may follow the target.
                if let Some(target) =
                    target.and_then(|(target, _)| target.split_whitespace().next())
                {
                    document.links.push(Reference { line, text: target.to_owned() });
                }
            }
        }
        document
    }
}

/// Replaces fenced and indented code blocks by empty lines.
fn without_code_blocks(text: &str) -> String {
    let mut prose = String::new();
    let mut fence = None;
    let mut indented = false;
    let mut after_blank = true;
    for line in text.lines() {
        let content = line.trim_start();
        let blank = content.is_empty();
        indented = fence.is_none() && line.starts_with("    ") && (indented || after_blank)
            || indented && blank;
        let opening = fence_of(content).filter(|_| !indented);
        let in_block = indented || fence.is_some() || opening.is_some();
        fence = match fence {
            None => opening,
            Some(open) if content.starts_with(open) && content.trim_end() == fence_run(content) => {
                None
            }
            still_open => still_open,
        };
        prose.push_str(if in_block { "" } else { line });
        prose.push('\n');
        after_blank = blank;
    }
    prose
}

/// Returns the backticks or tildes with which a line begins.
fn fence_run(content: &str) -> &str {
    let mark = if content.starts_with('~') { '~' } else { '`' };
    &content[..content.len() - content.trim_start_matches(mark).len()]
}

/// Returns the fence of a line that opens a code block.
fn fence_of(content: &str) -> Option<&str> {
    let run = fence_run(content);
    let info = &content[run.len()..];
    (run.len() >= 3 && (run.starts_with('~') || !info.contains('`'))).then_some(run)
}

/// Returns the length of a code span, up to the same number of backticks in the same paragraph.
fn code_span_length(text: &str, delimiter: &str) -> Option<usize> {
    let paragraph = text.split("\n\n").next()?;
    let mut at = 0;
    while let Some(offset) = paragraph[at..].find('`') {
        at += offset;
        let rest = &paragraph[at..];
        let length = rest.len() - rest.trim_start_matches('`').len();
        if length == delimiter.len() {
            return Some(at);
        }
        at += length;
    }
    None
}

/// Returns the text of a line that is a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    ((1..=6).contains(&level) && text.starts_with(' ')).then(|| text.trim().trim_end_matches(" #"))
}

/// Returns the anchor that GitHub gives to a heading: the shown text in lower case, spaces as
/// hyphens, without punctuation other than hyphens and underscores.
fn slug(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading;
    while let Some((before, target)) = rest.split_once("](") {
        shown.push_str(before);
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    shown.push_str(rest);
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    shown.to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
}

/// Finds the Markdown files below a folder. The paths begin with that folder.
fn markdown_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            let skipped = [".git", "node_modules", "target"].map(std::ffi::OsStr::new);
            if !skipped.contains(&entry.file_name().as_os_str()) {
                files.extend(markdown_files(&path));
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            files.push(path);
        }
    }
    files
}

/// Resolves `.` and `..`. Returns nothing if the path leads out of the repository.
fn normalized(path: &Path) -> Option<PathBuf> {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => normalized.push(name),
            Component::CurDir => {}
            Component::ParentDir if normalized.pop() => {}
            _ => return None,
        }
    }
    Some(normalized)
}

/// Returns whether the path exists, and is a folder if it ends with a slash. A name with `*` or
/// with a word in capitals, such as `NNNN_name.sql`, stands for any name with that extension.
fn exists(folder: &Path, path: &str) -> bool {
    let (name, rest) = path.split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let found = |path: PathBuf| match rest {
        None => path.exists(),
        Some("") => path.is_dir(),
        Some(rest) => exists(&path, rest),
    };
    let capitals = |word: &str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let any = name.contains('*') || name.split(|c: char| !c.is_alphanumeric()).any(capitals);
    if folder.join(name).exists() || !any {
        return found(folder.join(name));
    }
    let extension = Path::new(name).extension();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| path.extension() == extension && found(path))
}

/// Describes what is wrong with a link, if anything is.
fn fault_of_link(
    root: &Path,
    file: &Path,
    link: &str,
    documents: &BTreeMap<PathBuf, Document>,
) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => Some(file.to_owned()),
        path => normalized(&file.parent().unwrap().join(path)),
    };
    let Some(target) = target.filter(|target| root.join(target).exists()) else {
        return Some(format!("the link {link} leads to no file"));
    };
    let document = documents.get(&target).filter(|_| !anchor.is_empty())?;
    (!document.anchors.contains(anchor))
        .then(|| format!("the link {link} leads to no heading of {}", target.display()))
}

/// Describes what is wrong with a code span, if it is a path that does not exist.
fn fault_of_code_span(root: &Path, span: &str) -> Option<String> {
    let found = if span.contains(char::is_whitespace) {
        true
    } else if FROM_ROOT.iter().any(|prefix| span.starts_with(prefix)) {
        exists(root, span)
    } else if Path::new(span).extension().is_some_and(|end| end == "rs") && span.contains('/') {
        let first = span.split_inclusive('/').next().unwrap();
        let folders = FOLDERS_OF_SHORT_PATHS.map(|folder| root.join(folder));
        let mut candidates = folders.iter().filter(|folder| exists(folder, first)).peekable();
        candidates.peek().is_none() || candidates.any(|folder| exists(folder, span))
    } else {
        true
    };
    (!found).then(|| format!("the path `{span}` does not exist"))
}

#[test]
fn links_and_paths_in_the_documentation_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let documents: BTreeMap<PathBuf, Document> = markdown_files(root)
        .into_iter()
        .map(|path| {
            let document = Document::parse(&std::fs::read_to_string(&path).unwrap());
            (path.strip_prefix(root).unwrap().to_owned(), document)
        })
        .collect();
    assert!(documents.contains_key(Path::new("docs/style.md")));
    let mut faults = Vec::new();
    for (file, document) in &documents {
        let of_links = document.links.iter().filter_map(|link| {
            Some((link.line, fault_of_link(root, file, &link.text, &documents)?))
        });
        let of_code_spans = document
            .code_spans
            .iter()
            .filter_map(|span| Some((span.line, fault_of_code_span(root, &span.text)?)));
        for (line, fault) in of_links.chain(of_code_spans) {
            faults.push(format!("{}:{line}: {fault}", file.display()));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn slugs_follow_the_rules_of_github() {
    for (heading, expected) in [
        ("What to know", "what-to-know"),
        ("Drift: deleted or changed objects", "drift-deleted-or-changed-objects"),
        ("`get-token`, a cache hit", "get-token-a-cache-hit"),
        ("1. The broker's permissions", "1-the-brokers-permissions"),
        ("[Unreleased](https://example.com/#top)", "unreleased"),
        ("state_dir and *others*", "state_dir-and-others"),
        ("Before — after", "before--after"),
        ("Größe", "größe"),
    ] {
        assert_eq!(slug(heading), expected);
    }
}

#[test]
fn repeated_headings_get_a_number() {
    let document = Document::parse("# Fixed\n## Fixed\n### Fixed #\n#hash\n####### Seven\n");
    assert_eq!(document.anchors, ["fixed", "fixed-1", "fixed-2"].map(str::to_owned).into());
}

#[test]
fn links_and_code_spans_are_found_outside_of_code_blocks_only() {
    let document = Document::parse(
        "See [the\nguide](a.md#b \"title\") and [`x`](c.md), not `[code](d.md)` or \\`.\n\
         - a list\n    [continued](e.md)\n\n\
         ```sh\n[fenced](f.md) `f`\n\n~~~\n# Fenced\n```\n\n    [indented](g.md)\n\n    `g`\n\n\
         ~~~~\n```\n~~~\n[fenced](h.md)\n~~~~\n``i `j` k`` [last](l.md)\n",
    );
    let link = |line, text: &str| Reference { line, text: text.to_owned() };
    let links = [link(2, "a.md#b"), link(2, "c.md"), link(4, "e.md"), link(22, "l.md")];
    assert_eq!(document.links, links);
    let code_spans = [link(2, "x"), link(2, "[code](d.md)"), link(22, "i `j` k")];
    assert_eq!(document.code_spans, code_spans);
    assert!(document.anchors.is_empty());
}

#[test]
fn a_path_may_contain_placeholders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for path in ["migrations/sqlite/", "migrations/*/NNNN_name.sql", "integration/src/COMMAND.rs"] {
        assert!(exists(root, path), "{path}");
    }
    for path in ["migrations/mysql/", "migrations/README.md/", "migrations/*/NNNN_name.rs", "X/a"] {
        assert!(!exists(root, path), "{path}");
    }
}

#[test]
fn only_code_spans_that_are_paths_are_checked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for span in [
        "docs/style.md",
        "attacks/mod.rs",
        "config/mod.rs",
        "count/pods",
        "docs/no file",
        "api/error.rs",
    ] {
        assert_eq!(fault_of_code_span(root, span), None);
    }
    for span in ["docs/missing.md", "attacks/missing.rs", "docs/missing/", "shared/missing"] {
        assert!(fault_of_code_span(root, span).is_some(), "{span}");
    }
}

#[test]
fn a_link_out_of_the_repository_is_dead() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let documents = BTreeMap::from([(PathBuf::from("docs/style.md"), Document::parse("# One\n"))]);
    let fault = |link| fault_of_link(root, Path::new("docs/style.md"), link, &documents);
    for link in ["#one", "style.md#one", "../README.md", "https://example.com/x", "../openapi/"] {
        assert_eq!(fault(link), None);
    }
    for link in ["#two", "style.md#two", "missing.md", "../../", "/docs/style.md"] {
        assert!(fault(link).is_some(), "{link}");
    }
}
