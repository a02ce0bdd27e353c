//! Events and spans of the log, as the sources write them with the macros of `tracing`.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use proc_macro2::{TokenStream, TokenTree};

/// The fields of events and spans with their meaning, sorted.
const FIELDS: &[(&str, &str)] = &[
    ("action", "the action that was authorized"),
    ("address", "address of the client; behind `trusted_proxies` from `X-Forwarded-For`"),
    ("advice", "what the operator should do about the files"),
    ("again_in_ms", "milliseconds until the next attempt"),
    ("allowed", "whether the action was allowed"),
    ("attempts", "number of attempts of the sweep, this one included"),
    ("attributes", "attributes of the PostgreSQL role that the broker does not need"),
    ("bindings", "how many RoleBindings of others were deleted"),
    ("bytes_down", "bytes of bodies and tunnels from the API server"),
    ("bytes_up", "bytes of bodies and tunnels from the client"),
    ("cause", "chain of causes of an error; several errors are separated by `; `"),
    ("code", "code of the error, as in the response"),
    ("connections", "limit of concurrent connections"),
    ("connections_per_address", "limit of concurrent connections from one address"),
    ("connector", "name of the sign-in provider: `[connectors.NAME]`"),
    ("created", "whether the broker created the object now"),
    ("credential_id", "identifier of the credential: the `jti` of the token"),
    ("database_role", "name of the PostgreSQL role of the broker"),
    ("days", "`audit.retention_days`"),
    ("descriptors", "limit of file descriptors of the process"),
    ("duration_ms", "duration in milliseconds"),
    ("ended", "why a forwarded request or stream ended, if the end is not the normal one"),
    ("ends_at", "end of the certificate or token"),
    ("error", "chain of causes of the failure"),
    ("fault", "how a policy differs from the one of `tenant-broker install`"),
    (
        "file",
        "files that are used together, by [the name](operations.md#files-that-are-read-again) of \
         their setting",
    ),
    ("from_tenant", "name of the tenant that the namespace belonged to"),
    ("group", "API group of the kind; empty for a kind of Kubernetes"),
    ("in_flight", "number of runs or changes that were interrupted"),
    ("issuances", "number of issuances whose tokens are dropped"),
    ("kid", "identifier of a signing key, as in the published keys"),
    ("kind", "kind of the object, of the forwarded request, or of the credential"),
    ("left", "number of Secrets that are left for a later round"),
    ("listen", "address of API, pages and gateway"),
    ("method", "HTTP method"),
    ("namespace", "namespace of the workspace or tenant"),
    ("namespaces", "number of namespaces of a tenant without rows"),
    ("object", "name of the object"),
    ("offset_ms", "milliseconds that this machine's clock is ahead of the database's"),
    ("open_steps", "steps that are not done, separated by commas"),
    ("operator_listen", "address of health and metrics"),
    ("parameters", "names of parameters of the database URL; `?` for a text that may be no name"),
    ("path", "path without the query, 300 characters at most"),
    ("public_url", "URL of the broker for people"),
    ("quota", "how many namespaces the tenant may have"),
    ("request_id", "identifier of the request, as in `X-Request-Id`"),
    ("resource", "identifier of the resource that the action is on"),
    ("right", "a permission: resource, API group and verbs"),
    ("rights", "permissions beyond the built-in role `admin`, summarized"),
    ("role", "name of a tier's ClusterRole"),
    ("secret", "name of a Secret, which holds no data"),
    ("session_id", "identifier of the session"),
    ("status", "HTTP status of the response, or status of the workspace or tenant"),
    ("step", "step of a suspension, or of cleaning up after tenants"),
    ("streams", "number of streams"),
    ("subject_user_id", "identifier of the user whom the operation is about"),
    ("tenant", "name of the tenant"),
    ("tier", "name of the tier"),
    ("tls", "whether the broker serves TLS itself"),
    ("up_to_sequence", "sequence number of the last deleted row of the audit trail"),
    ("upstream_calls", "calls to the API server for a request of model services"),
    ("used", "how many namespaces of the tenant count"),
    ("user_id", "identifier of the user who acts"),
    ("was", "status of the workspace or tenant before"),
    ("what", "how an object differs from its desired state"),
    ("why", "why a permission allows an escape"),
    ("workload", "name of the issuer of a machine's token: `[workloads.NAME]`"),
    ("workspace_id", "identifier of the workspace"),
];

/// The lines whose level and message are not in the source: target, levels, messages.
const ACCESS_LOG: &[(&str, &str, &[&str])] = &[
    ("tenant_broker::http", "info, warn, error", &["request"]),
    ("tenant_broker::gateway", "info, warn", &["request", "stream started", "stream ended"]),
];

const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// An event or a span.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEvent {
    target: String,
    /// The level of an event; `span` for a span, and `$` for an event whose macro gets the level.
    level: String,
    /// Constant message of an event, name of a span.
    message: String,
    fields: Vec<String>,
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, level, message, fields } = self;
        write!(f, "{level} {target}: {message} [{}]", fields.join(", "))
    }
}

/// Finds the events and spans in the tokens of a file with this path below `src`.
pub(crate) fn events(path: &str, tokens: &[TokenTree]) -> Vec<LogEvent> {
    let mut found = Vec::new();
    scan(&target(path), tokens, &mut found);
    found
}

/// The path of a module, which is the target of its events.
fn target(path: &str) -> String {
    let mut segments: Vec<&str> = path.trim_end_matches(".rs").split('/').collect();
    if segments.last().is_some_and(|last| ["mod", "lib", "main"].contains(last)) {
        segments.pop();
    }
    segments.insert(0, "tenant_broker");
    segments.join("::")
}

