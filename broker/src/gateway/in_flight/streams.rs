//! Registry of the requests and streams in flight, so that they can be closed.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::cancel::{CancelHandle, CloseReason};
use crate::{
    credential::CachedToken,
    gateway::{
        kubernetes_api::path::Kind,
        principals::{
            VisibleObjects,
            request_rights::{CallerScope, RequestRights, scope_of},
        },
    },
    identity::Caller,
    tenant::TenantName,
};

/// How often [`Streams::drained`] looks whether requests are in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The owner of a request or stream, and the credentials that it depends on.
#[derive(Clone, Debug)]
pub(in crate::gateway) struct StreamInfo {
    pub(in crate::gateway) kind: Kind,
    pub(in crate::gateway) workspace: Uuid,
    /// Uid of the ServiceAccount whose token it is sent with.
    pub(in crate::gateway) service_account: Arc<str>,
    pub(in crate::gateway) user: Uuid,
    pub(in crate::gateway) session: Uuid,
    /// `jti` of the token that it is sent with, once it has one.
    pub(in crate::gateway) credential: Option<Arc<str>>,
    /// The view of a list or watch with the broker's own credential; `None` for other requests.
    pub(in crate::gateway) view: Option<Arc<BrokerReadView>>,
    /// The namespace of a request that is sent with a membership; `None` for other requests.
    pub(in crate::gateway) member_namespace: Option<Arc<MemberNamespace>>,
}

/// A namespace in which a member of a tenant acts. The API server does not end a stream when the
/// rights in the namespace end.
#[derive(Debug)]
pub(in crate::gateway) struct MemberNamespace {
    pub(in crate::gateway) namespace: String,
    /// The tenant of the membership.
    pub(in crate::gateway) tenant: TenantName,
    /// Whether the broker has known the namespace as the tenant's since the start. It may be new.
    pub(in crate::gateway) was_known: AtomicBool,
    /// When the request began. The API server decided about it a moment later.
    pub(in crate::gateway) began_at: Instant,
    /// The roles that the member had since then.
    pub(in crate::gateway) rights: RequestRights,
}

impl MemberNamespace {
    /// Whether the namespace left the tenant. `is_its` says whether it is the tenant's now; `None` if
    /// it is no tenant's.
    pub(in crate::gateway) fn has_left(&self, is_its: Option<bool>) -> bool {
        match is_its {
            Some(true) => {
                self.was_known.store(true, Ordering::Relaxed);
                false
            }
            Some(false) => true,
            None => self.was_known.load(Ordering::Relaxed),
        }
    }
}

/// A list or watch that is sent with the broker's own credential. The API server does not know that it
/// depends on the memberships of the caller.
#[derive(Debug)]
pub(in crate::gateway) struct BrokerReadView {
    /// Caller of the list or watch.
    pub(in crate::gateway) caller: Caller,
    /// Objects that it shows.
    pub(in crate::gateway) shown: VisibleObjects,
    /// The caller's memberships in the tenants that give the caller the right to it.
    pub(in crate::gateway) memberships: Vec<Uuid>,
}

impl BrokerReadView {
    /// Reads of the same resource and scope show the same objects.
    pub(in crate::gateway) fn scope(&self) -> CallerScope {
        scope_of(&self.caller)
    }
}

impl StreamInfo {
    /// Whether the request depends on one of the workspaces for which this holds.
    pub(in crate::gateway) fn uses(&self, is_it: impl Fn(&Uuid) -> bool) -> bool {
        is_it(&self.workspace)
            || self.view.as_ref().is_some_and(|view| view.memberships.iter().any(is_it))
    }

    /// Whether the request may show or do what its member no longer has the right to, if the broker
    /// has not known changes of Tenants for `max_age`. The API server decides about a request when
    /// it begins, and the broker alone about those with its own credential.
    pub(in crate::gateway) fn may_outlive_its_right(
        &self,
        max_age: Duration,
        now: Instant,
    ) -> bool {
        let is_old = |it: &MemberNamespace| now.saturating_duration_since(it.began_at) >= max_age;
        self.view.is_some() || self.member_namespace.as_deref().is_some_and(is_old)
    }
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, (StreamInfo, Arc<CancelHandle>)>,
}

/// The registry. Clones share it.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct Streams(Arc<Mutex<Table>>);

impl Streams {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, which stays registered until the returned value is dropped.
    pub(in crate::gateway) fn register(&self, info: StreamInfo) -> Registration {
        let cancel = Arc::new(CancelHandle::default());
        let mut table = self.table();
        let id = table.next;
        table.next += 1;
        table.open.insert(id, (info, Arc::clone(&cancel)));
        Registration { streams: self.clone(), id, cancel }
    }

