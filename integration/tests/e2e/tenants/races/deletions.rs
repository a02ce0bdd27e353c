//! A limit for the whole tenant while objects are deleted, so that their amounts are free again.
//!
//! Kubernetes counts the objects of a namespace anew after a deletion, and misses those that were
//! admitted just then. Where objects of one namespace are deleted and created at once, every
//! ResourceQuota lets some more through, whoever wrote it. So the objects are counted exactly while
//! they are deleted in one namespace and created in all others. While they are deleted and created in
//! the same namespaces, the amounts that the broker grants are checked.

use std::collections::{BTreeSet, VecDeque};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use http::{Method, StatusCode};
use integration::acceptance::tenants::{Credential, Fixture, RECONCILE_TIMEOUT};
use integration::probe::{self, Probe};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api as KubeApi, ListParams, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::sync::RwLock;

use super::Owners;
use super::quota::{
    self, CREATORS, MAX_CONFIG_MAPS, NAMESPACES, amount, config_maps, count_within_the_limit,
    create_config_map, quotas_within_the_limit,
};

const TENANT: &str = "freed";
/// How often a namespace is emptied while others are filled.
const ROUNDS: usize = 3;
/// Namespaces in which all members delete and create at once. The fewer these are, the more objects
/// Kubernetes misses.
const CONTENDED_NAMESPACES: usize = 2;
/// Objects that each member tries to create there.
const ATTEMPTS: usize = 300;

/// Members who create and delete ConfigMaps.
struct Load<'a> {
    fixture: &'a Fixture,
    token: Credential,
    namespaces: Vec<String>,
    /// For each namespace: creations share it, and the deletion of all objects has it alone.
    locks: Vec<RwLock<()>>,
    is_over: AtomicBool,
    /// Deletions that the watch has seen.
    deleted: AtomicUsize,
}

pub(super) async fn freed_amounts_are_used_within_the_limit(fixture: &Fixture, owners: &Owners) {
    let (token, namespaces) = quota::make_tenant(fixture, owners, TENANT).await;
    let load = Load {
        fixture,
        token,
        locks: namespaces.iter().map(|_| RwLock::new(())).collect(),
        namespaces,
        is_over: AtomicBool::new(false),
        deleted: AtomicUsize::new(0),
    };
    load.others_use_what_is_deleted_in_a_namespace().await;
    load.members_delete_and_create_in_the_same_namespaces().await;
}

