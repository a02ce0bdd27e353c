//! Password hashing with argon2id, with a limit on concurrent computations.
//!
//! The parameters are OWASP's 19 MiB, two passes, one lane, not RFC 9106's second option (64 MiB,
//! three passes, four lanes): the work runs in one thread here, so four lanes would only make it
//! slower for the broker and not for an attacker, and 64 MiB for each of several concurrent
//! sign-ins would need more memory than the whole broker has in a small container. A hash carries
//! its parameters, so they can be raised later without touching what is stored.

use std::{sync::Arc, time::Duration};

use argon2::{
    Algorithm, Argon2, Block, Params, Version,
    password_hash::phc::{Output, PasswordHash, Salt},
};
use secrecy::{ExposeSecret as _, SecretString};
use subtle::ConstantTimeEq as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes of a password at least (NIST SP 800-63B section 3.1.1.2 asks for eight characters).
const MIN_BYTES: usize = 8;
/// Bytes of a password at most: enough for any passphrase, and a bound on what is hashed.
pub const MAX_BYTES: usize = 1024;
/// Memory of one hash computation, in KiB (argon2's `m`).
const MEMORY_KIB: u32 = 19 * 1024;
/// Capacity that one computation allocates, in blocks of a KiB. The system's allocator returns an
/// allocation of more than 32 MiB as soon as it is freed, and the unused rest is never touched. It
/// would keep 19 MiB for each thread that ever needed them (mallopt(3), `M_MMAP_THRESHOLD`): the
/// broker held 200 MiB after ten sign-ins.
const ALLOCATION_KIB: usize = 33 * 1024;
/// Passes over the memory (argon2's `t`).
const PASSES: u32 = 2;
/// Parallel lanes (argon2's `p`).
const LANES: u32 = 1;
/// Concurrent computations at most: they use 76 MiB and this many processors.
const MAX_CONCURRENT: usize = 4;
/// How long a sign-in waits for a computation slot.
const SLOT_TIMEOUT: Duration = Duration::from_secs(10);

/// The hash of a password that nobody knows, for accounts that do not exist. It has the parameters
/// above, so that checking it takes as long as checking a real hash.
const DUMMY_HASH: &str = "$argon2id$v=19$m=19456,t=2,p=1$\
  bm9ib2R5J3MgYWNjb3VudA$Y4KzzIgUErd7/K7tAmABwA2eMCXmbCD25+kvB5hRRio";

/// A password cannot be hashed or checked, or not now.
#[derive(Debug, thiserror::Error)]
pub enum PasswordError {
    /// The password is too short or too long.
    #[error("a password has {MIN_BYTES} to {MAX_BYTES} bytes; choose another")]
    Length,
    /// No computation slot became free in time.
    #[error("too many people sign in at once; try again in a moment")]
    Busy,
    /// The computation failed.
    #[error("the password could not be processed: {0}")]
    Failed(String),
}

/// Hashes and checks passwords on blocking threads, [`MAX_CONCURRENT`] at a time at most. Clones
/// share the limit.
#[derive(Clone, Debug)]
pub(super) struct Passwords {
    slots: Arc<Semaphore>,
}

/// Permission for one computation. The slot is free again when the last clone is dropped.
#[derive(Clone, Debug)]
pub(crate) struct PasswordSlot {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Passwords {
    pub(super) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { slots: Arc::new(Semaphore::new(processors.min(MAX_CONCURRENT))) }
    }

    /// Waits for a free slot.
    pub(super) async fn acquire_slot(&self) -> Result<PasswordSlot, PasswordError> {
        let permit = tokio::time::timeout(SLOT_TIMEOUT, Arc::clone(&self.slots).acquire_owned());
        let permit = permit.await.map_err(|_| PasswordError::Busy)?.map_err(failed)?;
        Ok(PasswordSlot { _permit: Arc::new(permit) })
    }

    /// Computes the hash to store, in PHC format.
    pub(super) async fn hash(&self, password: SecretString) -> Result<String, PasswordError> {
        if !(MIN_BYTES..=MAX_BYTES).contains(&password.expose_secret().len()) {
            return Err(PasswordError::Length);
        }
        compute(self.acquire_slot().await?, move || {
            let (params, salt) = (params()?, Salt::generate());
            let output = output(&password, &salt, &params, Params::DEFAULT_OUTPUT_LEN)?;
            let hash = PasswordHash {
                algorithm: Algorithm::Argon2id.ident(),
                version: Some(Version::V0x13.into()),
                params: (&params).try_into().map_err(failed)?,
                salt: Some(salt),
                hash: Some(output),
            };
            Ok(hash.to_string())
        })
        .await
    }
}

