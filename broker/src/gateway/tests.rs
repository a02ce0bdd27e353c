//! Fixtures for tests of the gateway, and tests of its background tasks.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde_json::{Value, json};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tenant_shared::WorkspaceStatus;
use uuid::Uuid;

use super::{
    in_flight::{Download, End, InFlightRequest, StreamInfo},
    limits::{UsageMeter, usage::Verb},
    *,
};
use crate::{
    base::{db::Tx, request_context::RequestContext},
    credential::{self, Ledger, TokenCache},
    identity::BrowserSessions,
    on_engine,
    testing::{Log, On, SA_UID, Storage},
    tier::GatewayLimits,
    workspace::notification_channel,
};

/// Time limit of every step that waits for nobody.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);

/// A gateway of an unreachable cluster.
pub(super) async fn gateway(storage: &Storage) -> Gateway {
    let (db, clock, metrics) = (storage.db.clone(), storage.clock.clone(), Metrics::default());
    let origin = "http://127.0.0.1:8080".parse().unwrap();
    let browser = BrowserSessions::new(&origin, Vec::new(), 60, 60);
    let workspaces = storage.workspaces().await;
    let clusters = Clusters::new(storage.no_cluster().await);
    let credentials = Credentials::new(credential::Dependencies {
        db: db.clone(),
        workspaces: workspaces.clone(),
        clusters: clusters.clone(),
        ledger: Ledger::start(db.clone()),
        clock: clock.clone(),
        metrics: metrics.clone(),
        bind: false,
    });
    Gateway::new(Dependencies {
        identity: Identity::new(db.clone(), clock.clone(), metrics.clone(), browser),
        db,
        workspaces,
        tokens: TokenCache::new(credentials.clone(), clock.clone()),
        credentials,
        clusters,
        clock,
        metrics,
        synthesizes_responses: true,
        tenants: None,
    })
}

/// A stream of nobody.
pub(super) fn stream_info() -> StreamInfo {
    StreamInfo {
        kind: Kind::Session,
        workspace: Uuid::from_u128(1),
        service_account: SA_UID.into(),
        user: Uuid::from_u128(2),
        session: Uuid::from_u128(3),
        credential: None,
        view: None,
        member_namespace: None,
    }
}

/// A request of nobody in this registry.
pub(super) fn in_flight(streams: &Streams) -> InFlightRequest {
    in_flight_of(streams, stream_info())
}

fn in_flight_of(streams: &Streams, info: StreamInfo) -> InFlightRequest {
    let limiter = TenantLimiters::default().get_or_create(info.workspace, || GatewayLimits::MIN);
    let permit = limiter.acquire(info.kind).unwrap();
    InFlightRequest::new(
        streams.register(info.clone()),
        permit,
        UsageMeter { limiter, verb: Verb::Connect },
        info,
        RequestContext::for_tests().info,
        Metrics::default(),
    )
}

/// A PostgreSQL database that does not answer statements on some tables: the server waits for their
/// lock without a timeout.
pub(super) struct SilentDatabase {
    pub(super) gateway: Gateway,
    _lock: Tx,
    _storage: Storage,
}

impl SilentDatabase {
    /// Locks this table.
    pub(super) async fn new(lock: &'static str) -> Self {
        let mut storage = Storage::new(On::Postgres).await;
        let mut tx = storage.db.begin().await.unwrap();
        on_engine!(tx.connection(), c => sqlx::query(lock).execute(c).await.map(drop)).unwrap();
        let Db::Postgres(pool) = &storage.db else { panic!("another engine") };
        let options = PgConnectOptions::clone(&pool.connect_options())
            .options([("statement_timeout", "0"), ("lock_timeout", "0")]);
        let pool = PgPoolOptions::new().max_connections(16).connect_with(options);
        storage.db = Db::Postgres(pool.await.unwrap());
        Self { gateway: gateway(&storage).await, _lock: tx, _storage: storage }
    }
}

#[tokio::test]
async fn a_task_that_panics_is_reported() {
    let storage = Storage::new(On::Sqlite).await;
    let gateway = gateway(&storage).await;
    let (_notifier, notifications) = notification_channel();
    let mut background = gateway.spawn_background_tasks(notifications, &storage.db);
    background.tasks.spawn(async { panic!("a defect") });
    let ended = tokio::time::timeout(STEP_TIMEOUT, background.ended()).await;
    let error = error_chain(&ended.expect("nobody notices"));
    assert!(error.contains("a defect"), "{error}");
}