fn scan(target: &str, tokens: &[TokenTree], found: &mut Vec<LogEvent>) {
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => scan(target, &list(group.stream()), found),
            TokenTree::Ident(name) => {
                let name = name.to_string();
                let after_dollar = index > 0 && is_punct(&tokens[index - 1], '$');
                let level = match name.as_str() {
                    _ if after_dollar => "$",
                    level if LEVELS.contains(&level) => level,
                    span if span.ends_with("_span") => "span",
                    "instrument" => {
                        if let Some(TokenTree::Group(group)) = tokens.get(index + 1) {
                            found.extend(instrumented(target, &list(group.stream())));
                        }
                        continue;
                    }
                    _ => continue,
                };
                if tokens.get(index + 1).is_some_and(|token| is_punct(token, '!'))
                    && let Some(TokenTree::Group(group)) = tokens.get(index + 2)
                {
                    found.push(event(target, level, &list(group.stream())));
                }
            }
            _ => {}
        }
    }
}

/// The span of a function with the attribute `instrument`, if it has fields. Its name, that of the
/// function, is left out.
fn instrumented(target: &str, arguments: &[TokenTree]) -> Option<LogEvent> {
    let at = arguments.iter().position(|token| token.to_string() == "fields")?;
    let Some(TokenTree::Group(group)) = arguments.get(at + 1) else { return None };
    Some(event(target, "span", &list(group.stream())))
}

/// Parses the arguments of a macro: `target: "…", name = value, %name, "message", …`.
fn event(target: &str, level: &str, arguments: &[TokenTree]) -> LogEvent {
    let (target, level) = (target.to_owned(), level.to_owned());
    let mut event = LogEvent { target, level, message: String::new(), fields: Vec::new() };
    for argument in arguments.split(|token| is_punct(token, ',')) {
        match argument {
            [] => {}
            [TokenTree::Literal(literal), ..] => {
                event.message = text(&literal.to_string());
                // The values of a message follow it, and the fields of a span follow its name.
                if event.level != "span" {
                    break;
                }
            }
            [TokenTree::Ident(name), colon, TokenTree::Literal(literal)]
                if *name == "target" && is_punct(colon, ':') =>
            {
                event.target = text(&literal.to_string());
            }
            argument => event.fields.push(field(argument)),
        }
    }
    event
}

/// The name of a field: the tokens before `=`, or all of them, without `%` and `?`.
fn field(argument: &[TokenTree]) -> String {
    let name = argument.split(|token| is_punct(token, '=')).next().unwrap_or_default();
    let sigil = |token: &&TokenTree| !is_punct(token, '%') && !is_punct(token, '?');
    name.iter().filter(sigil).map(ToString::to_string).collect()
}

/// The text of a string literal. A backslash at the end of a line continues it.
fn text(literal: &str) -> String {
    let mut lines = literal.trim_matches('"').split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}

fn list(stream: TokenStream) -> Vec<TokenTree> {
    stream.into_iter().collect()
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Describes the fields without a line in [`FIELDS`], and the lines without a field.
pub(crate) fn undescribed(events: &[LogEvent]) -> Vec<String> {
    assert!(FIELDS.is_sorted_by(|one, next| one.0 < next.0), "FIELDS is not sorted");
    let used: BTreeSet<&str> =
        events.iter().flat_map(|event| &event.fields).map(String::as_str).collect();
    let described: BTreeSet<&str> = FIELDS.iter().map(|(field, _)| *field).collect();
    let missing = used.difference(&described);
    let missing = missing.map(|field| format!("the field {field} has no line in FIELDS"));
    let unused = described.difference(&used);
    missing.chain(unused.map(|field| format!("no event has the field {field}"))).collect()
}

/// The tables for `docs/logging.md`.
pub(crate) fn tables(events: &[LogEvent]) -> String {
    let mut text = "\n| field | meaning |\n|---|---|\n".to_owned();
    for (field, meaning) in FIELDS {
        writeln!(text, "| `{field}` | {meaning} |").unwrap();
    }
    text.push_str("\n| message | level | fields | target |\n|---|---|---|---|\n");
    let rows: BTreeSet<Row<'_>> = events.iter().flat_map(rows).collect();
    for Row { target, message, level, fields } in rows {
        let fields: Vec<String> = fields.iter().map(|field| format!("`{field}`")).collect();
        let fields = fields.join(", ");
        writeln!(text, "| `{message}` | {level} | {fields} | `{target}` |").unwrap();
    }
    text
}

/// A row of the table of messages; sorted by target.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row<'a> {
    target: &'a str,
    message: &'a str,
    level: &'a str,
    fields: &'a [String],
}

/// The rows of an event; a span has none.
fn rows(event: &LogEvent) -> Vec<Row<'_>> {
    let row = |message, level| {
        let LogEvent { target, fields, .. } = event;
        Row { target, message, level, fields }
    };
    match event.level.as_str() {
        "span" => Vec::new(),
        "$" => {
            let known = ACCESS_LOG.iter().find(|(target, ..)| *target == event.target);
            let (_, levels, messages) = known.expect("a macro with a level is in ACCESS_LOG");
            messages.iter().map(|message| row(*message, *levels)).collect()
        }
        level => {
            let message = event.message.as_str();
            assert!(!message.contains(['{', '|', '`']), "{message} is no constant text");
            vec![row(message, level)]
        }
    }
}
