//! Requests by which a right shows, and the rules of the API server.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::model::{ALLOWED_ROLES, OWNER_ROLE};
use crate::acceptance::tenants::fixture::{ClusterClient, Credential, SignedIn};

/// A rule of one verb: verb, API group, resource, name.
type Rule = [String; 4];
/// What somebody may do in a namespace.
pub(super) type Rules = BTreeSet<Rule>;

/// A request that is tried in a namespace, and changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Read,
    Write,
    ReadSecrets,
    Bind,
    DeleteNamespace,
}

impl Request {
    pub(super) const ALL: [Self; 5] =
        [Self::Read, Self::Write, Self::ReadSecrets, Self::Bind, Self::DeleteNamespace];

    /// Whether ClusterRoles of Kubernetes and of `install` allow the request, by their
    /// documentation.
    pub(super) fn is_allowed(self, roles: &BTreeSet<&'static str>) -> bool {
        let allowing: &[&str] = match self {
            Self::Read => &["admin", "edit", "view"],
            Self::Write | Self::ReadSecrets => &["admin", "edit"],
            Self::Bind => &["admin"],
            Self::DeleteNamespace => &["tenant-namespace-deleter"],
        };
        allowing.iter().any(|role| roles.contains(role))
    }

    /// Method, path and body of the request in a namespace.
    fn parts(self, namespace: &str) -> (Method, String, Option<Value>) {
        let base = format!("api/v1/namespaces/{namespace}");
        match self {
            Self::Read => (Method::GET, format!("{base}/configmaps?limit=1"), None),
            Self::ReadSecrets => (Method::GET, format!("{base}/secrets?limit=1"), None),
            Self::Write => {
                let path = format!("{base}/configmaps?dryRun=All");
                (Method::POST, path, Some(json!({"metadata": {"generateName": "tried-"}})))
            }
            Self::Bind => {
                let rbac = "rbac.authorization.k8s.io";
                let path = format!("apis/{rbac}/v1/namespaces/{namespace}/rolebindings?dryRun=All");
                let body = json!({
                    "metadata": {"generateName": "tried-"},
                    "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
                    "subjects": [{
                        "kind": "ServiceAccount", "name": "default", "namespace": namespace,
                    }],
                });
                (Method::POST, path, Some(body))
            }
            Self::DeleteNamespace => (Method::DELETE, format!("{base}?dryRun=All"), None),
        }
    }

    /// Sends it. Returns whether it was allowed.
    ///
    /// # Errors
    /// There is no response, or another one than a success, 401 and 403.
    pub(super) async fn send(
        self,
        cluster: &ClusterClient,
        who: &Credential,
        namespace: &str,
    ) -> Result<bool> {
        let (method, path, body) = self.parts(namespace);
        let (status, answer) = cluster.send(who, method, &path, body.as_ref()).await?;
        let is_refused = matches!(status, StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED);
        ensure!(status.is_success() || is_refused, "{self:?} in {namespace}: {status} {answer}");
        Ok(status.is_success())
    }

    /// Sends it through the gateway of a replica, once. Returns whether it was allowed; `None` if
    /// nobody decided, because of a limit or because the gateway closed the request.
    pub(super) async fn send_through_gateway(
        self,
        person: &SignedIn,
        replica: usize,
        namespace: &str,
    ) -> Option<bool> {
        let (method, path, body) = self.parts(namespace);
        let sent = person.through_gateway(replica, method, &path, body.as_ref()).await;
        let (status, _) = sent.ok()?;
        let is_refused = matches!(
            status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND
        );
        (status.is_success() || is_refused).then_some(status.is_success())
    }
}

/// The rules that `SelfSubjectRulesReview` names; none for a token that is not valid.
///
/// # Errors
/// There is no response, or another one than 201 and 401.
pub(super) async fn rules_of(
    cluster: &ClusterClient,
    who: &Credential,
    namespace: &str,
) -> Result<Rules> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let path = "apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let (status, answer) = cluster.send(who, Method::POST, path, Some(&review)).await?;
    if status == StatusCode::UNAUTHORIZED {
        return Ok(Rules::new());
    }
    ensure!(status == StatusCode::CREATED, "{status}: {answer}");
    Ok(single_rules(&answer["status"]["resourceRules"]))
}

/// The rules of each ClusterRole.
///
/// # Errors
/// The API server refuses.
pub(super) async fn rules_of_roles(
    cluster: &ClusterClient,
) -> Result<BTreeMap<&'static str, Rules>> {
    let mut all = BTreeMap::new();
    for role in ALLOWED_ROLES.into_iter().chain([OWNER_ROLE]) {
        let path = format!("apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        let (status, answer) = cluster.admin(Method::GET, &path, None).await?;
        ensure!(status.is_success(), "{status}: {answer}");
        let rules = single_rules(&answer["rules"]);
        ensure!(!rules.is_empty(), "the ClusterRole {role} has no rules");
        all.insert(role, rules);
    }
    Ok(all)
}

/// Whether everybody has a rule: the reviews of oneself.
///
/// # Errors
/// A rule has no resource.
pub(super) fn is_review(rule: &Rule) -> Result<bool> {
    let [verb, group, resource, _] = rule;
    ensure!(!resource.is_empty(), "{rule:?} has no resource");
    Ok(verb == "create"
        && matches!(group.as_str(), "authorization.k8s.io" | "authentication.k8s.io")
        && resource.starts_with("self"))
}

/// Rules of one verb each.
fn single_rules(rules: &Value) -> Rules {
    let texts = |value: &Value, default: Option<&str>| -> Vec<String> {
        let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        let texts: Vec<String> = texts.map(str::to_owned).collect();
        if texts.is_empty() { default.into_iter().map(str::to_owned).collect() } else { texts }
    };
    let mut single = Rules::new();
    for rule in rules.as_array().into_iter().flatten() {
        for verb in texts(&rule["verbs"], None) {
            for group in texts(&rule["apiGroups"], None) {
                for resource in texts(&rule["resources"], None) {
                    for name in texts(&rule["resourceNames"], Some("")) {
                        single.insert([verb.clone(), group.clone(), resource.clone(), name]);
                    }
                }
            }
        }
    }
    single
}

/// The rules of these ClusterRoles together.
///
/// # Errors
/// One of them is not known.
pub(super) fn union(
    roles: &BTreeSet<&'static str>,
    rules_by_role: &BTreeMap<&'static str, Rules>,
) -> Result<Rules> {
    let mut all = Rules::new();
    for role in roles {
        all.extend(
            rules_by_role.get(role).with_context(|| format!("the role {role}"))?.iter().cloned(),
        );
    }
    Ok(all)
}
