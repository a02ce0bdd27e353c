//! `POST /users/{id}/email`

use poem_openapi::{OpenApi, param::Path, payload::Json};
use tenant_shared::{ChangeEmailRequest, UserInfo};
use uuid::Uuid;

use crate::{
    audit::Action,
    http::{ApiError, Authenticated, OptionalJson},
    user::Users,
};

/// `changeEmailOfUser`.
#[derive(Debug)]
pub struct ChangeEmailOfUser {
    pub(super) users: Users,
}

#[OpenApi(prefix_path = "/users")]
impl ChangeEmailOfUser {
    /// Change a user's e-mail address
    ///
    /// Frees an address that somebody registered without owning it, so that its owner can sign in
    /// through a provider. Sessions, workspaces and the audit trail stay unchanged; suspend the
    /// user to keep them out. The caller vouches for the address, so that owners of Tenants can be
    /// named by it. A user of a provider gets the provider's address again when they sign in or
    /// renew their session. The request body is optional.
    #[oai(path = "/:id/email", method = "post", operation_id = "changeEmailOfUser")]
    async fn change_email(
        &self,
        caller: Authenticated,
        /// Identifier of the user.
        id: Path<Uuid>,
        request: OptionalJson<ChangeEmailRequest>,
    ) -> Result<Json<UserInfo>, ApiError> {
        let permit = self.users.authorize_audited(&caller.0, id.0, Action::ChangeEmail).await?;
        let ChangeEmailRequest { email, reason } = request.0;
        let changed = self.users.change_email(&permit, id.0, email.as_deref(), reason.as_deref());
        Ok(Json(changed.await?))
    }
}
