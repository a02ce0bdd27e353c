//! Private files for secrets: validated on read, atomically replaced on write.
//!
//! Reading rejects a file of another user and repairs a mode that lets others read it. Writing goes
//! to a temporary file in the same folder, which is synced and then renamed, so that a reader sees
//! the old file or the new one, also after a crash.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{Mode, OFlags};

use tenant_cached_token::{MAX_FILE_BYTES, NON_OWNER_MODE_BITS};

use crate::error::Error;

/// Result of reading a private file.
pub(crate) enum PrivateFile {
    /// There is no file.
    Missing,
    /// The file must not be trusted; the text says why.
    Untrusted(String),
    /// The contents of a trusted file.
    Contents {
        /// The file, open for reading, and for writing if the file system permits.
        file: File,
        /// All bytes of the file.
        bytes: Vec<u8>,
        /// Warning for the person, if the mode had to be repaired.
        warning: Option<String>,
    },
}

/// Reads a private file with one `open`, without following links.
pub(crate) fn read(path: &Path) -> Result<PrivateFile, Error> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(PrivateFile::Missing),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            return Ok(PrivateFile::Untrusted(format!("{} is a symbolic link", path.display())));
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            return Ok(PrivateFile::Untrusted(format!(
                "{} cannot be opened: {error}",
                path.display()
            )));
        }
        Err(error) => return Err(Error::file("open", path, &error)),
    };
    let metadata = file.metadata().map_err(|error| Error::file("read", path, &error))?;
    let me = rustix::process::geteuid().as_raw();
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return Ok(PrivateFile::Untrusted(format!(
            "{} is not a file of this program",
            path.display()
        )));
    }
    if metadata.uid() != me {
        return Ok(PrivateFile::Untrusted(format!(
            "{} belongs to user {} and you are user {me}",
            path.display(),
            metadata.uid()
        )));
    }
    let warning = if metadata.mode() & NON_OWNER_MODE_BITS == 0 {
        None
    } else {
        Some(make_private(&file, path, &metadata)?)
    };
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    file.read_to_end(&mut bytes).map_err(|error| Error::file("read", path, &error))?;
    Ok(PrivateFile::Contents { file, bytes, warning })
}

/// Opens for reading and writing, or for reading on a read-only file system. Never blocks on a
/// pipe.
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

fn make_private(file: &File, path: &Path, metadata: &fs::Metadata) -> Result<String, Error> {
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(|error| {
        Error::file("make private", path, &error)
            .hint(format!("others can read it; delete it: rm {}", path.display()))
    })?;
    Ok(format!(
        "warning: {} could be read by others (mode {:04o}); it is now 0600",
        path.display(),
        metadata.mode() & 0o7777
    ))
}

/// Creates a folder and its parents with mode 0700, or repairs the mode of an existing folder.
pub(crate) fn make_folder(folder: &Path) -> Result<(), Error> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| Error::file("make the folder", folder, &error))?;
    let metadata = fs::metadata(folder).map_err(|error| Error::file("read", folder, &error))?;
    if metadata.mode() & NON_OWNER_MODE_BITS != 0
        && metadata.uid() == rustix::process::geteuid().as_raw()
    {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
            .map_err(|error| Error::file("make private", folder, &error))?;
    }
    Ok(())
}

/// A file that is being replaced. It is prepared before a secret is requested that would be lost if
/// it could not be stored.
pub(crate) struct Replacement {
    temporary: tempfile::NamedTempFile,
    path: PathBuf,
}

impl Replacement {
    /// Creates the temporary file, which proves that the file can be written.
    pub(crate) fn begin(path: &Path) -> Result<Self, Error> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        make_folder(folder)?;
        // The crate creates its files with mode 0600.
        let temporary = tempfile::Builder::new()
            .prefix(".new-")
            .tempfile_in(folder)
            .map_err(|error| Error::file("write in", folder, &error))?;
        Ok(Self { temporary, path: path.to_owned() })
    }

    /// Writes, syncs and renames the temporary file.
    pub(crate) fn finish(self, bytes: &[u8]) -> Result<(), Error> {
        self.persist(bytes, true)
    }

    fn persist(mut self, bytes: &[u8], sync: bool) -> Result<(), Error> {
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

/// Atomically replaces a private file.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    Replacement::begin(path)?.finish(bytes)
}

/// Replaces a file without syncing it, for data that may be lost in a power failure.
pub(crate) fn write_unsynced(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    Replacement::begin(path)?.persist(bytes, false)
}

/// Deletes a file; a missing one is no error.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("delete", path, &error))
        }
        _ => Ok(()),
    }
}

/// Renames an unreadable file to `*.corrupt`, so that it can be examined, and returns a warning.
pub(crate) fn quarantine(path: &Path) -> String {
    let aside = path.with_extension("corrupt");
    match fs::rename(path, &aside) {
        Ok(()) => format!(
            "warning: {} cannot be read and was renamed to {}",
            path.display(),
            aside.display()
        ),
        Err(error) => format!(
            "warning: {} cannot be read, and cannot be renamed either: {error}",
            path.display()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(path: &Path) -> Vec<u8> {
        match read(path).unwrap() {
            PrivateFile::Contents { bytes, .. } => bytes,
            PrivateFile::Missing => panic!("absent"),
            PrivateFile::Untrusted(why) => panic!("{why}"),
        }
    }

    #[test]
    fn written_files_are_private_and_read_back() {
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
    fn a_readable_mode_is_repaired_with_a_warning() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret.json");
        write(&path, b"one").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let PrivateFile::Contents { warning, .. } = read(&path).unwrap() else { panic!("no file") };
        assert!(warning.unwrap().contains("mode 0644"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }

    #[test]
    fn links_pipes_and_large_files_are_untrusted() {
        let home = tempfile::tempdir().unwrap();
        let (target, link) = (home.path().join("target"), home.path().join("link"));
        write(&target, b"one").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(matches!(read(&link).unwrap(), PrivateFile::Untrusted(_)));
        let pipe = home.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(read(&pipe).unwrap(), PrivateFile::Untrusted(_)));
        let giant = home.path().join("giant");
        write(&giant, &vec![b'x'; usize::try_from(MAX_FILE_BYTES).unwrap() + 1]).unwrap();
        assert!(matches!(read(&giant).unwrap(), PrivateFile::Untrusted(_)));
        assert!(matches!(read(&home.path().join("none")).unwrap(), PrivateFile::Missing));
    }

    #[test]
    fn unreadable_files_are_quarantined() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("secret.json");
        write(&path, b"{").unwrap();
        assert!(quarantine(&path).contains("secret.corrupt"));
        assert!(matches!(read(&path).unwrap(), PrivateFile::Missing));
    }
}
