//! The files of a layer, an archive or a package, in memory, and deterministic tar and gzip
//! streams of them: sorted entries, one time, numeric owners, no names, no gzip time.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::{Context, Result};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

/// Permissions of a program.
pub const PROGRAM_MODE: u32 = 0o755;
/// Permissions of any other file.
pub const FILE_MODE: u32 = 0o644;
/// Permissions of a folder.
pub const FOLDER_MODE: u32 = 0o755;

/// A folder or a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeEntry {
    /// The content of a file; a folder has none.
    pub content: Option<Bytes>,
    /// Permission bits.
    pub mode: u32,
    /// User and group id.
    pub owner: u32,
}

/// Folders and files by path. Paths are relative, without `.` and `..`, separated by `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileTree {
    entries: BTreeMap<String, TreeEntry>,
}

impl FileTree {
    /// Adds a file of root, with the folders above it.
    pub fn add_file(&mut self, path: &str, mode: u32, content: impl Into<Bytes>) {
        self.add_parents(path);
        let entry = TreeEntry { content: Some(content.into()), mode, owner: 0 };
        self.entries.insert(path.to_owned(), entry);
    }

    /// Adds a folder, with the folders above it.
    pub fn add_folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.add_parents(path);
        self.entries.insert(path.to_owned(), TreeEntry { content: None, mode, owner });
    }

    /// Adds all entries of another tree; they replace those of the same path.
    pub fn add_all(&mut self, other: &Self) {
        for (path, entry) in &other.entries {
            self.entries.insert(path.clone(), entry.clone());
        }
    }

    /// The entries, sorted by path; a folder comes before what is in it.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &TreeEntry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The files without the folders, sorted by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.entries().filter_map(|(path, entry)| Some((path, entry.content.as_ref()?)))
    }

    /// Returns the tree as a tar stream in GNU format. All entries have this time (seconds since
    /// 1970).
    ///
    /// # Errors
    /// A path is not relative.
    pub fn tar(&self, time: u32) -> Result<Vec<u8>> {
        let mut archive = Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            let mut header = Header::new_gnu();
            header.set_mode(entry.mode);
            header.set_uid(u64::from(entry.owner));
            header.set_gid(u64::from(entry.owner));
            header.set_mtime(u64::from(time));
            let appended = if let Some(content) = &entry.content {
                header.set_entry_type(EntryType::Regular);
                header.set_size(u64::try_from(content.len())?);
                archive.append_data(&mut header, path, &content[..])
            } else {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                archive.append_data(&mut header, format!("{path}/"), std::io::empty())
            };
            appended.with_context(|| format!("put {path} into an archive"))?;
        }
        archive.into_inner().context("finish an archive")
    }

    /// Returns the tree as a compressed tar stream.
    ///
    /// # Errors
    /// As [`FileTree::tar`].
    pub fn tar_gz(&self, time: u32) -> Result<Vec<u8>> {
        gzip(&self.tar(time)?)
    }

    fn add_parents(&mut self, path: &str) {
        for (end, _) in path.match_indices('/') {
            let parent = TreeEntry { content: None, mode: FOLDER_MODE, owner: 0 };
            self.entries.entry(path[..end].to_owned()).or_insert(parent);
        }
    }
}

/// Compresses bytes with gzip at the best level, without a time and a name in its header.
///
/// # Errors
/// Never, because the output is in memory.
pub fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).context("compress an archive")?;
    encoder.finish().context("compress an archive")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    fn tree() -> FileTree {
        let mut tree = FileTree::default();
        tree.add_file("usr/bin/program", PROGRAM_MODE, "1");
        tree.add_file("a", FILE_MODE, "2");
        tree.add_folder("var/state", 0o700, 65_532);
        tree
    }

    #[test]
    fn an_archive_has_sorted_entries_with_their_folders_and_owners() {
        let bytes = tree().tar(17).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let entries: Vec<String> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let mut entry = entry.unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                let path = entry.path().unwrap().display().to_string();
                let header = entry.header();
                assert_eq!(header.mtime().unwrap(), 17);
                let (mode, owner) = (header.mode().unwrap(), header.uid().unwrap());
                format!("{path} {mode:o} {owner} {text}")
            })
            .collect();
        assert_eq!(
            entries,
            [
                "a 644 0 2",
                "usr/ 755 0 ",
                "usr/bin/ 755 0 ",
                "usr/bin/program 755 0 1",
                "var/ 755 0 ",
                "var/state/ 700 65532 "
            ]
        );
    }

    #[test]
    fn two_archives_of_one_tree_are_equal() {
        assert_eq!(tree().tar_gz(17).unwrap(), tree().tar_gz(17).unwrap());
        assert_ne!(tree().tar_gz(17).unwrap(), tree().tar_gz(18).unwrap());
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for path in ["/etc/passwd", "../etc/passwd"] {
            let mut tree = FileTree::default();
            tree.add_file(path, FILE_MODE, "");
            assert!(tree.tar(0).is_err(), "{path}");
        }
    }
}
