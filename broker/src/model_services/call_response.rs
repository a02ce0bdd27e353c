//! The answer of the API server to a call, and the memory of its body.

use http::StatusCode;
use serde::{Deserialize, de::DeserializeOwned};

use super::{
    failure::{Failure, quoted},
    lenient::read,
    limits::Reservation,
};

/// Responses from this size on are parsed in a thread of their own, because that takes
/// milliseconds.
const LARGE_UPSTREAM_BYTES: usize = 256 * 1024;
/// Capacity that a large response allocates, in bytes: more than the largest response. The system's
/// allocator returns an allocation of more than 32 MiB as soon as it is freed, and the unused rest is
/// never touched. It would keep smaller ones for each thread that ever needed them (mallopt(3),
/// `M_MMAP_THRESHOLD`): after 64 lists of 1 MiB at once the broker held 40 MB.
const LARGE_UPSTREAM_CAPACITY: usize = 33 * 1024 * 1024;

/// A response of the API server.
#[derive(Debug)]
pub(super) struct CallResponse {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<u64>,
    pub(super) body: Vec<u8>,
    pub(super) memory: Reservation,
}

impl CallResponse {
    /// Size of the body.
    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    /// The object in the body. The depth of its nesting is limited by the parser.
    ///
    /// # Errors
    /// It is no such object.
    pub(super) async fn json<T: DeserializeOwned + Send + 'static>(self) -> Result<T, Failure> {
        Ok(self.json_with_memory().await?.0)
    }

    /// Like [`Self::json`], with the memory that was reserved for the body.
    ///
    /// # Errors
    /// See [`Self::json`].
    pub(super) async fn json_with_memory<T: DeserializeOwned + Send + 'static>(
        self,
    ) -> Result<(T, Reservation), Failure> {
        let Self { body, memory, .. } = self;
        if body.len() < LARGE_UPSTREAM_BYTES {
            return Ok((parse(&body)?, memory));
        }
        // The thread holds the memory, because a client that leaves does not end it.
        let parsed = tokio::task::spawn_blocking(move || {
            let parsed = parse(&body);
            drop(body);
            (parsed, memory)
        });
        let (parsed, memory) = parsed.await.map_err(|error| Failure::internal_error(&error))?;
        Ok((parsed?, memory))
    }

    /// The failure for a status that the caller is not to blame for.
    pub(super) fn unexpected(&self) -> Failure {
        let text = format!("the API server answered {}: {}", self.status, self.message());
        Failure::internal(text).retry_after(self.retry_after)
    }

    /// The message of a `Status` in the body, for people: one short line.
    pub(super) fn message(&self) -> String {
        quoted(&self.of_status().message)
    }

    /// Whether an object was not created because there is one of its name. The API server answers 409
    /// for other reasons, too, such as a quota that changed meanwhile.
    pub(super) fn is_already_exists(&self) -> bool {
        self.status == StatusCode::CONFLICT && self.of_status().reason == "AlreadyExists"
    }

    /// The `Status` in the body; empty if there is none.
    fn of_status(&self) -> Status {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// Reserves capacity for this number of bytes of a response.
pub(super) fn reserve_capacity(body: &mut Vec<u8>, bytes: usize) {
    let missing = LARGE_UPSTREAM_CAPACITY.saturating_sub(body.len());
    // The system may refuse it, if it counts memory that is never touched.
    if bytes <= LARGE_UPSTREAM_BYTES || body.try_reserve_exact(missing).is_err() {
        body.reserve_exact(bytes.saturating_sub(body.len()));
    }
}

/// The fields of a `Status` that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[serde(deserialize_with = "read")]
    message: String,
    #[serde(deserialize_with = "read")]
    reason: String,
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::internal_error(&error))
}
