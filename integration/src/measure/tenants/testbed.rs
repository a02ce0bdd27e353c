//! The testbed of tenants: a world with direct creation of namespaces, and its population.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use tenant_shared::Workspace;
use tokio::sync::OnceCell;
use url::Url;
use uuid::Uuid;

use super::objects::{NAMESPACES, TENANTS, home, owned_by, role_binding, role_bindings, user};
use super::population::{BIG, DEVELOPERS, PlannedTenant, Size, direct, email, other_tenant, plan};
use crate::api::Api;
use crate::measure::gateway::route::{Route, RouteName};
use crate::measure::raw::RawApi;
use crate::probe::{self, Probe};
use crate::progress::print_message;
use crate::world::{World, WorldBuilder};

/// Path of the gateway below the broker's URL.
const GATEWAY: &str = "clusters/internal-cluster/";
/// Concurrent requests that create objects.
const CREATORS: usize = 16;
/// Time limit until the broker has carried out all Tenants.
const POPULATION_TIMEOUT: Duration = Duration::from_mins(15);
/// Time limit of every other condition.
const WAIT_TIMEOUT: Duration = Duration::from_mins(2);
/// How long the broker must not have worked on a tenant to be at rest; longer than its pause between
/// two runs on one tenant.
const QUIET_TIME: Duration = Duration::from_millis(250);
/// Longer than a run on a small tenant, and than its pause before the next one.
const IDLE_TIME: Duration = Duration::from_secs(1);
/// The ServiceAccount of direct requests of an administrator with a token.
const ADMINISTRATOR: &str = "measure-administrator";

/// Sets the options of a world with tenants, whose owners also create namespaces directly.
#[must_use]
pub fn with_tenants(world: WorldBuilder) -> WorldBuilder {
    world
        .installed("tenants.enabled", true)
        .installed("tenants.direct_namespaces", true)
        .installed("tenants.groups", DEVELOPERS)
        // No round over all tenants falls into a measurement.
        .setting("drift_seconds", 3600)
}

/// A signed-in person who may be a member of tenants.
#[derive(Debug)]
pub(super) struct Member {
    /// User id.
    pub(super) id: Uuid,
    pub(super) api: Api,
    token: SecretString,
}

/// The world and its population.
#[derive(Debug)]
pub struct TenantTestbed {
    world: World,
    size: Size,
    suspensions: usize,
    operator: Api,
    admin: RawApi,
    broker: RawApi,
    populated: OnceCell<()>,
}

impl TenantTestbed {
    /// Creates the tenant of direct creations in a world of [`with_tenants`] with TLS.
    ///
    /// # Errors
    /// The broker or the API server refuses.
    pub async fn new(world: World, size: Size, suspensions: usize) -> Result<Self> {
        let cluster = world.cluster();
        let authority = cluster.authority();
        let admin =
            RawApi::direct(cluster, &authority.client("measure-admin", Some("system:masters"))?)?;
        let testbed = Self {
            admin,
            broker: RawApi::direct(cluster, cluster.broker_identity())?,
            operator: world.administrator("operator").await?.api().await?,
            size,
            suspensions,
            populated: OnceCell::new(),
            world,
        };
        testbed.create_tenant(direct()).await?;
        Ok(testbed)
    }

    /// Creates a tenant with its namespaces, and waits until the broker has carried it out.
    pub(super) async fn create_tenant(&self, planned: PlannedTenant) -> Result<()> {
        self.admin.create_all([planned.object()], 1).await?;
        self.admin.create_all(planned.namespace_objects(), 1).await?;
        self.until_carried_out(&[planned]).await
    }

    pub(super) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn size(&self) -> Size {
        self.size
    }

    /// An administrator of the broker.
    pub(super) fn operator(&self) -> &Api {
        &self.operator
    }

    /// The API server as an administrator of the cluster.
    pub(super) fn admin(&self) -> &RawApi {
        &self.admin
    }

    /// The API server with the broker's credential.
    pub(super) fn broker(&self) -> &RawApi {
        &self.broker
    }

    /// Process id of the broker.
    pub(super) fn broker_pid(&self) -> Result<u32> {
        self.world.broker().pid().context("the broker has stopped")
    }

    /// Creates all tenants and namespaces, once. The broker carries them out from its next start.
    pub(super) async fn populate(&self) -> Result<()> {
        self.populated.get_or_try_init(|| self.create_population()).await.map(drop)
    }

