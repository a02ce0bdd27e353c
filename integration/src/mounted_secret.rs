//! A folder with the files of a Secret, changed in the way of the kubelet.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::scratch::{private_folder, write_private};

/// The files of a mounted Secret or projected volume. As the kubelet does
/// (`k8s.io/kubernetes/pkg/volume/util/atomic_writer.go`), each version is in a folder of its own,
/// `..data` is a symbolic link to the current one, and each file is a link through `..data`. All
/// files change at once, when a new link is renamed to `..data`.
#[derive(Clone, Debug)]
pub struct MountedSecret {
    folder: PathBuf,
}

impl MountedSecret {
    /// Creates the folder with these files: name and content.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn new(folder: &Path, files: &[(&str, &str)]) -> Result<Self> {
        private_folder(folder)?;
        let mounted = Self { folder: folder.to_owned() };
        mounted.replace(files)?;
        for (name, _) in files {
            symlink(Path::new("..data").join(name), mounted.path(name))
                .with_context(|| format!("link {name}"))?;
        }
        Ok(mounted)
    }

    /// The folder with the files.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Replaces all files at once, and removes the folder of the version before. A file without
    /// content here is missing afterwards.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn replace(&self, files: &[(&str, &str)]) -> Result<()> {
        let version = tempfile::Builder::new()
            .prefix("..")
            .tempdir_in(&self.folder)
            .with_context(|| format!("make a folder in {}", self.folder.display()))?
            .keep();
        for (name, content) in files {
            write_private(&version.join(name), content)?;
        }
        let (link, data) = (self.folder.join("..data_tmp"), self.folder.join("..data"));
        let replace = || -> std::io::Result<()> {
            let before = fs::read_link(&data).ok();
            symlink(version.file_name().unwrap_or_default(), &link)?;
            fs::rename(&link, &data)?;
            before.map_or(Ok(()), |before| fs::remove_dir_all(self.folder.join(before)))
        };
        replace().with_context(|| format!("replace {}", data.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_change_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("secret");
        let mounted = MountedSecret::new(&folder, &[("a", "1"), ("b", "2")]).unwrap();
        let read = |name| fs::read_to_string(folder.join(name)).ok();
        assert_eq!((read("a").as_deref(), read("b").as_deref()), (Some("1"), Some("2")));
        mounted.replace(&[("a", "3")]).unwrap();
        assert_eq!((read("a").as_deref(), read("b").as_deref()), (Some("3"), None));
        // The links of both files, the link to the version, and the version.
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4);
    }
}
