//! Advisory locks between the processes of one user.
//!
//! A lock is the operating system's `flock` on a file of its own, which is never deleted: the lock
//! ends with its holder, and the file's existence means nothing. Where a file system has no locks
//! (some network homes) the program continues without one, because a second call to the broker is
//! better than none.

use std::{
    fs::File,
    io::{Read, Seek, Write},
    path::Path,
    time::Duration,
};

use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    io::Errno,
};
use tokio::time::Instant;

use crate::{error::Error, private_file};

/// Timeout of waiting for another process.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval at which a waiting process tries again.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A held lock, released when it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    /// [`None`] where the file system has no locks.
    _file: Option<File>,
}

/// Outcome of waiting for a lock.
#[derive(Debug)]
pub(crate) enum LockOutcome<T> {
    /// This process holds the lock.
    Acquired(Lock),
    /// The other process produced the result that this one wanted.
    Satisfied(T),
    /// Another process still holds the lock; the text names the file and, if known, the process.
    TimedOut(String),
}

/// Takes the lock, or gives up after `timeout`. While it waits, it calls `find_result` to see
/// whether the other process has produced the result that this one wants.
pub(crate) async fn acquire<T>(
    path: &Path,
    timeout: Duration,
    mut find_result: impl FnMut() -> Option<T>,
) -> Result<LockOutcome<T>, Error> {
    let Some(mut file) = open(path)? else {
        return Ok(LockOutcome::Acquired(Lock { _file: None }));
    };
    let deadline = Instant::now() + timeout;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                write_process_id(&mut file);
                return Ok(LockOutcome::Acquired(Lock { _file: Some(file) }));
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return Ok(LockOutcome::Acquired(Lock { _file: None }));
            }
            Err(error) => return Err(Error::file("lock", path, &error.into())),
        }
        if let Some(value) = find_result() {
            return Ok(LockOutcome::Satisfied(value));
        }
        if Instant::now() >= deadline {
            return Ok(LockOutcome::TimedOut(describe_holder(&mut file, path)));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Opens the lock file; [`None`] on a file system that cannot be written.
fn open(path: &Path) -> Result<Option<File>, Error> {
    if let Some(folder) = path.parent()
        && private_file::make_folder(folder).is_err()
    {
        return Ok(None);
    }
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    match rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)) {
        Ok(file) => Ok(Some(File::from(file))),
        Err(Errno::ROFS | Errno::ACCESS | Errno::NOSPC) => Ok(None),
        Err(error) => Err(Error::file("open the lock", path, &error.into())),
    }
}

/// Writes the process id into the lock file, for the message of a process that waits in vain.
fn write_process_id(file: &mut File) {
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
}

fn describe_holder(file: &mut File, path: &Path) -> String {
    let mut text = String::new();
    let pid = file
        .rewind()
        .and_then(|()| file.read_to_string(&mut text))
        .ok()
        .and_then(|_| text.trim().parse::<u32>().ok());
    match pid {
        Some(pid) => format!("{}, held by process {pid}", path.display()),
        None => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_WAIT: Duration = Duration::ZERO;

    #[tokio::test]
    async fn a_timeout_names_the_holder() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("locks/x.lock");
        let first = acquire(&path, NO_WAIT, || None::<()>).await.unwrap();
        assert!(matches!(first, LockOutcome::Acquired(_)));
        let LockOutcome::TimedOut(who) = acquire(&path, NO_WAIT, || None::<()>).await.unwrap()
        else {
            panic!("two hold one lock")
        };
        assert!(who.contains("x.lock") && who.contains(&std::process::id().to_string()), "{who}");
        drop(first);
        assert!(matches!(
            acquire(&path, NO_WAIT, || None::<()>).await.unwrap(),
            LockOutcome::Acquired(_)
        ));
    }

    #[tokio::test]
    async fn waiting_ends_when_the_result_exists() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.lock");
        let _first = acquire(&path, NO_WAIT, || None::<()>).await.unwrap();
        let mut looks = 0;
        let outcome = acquire(&path, LOCK_TIMEOUT, || {
            looks += 1;
            (looks == 3).then_some("answer")
        });
        assert!(matches!(outcome.await.unwrap(), LockOutcome::Satisfied("answer")));
    }

    #[tokio::test]
    async fn a_missing_lock_folder_is_no_error() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("file"), "").unwrap();
        let path = home.path().join("file/x.lock");
        assert!(matches!(
            acquire(&path, NO_WAIT, || None::<()>).await.unwrap(),
            LockOutcome::Acquired(_)
        ));
    }
}
