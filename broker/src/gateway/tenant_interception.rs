//! Interception of requests for namespaces by members of tenants, because RBAC gives them neither a
//! list of their namespaces nor the creation of one (see [`super::interception`]).

use http::{Method, request::Parts};
use tenant_shared::Code;

use super::{
    Gateway,
    interception::{Interception, NAMESPACES, Representation, is_namespace_collection},
    path::{Kind, Target},
    principals::Principal,
};
use crate::{
    cluster::{Cluster, OwnNamespacesRead, OwnReadError},
    http::ApiError,
    tenant::TenantName,
};

const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// A request that is handled in another way for members of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TenantRequest<'a> {
    Create,
    /// A list or watch of namespaces.
    List,
    /// A read of the namespace of this name.
    Read(&'a str),
    RulesReview,
}

/// Finds such a request. Its path is compared as a whole: a longer one is another resource.
fn tenant_request<'a>(method: &Method, target: &Target<'a>) -> Option<TenantRequest<'a>> {
    let (path, _) = target.path_and_query.split_once('?').unwrap_or((target.path_and_query, ""));
    match *method {
        Method::POST if is_namespace_collection(target) => Some(TenantRequest::Create),
        Method::POST if path == RULES_REVIEWS => Some(TenantRequest::RulesReview),
        Method::GET if is_namespace_collection(target) => Some(TenantRequest::List),
        Method::GET if target.kind == Kind::Call => {
            let name = path.strip_prefix(NAMESPACES)?.strip_prefix('/')?;
            (!name.is_empty() && !name.contains('/')).then_some(TenantRequest::Read(name))
        }
        _ => None,
    }
}

impl Gateway {
    /// How a request of a member of tenants is handled; `None` if as that of anybody else.
    ///
    /// # Errors
    /// The label selector of a list or watch cannot be parsed.
    pub(super) fn tenant_interception(
        &self,
        parts: &Parts,
        target: &Target<'_>,
        principal: &Principal,
        cluster: &Cluster,
    ) -> Result<Option<Interception>, ApiError> {
        let Some(request) = tenant_request(&parts.method, target) else { return Ok(None) };
        // The creation is no answer of the gateway, so it does not depend on `own_answers`.
        if request != TenantRequest::Create && !self.own_answers {
            return Ok(None);
        }
        Ok(match request {
            TenantRequest::Create => Some(Interception::CreateNamespace),
            TenantRequest::List => Self::own_read(target, principal, cluster)?,
            TenantRequest::Read(name) => (!self.is_own_namespace(principal, cluster, name))
                .then_some(Interception::ReadNamespace),
            TenantRequest::RulesReview => {
                let representation = Representation::negotiate(&parts.headers);
                (representation == Some(Representation::Plain)).then_some(Interception::RulesReview)
            }
        })
    }

    /// The list or watch of the namespaces of the principal's tenants. Without an active
    /// membership it is `None`.
    fn own_read(
        target: &Target<'_>,
        principal: &Principal,
        cluster: &Cluster,
    ) -> Result<Option<Interception>, ApiError> {
        let (_, query) = target.path_and_query.split_once('?').unwrap_or_default();
        let tenants = principal.listed_tenants(cluster.name());
        let names = tenants.iter().map(TenantName::as_str);
        match OwnNamespacesRead::new(names, query, target.kind == Kind::Watch) {
            Ok(read) => Ok(Some(Interception::OwnRead(read))),
            Err(OwnReadError::NoTenant) => Ok(None),
            Err(error) => Err(ApiError::new(Code::InvalidRequest, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::path::parse, *};

    fn read(method: &Method, path: &str) -> Option<String> {
        let uri = format!("/clusters/c{path}").parse().unwrap();
        tenant_request(method, &parse(&uri).unwrap()).map(|request| format!("{request:?}"))
    }

    #[test]
    fn only_requests_for_namespaces_themselves_are_intercepted() {
        for (path, expected) in [
            ("/api/v1/namespaces", Some("List")),
            ("/api/v1/namespaces?watch=1", Some("List")),
            ("/api/v1/namespaces/a", Some("Read(\"a\")")),
            ("/api/v1/namespaces/a?x=y", Some("Read(\"a\")")),
            ("/api/v1/namespaces/a?watch=true", None),
            ("/api/v1/namespaces/", None),
            ("/api/v1/namespaces/a/", None),
            ("/api/v1/namespaces/a/status", None),
            ("/api/v1/namespaces/a/pods", None),
            ("/api/v1/namespacesx", None),
            ("/api/v2/namespaces", None),
            ("/api/v1/watch/namespaces", None),
            ("/apis/example.com/v1/namespaces", None),
            ("/apis/example.com/v1/namespaces/a", None),
            ("/api/v1/pods", None),
            ("/", None),
        ] {
            assert_eq!(read(&Method::GET, path).as_deref(), expected, "{path}");
        }
        assert_eq!(read(&Method::POST, NAMESPACES).as_deref(), Some("Create"));
        assert_eq!(read(&Method::POST, "/api/v1/namespaces?dryRun=All").as_deref(), Some("Create"));
        assert_eq!(read(&Method::POST, RULES_REVIEWS).as_deref(), Some("RulesReview"));
        for method in [Method::PUT, Method::PATCH, Method::DELETE, Method::HEAD, Method::OPTIONS] {
            for path in [NAMESPACES, "/api/v1/namespaces/a"] {
                assert_eq!(read(&method, path), None, "{method} {path}");
            }
        }
        assert_eq!(read(&Method::POST, "/api/v1/namespaces/a"), None);
        assert_eq!(read(&Method::POST, "/api/v1/namespaces/a/finalize"), None);
    }
}