    async fn create_population(&self) -> Result<()> {
        let plan = plan(self.size, self.suspensions);
        let Size { tenants, namespaces, .. } = self.size;
        print_message(&format!("measure: creating {tenants} tenants and {namespaces} namespaces"));
        // One run of the broker for each tenant then finds all of its namespaces.
        self.world.broker().stop().await?;
        self.admin.create_all(plan.iter().map(PlannedTenant::object), CREATORS).await?;
        let namespaces = plan.iter().flat_map(PlannedTenant::namespace_objects);
        self.admin.create_all(namespaces, CREATORS).await?;
        print_message("measure: waiting until the broker has carried them out");
        self.world.broker().start().await?;
        self.until_carried_out(&plan).await
    }

    /// Waits until the status of each tenant has all of its namespaces, and the broker is at rest.
    async fn until_carried_out(&self, plan: &[PlannedTenant]) -> Result<()> {
        probe::until("the tenants to be carried out", POPULATION_TIMEOUT, || async {
            let tenants = self.admin.get(TENANTS).await?;
            let tenants = tenants["items"].as_array().context("there is no list of tenants")?;
            let sizes: HashMap<&str, u64> = tenants
                .iter()
                .filter(|tenant| tenant["status"]["state"] == "Active")
                .filter_map(|tenant| {
                    let size = tenant["status"]["size"].as_u64()?;
                    Some((tenant["metadata"]["name"].as_str()?, size))
                })
                .collect();
            let is_done = |planned: &&PlannedTenant| {
                sizes.get(planned.name.as_str()).is_some_and(|&size| {
                    usize::try_from(size).is_ok_and(|size| size >= planned.namespaces)
                })
            };
            let done = plan.iter().filter(is_done).count();
            if done == plan.len() {
                return Ok(Probe::Ready(()));
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Probe::NotYet(format!("{done} of {} tenants", plan.len())))
        })
        .await?;
        self.until_quiet().await
    }

    /// Waits until the broker has not worked on a tenant for a moment.
    pub(super) async fn until_quiet(&self) -> Result<()> {
        probe::until("the broker to be at rest", POPULATION_TIMEOUT, || async {
            let before = self.reconciles().await?;
            tokio::time::sleep(QUIET_TIME).await;
            let after = self.reconciles().await?;
            let waiting = self.world.broker().metric("tenant_broker_tenant_queue_length").await?;
            let is_quiet = waiting < 1.0 && before.count == after.count;
            let text = || format!("{waiting} tenants wait, after {} runs", after.count);
            Ok(if is_quiet { Probe::Ready(()) } else { Probe::NotYet(text()) })
        })
        .await
    }

    /// Waits until no run on a tenant has ended for a second. Unlike [`Self::until_quiet`] this does not wait
    /// for runs that are planned for later, such as the look a minute after a suspension.
    pub(super) async fn until_idle(&self) -> Result<()> {
        probe::until("no run on a tenant", POPULATION_TIMEOUT, || async {
            let before = self.reconciles().await?.count;
            tokio::time::sleep(IDLE_TIME).await;
            let after = self.reconciles().await?.count;
            let text = || format!("{after} runs");
            Ok(if before == after { Probe::Ready(()) } else { Probe::NotYet(text()) })
        })
        .await
    }

    /// The runs of the broker on tenants so far.
    pub(super) async fn reconciles(&self) -> Result<Reconciles> {
        let metrics = self.world.broker().metrics().await?;
        let value = |suffix: &str| {
            let name = format!("tenant_broker_tenant_reconcile_duration_seconds_{suffix} ");
            let line = metrics.lines().find_map(|line| line.strip_prefix(name.as_str()));
            line.with_context(|| format!("the broker has no metric {name}"))
        };
        Ok(Reconciles {
            count: value("count")?.parse().context("read the number of runs")?,
            seconds: value("sum")?.parse().context("read the time of the runs")?,
        })
    }

    /// Creates an account in these groups and in the one of people who may be members, and signs in.
    pub(super) async fn member(&self, name: &str, groups: &[&str]) -> Result<Member> {
        let person = self.world.person(name).await?;
        ensure!(person.email() == email(name), "{name} has the address {}", person.email());
        self.set_groups(person.id(), groups).await?;
        let token = person.sign_in().await?.access_token;
        let api = self.world.anonymous_api()?.with_token(token.clone());
        Ok(Member { id: person.id(), api, token })
    }

    /// Sets the groups of a person, with the one of people who may be members.
    pub(super) async fn set_groups(&self, user: Uuid, groups: &[&str]) -> Result<()> {
        let mut all = vec![DEVELOPERS];
        all.extend(groups);
        let path = format!("users/{user}/groups");
        let request = self.operator.request(Method::POST, &path)?.json(&json!({"groups": all}));
        request.send().await?.error_for_status().context("set the groups of a person")?;
        Ok(())
    }

    /// Makes a member join a tenant, and returns the membership.
    pub(super) async fn join(&self, member: &Member, tenant: &str) -> Result<Workspace> {
        let (membership, _) = member.api.join_tenant(tenant).await?;
        Ok(membership)
    }

