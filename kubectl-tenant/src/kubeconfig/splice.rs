//! The merge of text: changes only the lines of our own entries, so that comments and the layout of
//! everything else are preserved. A pure function.
//!
//! This parses YAML by lines, in the block style that every tool writes, and supports nothing else
//! of the language. That is safe because the result is verified: the caller parses it, compares it
//! with the merge of the values, and rewrites the whole document if they differ.

use serde_norway::{Mapping, Value};

use super::{
    entries::{ENTRY_KINDS, Entries, text as text_of},
    merge::entry,
};

/// Returns the new text, or [`None`] if this text is not in plain block style.
pub(crate) fn splice(text: &str, entries: &Entries, use_context: bool) -> Option<String> {
    let line_end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(last) = lines.last_mut()
        && !last.ends_with('\n')
    {
        last.push_str(line_end);
    }
    for (key, value) in [("apiVersion", "v1"), ("kind", "Config")] {
        if find_key(&lines, key).is_none() {
            lines.push(format!("{key}: {value}{line_end}"));
        }
    }
    for ((list, key), (name, content)) in ENTRY_KINDS.into_iter().zip(&entries.items) {
        set_entry(&mut lines, list, name, &entry(name, key, content), line_end)?;
    }
    if use_context {
        set_current_context(&mut lines, entries.context(), line_end)?;
    }
    Some(lines.concat())
}

/// Line number of a top-level key, and the text after its colon without a comment.
fn find_key(lines: &[String], key: &str) -> Option<(usize, String)> {
    lines.iter().enumerate().find_map(|(index, line)| {
        let rest = line.strip_prefix(key)?.strip_prefix(':')?;
        let rest = rest.trim();
        let value = if rest.starts_with('#') { "" } else { rest.split(" #").next()?.trim() };
        Some((index, value.to_owned()))
    })
}

fn set_entry(
    lines: &mut Vec<String>,
    list: &str,
    name: &str,
    entry: &Value,
    line_end: &str,
) -> Option<()> {
    let Some((key_line, value)) = find_key(lines, list) else {
        lines.push(format!("{list}:{line_end}"));
        lines.extend(render(entry, 0, line_end)?);
        return Some(());
    };
    if ["[]", "null", "~"].contains(&value.as_str()) {
        lines[key_line] = format!("{list}:{line_end}");
    } else if !value.is_empty() {
        return None;
    }
    let section = section(lines, key_line);
    let items = items(lines, &section)?;
    let indent = items.first().map_or(0, |item| indent(&lines[item.start]));
    let rendered = render(entry, indent, line_end)?;
    let mut place = section.end..section.end;
    for item in items {
        let item_text = lines[item.clone()].concat();
        let parsed: Value = serde_norway::from_str(&item_text).ok()?;
        if text_of(parsed.get(0)?, "name") == Some(name) {
            place = item;
            break;
        }
    }
    lines.splice(place, rendered);
    Some(())
}

/// Lines of a top-level key: until the next one, without the comments and empty lines before that
/// one.
fn section(lines: &[String], key_line: usize) -> std::ops::Range<usize> {
    let start = key_line + 1;
    let belongs = |line: &String| is_blank(line) || line.starts_with([' ', '-']);
    let end = start + lines[start..].iter().take_while(|line| belongs(line)).count();
    start..trimmed(lines, start..end).end
}

/// Line ranges of the items of a list, each without the comments and empty lines after it.
fn items(
    lines: &[String],
    section: &std::ops::Range<usize>,
) -> Option<Vec<std::ops::Range<usize>>> {
    let Some(first) = section.clone().find(|index| !is_blank(&lines[*index])) else {
        return Some(Vec::new());
    };
    let indent_of_list = indent(&lines[first]);
    let starts: Vec<usize> = section
        .clone()
        .filter(|index| {
            let line = &lines[*index];
            indent(line) == indent_of_list
                && line
                    .trim_start()
                    .strip_prefix('-')
                    .is_some_and(|rest| rest.starts_with([' ', '\n', '\r']))
        })
        .collect();
    if starts.first() != Some(&first) {
        return None;
    }
    let ends = starts.iter().skip(1).copied().chain([section.end]);
    Some(starts.iter().zip(ends).map(|(start, end)| trimmed(lines, *start..end)).collect())
}

/// Cuts the blank lines and comments off the end of a range.
fn trimmed(lines: &[String], range: std::ops::Range<usize>) -> std::ops::Range<usize> {
    let mut end = range.end;
    while end > range.start && is_blank(&lines[end - 1]) {
        end -= 1;
    }
    range.start..end
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches(' ').len()
}

/// Renders an entry as an item of a list.
fn render(entry: &Value, indent: usize, line_end: &str) -> Option<Vec<String>> {
    let text = serde_norway::to_string(&[entry]).ok()?;
    let margin = " ".repeat(indent);
    Some(text.lines().map(|line| format!("{margin}{line}{line_end}")).collect())
}

fn set_current_context(lines: &mut Vec<String>, context: &str, line_end: &str) -> Option<()> {
    let mut mapping = Mapping::new();
    mapping.insert("current-context".into(), context.into());
    let line = serde_norway::to_string(&mapping).ok()?;
    let line = format!("{}{line_end}", line.trim_end());
    match find_key(lines, "current-context") {
        Some((index, _)) => lines[index] = line,
        None => lines.push(line),
    }
    Some(())
}
