//! Watches of objects in all namespaces, as the broker.
//!
//! A watch uses the credential with which it began. It ends with an error once the API server no
//! longer accepts that, so that the caller begins anew with the present one.

use std::{borrow::Cow, fmt::Debug, marker::PhantomData, pin::pin, time::Duration};

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::{
    Api, Resource,
    api::{DynamicObject, ObjectMeta},
    runtime::watcher::{self, Config, Event, watcher},
};
use serde::{Deserialize, de::DeserializeOwned};

use crate::cluster::{
    Cluster, ClusterError, CustomResource,
    pages::{page_size, without_managed_fields},
};

/// After this time the API server ends a watch, and the broker continues it with a new request. It
/// is shorter than [`crate::cluster::WATCH_READ_TIMEOUT`].
const WATCH_SECONDS: u32 = 120;
/// Objects of a custom resource per page of a list: one object may have a megabyte.
const CUSTOM_PAGE_SIZE: u32 = 100;
/// Pause before an interrupted watch is continued.
const RESUME_INTERVAL: Duration = Duration::from_secs(1);

/// An event of a watch.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchEvent<T> {
    /// A list of all objects begins, which may fail. [`Self::InitDone`] ends it.
    Init,
    /// The object was there when the watch began, or was created or changed since.
    Apply(T),
    /// The object was deleted.
    Delete(T),
    /// All objects that exist were passed since [`Self::Init`]. Others that were passed before
    /// that do not exist any more.
    InitDone,
}

impl<T> WatchEvent<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> WatchEvent<U> {
        match self {
            Self::Init => WatchEvent::Init,
            Self::Apply(object) => WatchEvent::Apply(change(object)),
            Self::Delete(object) => WatchEvent::Delete(change(object)),
            Self::InitDone => WatchEvent::InitDone,
        }
    }
}

/// The metadata of a watched object of the kind `K`, without `managedFields`.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound = "")]
struct WatchedMetadata<K> {
    #[serde(deserialize_with = "without_managed_fields")]
    metadata: ObjectMeta,
    #[serde(skip)]
    kind: PhantomData<K>,
}

impl<K: Resource> Resource for WatchedMetadata<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(of: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(of)
    }

    fn group(of: &Self::DynamicType) -> Cow<'_, str> {
        K::group(of)
    }

    fn version(of: &Self::DynamicType) -> Cow<'_, str> {
        K::version(of)
    }

    fn plural(of: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(of)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Cluster {
    /// Watches the metadata of all objects of a kind that a label selector selects, such as the name
    /// of a label, until the watch fails. Begins anew by itself if the API server no longer has the
    /// events since the last one.
    pub async fn watch_labelled<K>(
        &self,
        selector: &str,
        mut on_event: impl FnMut(WatchEvent<ObjectMeta>) + Send,
    ) -> ClusterError
    where
        K: Resource<DynamicType = ()> + Clone + Debug + Send + 'static,
    {
        let api: Api<WatchedMetadata<K>> = Api::all(self.watch_client());
        let on_event =
            |event: WatchEvent<WatchedMetadata<K>>| on_event(event.map(|it| it.metadata));
        let config =
            Config { page_size: Some(page_size::watched::<K>()), ..config(Some(selector)) };
        forward_events(api, config, on_event).await
    }

    /// Watches all objects of a custom resource, until the watch fails.
    /// [`ClusterError::NotFound`] means that the API server does not serve the resource.
    pub async fn watch_custom(
        &self,
        resource: &CustomResource,
        on_event: impl FnMut(WatchEvent<DynamicObject>) + Send,
    ) -> ClusterError {
        let api: Api<DynamicObject> = Api::all_with(self.watch_client(), resource.api_resource());
        forward_events(api, Config { page_size: Some(CUSTOM_PAGE_SIZE), ..config(None) }, on_event)
            .await
    }

    /// Watches all ResourceQuotas that carry a label, until the watch fails.
    pub async fn watch_quotas(
        &self,
        label: &str,
        on_event: impl FnMut(WatchEvent<ResourceQuota>) + Send,
    ) -> ClusterError {
        forward_events(Api::all(self.watch_client()), config(Some(label)), on_event).await
    }
}

fn config(label: Option<&str>) -> Config {
    Config {
        label_selector: label.map(str::to_owned),
        timeout: Some(WATCH_SECONDS),
        ..Config::default()
    }
}

/// Passes the events of a watch until it fails in a way that the same credential or resource will
/// not mend.
async fn forward_events<K>(
    api: Api<K>,
    config: Config,
    mut on_event: impl FnMut(WatchEvent<K>) + Send,
) -> ClusterError
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut events = pin!(watcher(api, config));
    loop {
        match events.next().await {
            Some(Ok(Event::InitApply(object) | Event::Apply(object))) => {
                on_event(WatchEvent::Apply(object));
            }
            Some(Ok(Event::Delete(object))) => on_event(WatchEvent::Delete(object)),
            Some(Ok(Event::InitDone)) => on_event(WatchEvent::InitDone),
            Some(Ok(Event::Init)) => on_event(WatchEvent::Init),
            Some(Err(error)) => {
                if let Some(error) = persistent_error(error) {
                    return error;
                }
                tokio::time::sleep(RESUME_INTERVAL).await;
            }
            None => return ClusterError::Conflict("a watch ended without an error".to_owned()),
        }
    }
}

/// The error of a watch, unless the next request continues the watch or begins it anew.
fn persistent_error(error: watcher::Error) -> Option<ClusterError> {
    match error {
        watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error) => {
            Some(error.into())
        }
        watcher::Error::WatchFailed(_) => None,
        // The events since the last one are no longer known.
        watcher::Error::WatchError(status) if status.code == 410 => None,
        watcher::Error::WatchError(status) => Some(kube::Error::Api(status).into()),
        watcher::Error::NoResourceVersion => {
            Some(ClusterError::Conflict("the resource cannot be watched".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn status(code: u16) -> Box<Status> {
        Status::failure("no", "").with_code(code).boxed()
    }

    #[test]
    fn a_watch_ends_for_what_the_next_request_does_not_mend() {
        for error in [
            watcher::Error::WatchError(status(410)),
            watcher::Error::WatchFailed(kube::Error::LinesCodecMaxLineLengthExceeded),
        ] {
            assert!(persistent_error(error).is_none());
        }
        let unauthorized = kube::Error::Api(status(401));
        let error = persistent_error(watcher::Error::WatchStartFailed(unauthorized));
        assert!(matches!(error, Some(ClusterError::Refused(_))), "{error:?}");
        let not_served = kube::Error::Api(status(404));
        let error = persistent_error(watcher::Error::InitialListFailed(not_served));
        assert!(matches!(error, Some(ClusterError::NotFound(_))), "{error:?}");
        for error in [watcher::Error::WatchError(status(403)), watcher::Error::NoResourceVersion] {
            assert!(persistent_error(error).is_some());
        }
    }
}
