//! Those who attack, each by one of the two ways in.

use http::{Method, StatusCode};
use integration::api::Api;
use integration::http_client::http1_client;
use integration::probe::{self, Probe};
use integration::world::World;
use reqwest::{Client, RequestBuilder};
use serde_json::{Value, json};
use url::Url;

use super::attack::{Attack, Right};
use crate::gateway::GATEWAY;
use crate::tenants::attempt::{Answer, Attempt, post};
use crate::tenants::cluster::RIGHTS_TIMEOUT;

/// Texts of refusals by RBAC: the right is missing, or that to give others a role.
const BY_RBAC: [&str; 2] = ["cannot ", "attempting to grant"];
/// Texts of refusals of the broker's credential.
const OF_BROKER: [&str; 6] = [
    "cannot ",
    "attempting to grant",
    "tenant-broker-fence-",
    "tenant-tokens",
    "tenant-guard-",
    "tenant-suspended",
];

/// Somebody with one identity, by one way in.
pub(super) struct Attacker {
    pub(super) who: String,
    route: Route,
    refusals: Refusals,
}

enum Route {
    /// Through the gateway, with a session.
    Gateway(Api),
    /// Directly at the API server, with a client certificate or a token.
    Direct { http: Client, url: Url, token: Option<String> },
}

/// What decides over the attacks of somebody.
enum Refusals {
    /// RBAC, and the policies for those who have these rights.
    Rights(Vec<Right>),
    /// RBAC and the policies for the broker.
    Broker,
    /// Whatever the request is: this status, and one of these texts.
    Always(StatusCode, &'static [&'static str]),
}

impl Attacker {
    /// A member of tenants at the gateway.
    pub(super) fn at_gateway(who: &str, api: &Api, rights: &[Right]) -> Self {
        let refusals = Refusals::Rights(rights.to_vec());
        Self::new(format!("{who} at the gateway"), Route::Gateway(api.clone()), refusals)
    }

