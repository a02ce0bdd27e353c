//! Rights of everybody in random Tenants, and after each of many random changes, compared with a
//! model: what `SelfSubjectRulesReview` names, which requests succeed at the API server, and which
//! through the gateway of each replica. Meanwhile a prober tries requests all the time.

mod change;
mod model;
mod prober;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::{Method, StatusCode};
use serde_json::json;
use tenant_shared::{CreateNamespaceRequest, SuspendRequest};
use uuid::Uuid;

use super::fixture::{Credential, Fixture, RECONCILE_TIMEOUT, SignedIn};
use super::rng::Rng;
use crate::probe::{self, Probe};
use crate::progress::print_message;
use change::{Change, ROBOT, random_change, random_model};
use model::{Identity, Model};
use prober::{Bound, Bounds, GatewayBound, GatewayPeople, Prober};
use requests::{Request, Rules, is_review, rules_of, rules_of_roles, union};

/// Requests that are under way at once.
const MAX_IN_FLIGHT: usize = 16;
/// How long a resumption may be refused, because API servers accept old tokens.
const RESUME_TIMEOUT: Duration = Duration::from_secs(30);

/// A membership with its newest token.
#[derive(Clone, Debug)]
struct Membership {
    workspace: Uuid,
    credential: Credential,
    /// Number of the token.
    generation: usize,
    /// Whether the model gives rights that the membership needs to have the token again.
    is_current: bool,
}

/// Everything that a run knows.
struct Run<'a> {
    fixture: &'a Fixture,
    people: Vec<SignedIn>,
    model: Model,
    /// By person and tenant.
    memberships: BTreeMap<(usize, String), Membership>,
    /// Tokens of memberships that were suspended.
    ended: Vec<Credential>,
    /// Everybody who does not use the broker.
    others: Vec<Identity>,
    /// Rules of each ClusterRole.
    rules: BTreeMap<&'static str, Rules>,
    bounds: Bounds<Bound>,
    gateway_bounds: Bounds<GatewayBound>,
    rng: Rng,
    /// Number of the next token.
    generation: usize,
}

/// Makes these tenants with random specifications, and `changes` random changes. `names` are those
/// of the people. After each change everybody has exactly the rights of the model, and at each moment
/// none that neither the state before nor the one after the change gives.
///
/// # Errors
/// Somebody has other rights, or a request failed; the seed is in the message.
pub async fn check_rights(
    fixture: &Fixture,
    seed: u64,
    changes: usize,
    names: &[&str],
    tenants: &[&str],
) -> Result<()> {
    let run = async {
        let mut run = Box::pin(Run::start(fixture, seed, names, tenants)).await?;
        let prober = run.start_prober(seed);
        for number in 0..changes {
            if prober.has_ended() {
                break;
            }
            let what = format!("change {number}");
            Box::pin(run.change(number)).await.context(what)?;
        }
        if !prober.has_ended() {
            Box::pin(run.resume_all()).await.context("resume everything")?;
        }
        let counts = prober.end().await?;
        print_message(&format!("  rights: {changes} changes, and these requests: {counts}"));
        anyhow::Ok(())
    };
    run.await.with_context(|| format!("rights with the seed {seed}"))
}

impl<'a> Run<'a> {
    async fn start(
        fixture: &'a Fixture,
        seed: u64,
        names: &[&str],
        tenants: &[&str],
    ) -> Result<Self> {
        let mut rng = Rng::new(seed);
        let people = names.iter().map(|name| fixture.person(name));
        let people: Vec<SignedIn> = stream::iter(people).buffered(2).try_collect().await?;
        let tenants: Vec<String> = tenants.iter().map(|name| (*name).to_owned()).collect();
        let emails = people.iter().map(|person| person.email.clone()).collect();
        let mut model = random_model(&mut rng, emails, &tenants);
        for (name, tenant) in &mut model.tenants {
            fixture.apply(name, &tenant.spec()).await?;
            for letter in ["a", "b"] {
                let namespace = format!("{name}-{letter}");
                fixture.create_namespace(name, &namespace).await?;
                tenant.namespaces.insert(namespace);
            }
        }
        let mut run = Self {
            fixture,
            others: others(&people, &tenants),
            people,
            rules: rules_of_roles(fixture.cluster()).await?,
            memberships: BTreeMap::new(),
            ended: Vec::new(),
            bounds: Bounds::default(),
            gateway_bounds: Bounds::default(),
            rng,
            generation: 0,
            model,
        };
        run.settle().await.context("the first state")?;
        Ok(run)
    }