#[tokio::test]
async fn nothing_is_in_flight_after_the_stop() {
    let storage = Storage::new(On::Sqlite).await;
    let gateway = gateway(&storage).await;
    let (_notifier, notifications) = notification_channel();
    let gateway_stopped = notifications.gateway_stopped();
    let background = gateway.spawn_background_tasks(notifications, &storage.db);
    let info = StreamInfo { kind: Kind::Call, ..stream_info() };
    let request = gateway.streams.register(info);
    gateway.stop();
    assert_eq!(request.cancel_handle().reason(), None, "it has time to finish");
    assert!(!gateway_stopped.is_cancelled());
    background.stop().await;
    assert_eq!(request.cancel_handle().reason(), Some(CloseReason::Stopping));
    assert!(gateway_stopped.is_cancelled());
}

/// A closed stream counts its time when its task notices, after the stop has begun.
#[tokio::test]
async fn the_stop_stores_the_usage_of_the_streams_that_it_closes() {
    let storage = Storage::new(On::Sqlite).await;
    let gateway = gateway(&storage).await;
    let workspace = storage.workspace(storage.user().await, WorkspaceStatus::Provisioned).await;
    let info = StreamInfo { workspace, ..stream_info() };
    let limiter = gateway.limiters.get_or_create(workspace, || GatewayLimits::MIN);
    let permit = limiter.acquire(info.kind).unwrap();
    let mut stream = InFlightRequest::new(
        gateway.streams.register(info.clone()),
        permit,
        UsageMeter { limiter, verb: Verb::Connect },
        info,
        RequestContext::for_tests().info,
        Metrics::default(),
    );
    stream.response_started(StatusCode::SWITCHING_PROTOCOLS);
    let (_notifier, notifications) = notification_channel();
    let background = gateway.spawn_background_tasks(notifications, &storage.db);
    let closed = tokio::spawn(async move {
        let reason = stream.closed().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        stream.end(End::Closed(reason));
    });
    background.stop().await;
    closed.await.unwrap();
    let stored = storage.number("SELECT COALESCE(SUM(stream_ms), 0) FROM gateway_usage").await;
    assert!(stored >= 50, "{stored} ms are stored");
}

/// Clients go on from their version after a broken connection, and keep what they do not see any more.
#[tokio::test]
async fn a_watch_whose_view_changed_ends_with_an_event_that_has_clients_list_again() {
    let streams = Streams::default();
    let event = "{\"type\":\"ADDED\"}\n";
    for (kind, is_json, sent, reason, is_reported) in [
        (Kind::Watch, true, event, CloseReason::TenantsChanged, true),
        (Kind::Watch, true, "", CloseReason::TenantsChanged, true),
        (Kind::Watch, true, "{\"type\":", CloseReason::TenantsChanged, false),
        (Kind::Watch, true, event, CloseReason::Stopping, false),
        (Kind::Watch, false, event, CloseReason::TenantsChanged, false),
        (Kind::Call, true, event, CloseReason::TenantsChanged, false),
    ] {
        let request = in_flight_of(&streams, StreamInfo { kind, ..stream_info() });
        let first = stream::iter(
            (!sent.is_empty()).then(|| Ok::<_, Infallible>(Frame::data(Bytes::from(sent)))),
        );
        let body = StreamBody::new(first.chain(stream::pending()));
        let mut response = Download::new(body, request);
        if is_json {
            response.end_with_expired_event();
        }
        if !sent.is_empty() {
            response.frame().now_or_never().unwrap().unwrap().unwrap();
        }
        streams.close(reason, |_| true);
        let last = response.frame().now_or_never().unwrap().unwrap();
        assert_eq!(last.is_ok(), is_reported, "{kind:?} {is_json} {sent} {reason:?}");
        if let Ok(frame) = last {
            let event: Value = serde_json::from_slice(frame.data_ref().unwrap()).unwrap();
            assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
            assert!(response.frame().now_or_never().unwrap().is_none(), "it is complete");
        }
    }
}

#[tokio::test]
async fn a_response_that_is_not_read_completely_ends_with_the_disconnection_of_the_client() {
    let streams = Streams::default();
    for (body, frames, disconnects) in [("", 0, false), ("a", 0, true), ("a", 1, false)] {
        let respond = || {
            let mut request = in_flight(&streams);
            request.response_started(StatusCode::OK);
            let mut response = Download::new(Full::new(Bytes::from(body)), request);
            for _ in 0..frames {
                let frame = response.frame().now_or_never().unwrap().unwrap().unwrap();
                assert_eq!(frame.into_data().unwrap(), body);
            }
        };
        // Without a subscriber first, because a concurrent test could register the line as disabled.
        respond();
        let log = Log::of(respond);
        assert!(log.contains("stream ended"), "{log}");
        assert_eq!(log.contains("client disconnected"), disconnects, "{body} {frames}: {log}");
    }
}
