//! The story of `get-token`: what kubectl runs before a request.
//!
//! 1. Read the cached token, without a lock, a network, a runtime. Good: print it, end.
//! 2. Otherwise take the lock of this token, look again, ask the broker, store, print.
//!
//! A token is renewed when less than ten minutes are left, and when the API server must have
//! refused it: client-go runs the plugin again inside the same process after a 401, so the same
//! parent asking twice for one unexpired token means that it was of no use.
//! Background: KEP-541 (exec credential plugins) and client-go's `plugin/pkg/client/auth/exec`.

mod cache;
mod failure;
mod mint;

use secrecy::ExposeSecret;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tenant_shared::ExecInfo;
use uuid::Uuid;

use crate::{
    broker_url::BrokerUrl,
    error::{Error, Kind},
    paths::Paths,
    world::{Parent, World},
};

pub(crate) use cache::{Cache, CachedToken};
pub(crate) use failure::{Failure, Failures};

/// Kubectl is told that a token ends this many seconds before it does: on its way to the API
/// server it must not die. The same number of seconds is the least that a served token has left.
pub(crate) const MARGIN: i64 = 60;
/// With less than this many seconds left a token is renewed ahead of time.
const RENEW_AHEAD: i64 = 10 * 60;
/// A token that the API server seems to refuse is replaced at most once in this many seconds.
const REFUSED_PAUSE: i64 = 10;

/// What `get-token` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) broker: BrokerUrl,
    pub(crate) cluster: String,
    pub(crate) workspace: Uuid,
    /// Get a new token, whatever is cached.
    pub(crate) force: bool,
}

impl Request {
    /// The name of this token's files: SHA-256, in hex, of the canonical JSON of what the token is
    /// for. It depends on nothing else, neither on flags nor on their order.
    pub(crate) fn key(&self) -> String {
        let mut workspace = uuid::Uuid::encode_buffer();
        let workspace = self.workspace.hyphenated().encode_lower(&mut workspace);
        hash(&[self.broker.as_str(), &self.cluster, workspace])
    }
}

/// SHA-256, in hex, of a JSON array of strings.
pub(crate) fn hash(parts: &[&str]) -> String {
    // A list of strings can always be written.
    let canonical = serde_json::to_vec(parts).unwrap_or_default();
    hex(&Sha256::digest(canonical))
}

/// Bytes in lower-case hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// What the cached token is good for.
#[derive(Debug)]
enum Verdict {
    /// Print it.
    Serve(CachedToken),
    /// Get a new one, but this one will do if the broker cannot be reached.
    RenewAhead(CachedToken),
    /// Get a new one: this one, though not expired, seems to be refused by the API server.
    Refused(CachedToken),
    /// Get a new one.
    Missing,
}

impl Verdict {
    /// Whether the old token can take the place of a new one that could not be had.
    fn survives(&self, kind: Kind) -> bool {
        match self {
            Self::RenewAhead(_) => kind != Kind::Refused,
            // Some clients ask more often than they need, so a refusal is only a suspicion, and
            // no reason to withhold the token while nobody can give a better one.
            Self::Refused(_) => matches!(kind, Kind::Unreachable | Kind::Other),
            Self::Serve(_) | Self::Missing => false,
        }
    }

    /// The old token.
    fn token(self) -> Option<CachedToken> {
        match self {
            Self::Serve(token) | Self::RenewAhead(token) | Self::Refused(token) => Some(token),
            Self::Missing => None,
        }
    }

    /// Which credential is no longer wanted.
    fn unwanted(&self) -> Option<&str> {
        match self {
            Self::RenewAhead(token) | Self::Refused(token) => Some(&token.credential_id),
            Self::Serve(_) | Self::Missing => None,
        }
    }
}

