//! Files that a person names on the command line.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

use crate::{error::Error, world::Input};

/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads a file, or standard input if its name is `-`.
pub(super) fn read(path: &Path, stdin: &Input) -> Result<String, Error> {
    let unreadable = |error: io::Error| Error::file("read", path, &error);
    let limit = MAX_FILE_BYTES + 1;
    let bytes = if path == Path::new("-") {
        stdin.bytes(limit).map_err(unreadable)?
    } else {
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
        bytes
    };
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(Error::other(format!("{} has more than 1 MiB", path.display()))
            .hint("split it, and run the command for one part after the other"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Error::other(format!("{} is not a UTF-8 text", path.display())))
}
