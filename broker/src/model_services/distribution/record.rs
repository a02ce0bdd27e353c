//! Audit rows of installations and deletions. The row of a change is durable before the first object
//! is created or deleted. A second row says that the change was refused, or what it left when it
//! failed. Rows of changes that were refused before the first row are limited in number, and so are the
//! changes of a user and in a namespace.

use std::{convert::Infallible, time::Instant};

use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::Value;

use super::{
    super::{
        InNamespace, ModelServices,
        caller::ApiCaller,
        caller_client::{CallCredential, CallerClient},
        failure::{Failure, quoted},
        known_keys::truncate,
        limits::ChangeKey,
        review::RefusedReview,
    },
    failed::Failed,
};
use crate::{
    audit::{self, Action, Event, EventOutcome},
    base::{error_chain, rate_limit::ClientNetwork},
    http::ApiError,
};

/// The audit rows of one change.
#[derive(Debug)]
pub(super) struct Recorder {
    services: ModelServices,
    event: Event,
    /// Description of the change.
    what: String,
    /// Limits that the change counts against.
    counted: [ChangeKey; 2],
    /// Whether the row of the change is written.
    has_begun: bool,
}

/// Maximum length of what is changed in a row about a refusal or failure, in bytes. The names of 50
/// models have 12 KiB, and a refusal costs its caller nothing. The row of a change has all of them.
const MAX_REFUSED_BYTES: usize = 1024;
/// The user in rows about a caller whom the API server does not name.
const UNKNOWN_USER: &str = "unknown";

impl InNamespace {
    /// The recorder of a change. The row of a caller with a Kubernetes token names its user.
    ///
    /// # Errors
    /// The API server does not say who the caller is, which is recorded.
    pub(super) async fn recorder(&self, action: Action, what: String) -> Result<Recorder, Failure> {
        let services = self.client().services().clone();
        let of = |event, what, user| {
            let counted = [user, ChangeKey::Namespace(self.namespace().to_owned())];
            Recorder { services, event, what, counted, has_begun: false }
        };
        match self.client().credential() {
            CallCredential::Session(request) => {
                let workspace_id = Some(request.workspace_id());
                let event = Event { workspace_id, ..request.caller().event(action) };
                Ok(of(event, what, ChangeKey::User(request.caller().user_id())))
            }
            CallCredential::Kubernetes { .. } => {
                let (user, failure) = match self.client().who_am_i().await {
                    // Webhooks and providers name users as they like, and the API server limits no length.
                    Ok(user) => (quoted(&user.user), None),
                    Err(failure) => (UNKNOWN_USER.to_owned(), Some(failure)),
                };
                let what = by_user(failure.is_none().then_some(user.as_str()), &what);
                let recorder = of(Event::success(action), what, ChangeKey::KubernetesUser(user));
                match failure {
                    None => Ok(recorder),
                    Some(failure) => Err(recorder.refuse(failure).await),
                }
            }
        }
    }
}

impl InNamespace {
    /// Runs the reads of a change beside the review of the caller's right to it, a verb and the name of
    /// the distribution. Then reserves the memory of its writes, and counts the change, which is about to
    /// begin.
    ///
    /// # Errors
    /// The caller has no such right, which is the failure also if the reads fail; the reads failed; there
    /// is not enough memory; the broker stops; the user made too many changes, or there were too many in
    /// the namespace.
    pub(super) async fn admit_change<T>(
        &self,
        recorder: &Recorder,
        (verb, name): (&str, &str),
        reads: BoxFuture<'_, Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let reads = async { Ok(reads.await) };
        let ((), found) = tokio::try_join!(self.require_right(verb, name), reads)?;
        let found = found?;
        self.client().reserve_writes()?;
        self.client().services().0.changes_in_flight.require_running()?;
        recorder.count_change()?;
        Ok(found)
    }
}

/// Description of a change by a Kubernetes user; `None` if the API server does not name the user.
/// The name is a JSON string, because webhooks and providers choose it, and it could look like what
/// follows it.
fn by_user(user: Option<&str>, what: &str) -> String {
    let user = user.map_or_else(|| UNKNOWN_USER.to_owned(), |user| Value::from(user).to_string());
    format!("Kubernetes user {user}, {what}")
}

impl ModelServices {
    /// Runs the record of a refusal to its end, also if the client disconnects.
    async fn run_record_to_end(&self, record: BoxFuture<'static, Failure>) -> Failure {
        let recorded: Result<Infallible, Failure> =
            self.run_to_end(async move { Err(record.await) }).await;
        match recorded {
            Err(failure) => failure,
        }
    }

    /// Records a change that the review of its namespace refused, also if the client disconnects, and
    /// returns the refusal. A row that cannot be written changes nothing, because nothing happened.
    pub(in crate::model_services) async fn record_refused_review(
        &self,
        caller: ApiCaller,
        action: Action,
        namespace: String,
        refused: RefusedReview,
    ) -> Failure {
        let services = self.clone();
        let record = async move {
            services.write_refused_review(&caller, action, &namespace, &refused).await;
            refused.failure
        };
        self.run_record_to_end(record.boxed()).await
    }

