//! The broker: gives each person a namespace of their own and two-hour credentials for it.
//!
//! | room | what it answers |
//! |---|---|
//! | [`clock`], [`secret`], [`cookie`] | time, randomness, cookies |
//! | [`problem`], [`page`], `list`, [`proxy`], [`config`] | failures, pages, lists in pages, who asks through proxies, settings |
//! | [`db`], [`telemetry`] | storage on two engines with one SQL text; logs and metrics |
//! | [`audit`], [`rate_limit`], [`throttle`], [`cluster`] | what happened; how often, in this process and across replicas; the Kubernetes API as the broker |
//! | [`identity`], [`access`] | who is calling; may they |
//! | [`user`] | who there is; suspend and resume people |
//! | [`workspace`] | is it on; init, suspend, resume; the sweep |
//! | [`tier_role`] | what the tiers' roles really give |
//! | [`credential`], [`issuer`], [`install`] | two-hour tokens; the OpenID provider; the broker's rights and what holds it |
//! | [`gateway`] | any Kubernetes call, forwarded with the tenant's token, and ended when it has to be |
//! | [`account`] | the page on which a person sees and does all that without a terminal |
//! | [`doctor`] | is the cluster as it should be, by trying |
//! | [`http`], [`server`], `lanes`, `opening`, [`tls`] | what every request passes; connections, their threads and first bytes; TLS |
//! | [`operator`], [`background`] | health and metrics; what is done again and again |
//! | [`app`], [`cli`] | who knows whom; the commands |
//!
//! A room uses rooms above its own line only, and of a neighbour only its `mod.rs`.
//!
//! The life of a credential: [`http`] names the request; `credential::api` has the caller checked
//! ([`identity`]), takes the workspace's row, asks [`access`] for a permit and [`workspace`] for an
//! `Active`; [`credential`] asks the [`cluster`] for a token, has the ledger and the audit row
//! committed, and only then lets the token leave.

pub mod access;
pub mod account;
pub mod app;
pub mod audit;
pub mod background;
pub mod cli;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod cookie;
pub mod credential;
pub mod db;
pub mod doctor;
pub mod gateway;
pub mod http;
pub mod identity;
pub mod install;
pub mod issuer;
mod lanes;
mod list;
mod log_lines;
mod opening;
pub mod operator;
pub mod page;
pub mod problem;
pub mod proxy;
pub mod rate_limit;
mod request_head;
pub mod secret;
pub mod server;
pub mod signing;
pub mod telemetry;
#[cfg(test)]
mod testing;
pub mod throttle;
pub mod tier_role;
pub mod tls;
pub mod user;
pub mod workspace;
