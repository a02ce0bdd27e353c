//! The generator of `docs/configuration.md`.

use std::fmt::Write as _;

use super::{SETTINGS, connector, quota, tier, workload};

const HEAD: &str = "\
# Configuration of the broker

This page is generated from the code; a test compares the two (`UPDATE_GENERATED=1 cargo test -p \
tenant-broker --test generated` rewrites it).

A setting comes from a TOML file (`tenant-broker serve --config FILE`), from the environment, and \
from the command line (`--set key=value`); the later wins. The environment variable of a key is \
`TENANT_BROKER_` and the key in capitals, with `__` for each dot: `database.url` is \
`TENANT_BROKER_DATABASE__URL`. There a list is separated by commas. `tenant-broker check-config` \
reports all faults together, each with its key and origin.

| key | default | meaning |
|---|---|---|
";

const TIERS: &str = "
## Tiers

A tier is a table `[tiers.NAME]`. `basic`, `standard` and `premium` exist without being \
configured; a table changes their defaults, and any other name adds a tier with the defaults of `basic`. \
Amounts are Kubernetes quantities. A workspace keeps the tier that it was created with.

| key in `[tiers.NAME]` | basic | standard | premium | meaning |
|---|---|---|---|---|
";

const QUOTA: &str = "
The other limits of a workspace's ResourceQuota are in a table `[tiers.NAME.quota]`. Its \
keys are those of `spec.hard`, which must be quoted in TOML (`\"count/jobs.batch\" = 500`, \
`\"requests.nvidia.com/gpu\" = 4`). They cannot be set in the environment. The defaults are:

| key in `[tiers.NAME.quota]` | basic | standard | premium |
|---|---|---|---|
";

const CONNECTORS: &str = "
## Connectors

A connector is a table `[connectors.NAME]`: an OpenID provider at which people sign in. NAME is \
part of URLs, so do not change it. [Signing in](sign-in.md) explains what the settings mean \
for people.

| key in `[connectors.NAME]` | default | meaning |
|---|---|---|
";

const WORKLOADS: &str = "
## Workloads

A workload is a table `[workloads.NAME]`: an issuer whose tokens machines exchange for a session in \
one workspace. [Signing in](sign-in.md) has examples.

| key in `[workloads.NAME]` | meaning |
|---|---|
";

/// Renders the page from the lists of settings.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for (key, default, meaning) in SETTINGS {
        let default = code(default);
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{key}` | {default} | {meaning} |");
    }
    page.push_str(TIERS);
    for (key, [basic, standard, premium], meaning) in tier::FIELDS {
        let [basic, standard, premium] = [basic, standard, premium].map(code);
        let _ = writeln!(page, "| `{key}` | {basic} | {standard} | {premium} | {meaning} |");
    }
    page.push_str(QUOTA);
    for (key, [basic, standard, premium]) in quota::COUNTS {
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

/// A value as inline code; empty if there is none.
fn code(value: &str) -> String {
    if value.is_empty() { String::new() } else { format!("`{value}`") }
}