    /// Starts the requests that are sent all the time.
    fn start_prober(&self, seed: u64) -> Prober {
        let replicas = self.fixture.world.brokers().len();
        let people = GatewayPeople { people: self.people.clone(), replicas };
        Prober::start(self.fixture.cluster(), &self.bounds, &self.gateway_bounds, people, seed)
    }

    /// Makes one random change, and waits until everybody has the rights of the model.
    async fn change(&mut self, number: usize) -> Result<()> {
        let before = self.model.clone();
        let members = self.memberships.iter().filter(|((person, tenant), membership)| {
            let tenant = &before.tenants[tenant];
            membership.is_current || tenant.suspended_members.contains(person)
        });
        let members: Vec<_> = members.map(|(key, _)| key.clone()).collect();
        let change = random_change(&mut self.rng, &mut self.model, number, &members);
        print_message(&format!("  change {number}: {change:?}"));
        self.transition(&before);
        self.carry_out(&change).await.with_context(|| format!("{change:?}"))?;
        self.settle().await.with_context(|| format!("{change:?} of {before:#?}"))
    }

    /// Resumes every tenant and membership.
    async fn resume_all(&mut self) -> Result<()> {
        let before = self.model.clone();
        let mut changes = Vec::new();
        for (name, tenant) in &mut self.model.tenants {
            if std::mem::take(&mut tenant.is_suspended) {
                changes.push(Change::ResumeTenant(name.clone()));
            }
            let members = std::mem::take(&mut tenant.suspended_members);
            changes.extend(members.into_iter().map(|it| Change::ResumeMember(it, name.clone())));
        }
        self.transition(&before);
        for change in changes {
            self.carry_out(&change).await.with_context(|| format!("{change:?}"))?;
        }
        self.settle().await
    }

    /// Sets the bounds for the time of a change, and notes which tokens it ends.
    fn transition(&mut self, before: &Model) {
        let model = &self.model;
        let mut ended = Vec::new();
        for ((person, name), membership) in &mut self.memberships {
            let is_suspended = |model: &Model| {
                let tenant = &model.tenants[name];
                tenant.is_suspended || tenant.suspended_members.contains(person)
            };
            let may_be = model.may_be_member(*person, name);
            if membership.is_current && is_suspended(model) && !is_suspended(before) {
                ended.push(membership.credential.clone());
            }
            membership.is_current &= may_be;
        }
        let bounds = self.pairs().map(|(who, generation, credential, namespace)| {
            let (old, new) = (before.roles(&who, &namespace), model.roles(&who, &namespace));
            Bound {
                at_most: old.union(&new).copied().collect(),
                at_least: old.intersection(&new).copied().collect(),
                is_foreign: model.is_foreign(&who, &namespace),
                who,
                generation,
                credential,
                namespace,
            }
        });
        let bounds = bounds.collect();
        self.bounds.set(bounds);
        self.gateway_bounds.set(self.bounds_of_gateway(Some(before)));
        // Until the change is carried out, these tokens have the rights of the state before it.
        self.ended.extend(ended);
    }

    /// Each person in each namespace through the gateway, with the roles of the model, and of an
    /// earlier one.
    fn bounds_of_gateway(&self, before: Option<&Model>) -> Vec<GatewayBound> {
        let mut bounds = Vec::new();
        for namespace in self.model.namespaces() {
            let Some(tenant) = self.model.tenant_of(&namespace) else { continue };
            for person in 0..self.people.len() {
                let who = Identity::Member { person, tenant: tenant.to_owned() };
                let models = [Some(&self.model), before].into_iter().flatten();
                let at_most = models.flat_map(|model| model.roles(&who, &namespace)).collect();
                bounds.push(GatewayBound { person, namespace: namespace.clone(), at_most });
            }
        }
        bounds
    }

