//! Checks of the cluster: version, clock, admission policies, tokens.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tenant_shared::{SERVICE_ACCOUNT_NAME, TOKEN_LIFETIME_SECONDS};

use super::Check;
use crate::{
    base::{clock::Clock, error_chain},
    cluster::{Cluster, ClusterError, SampleWorkspace, ServerInfo},
    install::{self, Parameters},
};

/// The first release with `ValidatingAdmissionPolicy` as `v1`.
const MIN_RELEASE: (u32, u32) = (1, 30);
/// Clock skew from which on tokens and sessions end noticeably at the wrong time.
const MAX_CLOCK_SKEW_SECONDS: i64 = 5;
/// The leeway of the API server for the times in a token. A greater clock skew breaks tokens.
const LEEWAY_SECONDS: i64 = 60;

pub(super) async fn server(
    cluster: &Cluster,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let info = cluster.server_info().await?;
    checks.extend(server_checks(&info, clock.now()));
    Ok(())
}

fn server_checks(info: &ServerInfo, now: Timestamp) -> [Check; 3] {
    let title = "it serves ValidatingAdmissionPolicy";
    let release = match info.release {
        Some(release) if release >= MIN_RELEASE => Check::passed(title, ""),
        Some(_) => Check::failed(
            title,
            "older than 1.30: nothing confines a stolen credential to the tenants' namespaces, and \
             tenants may create tokens that never expire; upgrade the cluster",
        ),
        None => {
            Check::warned(title, "its version has no numbers: check whether it serves the policies")
        }
    };
    let clocks = match info.clock {
        None => Check::warned("the clocks agree", "the response of the API server has no Date"),
        Some(there) => {
            let skew = (there.as_second() - now.as_second()).abs();
            let detail = format!("the clocks differ by {skew} s: synchronise both with NTP");
            if skew <= MAX_CLOCK_SKEW_SECONDS {
                Check::passed("the clocks agree", "")
            } else if skew <= LEEWAY_SECONDS {
                Check::warned("the clocks agree", detail)
            } else {
                Check::failed("the clocks agree", detail)
            }
        }
    };
    [Check::passed("the API server answers", info.version.clone()), release, clocks]
}

pub(super) async fn policies(
    cluster: &Cluster,
    parameters: &Parameters,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let faults = install::faults(cluster, parameters).await?;
    let title = "the admission policies of this version are in force";
    if faults.is_empty() {
        checks.push(Check::passed(title, format!("{} policies", parameters.policies().len())));
    }
    for fault in faults {
        let detail = format!("{fault}; run tenant-broker install --apply");
        checks.push(Check::failed(title, detail));
    }
    Ok(())
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Requests a token of any workspace, inspects it, and drops it. This is the only way to learn how
/// the API server signs tokens and how it limits their lifetime.
pub(super) async fn tokens(
    cluster: &Cluster,
    clock: &Clock,
    checks: &mut Vec<Check>,
) -> Result<(), ClusterError> {
    let title = "can ask for a tenant's token";
    let (namespace, uid) = match cluster.some_workspace().await? {
        Some(SampleWorkspace { namespace, account_uid: Some(uid) }) => (namespace, uid),
        Some(SampleWorkspace { namespace, account_uid: None }) => {
            checks.push(Check::warned(
                title,
                format!(
                    "{namespace} has no {SERVICE_ACCOUNT_NAME} to try it with: the broker recreates \
                     one that was deleted within drift_seconds; run this again, and if it is still \
                     missing, see kubectl tenant workspaces --all"
                ),
            ));
            return Ok(());
        }
        None => {
            checks.push(Check::warned(
                title,
                "there is no workspace yet, or all are suspended: run this again when there is one",
            ));
            return Ok(());
        }
    };
    let issued = match cluster.request_token(&namespace, SERVICE_ACCOUNT_NAME, &uid, None).await {
        Ok(issued) => issued,
        Err(error @ ClusterError::Unavailable(_)) => return Err(error),
        Err(error) => {
            checks.push(Check::failed(title, error_chain(&error)));
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
        checks.push(Check::failed("its tokens are valid at once", format!("{skew} s off")));
    }
    checks.push(algorithm_check(algorithm(&issued.token).as_deref()));
    Ok(())
}

fn algorithm_check(algorithm: Option<&str>) -> Check {
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
    use crate::doctor::CheckOutcome;

    fn info(release: Option<(u32, u32)>, clock: Option<i64>) -> ServerInfo {
        let clock = clock.map(|second| Timestamp::from_second(second).unwrap());
        ServerInfo { version: "v1".into(), release, clock }
    }

    #[test]
    fn old_servers_and_clock_skew_are_reported() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (release, outcome) in [
            (Some((1, 29)), CheckOutcome::Fail),
            (Some((1, 30)), CheckOutcome::Pass),
            (Some((2, 0)), CheckOutcome::Pass),
            (None, CheckOutcome::Warn),
        ] {
            assert_eq!(server_checks(&info(release, None), now)[1].outcome, outcome);
        }
        for (clock, outcome) in [
            (Some(1_000_003), CheckOutcome::Pass),
            (Some(999_950), CheckOutcome::Warn),
            (Some(1_000_100), CheckOutcome::Fail),
            (None, CheckOutcome::Warn),
        ] {
            assert_eq!(server_checks(&info(None, clock), now)[2].outcome, outcome);
        }
    }

    #[test]
    fn a_slow_signature_algorithm_is_reported() {
        let token = |header: &str| format!("{}.e30.x", URL_SAFE_NO_PAD.encode(header)).into();
        for (token, outcome) in [
            (token(r#"{"alg":"ES256"}"#), CheckOutcome::Pass),
            (token(r#"{"alg":"RS256","kid":"x"}"#), CheckOutcome::Warn),
            (token("{}"), CheckOutcome::Warn),
            ("no token".to_owned().into(), CheckOutcome::Warn),
        ] {
            assert_eq!(algorithm_check(algorithm(&token).as_deref()).outcome, outcome);
        }
    }
}