    async fn write_refused_review(
        &self,
        caller: &ApiCaller,
        action: Action,
        namespace: &str,
        RefusedReview { failure, client }: &RefusedReview,
    ) {
        self.0.metrics.action(action.as_str(), "refused");
        let Some(omitted) = self.0.refusal_rows.admit(ClientNetwork::current(), Instant::now())
        else {
            return;
        };
        let what = format!("namespace {namespace}");
        let (event, what) = match caller {
            ApiCaller::Session(session) => (session.caller().event(action), what),
            ApiCaller::Kubernetes(_) => {
                let user = user_of(client.as_deref()).await;
                (Event::success(action), by_user(user.as_deref(), &what))
            }
        };
        let reason = format!("{what}: {} {}", failure.status().as_u16(), failure.message());
        let reason = Some(with_omitted(reason, omitted));
        let event = Event { outcome: EventOutcome::Refused, reason, ..event };
        if let Err(error) = audit::record_in_own_tx(&self.0.db, &self.0.clock, event).await {
            tracing::warn!(
                error = error_chain(&error),
                "cannot record a refused change in the audit trail"
            );
            self.0.refusal_rows.restore_omitted(omitted);
        }
    }
}

/// The Kubernetes user of a request; `None` if the API server does not say it.
async fn user_of(client: Option<&CallerClient>) -> Option<String> {
    Some(quoted(&client?.who_am_i().await.ok()?.user))
}

/// The description, cut for a row about a refusal or failure.
fn shortened(what: &str) -> String {
    match truncate(what, MAX_REFUSED_BYTES) {
        all if all.len() == what.len() => what.to_owned(),
        cut => format!("{cut}…"),
    }
}

/// The reason of a row, with the number of rows that were omitted before it.
fn with_omitted(reason: String, omitted: u64) -> String {
    match omitted {
        0 => reason,
        _ => format!("{reason}; {omitted} refusals before this one have no row"),
    }
}

impl Recorder {
    /// Records that the change is refused before it began, also if the client disconnects, and returns
    /// the refusal.
    pub(super) async fn refuse(self, failure: Failure) -> Failure {
        let services = self.services.clone();
        services.run_record_to_end(self.fail(failure.into()).boxed()).await
    }

    fn count_change(&self) -> Result<(), Failure> {
        self.services.0.limits.changes.count(&self.counted, Instant::now())
    }

    /// Records that the change is about to happen.
    ///
    /// # Errors
    /// The database failed, or the request of this client was closed: the change must not happen.
    pub(super) async fn begin(&mut self, client: &CallerClient) -> Result<(), Failure> {
        client.require_open()?;
        let event = Event { reason: Some(self.what.clone()), ..self.event.clone() };
        self.record(event).await?;
        self.has_begun = true;
        Ok(())
    }

    /// Records a change that was refused, or that failed, and passes its result on.
    ///
    /// # Errors
    /// Those of the change.
    pub(super) async fn finish<T>(self, result: Result<T, Failed>) -> Result<T, Failure> {
        match result {
            Ok(done) => {
                self.services.0.metrics.action(self.event.action.as_str(), "success");
                Ok(done)
            }
            Err(failed) => Err(self.fail(failed).await),
        }
    }

    /// Records a change that was refused, or that failed; returns its failure. The outcome is
    /// `refused` only if nothing was changed.
    pub(super) async fn fail(self, failed: Failed) -> Failure {
        let services = &self.services.0;
        let (failure, left) = failed.into_parts();
        let (outcome, label) = match left {
            None => (EventOutcome::Refused, "refused"),
            Some(_) => (self.event.outcome, "success"),
        };
        services.metrics.action(self.event.action.as_str(), label);
        let omitted = if self.has_begun {
            Some(0)
        } else {
            services.refusal_rows.admit(ClientNetwork::current(), Instant::now())
        };
        let Some(omitted) = omitted else { return failure };
        let why = match failure.message() {
            "" => "failed",
            message => message,
        };
        let status = failure.status().as_u16();
        let left = left.map_or_else(String::new, |left| format!("; {left}"));
        let what = shortened(&self.what);
        let reason = with_omitted(format!("{what}: {status} {why}{left}"), omitted);
        let event = Event { outcome, reason: Some(reason), ..self.event.clone() };
        if let Err(error) = self.record(event).await {
            tracing::warn!(error = %error, "cannot record a failed change in the audit trail");
            if !self.has_begun {
                services.refusal_rows.restore_omitted(omitted);
            }
        }
        failure
    }

    async fn record(&self, event: Event) -> Result<(), Failure> {
        let services = &self.services.0;
        audit::record_in_own_tx(&services.db, &services.clock, event)
            .await
            .map_err(|error| ApiError::storage(&error).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_user_cannot_look_like_a_place() {
        assert_eq!(by_user(Some("reg"), "namespace ns"), r#"Kubernetes user "reg", namespace ns"#);
        assert_eq!(by_user(None, "namespace ns"), "Kubernetes user unknown, namespace ns");
        assert_eq!(
            by_user(Some(r#"a", namespace b, "c"#), "namespace ns"),
            r#"Kubernetes user "a\", namespace b, \"c", namespace ns"#
        );
    }

    #[test]
    fn the_row_of_a_refusal_has_the_first_names() {
        let names: Vec<String> =
            (0..50).map(|number| format!("{number}{}", "é".repeat(125))).collect();
        let what = format!("namespace ns, lsd, models {}", names.join(", "));
        let short = shortened(&what);
        assert!(
            short.len() <= MAX_REFUSED_BYTES + '…'.len_utf8() && short.ends_with('…'),
            "{short}"
        );
        assert!(what.starts_with(short.trim_end_matches('…')));
        assert_eq!(shortened("namespace ns, lsd, models a, b"), "namespace ns, lsd, models a, b");
    }
}