    /// Each credential in each namespace.
    fn pairs(&self) -> impl Iterator<Item = (Identity, usize, Credential, String)> + '_ {
        let members = self.memberships.iter().map(|((person, tenant), membership)| {
            let who = Identity::Member { person: *person, tenant: tenant.clone() };
            (who, membership.generation, membership.credential.clone())
        });
        let ended = self.ended.iter().enumerate();
        let ended = ended.map(|(number, it)| (Identity::Ended { number }, 0, it.clone()));
        let others = self.others.iter().map(|who| (who.clone(), 0, credential_of(who)));
        let namespaces = self.model.namespaces();
        members.chain(ended).chain(others).flat_map(move |(who, generation, credential)| {
            let all = namespaces.clone().into_iter();
            all.map(move |namespace| (who.clone(), generation, credential.clone(), namespace))
        })
    }

    async fn carry_out(&mut self, change: &Change) -> Result<()> {
        let fixture = self.fixture;
        let replica = self.rng.below(2);
        let operator = fixture.operator_at(replica)?;
        let reason = SuspendRequest { reason: Some("rights".to_owned()) };
        match change {
            Change::Spec(name) => fixture.apply(name, &self.model.tenants[name].spec()).await?,
            Change::Groups(person) => {
                let path = format!("users/{}/groups", self.people[*person].id);
                let body = json!({"groups": self.model.people[*person].groups});
                let request = operator.request(Method::POST, &path)?.json(&body);
                let status = request.send().await?.status();
                ensure!(status.is_success(), "{status}");
            }
            Change::SuspendTenant(name) => {
                operator.suspend_tenant(name, &reason).await?;
            }
            Change::SuspendMember(person, name) => {
                let membership = self.membership(*person, name)?.workspace;
                operator.suspend(membership, &reason).await?;
            }
            Change::ResumeTenant(name) => {
                probe::until("the resumption", RESUME_TIMEOUT, || async {
                    Ok(match operator.resume_tenant(name, &reason).await {
                        Ok(_) => Probe::Ready(()),
                        Err(error) => Probe::NotYet(error.to_string()),
                    })
                })
                .await?;
            }
            Change::ResumeMember(person, name) => {
                let membership = self.membership(*person, name)?.workspace;
                probe::until("the resumption", RESUME_TIMEOUT, || async {
                    Ok(match operator.resume(membership, &reason).await {
                        Ok(_) => Probe::Ready(()),
                        Err(error) => Probe::NotYet(error.to_string()),
                    })
                })
                .await?;
            }
            Change::CreateNamespace { tenant, namespace } => {
                self.create_namespace(replica, tenant, namespace).await?;
            }
            Change::DeleteNamespace(namespace) => {
                let path = format!("api/v1/namespaces/{namespace}");
                let (status, body) = fixture.cluster().admin(Method::DELETE, &path, None).await?;
                ensure!(status.is_success(), "{status}: {body}");
            }
        }
        Ok(())
    }

    fn membership(&self, person: usize, tenant: &str) -> Result<&Membership> {
        self.memberships.get(&(person, tenant.to_owned())).context("there is no membership")
    }

    /// Has an owner create a namespace, or an administrator of the cluster if no owner may.
    async fn create_namespace(&self, replica: usize, tenant: &str, namespace: &str) -> Result<()> {
        let home = format!("tenant-{tenant}");
        let owner = (0..self.people.len()).find(|person| {
            let who = Identity::Member { person: *person, tenant: tenant.to_owned() };
            !self.model.roles(&who, &home).is_empty()
        });
        let Some(owner) = owner else {
            return self.fixture.create_namespace(tenant, namespace).await;
        };
        let body = CreateNamespaceRequest {
            name: namespace.to_owned(),
            ..CreateNamespaceRequest::default()
        };
        let path = format!("tenants/{tenant}/namespaces");
        probe::until(&format!("the creation of {namespace}"), RECONCILE_TIMEOUT, || async {
            let request = self.people[owner].at(replica).request(Method::POST, &path)?.json(&body);
            let answer = request.send().await?;
            let (status, text) = (answer.status(), answer.text().await?);
            // The resumption of the tenant may not be recorded yet.
            let is_early = text.contains("tenant_not_active");
            ensure!(status == StatusCode::CREATED || is_early, "{status}: {text}");
            Ok(if is_early { Probe::NotYet(text) } else { Probe::Ready(()) })
        })
        .await?;
        // The person who created it can use it at once.
        let who = Identity::Member { person: owner, tenant: tenant.to_owned() };
        let roles = self.model.roles(&who, namespace);
        let membership = self.membership(owner, tenant)?;
        for request in Request::ALL {
            let cluster = self.fixture.cluster();
            let is_allowed = request.send(cluster, &membership.credential, namespace).await?;
            ensure!(
                is_allowed == request.is_allowed(&roles),
                "{request:?} by the owner right after the creation: {is_allowed}, with {roles:?}"
            );
        }
        Ok(())
    }

    /// Makes everybody a member whom the model allows to be one, and waits until everybody has
    /// exactly the rights of the model.
    async fn settle(&mut self) -> Result<()> {
        self.join().await?;
        let pairs: Vec<_> = self.pairs().collect();
        probe::until("the rights of the model", RECONCILE_TIMEOUT, || async {
            let wrong = self.differences(&pairs).await?;
            Ok(match wrong.first() {
                None => Probe::Ready(()),
                Some(first) => Probe::NotYet(format!("{} differ: {first}", wrong.len())),
            })
        })
        .await?;
        let bounds = pairs.iter().cloned().map(|(who, generation, credential, namespace)| {
            let roles = self.model.roles(&who, &namespace);
            let is_foreign = self.model.is_foreign(&who, &namespace);
            let (at_most, at_least) = (roles.clone(), roles);
            Bound { who, generation, credential, namespace, is_foreign, at_most, at_least }
        });
        self.bounds.set(bounds.collect());
        self.try_requests(&pairs).await?;
        self.try_gateway().await?;
        // From now on all replicas know the change.
        self.gateway_bounds.set(self.bounds_of_gateway(None));
        Ok(())
    }

    /// Makes memberships, by the request or by the first request through the gateway.
    async fn join(&mut self) -> Result<()> {
        let tenants: Vec<String> = self.model.tenants.keys().cloned().collect();
        for (number, person) in self.people.iter().enumerate() {
            for tenant in &tenants {
                let key = (number, tenant.clone());
                let is_current = self.memberships.get(&key).is_some_and(|it| it.is_current);
                if is_current || !self.model.may_be_member(number, tenant) {
                    continue;
                }
                if self.rng.percent(50) {
                    // Its answer does not count, because the person may have no role.
                    let path = format!("api/v1/namespaces/{tenant}-a/configmaps");
                    person.through_gateway(1, Method::GET, &path, None).await?;
                }
                let (workspace, credential) = self.fixture.member(person, tenant).await?;
                self.generation += 1;
                let generation = self.generation;
                let membership = Membership { workspace, credential, generation, is_current: true };
                self.memberships.insert(key, membership);
            }
        }
        Ok(())
    }

    /// Where `SelfSubjectRulesReview` and the model differ.
    async fn differences(
        &self,
        pairs: &[(Identity, usize, Credential, String)],
    ) -> Result<Vec<String>> {
        let compared = pairs.iter().map(|(who, _, credential, namespace)| async move {
            let found = rules_of(self.fixture.cluster(), credential, namespace).await?;
            let mut more = Vec::new();
            let roles = self.model.roles(who, namespace);
            let expected = union(&roles, &self.rules)?;
            for rule in found.difference(&expected) {
                if !is_review(rule)? {
                    more.push(rule);
                }
            }
            let less: Vec<_> = expected.difference(&found).collect();
            let is_equal = more.is_empty() && less.is_empty();
            let text = || {
                let (few, lacks) = (more.iter().take(3), less.iter().take(3));
                let (few, lacks): (Vec<_>, Vec<_>) = (few.collect(), lacks.collect());
                format!("{who:?} in {namespace} with {roles:?} has {few:?} and lacks {lacks:?}")
            };
            anyhow::Ok((!is_equal).then(text))
        });
        let compared: Vec<_> = compared.collect();
        let all: Vec<Option<String>> =
            stream::iter(compared).buffer_unordered(MAX_IN_FLIGHT).try_collect().await?;
        Ok(all.into_iter().flatten().collect())
    }

    /// Tries each request with each credential in each namespace.
    async fn try_requests(&self, pairs: &[(Identity, usize, Credential, String)]) -> Result<()> {
        let tried = pairs.iter().flat_map(|(who, _, credential, namespace)| {
            let roles = self.model.roles(who, namespace);
            Request::ALL.map(move |request| {
                let roles: BTreeSet<_> = roles.clone();
                async move {
                    let is_allowed =
                        request.send(self.fixture.cluster(), credential, namespace).await?;
                    ensure!(
                        is_allowed == request.is_allowed(&roles),
                        "{request:?} in {namespace} by {who:?} with {roles:?}: {is_allowed}"
                    );
                    Ok(())
                }
            })
        });
        let tried: Vec<_> = tried.collect();
        stream::iter(tried).buffer_unordered(MAX_IN_FLIGHT).try_collect().await
    }

    /// Reads in each namespace through the gateway of each replica, as each person.
    async fn try_gateway(&self) -> Result<()> {
        let mut tried = Vec::new();
        for (number, person) in self.people.iter().enumerate() {
            for (name, tenant) in &self.model.tenants {
                let who = Identity::Member { person: number, tenant: name.clone() };
                for namespace in &tenant.namespaces {
                    let may = Request::Read.is_allowed(&self.model.roles(&who, namespace));
                    let replicas = self.fixture.world.brokers().len();
                    tried.extend((0..replicas).map(|it| (person, namespace, may, it)));
                }
            }
        }
        let tried = tried.into_iter().map(|(person, namespace, may, replica)| async move {
            let path = format!("api/v1/namespaces/{namespace}/configmaps?limit=1");
            let what = format!("{} to read {namespace} through the gateway: {may}", person.email);
            // A replica keeps what it knows of a person for a moment.
            probe::until(&what, RECONCILE_TIMEOUT, || async {
                let (status, answer) =
                    person.through_gateway(replica, Method::GET, &path, None).await?;
                let is_answer = status.is_success() || matches!(status.as_u16(), 401 | 403 | 404);
                let is_so = is_answer && status.is_success() == may;
                Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(answer.to_string()) })
            })
            .await
        });
        stream::iter(tried.collect::<Vec<_>>()).buffer_unordered(4).try_collect().await
    }
}

/// People as users of the cluster, with other groups than at the broker, and programs.
fn others(people: &[SignedIn], tenants: &[String]) -> Vec<Identity> {
    let groups = [&["developers"][..], &["operators", "projectcapsule.dev"], &[]];
    let users = people.iter().zip(groups.iter().cycle()).map(|(person, groups)| Identity::User {
        name: person.email.clone(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
    });
    let account = |namespace: &str, name: &str| Identity::ServiceAccount {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let (namespace, robot) = ROBOT;
    // One of the name of an owner in another namespace, and one of a pod.
    let programs = [account(namespace, robot), account("other", robot)];
    let pods = tenants.iter().map(|tenant| account(&format!("{tenant}-a"), "default"));
    users.chain(programs).chain(pods).collect()
}

/// The credential of an identity that the administrator impersonates.
fn credential_of(who: &Identity) -> Credential {
    match who {
        Identity::ServiceAccount { namespace, name } => Credential::User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        },
        Identity::User { name, groups } => {
            Credential::User { name: name.clone(), groups: groups.clone() }
        }
        // They have tokens.
        Identity::Member { .. } | Identity::Ended { .. } => Credential::Administrator,
    }
}
