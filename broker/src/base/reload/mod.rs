//! Files that are read again while the broker runs: certificates, keys, kubeconfig, secrets.
//!
//! A [`FileSource`] loads one value from one or more files. [`Reloader::load`] loads it for the
//! first time, and [`Reloader::run`] loads it again when the content of a file has changed. Users of
//! the value hold a [`Reloaded`], whose [`Reloaded::get`] returns the current one.
//!
//! The files are polled, because inotify reports nothing on network file systems, and for a mounted
//! Secret it reports the change of a folder that is not the file's: the kubelet writes a new folder
//! with a timestamp as its name, and then renames the symbolic link `..data` to it. The content is
//! compared and not the time of modification, because a copy can keep the time and the size.
//!
//! A change is used when two polls in a row have read the same content, so that neither a
//! half-written file nor half of a pair is used. A value that cannot be loaded, has ended, or fails
//! the check of its source is refused: the value before it stays in use, and the load is tried again
//! from time to time, because the check may depend on other systems.
//!
//! Each source is polled by a task of its own: a file system or a program that hangs, or a panic,
//! affects one source. The metric `file_polled_timestamp_seconds` shows it.

mod files;
mod reloaded;
mod reloader;
mod source;
#[cfg(test)]
mod tests;
mod watched_source;

pub use files::{FileError, Files, MAX_FILE_BYTES};
pub use reloaded::Reloaded;
pub use reloader::Reloader;
pub use source::{FileSource, Loaded};