    /// Somebody whose requests at the gateway are refused with this status and one of these texts.
    pub(super) fn refused_at_gateway(
        who: &str,
        api: &Api,
        status: StatusCode,
        texts: &'static [&'static str],
    ) -> Self {
        let route = Route::Gateway(api.clone());
        Self::new(format!("{who} at the gateway"), route, Refusals::Always(status, texts))
    }

    /// A user of the cluster with a client certificate.
    pub(super) fn with_certificate(
        world: &World,
        user: &str,
        group: Option<&str>,
        rights: &[Right],
    ) -> Self {
        let cluster = world.cluster();
        let identity = cluster.authority().client(user, group).unwrap();
        let http = cluster.http_client(&identity).unwrap();
        let route = Route::Direct { http, url: cluster.url().clone(), token: None };
        let refusals = Refusals::Rights(rights.to_vec());
        Self::new(format!("{user} with a certificate"), route, refusals)
    }

    /// The holder of a token of a ServiceAccount.
    pub(super) fn with_token(world: &World, who: &str, token: &str, rights: &[Right]) -> Self {
        let refusals = Refusals::Rights(rights.to_vec());
        Self::new(format!("{who} with a token"), Route::with_token(world, token), refusals)
    }

    /// The holder of a token whose ServiceAccount was deleted.
    pub(super) fn with_ended_token(world: &World, who: &str, token: &str) -> Self {
        let refusals = Refusals::Always(StatusCode::UNAUTHORIZED, &["Unauthorized"]);
        Self::new(format!("{who} with an old token"), Route::with_token(world, token), refusals)
    }

    /// A thief of the broker's credential.
    pub(super) fn broker(world: &World) -> Self {
        let cluster = world.cluster();
        let http = cluster.http_client(cluster.broker_identity()).unwrap();
        let route = Route::Direct { http, url: cluster.url().clone(), token: None };
        Self::new("the broker's credential".to_owned(), route, Refusals::Broker)
    }

    fn new(who: String, route: Route, refusals: Refusals) -> Self {
        Self { who, route, refusals }
    }

    pub(super) fn is_at_gateway(&self) -> bool {
        matches!(self.route, Route::Gateway(_))
    }

    /// The rights that RBAC gives; `None` if something else decides.
    pub(super) fn rights(&self) -> Option<&[Right]> {
        match &self.refusals {
            Refusals::Rights(rights) => Some(rights),
            Refusals::Broker | Refusals::Always(..) => None,
        }
    }

    /// The same attacker with these rights.
    pub(super) fn with_rights(self, rights: &[Right]) -> Self {
        Self { refusals: Refusals::Rights(rights.to_vec()), ..self }
    }

    /// Texts one of which has to be in the refusal of an attack; `None` if it is none for this
    /// attacker, who may do that.
    pub(super) fn texts(&self, attack: &Attack) -> Option<Vec<&'static str>> {
        match &self.refusals {
            Refusals::Always(_, texts) => Some(texts.to_vec()),
            Refusals::Broker => (!attack.is_of_broker).then(|| OF_BROKER.to_vec()),
            Refusals::Rights(_) if attack.is_direct_only && self.is_at_gateway() => None,
            Refusals::Rights(rights) => {
                if let Some(texts) = attack.at_gateway
                    && self.is_at_gateway()
                {
                    return Some(texts.to_vec());
                }
                if rights.contains(&attack.needs) {
                    return (!attack.policy.is_empty()).then(|| attack.policy.to_vec());
                }
                let mut texts = BY_RBAC.to_vec();
                // A namespace of others does not exist for members.
                if self.is_at_gateway() && attack.attempt.method == Method::GET {
                    texts.extend(["not found", "the namespace went to another tenant"]);
                }
                Some(texts)
            }
        }
    }

    /// Whether an answer is the refusal that an attacker gets, with one of these texts.
    pub(super) fn is_refused(&self, answer: &Answer, texts: &[&str]) -> bool {
        let is_refusal = match &self.refusals {
            Refusals::Always(status, _) => answer.status == *status,
            Refusals::Rights(_) | Refusals::Broker => answer.status.is_client_error(),
        };
        is_refusal && texts.iter().any(|text| answer.text.contains(text))
    }

    /// A request for a path of the API server.
    pub(super) fn request(&self, method: &Method, path: &str) -> RequestBuilder {
        match &self.route {
            Route::Gateway(api) => {
                api.request(method.clone(), &format!("{GATEWAY}/{path}")).unwrap()
            }
            Route::Direct { http, url, token } => {
                let request = http.request(method.clone(), url.join(path).unwrap());
                match token {
                    Some(token) => request.bearer_auth(token),
                    None => request,
                }
            }
        }
    }

    pub(super) async fn send(&self, attempt: &Attempt) -> Answer {
        attempt.send(self.request(&attempt.method, &attempt.path)).await
    }

    /// Waits until RBAC gives a right: `resourceAttributes` of an access review.
    pub(super) async fn until_allowed(&self, attributes: &Value) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let review = post("apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review);
        let what = format!("the right of {}", self.who);
        probe::until(&what, RIGHTS_TIMEOUT, || async {
            let answer = self.send(&review).await;
            let body: Value = serde_json::from_str(&answer.text).unwrap_or_default();
            let is_allowed = body["status"]["allowed"] == true;
            Ok(if is_allowed { Probe::Ready(()) } else { Probe::NotYet(answer.text) })
        })
        .await
        .unwrap();
    }
}

impl Route {
    /// After a response of 401 the API server shuts an HTTP/2 connection down, and requests that begin
    /// on it meanwhile fail.
    fn with_token(world: &World, token: &str) -> Self {
        let cluster = world.cluster();
        let http = http1_client(Some(cluster.authority().certificate())).unwrap();
        Self::Direct { http, url: cluster.url().clone(), token: Some(token.to_owned()) }
    }
}
