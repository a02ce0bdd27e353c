//! The forms about tenants. A refusal is shown on the account page.

use poem::{
    Response,
    http::{StatusCode, header},
};
use tenant_shared::CreateNamespaceRequest;

use super::{AccountPages, endpoint::Form, page, tenants_section::FormRefusal};
use crate::{
    http::{ApiError, page::see_other},
    identity::Caller,
    tenant::TenantName,
    tenant_operations::{TenantError, TenantOperations},
};

/// Field with the name of the tenant.
const TENANT: &str = "tenant";
/// Field with the name of a new namespace.
const NAMESPACE: &str = "namespace";

/// Makes the user a member of a tenant.
pub(super) async fn join(
    account: AccountPages,
    caller: Caller,
    form: Form,
) -> Result<Response, ApiError> {
    let (tenants, name) = tenant_of(&account, &form)?;
    let joined = tenants.join(&caller, &name).await.map(drop);
    respond(&account, &caller, &form, joined).await
}

/// Creates a namespace of a tenant that the user owns.
pub(super) async fn create_namespace(
    account: AccountPages,
    caller: Caller,
    form: Form,
) -> Result<Response, ApiError> {
    let (tenants, name) = tenant_of(&account, &form)?;
    let request = CreateNamespaceRequest {
        name: form.value(NAMESPACE).trim().to_owned(),
        ..CreateNamespaceRequest::default()
    };
    let created = tenants.create_namespace(&caller, &name, &request).await.map(drop);
    respond(&account, &caller, &form, created).await
}

/// The service, and the tenant that a form names.
fn tenant_of<'a>(
    account: &'a AccountPages,
    form: &Form,
) -> Result<(&'a TenantOperations, TenantName), ApiError> {
    let Some(tenants) = &account.tenants else {
        return Err(ApiError::from_status(StatusCode::NOT_FOUND, ""));
    };
    let name = form.value(TENANT).parse::<TenantName>().map_err(|_| TenantError::NotFound)?;
    Ok((tenants, name))
}

/// Redirects to the page if the form was carried out. If it was refused, responds with the page and
/// the reason. A failure gets a page of its own, which has the request id.
async fn respond(
    account: &AccountPages,
    caller: &Caller,
    form: &Form,
    done: Result<(), TenantError>,
) -> Result<Response, ApiError> {
    let Err(error) = done else { return Ok(see_other("/account")) };
    let error = ApiError::from(error);
    let problem = error.problem();
    let status = match StatusCode::from_u16(problem.status) {
        Ok(status) if status.is_client_error() && status != StatusCode::UNAUTHORIZED => status,
        _ => return Err(error),
    };
    let refusal = FormRefusal {
        tenant: form.value(TENANT).to_owned(),
        namespace: form.value(NAMESPACE).to_owned(),
        text: problem.detail,
        status,
    };
    let mut response = page::render(account, caller, Some(refusal)).await?;
    if let Some(seconds) = error.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    Ok(response)
}
