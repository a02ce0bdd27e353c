//! Tests that the modules of the broker keep to their layers, that the files of no crate use each
//! other in a circle, and that the documentation has the same list of the broker's modules, and of
//! the log's messages and fields.
//! `UPDATE_GENERATED=1 cargo test -p tenant-broker --test layers` rewrites both.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod list;
mod log_events;
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
};

use list::{AUTHORITY, DOMAIN, EXPORTED_SUBMODULES, LAYERS, TABLES};
use log_events::LogEvent;
use source::{Source, src_of};

/// Modules that are no part of a layer: the crate's root and program, and fixtures of tests.
const ROOTS: [&str; 3] = ["lib", "main", "testing"];
/// The folder of a module with its operations of the HTTP API.
const API_FOLDER: &str = "api";
/// Path of the broker's crate in the repository.
const BROKER: &str = "broker";
/// Paths of all crates, and the depth below `src` from which on folders must not have circles: 0 is
/// `src` itself. The broker's modules have layers instead, because an `api/` may use higher modules.
const CRATES: [(&str, usize); 7] = [
    (BROKER, 1),
    ("integration", 0),
    ("integration/xtask", 0),
    ("kubectl-tenant", 0),
    ("kubectl-tenant/cached-token", 0),
    ("release", 0),
    ("shared", 0),
];

/// The source files of the broker.
fn sources() -> Vec<Source> {
    source::sources(&src_of(BROKER))
}

fn rank(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.0 == module)
}

fn assert_none(breaches: &[String]) {
    assert!(breaches.is_empty(), "{} breaches:\n{}", breaches.len(), breaches.join("\n"));
}

#[test]
fn every_module_has_one_layer() {
    let listed: BTreeSet<&str> = LAYERS.iter().map(|layer| layer.0).collect();
    assert_eq!(listed.len(), LAYERS.len(), "a module is listed twice");
    let found: BTreeSet<String> = sources()
        .into_iter()
        .map(|source| source.module().to_owned())
        .filter(|module| !ROOTS.contains(&module.as_str()))
        .collect();
    assert_eq!(found.iter().map(String::as_str).collect::<BTreeSet<_>>(), listed);
}

