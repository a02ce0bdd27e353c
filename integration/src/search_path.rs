//! Programs on a search path, such as `PATH`.
//!
//! `xtask` has this file as a module, too. `xtask` has no dependencies, so this file uses the standard
//! library alone.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Returns the program of this name from the first folder of a search path that has it.
pub(crate) fn find_in(search_path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(search_path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(name))
        .find(|file| is_executable(file))
}

#[cfg(unix)]
fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(file: &Path) -> bool {
    file.is_file()
}
