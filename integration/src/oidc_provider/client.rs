//! A certified OpenID client that uses an issuer: the other direction.

use std::time::Duration;

use anyhow::Result;

use super::install;
use crate::process::Program;
use crate::scratch::Scratch;

/// Time limit of the whole run.
const CLIENT_TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the certified client `openid-client` against an issuer as any stock client does: discovery,
/// authorization code with PKCE, userinfo, refresh, revocation, device grant. The arguments are the
/// issuer, the client's id and redirect URI, and a person's address and password. Returns one JSON
/// line for each step that succeeded.
///
/// # Errors
/// Node.js or npm is missing, or a step failed; the client's output is in the error.
pub async fn certified_client(arguments: [&str; 5]) -> Result<String> {
    let (node, scratch) = (install::node()?, Scratch::new("oidc-client")?);
    install::into(scratch.path()).await?;
    let program = Program::new(node).arg(scratch.path().join("client.mjs")).args(arguments);
    Ok(program.run(CLIENT_TIMEOUT).await?.success()?.stdout)
}
