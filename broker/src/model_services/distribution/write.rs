//! Creations and deletions. If the answer to one is lost, the object is read, because the API server
//! may have carried it out.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    super::{InNamespace, call::Call, call_response::CallResponse, failure::Failure},
    failed::Failed,
    objects::{Metadata, ObjectPath},
};

/// Pauses before the reads of an object after a write whose answer was lost. The API server may still
/// be carrying it out, so an object that is not there is read again.
const PAUSES: [Duration; 3] =
    [Duration::ZERO, Duration::from_millis(500), Duration::from_millis(1500)];
/// Limit of these reads together. They have it also after the time of the operation, so that an
/// installation whose write took too long is taken back.
const READ_BACK_TIMEOUT: Duration = Duration::from_secs(10);

/// The API server's decision on a creation.
#[derive(Debug)]
pub(super) enum Creation {
    /// The object exists.
    Created(Metadata),
    /// The API server refused it with this answer, which is none of the 5xx.
    Refused(CallResponse),
}

/// A write that was not carried out, or of which nobody knows that.
#[derive(Debug)]
pub(super) enum WriteFailure {
    NotDone(Failure),
    Unknown(Failure),
}

impl WriteFailure {
    /// The failed change, if it consists of this write alone. `write` is what may have happened.
    pub(super) fn into_failed(self, write: &str) -> Failed {
        match self {
            Self::NotDone(failure) => Failed::from(failure),
            Self::Unknown(failure) => Failed::leaving(failure, unknown(write)),
        }
    }
}

/// The installation is rolled back, whether or not the write was carried out.
impl From<WriteFailure> for Failure {
    fn from(failure: WriteFailure) -> Self {
        match failure {
            WriteFailure::NotDone(failure) | WriteFailure::Unknown(failure) => failure,
        }
    }
}

/// The text of an audit row about a write whose answer was lost.
fn unknown(write: &str) -> String {
    format!("it is not known whether {write}")
}

impl InNamespace {
    /// Reads the metadata of an object once a change has begun. The time of what the operation reads may
    /// be over.
    ///
    /// # Errors
    /// See [`Self::metadata`].
    pub(super) async fn metadata_after_write(
        &self,
        path: &ObjectPath,
    ) -> Result<Option<Metadata>, Failure> {
        self.metadata_within(path, READ_BACK_TIMEOUT).await
    }

    /// Creates an object. `is_ours` says whether an object of the name is the one of this request.
    ///
    /// # Errors
    /// The API server does not answer or fails, and the object was not created or cannot be read.
    pub(super) async fn create_object(
        &self,
        path: &ObjectPath,
        object: &Value,
        is_ours: impl Fn(&Metadata) -> bool,
    ) -> Result<Creation, WriteFailure> {
        // A request that was closed sends nothing, so nothing has to be read.
        self.client().require_open().map_err(WriteFailure::NotDone)?;
        // Unknown fields would be dropped silently.
        let collection = format!("{}?fieldValidation=Strict", path.collection);
        let lost = match self.client().send(Call::create(path.kind, collection, object)).await {
            Ok(response) if response.status.is_success() => match response.json::<Metadata>().await
            {
                Ok(created) if !created.metadata.uid.is_empty() => {
                    return Ok(Creation::Created(created));
                }
                Ok(_) => Failure::internal("the created object has no uid"),
                Err(failure) => failure,
            },
            Ok(response) if response.status.is_server_error() => response.unexpected(),
            Ok(response) => return Ok(Creation::Refused(response)),
            Err(failure) if self.client().is_not_carried_out(&failure) => {
                return Err(WriteFailure::NotDone(failure));
            }
            Err(failure) => failure,
        };
        match self.read_until(path, |found| found.is_some_and(&is_ours)).await {
            Ok((true, Some(created))) => Ok(Creation::Created(created)),
            Ok(_) => Err(WriteFailure::NotDone(lost)),
            Err(_) => Err(WriteFailure::Unknown(lost)),
        }
    }

    /// Deletes an object with this uid. It is done if it does not exist any more.
    ///
    /// # Errors
    /// The API server refuses it; there is another object of the name; the API server does not answer
    /// or fails, and the object is still there or cannot be read.
    pub(super) async fn delete_object(
        &self,
        path: &ObjectPath,
        uid: &str,
    ) -> Result<(), WriteFailure> {
        self.delete_if(path, uid, &json!({ "uid": uid })).await
    }

    /// Deletes an object that nobody changed since it was read.
    ///
    /// # Errors
    /// Like [`Self::delete_object`]; somebody changed it.
    pub(super) async fn delete_unchanged(
        &self,
        path: &ObjectPath,
        found: &Metadata,
    ) -> Result<(), WriteFailure> {
        self.delete_if(path, &found.metadata.uid, &found.unchanged()).await
    }

    async fn delete_if(
        &self,
        path: &ObjectPath,
        uid: &str,
        preconditions: &Value,
    ) -> Result<(), WriteFailure> {
        self.client().require_open().map_err(WriteFailure::NotDone)?;
        let call = Call::delete(path.kind, path.object(), preconditions);
        let lost = match self.client().send(call).await {
            Ok(response) if response.status.is_success() => return Ok(()),
            Ok(response) if response.status == http::StatusCode::NOT_FOUND => return Ok(()),
            Ok(response) if response.status == http::StatusCode::CONFLICT => {
                let text = "the object was replaced meanwhile; send the request again";
                return Err(WriteFailure::NotDone(Failure::conflict(text)));
            }
            Ok(response) if response.status.is_server_error() => response.unexpected(),
            Ok(response) => {
                return Err(WriteFailure::NotDone(self.refused("delete it", &response)));
            }
            Err(failure) if self.client().is_not_carried_out(&failure) => {
                return Err(WriteFailure::NotDone(failure));
            }
            Err(failure) => failure,
        };
        match self.read_until(path, |found| is_deleted(found, uid)).await {
            Ok((true, _)) => Ok(()),
            Ok((false, _)) => Err(WriteFailure::NotDone(lost)),
            Err(_) => Err(WriteFailure::Unknown(lost)),
        }
    }

    /// Whether the object with this uid is gone, or is being deleted.
    pub(super) async fn is_gone(&self, path: &ObjectPath, uid: &str) -> bool {
        let found = self.metadata_after_write(path).await;
        found.is_ok_and(|found| is_deleted(found.as_ref(), uid))
    }

    /// Reads an object until it satisfies the condition, a few times. Returns whether it does, and
    /// the object.
    async fn read_until(
        &self,
        path: &ObjectPath,
        condition: impl Fn(Option<&Metadata>) -> bool,
    ) -> Result<(bool, Option<Metadata>), Failure> {
        let until = Instant::now() + READ_BACK_TIMEOUT;
        let mut last = Ok((false, None));
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            let left = until.saturating_duration_since(Instant::now());
            last = match self.metadata_within(path, left).await {
                Ok(found) if condition(found.as_ref()) => return Ok((true, found)),
                Ok(found) => Ok((false, found)),
                Err(failure) if self.is_final(&failure) => return Err(failure),
                Err(failure) => Err(failure),
            };
        }
        last
    }

    /// Whether further reads would fail, too. A caller without the right, or whose session has ended,
    /// does not get it back, and a request that was closed sends no further call.
    fn is_final(&self, failure: &Failure) -> bool {
        !failure.status().is_server_error() || self.client().is_closed()
    }
}

fn is_deleted(found: Option<&Metadata>, uid: &str) -> bool {
    found.is_none_or(|found| found.metadata.uid != uid || found.is_being_deleted())
}
