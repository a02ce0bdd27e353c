//! Creation of a namespace by an owner of a tenant. The request is not forwarded, because RBAC would
//! allow all names or none: the broker creates the namespace with its limits and bindings.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming;
use k8s_openapi::api::core::v1::Namespace;
use tenant_shared::CreateNamespaceRequest;
use url::form_urlencoded;

use super::Representation;
use crate::{
    base::secret,
    gateway::{
        error::cancelled_request,
        kubernetes_api::{
            NamespaceRefusal, RefusalReason,
            namespace_object::{self, Format, NewNamespace},
            path::Target,
            status,
        },
        upstream_call::UpstreamCall,
    },
    http::ApiError,
    identity::Caller,
    tenant_operations::{TenantError, TenantOperations},
};

/// The limit of a namespace in a request, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024;
/// How long the response waits until the broker's copy of the cluster has the new namespace, so that
/// the client's next request finds its membership.
const KNOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often the copy is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A namespace was not created.
enum CreationError {
    /// The request is refused.
    Refused(NamespaceRefusal),
    /// The broker, the database or the cluster failed.
    Failed(ApiError),
}

impl From<NamespaceRefusal> for CreationError {
    fn from(refusal: NamespaceRefusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<ApiError> for CreationError {
    fn from(error: ApiError) -> Self {
        Self::Failed(error)
    }
}

/// Creates the namespace in a request for this target, with this body. A refusal is a response too.
///
/// # Errors
/// The broker, the database or the cluster failed; the body is incomplete; the request is cancelled.
pub(in crate::gateway) async fn respond(
    call: &UpstreamCall<'_>,
    headers: &HeaderMap,
    target: &Target<'_>,
    body: Option<Incoming>,
    request_id: &str,
) -> Result<Response<Bytes>, ApiError> {
    match create(call, headers, target, body).await {
        Ok(namespace) => {
            let json =
                serde_json::to_string(&namespace).map_err(|error| ApiError::internal(&error))?;
            Ok(status::json(StatusCode::CREATED, json))
        }
        Err(CreationError::Refused(refusal)) => Ok(refusal.response(request_id)),
        Err(CreationError::Failed(error)) => Err(error),
    }
}

async fn create(
    call: &UpstreamCall<'_>,
    headers: &HeaderMap,
    target: &Target<'_>,
    body: Option<Incoming>,
) -> Result<Namespace, CreationError> {
    let body = match body {
        Some(body) => call.read_request(body, MAX_BODY_BYTES, "namespace").await?,
        None => Bytes::new(),
    };
    let new = read_request(headers, target.path_and_query, &body)?;
    let is_apply = Format::of_request(headers) == Some(Format::Apply);
    if is_apply != target.name.is_some() {
        return Err(NamespaceRefusal::new(RefusalReason::UnsupportedMediaType, new.name).into());
    }
    if target.name.is_some_and(|name| name != new.name) {
        let text = "the name in the path is not that of the Namespace".to_owned();
        return Err(NamespaceRefusal::new(RefusalReason::BadRequest(text), new.name).into());
    }
    let Some(tenants) = &call.gateway.tenants else {
        let text = "this cluster has no tenants".to_owned();
        return Err(NamespaceRefusal::new(RefusalReason::Forbidden(text), new.name).into());
    };
    let name = new.name.clone();
    let created = tokio::select! {
        biased;
        reason = call.in_flight.closed() => return Err(cancelled_request(reason).into()),
        created = create_in_tenant(tenants, &call.principal.caller, new) => created,
    };
    // The caller may have become a member, also if the creation failed.
    call.gateway.principals.remove(call.presented);
    let created = created.map_err(|error| creation_error(error, &name))?;
    let known = async {
        while tenants.tenant_of_namespace(&name).is_none() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    let _ = tokio::time::timeout(KNOWN_TIMEOUT, known).await;
    Ok(created)
}

/// Reads the namespace of a request, and what the client expects.
fn read_request(
    headers: &HeaderMap,
    path_and_query: &str,
    body: &[u8],
) -> Result<NewNamespace, CreationError> {
    let refuse = |reason: RefusalReason| -> Result<NewNamespace, CreationError> {
        Err(NamespaceRefusal::new(reason, "").into())
    };
    // client-go sends `application/vnd.kubernetes.protobuf,application/json` with its typed clients
    // and `application/json` with the others, so JSON is always possible.
    if Representation::negotiate(headers).is_none() {
        return refuse(RefusalReason::NotAcceptable);
    }
    let Some(format) = Format::of_request(headers) else {
        return refuse(RefusalReason::UnsupportedMediaType);
    };
    let (_, query) = path_and_query.split_once('?').unwrap_or_default();
    if form_urlencoded::parse(query.as_bytes()).any(|(key, _)| key == "dryRun") {
        let text = "the gateway creates namespaces of tenants itself and has no dry run of it; send \
                    the request without dryRun";
        return refuse(RefusalReason::BadRequest(text.to_owned()));
    }
    let suffix = secret::random().map_err(|error| ApiError::internal(&error))?;
    Ok(namespace_object::parse(format, body, suffix)?)
}

async fn create_in_tenant(
    tenants: &TenantOperations,
    caller: &Caller,
    new: NewNamespace,
) -> Result<Namespace, TenantError> {
    let tenant = tenants.choose_tenant(caller, new.tenant.as_deref(), &new.name).await?;
    let NewNamespace { name, labels, annotations, .. } = new;
    let request = CreateNamespaceRequest { name, labels, annotations };
    tenants.create_namespace(caller, &tenant, &request).await
}

/// The error for the client, as the API server words it where the API server would refuse too.
fn creation_error(error: TenantError, name: &str) -> CreationError {
    let text = error.to_string();
    let reason = match error {
        TenantError::NamespaceExists { .. } => RefusalReason::AlreadyExists,
        TenantError::QuotaExceeded { .. }
        | TenantError::NotOwner { .. }
        | TenantError::NotActive { .. }
        | TenantError::NotFound
        | TenantError::NoTenant
        | TenantError::AmbiguousTenant(_) => RefusalReason::Forbidden(text),
        TenantError::InvalidName(_)
        | TenantError::MissingMetadata { .. }
        | TenantError::InvalidMetadata(_) => RefusalReason::Invalid(text),
        other => return CreationError::Failed(other.into()),
    };
    NamespaceRefusal::new(reason, name).into()
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header};
    use tenant_shared::Code;

    use super::*;

    const BODY: &[u8] = br#"{"metadata": {"name": "solar-a"}}"#;

    /// The status of a refusal; 0 if the request is read.
    fn status(headers: &[(header::HeaderName, &'static str)], query: &str) -> u16 {
        let headers = headers.iter().cloned();
        let headers: HeaderMap =
            headers.map(|(name, value)| (name, HeaderValue::from_static(value))).collect();
        match read_request(&headers, &format!("/api/v1/namespaces{query}"), BODY) {
            Ok(new) => {
                assert_eq!(new.name, "solar-a");
                0
            }
            Err(CreationError::Refused(refusal)) => refusal.response("r-1").status().as_u16(),
            Err(CreationError::Failed(error)) => panic!("{error}"),
        }
    }

    #[test]
    fn representations_that_are_no_json_are_refused() {
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (accept, expected) in [
            ("application/json", 0),
            ("application/vnd.kubernetes.protobuf,application/json", 0),
            ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", 0),
            ("*/*", 0),
            (protobuf, 406),
            ("application/yaml", 406),
        ] {
            assert_eq!(status(&[(header::ACCEPT, accept)], ""), expected, "{accept}");
        }
        assert_eq!(status(&[(header::CONTENT_TYPE, "application/yaml")], ""), 415);
        assert_eq!(status(&[(header::CONTENT_TYPE, protobuf)], ""), 400, "the body is JSON");
    }

    #[test]
    fn a_dry_run_creates_nothing() {
        assert_eq!(status(&[], "?fieldManager=kubectl-create&fieldValidation=Strict"), 0);
        for query in ["?dryRun=All", "?fieldManager=a&dryRun=", "?dry%52un=All"] {
            assert_eq!(status(&[], query), 400, "{query}");
        }
    }

    #[test]
    fn errors_of_tenants_have_the_statuses_of_the_api_server() {
        let solar = || "solar".parse().unwrap();
        for (error, expected) in [
            (
                TenantError::NamespaceExists { tenant: solar(), namespace: "solar-a".to_owned() },
                409,
            ),
            (TenantError::QuotaExceeded { tenant: solar(), used: 5, quota: 5 }, 403),
            (TenantError::NotOwner { tenant: solar() }, 403),
            (TenantError::NoTenant, 403),
            (TenantError::NotFound, 403),
            (TenantError::InvalidMetadata("labels.a: no".to_owned()), 422),
        ] {
            let text = error.to_string();
            let CreationError::Refused(refusal) = creation_error(error, "solar-a") else {
                panic!("{text}");
            };
            assert_eq!(refusal.response("r-1").status().as_u16(), expected, "{text}");
        }
        let quota = TenantError::QuotaExceeded { tenant: solar(), used: 5, quota: 5 };
        let CreationError::Refused(refusal) = creation_error(quota, "solar-a") else { panic!() };
        let status: serde_json::Value =
            serde_json::from_slice(refusal.response("r-1").body()).unwrap();
        assert_eq!(
            status["message"],
            "namespaces \"solar-a\" is forbidden: exceeded namespace quota: tenant solar has 5 of \
             5; delete a namespace, or ask an administrator"
        );
        let failed = creation_error(TenantError::Database(sqlx::Error::PoolClosed), "solar-a");
        assert!(
            matches!(failed, CreationError::Failed(error) if error.code() == Code::StorageUnavailable)
        );
    }
}
