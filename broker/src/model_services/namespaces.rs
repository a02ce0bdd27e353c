//! The namespaces that the caller may read. A candidate is never an answer: each is read with the
//! caller's own token.

use std::{
    collections::{BTreeSet, HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use tenant_shared::{ModelNamespace, ModelNamespaceList, is_dns_label};

use super::{
    ModelServices,
    call::{Call, REVIEW_TIMEOUT},
    call_kind::CallKind,
    caller::ApiCaller,
    caller_client::CallerClient,
    failure::Failure,
    inference::ObjectMetadata,
    known_keys::DISPLAY_NAME,
    lenient::{MAX_OBJECTS, lenient_objects, read},
    list::{List, Listed},
};
use crate::{
    cluster::UserInfo,
    gateway::{SessionCaller, Verb},
};

/// Namespaces that are read concurrently for one request.
const MAX_READS: usize = 16;
/// Memory of a candidate besides its name, in bytes: its entries in a set and in the list of reads.
const CANDIDATE_BYTES: usize = 64;
/// Timeout of the list of Projects. It is a third of the operation's time, so that there is enough for
/// the candidates if the Projects API does not answer.
const PROJECTS_TIMEOUT: Duration = Duration::from_secs(10);
/// Namespaces of the platform, which nobody picks for models.
const HIDDEN: [&str; 4] = ["default", "system", "openshift", "opendatahub"];
/// Beginnings of names of such namespaces.
const HIDDEN_PREFIXES: [&str; 2] = ["openshift-", "kube-"];
/// No namespace has this name, so a review of it has the rules that hold everywhere.
const NO_NAMESPACE: &str = "-";

fn is_hidden(name: &str) -> bool {
    HIDDEN.contains(&name) || HIDDEN_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

impl ModelServices {
    /// The namespaces that the caller may read, by name, without those of the platform; and the
    /// request that holds their memory.
    ///
    /// # Errors
    /// The API server does not accept the caller's token, or does not answer; a session has no active
    /// workspace.
    pub(super) async fn namespaces(
        &self,
        caller: &ApiCaller,
    ) -> Result<(ModelNamespaceList, Arc<CallerClient>), Failure> {
        // A list makes the memberships in the caller's tenants, as in the gateway.
        let caller = &caller.with_all_memberships().await?;
        // The namespaces of tenants are in the database, so the limits of the tier come first.
        let first = Arc::new(caller.begin(self, None, Verb::List).await?);
        let mut data = match caller {
            ApiCaller::Session(session) => {
                let names = session.namespaces().await?.into_iter().collect();
                self.namespaces_of_session(caller, session, &first, names).await?
            }
            ApiCaller::Kubernetes(_) => first.namespaces().await?,
        };
        data.retain(|namespace| !namespace.name.is_empty() && !is_hidden(&namespace.name));
        data.sort_by(|a, b| a.name.cmp(&b.name));
        data.dedup_by(|a, b| a.name == b.name);
        Ok((ModelNamespaceList { data }, first))
    }

    /// Reads each namespace with the token of its workspace. For the limits of its tier that is one
    /// request, however many of the namespaces a workspace has. `first` is the request of the first
    /// workspace; it holds the memory of the answer.
    async fn namespaces_of_session(
        &self,
        caller: &ApiCaller,
        session: &SessionCaller,
        first: &Arc<CallerClient>,
        names: BTreeSet<String>,
    ) -> Result<Vec<ModelNamespace>, Failure> {
        first.reserve_candidates(&names)?;
        let mut requests: HashMap<_, _> =
            first.workspace_id().map(|id| (id, Some(Arc::clone(first)))).into_iter().collect();
        let mut wanted = Vec::with_capacity(names.len());
        for name in names {
            // It may be gone meanwhile.
            let Some(workspace) = session.workspace_of(&name) else { continue };
            if let Entry::Vacant(entry) = requests.entry(workspace) {
                entry.insert(match caller.begin(self, Some(&name), Verb::Get).await {
                    Ok(request) => Some(Arc::new(request)),
                    // Suspended meanwhile.
                    Err(failure) if failure.status() == StatusCode::FORBIDDEN => None,
                    Err(failure) => return Err(failure),
                });
            }
            wanted.push((workspace, name));
        }
        let requests = &requests;
        let reads = wanted.into_iter().map(|(workspace, name)| async move {
            let request = requests.get(&workspace).and_then(Option::as_ref);
            let Some(part) = request.and_then(|request| request.part_in(&name)) else {
                return Ok(None);
            };
            match part.namespace(&name).await {
                Ok(found) => first.reserve_namespace(found),
                // Suspended meanwhile, or a role in this namespace was lost.
                Err(_) if part.is_closed() && !first.is_closed() => Ok(None),
                Err(failure) => Err(failure),
            }
        });
        let found = stream::iter(reads).buffer_unordered(MAX_READS);
        found.try_filter_map(async |found| Ok(found)).try_collect().await
    }
}

/// Limits the calls of a request: a namespace is read with one.
fn limit_reads(names: &BTreeSet<String>) -> Result<(), Failure> {
    if names.len() <= MAX_OBJECTS {
        return Ok(());
    }
    Err(Failure::internal(format!("the caller has more than {MAX_OBJECTS} candidate namespaces")))
}

/// Memory of the names of candidates, in bytes.
fn candidates_bytes(names: &BTreeSet<String>) -> usize {
    names.iter().map(|name| CANDIDATE_BYTES + name.len()).sum()
}

impl CallerClient {
    /// Limits the number of candidates, and reserves memory for their names until the request ends.
    fn reserve_candidates(&self, names: &BTreeSet<String>) -> Result<(), Failure> {
        limit_reads(names)?;
        self.reserve_bytes(candidates_bytes(names))
    }

    /// The namespaces that the user of the token may read.
    async fn namespaces(&self) -> Result<Vec<ModelNamespace>, Failure> {
        let all = List::new(CallKind::Namespaces, "/api/v1/namespaces");
        match self.list::<ObjectMetadata>(&all).await? {
            Listed::Objects(found) => return Ok(found.into_iter().map(to_api).collect()),
            Listed::NotFound => {
                return Err(Failure::internal("the API server has no namespaces"));
            }
            Listed::Forbidden => {}
        }
        let projects = List::new(CallKind::Projects, "/apis/project.openshift.io/v1/projects")
            .timeout(PROJECTS_TIMEOUT);
        let (user, projects) =
            tokio::join!(self.who_am_i(), self.list::<ObjectMetadata>(&projects));
        let user = match user {
            Err(failure) if failure.status() == StatusCode::UNAUTHORIZED => return Err(failure),
            user => user,
        };
        match projects {
            Ok(Listed::Objects(found)) => return Ok(found.into_iter().map(to_api).collect()),
            // The cluster does not say them.
            Ok(Listed::Forbidden | Listed::NotFound) => {}
            Err(failure) if self.is_of_projects_server(&failure) => {
                tracing::warn!(error = %failure, "cannot list the projects of a caller");
            }
            Err(failure) => return Err(failure),
        }
        let candidates = self.candidates(&user?).await?;
        self.reserve_candidates(&candidates)?;
        let reads = candidates
            .into_iter()
            .map(|name| async move { self.reserve_namespace(self.namespace(&name).await?) });
        let found = stream::iter(reads).buffer_unordered(MAX_READS);
        found.try_filter_map(async |found| Ok(found)).try_collect().await
    }

    /// Whether the server of the Projects, which is not the API server, failed or refused a token that
    /// the API server accepts.
    fn is_of_projects_server(&self, failure: &Failure) -> bool {
        match failure.status() {
            StatusCode::INTERNAL_SERVER_ERROR => true,
            StatusCode::UNAUTHORIZED => self.is_token_accepted(),
            _ => false,
        }
    }

    /// Keeps a namespace until the request ends.
    fn reserve_namespace(
        &self,
        found: Option<ModelNamespace>,
    ) -> Result<Option<ModelNamespace>, Failure> {
        if let Some(ModelNamespace { name, display_name }) = &found {
            self.reserve_bytes(size_of::<ModelNamespace>() + name.len() + display_name.len())?;
        }
        Ok(found)
    }

    /// Reads a namespace; `None` if the caller may not, or if it does not exist.
    async fn namespace(&self, name: &str) -> Result<Option<ModelNamespace>, Failure> {
        if !is_dns_label(name) {
            return Ok(None);
        }
        let call = Call::get(CallKind::Namespace, format!("/api/v1/namespaces/{name}"));
        let response = self.send(call).await?;
        match response.status {
            StatusCode::OK => Ok(Some(to_api(response.json().await?))),
            StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => Ok(None),
            _ => Err(response.unexpected()),
        }
    }

    /// Names of the namespaces that this user, the caller, may be able to read: all that RBAC can give
    /// them, and all of the cluster if somebody else decides besides. The broker's own credential reads
    /// only these names.
    ///
    /// # Errors
    /// Too many searches of the user or the address wait; the API server does not answer.
    async fn candidates(&self, user: &UserInfo) -> Result<BTreeSet<String>, Failure> {
        let rules = self.rules().await?;
        let services = self.services();
        let internal = |error: crate::cluster::ClusterError| Failure::internal_error(&error);
        self.in_time(async {
            let _permits = services.0.limits.acquire_search(&user.user, self.network()).await?;
            let cluster = &services.0.cluster;
            if rules.reads_all_namespaces() {
                return cluster.namespace_names().await.map_err(internal);
            }
            let mut names = rules.readable_names();
            names.extend(cluster.namespaces_that_bind(user).await.map_err(internal)?);
            Ok(names)
        })
        .await
    }

    /// The rules that hold in every namespace (`SelfSubjectRulesReview`).
    async fn rules(&self) -> Result<Rules, Failure> {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": NO_NAMESPACE},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
        let call = Call::review(CallKind::RulesReview, path, &review).timeout(REVIEW_TIMEOUT);
        let response = self.send(call).await?;
        if response.status == StatusCode::FORBIDDEN {
            return Ok(Rules { incomplete: true, ..Rules::default() });
        }
        if !response.status.is_success() {
            return Err(response.unexpected());
        }
        Ok(response.json::<RulesReview>().await?.status)
    }
}

fn to_api(object: ObjectMetadata) -> ModelNamespace {
    let display_name = match object.metadata.annotation(DISPLAY_NAME) {
        "" => object.metadata.name.clone(),
        name => name.to_owned(),
    };
    ModelNamespace { name: object.metadata.name, display_name }
}

#[derive(Debug, Default, Deserialize)]
struct RulesReview {
    status: Rules,
}

/// The rules of a user.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rules {
    #[serde(default, deserialize_with = "read")]
    resource_rules: Vec<Rule>,
    /// Whether an authorizer could not say its rules.
    #[serde(default)]
    incomplete: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rule {
    #[serde(deserialize_with = "read")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "read")]
    api_groups: Vec<String>,
    #[serde(deserialize_with = "read")]
    resources: Vec<String>,
    #[serde(deserialize_with = "read")]
    resource_names: Vec<String>,
}

lenient_objects!(Rule);

impl Rules {
    /// Whether the caller may be able to read every namespace.
    fn reads_all_namespaces(&self) -> bool {
        self.incomplete || self.reading().any(|rule| rule.resource_names.is_empty())
    }

    /// The names of the namespaces that rules name.
    fn readable_names(&self) -> BTreeSet<String> {
        self.reading().flat_map(|rule| rule.resource_names.iter().cloned()).collect()
    }

    fn reading(&self) -> impl Iterator<Item = &Rule> {
        self.resource_rules.iter().filter(|rule| {
            has(&rule.verbs, "get")
                && has(&rule.api_groups, "")
                && has(&rule.resources, "namespaces")
        })
    }
}

/// Whether a list of a rule has this value, or all.
fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == wanted || value == "*")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn rules(rules: &Value) -> Rules {
        serde_json::from_value(json!({ "resourceRules": rules, "incomplete": false })).unwrap()
    }

    #[test]
    fn candidates_are_those_that_rules_name() {
        let named = rules(&json!([
            {"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"],
             "resourceNames": ["a", "b"]},
            {"verbs": ["list"], "apiGroups": [""], "resources": ["namespaces"]},
            {"verbs": ["*"], "apiGroups": ["apps"], "resources": ["*"]},
            {"verbs": ["get"], "apiGroups": null, "resources": ["namespaces"]},
        ]));
        assert!(!named.reads_all_namespaces());
        assert_eq!(named.readable_names().into_iter().collect::<Vec<_>>(), ["a", "b"]);
        for all in [
            json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["namespaces"]}]),
            json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]),
        ] {
            assert!(rules(&all).reads_all_namespaces());
        }
        assert!(Rules { incomplete: true, ..Rules::default() }.reads_all_namespaces());
    }

    #[test]
    fn a_request_reads_a_limited_number_of_namespaces() {
        let names = |count: usize| (0..count).map(|number| format!("ns-{number}")).collect();
        assert!(limit_reads(&names(MAX_OBJECTS)).is_ok());
        assert_eq!(limit_reads(&names(MAX_OBJECTS + 1)).unwrap_err().status().as_u16(), 500);
        assert_eq!(candidates_bytes(&names(10)), 10 * (CANDIDATE_BYTES + "ns-0".len()));
    }

    #[test]
    fn namespaces_of_the_platform_are_hidden() {
        for (name, hidden) in [
            ("default", true),
            ("kube-system", true),
            ("openshift", true),
            ("openshift-ai", true),
            ("opendatahub", true),
            ("opendatahub-mine", false),
            ("defaults", false),
            ("user-ns", false),
        ] {
            assert_eq!(is_hidden(name), hidden, "{name}");
        }
    }
}
