//! Settings of the Kubernetes cluster (`cluster.*`).

use std::path::PathBuf;

use tenant_shared::is_dns_label;
use url::Url;

use super::{
    Settings,
    declaration::{Declaration, Setting},
    parse::{from_str, list, optional},
};
use crate::cluster::{ClusterSettings, KubernetesUser};

const NAME: Setting<String> = Setting::new(
    "cluster.name",
    "internal-cluster",
    dns_label,
    "Name of the cluster in workspaces and in the gateway's URL, /clusters/NAME/. Entries of \
     kubeconfigs are always called internal-cluster.",
);
pub(super) const KUBECONFIG: Setting<Option<PathBuf>> = Setting::new(
    "cluster.kubeconfig",
    "",
    optional,
    "The broker's own restricted credential; empty: the pod's ServiceAccount. It is read again when \
     it or a file that it names changes.",
);
const SERVER: Setting<Option<Url>> = Setting::new(
    "cluster.server",
    "",
    server,
    "API server URL in people's kubeconfigs; empty: as in the broker's credential.",
);
pub(super) const CA_FILE: Setting<Option<PathBuf>> = Setting::new(
    "cluster.ca_file",
    "",
    optional,
    "PEM CA in people's kubeconfigs; empty: as in the broker's credential. It is read again when it \
     changes.",
);
const IDENTITY: Setting<KubernetesUser> = Setting::new(
    "cluster.identity",
    "tenant-broker",
    from_str,
    "Who the broker is to the API server: a user, such as its certificate's common name, or \
     system:serviceaccount:NAMESPACE:NAME. The admission policies restrict this user.",
);
const AUDIENCES: Setting<Vec<String>> = Setting::new(
    "cluster.audiences",
    "https://kubernetes.default.svc",
    audiences,
    "Audiences of the API server (its --api-audiences, or its issuer); the broker may request \
     tokens for no others.",
);
const ALLOW_MISSING_POLICIES: Setting<bool> = Setting::new(
    "cluster.allow_missing_policies",
    "false",
    from_str,
    "Whether the broker starts although the admission policies of tenant-broker install are \
     missing or changed. A stolen credential of the broker may then reach the whole cluster, and \
     tenants may create tokens that never expire.",
);
const BIND_TOKENS_TO_SECRETS: Setting<bool> = Setting::new(
    "cluster.bind_tokens_to_secrets",
    "false",
    from_str,
    "Whether every token is bound to an empty Secret of its own, so that it can be revoked \
     without the others of its workspace. This needs the additional permission to create and \
     delete Secrets (never to read them), which tenant-broker install grants and restricts by an \
     admission policy.",
);
pub(super) const SETTINGS: &[&dyn Declaration] = &[
    &NAME,
    &KUBECONFIG,
    &SERVER,
    &CA_FILE,
    &IDENTITY,
    &AUDIENCES,
    &ALLOW_MISSING_POLICIES,
    &BIND_TOKENS_TO_SECRETS,
];

pub(super) fn read(s: &mut Settings) -> ClusterSettings {
    ClusterSettings {
        name: NAME.read(s),
        kubeconfig: KUBECONFIG.read(s),
        server: SERVER.read(s),
        ca_file: CA_FILE.read(s),
        identity: IDENTITY.read(s),
        audiences: AUDIENCES.read(s),
        allow_missing_policies: ALLOW_MISSING_POLICIES.read(s),
        bind_tokens_to_secrets: BIND_TOKENS_TO_SECRETS.read(s),
    }
}

fn dns_label(text: &str) -> Result<String, String> {
    if is_dns_label(text) {
        Ok(text.to_owned())
    } else {
        Err("lower case letters, digits and dashes, 63 at most".to_owned())
    }
}

fn server(text: &str) -> Result<Option<Url>, String> {
    let url: Option<Url> = optional(text)?;
    if url.as_ref().is_none_or(|url| url.scheme() == "https") {
        Ok(url)
    } else {
        Err("an https URL, for example https://k8s.example.com:6443".to_owned())
    }
}

fn audiences(text: &str) -> Result<Vec<String>, String> {
    let audiences: Vec<String> = list(text)?;
    if audiences.is_empty() { Err("at least one".to_owned()) } else { Ok(audiences) }
}
