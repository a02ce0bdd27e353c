//! What the cluster is: its version, its clock, its policies, its tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tenant_shared::TOKEN_LIFETIME_SECONDS;

use super::Check;
use crate::{
    clock::Clock,
    cluster::{Cluster, ClusterError, ServerFacts},
    install::{self, Parameters},
    problem::chain,
};

/// The first release with `ValidatingAdmissionPolicy` as `v1`.
const FIRST_WITH_POLICIES: (u32, u32) = (1, 30);
/// Clocks apart by more make tokens and sessions end at the wrong time.
const MOST_SKEW_SECONDS: i64 = 5;
/// An API server lets a token live so much longer than it says; clocks further apart break tokens.
const LEEWAY_SECONDS: i64 = 60;

pub(super) async fn server(
    cluster: &Cluster,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let facts = cluster.server_facts().await?;
    checks.extend(judge_server(&facts, clock.now()));
    Ok(())
}

fn judge_server(facts: &ServerFacts, now: Timestamp) -> [Check; 3] {
    let title = "it knows ValidatingAdmissionPolicy";
    let release = match facts.release {
        Some(release) if release >= FIRST_WITH_POLICIES => Check::passed(title, ""),
        Some(_) => Check::failed(
            title,
            "older than 1.30: nothing keeps a stolen credential inside the tenants' namespaces, \
             and tenants may make tokens that never end; upgrade the cluster",
        ),
        None => {
            Check::warned(title, "its version has no numbers: see whether the policies are there")
        }
    };
    let clocks = match facts.clock {
        None => Check::warned("the clocks agree", "the API server does not tell its time"),
        Some(there) => {
            let skew = (there.as_second() - now.as_second()).abs();
            let detail = format!("{skew} s apart: let both follow NTP");
            if skew <= MOST_SKEW_SECONDS {
                Check::passed("the clocks agree", "")
            } else if skew <= LEEWAY_SECONDS {
                Check::warned("the clocks agree", detail)
            } else {
                Check::failed("the clocks agree", detail)
            }
        }
    };
    [Check::passed("the API server answers", facts.version.clone()), release, clocks]
}

pub(super) async fn policies(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let faults = install::faults(cluster, parameters).await?;
    let title = "the broker is held by the policies of this version";
    if faults.is_empty() {
        checks.push(Check::passed(title, format!("{} policies", parameters.policies().len())));
    }
    checks.extend(faults.into_iter().map(|fault| Check::failed(title, fault)));
    Ok(())
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Asks for one token of some workspace, looks at it, and drops it. It is the only way to see how
/// the API server signs and how long it lets tokens live.
pub(super) async fn tokens(
    cluster: &Cluster,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let title = "can ask for a tenant's token";
    let Some((namespace, uid)) = cluster.some_workspace().await? else {
        checks.push(Check::warned(title, "there is no workspace yet to try it with"));
        return Ok(());
    };
    let issued = match cluster.request_token(&namespace, &uid, None).await {
        Ok(issued) => issued,
        Err(error @ ClusterError::Unavailable(_)) => return Err(error),
        Err(error) => {
            checks.push(Check::failed(title, chain(&error)));
            return Ok(());
        }
    };
    checks.push(Check::passed(title, format!("tried in {namespace}, and dropped")));
    let title = "its tokens live two hours";
    checks.push(if issued.lifetime == TOKEN_LIFETIME_SECONDS {
        Check::passed(title, "")
    } else {
        Check::warned(
            title,
            format!(
                "the API server allows {} s (--service-account-max-token-expiration): the plugin \
                 renews sooner",
                issued.lifetime
            ),
        )
    });
    let left = issued.expires_at.as_second() - clock.now().as_second();
    let skew = (left - i64::from(issued.lifetime)).abs();
    if skew > LEEWAY_SECONDS {
        checks.push(Check::failed("its tokens are good at once", format!("{skew} s off")));
    }
    checks.push(judge_algorithm(algorithm(&issued.token).as_deref()));
    Ok(())
}

fn judge_algorithm(algorithm: Option<&str>) -> Check {
    let title = "it signs tokens with an EC key";
    match algorithm {
        Some(alg) if alg.starts_with("ES") => Check::passed(title, alg),
        Some(alg) => Check::warned(
            title,
            format!(
                "{alg}: a token costs the API server more than twice as much; give it a P-256 key \
                 (--service-account-signing-key-file)"
            ),
        ),
        None => Check::warned(title, "the token has no readable header"),
    }
}

/// The `alg` of a JWT's header (RFC 7515 section 4.1.1).
fn algorithm(token: &SecretString) -> Option<String> {
    let header = token.expose_secret().split('.').next()?;
    let header: Header = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
    Some(header.alg.chars().filter(char::is_ascii_alphanumeric).take(16).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Outcome;

    fn facts(release: Option<(u32, u32)>, clock: Option<i64>) -> ServerFacts {
        let clock = clock.map(|second| Timestamp::from_second(second).unwrap());
        ServerFacts { version: "v1".into(), release, clock }
    }

    #[test]
    fn a_server_that_is_too_old_or_has_another_time() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (release, outcome) in [
            (Some((1, 29)), Outcome::Fail),
            (Some((1, 30)), Outcome::Pass),
            (Some((2, 0)), Outcome::Pass),
            (None, Outcome::Warn),
        ] {
            assert_eq!(judge_server(&facts(release, None), now)[1].outcome, outcome);
        }
        for (clock, outcome) in [
            (Some(1_000_003), Outcome::Pass),
            (Some(999_950), Outcome::Warn),
            (Some(1_000_100), Outcome::Fail),
            (None, Outcome::Warn),
        ] {
            assert_eq!(judge_server(&facts(None, clock), now)[2].outcome, outcome);
        }
    }

    #[test]
    fn a_signature_that_is_slow() {
        let token = |header: &str| format!("{}.e30.x", URL_SAFE_NO_PAD.encode(header)).into();
        for (token, outcome) in [
            (token(r#"{"alg":"ES256"}"#), Outcome::Pass),
            (token(r#"{"alg":"RS256","kid":"x"}"#), Outcome::Warn),
            (token("{}"), Outcome::Warn),
            ("no token".to_owned().into(), Outcome::Warn),
        ] {
            assert_eq!(judge_algorithm(algorithm(&token).as_deref()).outcome, outcome);
        }
    }
}
