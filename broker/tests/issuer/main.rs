//! Tests of the issuer over HTTP, on both database engines: clients, browsers and attackers.
#![expect(clippy::unwrap_used, reason = "what cannot be had here fails the test")]

mod authorize;
mod code;
mod connector;
mod connector_browser;
mod connector_groups;
mod connector_logout;
mod connector_refresh;
mod connector_tokens;
mod device;
mod exchange;
mod frontend;
mod gateway_token;
mod login;
mod openid;
mod pages;
mod proxies;
mod refresh;
mod reload;
mod restored;
mod revoke;
mod sessions;
mod slow_bodies;
mod storage;
mod upstream;
mod world;
