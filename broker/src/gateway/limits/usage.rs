//! Usage of the gateway by tenants. It is counted in memory and added to the database at intervals.
//! A crash loses what was not yet added, so the numbers are for information, not for billing.

use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use tenant_shared::UsageDay;
use uuid::Uuid;

use crate::{
    base::{
        clock::timestamp,
        db::{Db, Tx},
    },
    gateway::kubernetes_api::path::{Kind, Target},
    on_engine,
};

/// Days after which usage is deleted.
pub(in crate::gateway) const RETENTION_DAYS: i64 = 35;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// Direction of transferred bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) enum Direction {
    /// From the client.
    Up,
    /// From the API server.
    Down,
}

/// Verb of a request, as in RBAC (API reference, "Determine the request verb").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A read of one object or of a non-resource path.
    Get,
    /// A list of objects.
    List,
    /// A watch of objects.
    Watch,
    /// `exec`, `attach`, `port-forward`, `logs -f`, `/proxy/`.
    Connect,
    /// The creation of an object.
    Create,
    /// The replacement of an object.
    Update,
    /// The change of a part of an object.
    Patch,
    /// The deletion of one or many objects.
    Delete,
}

impl Verb {
    const ALL: [Self; 8] = [
        Self::Get,
        Self::List,
        Self::Watch,
        Self::Connect,
        Self::Create,
        Self::Update,
        Self::Patch,
        Self::Delete,
    ];

    /// The verb of a request.
    pub(in crate::gateway) fn of_request(method: &Method, target: &Target<'_>) -> Self {
        match target.kind {
            Kind::Watch => return Self::Watch,
            Kind::Follow | Kind::Session | Kind::Proxy => return Self::Connect,
            Kind::Call => {}
        }
        match *method {
            Method::POST => Self::Create,
            Method::PUT => Self::Update,
            Method::PATCH => Self::Patch,
            Method::DELETE => Self::Delete,
            _ if target.resource.is_some() && target.name.is_none() => Self::List,
            _ => Self::Get,
        }
    }

    /// The name in metrics and rows.
    pub(in crate::gateway) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Connect => "connect",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    throttled: AtomicU64,
    bytes_up: AtomicU64,
    bytes_down: AtomicU64,
    stream_ms: AtomicU64,
}

/// Counters of one tenant since they were last taken.
#[derive(Debug, Default)]
pub(in crate::gateway) struct UsageCounters([Counts; Verb::ALL.len()]);

/// The counts of one verb that are to be added to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gateway) struct UsageDelta {
    pub(in crate::gateway) verb: Verb,
    pub(in crate::gateway) requests: u64,
    pub(in crate::gateway) throttled: u64,
    pub(in crate::gateway) bytes_up: u64,
    pub(in crate::gateway) bytes_down: u64,
    pub(in crate::gateway) stream_ms: u64,
}

impl UsageCounters {
    fn counts_of(&self, verb: Verb) -> &Counts {
        &self.0[verb as usize]
    }