/// Whether this is the password of that hash. Without a hash the result is `false`, after the same
/// computation.
pub(super) async fn verify(
    slot: &PasswordSlot,
    password: SecretString,
    hash: Option<String>,
) -> Result<bool, PasswordError> {
    compute(slot.clone(), move || {
        let account_exists = hash.is_some();
        let hash = hash.unwrap_or_else(|| DUMMY_HASH.to_owned());
        let hash = PasswordHash::new(&hash).map_err(failed)?;
        let (Some(salt), Some(kept)) = (hash.salt, hash.hash) else {
            return Err(failed("a stored hash has no salt or no hash"));
        };
        if (hash.algorithm, hash.version)
            != (Algorithm::Argon2id.ident(), Some(Version::V0x13.into()))
        {
            return Err(failed("a stored hash is not of argon2id, version 19"));
        }
        let params = Params::try_from(&hash).map_err(failed)?;
        let output = output(&password, &salt, &params, kept.len())?;
        let is_same: bool = output.as_bytes().ct_eq(kept.as_bytes()).into();
        Ok(is_same && account_exists)
    })
    .await
}

async fn compute<T: Send + 'static>(
    slot: PasswordSlot,
    work: impl FnOnce() -> Result<T, PasswordError> + Send + 'static,
) -> Result<T, PasswordError> {
    // The slot moves into the thread: a client that hangs up does not free a running computation.
    tokio::task::spawn_blocking(move || {
        let result = work();
        drop(slot);
        result
    })
    .await
    .map_err(failed)?
}

fn failed(error: impl std::fmt::Display) -> PasswordError {
    PasswordError::Failed(error.to_string())
}

fn params() -> Result<Params, PasswordError> {
    Params::new(MEMORY_KIB, PASSES, LANES, None).map_err(failed)
}

/// Runs argon2id.
fn output(
    password: &SecretString,
    salt: &Salt,
    params: &Params,
    length: usize,
) -> Result<Output, PasswordError> {
    let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
    let mut memory: Vec<Block> = Vec::with_capacity(ALLOCATION_KIB.max(params.block_count()));
    memory.resize(params.block_count(), Block::new());
    let mut output = vec![0; length];
    argon2
        .hash_password_into_with_memory(
            password.expose_secret().as_bytes(),
            salt.as_ref(),
            &mut output,
            &mut memory,
        )
        .map_err(failed)?;
    Output::new(&output).map_err(failed)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    fn secret(text: &str) -> SecretString {
        text.into()
    }

    async fn is_right(passwords: &Passwords, password: &str, hash: &str) -> bool {
        let slot = passwords.acquire_slot().await.unwrap();
        verify(&slot, secret(password), Some(hash.to_owned())).await.unwrap()
    }

    #[tokio::test]
    async fn only_the_password_itself_matches_its_hash() {
        let passwords = Passwords::new();
        let hash = passwords.hash(secret("correct horse")).await.unwrap();
        assert!(hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{hash}");
        assert!(is_right(&passwords, "correct horse", &hash).await);
        assert!(!is_right(&passwords, "correct horsf", &hash).await);
    }

    /// Earlier versions stored hashes that the library made.
    #[tokio::test]
    async fn a_hash_that_the_library_made_is_accepted() {
        use argon2::PasswordHasher as _;
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params().unwrap());
        let hash = argon2.hash_password(b"correct horse").unwrap().to_string();
        let passwords = Passwords::new();
        assert!(is_right(&passwords, "correct horse", &hash).await);
        assert!(!is_right(&passwords, "correct hors", &hash).await);
        for wrong in ["nonsense", "$argon2id$v=19$m=19456,t=2,p=1$bm9ib2R5J3MgYWNjb3VudA"] {
            let slot = passwords.acquire_slot().await.unwrap();
            let result = verify(&slot, secret("anything"), Some(wrong.to_owned())).await;
            assert!(matches!(result, Err(PasswordError::Failed(_))), "{wrong}");
        }
    }

    #[tokio::test]
    async fn the_dummy_hash_costs_the_same_work_and_never_matches() {
        let there = PasswordHash::new(DUMMY_HASH).unwrap();
        let params = Params::try_from(&there).unwrap();
        assert_eq!(
            (params.m_cost(), params.t_cost(), params.p_cost()),
            (MEMORY_KIB, PASSES, LANES)
        );
        let slot = Passwords::new().acquire_slot().await.unwrap();
        assert!(!verify(&slot, secret("anything"), None).await.unwrap());
    }

    #[tokio::test]
    async fn length_is_bounded() {
        let passwords = Passwords::new();
        for text in ["1234567".to_owned(), "x".repeat(1025)] {
            assert!(matches!(passwords.hash(text.into()).await, Err(PasswordError::Length)));
        }
        assert!(passwords.hash("x".repeat(1024).into()).await.is_ok());
    }

    #[tokio::test]
    async fn concurrent_computations_are_limited() {
        let passwords = Passwords::new();
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut checks = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (passwords, running, most) = (passwords.clone(), running.clone(), most.clone());
            checks.spawn(async move {
                let work = move || {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    let salt = Salt::generate();
                    let done = output(&secret("some work"), &salt, &params()?, 32);
                    running.fetch_sub(1, SeqCst);
                    done.map(drop)
                };
                compute(passwords.acquire_slot().await.unwrap(), work).await.unwrap();
            });
        }
        assert_eq!(checks.join_all().await.len(), 20);
        assert!((1..=MAX_CONCURRENT).contains(&most.load(SeqCst)), "{most:?} at once");
    }
}
