//! The harness over real programs.
//!
//! A test asks [`world::World`] for what it needs and gets real programs: a control plane
//! ([`control_plane`]), the broker ([`broker`]), PostgreSQL ([`postgres`]), kubectl ([`kubectl`]),
//! a company's OpenID provider ([`oidc_provider`]) and people with a home and a browser
//! ([`person`]). Nothing is imitated; faults come from outside, by
//! signals and by a proxy before the API server ([`fault_proxy`]). Only what a pod does is played, by
//! KWOK ([`node`]): there is no container engine.
//!
//! | What is where | |
//! |---|---|
//! | [`process`], [`scratch`], [`port`], [`probe`] | children and folders that go away, whatever happens |
//! | [`machine`], [`binaries`] | programs of the machine, programs of this workspace |
//! | [`authority`], [`kubeconfig`], [`http_client`], [`random`] | identities and how they are used |
//! | [`browser`], [`oidc`], [`api`] | the ways to the broker without the plugin |
//! | [`conformance`] | the suite of Kubernetes itself, directly and through the gateway |
//! | [`proxied_program`] | a program behind the API server's subresource `proxy` |
//! | [`streams`] | what a person leaves open: a watch, logs, exec, a forwarded port |
//! | [`terminal`] | a person's terminal, on which kubectl runs |
//! | [`progress`] | what a person at the terminal is told |

pub mod acceptance;
pub mod api;
pub mod authority;
pub mod binaries;
pub mod broker;
pub mod browser;
pub mod chromium;
pub mod conformance;
pub mod control_plane;
pub mod engine;
pub mod fault_proxy;
mod go_build;
pub mod helm;
pub mod http_client;
pub mod keycloak;
pub mod kubeconfig;
pub mod kubectl;
pub mod machine;
pub mod measure;
pub mod node;
pub mod oidc;
pub mod oidc_provider;
pub mod person;
pub mod port;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod progress;
pub mod proxied_program;
pub mod random;
pub mod scratch;
pub mod streams;
pub mod terminal;
pub mod world;
