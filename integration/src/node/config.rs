//! KWOK's configuration: how nodes and pods become ready, and which server a pod's ports have.

use std::path::Path;

use serde_json::{Value, json};

use super::{COUNT_PORT, ECHO_PORT};
use crate::process::Account;

/// Query for the Ready condition of a node.
const READY: &str = r#".status.conditions.[] | select( .type == "Ready" ) | .status"#;
/// A new node gets its address, its port and the condition Ready.
const NODE_STATUS: &str = r#"
addresses:
- {type: InternalIP, address: {{ NodeIP | Quote }}}
daemonEndpoints: {kubeletEndpoint: {Port: {{ NodePort }}}}
conditions:
- type: Ready
  status: "True"
  reason: Played
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
allocatable: {cpu: "64", memory: 256Gi, pods: "1000"}
capacity: {cpu: "64", memory: 256Gi, pods: "1000"}
"#;

/// A new pod runs at once. Its address leads nowhere, but a service may have it as an endpoint.
const POD_STATUS: &str = r#"
phase: Running
hostIP: 127.0.0.1
{{ $ip := PodIPWith .spec.nodeName (or .spec.hostNetwork false) .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ $ip | Quote }}
podIPs: [{ip: {{ $ip | Quote }}}]
startTime: {{ Now | Quote }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ Now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ Now | Quote }}}}
{{ end }}
"#;

/// Returns the configuration, which has several documents. `log` is the log file of every
/// container; commands run as `account`, if there is one.
pub(super) fn text(log: &Path, account: Option<Account>) -> String {
    let object = |kind: &str, spec: Value| {
        json!({
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": kind.to_lowercase()},
            "spec": spec,
        })
    };
    let stage = |name: &str, kind: &str, matches: Value, next: Value| {
        let mut stage = object(
            "Stage",
            json!({
                "resourceRef": {"apiGroup": "v1", "kind": kind},
                "selector": {"matchExpressions": [matches]},
                "next": next,
            }),
        );
        stage["metadata"]["name"] = name.into();
        stage
    };
    let mut local = json!({});
    if let Some(account) = account {
        local["securityContext"] = json!({"runAsUser": account.uid, "runAsGroup": account.gid});
    }
    let documents = [
        stage(
            "node-ready",
            "Node",
            json!({"key": READY, "operator": "NotIn", "values": ["True"]}),
            json!({"statusTemplate": NODE_STATUS}),
        ),
        stage(
            "pod-runs",
            "Pod",
            json!({"key": ".status.phase", "operator": "In", "values": ["Pending"]}),
            json!({"statusTemplate": POD_STATUS}),
        ),
        stage(
            "pod-goes",
            "Pod",
            json!({"key": ".metadata.deletionTimestamp", "operator": "Exists"}),
            json!({"delete": true}),
        ),
        object("ClusterLogs", json!({"logs": [{"logsFile": log, "follow": true}]})),
        object("ClusterAttach", json!({"attaches": [{"logsFile": log}]})),
        object("ClusterExec", json!({"execs": [{"local": local}]})),
        object(
            "ClusterPortForward",
            json!({"forwards": [
                {"ports": [ECHO_PORT], "command": ["cat"]},
                {"ports": [COUNT_PORT], "command": ["sh", "-c", "wc -c"]},
            ]}),
        ),
    ];
    documents.map(|document| document.to_string()).join("\n---\n")
}
