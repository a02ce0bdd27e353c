//! A server of the Projects API (`project.openshift.io`) behind the aggregation layer of a real API server.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{StatusCode, header};
use serde_json::{Value, json};

use super::JsonServer;
use crate::authority::{Authority, Identity};
use crate::scratch::write_private;

/// The `APIService` of the Projects API.
pub const PROJECTS: &str = "v1.project.openshift.io";
/// Name and namespace of the Service.
const SERVICE: &str = "projects";
/// Common name of the API server's client certificate.
const AGGREGATOR: &str = "aggregator";

/// The aggregation layer of an API server: how it says to an aggregated API who the caller is
/// (Kubernetes documentation, "Configure the Aggregation Layer").
#[derive(Debug)]
pub struct Aggregation {
    server: Identity,
    ca_bundle: String,
    flags: Vec<String>,
}

impl Aggregation {
    /// Writes the files of the aggregation layer into `folder`.
    ///
    /// # Errors
    /// A certificate cannot be issued or written.
    pub fn new(folder: &Path) -> Result<Self> {
        let authority = Authority::open(folder)?;
        let server = authority.server_at(SERVICE, vec![format!("{SERVICE}.{SERVICE}.svc")])?;
        let client = authority.client(AGGREGATOR, None)?;
        let file = |name: &str| folder.join(name);
        write_private(&file("aggregator.crt"), client.certificate)?;
        write_private(&file("aggregator.key"), client.key)?;
        let flag = |name: &str, file_name: &str| format!("--{name}={}", file(file_name).display());
        let flags = vec![
            flag("requestheader-client-ca-file", "ca.crt"),
            format!("--requestheader-allowed-names={AGGREGATOR}"),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            flag("proxy-client-cert-file", "aggregator.crt"),
            flag("proxy-client-key-file", "aggregator.key"),
        ];
        Ok(Self { server, ca_bundle: STANDARD.encode(authority.certificate()), flags })
    }

    /// Flags of kube-apiserver that switch it on.
    pub fn apiserver_flags(&self) -> &[String] {
        &self.flags
    }
}

/// A project that a user may see.
#[derive(Clone, Debug)]
pub struct Project {
    /// The user.
    pub user: String,
    /// Name of the project and of its namespace.
    pub name: String,
    /// Annotation `openshift.io/display-name`.
    pub display_name: String,
}

/// A server of the Projects API. It ends when the value is dropped.
#[derive(Debug)]
pub struct ProjectsServer {
    server: JsonServer,
    ca_bundle: String,
    lists: Arc<Mutex<Vec<ProjectList>>>,
}

/// A list that was requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectList {
    /// The user whose projects were listed.
    pub user: String,
    /// Whether the request had a credential of the user.
    pub has_authorization: bool,
}

impl ProjectsServer {
    /// Starts a server with these projects. Each user lists their own.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(aggregation: &Aggregation, projects: Vec<Project>) -> Result<Self> {
        let lists = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&lists);
        let server = JsonServer::start(&aggregation.server, move |call| {
            let base = "/apis/project.openshift.io/v1";
            match call.path.strip_prefix(base) {
                Some("") => (StatusCode::OK, resources()),
                Some("/projects") => {
                    let user = call.headers.get("x-remote-user");
                    let user = user.and_then(|user| user.to_str().ok()).unwrap_or_default();
                    let has_authorization = call.headers.contains_key(header::AUTHORIZATION);
                    let list = ProjectList { user: user.to_owned(), has_authorization };
                    recorded.lock().unwrap_or_else(PoisonError::into_inner).push(list);
                    (StatusCode::OK, project_list(&projects, user))
                }
                _ => (StatusCode::NOT_FOUND, json!({"kind": "Status", "code": 404})),
            }
        })
        .await?;
        Ok(Self { server, ca_bundle: aggregation.ca_bundle.clone(), lists })
    }

    /// The objects that register it: a namespace with a Service, and the `APIService`.
    pub fn registration(&self) -> Value {
        let metadata = json!({"name": SERVICE, "namespace": SERVICE});
        json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SERVICE}},
            {"apiVersion": "v1", "kind": "Service", "metadata": metadata,
             "spec": {"type": "ExternalName", "externalName": "localhost",
                      "ports": [{"port": self.server.port}]}},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
             "metadata": {"name": PROJECTS},
             "spec": {"group": "project.openshift.io", "version": "v1",
                      "groupPriorityMinimum": 1000, "versionPriority": 10,
                      "caBundle": self.ca_bundle,
                      "service": {"name": SERVICE, "namespace": SERVICE,
                                  "port": self.server.port}}},
        ]})
    }

    /// The lists so far, oldest first.
    pub fn lists(&self) -> Vec<ProjectList> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Closes the port and all connections.
    pub async fn stop(self) {
        self.server.stop().await;
    }
}

fn resources() -> Value {
    json!({"kind": "APIResourceList", "apiVersion": "v1",
        "groupVersion": "project.openshift.io/v1",
        "resources": [{"name": "projects", "singularName": "project", "namespaced": false,
                       "kind": "Project", "verbs": ["list"]}]})
}

fn project_list(projects: &[Project], user: &str) -> Value {
    let of_user = projects.iter().filter(|project| project.user == user);
    let items: Vec<Value> = of_user
        .map(|project| {
            let annotations = json!({"openshift.io/display-name": project.display_name});
            json!({"metadata": {"name": project.name, "annotations": annotations}})
        })
        .collect();
    json!({"kind": "ProjectList", "apiVersion": "project.openshift.io/v1", "metadata": {},
        "items": items})
}
