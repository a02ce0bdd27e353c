//! The other direction: a certified client that uses an issuer.

use std::time::Duration;

use anyhow::Result;

use super::install;
use crate::process::Program;
use crate::scratch::Scratch;

/// How long all of it may take.
const LIMIT: Duration = Duration::from_mins(1);

/// Has the certified client `openid-client` use an issuer as any stock client does: discovery,
/// authorization code with PKCE, userinfo, refresh, revocation, device grant. The arguments are the
/// issuer, the client's id and redirect URI, and a person's address and password. Returns one JSON
/// line for each thing that worked.
///
/// # Errors
/// Node.js or npm is missing; something did not work, and the client's words are in the error.
pub async fn certified_client(arguments: [&str; 5]) -> Result<String> {
    let (node, scratch) = (install::node()?, Scratch::new("oidc-client")?);
    install::into(scratch.path()).await?;
    let program = Program::new(node).arg(scratch.path().join("client.mjs")).args(arguments);
    Ok(program.run(LIMIT).await?.success()?.stdout)
}
