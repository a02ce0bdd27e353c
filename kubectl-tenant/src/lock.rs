//! Advisory locks between processes of one person.
//!
//! The operating system's `flock` on a file of its own, which is never deleted: a lock dies with
//! its holder, and the file's existence means nothing. Where a file system has no locks (some
//! network homes) the work goes on without: a second call to the broker is better than none.

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

/// How long one process waits for another.
pub(crate) const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// How often a waiting process looks again.
const PROBE: Duration = Duration::from_millis(20);

/// The lock, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    /// [`None`] where the file system has no locks.
    _file: Option<File>,
}

/// How waiting ended.
#[derive(Debug)]
pub(crate) enum Outcome<T> {
    /// This process holds the lock.
    Held(Lock),
    /// What was wanted appeared while waiting.
    Answered(T),
    /// Somebody else still holds it; the text names the file and, if known, the process.
    Busy(String),
}

/// Takes the lock, or gives up when `wait` is over. Meanwhile `look` is asked again and again
/// whether the other process has already brought what this one wants.
pub(crate) async fn acquire<T>(
    path: &Path,
    wait: Duration,
    mut look: impl FnMut() -> Option<T>,
) -> Result<Outcome<T>, Error> {
    let Some(mut file) = open(path)? else { return Ok(Outcome::Held(Lock { _file: None })) };
    let deadline = Instant::now() + wait;
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                sign(&mut file);
                return Ok(Outcome::Held(Lock { _file: Some(file) }));
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                return Ok(Outcome::Held(Lock { _file: None }));
            }
            Err(error) => return Err(Error::file("lock", path, &error.into())),
        }
        if let Some(answer) = look() {
            return Ok(Outcome::Answered(answer));
        }
        if Instant::now() >= deadline {
            return Ok(Outcome::Busy(holder(&mut file, path)));
        }
        tokio::time::sleep(PROBE).await;
    }
}

/// Opens the lock's file; [`None`] on a file system where nothing can be written.
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

/// Leaves the process number for whoever waits in vain. Nothing depends on it.
fn sign(file: &mut File) {
    let _ = file
        .set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| write!(file, "{}", std::process::id()));
}

fn holder(file: &mut File, path: &Path) -> String {
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

    const AT_ONCE: Duration = Duration::ZERO;

    #[tokio::test]
    async fn one_holds_it_and_the_next_is_told_who() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("locks/x.lock");
        let first = acquire(&path, AT_ONCE, || None::<()>).await.unwrap();
        assert!(matches!(first, Outcome::Held(_)));
        let Outcome::Busy(who) = acquire(&path, AT_ONCE, || None::<()>).await.unwrap() else {
            panic!("two hold one lock")
        };
        assert!(who.contains("x.lock") && who.contains(&std::process::id().to_string()), "{who}");
        drop(first);
        assert!(matches!(acquire(&path, AT_ONCE, || None::<()>).await.unwrap(), Outcome::Held(_)));
    }

    #[tokio::test]
    async fn waiting_ends_when_the_answer_is_there() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("x.lock");
        let _first = acquire(&path, AT_ONCE, || None::<()>).await.unwrap();
        let mut looks = 0;
        let outcome = acquire(&path, LONGEST_WAIT, || {
            looks += 1;
            (looks == 3).then_some("answer")
        });
        assert!(matches!(outcome.await.unwrap(), Outcome::Answered("answer")));
    }

    #[tokio::test]
    async fn no_place_for_a_lock_is_no_obstacle() {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("file"), "").unwrap();
        let path = home.path().join("file/x.lock");
        assert!(matches!(acquire(&path, AT_ONCE, || None::<()>).await.unwrap(), Outcome::Held(_)));
    }
}
