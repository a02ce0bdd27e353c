//! Tests of the built program with real files, locks and processes, against stub brokers. The tests
//! with a real broker are in `integration`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod account;
mod browser_sign_in;
mod commands;
mod completion;
mod credentials;
mod device;
mod exec_api_version;
mod get_token;
mod lookup;
mod models;
mod profiles;
mod storage;
mod stub_broker;
mod stub_server;
mod support;
mod tenants;
mod terminal;
mod token_lifecycle;
mod versions;
mod workload_identity;
