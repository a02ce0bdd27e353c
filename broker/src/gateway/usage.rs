//! What tenants used: counted in memory as it happens, added to the database now and then. A crash
//! loses what was counted since; it is for people to look at, not for bills.

use std::sync::atomic::{AtomicU64, Ordering};

use http::Method;
use tenant_shared::UsageDay;
use uuid::Uuid;

use super::{
    path::{Kind, Target},
    share::Direction,
};
use crate::{
    clock::timestamp,
    db::{Db, Tx},
    on_engine,
};

/// Days that are kept.
pub(super) const DAYS: i64 = 35;
const DAY_MS: i64 = 24 * 3600 * 1000;

/// What a request does, in the words of RBAC (API reference, "Determine the request verb").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// One object, or what is no resource.
    Get,
    /// Objects.
    List,
    /// Objects, and what happens to them.
    Watch,
    /// `exec`, `attach`, `port-forward`, `logs -f`, `/proxy/`.
    Connect,
    /// A new object.
    Create,
    /// A whole object.
    Update,
    /// A part of one.
    Patch,
    /// An object, or many.
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

    /// Of this request.
    pub(super) fn of(method: &Method, target: &Target<'_>) -> Self {
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

    /// As metrics and rows name it.
    pub(super) fn as_str(self) -> &'static str {
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

/// What one tenant did since it was last taken.
#[derive(Debug, Default)]
pub(super) struct Usage([Counts; Verb::ALL.len()]);

/// The same, taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) verb: Verb,
    pub(super) requests: u64,
    pub(super) throttled: u64,
    pub(super) bytes_up: u64,
    pub(super) bytes_down: u64,
    pub(super) stream_ms: u64,
}

impl Usage {
    fn of(&self, verb: Verb) -> &Counts {
        &self.0[verb as usize]
    }

    /// A request went on.
    pub(super) fn request(&self, verb: Verb) {
        self.of(verb).requests.fetch_add(1, Ordering::Relaxed);
    }

