//! The broker: gives each person an isolated namespace and two-hour credentials for it.
//!
//! | module | responsibility |
//! |---|---|
//! | [`clock`], [`secret`], [`cookie`] | time, randomness, cookies |
//! | [`problem`], [`page`], `list`, [`proxy`], [`config`] | API errors, HTML pages, paginated lists, client addresses behind proxies, settings |
//! | [`db`], [`telemetry`] | storage on two engines with one SQL text; logs and metrics |
//! | [`audit`], [`rate_limit`], [`throttle`], [`cluster`] | audit trail; rate limits per process and across replicas; the Kubernetes API as the broker |
//! | [`identity`], [`access`] | authentication; authorization |
//! | [`user`] | user accounts; suspending and resuming them |
//! | [`workspace`] | the life cycle of workspaces: init, suspend, resume, the sweep |
//! | [`tier_role`] | the permissions that the tiers' ClusterRoles really grant |
//! | [`credential`], [`issuer`], [`install`] | two-hour tokens; the OpenID provider; the broker's ClusterRole and the admission policies |
//! | [`gateway`] | the Kubernetes proxy: forwards requests with the tenant's token, and cancels them on revocation |
//! | [`account`] | the account page in the browser |
//! | [`doctor`] | diagnostics of the cluster |
//! | [`http`], [`server`], `workers`, `preface_timeout`, [`tls`] | the outer HTTP stack; connections, their worker threads and timeouts; TLS |
//! | [`operator`], [`background`] | health and metrics; periodic tasks |
//! | [`app`], [`cli`] | the composition root; the commands |
//!
//! A module uses modules of the lines above its own only, and of another module only its `mod.rs`.
//!
//! How a credential is issued: [`http`] gives the request an id; `credential::api` authenticates
//! the caller ([`identity`]), reads the workspace's row, and gets a permit from [`access`] and an
//! `Active` from [`workspace`]; [`credential`] requests a token from the [`cluster`], commits the
//! rows of the ledger and of the audit trail, and only then returns the token.

pub mod access;
pub mod account;
pub mod app;
pub mod audit;
pub mod base;
pub mod cli;
pub mod cluster;
pub mod config;
pub mod credential;
pub mod doctor;
pub mod gateway;
pub mod http;
pub mod identity;
pub mod install;
pub mod issuer;
#[cfg(test)]
mod testing;
pub mod tier;
pub mod tier_role;
pub mod user;
pub mod workspace;
