//! The bearer token of the HTTP API.

use poem::Request;
use poem_openapi::SecurityScheme;

use super::{Caller, Identity};
use crate::problem::Failure;

/// An access token of the issuer, in `Authorization: Bearer` (RFC 6750). As the first parameter of
/// an operation it has a stranger refused before anything else of the request is read.
#[derive(Debug, SecurityScheme)]
#[oai(ty = "bearer", checker = "check")]
pub struct Bearer(pub Caller);

/// The checker is a free function that sees nothing but the request, so [`Identity`] travels as the
/// request's data; the composition root puts it there.
async fn check(request: &Request, bearer: poem_openapi::auth::Bearer) -> poem::Result<Caller> {
    let Some(identity) = request.data::<Identity>() else {
        return Err(Failure::internal(&NoIdentity).into());
    };
    Ok(identity.caller(&bearer.token).await?)
}

#[derive(Debug, thiserror::Error)]
#[error("the composition root gave the API no Identity")]
struct NoIdentity;
