//! The broker: gives each person an isolated namespace and two-hour credentials for it.
//!
//! `docs/architecture.md` has the modules with their layers and responsibilities, and the way of
//! requests through them. A module uses modules of lower layers only, and of another module only
//! what its `mod.rs` exports; the tests in `broker/tests/layers` check that. [`app`] is the
//! composition root.

pub mod access;
pub mod account;
pub mod app;
pub mod audit;
pub mod backup;
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
pub mod model_services;
pub mod server;
pub mod tenant;
pub mod tenant_controller;
pub mod tenant_operations;
#[cfg(test)]
mod testing;
pub mod tier;
pub mod tier_role;
pub mod user;
pub mod workspace;
