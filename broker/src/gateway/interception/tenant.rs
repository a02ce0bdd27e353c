//! Interception of requests by members of tenants, because RBAC gives them neither lists of some
//! objects, such as their namespaces, nor the creation of a namespace (see [`super`]).

use http::{Method, request::Parts};
use tenant_shared::Code;

use super::{BrokerReadRequest, Interception, NAMESPACES, Representation, broker_read_resource};
use crate::{
    cluster::{BrokerReadError, BrokerReadResource, Cluster},
    gateway::{
        Gateway,
        kubernetes_api::{
            namespace_object::Format,
            path::{Kind, Target},
        },
        principals::Principal,
    },
    http::ApiError,
};

const RULES_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

/// A request that is handled in another way for members of tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TenantRequest<'a> {
    Create,
    /// A change of the namespace of this name.
    Patch(&'a str),
    /// A list or watch of this resource.
    List(BrokerReadResource),
    /// A read of the namespace of this name.
    Read(&'a str),
    /// A read of an object in this namespace.
    ReadIn(&'a str),
    RulesReview,
}

/// Finds such a request.
fn tenant_request<'a>(method: &Method, target: &Target<'a>) -> Option<TenantRequest<'a>> {
    let (path, _) = target.path_and_query.split_once('?').unwrap_or((target.path_and_query, ""));
    match (method, broker_read_resource(target)) {
        (&Method::POST, Some(BrokerReadResource::Namespaces)) => Some(TenantRequest::Create),
        (&Method::GET, Some(resource)) => Some(TenantRequest::List(resource)),
        (&Method::POST, None) if path == RULES_REVIEWS => Some(TenantRequest::RulesReview),
        (&Method::PATCH, None) => namespace_of_path(path).map(TenantRequest::Patch),
        (&Method::GET, None) if target.kind == Kind::Call => match namespace_of_path(path) {
            Some(name) => Some(TenantRequest::Read(name)),
            None if target.resource == Some("namespaces") => None,
            None => target.name.and(target.namespace).map(TenantRequest::ReadIn),
        },
        _ => None,
    }
}