    /// Closes the matching requests and streams; returns their number, without those that were
    /// closed before.
    pub(in crate::gateway) fn close(
        &self,
        reason: CloseReason,
        predicate: impl Fn(&StreamInfo) -> bool,
    ) -> usize {
        let closed: Vec<Arc<CancelHandle>> = {
            let table = self.table();
            let matching = table.open.values().filter(|(info, _)| predicate(info));
            // With the lock, because a part or call that is registered later is not among these, and
            // looks at the reason of its request.
            let closed = matching.filter(|(_, handle)| handle.set_reason(reason));
            closed.map(|(_, handle)| Arc::clone(handle)).collect()
        };
        // Without the lock, because the callbacks of the handles may use the registry.
        for handle in &closed {
            handle.notify();
        }
        closed.len()
    }

    /// Waits until nothing is in flight, at most this long.
    pub(in crate::gateway) async fn drained(&self, timeout: Duration) {
        let drained = async {
            while !self.table().open.is_empty() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        let _ = tokio::time::timeout(timeout, drained).await;
    }

    /// The number of requests or streams of this kind in flight.
    pub(in crate::gateway) fn count(&self, kind: Kind) -> usize {
        self.table().open.values().filter(|(info, _)| info.kind == kind).count()
    }

    /// The views of all lists and watches with the broker's own credential.
    pub(in crate::gateway) fn views(&self) -> Vec<Arc<BrokerReadView>> {
        self.table().open.values().filter_map(|(info, _)| info.view.clone()).collect()
    }

    /// The namespaces of all requests and streams of members.
    pub(in crate::gateway) fn members(&self) -> Vec<Arc<MemberNamespace>> {
        self.table().open.values().filter_map(|(info, _)| info.member_namespace.clone()).collect()
    }

    /// All requests and streams in flight.
    pub(in crate::gateway) fn open(&self) -> Vec<StreamInfo> {
        self.table().open.values().map(|(info, _)| info.clone()).collect()
    }
}

/// Entry of a request in the registry; dropping it removes the request.
#[derive(Debug)]
pub(in crate::gateway) struct Registration {
    streams: Streams,
    id: u64,
    cancel: Arc<CancelHandle>,
}

impl Registration {
    /// Adds a part of this request, which is closed if the request was closed before, unless for
    /// reasons that are about its own namespace alone.
    pub(in crate::gateway) fn register_part(&self, info: StreamInfo) -> Self {
        // First, so that whatever closes the request from now on closes the part as well.
        let part = self.streams.register(info);
        if let Some(reason) = self.cancel.ended() {
            part.cancel.cancel(reason);
        }
        part
    }

    /// Sets the token that the request is sent with. Its ServiceAccount may have replaced the one
    /// that the request was started with.
    pub(in crate::gateway) fn set_token(&self, token: &CachedToken) {
        if let Some((info, _)) = self.streams.table().open.get_mut(&self.id) {
            info.credential = Some(Arc::clone(token.credential_id()));
            info.service_account = Arc::clone(token.service_account_uid());
        }
    }

