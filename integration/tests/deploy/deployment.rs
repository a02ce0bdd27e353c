//! The broker with the files, the arguments, the environment and the user of a Deployment.

use anyhow::{Context as _, Result};
use integration::authority::{self, Authority, Identity};
use integration::postgres::Postgres;
use integration::scratch::Scratch;
use serde_json::Value;

use super::chart;
use super::cluster::Cluster;
use super::place::{Access, Environment, Place};

/// The kubeconfig that replaces the credential of the pod's ServiceAccount.
const POD_CREDENTIAL: &str = "/run/secrets/pod.kubeconfig";

/// The contents of the Secrets and ConfigMaps that an administrator makes.
struct Contents<'a> {
    database_url: &'a str,
    serving: &'a Identity,
    authority: &'a str,
    kubeconfig: &'a str,
}

impl Contents<'_> {
    /// Returns the contents of a file by its path in the volume.
    fn of(&self, path: &str) -> Result<String> {
        Ok(match path.split_once('/').context("a path without a folder")? {
            ("database", "url") => format!("{}\n", self.database_url),
            ("issuer", _) => authority::signing_key()?.0,
            ("tls", "tls.crt") => self.serving.certificate.clone(),
            ("tls", "tls.key") => self.serving.key.clone(),
            ("cluster", "kubeconfig") => self.kubeconfig.to_owned(),
            ("connectors", _) => "the client's secret\n".to_owned(),
            ("files", _) => self.authority.to_owned(),
            _ => panic!("no test knows the file {path}"),
        })
    }
}

/// A container of the broker. Its files are in a place.
struct Container<'a> {
    command: Vec<&'a str>,
    env: Environment,
    files: Vec<String>,
}

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().unwrap().iter().map(|item| item.as_str().unwrap())
}

