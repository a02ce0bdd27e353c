//! The command `whoami`: who is signed in, where, until when.

use serde::Serialize;
use tenant_shared::{Me, WireTime, Workspace};

use crate::{
    account::Account,
    broker_url::BrokerUrl,
    cli::{Shown, TokenMode},
    credential::{Cache, belongs_to, mode},
    error::Error,
    identity::{Identity, ProfileName},
    output,
    paths::Paths,
    runtime,
    store::{Choice, Sessions, Storage},
    world::World,
};

/// What `whoami` shows: the API's `Me`, and what belongs to it.
#[derive(Serialize)]
struct WhoAmI {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    #[serde(flatten)]
    me: Me,
    /// Where the session is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Storage>,
    workspaces: Vec<Workspace>,
    /// Cached tokens for clusters.
    tokens: Vec<Token>,
}

/// A cached token for a cluster, without the token.
#[derive(Serialize)]
pub(crate) struct Token {
    /// For whom it is.
    mode: TokenMode,
    cluster: String,
    workspace: String,
    credential_id: String,
    expires_at: WireTime,
}

impl Token {
    /// The cached tokens of an account that are still good.
    pub(crate) fn of(paths: &Paths, identity: &Identity, now: i64) -> Vec<Self> {
        Cache::all(&paths.tokens())
            .into_iter()
            .filter(|(_, facts)| belongs_to(facts, identity) && facts.expires_at > now)
            .map(|(_, facts)| Self {
                mode: mode(&facts),
                cluster: facts.cluster,
                workspace: facts.workspace,
                credential_id: facts.credential_id,
                expires_at: output::time(facts.expires_at),
            })
            .collect()
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        let way = match self.mode {
            TokenMode::Exec => "directly",
            TokenMode::Gateway => "through the gateway",
        };
        let Self { workspace, cluster, expires_at, .. } = self;
        format!("Token for {workspace} in {cluster}, {way}, until {expires_at}\n")
    }
}

/// Runs `whoami`.
pub(crate) fn whoami(choice: &Choice, options: Shown, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let (me, list) = runtime::block_on(async {
        let me = account.broker.me().await?;
        Ok::<_, Error>((me, account.broker.own_workspaces().await?))
    })??;
    let session = Sessions::new(&account.paths, &account.identity, world).read()?;
    let shown = WhoAmI {
        tokens: Token::of(&account.paths, &account.identity, world.clock.now()),
        broker: account.identity.broker,
        profile: account.identity.profile,
        me,
        storage: session.map(|session| session.storage),
        workspaces: list.items,
    };
    output::show(world, options.output, &shown, table)
}

fn table(it: &WhoAmI) -> String {
    let profile = it.profile.as_ref().map(|name| format!(" (profile {name})"));
    let kept = it.storage.map_or("", |storage| match storage {
        Storage::Keyring => ", kept in the keyring",
        Storage::File => ", kept in a file",
        Storage::None => ", not kept",
    });
    let provider = it.me.provider.as_ref().map(|provider| match &provider.username {
        Some(name) => output::plain(&format!(", {name} at {}", provider.name)),
        None => output::plain(&format!(", of {}", provider.name)),
    });
    let mut text = format!(
        "{} ({}{}) at {}{}\nSession until {}{kept}\n",
        output::plain(&it.me.email),
        it.me.role.as_str(),
        provider.unwrap_or_default(),
        it.broker,
        profile.unwrap_or_default(),
        it.me.session_expires_at
    );
    text.extend(it.workspaces.iter().map(|workspace| {
        output::plain(&format!(
            "Workspace {} in {} ({}, {})",
            workspace.namespace,
            workspace.cluster,
            workspace.tier,
            workspace.status.as_str()
        )) + "\n"
    }));
    text.extend(it.tokens.iter().map(Token::line));
    text
}