    /// The handle that cancels the request.
    pub(in crate::gateway) fn cancel_handle(&self) -> &CancelHandle {
        &self.cancel
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.streams.table().open.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::BrokerReadResource;

    fn info(workspace: u128, session: u128) -> StreamInfo {
        StreamInfo {
            kind: Kind::Watch,
            workspace: Uuid::from_u128(workspace),
            service_account: "uid".into(),
            user: Uuid::nil(),
            session: Uuid::from_u128(session),
            credential: None,
            view: None,
            member_namespace: None,
        }
    }

    fn rights() -> RequestRights {
        let clock = crate::base::clock::Clock::system();
        let caller = Caller::for_tests(&clock, Uuid::nil(), tenant_shared::Role::User);
        RequestRights::new(caller, (Arc::default(), 0))
    }

    #[test]
    fn a_part_of_a_closed_request_is_closed() {
        let streams = Streams::default();
        let (lost, suspended) = (CloseReason::RoleLost, CloseReason::Suspended);
        for (reasons, expected) in [
            (vec![CloseReason::SessionEnded], Some(CloseReason::SessionEnded)),
            (vec![suspended], Some(suspended)),
            (vec![lost], None),
            (vec![lost, CloseReason::NamespaceMoved], None),
            (vec![lost, suspended], Some(suspended)),
            (vec![lost, suspended, CloseReason::Stopping], Some(suspended)),
        ] {
            let request = streams.register(info(1, 1));
            let before = request.register_part(info(1, 1));
            assert_eq!(before.cancel_handle().reason(), None);
            for reason in &reasons {
                request.cancel_handle().cancel(*reason);
            }
            let part = request.register_part(info(1, 1));
            assert_eq!(part.cancel_handle().reason(), expected, "{reasons:?}");
        }
    }

    #[test]
    fn a_member_namespace_is_left_when_it_is_another_tenants() {
        let member_namespace = |was_known| MemberNamespace {
            namespace: "solar-a".to_owned(),
            tenant: "solar".parse().unwrap(),
            was_known: AtomicBool::new(was_known),
            began_at: Instant::now(),
            rights: rights(),
        };
        for was_known in [true, false] {
            assert!(!member_namespace(was_known).has_left(Some(true)));
            assert!(member_namespace(was_known).has_left(Some(false)));
        }
        assert!(member_namespace(true).has_left(None));
        let new = member_namespace(false);
        assert!(!new.has_left(None), "the broker does not know it yet");
        assert!(!new.has_left(Some(true)) && new.has_left(None), "it lost its label");
    }

    #[test]
    fn a_watch_with_the_brokers_credential_depends_on_all_memberships() {
        let clock = crate::base::clock::Clock::system();
        let caller = Caller::for_tests(&clock, Uuid::nil(), tenant_shared::Role::User);
        let memberships = vec![Uuid::from_u128(2), Uuid::from_u128(3)];
        let shown = VisibleObjects::nothing(BrokerReadResource::Namespaces);
        let view = BrokerReadView { caller, shown, memberships };
        let watch = StreamInfo { view: Some(Arc::new(view)), ..info(1, 7) };
        for (id, expected) in [(1, true), (3, true), (4, false)] {
            assert_eq!(watch.uses(|it| *it == Uuid::from_u128(id)), expected, "{id}");
        }
        assert!(!info(1, 7).uses(|it| *it == Uuid::from_u128(3)));
    }

    #[test]
    fn streams_of_members_and_views_may_outlive_their_right() {
        let (limit, began_at) = (Duration::from_mins(1), Instant::now());
        let (early, late) = (began_at + Duration::from_secs(59), began_at + limit);
        let tenant = "solar".parse().unwrap();
        let of_member = MemberNamespace {
            namespace: "solar-a".to_owned(),
            tenant,
            was_known: AtomicBool::new(true),
            began_at,
            rights: rights(),
        };
        let of_member = StreamInfo { member_namespace: Some(Arc::new(of_member)), ..info(1, 7) };
        assert!(!of_member.may_outlive_its_right(limit, early));
        assert!(of_member.may_outlive_its_right(limit, late));
        let call = StreamInfo { kind: Kind::Call, ..of_member };
        assert!(call.may_outlive_its_right(limit, late), "a log that is read slowly");
        assert!(!info(1, 7).may_outlive_its_right(limit, late), "it is of a personal workspace");
        let clock = crate::base::clock::Clock::system();
        let view = BrokerReadView {
            caller: Caller::for_tests(&clock, Uuid::nil(), tenant_shared::Role::User),
            shown: VisibleObjects::nothing(BrokerReadResource::Namespaces),
            memberships: Vec::new(),
        };
        let view = StreamInfo { view: Some(Arc::new(view)), ..info(1, 7) };
        assert!(view.may_outlive_its_right(limit, early));
    }

    #[tokio::test]
    async fn only_matching_streams_are_closed_and_dropped_ones_are_removed() {
        let streams = Streams::default();
        let (one, other) = (streams.register(info(1, 7)), streams.register(info(2, 7)));
        assert_eq!(streams.open().len(), 2);
        assert_eq!([Kind::Watch, Kind::Call].map(|kind| streams.count(kind)), [2, 0]);
        assert_eq!(
            streams.close(CloseReason::Suspended, |info| info.workspace == Uuid::from_u128(1)),
            1
        );
        assert_eq!(one.cancel_handle().cancelled().await, CloseReason::Suspended);
        assert_eq!(other.cancel_handle().reason(), None);
        assert_eq!(
            streams.close(CloseReason::Stopping, |_| true),
            1,
            "the other one was closed before"
        );
        assert_eq!(
            one.cancel_handle().reason(),
            Some(CloseReason::Suspended),
            "the first reason counts"
        );
        assert_eq!(other.cancel_handle().cancelled().await, CloseReason::Stopping);
        drop((one, other));
        assert!(streams.open().is_empty());
    }

    #[tokio::test]
    async fn a_release_callback_may_use_the_registry() {
        let streams = Streams::default();
        let stream = streams.register(info(1, 7));
        let (send, receive) = tokio::sync::oneshot::channel();
        let table = Arc::clone(&streams.0);
        stream.cancel_handle().on_cancel(move || {
            // A lock would wait for ever if the caller held it.
            let _ = send.send(table.try_lock().is_ok());
        });
        assert_eq!(streams.close(CloseReason::Suspended, |_| true), 1);
        assert!(receive.await.unwrap());
    }
}
