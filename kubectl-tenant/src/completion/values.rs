//! Values of arguments: fixed ones, accounts on this machine, and what the broker lists.

use std::{collections::BTreeSet, time::Duration};

use clap::Arg;
use tenant_shared::{
    AAModel, CredentialInfo, Name, Role, SessionInfo, TenantInfo, TenantNamespace, UserInfo,
    UserStatus, Workspace, is_dns_label,
};
use tokio::time::Instant;

use super::{cache::CandidateCache, candidate::Candidate, command_line::CommandLine};
use crate::{
    account::Account,
    broker::Broker,
    error::Error,
    lookup,
    paths::Paths,
    runtime,
    store::{AccountFlags, Profiles},
    tenants, users,
    workload_identity::WorkloadIdentity,
    world::World,
};

/// Timeout of all requests of a completion, because a person waits for it at the prompt.
const REQUESTS_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of items that are requested: one page of the broker.
const MAX_ITEMS: u32 = 500;

/// Source of the values of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source<'a> {
    /// Accounts on this machine.
    Profiles,
    /// Workspaces that the person may name: for an administrator those of all users.
    Workspaces,
    /// Users, for an administrator.
    Users,
    /// Sessions of the user with this name, or the person's own.
    Sessions(Option<&'a str>),
    /// Credentials of the workspace with this name, or of the person's own one.
    Credentials(Option<&'a str>),
    /// Tenants that the person may see.
    Tenants,
    /// Namespaces of the tenant with this name, or of all tenants of the person.
    Namespaces(Option<&'a str>),
    /// Namespaces of the person's workspaces and memberships.
    OwnNamespaces,
    /// Models in the namespace with this name, or in that of the person's workspace.
    Models(Option<&'a str>),
}

impl<'a> Source<'a> {
    /// The source of an argument's values, if there is one.
    fn of(argument: &Arg, line: &CommandLine<'a>) -> Option<Self> {
        // A kubeconfig contains the arguments of this command; nobody types them.
        if line.path == ["get-token"] {
            return None;
        }
        match (line.path.as_slice(), argument.get_id().as_str()) {
            (_, "profile") | (["profiles", "use"], "name") => Some(Self::Profiles),
            (["sessions", "revoke"], "id") => Some(Self::Sessions(line.value_of("user"))),
            (["credentials", "revoke"], "id") => {
                Some(Self::Credentials(line.value_of("workspace")))
            }
            (["namespaces", "delete" | "transfer"] | ["use" | "why"], "namespace") => {
                Some(Self::Namespaces(line.value_of("tenant")))
            }
            (["models", "install"], "models") => Some(Self::Models(line.value_of("namespace"))),
            (["models", ..], "namespace") => Some(Self::OwnNamespaces),
            (_, "tenant" | "to") => Some(Self::Tenants),
            (_, "workspace") => Some(Self::Workspaces),
            (_, "user") => Some(Self::Users),
            _ => None,
        }
    }

    /// Name of the source, and whose values it has: the key of the cache.
    fn key(self) -> [&'a str; 2] {
        match self {
            Self::Profiles => ["profiles", ""],
            Self::Workspaces => ["workspaces", ""],
            Self::Users => ["users", ""],
            Self::Sessions(of) => ["sessions", of.unwrap_or_default()],
            Self::Credentials(of) => ["credentials", of.unwrap_or_default()],
            Self::Tenants => ["tenants", ""],
            Self::Namespaces(of) => ["namespaces", of.unwrap_or_default()],
            Self::OwnNamespaces => ["own-namespaces", ""],
            Self::Models(of) => ["models", of.unwrap_or_default()],
        }
    }

    /// Asks the broker. The list of a user who is no administrator has their own values only.
    async fn ask(self, broker: &Broker) -> Result<Vec<Candidate>, Error> {
        Ok(match self {
            Self::Profiles => Vec::new(),
            Self::Workspaces => {
                let all = broker.me().await?.role == Role::Admin;
                let page = broker.workspaces(all, MAX_ITEMS).await?;
                of_workspaces(&page.items, all)
            }
            Self::Users => {
                broker.users(MAX_ITEMS).await?.items.iter().filter_map(of_user).collect()
            }
            Self::Sessions(of) => {
                let user = match parse_name(of)? {
                    Some(name) => Some(users::resolve(broker, &name).await?),
                    None => None,
                };
                let page = broker.sessions(user, MAX_ITEMS).await?;
                page.items.iter().filter_map(of_session).collect()
            }
            Self::Credentials(of) => {
                let workspace = lookup::resolve(broker, parse_name(of)?.as_ref()).await?;
                let page = broker.credentials(workspace, false, MAX_ITEMS).await?;
                page.items.iter().filter_map(of_credential).collect()
            }
            Self::Tenants => {
                let tenants = broker.tenants().await?.items;
                tenants.iter().take(MAX_ITEMS as usize).filter_map(of_tenant).collect()
            }
            Self::Namespaces(of) => namespaces(broker, of).await?,
            Self::OwnNamespaces => {
                let mut own = broker.own_workspaces().await?.items;
                own.retain(|it| it.tenant.is_none());
                let mut found = of_workspaces(&own, false);
                // A broker without tenants refuses.
                found.extend(namespaces(broker, None).await.unwrap_or_default());
                found
            }
            Self::Models(of) => {
                let namespace = match of {
                    Some(name) if is_dns_label(name) => name.to_owned(),
                    Some(_) => return Ok(Vec::new()),
                    None => lookup::own_namespace(broker).await?,
                };
                let models = broker.models(&namespace).await?.data;
                models.iter().take(MAX_ITEMS as usize).filter_map(of_model).collect()
            }
        })
    }
}

/// Namespaces of a tenant, or of all tenants of the person. The deadline of the client limits the
/// number of requests.
async fn namespaces(broker: &Broker, tenant: Option<&str>) -> Result<Vec<Candidate>, Error> {
    let tenants = match tenant {
        Some(name) if is_dns_label(name) => vec![name.to_owned()],
        Some(_) => Vec::new(),
        None => {
            let own = tenants::own_tenants(broker.tenants().await?.items);
            own.into_iter().map(|it| it.name).collect()
        }
    };
    let mut found = Vec::new();
    for tenant in tenants {
        let items = broker.tenant_namespaces(&tenant).await?.items;
        found.extend(items.iter().filter_map(|it| of_namespace(it, &tenant)));
    }
    found.truncate(MAX_ITEMS as usize);
    Ok(found)
}

/// Values of an argument. A failure gives none, because a completion cannot show it.
pub(super) fn candidates(argument: &Arg, line: &CommandLine<'_>, world: &World) -> Vec<Candidate> {
    let fixed = argument.get_possible_values();
    if !fixed.is_empty() {
        return fixed.iter().map(|value| Candidate::plain(value.get_name())).collect();
    }
    let found = match Source::of(argument, line) {
        None => return Vec::new(),
        Some(Source::Profiles) => profiles(world),
        Some(source) => of_broker(source, line, world),
    };
    found.unwrap_or_default()
}

/// Names of the accounts on this machine.
fn profiles(world: &World) -> Result<Vec<Candidate>, Error> {
    let paths = Paths::from_env(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    Ok(profiles.all().map(|it| Candidate::plain(it.name())).collect())
}

/// Values that the broker of the command line lists, from the cache if they were just asked for. The
/// broker is not asked without a session, nor for a machine, whose every sign-in would start
/// another session.
fn of_broker(
    source: Source<'_>,
    line: &CommandLine<'_>,
    world: &World,
) -> Result<Vec<Candidate>, Error> {
    let text = |identifier| line.value_of(identifier).map(str::to_owned);
    let flags = AccountFlags { broker: text("broker"), profile: text("profile") };
    if WorkloadIdentity::from_env(&flags, &world.env)?.is_some() {
        return Ok(Vec::new());
    }
    let account = Account::open(&flags, world)?;
    let cache = CandidateCache::new(&account.paths, &account.key, source.key());
    let now = world.clock.now();
    if let Some(candidates) = cache.read(now) {
        return Ok(candidates);
    }
    let broker = account.broker.without_renewal();
    let mut broker = broker.with_deadline(Instant::now() + REQUESTS_TIMEOUT);
    if matches!(source, Source::Models(_)) {
        broker = broker.for_list_of_models();
    }
    // A failure is cached as well, so that only the first completion waits for its timeout.
    let candidates = runtime::block_on(source.ask(&broker))?.unwrap_or_default();
    cache.write(&candidates, now);
    Ok(candidates)
}

/// Parses the name in an option, if it is there.
fn parse_name(text: Option<&str>) -> Result<Option<Name>, Error> {
    let name = text.map(str::parse::<Name>).transpose();
    name.map_err(|error| Error::usage(error.to_string()))
}

/// A name of each workspace that means no other, and for an administrator the addresses of the
/// owners, which most people know.
fn of_workspaces(workspaces: &[Workspace], with_owners: bool) -> Vec<Candidate> {
    let mut found = Vec::new();
    let mut owners = BTreeSet::new();
    for it in workspaces {
        let owner = it.owner_email.as_deref().filter(|_| with_owners);
        let (name, status) = (lookup::name_of(it), it.status.as_str());
        let membership = it.tenant.as_ref().map(|tenant| format!("member of tenant {tenant}"));
        let parts = membership.as_deref().into_iter().chain(owner).chain([status]);
        found.extend(Candidate::untrusted(&name, &parts.collect::<Vec<_>>().join(", ")));
        if let Some(owner) = owner.filter(|owner| owners.insert(*owner)) {
            let all = workspaces.iter().filter(|it| it.owner_email.as_deref() == Some(owner));
            let description = match all.count() {
                1 => format!("{}, {status}", membership.unwrap_or(name)),
                count => format!("{count} workspaces"),
            };
            found.extend(Candidate::untrusted(owner, &description));
        }
    }
    found
}

fn of_user(it: &UserInfo) -> Option<Candidate> {
    let status = match it.status {
        UserStatus::Active => "active",
        UserStatus::Suspended => "suspended",
    };
    Candidate::untrusted(&it.email, &format!("{}, {status}", it.role.as_str()))
}

fn of_tenant(it: &TenantInfo) -> Option<Candidate> {
    let owner = if it.is_owner { ", owner" } else { "" };
    Candidate::untrusted(&it.name, &format!("{}{owner}", it.state))
}

fn of_namespace(it: &TenantNamespace, tenant: &str) -> Option<Candidate> {
    Candidate::untrusted(&it.name, &format!("{tenant}, {}", it.status))
}

fn of_model(it: &AAModel) -> Option<Candidate> {
    Candidate::untrusted(&it.model_name, &format!("{}, {}", it.display_name, it.status))
}

fn of_session(it: &SessionInfo) -> Option<Candidate> {
    let this = if it.current { ", this session" } else { "" };
    let address = it.ip_address.as_deref().unwrap_or("unknown address");
    let description = format!("{} since {}, {address}{this}", it.client, it.created_at);
    Candidate::untrusted(&it.id.to_string(), &description)
}

fn of_credential(it: &CredentialInfo) -> Option<Candidate> {
    let who = it.email.as_deref().unwrap_or("unknown user");
    let description = format!("{}, {who}, until {}", it.kind.as_str(), it.expires_at);
    Candidate::untrusted(&it.credential_id, &description)
}
