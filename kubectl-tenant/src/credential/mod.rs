//! The story of `get-token` when it is not a hit.
//!
//! [`tenant_cached_token`] has looked and found nothing to print: the token is missing, about to
//! end, refused by the API server, or there is something to say about its file. So: look again,
//! aloud; take the lock of this token; look once more; ask the broker; store; print.
//!
//! Background: KEP-541 (exec credential plugins) and client-go's `plugin/pkg/client/auth/exec`.

mod cache;
mod failure;
mod mint;

use tenant_cached_token::{self as cached, CachedToken, EXEC_INFO_ENV, Facts, Parent, Verdict};
use tenant_shared::ExecInfo;
use uuid::Uuid;

use crate::{
    error::{Error, Kind},
    identity::{Identity, ProfileName},
    machine::Machine,
    paths::Paths,
    world::World,
};

pub(crate) use cache::{Cache, belongs_to, mode};
pub(crate) use failure::{Failure, Failures};

/// The machine that asks, with its token as it is now.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    machine: Machine,
    /// Under what its Kubernetes tokens are cached.
    cache_name: String,
}

impl Job {
    /// Reads the token.
    pub(crate) fn of(machine: &Machine) -> Result<Self, Error> {
        Ok(Self { cache_name: machine.token()?.cache_name(), machine: machine.clone() })
    }
}

/// What `get-token` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) identity: Identity,
    /// Set if a machine asks in the place of a person.
    pub(crate) machine: Option<Job>,
    pub(crate) cluster: String,
    pub(crate) workspace: Uuid,
    /// For the broker's gateway: an access token that is good for the gateway only.
    pub(crate) gateway: bool,
    /// Get a new token, whatever is cached.
    pub(crate) force: bool,
}

impl Request {
    /// The name of this token in the cache.
    pub(crate) fn key(&self) -> String {
        self.in_canonical_form(|request| request.key())
    }

    /// The name of its lock and of what failed last: the same for all machines, for a CI provider
    /// gives every job claims of its own, and neither file is ever cleared away.
    pub(crate) fn place(&self) -> String {
        Self { machine: None, ..self.clone() }.key()
    }

    /// The request as the cache knows it.
    fn in_canonical_form<T>(&self, use_it: impl FnOnce(cached::Request<'_>) -> T) -> T {
        let mut buffer = Uuid::encode_buffer();
        let workspace = self.workspace.hyphenated().encode_lower(&mut buffer);
        use_it(cached::Request {
            broker: self.identity.broker.as_str(),
            cluster: &self.cluster,
            workspace,
            profile: match &self.machine {
                Some(job) => Some(&job.cache_name),
                None => self.identity.profile.as_ref().map(ProfileName::as_str),
            },
            gateway: self.gateway,
        })
    }
}

/// Whether the old token can take the place of a new one that could not be had.
fn survives(verdict: &Verdict, kind: Kind) -> bool {
    match verdict {
        Verdict::RenewAhead(_) => kind != Kind::Refused,
        // Some clients ask more often than they need, so a refusal is only a suspicion, and no
        // reason to withhold the token while nobody can give a better one.
        Verdict::Refused(_) => matches!(kind, Kind::Unreachable | Kind::Other),
        Verdict::Serve(_) | Verdict::Missing => false,
    }
}

/// The old token.
fn old(verdict: Verdict) -> Option<CachedToken> {
    match verdict {
        Verdict::Serve(token) | Verdict::RenewAhead(token) | Verdict::Refused(token) => Some(token),
        Verdict::Missing => None,
    }
}

/// Which credential is no longer wanted.
fn unwanted(verdict: &Verdict) -> Option<&Facts> {
    match verdict {
        Verdict::RenewAhead(token) | Verdict::Refused(token) => Some(&token.facts),
        Verdict::Serve(_) | Verdict::Missing => None,
    }
}

/// Runs `get-token`.
pub(crate) fn get_token(request: &Request, world: &mut World) -> Result<(), Error> {
    let info = exec_info(world)?;
    let paths = Paths::of(&world.env)?;
    let cache = Cache::new(&paths, &request.key(), &world.stderr);
    // Without KUBERNETES_EXEC_INFO a shell is the parent, and asks as often as it likes.
    let parent = info.and_then(|_| (world.parent)());
    let found = if request.force { None } else { cache.read()? };
    let mut token = match cached::judge(found, world.clock.now(), parent) {
        Verdict::Serve(token) => token,
        verdict => renew(request, &cache, verdict, (parent, info), &paths, world)?,
    };
    token.mark_served_to(parent);
    let document = cached::document(info, &token)
        .map_err(|error| Error::other(format!("cannot write the credential: {error}")))?;
    world.print(&document)
}

/// What kubectl says about itself; [`None`] when a person calls.
fn exec_info(world: &World) -> Result<Option<ExecInfo>, Error> {
    match world.env.get(EXEC_INFO_ENV) {
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
    (parent, info): (Option<Parent>, Option<ExecInfo>),
    paths: &Paths,
    world: &mut World,
) -> Result<CachedToken, Error> {
    let failures = Failures::new(paths);
    let known = failures.read(&request.place()).filter(|_| !request.force);
    if let Some(known) = known {
        let now = world.clock.now();
        let survives = survives(&verdict, known.kind);
        if !survives && known.was_told_to(parent, now) {
            // kubectl runs a failing plugin five times in a row: the answer is still the same.
            return Err(Error { hint: None, ..known.error() });
        }
        if survives && known.is_outage(now) {
            // The broker was not there a moment ago: nobody waits for it again so soon.
            return old(verdict).ok_or_else(|| known.error());
        }
    }
    let interactive = info.is_some_and(|info| info.interactive);
    match mint::mint(request, cache, unwanted(&verdict), interactive, paths, world) {
        Ok(token) => {
            failures.clear(&request.place());
            Ok(token)
        }
        Err(error) => {
            failures.write(request, &error, world.clock.now(), parent);
            if survives(&verdict, error.kind) { old(verdict).ok_or(error) } else { Err(error) }
        }
    }
}
