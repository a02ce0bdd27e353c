//! The test harness over real programs.
//!
//! A test describes what it needs to [`world::World`] and gets real programs: a control plane
//! ([`control_plane`]), the broker ([`broker`]), PostgreSQL ([`postgres`]), kubectl ([`kubectl`]),
//! a company's OpenID provider ([`oidc_provider`]) and people with a home and a browser
//! ([`person`]). Nothing is mocked; faults come from outside, by signals and by a proxy in front of
//! the API server ([`fault_proxy`]). Only the containers of pods are simulated, by KWOK ([`node`]),
//! because there is no container engine.
//!
//! | Modules | Contents |
//! |---|---|
//! | [`process`], [`scratch`], [`port`], [`probe`] | child processes and folders with guaranteed cleanup, ports, polling |
//! | [`machine`], [`binaries`] | programs of the machine and of this workspace |
//! | [`pod`] | a program with a pod's ServiceAccount and environment |
//! | [`authority`], [`kubeconfig`], [`http_client`], [`random`] | identities, and clients that use them |
//! | [`mounted_secret`] | files that are replaced as in a pod |
//! | [`extension`] | servers that the API server calls: an authorizer, an aggregated API |
//! | [`browser`], [`oidc`], [`api`] | access to the broker without the plugin |
//! | [`helm`], [`compose`] | tools that read the files of `deploy/` |
//! | [`model_kinds`] | the kinds of KServe and Llama Stack |
//! | [`krew`] | the manager of kubectl plugins, which reads a file of a release |
//! | [`exposition`], [`promtool`] | the broker's metrics, and the check of rules on them |
//! | [`conformance`] | the Kubernetes conformance suite, directly and through the gateway |
//! | [`load_balancer`] | one address in front of several replicas |
//! | [`proxied_program`] | a program behind the API server's subresource `proxy` |
//! | [`streams`] | long-lived streams: a watch, logs, exec, a forwarded port |
//! | [`traffic`] | a person who works while replicas are replaced |
//! | [`terminal`] | a person's terminal, on which kubectl runs |
//! | [`progress`] | progress lines on standard error |

pub mod acceptance;
pub mod api;
pub mod authority;
pub mod binaries;
pub mod broker;
pub mod browser;
pub mod chromium;
pub mod compose;
pub mod conformance;
pub mod control_plane;
pub mod engine;
pub mod exposition;
pub mod extension;
pub mod fault_proxy;
mod go_build;
mod go_tool;
pub mod helm;
pub mod http_client;
pub mod keycloak;
pub mod krew;
pub mod kubeconfig;
pub mod kubectl;
pub mod load_balancer;
pub mod machine;
pub mod measure;
pub mod model_kinds;
pub mod mounted_secret;
pub mod node;
pub mod oidc;
pub mod oidc_provider;
pub mod person;
pub mod pod;
pub mod port;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod progress;
pub mod promtool;
pub mod proxied_program;
pub mod random;
pub mod raw_role_binding;
pub mod scratch;
mod search_path;
pub mod streams;
pub mod terminal;
pub mod traffic;
pub mod world;
