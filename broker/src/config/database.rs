//! Settings of the database (`database.*`).

use std::path::{Path, PathBuf};

use super::{
    Settings,
    declaration::{Declaration, ROOT, Setting},
    parse::optional,
};
use crate::base::db::Location;

const URL: Setting<Option<String>> = Setting::derived(
    "database.url",
    "sqlite://<state_dir>/broker.db",
    optional,
    "postgres://user:password@host:5432/name?sslmode=verify-full, or sqlite://<file>.",
);
const URL_FILE: Setting<Option<PathBuf>> = Setting::new(
    "database.url_file",
    "",
    optional,
    "File that holds the database URL, instead of database.url. User, password and options are \
     read again when the file changes; another host, port or name needs a restart of all replicas.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[&URL, &URL_FILE];

/// Reads the location, and the file that it comes from, if it comes from one.
pub(super) fn read(s: &mut Settings, state_dir: &Path) -> (Location, Option<PathBuf>) {
    let default = || Location::Sqlite(state_dir.join("broker.db"));
    let Some(url) = URL.read_or_file(&URL_FILE, s, ROOT) else { return (default(), None) };
    let location = url.text.parse().unwrap_or_else(|why: String| {
        URL.fault(s, &why);
        default()
    });
    (location, url.file)
}