#[test]
fn a_module_uses_lower_layers_only() {
    let mut breaches = Vec::new();
    for source in sources() {
        let Some(own) = rank(source.module()) else { continue };
        for used in source.uses() {
            let Some(other) = used.module().and_then(rank) else { continue };
            if other > own && (!source.is_api() || may_use_apis(other)) {
                breaches.push(format!("{}: {used} is of a higher layer", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

/// Faces may use every module below the composition root, and each other's modules.
fn may_use_apis(rank: usize) -> bool {
    ["app", "cli", "config"].contains(&LAYERS[rank].0)
}

#[test]
fn only_the_composition_root_uses_apis() {
    let mut breaches = Vec::new();
    for source in sources() {
        if source.module() == "app" {
            continue;
        }
        for used in source.uses() {
            let is_own_api = source.is_api() && used.module() == Some(source.module());
            if used.segment(1) == Some(API_FOLDER) && !is_own_api {
                breaches.push(format!("{}: {used} is an HTTP interface", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

#[test]
fn a_module_uses_what_the_facade_of_another_exports() {
    let mut breaches = Vec::new();
    for source in sources() {
        for used in source.uses() {
            let (Some(module), Some(item)) = (used.module(), used.segment(1)) else { continue };
            if module == source.module() || module == "base" || rank(module).is_none() {
                continue;
            }
            let is_submodule = source::exists(&src_of(BROKER), module, item);
            let exported = EXPORTED_SUBMODULES.contains(&(module, item));
            if is_submodule && !exported && item != API_FOLDER {
                breaches.push(format!("{}: {used} is inside of {module}", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

#[test]
fn domain_modules_do_not_know_http() {
    let mut breaches = Vec::new();
    for source in sources() {
        if !DOMAIN.contains(&source.module()) || source.is_api() {
            continue;
        }
        for name in ["poem", "poem_openapi", "hyper"] {
            if source.names(name) && !(name == "hyper" && source.module() == "cluster") {
                breaches.push(format!("{}: {name}", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

/// `audit` is below `access`, so its proofs of an authority cannot be made of a permit.
#[test]
fn only_access_and_the_command_line_make_proofs_of_an_authority() {
    let mut breaches = Vec::new();
    for source in sources() {
        for (function, places) in AUTHORITY {
            let may = places.iter().any(|place| source.path().starts_with(place));
            if source.names(function) && !may {
                breaches.push(format!("{}: {function}", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

#[test]
fn a_table_is_named_by_its_owner_only() {
    let mut breaches = Vec::new();
    for source in sources() {
        if ROOTS.contains(&source.module()) {
            continue;
        }
        for (table, owner) in TABLES {
            if source.module() != *owner && source.has_sql_on(table) {
                breaches.push(format!("{}: the table {table} is of {owner}", source.path()));
            }
        }
    }
    assert_none(&breaches);
}

#[test]
fn every_table_has_an_owner() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../migrations/sqlite");
    let mut tables = BTreeSet::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("CREATE TABLE ") {
                tables.insert(rest.split([' ', '(']).next().unwrap().to_owned());
            }
        }
    }
    let owned: BTreeSet<String> = TABLES.iter().map(|(table, _)| (*table).to_owned()).collect();
    assert_eq!(tables, owned);
}

/// The files and folders of a crate, and those of each folder in it, use each other without a circle.
/// `mod.rs` and `lib.rs` are left out: they are facades that declare and export the others.
#[test]
fn the_files_of_a_folder_form_no_circle() {
    let mut found = Vec::new();
    for (path, depth) in CRATES {
        let src = src_of(path);
        let circles = circles(&src, depth, &source::sources(&src));
        found.extend(circles.into_iter().map(|circle| format!("{path}/src/{circle}")));
    }
    assert_none(&found);
}

/// The parts of each folder that use each other in a circle, from this depth below `src` on.
fn circles(src: &Path, depth: usize, sources: &[Source]) -> Vec<String> {
    let mut folders: BTreeMap<String, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
    for source in sources {
        for (folder, part) in source.parts().into_iter().filter(|it| it.0.len() >= depth) {
            let used = source.uses().iter().filter_map(|used| used.part_in(src, &folder));
            let parts = folders.entry(folder.join("/")).or_default();
            parts.entry(part).or_default().extend(used.filter(|other| *other != part));
        }
    }
    let mut circles = Vec::new();
    for (folder, mut parts) in folders {
        // Parts that use no other part that is left, or that none of these uses, are removed until
        // only circles remain, and parts between two of them.
        loop {
            let left: BTreeSet<&str> = parts.keys().copied().collect();
            let used: BTreeSet<&str> = parts.values().flatten().copied().collect();
            parts.retain(|part, uses| {
                used.contains(part) && uses.iter().any(|other| left.contains(other))
            });
            if parts.len() == left.len() {
                break;
            }
        }
        if !parts.is_empty() {
            circles.push(format!("{folder}: {parts:?}"));
        }
    }
    circles
}

#[test]
fn circles_in_nested_folders_are_found() {
    let parse = |files: [(&str, &str); 2]| files.map(|(path, text)| Source::parse(path, text));
    let counts = ("base/telemetry/counts.rs", "use super::{files::F, registry::R};");
    let circles = |sources: &[Source]| circles(&src_of(BROKER), 1, sources);
    let circle = circles(&parse([counts, ("base/telemetry/files.rs", "use super::counts::C;")]));
    let found = r#"base/telemetry: {"counts": {"files", "registry"}, "files": {"counts"}}"#;
    assert_eq!(circle, [found]);
    let no_circle = parse([counts, ("base/telemetry/files.rs", "use super::registry::R;")]);
    assert!(circles(&no_circle).is_empty());
}

#[test]
fn circles_in_src_are_found_without_files_that_only_use_them() {
    let sources = [
        ("access/a.rs", "use super::{super::audit::A, b::B};"),
        ("audit/mod.rs", "use crate::access::C;"),
        ("http/mod.rs", "use crate::access::C;"),
        ("lib.rs", "use crate::access::C;"),
    ]
    .map(|(path, text)| Source::parse(path, text));
    let circles = |depth| circles(&src_of(BROKER), depth, &sources);
    assert_eq!(circles(0), [r#": {"access": {"audit"}, "audit": {"access"}}"#]);
    assert!(circles(1).is_empty());
}

/// Fields and variants need no docstring that repeats their name, so the lint `missing_docs`, which
/// cannot tell them apart, is off.
#[test]
fn public_functions_and_types_have_docstrings() {
    let mut breaches = Vec::new();
    for source in sources() {
        for name in source.undocumented() {
            breaches.push(format!("{}: {name}", source.path()));
        }
    }
    assert_none(&breaches);
}

/// Compares a section of a page with the expected text. The section is between the comments
/// `<!-- NAME: generated by broker/tests/layers -->` and `<!-- /NAME -->`.
fn compare_section(page: &str, section: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(page);
    let text = std::fs::read_to_string(&path).unwrap();
    let begin = format!("<!-- {section}: generated by broker/tests/layers -->\n");
    let end = format!("<!-- /{section} -->");
    let (head, rest) = text.split_once(&begin).unwrap();
    let (_, tail) = rest.split_once(&end).unwrap();
    let expected = format!("{head}{begin}{expected}\n{end}{tail}");
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        text == expected,
        "docs/{page} differs from the sources; \
         run UPDATE_GENERATED=1 cargo test -p tenant-broker --test layers"
    );
}

#[test]
fn the_documented_layers_are_up_to_date() {
    let mut table = "\n| module | responsibility | tables |\n|---|---|---|\n".to_owned();
    for (module, responsibility) in LAYERS.iter().rev() {
        let tables: Vec<String> = TABLES
            .iter()
            .filter(|(_, owner)| owner == module)
            .map(|(table, _)| format!("`{table}`"))
            .collect();
        writeln!(table, "| `{module}` | {responsibility} | {} |", tables.join(", ")).unwrap();
    }
    compare_section("architecture.md", "layers", &table);
}

fn log_events() -> Vec<LogEvent> {
    sources().iter().flat_map(Source::log_events).cloned().collect()
}

#[test]
fn every_log_field_has_a_meaning() {
    assert_none(&log_events::undescribed(&log_events()));
}

#[test]
fn the_documented_log_is_up_to_date() {
    compare_section("logging.md", "log", &log_events::tables(&log_events()));
}

#[test]
fn the_parser_finds_log_events() {
    let source = Source::parse(
        "workspace/drift/mod.rs",
        "fn f() { tracing::warn!(workspace = %row.id, kind, %what, error = chain(&a, b), \"it \\\n  \
         failed\", g(1)); let s = tracing::debug_span!(\"request\", method = m.as_str(), path); }\n\
         #[tracing::instrument(level = \"debug\", skip_all, fields(?reason, id = %x.id))] fn g() {}\n\
         macro_rules! line { ($level:ident) => { tracing::$level!(target: \"tenant_broker::http\", \
         status = 1, \"{}\", m) } }\n\
         #[cfg(test)] mod tests { fn t() { tracing::info!(secret = 1, \"in a test\"); } }",
    );
    let events: Vec<String> = source.log_events().iter().map(ToString::to_string).collect();
    assert_eq!(
        events,
        [
            "warn tenant_broker::workspace::drift: it failed [workspace, kind, what, error]",
            "span tenant_broker::workspace::drift: request [method, path]",
            "span tenant_broker::workspace::drift:  [reason, id]",
            "$ tenant_broker::http: {} [status]",
        ]
    );
    let faults = log_events::undescribed(source.log_events());
    assert!(faults.contains(&"the field reason has no line in FIELDS".to_owned()), "{faults:?}");
    assert!(faults.contains(&"no event has the field tls".to_owned()), "{faults:?}");
}

#[test]
fn the_parser_resolves_super() {
    for (path, text, used) in [
        ("access/a.rs", "use super::b::B;", ["access::b::B"]),
        ("access/a.rs", "use super::super::audit::A;", ["audit::A"]),
        ("access/a.rs", "use super::{super::audit::A};", ["audit::A"]),
        ("access/mod.rs", "use super::audit::A;", ["audit::A"]),
        ("access.rs", "use super::audit::A;", ["audit::A"]),
    ] {
        let source = Source::parse(path, text);
        let uses: Vec<String> = source.uses().iter().map(ToString::to_string).collect();
        assert_eq!(uses, used, "{path}: {text}");
    }
}

#[test]
fn the_parser_finds_uses_names_and_sql() {
    let source = Source::parse(
        "workspace/suspend.rs",
        "use crate::{access::{self, Permit}, base::db::Db}; use super::store::{self, x};\n\
         pub fn g() {} #[must_use] pub struct H; /** x */ #[must_use] pub async fn i() {} pub use a::B;\n\
         fn f() { crate::audit::record(1); let a = \"SELECT 1 FROM users u\"; }\n\
         // use crate::http::ApiError;\n\
         #[cfg(test)] mod tests { use crate::app::App; }",
    );
    let uses: Vec<String> = source.uses().iter().map(ToString::to_string).collect();
    assert_eq!(
        uses,
        [
            "access",
            "access::Permit",
            "base::db::Db",
            "workspace::store",
            "workspace::store::x",
            "audit::record"
        ]
    );
    assert!(source.has_sql_on("users") && !source.has_sql_on("user"));
    assert!(source.names("record") && !source.names("ApiError"));
    assert_eq!(source.undocumented(), ["g", "H"]);
}