    /// A request was refused, for there were too many.
    pub(super) fn throttled(&self, verb: Verb) {
        self.of(verb).throttled.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes flowed.
    pub(super) fn bytes(&self, verb: Verb, direction: Direction, bytes: u64) {
        let counts = self.of(verb);
        let count = match direction {
            Direction::Up => &counts.bytes_up,
            Direction::Down => &counts.bytes_down,
        };
        count.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A stream was open for so long.
    pub(super) fn stream(&self, verb: Verb, milliseconds: u64) {
        self.of(verb).stream_ms.fetch_add(milliseconds, Ordering::Relaxed);
    }

    fn counts(&self, read: impl Fn(&AtomicU64) -> u64) -> Vec<Taken> {
        Verb::ALL
            .into_iter()
            .map(|verb| {
                let counts = self.of(verb);
                Taken {
                    verb,
                    requests: read(&counts.requests),
                    throttled: read(&counts.throttled),
                    bytes_up: read(&counts.bytes_up),
                    bytes_down: read(&counts.bytes_down),
                    stream_ms: read(&counts.stream_ms),
                }
            })
            .filter(|taken| !taken.is_empty())
            .collect()
    }

    /// Whether there is nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.counts(|count| count.load(Ordering::Relaxed)).is_empty()
    }

    /// Takes what there is and begins again.
    pub(super) fn take(&self) -> Vec<Taken> {
        self.counts(|count| count.swap(0, Ordering::Relaxed))
    }

    /// Puts back what could not be written down.
    pub(super) fn put_back(&self, taken: &[Taken]) {
        for of in taken {
            let counts = self.of(of.verb);
            for (count, value) in [
                (&counts.requests, of.requests),
                (&counts.throttled, of.throttled),
                (&counts.bytes_up, of.bytes_up),
                (&counts.bytes_down, of.bytes_down),
                (&counts.stream_ms, of.stream_ms),
            ] {
                count.fetch_add(value, Ordering::Relaxed);
            }
        }
    }
}

impl Taken {
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

/// Adds what a workspace did to its day.
pub(super) async fn add(
    tx: &mut Tx,
    workspace: Uuid,
    now_ms: i64,
    taken: &Taken,
) -> sqlx::Result<()> {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    on_engine!(tx.connection(), c => sqlx::query(ADD)
        .bind(workspace).bind(now_ms / DAY_MS).bind(taken.verb.as_str())
        .bind(number(taken.requests)).bind(number(taken.throttled))
        .bind(number(taken.bytes_up)).bind(number(taken.bytes_down))
        .bind(number(taken.stream_ms))
        .execute(c).await.map(drop))
}

const FORGET: &str = "DELETE FROM gateway_usage WHERE day < $1";

/// Deletes what is older than [`DAYS`].
pub(super) async fn forget(tx: &mut Tx, now_ms: i64) -> sqlx::Result<()> {
    on_engine!(tx.connection(), c =>
        sqlx::query(FORGET).bind(now_ms / DAY_MS - DAYS).execute(c).await.map(drop))
}

#[derive(sqlx::FromRow)]
struct Row {
    day: i64,
    verb: String,
    requests: i64,
    throttled: i64,
    bytes_up: i64,
    bytes_down: i64,
    stream_ms: i64,
}

const OF: &str = "\
SELECT day, verb, requests, throttled, bytes_up, bytes_down, stream_ms FROM gateway_usage \
WHERE workspace_id = $1 AND day > $2 ORDER BY day DESC, verb";

/// What a workspace did in the last days, the newest first.
pub(super) async fn of(
    db: &Db,
    workspace: Uuid,
    now_ms: i64,
    days: i64,
) -> sqlx::Result<Vec<UsageDay>> {
    let rows: Vec<Row> = on_engine!(db.reader(), pool => sqlx::query_as(OF)
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

    on_both_engines!(what_is_used_adds_up_by_day_and_old_days_go,);

    async fn what_is_used_adds_up_by_day_and_old_days_go(on: On) {
        let storage = Storage::new(on).await;
        let user = storage.user().await;
        let id = storage.workspace(user, WorkspaceStatus::Provisioned).await;
        let usage = Usage::default();
        let write = async |usage: &Usage| {
            let mut tx = storage.db.begin().await.unwrap();
            for of in usage.take() {
                add(&mut tx, id, storage.clock.now_ms(), &of).await.unwrap();
            }
            tx.commit().await.unwrap();
        };
        let read = async || of(&storage.db, id, storage.clock.now_ms(), DAYS).await.unwrap();
        for _ in 0..2 {
            usage.request(Verb::Get);
            usage.bytes(Verb::Get, Direction::Down, 7);
            usage.stream(Verb::Watch, 1500);
            write(&usage).await;
        }
        let rows = read().await;
        assert_eq!(rows.len(), 2, "{rows:?}");
        assert_eq!((rows[0].verb.as_str(), rows[0].requests, rows[0].bytes_down), ("get", 2, 14));
        assert_eq!((rows[1].verb.as_str(), rows[1].stream_seconds), ("watch", 3));

        storage.clock.advance(DAY_MS);
        usage.throttled(Verb::List);
        let taken = usage.take();
        usage.put_back(&taken);
        write(&usage).await;
        let rows = read().await;
        assert_eq!((rows.len(), rows[0].verb.as_str(), rows[0].throttled), (3, "list", 1));
        assert!(rows[0].day > rows[1].day, "the newest first: {rows:?}");

        storage.clock.advance(DAYS * DAY_MS);
        let mut tx = storage.db.begin().await.unwrap();
        forget(&mut tx, storage.clock.now_ms()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(storage.number("SELECT COUNT(*) FROM gateway_usage").await, 1);
    }

    #[test]
    fn a_verb_is_what_rbac_calls_it() {
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
            let target = super::super::path::parse(&uri).unwrap();
            assert_eq!(Verb::of(&method, &target), verb, "{method} {path}");
        }
    }
}