    /// The gateway as a member.
    pub(super) fn gateway(&self, member: &Member) -> Result<RawApi> {
        let authority = self.world.cluster().authority().certificate();
        RawApi::with_token(self.gateway_url()?, authority, &member.token)
    }

    /// The API server with a token.
    pub(super) fn direct(&self, token: &str) -> Result<RawApi> {
        let cluster = self.world.cluster();
        let authority = cluster.authority().certificate();
        RawApi::with_token(cluster.url().clone(), authority, &SecretString::from(token))
    }

    /// The route of a member through the gateway.
    pub(super) fn gateway_route(&self, member: &Member) -> Result<Route> {
        use secrecy::ExposeSecret as _;

        let authority = self.world.cluster().authority().certificate();
        Route::new(RouteName::Gateway, &self.gateway_url()?, authority)?
            .with_token(member.token.expose_secret())
    }

    fn gateway_url(&self) -> Result<Url> {
        self.world.broker().public_url()?.join(GATEWAY).context("make the gateway's URL")
    }

    /// The direct route of an administrator of the cluster with a token.
    pub(super) async fn admin_route(&self) -> Result<Route> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": ADMINISTRATOR}});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding", "metadata": {"name": ADMINISTRATOR},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                "name": "cluster-admin"},
            "subjects": [{"kind": "ServiceAccount", "name": ADMINISTRATOR,
                "namespace": "default"}]});
        let accounts = format!("{NAMESPACES}/default/serviceaccounts");
        let bindings = "apis/rbac.authorization.k8s.io/v1/clusterrolebindings".to_owned();
        self.admin.create_all([(accounts.clone(), account), (bindings, binding)], 1).await?;
        let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"expirationSeconds": 7200}});
        let path = format!("{accounts}/{ADMINISTRATOR}/token");
        let answer = self.admin.succeed(Method::POST, &path, Some(&request)).await?;
        let answer: Value = serde_json::from_str(&answer.body).context("read a token")?;
        let token = answer["status"]["token"].as_str().context("the answer has no token")?;
        let cluster = self.world.cluster();
        let authority = cluster.authority().certificate();
        let route = Route::new(RouteName::Direct, cluster.url(), authority)?.with_token(token)?;
        self.until_administrator(token).await?;
        Ok(route)
    }

    /// Waits until the API server knows of the administrator's binding.
    async fn until_administrator(&self, token: &str) -> Result<()> {
        let api = self.direct(token)?;
        probe::until("the administrator's right", WAIT_TIMEOUT, || async {
            let answer = api.send(Method::GET, &format!("{NAMESPACES}/default"), None).await?;
            let is_allowed = answer.status.is_success();
            Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(answer.body) })
        })
        .await
    }

    /// Creates tenants with their homes, in which the policies look for owners, up to the highest
    /// number. The broker has to be stopped, because it would carry them out.
    pub(super) async fn fill_with_tenants(&self) -> Result<()> {
        ensure!(!self.world.broker().is_running(), "the broker would carry the tenants out");
        let existing = self.admin.get(TENANTS).await?["items"].as_array().map_or(0, Vec::len);
        let names: Vec<String> = (existing..self.size.most_tenants)
            .map(|number| other_tenant(number + self.size.tenants))
            .collect();
        let spec = owned_by(&user(&email("other")), &["admin"]);
        let objects = names.iter().flat_map(|name| {
            let planned = PlannedTenant { name: name.clone(), spec: spec.clone(), namespaces: 0 };
            [planned.object(), (NAMESPACES.to_owned(), home(name))]
        });
        self.admin.create_all(objects, CREATORS).await?;
        let bindings = names.iter().map(|name| {
            let home = format!("tenant-{name}");
            let binding = format!("tenant-{name}-tenant-owner");
            let subject = user(&email("other"));
            (role_bindings(&home), role_binding(&home, &binding, "tenant-owner", &subject))
        });
        self.admin.create_all(bindings, CREATORS).await
    }

    /// Changes the annotations of an object of the big tenant, which makes the broker look at it.
    pub(super) async fn touch_big_tenant(&self, round: usize) -> Result<()> {
        let namespace = super::population::namespace_of(BIG, 0);
        let path = format!("{}/tenant-{BIG}-view", role_bindings(&namespace));
        let annotations = json!({"measure.example.com/round": round.to_string()});
        let change = json!({"metadata": {"annotations": annotations}});
        self.admin.succeed(Method::PATCH, &path, Some(&change)).await.map(drop)
    }
}

/// Runs of a broker that compared a tenant with its desired state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reconciles {
    pub(super) count: u64,
    /// Time of all of them.
    pub(super) seconds: f64,
}
