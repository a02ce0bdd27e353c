//! The commands about the person: `whoami`, `logout`.

use std::path::Path;

use secrecy::SecretString;
use serde::Serialize;
use tenant_shared::{Me, WireTime, Workspace};

use crate::{
    broker::Broker,
    broker_url::BrokerUrl,
    cli::Shown,
    credential::{Cache, Failures, belongs_to},
    error::Error,
    http::Http,
    identity::{Identity, ProfileName},
    lock, oidc, output,
    paths::Paths,
    runtime,
    store::{Choice, Profiles, Session, Sessions},
    workspace,
    world::World,
};

/// A person at a broker: what every command that asks the broker begins with.
pub(crate) struct Account {
    pub(crate) paths: Paths,
    pub(crate) profiles: Profiles,
    pub(crate) identity: Identity,
    pub(crate) broker: Broker,
}

impl Account {
    /// Chooses the account and makes sure that there is a session.
    pub(crate) fn open(choice: &Choice, world: &World) -> Result<Self, Error> {
        let paths = Paths::of(&world.env)?;
        let profiles = Profiles::read(&paths.config, &world.stderr)?;
        let identity = profiles.choose(choice, &world.env)?;
        if !Sessions::new(&paths, &identity, world).exists() {
            return Err(Error::sign_in(&identity, "there is no session on this machine"));
        }
        let ca = profiles.ca_file(&identity, &world.env);
        let broker = Broker::new(&identity, ca.as_deref(), &paths, world)?;
        Ok(Self { paths, profiles, identity, broker })
    }
}

/// What `whoami` shows: the API's `Me`, and what belongs to it.
#[derive(Serialize)]
struct WhoAmI {
    broker: BrokerUrl,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileName>,
    #[serde(flatten)]
    me: Me,
    workspaces: Vec<Workspace>,
    /// Cached Kubernetes tokens.
    tokens: Vec<Token>,
}

/// A cached Kubernetes token, without the token.
#[derive(Serialize)]
pub(crate) struct Token {
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
                cluster: facts.cluster,
                workspace: facts.workspace,
                credential_id: facts.credential_id,
                expires_at: output::time(facts.expires_at),
            })
            .collect()
    }

    /// One line for people.
    pub(crate) fn line(&self) -> String {
        format!("Token for {} in {} until {}\n", self.workspace, self.cluster, self.expires_at)
    }
}

/// Runs `whoami`.
pub(crate) fn whoami(choice: &Choice, options: Shown, world: &mut World) -> Result<(), Error> {
    let account = Account::open(choice, world)?;
    let (me, list) = runtime::block_on(async {
        let me = account.broker.me().await?;
        Ok::<_, Error>((me, account.broker.workspaces(false).await?))
    })??;
    let shown = WhoAmI {
        tokens: Token::of(&account.paths, &account.identity, world.clock.now()),
        broker: account.identity.broker,
        profile: account.identity.profile,
        me,
        workspaces: list.items,
    };
    output::show(world, options.output, &shown, |it| {
        let mut text = format!(
            "{} ({}) at {}\nSession until {}\n",
            it.me.email,
            it.me.role.as_str(),
            it.broker,
            it.me.session_expires_at
        );
        text.extend(it.tokens.iter().map(Token::line));
        text + "\n" + &workspace::table(&it.workspaces)
    })
}

/// Runs `logout`: the broker first, so that what is deleted here works nowhere else either.
pub(crate) fn logout(choice: &Choice, world: &mut World) -> Result<(), Error> {
    let paths = Paths::of(&world.env)?;
    let profiles = Profiles::read(&paths.config, &world.stderr)?;
    let identity = profiles.choose(choice, &world.env)?;
    let sessions = Sessions::new(&paths, &identity, world);
    let (session, revoked) = runtime::block_on(async {
        // A renewal that is under way would put back what is deleted here. One that does not end
        // must not keep anybody from signing out.
        let _lock = lock::acquire(sessions.lock_path(), lock::LONGEST_WAIT, || None::<()>).await?;
        let session = sessions.read()?;
        let revoked = match &session {
            None => Ok(()),
            Some(session) => {
                let ca = profiles.ca_file(&identity, &world.env);
                match sessions.refresh_token(session) {
                    Ok(Some(token)) => revoke(session, &token, &identity, ca.as_deref()).await,
                    // It ends there by itself.
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        sessions.remove()?;
        Ok::<_, Error>((session, revoked))
    })??;
    Cache::forget(&paths.tokens(), &identity)?;
    Failures::new(&paths).forget(&identity);
    if let Err(error) = revoked {
        world.say(format!(
            "warning: the session could not be ended at {identity} ({error}); it is deleted here and \
             ends there by itself"
        ));
    }
    world.say(if session.is_some() {
        format!("Signed out at {identity}. The entries in the kubeconfig are still there.")
    } else {
        format!("Nobody was signed in at {identity}.")
    });
    Ok(())
}

async fn revoke(
    session: &Session,
    refresh_token: &SecretString,
    identity: &Identity,
    ca: Option<&Path>,
) -> Result<(), Error> {
    let endpoint = session
        .revocation_endpoint
        .as_ref()
        .ok_or_else(|| Error::other("it has no way to end a session"))?;
    oidc::revoke(&Http::new(identity, ca)?, endpoint, refresh_token).await
}