impl Load<'_> {
    /// There are never more objects than the limit: the watch has each change of their number.
    async fn others_use_what_is_deleted_in_a_namespace(&self) {
        let client = self.fixture.world.cluster().admin().await.unwrap();
        let objects: KubeApi<ConfigMap> = KubeApi::all(client);
        let selector = format!("load={TENANT}");
        let listed = objects.list(&ListParams::default().labels(&selector)).await.unwrap();
        assert!(listed.items.is_empty(), "{:?}", listed.items);
        let version = listed.metadata.resource_version.unwrap();
        let creators = (0..CREATORS).map(|number| self.fill(number % NAMESPACES));
        let all = async {
            tokio::join!(join_all(creators), self.empty_in_turns());
        };
        let limited = tokio::time::timeout(4 * RECONCILE_TIMEOUT, Box::pin(all));
        tokio::select! {
            done = limited => done.expect("what is deleted is used again"),
            () = Box::pin(self.follow(&objects, &selector, &version)) => {}
        }
    }

    /// Counts the objects by the events of a watch, which are in the order of the changes, so that no
    /// moment is left out. The watch begins with a version at which there is no object. Does not end.
    async fn follow(&self, objects: &KubeApi<ConfigMap>, selector: &str, version: &str) {
        let params = WatchParams::default().labels(selector);
        let mut events = pin!(objects.watch(&params, version).await.unwrap());
        let mut names = BTreeSet::new();
        while let Some(event) = events.next().await {
            match event.unwrap() {
                WatchEvent::Added(ConfigMap { metadata, .. }) => {
                    names.insert((metadata.namespace, metadata.name));
                }
                WatchEvent::Deleted(ConfigMap { metadata, .. }) => {
                    names.remove(&(metadata.namespace, metadata.name));
                    self.deleted.fetch_add(1, Ordering::SeqCst);
                }
                WatchEvent::Modified(_) | WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(error) => panic!("{error:?}"),
            }
            assert!(names.len() <= MAX_CONFIG_MAPS, "{} objects: {names:?}", names.len());
        }
        panic!("the watch ended before the creators");
    }

    /// Creates ConfigMaps in a namespace without a pause, except while it is emptied.
    async fn fill(&self, index: usize) {
        while !self.is_over.load(Ordering::SeqCst) {
            let _shared = self.locks[index].read().await;
            create_config_map(self.fixture, &self.token, TENANT, &self.namespaces[index]).await;
        }
    }

    /// Empties namespaces, each once the tenant is full again.
    async fn empty_in_turns(&self) {
        self.until_full().await;
        let mut deleted = 0;
        for _ in 0..ROUNDS {
            deleted += self.empty_the_fullest().await;
            self.until_full().await;
        }
        self.is_over.store(true, Ordering::SeqCst);
        probe::until("the events of the deletions", RECONCILE_TIMEOUT, || async {
            let seen = self.deleted.load(Ordering::SeqCst);
            Ok(if seen == deleted { Probe::Ready(()) } else { Probe::NotYet(seen.to_string()) })
        })
        .await
        .unwrap();
    }

    async fn until_full(&self) {
        while count_within_the_limit(self.fixture, TENANT).await < MAX_CONFIG_MAPS {}
    }

    /// Deletes all objects of the namespace that has most of them, and returns how many these are.
    /// Nobody creates others there until the broker has given the amounts to the other namespaces.
    async fn empty_the_fullest(&self) -> usize {
        let all = config_maps(self.fixture, TENANT).await;
        let names = self.namespaces.iter().map(|namespace| names_in(&all, namespace));
        let (index, names) = names.enumerate().max_by_key(|(_, names)| names.len()).unwrap();
        let exclusive = self.locks[index].write().await;
        let namespace = &self.namespaces[index];
        let [before, ..] = self.amounts(namespace).await;
        join_all(names.iter().map(|name| self.delete(namespace, name))).await;
        loop {
            count_within_the_limit(self.fixture, TENANT).await;
            let [specified, enforced, used] = self.amounts(namespace).await;
            if used == 0 && specified < before && enforced == specified {
                break;
            }
        }
        drop(exclusive);
        names.len()
    }

    /// The amounts of the quota of a namespace: specified, enforced and used.
    async fn amounts(&self, namespace: &str) -> [usize; 3] {
        let path = format!("api/v1/namespaces/{namespace}/resourcequotas/tenant-quota-0");
        let (_, quota) = self.fixture.cluster().admin(Method::GET, &path, None).await.unwrap();
        let (spec, status) = (&quota["spec"], &quota["status"]);
        [&spec["hard"], &status["hard"], &status["used"]].map(amount)
    }

    async fn delete(&self, namespace: &str, name: &str) {
        let path = format!("api/v1/namespaces/{namespace}/configmaps/{name}");
        let deleted = self.fixture.cluster().send(&self.token, Method::DELETE, &path, None).await;
        let (status, answer) = deleted.unwrap();
        assert_eq!(status, StatusCode::OK, "{answer}");
    }

    /// What the broker grants stays within the limit, although Kubernetes miscounts what is used.
    async fn members_delete_and_create_in_the_same_namespaces(&self) {
        self.is_over.store(false, Ordering::SeqCst);
        let all = config_maps(self.fixture, TENANT).await;
        let members = (0..CREATORS).map(|number| {
            let namespace = &self.namespaces[number % CONTENDED_NAMESPACES];
            // Members of a namespace delete objects of their own.
            let names = names_in(&all, namespace).into_iter().skip(number / CONTENDED_NAMESPACES);
            let own = names.step_by(CREATORS / CONTENDED_NAMESPACES);
            self.create_and_delete(namespace, own.collect())
        });
        let members = async {
            let counts = join_all(members).await;
            self.is_over.store(true, Ordering::SeqCst);
            counts
        };
        let observer = async {
            while !self.is_over.load(Ordering::SeqCst) {
                quotas_within_the_limit(self.fixture, TENANT).await;
            }
        };
        let (counts, ()) = tokio::join!(members, observer);
        let sum = |index: usize| counts.iter().map(|counts| counts[index]).sum::<usize>();
        assert!(sum(0) > CREATORS && sum(1) > CREATORS, "{counts:?}");
    }

    /// Creates ConfigMaps, and deletes one each time that the quota is used up. Returns how many were
    /// created and deleted.
    async fn create_and_delete(&self, namespace: &str, mut own: VecDeque<String>) -> [usize; 2] {
        let [mut created, mut deleted] = [0, 0];
        for _ in 0..ATTEMPTS {
            let made = create_config_map(self.fixture, &self.token, TENANT, namespace).await;
            if let Some(name) = made {
                own.push_back(name);
                created += 1;
            } else if let Some(name) = own.pop_front() {
                self.delete(namespace, &name).await;
                deleted += 1;
            }
        }
        [created, deleted]
    }
}

/// Names of the objects in a namespace.
fn names_in(objects: &[Value], namespace: &str) -> Vec<String> {
    let metadata = objects.iter().map(|object| &object["metadata"]);
    let own = metadata.filter(|metadata| metadata["namespace"] == namespace);
    own.map(|metadata| metadata["name"].as_str().unwrap().to_owned()).collect()
}