/// The name of the namespace that a path is about, and not something in it.
fn namespace_of_path(path: &str) -> Option<&str> {
    let name = path.strip_prefix(NAMESPACES)?.strip_prefix('/')?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

impl Gateway {
    /// How a request of a member of tenants is handled; `None` if as that of anybody else.
    ///
    /// # Errors
    /// The label selector of a list or watch cannot be parsed.
    pub(in crate::gateway) fn tenant_interception(
        &self,
        parts: &Parts,
        target: &Target<'_>,
        principal: &Principal,
        cluster: &Cluster,
    ) -> Result<Option<Interception>, ApiError> {
        let Some(request) = tenant_request(&parts.method, target) else { return Ok(None) };
        // The creation is no answer of the gateway, so it does not depend on `own_answers`.
        let is_creation = matches!(request, TenantRequest::Create | TenantRequest::Patch(_));
        if !is_creation && !self.synthesizes_responses {
            return Ok(None);
        }
        Ok(match request {
            TenantRequest::Create => Some(Interception::CreateNamespace),
            // Server-side apply creates what does not exist.
            TenantRequest::Patch(name) => (Format::of_request(&parts.headers)
                == Some(Format::Apply)
                && !self.is_own_namespace(principal, cluster, name))
            .then_some(Interception::CreateNamespace),
            TenantRequest::List(resource) => {
                Self::broker_read(target, principal, cluster, resource)?
            }
            TenantRequest::Read(name) => (!self.is_own_namespace(principal, cluster, name))
                .then_some(Interception::ReadNamespace),
            TenantRequest::ReadIn(namespace) => self
                .may_be_created(principal, cluster, namespace)
                .then_some(Interception::ReadInUnknownNamespace),
            TenantRequest::RulesReview => {
                let representation = Representation::negotiate(&parts.headers);
                (representation == Some(Representation::Plain)).then_some(Interception::RulesReview)
            }
        })
    }

    /// The list or watch with the broker's own credential. It is `None` if no tenant with an active
    /// membership gives the right to it, and then forwarded.
    fn broker_read(
        target: &Target<'_>,
        principal: &Principal,
        cluster: &Cluster,
        resource: BrokerReadResource,
    ) -> Result<Option<Interception>, ApiError> {
        let (_, query) = target.path_and_query.split_once('?').unwrap_or_default();
        let shown = principal.shown(cluster.name(), resource);
        match shown.read(query, target.kind == Kind::Watch) {
            Ok(read) => {
                Ok(Some(Interception::BrokerRead(Box::new(BrokerReadRequest { read, shown }))))
            }
            Err(error @ BrokerReadError::NoUnion(_)) => {
                Ok(Some(Interception::UnjoinedNodes(error.to_string())))
            }
            Err(error @ BrokerReadError::Selector(_)) => {
                Err(ApiError::new(Code::InvalidRequest, error.to_string()))
            }
            Err(
                BrokerReadError::NoTenant
                | BrokerReadError::NoSelector
                | BrokerReadError::NoLabel(_),
            ) => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cluster::ClusterList, gateway::kubernetes_api::path::parse};

    fn read(method: &Method, path: &str) -> Option<String> {
        let uri = format!("/clusters/c{path}").parse().unwrap();
        tenant_request(method, &parse(&uri).unwrap()).map(|request| format!("{request:?}"))
    }

    #[test]
    fn only_requests_for_namespaces_themselves_are_intercepted() {
        for (path, expected) in [
            ("/api/v1/namespaces", Some("List(Namespaces)")),
            ("/api/v1/namespaces?watch=1", Some("List(Namespaces)")),
            ("/api/v1/namespaces/a", Some("Read(\"a\")")),
            ("/api/v1/namespaces/a?x=y", Some("Read(\"a\")")),
            ("/api/v1/namespaces/a?watch=true", None),
            ("/api/v1/namespaces/", None),
            ("/api/v1/namespaces/a/", None),
            ("/api/v1/namespaces/a/status", None),
            ("/api/v1/namespaces/a/pods", None),
            ("/api/v1/namespaces/a/pods/p", Some("ReadIn(\"a\")")),
            ("/apis/apps/v1/namespaces/a/deployments/d", Some("ReadIn(\"a\")")),
            ("/api/v1/namespaces/a/pods/p?watch=1", None),
            ("/api/v1/nodes/a", None),
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
        assert_eq!(
            read(&Method::PATCH, "/api/v1/namespaces/a?force=true").as_deref(),
            Some("Patch(\"a\")")
        );
        assert_eq!(read(&Method::PATCH, "/api/v1/namespaces/a/status"), None);
        for method in [Method::PUT, Method::DELETE, Method::HEAD, Method::OPTIONS] {
            for path in [NAMESPACES, "/api/v1/namespaces/a"] {
                assert_eq!(read(&method, path), None, "{method} {path}");
            }
        }
        assert_eq!(read(&Method::POST, "/api/v1/namespaces/a"), None);
        assert_eq!(read(&Method::POST, "/api/v1/namespaces/a/finalize"), None);
    }

    #[test]
    fn only_reads_of_whole_collections_are_lists_of_the_cluster() {
        for list in ClusterList::ALL {
            let prefix = match list.group() {
                "" => "/api/v1".to_owned(),
                group => format!("/apis/{group}/v1"),
            };
            let path = format!("{prefix}/{list}");
            let expected = format!("List(ClusterList({list:?}))");
            for query in ["", "?", "?watch=1", "?watch=false&limit=5"] {
                let path = format!("{path}{query}");
                assert_eq!(read(&Method::GET, &path).as_ref(), Some(&expected), "{path}");
            }
            for other in [
                format!("{path}/"),
                format!("{path}/a"),
                format!("{path}/a/status"),
                format!("{path}/a/proxy/"),
                format!("{path}x"),
                format!("{prefix}/watch/{list}"),
                format!("{prefix}/namespaces/a/{list}"),
                path.replace("v1", "v1beta1"),
            ] {
                assert_eq!(read(&Method::GET, &other), None, "{other}");
            }
            for method in ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "get", "WATCH"] {
                let method = Method::from_bytes(method.as_bytes()).unwrap();
                assert_eq!(read(&method, &path), None, "{method} {path}");
            }
        }
    }
}