/// Judges a cached token.
fn judge(token: Option<CachedToken>, now: i64, parent: Option<Parent>) -> Verdict {
    let Some(token) = token else { return Verdict::Missing };
    if !token.is_usable(now) {
        return Verdict::Missing;
    }
    let asked_before = parent.is_some_and(|parent| token.was_served_to(parent));
    if asked_before && now - token.received_at >= REFUSED_PAUSE {
        return Verdict::Refused(token);
    }
    // A token that never lived long is not renewed at every call.
    if token.expires_at - now < RENEW_AHEAD.min((token.expires_at - token.received_at) / 4) {
        return Verdict::RenewAhead(token);
    }
    Verdict::Serve(token)
}

/// Runs `get-token`.
pub(crate) fn get_token(request: &Request, world: &mut World) -> Result<(), Error> {
    let info = exec_info(world)?;
    let cache = Cache::new(&Paths::tokens(&world.env)?, &request.key(), &world.stderr);
    // Without KUBERNETES_EXEC_INFO a shell is the parent, and asks as often as it likes.
    let parent = info.and_then(|_| (world.parent)());
    let found = if request.force { None } else { cache.read()? };
    let mut token = match judge(found, world.clock.now(), parent) {
        Verdict::Serve(token) => token,
        verdict => renew(request, &cache, verdict, parent, info, world)?,
    };
    token.mark_served_to(parent);
    world.print(&document(info, &token)?)
}

/// The one document on stdout: [`tenant_shared::ExecCredential`] with borrowed parts.
fn document(info: Option<ExecInfo>, token: &CachedToken) -> Result<String, Error> {
    #[derive(Serialize)]
    struct Document<'a> {
        #[serde(rename = "apiVersion")]
        api_version: &'static str,
        kind: &'static str,
        status: Status<'a>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Status<'a> {
        expiration_timestamp: &'a str,
        token: &'a str,
    }
    let document = Document {
        api_version: info.unwrap_or_default().api_version.as_str(),
        kind: "ExecCredential",
        status: Status { expiration_timestamp: &token.stamp, token: token.token.expose_secret() },
    };
    let mut text = serde_json::to_string(&document)
        .map_err(|error| Error::other(format!("cannot write the credential: {error}")))?;
    text.push('\n');
    Ok(text)
}

/// What kubectl says about itself; [`None`] when a person calls.
fn exec_info(world: &World) -> Result<Option<ExecInfo>, Error> {
    match world.env.get("KUBERNETES_EXEC_INFO") {
        None => Ok(None),
        Some(text) => ExecInfo::parse(&text.to_string_lossy()).map(Some).map_err(|error| {
            Error::other(error.to_string())
                .hint("in the kubeconfig use apiVersion: client.authentication.k8s.io/v1")
        }),
    }
}

/// Everything that is not a hit: gets a new token, or explains in one line why there is none.
fn renew(
    request: &Request,
    cache: &Cache,
    verdict: Verdict,
    parent: Option<Parent>,
    info: Option<ExecInfo>,
    world: &mut World,
) -> Result<CachedToken, Error> {
    let paths = Paths::of(&world.env)?;
    let failures = Failures::new(&paths);
    let known = failures.read(&request.key()).filter(|_| !request.force);
    if let Some(known) = known {
        let now = world.clock.now();
        let survives = verdict.survives(known.kind);
        if !survives && known.was_told_to(parent, now) {
            // kubectl runs a failing plugin five times in a row: the answer is still the same.
            return Err(Error { hint: None, ..known.error() });
        }
        if survives && known.is_outage(now) {
            // The broker was not there a moment ago: nobody waits for it again so soon.
            return verdict.token().ok_or_else(|| known.error());
        }
    }
    let interactive = info.is_some_and(|info| info.interactive);
    match mint::mint(request, cache, verdict.unwanted(), interactive, &paths, world) {
        Ok(token) => {
            failures.clear(&request.key());
            Ok(token)
        }
        Err(error) => {
            failures.write(request, &error, world.clock.now(), parent);
            if verdict.survives(error.kind) { verdict.token().ok_or(error) } else { Err(error) }
        }
    }
}