    /// Counts a forwarded request.
    pub(in crate::gateway) fn count_request(&self, verb: Verb) {
        self.counts_of(verb).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused because of a limit.
    pub(in crate::gateway) fn count_throttled(&self, verb: Verb) {
        self.counts_of(verb).throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts transferred bytes.
    pub(in crate::gateway) fn count_bytes(&self, verb: Verb, direction: Direction, bytes: u64) {
        let counts = self.counts_of(verb);
        let count = match direction {
            Direction::Up => &counts.bytes_up,
            Direction::Down => &counts.bytes_down,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts the time that a stream was open.
    pub(in crate::gateway) fn count_stream(&self, verb: Verb, milliseconds: u64) {
        self.counts_of(verb).stream_ms.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn counts(&self, read: impl Fn(&AtomicU64) -> u64) -> Vec<UsageDelta> {
        Verb::ALL
            .into_iter()
            .map(|verb| {
                let counts = self.counts_of(verb);
                UsageDelta {
                    verb,
                    requests: read(&counts.requests),
                    throttled: read(&counts.throttled),
                    bytes_up: read(&counts.bytes_up),
                    bytes_down: read(&counts.bytes_down),
                    stream_ms: read(&counts.stream_ms),
                }
            })
            .filter(|delta| !delta.is_empty())
            .collect()
    }

    /// Whether all counters are zero.
    pub(in crate::gateway) fn is_empty(&self) -> bool {
        self.counts(|count| count.load(Ordering::Relaxed)).is_empty()
    }

    /// Returns the counts and resets the counters.
    pub(in crate::gateway) fn take(&self) -> Vec<UsageDelta> {
        self.counts(|count| count.swap(0, Ordering::Relaxed))
    }

    /// Adds counts back that could not be stored.
    pub(in crate::gateway) fn restore(&self, deltas: &[UsageDelta]) {
        for delta in deltas {
            let counts = self.counts_of(delta.verb);
            for (count, value) in [
                (&counts.requests, delta.requests),
                (&counts.throttled, delta.throttled),
                (&counts.bytes_up, delta.bytes_up),
                (&counts.bytes_down, delta.bytes_down),
                (&counts.stream_ms, delta.stream_ms),
            ] {
                count.fetch_add(value, Ordering::Relaxed);
            }
        }
    }
}

impl UsageDelta {
    fn is_empty(&self) -> bool {
        [self.requests, self.throttled, self.bytes_up, self.bytes_down, self.stream_ms] == [0; 5]
    }
}

const ADD: &str = "\
INSERT INTO gateway_usage (workspace_id, day, verb, requests, throttled, bytes_up, bytes_down, \
  stream_ms) VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
ON CONFLICT (workspace_id, day, verb) DO UPDATE SET \
  requests = gateway_usage.requests + excluded.requests, \
  throttled = gateway_usage.throttled + excluded.throttled, \
  bytes_up = gateway_usage.bytes_up + excluded.bytes_up, \
  bytes_down = gateway_usage.bytes_down + excluded.bytes_down, \
  stream_ms = gateway_usage.stream_ms + excluded.stream_ms";

/// Adds counts to the current day of a workspace.
pub(in crate::gateway) async fn add(
    tx: &mut Tx,
    workspace: Uuid,
    now_ms: i64,
    delta: &UsageDelta,
) -> sqlx::Result<()> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(workspace).bind(now_ms / DAY_MS).bind(delta.verb.as_str())
        .bind(number(delta.requests)).bind(number(delta.throttled))
        .bind(number(delta.bytes_up)).bind(number(delta.bytes_down))
        .bind(number(delta.stream_ms))
        .execute(c).await.map(drop))
}

const DELETE_EXPIRED: &str = "DELETE FROM gateway_usage WHERE day < $1";

/// Deletes usage older than [`RETENTION_DAYS`].
pub(in crate::gateway) async fn delete_expired(tx: &mut Tx, now_ms: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c =>
        sqlx::query(DELETE_EXPIRED)
            .bind(now_ms / DAY_MS - RETENTION_DAYS).execute(c).await.map(drop))
}

#[derive(sqlx::FromRow)]
struct UsageRow {
    day: i64,
    verb: String,
    requests: i64,
    throttled: i64,
    bytes_up: i64,
    bytes_down: i64,
    stream_ms: i64,
}

const SELECT_RECENT: &str = "\
SELECT day, verb, requests, throttled, bytes_up, bytes_down, stream_ms FROM gateway_usage \
WHERE workspace_id = $1 AND day > $2 ORDER BY day DESC, verb";

/// Usage of a workspace in the last `days` days, newest first.
pub(in crate::gateway) async fn recent_days(
    db: &Db,
    workspace: Uuid,
    now_ms: i64,
    days: i64,
) -> sqlx::Result<Vec<UsageDay>> {
    let rows: Vec<UsageRow> = on_engine!(db.reader(), pool => sqlx::query_as(SELECT_RECENT)
        .bind(workspace).bind(now_ms / DAY_MS - days).fetch_all(pool).await)?;
    let number = |value: i64| u64::try_from(value).unwrap_or(0);
    Ok(rows
        .into_iter()
        .map(|row| UsageDay {
            day: timestamp(row.day * DAY_MS).strftime("%F").to_string(),
            verb: row.verb,
            requests: number(row.requests),
            throttled: number(row.throttled),
            bytes_up: number(row.bytes_up),
            bytes_down: number(row.bytes_down),
            stream_seconds: number(row.stream_ms) / 1000,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use tenant_shared::WorkspaceStatus;

    use super::*;
    use crate::testing::{On, Storage, on_both_engines};

    on_both_engines!(usage_adds_up_by_day_and_expired_days_are_deleted,);

    async fn usage_adds_up_by_day_and_expired_days_are_deleted(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let id = storage.workspace(user, WorkspaceStatus::Provisioned).await;
        let usage = UsageCounters::default();
        let write = async |usage: &UsageCounters| {
            let mut tx = storage.db.begin().await.unwrap();
            for delta in usage.take() {
                add(&mut tx, id, storage.clock.now_ms(), &delta).await.unwrap();
            }
            tx.commit().await.unwrap();
        };
        let read = async || {
            recent_days(&storage.db, id, storage.clock.now_ms(), RETENTION_DAYS).await.unwrap()
        };
        for _ in 0..2 {
            usage.count_request(Verb::Get);
            usage.count_bytes(Verb::Get, Direction::Down, 7);
            usage.count_stream(Verb::Watch, 1500);
            write(&usage).await;
        }
        let rows = read().await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].verb.as_str(), rows[0].requests, rows[0].bytes_down), ("get", 2, 14));
        assert_eq!((rows[1].verb.as_str(), rows[1].stream_seconds), ("watch", 3));

        storage.clock.advance(DAY_MS);
        usage.count_throttled(Verb::List);
        let deltas = usage.take();
        usage.restore(&deltas);
        write(&usage).await;
        let rows = read().await;
        assert_eq!((rows.len(), rows[0].verb.as_str(), rows[0].throttled), (3, "list", 1));
        assert!(rows[0].day > rows[1].day, "the newest first: {rows:?}");

        storage.clock.advance(RETENTION_DAYS * DAY_MS);
        let mut tx = storage.db.begin().await.unwrap();
        delete_expired(&mut tx, storage.clock.now_ms()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(storage.number("SELECT COUNT(*) FROM gateway_usage").await, 1);
    }

    #[test]
    fn verbs_are_those_of_rbac() {
        for (method, path, verb) in [
            (Method::GET, "/api/v1/namespaces/t/pods", Verb::List),
            (Method::GET, "/api/v1/namespaces/t/pods?watch=1", Verb::Watch),
            (Method::GET, "/api/v1/namespaces/t/pods/p", Verb::Get),
            (Method::GET, "/version", Verb::Get),
            (Method::GET, "/api/v1/namespaces/t/pods/p/log?follow=true", Verb::Connect),
            (Method::POST, "/api/v1/namespaces/t/pods/p/exec", Verb::Connect),
            (Method::POST, "/api/v1/namespaces/t/pods", Verb::Create),
            (Method::PUT, "/api/v1/namespaces/t/pods/p", Verb::Update),
            (Method::PATCH, "/api/v1/namespaces/t/pods/p", Verb::Patch),
            (Method::DELETE, "/api/v1/namespaces/t/pods", Verb::Delete),
        ] {
            let uri = format!("/clusters/c{path}").parse().unwrap();
            let target = crate::gateway::kubernetes_api::path::parse(&uri).unwrap();
            assert_eq!(Verb::of_request(&method, &target), verb, "{method} {path}");
        }
    }
}
