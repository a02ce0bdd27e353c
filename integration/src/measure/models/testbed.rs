//! The testbed of model services: a world whose cluster has the kinds of KServe and Llama Stack, and
//! users with tokens.

use std::time::Duration;

use anyhow::{Context, Result};
use http::Method;
use secrecy::SecretString;
use serde_json::Value;

use super::objects::{distributions, running};
use crate::measure::gateway::route::{Route, RouteName};
use crate::measure::gateway::without_limits;
use crate::measure::objects::{NAMESPACES, group, plain_namespace, role_binding, role_bindings};
use crate::measure::raw::RawApi;
use crate::model_kinds;
use crate::probe::{self, Probe};
use crate::world::{World, WorldBuilder};

/// Concurrent requests that create objects.
pub(super) const CREATORS: usize = 16;
/// Time limit until RBAC follows a RoleBinding.
const RIGHTS_TIMEOUT: Duration = Duration::from_mins(1);
/// How long nothing must be written to be at rest; controllers create objects in new namespaces.
const QUIET_TIME: Duration = Duration::from_secs(2);
/// Time limit until the cluster is at rest.
const QUIET_TIMEOUT: Duration = Duration::from_mins(5);
/// The users: token, name, uid, groups.
const USERS: &str = "measure-administrator,adm,u-adm\n\
                     measure-member-1,member-1,u-member-1,members\n\
                     measure-member-2,member-2,u-member-2,members\n\
                     measure-member-3,member-3,u-member-3,members\n\
                     measure-member-4,member-4,u-member-4,members\n\
                     measure-reader,reader,u-reader\n";
/// The administrator of the cluster.
pub(super) const ADMINISTRATOR: &str = "measure-administrator";
/// Users of a group whose role in all [namespaces](ModelTestbed::create_namespace) is `admin`.
pub(super) const MEMBERS: [&str; 4] =
    ["measure-member-1", "measure-member-2", "measure-member-3", "measure-member-4"];
/// A user with RoleBindings of their own, whose name is `reader`.
pub(super) const READER: &str = "measure-reader";
/// Path of the API below the broker's URL.
const API: &str = "gen-ai/api/v1";

/// Sets the options of a world with model services, which limit nobody's requests.
#[must_use]
pub fn with_model_services(world: WorldBuilder) -> WorldBuilder {
    without_limits(world)
        .token_users(USERS)
        .setting("model_services.enabled", true)
        .setting("model_services.requests_per_second", 100_000)
        .setting("model_services.requests_at_once", 10_000)
        .setting("model_services.changes_per_user", 100_000)
}

/// The world and its clients.
#[derive(Debug)]
pub struct ModelTestbed {
    world: World,
    admin: RawApi,
}

impl ModelTestbed {
    /// Installs the kinds in a world of [`with_model_services`] with TLS.
    ///
    /// # Errors
    /// The API server refuses them.
    pub async fn new(world: World) -> Result<Self> {
        model_kinds::install(&world).await?;
        let cluster = world.cluster();
        let identity = cluster.authority().client("measure-admin", Some("system:masters"))?;
        Ok(Self { admin: RawApi::direct(cluster, &identity)?, world })
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    /// The API server as an administrator of the cluster.
    pub(super) fn admin(&self) -> &RawApi {
        &self.admin
    }

    /// Process id of the API server.
    pub(super) fn server(&self) -> u32 {
        self.world.cluster().api_server_pid()
    }

    /// Process id of the broker.
    pub(super) fn broker_pid(&self) -> Result<u32> {
        self.world.broker().pid().context("the broker has stopped")
    }

    /// The route to the API server itself, with this token.
    pub(super) fn direct(&self, token: &str) -> Result<Route> {
        let cluster = self.world.cluster();
        let authority = cluster.authority().certificate();
        Route::new(RouteName::Direct, cluster.url(), authority)?.with_token(token)
    }

    /// The route to model services, with this token.
    pub(super) fn services(&self, token: &str) -> Result<Route> {
        let authority = self.world.cluster().authority().certificate();
        let base = self.world.broker().url()?.join(API).context("make the URL of the API")?;
        let mut route = Route::new(RouteName::ModelServices, &base, authority)?;
        route.processes = vec![self.broker_pid()?];
        route.with_token(token)
    }

    /// Creates a namespace in which the members have rights.
    pub(super) async fn create_namespace(&self, name: &str) -> Result<()> {
        let binding = role_binding(name, "members", "admin", &group("members"));
        let objects =
            [(NAMESPACES.to_owned(), plain_namespace(name)), (role_bindings(name), binding)];
        self.admin.create_all(objects, 1).await?;
        self.until_readable(MEMBERS[0], &distributions(name)).await
    }

    /// Waits until the user with this token may read what has this path.
    pub(super) async fn until_readable(&self, token: &str, path: &str) -> Result<()> {
        let cluster = self.world.cluster();
        let authority = cluster.authority().certificate();
        let token = SecretString::from(token);
        let api = RawApi::with_token(cluster.url().clone(), authority, &token)?;
        probe::until("a right", RIGHTS_TIMEOUT, || async {
            let answer = api.send(Method::GET, path, None).await?;
            let is_allowed = answer.status.is_success();
            Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(answer.body) })
        })
        .await
    }

    /// Waits until nobody has written to the cluster for a moment. A list after a write waits until the
    /// API server's cache has caught up, for up to 100 ms (KEP-2340).
    pub(super) async fn until_quiet(&self) -> Result<()> {
        let version = async || -> Result<String> {
            let list = self.admin.get(&format!("{NAMESPACES}?limit=1")).await?;
            let version = list["metadata"]["resourceVersion"].as_str();
            Ok(version.context("the list has no version")?.to_owned())
        };
        probe::until("the cluster to be at rest", QUIET_TIMEOUT, || async {
            let before = version().await?;
            tokio::time::sleep(QUIET_TIME).await;
            let after = version().await?;
            let text = format!("version {before}, then {after}");
            Ok(if before == after { Probe::Ready(()) } else { Probe::NotYet(text) })
        })
        .await
    }

    /// Creates models that run, and returns their uids.
    pub(super) async fn create_models(
        &self,
        namespace: &str,
        path: &str,
        models: Vec<Value>,
    ) -> Result<Vec<String>> {
        let mut uids = Vec::with_capacity(models.len());
        for model in models {
            let created = self.admin.succeed(Method::POST, path, Some(&model)).await?;
            let created: Value = serde_json::from_str(&created.body).context("read a model")?;
            let uid = created["metadata"]["uid"].as_str().context("a model has no uid")?;
            uids.push(uid.to_owned());
            let name = model["metadata"]["name"].as_str().context("a model has no name")?;
            let status = running(namespace, name);
            let path = format!("{path}/{name}/status");
            self.admin.succeed(Method::PATCH, &path, Some(&status)).await?;
        }
        Ok(uids)
    }
}
