//! HTML forms: the first form of a page, parsed as far as a browser needs to submit it.

use http::Method;

/// An HTML form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Form {
    /// Target address as written; empty means the page itself.
    pub action: String,
    /// GET unless the page says POST.
    pub method: Method,
    /// Names and values of the hidden inputs.
    pub hidden: Vec<(String, String)>,
    /// Names of the inputs that a person fills in.
    pub visible: Vec<String>,
}

impl Form {
    /// Returns the first form of this page, if it has one.
    pub fn first(html: &str) -> Option<Self> {
        let mut tags = Tags { rest: html };
        let form = tags.find(|tag| tag.name == "form")?;
        let mut result = Self {
            action: form.value("action").unwrap_or_default(),
            method: match form.value("method") {
                Some(method) if method.eq_ignore_ascii_case("post") => Method::POST,
                _ => Method::GET,
            },
            hidden: Vec::new(),
            visible: Vec::new(),
        };
        for tag in tags.take_while(|tag| tag.name != "/form").filter(|tag| tag.name == "input") {
            let Some(name) = tag.value("name") else { continue };
            match tag.value("type").unwrap_or_default().to_ascii_lowercase().as_str() {
                "hidden" => result.hidden.push((name, tag.value("value").unwrap_or_default())),
                "submit" | "button" | "reset" | "image" => {}
                _ => result.visible.push(name),
            }
        }
        Some(result)
    }
}

/// An iterator over the tags of a page.
struct Tags<'a> {
    rest: &'a str,
}

struct Tag {
    /// Lower case; an end tag's starts with `/`.
    name: String,
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn value(&self, attribute: &str) -> Option<String> {
        self.attributes.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.clone())
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let rest = loop {
            let (_, rest) = self.rest.split_once('<')?;
            match rest.strip_prefix("!--") {
                Some(comment) => self.rest = comment.split_once("-->")?.1,
                None => break rest,
            }
        };
        let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '>')?;
        let name = rest.get(..end)?.to_ascii_lowercase();
        let mut rest = rest.get(end..)?;
        let mut attributes = Vec::new();
        loop {
            rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
            if let Some(after) = rest.strip_prefix('>') {
                self.rest = after;
                return Some(Tag { name, attributes });
            }
            let (attribute, value, after) = attribute(rest)?;
            attributes.push((attribute, value));
            rest = after;
        }
    }
}

/// Parses one attribute: its name, its value (empty if it has none) and the remaining text.
fn attribute(text: &str) -> Option<(String, String, &str)> {
    let end = text.find(|c: char| c.is_ascii_whitespace() || "=>/".contains(c))?;
    let (name, rest) = text.split_at(end);
    let name = name.to_ascii_lowercase();
    let Some(value) = rest.trim_start().strip_prefix('=') else {
        return Some((name, String::new(), rest));
    };
    let value = value.trim_start();
    let quote = value.chars().next().filter(|c| "\"'".contains(*c));
    let (value, rest) = match quote {
        Some(quote) => value.get(1..)?.split_once(quote)?,
        None => value.split_at(value.find(|c: char| c.is_ascii_whitespace() || c == '>')?),
    };
    Some((name, unescape(value), rest))
}

/// Resolves the character references that escaping produces: the five named ones and all numeric
/// ones.
fn unescape(text: &str) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        result.push_str(before);
        let decoded = after.split_once(';').and_then(|(entity, after)| {
            let number =
                entity.strip_prefix('#').and_then(|digits| match digits.strip_prefix(['x', 'X']) {
                    Some(hex) => u32::from_str_radix(hex, 16).ok(),
                    None => digits.parse().ok(),
                });
            let character = match entity {
                "amp" => Some('&'),
                "lt" => Some('<'),
                "gt" => Some('>'),
                "quot" => Some('"'),
                "apos" => Some('\''),
                _ => number.and_then(char::from_u32),
            };
            character.map(|character| (character, after))
        });
        let (character, after) = decoded.unwrap_or(('&', after));
        result.push(character);
        rest = after;
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_in_form_is_read() {
        let form = Form::first(
            r#"<!doctype html><!-- <form action="/no"> --><p>a < b</p>
            <FORM class=card METHOD='post' action="/login?a=1&amp;b=2">
              <input type="hidden" name="request" value="&#x41;&quot;&lt;&amp;amp;&#43;">
              <input name=email type=email required autofocus/>
              <input type=password name="password"><input type="submit" name="go" value="x">
            </form><form action="/second"><input type=hidden name=late value=1></form>"#,
        )
        .unwrap();
        assert_eq!(form.action, "/login?a=1&b=2");
        assert_eq!(form.method, Method::POST);
        assert_eq!(form.hidden, [("request".to_owned(), "A\"<&amp;+".to_owned())]);
        assert_eq!(form.visible, ["email", "password"]);
    }

    #[test]
    fn a_page_without_a_form_has_none() {
        assert_eq!(Form::first("<p>form</p> <unfinished"), None);
        assert_eq!(Form::first("a < b"), None);
    }
}
