//! A world with tenants, and the API server as administrators, users and members see it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http::{Method, StatusCode};
use reqwest::{Client, RequestBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use url::Url;
use uuid::Uuid;

use crate::api::Api;
use crate::http_client;
use crate::probe::{self, Probe};
use crate::world::{World, WorldBuilder};

/// Limit of the time until the broker has carried out a change.
pub const RECONCILE_TIMEOUT: Duration = Duration::from_mins(1);
/// Path of the gateway, relative to the base of the API.
const GATEWAY: &str = "../../clusters/internal-cluster";
const TENANTS: &str = "apis/tenant-broker.io/v1alpha1/tenants";
const TENANT_LABEL: &str = "tenant-broker.io/tenant";

/// A world whose brokers have Tenants.
#[derive(Debug)]
pub struct Fixture {
    /// The world.
    pub world: World,
    /// The API of the broker as an administrator.
    pub operator: Api,
    cluster: ClusterClient,
}

/// A person who is signed in at every replica.
#[derive(Clone, Debug)]
pub struct SignedIn {
    /// User id.
    pub id: Uuid,
    /// E-mail address, which is the person's user name in Tenants.
    pub email: String,
    replicas: Vec<Api>,
}

/// With whose rights a request goes to the API server.
#[derive(Clone, Debug)]
pub enum Credential {
    /// An administrator of the cluster.
    Administrator,
    /// The holder of this token.
    Token(SecretString),
    /// A user of the cluster with these groups, whom the administrator impersonates.
    User {
        /// User name.
        name: String,
        /// Groups, without `system:authenticated`.
        groups: Vec<String>,
    },
}

/// A client of the API server.
#[derive(Clone, Debug)]
pub struct ClusterClient {
    url: Url,
    administrator: Client,
    anonymous: Client,
}

impl Fixture {
    /// Starts a world with tenants, and waits until the API server serves them.
    ///
    /// # Errors
    /// A part does not start.
    pub async fn start(builder: WorldBuilder) -> Result<Self> {
        let builder = builder
            .own_control_plane()
            .installed("tenants.enabled", true)
            .setting("issuer.access_token_seconds", 3600);
        let world = Box::pin(builder.start()).await?;
        let cluster = ClusterClient::new(&world)?;
        probe::until("the API server to serve Tenants", RECONCILE_TIMEOUT, || async {
            let (status, body) = cluster.admin(Method::GET, TENANTS, None).await?;
            Ok(if status.is_success() { Probe::Ready(()) } else { Probe::NotYet(body.to_string()) })
        })
        .await?;
        let operator = world.administrator("operator").await?.api().await?;
        Ok(Self { world, operator, cluster })
    }

    /// The API server.
    pub fn cluster(&self) -> &ClusterClient {
        &self.cluster
    }

    /// Creates an account `NAME@example.com`, and signs in.
    ///
    /// # Errors
    /// The broker refuses.
    pub async fn person(&self, name: &str) -> Result<SignedIn> {
        let person = self.world.person(name).await?;
        let api = person.api().await?;
        let brokers = self.world.brokers().iter();
        let replicas = brokers.map(|broker| api.clone().at(&broker.url()?));
        Ok(SignedIn {
            id: person.id(),
            email: person.email().to_owned(),
            replicas: replicas.collect::<Result<_>>()?,
        })
    }

    /// The lines of all replicas' logs with a word.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn lines_of_logs(&self, word: &str) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for broker in self.world.brokers() {
            let log = broker.log()?;
            lines.extend(log.lines().filter(|line| line.contains(word)).map(ToOwned::to_owned));
        }
        Ok(lines)
    }

    /// The operator's API at a replica.
    ///
    /// # Errors
    /// The replica has no URL.
    pub fn operator_at(&self, replica: usize) -> Result<Api> {
        let brokers = self.world.brokers();
        self.operator.clone().at(&brokers[replica % brokers.len()].url()?)
    }

    /// Makes a Tenant with this specification, or replaces that of the Tenant.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn apply(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": "tenant-broker.io/v1alpha1",
            "kind": "Tenant",
            "metadata": {"name": name},
            "spec": spec,
        });
        let path = format!("{TENANTS}/{name}?fieldManager=administrator&force=true");
        let request = self.cluster.request(&Credential::Administrator, &Method::PATCH, &path)?;
        let request =
            request.header("content-type", "application/apply-patch+yaml").body(object.to_string());
        let (status, body) = answer(request).await?;
        ensure!(status.is_success(), "{status} for the Tenant {object}: {body}");
        Ok(())
    }

    /// Deletes a Tenant whose namespaces stay.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn delete_and_keep_namespaces(&self, tenant: &str) -> Result<()> {
        let annotation = json!({"tenant-broker.io/on-delete": "keep-namespaces"});
        let change = json!({"metadata": {"annotations": annotation}});
        let path = format!("{TENANTS}/{tenant}");
        let request = self.cluster.request(&Credential::Administrator, &Method::PATCH, &path)?;
        let request =
            request.header("content-type", "application/merge-patch+json").body(change.to_string());
        let (status, body) = answer(request).await?;
        ensure!(status.is_success(), "{status}: {body}");
        let (status, body) = self.cluster.admin(Method::DELETE, &path, None).await?;
        ensure!(status.is_success(), "{status}: {body}");
        Ok(())
    }

    /// Waits until the status of a Tenant has this state for its present generation.
    ///
    /// # Errors
    /// It does not within [`RECONCILE_TIMEOUT`].
    pub async fn until_state(&self, tenant: &str, state: &str) -> Result<()> {
        let path = format!("{TENANTS}/{tenant}");
        probe::until(&format!("{tenant} to be {state}"), RECONCILE_TIMEOUT, || async {
            let (_, object) = self.cluster.admin(Method::GET, &path, None).await?;
            let status = &object["status"];
            let is_current = status["observedGeneration"] == object["metadata"]["generation"];
            let is_so = is_current && status["state"] == state;
            Ok(if is_so { Probe::Ready(()) } else { Probe::NotYet(object.to_string()) })
        })
        .await
    }

    /// Creates a namespace with the label of a tenant, as an administrator of the cluster.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_namespace(&self, tenant: &str, name: &str) -> Result<()> {
        let labels = json!({
            TENANT_LABEL: tenant, "pod-security.kubernetes.io/enforce": "restricted",
        });
        let object = json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels},
        });
        let path = "api/v1/namespaces";
        let (status, body) = self.cluster.admin(Method::POST, path, Some(&object)).await?;
        ensure!(status.is_success(), "{status}: {body}");
        Ok(())
    }

    /// Objects with the label of a tenant, for example of `api/v1/namespaces`. The home is left out.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn objects_of(&self, tenant: &str, path: &str) -> Result<Vec<Value>> {
        let path = format!("{path}?labelSelector={TENANT_LABEL}%3D{tenant}");
        let (status, list) = self.cluster.admin(Method::GET, &path, None).await?;
        ensure!(status.is_success(), "{status}: {list}");
        let home = format!("tenant-{tenant}");
        let items = list["items"].as_array().context("a list has items")?.iter();
        Ok(items.filter(|item| item["metadata"]["name"] != home).cloned().collect())
    }

    /// Names of the namespaces of a tenant.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn namespaces_of(&self, tenant: &str) -> Result<Vec<String>> {
        let namespaces = self.objects_of(tenant, "api/v1/namespaces").await?;
        let names = namespaces.iter().filter_map(|it| it["metadata"]["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    /// Makes a person a member of a tenant that names them, and returns the membership with a token.
    ///
    /// # Errors
    /// The broker refuses for longer than [`RECONCILE_TIMEOUT`].
    pub async fn member(&self, person: &SignedIn, tenant: &str) -> Result<(Uuid, Credential)> {
        let what = format!("{} to be a member of {tenant}", person.email);
        probe::until(&what, RECONCILE_TIMEOUT, || async {
            let membership = match person.at(0).join_tenant(tenant).await {
                Ok((membership, _)) => membership.id,
                Err(error) => return Ok(Probe::NotYet(error.to_string())),
            };
            Ok(match person.at(0).credential(membership).await {
                Ok(issued) => Probe::Ready((membership, Credential::Token(issued.token.into()))),
                Err(error) => Probe::NotYet(error.to_string()),
            })
        })
        .await
    }
}

impl SignedIn {
    /// The API at a replica; the number may be larger than that of the replicas.
    pub fn at(&self, replica: usize) -> &Api {
        &self.replicas[replica % self.replicas.len()]
    }

    /// Sends a request for this path of the API server through the gateway of a replica.
    ///
    /// # Errors
    /// There is no response.
    pub async fn through_gateway(
        &self,
        replica: usize,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        let mut request = self.at(replica).request(method, &format!("{GATEWAY}/{path}"))?;
        if let Some(body) = body {
            request = request.json(body);
        }
        answer(request).await
    }
}

impl ClusterClient {
    fn new(world: &World) -> Result<Self> {
        let authority = world.cluster().authority();
        let identity = authority.client("administrator", Some("system:masters"))?;
        let pem = format!("{}{}", identity.certificate, identity.key);
        let identity = reqwest::Identity::from_pem(pem.as_bytes())?;
        let trusted = Some(authority.certificate());
        // After a response of 401 the API server shuts an HTTP/2 connection down, and requests that
        // begin on it meanwhile fail.
        let builder = || Ok::<_, anyhow::Error>(http_client::builder(trusted)?.http1_only());
        Ok(Self {
            url: world.cluster().url().clone(),
            administrator: builder()?.identity(identity).build()?,
            anonymous: builder()?.build()?,
        })
    }

    fn request(&self, who: &Credential, method: &Method, path: &str) -> Result<RequestBuilder> {
        let url = self.url.join(path).context("make a URL")?;
        Ok(match who {
            Credential::Administrator => self.administrator.request(method.clone(), url),
            Credential::Token(token) => {
                let request = self.anonymous.request(method.clone(), url);
                request.bearer_auth(token.expose_secret())
            }
            Credential::User { name, groups } => {
                let request = self.administrator.request(method.clone(), url);
                let all = groups.iter().map(String::as_str).chain(["system:authenticated"]);
                all.fold(request.header("impersonate-user", name), |request, group| {
                    request.header("impersonate-group", group)
                })
            }
        })
    }

    /// Sends a request with these rights.
    ///
    /// # Errors
    /// There is no response.
    pub async fn send(
        &self,
        who: &Credential,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        let request = self.request(who, &method, path)?;
        answer(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    /// Sends a request as an administrator.
    ///
    /// # Errors
    /// There is no response.
    pub async fn admin(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Value)> {
        self.send(&Credential::Administrator, method, path, body).await
    }
}

/// Status and body of the response to a request; a body that is no JSON is a string.
async fn answer(request: RequestBuilder) -> Result<(StatusCode, Value)> {
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}
