//! `docs/configuration.md`, written from the settings themselves.

use std::fmt::Write as _;

use super::{KEYS, Tiers, connector, workload};

const HEAD: &str = "\
# Configuration of the broker

This page is written from the code; a test compares the two (`UPDATE_GENERATED=1 cargo test -p \
tenant-broker --test generated` rewrites it).

A setting comes from a TOML file (`tenant-broker serve --config FILE`), from the environment, and \
from the command line (`--set key=value`); the later wins. In the environment a key is \
`TENANT_BROKER_` and the key in capitals, with `__` for each dot: `database.url` is \
`TENANT_BROKER_DATABASE__URL`. A list is written with commas there. `tenant-broker check-config` \
reports every fault at once, with its key and where it came from.

| key | default | meaning |
|---|---|---|
";

const TIERS: &str = "
## Tiers

A tier is a table `[tiers.NAME]`. `basic`, `standard` and `premium` are there without being \
written; what a table sets changes them, and any other name adds a tier that starts from `basic`. \
Amounts are Kubernetes quantities. A workspace keeps the tier it was made with.

| key in `[tiers.NAME]` | basic | standard | premium | meaning |
|---|---|---|---|---|
";

const QUOTA: &str = "
Everything else that the ResourceQuota of a workspace says stands in a table `[tiers.NAME.quota]`: its \
keys are those of `spec.hard`, so that they are quoted in TOML (`\"count/jobs.batch\" = 500`, \
`\"requests.nvidia.com/gpu\" = 4`). They cannot be set in the environment. Without it:

| key in `[tiers.NAME.quota]` | basic | standard | premium |
|---|---|---|---|
";

const CONNECTORS: &str = "
## Connectors

A connector is a table `[connectors.NAME]`: an OpenID provider at which people sign in. NAME is \
part of addresses, so do not change it. [Signing in](sign-in.md) explains what the settings mean \
for people.

| key in `[connectors.NAME]` | default | meaning |
|---|---|---|
";

const WORKLOADS: &str = "
## Workloads

A workload is a table `[workloads.NAME]`: an issuer whose tokens machines exchange for a session of \
one workspace. [Signing in](sign-in.md) has examples.

| key in `[workloads.NAME]` | meaning |
|---|---|
";

/// The page.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for (key, default, meaning) in KEYS {
        let default = code(default);
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
    }
    page.push_str(TIERS);
    for (key, [basic, standard, premium], meaning) in Tiers::documentation() {
        let [basic, standard, premium] = [basic, standard, premium].map(code);
        let _ = writeln!(page, "| `{key}` | {basic} | {standard} | {premium} | {meaning} |");
    }
    page.push_str(QUOTA);
    for (key, [basic, standard, premium]) in Tiers::counts() {
        let _ = writeln!(page, "| `{key}` | `{basic}` | `{standard}` | `{premium}` |");
    }
    page.push_str(CONNECTORS);
    for (key, default, meaning) in connector::FIELDS {
        let default = code(default);
        let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
    }
    page.push_str(WORKLOADS);
    for (key, meaning) in workload::FIELDS {
        let _ = writeln!(page, "| `{key}` | {meaning} |");
    }
    page
}

/// A value as code; nothing if there is none.
fn code(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("`{value}`") }
}