/// Writes the files of the pod's volumes into the place, as a kubelet does.
fn mount<'a>(place: &Place, documents: &'a [Value], contents: &Contents<'_>) -> Container<'a> {
    let pod = &chart::only(documents, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mut files = Vec::new();
    for mount in container["volumeMounts"].as_array().unwrap() {
        let volumes = pod["volumes"].as_array().unwrap();
        let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).unwrap();
        let folder = mount["mountPath"].as_str().unwrap();
        // The credential of the pod: see POD_CREDENTIAL.
        if volume["name"] == "service-account" || volume.get("projected").is_none() {
            continue;
        }
        assert_eq!(volume["projected"]["defaultMode"], 0o440, "{volume}");
        for source in volume["projected"]["sources"].as_array().unwrap() {
            let (kind, source) = source.as_object().unwrap().iter().next().unwrap();
            for item in source["items"].as_array().unwrap() {
                let path = item["path"].as_str().unwrap();
                let text = if kind == "configMap" && path == "broker.toml" {
                    place.mapped(chart::settings(documents))
                } else {
                    contents.of(path).unwrap()
                };
                let file = format!("{folder}/{path}");
                place.write(&file, text, Access::Group).unwrap();
                files.push(file);
            }
        }
    }
    let env = container["env"].as_array().unwrap().iter().map(|variable| {
        let field = |name: &str| variable[name].as_str().unwrap().to_owned();
        (field("name"), field("value"))
    });
    // What kubelets add to every container.
    let kubernetes = [("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "443")];
    let kubernetes = kubernetes.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Container {
        command: texts(&container["command"]).chain(texts(&container["args"])).collect(),
        env: env.chain(kubernetes).collect(),
        files,
    }
}

#[tokio::test]
async fn every_deployment_has_the_files_and_the_settings_that_the_broker_needs() {
    let scratch = Scratch::new("deployment").unwrap();
    let helm = chart::helm(scratch.path()).await.unwrap();
    let binaries = integration::binaries::Binaries::shared().await.unwrap();
    let authority = Authority::open(scratch.path()).unwrap();
    let contents = Contents {
        database_url: "postgres://tenant_broker:secret@db.example.com:5432/tenant_broker",
        serving: &authority.server("tenant-broker").unwrap(),
        authority: authority.certificate(),
        kubeconfig: "",
    };
    for installation in chart::installations() {
        let rendered = chart::render(&helm, installation, "brokers", &[]).await.unwrap();
        let documents = chart::documents(&rendered).unwrap();
        let place = Place::new(&binaries).unwrap();
        let mut container = mount(&place, &documents, &contents);
        if !chart::settings(&documents).contains("kubeconfig") {
            place.write(POD_CREDENTIAL, "", Access::Group).unwrap();
            let name = "TENANT_BROKER_CLUSTER__KUBECONFIG".to_owned();
            container.env.push((name, POD_CREDENTIAL.to_owned()));
        }
        let &[program, "serve", ref arguments @ ..] = container.command.as_slice() else {
            panic!("{installation}: {:?}", container.command)
        };
        let check: Vec<&str> = [program, "check-config"].iter().chain(arguments).copied().collect();
        let checked = place.run(&check, &container.env).await.unwrap();
        let text = checked.success().unwrap().stdout;
        let database = if installation == "sqlite" { "SQLite in" } else { "db.example.com:5432" };
        assert!(text.contains(database), "{installation}: {text}");

        // No file is there for nothing: without it the check fails.
        for file in container.files.iter().map(|file| place.path(file)) {
            let away = file.with_extension("away");
            std::fs::rename(&file, &away).unwrap();
            let checked = place.run(&check, &container.env).await.unwrap();
            assert!(!checked.status.success(), "{installation}: {}", file.display());
            std::fs::rename(&away, &file).unwrap();
        }
    }
}

/// One broker for each engine and for each kind of credential. The credential of a pod is a
/// kubeconfig here, with a real token of the ServiceAccount, because its path is fixed.
#[tokio::test]
async fn the_broker_of_a_deployment_becomes_ready() {
    let cluster = Cluster::shared().await.unwrap();
    let postgres = Postgres::shared().await.unwrap();
    let authority = cluster.control_plane.authority();
    let serving = authority.server("tenant-broker").unwrap();
    for installation in ["minimal", "sqlite", "other-cluster"] {
        let namespace = format!("serving-{installation}");
        cluster.restricted_namespace(&namespace).await.unwrap();
        let rendered = chart::render(&cluster.helm, installation, &namespace, &[]).await.unwrap();
        let documents = chart::documents(&rendered).unwrap();
        let settings = chart::settings(&documents);
        // As the documentation gets them.
        let only = ["--show-only", "templates/configmap.yaml"];
        let template = chart::render(&cluster.helm, installation, &namespace, &only).await.unwrap();
        let path = "jsonpath={.data.broker\\.toml}";
        let create = ["create", "--dry-run=client", "-f", "-", "-o", path];
        let printed = cluster.admin.run_with_input(create, template).await.unwrap();
        let printed = printed.success().unwrap().stdout;
        assert_eq!(printed.trim_end(), settings.trim_end(), "{installation}");
        let file = cluster.file(&format!("{installation}.toml"), &printed).unwrap();
        let installed = cluster.install(&file).await.unwrap();

        let database = postgres.database("deployment").await.unwrap();
        let contents = Contents {
            database_url: database.url().as_str(),
            serving: &serving,
            authority: authority.certificate(),
            kubeconfig: &cluster.kubeconfig_of_broker().unwrap(),
        };
        let place = Place::new(&cluster.binaries).unwrap();
        let mut container = mount(&place, &documents, &contents);
        if !settings.contains("kubeconfig") {
            let pod = &chart::only(&documents, "Deployment")["spec"]["template"]["spec"];
            let account = pod["serviceAccountName"].as_str().unwrap();
            let credential = cluster.kubeconfig_of_service_account(&namespace, account);
            place.write(POD_CREDENTIAL, credential.await.unwrap(), Access::Group).unwrap();
            let name = "TENANT_BROKER_CLUSTER__KUBECONFIG".to_owned();
            container.env.push((name, POD_CREDENTIAL.to_owned()));
        }
        let broker = place.serve(&container.command, &container.env).await.unwrap();
        let issuer = broker.issuer(Some(authority.certificate())).await.unwrap();
        assert_eq!(issuer, "https://tenants.example.com", "{installation}");
        broker.stop().await.unwrap();
        let made = broker.place().path("/var/lib/tenant-broker/broker.db").exists();
        assert_eq!(made, installation == "sqlite");
        drop(installed);
    }
}
