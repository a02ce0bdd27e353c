//! Files that hold secrets: read with suspicion, replaced at once or not at all.
//!
//! Reading refuses what somebody else owns and repairs what others could read. Writing goes to a
//! temporary file in the same folder, which is flushed and then renamed: a reader, and a crash,
//! see the old file or the new one.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use tenant_cached_token::{LARGEST_FILE, OTHERS};

use crate::error::Error;

/// What was found at a path.
pub(crate) enum Found {
    /// Nothing.
    Absent,
    /// A file that must not be trusted; the text says why.
    Foreign(String),
    /// The file, its bytes, and a remark if its mode had to be repaired.
    Bytes {
        /// Open for reading, and for writing if the file system allows.
        file: File,
        /// Everything in it.
        bytes: Vec<u8>,
        /// What the person should know.
        remark: Option<String>,
    },
}

/// Reads a private file: one `open`, no link followed.
pub(crate) fn read(path: &Path) -> Result<Found, Error> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Absent),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(Found::Foreign(format!("{} is a symbolic link", path.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(Found::Foreign(format!("{} cannot be opened: {error}", path.display())));
        }
        Err(error) => return Err(Error::file("open", path, &error)),
    };
    let facts = file.metadata().map_err(|error| Error::file("read", path, &error))?;
    let me = rustix::process::geteuid().as_raw();
    if !facts.is_file() || facts.len() > LARGEST_FILE {
        return Ok(Found::Foreign(format!("{} is not a file of this program", path.display())));
    }
    if facts.uid() != me {
        return Ok(Found::Foreign(format!(
            "{} belongs to user {} and you are user {me}",
            path.display(),
            facts.uid()
        )));
    }
    let remark = if facts.mode() & OTHERS == 0 { None } else { Some(close(&file, path, &facts)?) };
    let mut bytes = Vec::with_capacity(usize::try_from(facts.len()).unwrap_or(0) + 1);
    file.read_to_end(&mut bytes).map_err(|error| Error::file("read", path, &error))?;
    Ok(Found::Bytes { file, bytes, remark })
}

/// Opens for reading and writing, on a read-only file system for reading. Never blocks on a pipe.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    rustix::fs::open(path, OFlags::RDWR | flags, Mode::empty())
        .or_else(|error| match error {
            rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS => {
                rustix::fs::open(path, OFlags::RDONLY | flags, Mode::empty())
            }
            other => Err(other),
        })
        .map(File::from)
        .map_err(io::Error::from)
}

fn close(file: &File, path: &Path, facts: &fs::Metadata) -> Result<String, Error> {
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(|error| {
        Error::file("make private", path, &error)
            .hint(format!("others can read it; delete it: rm {}", path.display()))
    })?;
    Ok(format!(
        "warning: {} could be read by others (mode {:04o}); it is now 0600",
        path.display(),
        facts.mode() & 0o7777
    ))
}

/// Makes a folder of ours, and those above it, private.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Error::file("make the folder", folder, &error))?;
    let facts = fs::metadata(folder).map_err(|error| Error::file("read", folder, &error))?;
    if facts.mode() & OTHERS != 0 && facts.uid() == rustix::process::geteuid().as_raw() {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .map_err(|error| Error::file("make private", folder, &error))?;
    }
    Ok(())
}

/// A file that is being replaced. Made before a secret is fetched that would be lost if there were
/// no place to keep it.
pub(crate) struct Replacement {
    temporary: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Replacement {
    /// Makes sure that the file can be written.
    pub(crate) fn begin(path: &Path) -> Result<Self, Error> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        make_folder(folder)?;
        // Mode 0600 is what the crate gives to its files.
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(folder)
            .map_err(|error| Error::file("write in", folder, &error))?;
        Ok(Self { temporary, path: path.to_owned() })
    }

    /// Puts these bytes in the file's place, on the disk before the name points at them.
    pub(crate) fn finish(self, bytes: &[u8]) -> Result<(), Error> {
        self.put(bytes, true)
    }

    fn put(mut self, bytes: &[u8], sync: bool) -> Result<(), Error> {
        let written = self
            .temporary
            .write_all(bytes)
            .and_then(|()| if sync { self.temporary.as_file().sync_all() } else { Ok(()) });
        written.map_err(|error| Error::file("write", &self.path, &error))?;
        self.temporary
            .persist(&self.path)
            .map_err(|error| Error::file("write", &self.path, &error.error))?;
        Ok(())
    }
}

/// Replaces a private file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    Replacement::begin(path)?.finish(bytes)
}

/// Replaces a file whose loss in a power failure costs nothing, without waiting for the disk.
pub(crate) fn write_note(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    Replacement::begin(path)?.put(bytes, false)
}

/// Deletes a file; one that is not there is as good as deleted.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("delete", path, &error))
        }
        _ => Ok(()),
    }
}

/// Sets an unreadable file aside, for whoever wants to know what happened to it.
pub(crate) fn quarantine(path: &Path) -> String {
    let aside = path.with_extension("corrupt");
    match fs::rename(path, &aside) {
        Ok(()) => format!(
            "warning: {} cannot be read and was set aside as {}",
            path.display(),
            aside.display()
        ),
        Err(error) => format!(
            "warning: {} cannot be read, and cannot be set aside either: {error}",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(path: &Path) -> Vec<u8> {
        match read(path).unwrap() {
            Found::Bytes { bytes, .. } => bytes,
            Found::Absent => panic!("absent"),
            Found::Foreign(why) => panic!("{why}"),
        }
    }

    #[test]
    fn what_is_written_is_private_and_read_back() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a/b/secret.json");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(bytes_of(&path), b"two");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(fs::metadata(home.path().join("a/b")).unwrap().mode() & 0o7777, 0o700);
        assert_eq!(fs::read_dir(home.path().join("a/b")).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_others_can_read_is_closed_and_said() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret.json");
        write(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let Found::Bytes { remark, .. } = read(&path).unwrap() else { panic!("no file") };
        assert!(remark.unwrap().contains("mode 0644"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn links_pipes_and_giants_are_not_ours() {
        let home = tempfile::tempdir().unwrap();
        let (target, link) = (home.path().join("target"), home.path().join("link"));
        write(&target, b"one").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(read(&link).unwrap(), Found::Foreign(_)));
        let pipe = home.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(read(&pipe).unwrap(), Found::Foreign(_)));
        let giant = home.path().join("giant");
        write(&giant, &vec![b'x'; usize::try_from(LARGEST_FILE).unwrap() + 1]).unwrap();
        assert!(matches!(read(&giant).unwrap(), Found::Foreign(_)));
        assert!(matches!(read(&home.path().join("none")).unwrap(), Found::Absent));
    }

    #[test]
    fn what_cannot_be_read_is_set_aside() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret.json");
        write(&path, b"{").unwrap();
        assert!(quarantine(&path).contains("secret.corrupt"));
        assert!(matches!(read(&path).unwrap(), Found::Absent));
    }
}
