//! The command `whoami`: the signed-in user, their session and workspaces.

use serde::Serialize;
use tenant_shared::{Me, TenantInfo, WireTime, Workspace};

use crate::{
    account::Account,
    account_key::{AccountKey, ProfileName},
    broker::Broker,
    broker_url::BrokerUrl,
    cli::{credentials::TokenMode, options::OutputArgs},
    credential::{Cache, belongs_to, mode},
    error::{Error, Kind},
    output,
    paths::Paths,
    runtime,
    store::{AccountFlags, SessionStore, Storage},
    tenants, terminal,
    world::World,
};

/// Output of `whoami`: the API's `Me` with the local state.
#[derive(Serialize)]
struct WhoAmI {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    #[serde(flatten)]
    me: Me,
    /// Where the session is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Storage>,
    workspaces: Vec<Workspace>,
    /// Names of the tenants that name the user, or that they are a member of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
    /// Those of `tenants` that are suspended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    suspended_tenants: Vec<String>,
    /// Cached tokens of the account.
    tokens: Vec<TokenInfo>,
}

/// A cached token, without the token itself.
#[derive(Serialize)]
pub(crate) struct TokenInfo {
    /// Where the token is used.
    mode: TokenMode,
    cluster: String,
    workspace: String,
    credential_id: String,
    expires_at: WireTime,
    /// Whether it is not accepted, because the workspace or the tenant is suspended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    suspended: bool,
}

impl TokenInfo {
    /// Lists the cached tokens of an account that have not expired.
    pub(crate) fn list_for(paths: &Paths, account: &AccountKey, now: i64) -> Vec<Self> {
        Cache::all(&paths.tokens())
            .into_iter()
            .filter(|(_, entry)| belongs_to(entry, account) && entry.expires_at > now)
            .map(|(_, entry)| Self {
                mode: mode(&entry),
                cluster: entry.cluster,
                workspace: entry.workspace,
                credential_id: entry.credential_id,
                expires_at: output::time(entry.expires_at),
                suspended: false,
            })
            .collect()
    }

    /// Renders one line for a person, with this name of its workspace instead of the identifier.
    pub(crate) fn line(&self, workspace: Option<&str>) -> String {
        let route = match self.mode {
            TokenMode::Exec => "directly",
            TokenMode::Gateway => "through the gateway",
        };
        let Self { cluster, expires_at, .. } = self;
        let workspace = workspace.unwrap_or(&self.workspace);
        let end = if self.suspended {
            "not accepted: suspended".to_owned()
        } else {
            format!("until {expires_at}")
        };
        format!("Token for {workspace} in {cluster}, {route}, {end}")
    }
}

/// Runs `whoami`.
pub(crate) fn whoami(
    flags: &AccountFlags,
    options: OutputArgs,
    world: &mut World,
) -> Result<(), Error> {
    let account = Account::open(flags, world)?;
    let (me, list, tenants) = runtime::block_on(async {
        let me = account.broker.me().await?;
        let list = account.broker.own_workspaces().await?;
        Ok::<_, Error>((me, list, own_tenants(&account.broker).await?))
    })??;
    let suspended_tenants: Vec<String> = tenants
        .iter()
        .filter(|it| tenants::is_suspended(&it.state))
        .map(|it| it.name.clone())
        .collect();
    let mut tokens = TokenInfo::list_for(&account.paths, &account.key, world.clock.now());
    for token in &mut tokens {
        let of_token = list.items.iter().find(|it| it.id.to_string() == token.workspace);
        token.suspended = of_token.is_some_and(|it| is_suspended(it, &suspended_tenants));
    }
    let session = SessionStore::new(&account.paths, &account.key, world).read()?;
    let shown = WhoAmI {
        tokens,
        broker: account.key.broker,
        profile: account.key.profile,
        me,
        storage: session.map(|session| session.storage),
        workspaces: list.items,
        tenants: tenants.into_iter().map(|it| it.name).collect(),
        suspended_tenants,
    };
    output::show(world, options.output, &shown, table)
}

/// Whether no credential of a workspace is accepted.
fn is_suspended(workspace: &Workspace, suspended_tenants: &[String]) -> bool {
    let of_tenant = workspace.tenant.as_ref().is_some_and(|it| suspended_tenants.contains(it));
    of_tenant || workspace.status.is_suspension()
}

/// The user's tenants; none at a broker without tenants.
async fn own_tenants(broker: &Broker) -> Result<Vec<TenantInfo>, Error> {
    match broker.tenants().await {
        Ok(found) => Ok(tenants::own_tenants(found.items)),
        Err(error) if error.kind == Kind::Refused => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn table(it: &WhoAmI) -> String {
    let profile = it.profile.as_ref().map(|name| format!(" (profile {name})"));
    let kept = it.storage.map_or("", |storage| match storage {
        Storage::Keyring => ", kept in the keyring",
        Storage::File => ", kept in a file",
        Storage::None => ", not kept",
    });
    let provider = it.me.provider.as_ref().map(|provider| match &provider.username {
        Some(name) => terminal::sanitize(&format!(", {name} at {}", provider.name)),
        None => terminal::sanitize(&format!(", of {}", provider.name)),
    });
    let mut text = format!(
        "{} ({}{}) at {}{}\nSession until {}{kept}\n",
        terminal::sanitize(&it.me.email),
        it.me.role.as_str(),
        provider.unwrap_or_default(),
        it.broker,
        profile.unwrap_or_default(),
        it.me.session_expires_at
    );
    text.extend(it.workspaces.iter().map(|workspace| {
        let what = match &workspace.tenant {
            None => format!("Workspace {}", workspace.namespace),
            Some(tenant) => format!("Member of tenant {tenant}"),
        };
        let tenant = workspace.tenant.as_ref();
        let tenant = tenant.filter(|tenant| it.suspended_tenants.contains(tenant));
        terminal::sanitize(&format!(
            "{what} in {} ({}, {}{})",
            workspace.cluster,
            workspace.tier,
            workspace.status.as_str(),
            tenant.map_or("", |_| "; the tenant is suspended")
        )) + "\n"
    }));
    if !it.tenants.is_empty() {
        let shown = it.tenants.iter().map(|tenant| {
            let is_suspended = it.suspended_tenants.contains(tenant);
            format!("{tenant}{}", if is_suspended { " (suspended)" } else { "" })
        });
        let shown: Vec<String> = shown.collect();
        text += &terminal::sanitize(&format!("Tenants {}", shown.join(", ")));
        text += "\n";
    }
    text.extend(it.tokens.iter().map(|token| {
        let of_token = it.workspaces.iter().find(|it| it.id.to_string() == token.workspace);
        terminal::sanitize(&token.line(of_token.map(title).as_deref())) + "\n"
    }));
    text
}

/// The workspace in words: its namespace, or the tenant that it is a membership in.
fn title(workspace: &Workspace) -> String {
    match &workspace.tenant {
        None => format!("workspace {}", workspace.namespace),
        Some(tenant) => format!("tenant {tenant}"),
    }
}
