//! The generator of `docs/configuration.md`.

use std::fmt::Write as _;

use super::{
    audit, cluster, connector, database, declaration::Declaration, frontends, gateway, general,
    issuer, limits, log, model_services, quota, tenants, tier, tls, workload,
};

/// The settings outside of tiers, connectors and workloads, in the order of the page.
const SECTIONS: [&[&dyn Declaration]; 12] = [
    general::SETTINGS,
    database::SETTINGS,
    tls::SETTINGS,
    log::SETTINGS,
    cluster::SETTINGS,
    tenants::SETTINGS,
    limits::SETTINGS,
    audit::SETTINGS,
    issuer::SETTINGS,
    gateway::SETTINGS,
    frontends::SETTINGS,
    model_services::SETTINGS,
];

const HEAD: &str = "\
# Configuration of the broker

This page is generated from the code; a test compares the two (`UPDATE_GENERATED=1 cargo test -p \
tenant-broker --test generated` rewrites it).

A setting comes from a TOML file (`tenant-broker serve --config FILE`), from the environment, and \
from the command line (`--set key=value`); the later wins. The environment variable of a key is \
`TENANT_BROKER_` and the key in capitals, with `__` for each dot: `database.url` is \
`TENANT_BROKER_DATABASE__URL`. There a list is separated by commas. Variables that Kubernetes adds \
for Services named `tenant-broker` or `tenant-broker-…`, such as `TENANT_BROKER_SERVICE_HOST`, are \
ignored. `tenant-broker check-config` reports all faults together, each with its key and origin.

| key | default | meaning |
|---|---|---|
";

const TIERS: &str = "
## Tiers

A tier is a table `[tiers.NAME]`. `basic`, `standard` and `premium` exist without being \
configured; a table changes their defaults, and any other name adds a tier with the defaults of `basic`. \
Amounts are Kubernetes quantities. A workspace keeps the tier that it was created with. \
Of a Tenant (`spec.tier`) a tier gives [only a part](tenants.md#fields), and no quota.

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

/// Renders the page from the declarations.
pub fn reference() -> String {
    let mut page = HEAD.to_owned();
    for section in SECTIONS {
        push_rows(&mut page, section);
    }
    page.push_str(TIERS);
    push_rows(&mut page, tier::SETTINGS);
    page.push_str(QUOTA);
    for (key, defaults) in quota::COUNTS {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "| `{key}` | {} |", cells(&defaults.texts()));
    }
    page.push_str(CONNECTORS);
    push_rows(&mut page, connector::SETTINGS);
    page.push_str(WORKLOADS);
    for (prefix, settings) in workload::SETTINGS {
        for setting in *settings {
            let _ = writeln!(page, "| `{prefix}{}` | {} |", setting.key(), setting.doc());
        }
    }
    page
}

fn push_rows(page: &mut String, settings: &[&dyn Declaration]) {
    for setting in settings {
        let (key, defaults, doc) = (setting.key(), setting.defaults(), setting.doc());
        let _ = writeln!(page, "| `{key}` | {} | {doc} |", cells(&defaults));
    }
}

/// Defaults as inline code; a cell is empty if there is none. A table ends a cell at each `|`, even
/// in code.
fn cells(defaults: &[&str]) -> String {
    let code = |text: &&str| match text.replace('|', "\\|") {
        text if text.is_empty() => String::new(),
        text => format!("`{text}`"),
    };
    defaults.iter().map(code).collect::<Vec<_>>().join(" | ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{
        super::{Config, Settings, quota::is_quantity, service_variables, tier_setting::Defaults},
        *,
    };

    /// A connector `c`, and a workload `w` with a rule `r` on a claim `sub`. The default tiers need
    /// no table.
    const TABLES: &str = "[connectors.c]\nissuer = 'https://sso.example.com'\n\
                          [workloads.w.rules.r.claims]\nsub = 'x'";

    /// The declarations with their whole keys in [`TABLES`].
    fn declarations() -> Vec<(String, &'static dyn Declaration)> {
        let mut found = Vec::new();
        let mut add = |prefix: &str, settings: &[&'static dyn Declaration]| {
            found.extend(settings.iter().map(|it| (format!("{prefix}{}", it.key()), *it)));
        };
        for section in SECTIONS {
            add("", section);
        }
        for tier in Defaults::TIERS {
            add(&format!("tiers.{tier}."), tier::SETTINGS);
        }
        add("connectors.c.", connector::SETTINGS);
        for (prefix, settings) in workload::SETTINGS {
            add(&format!("workloads.w.{prefix}").replace("RULE", "r"), settings);
        }
        for (key, _) in &mut found {
            *key = key.replace("CLAIM", "sub");
        }
        found
    }

    #[test]
    fn no_key_is_declared_twice() {
        let mut keys = BTreeSet::new();
        for (key, _) in declarations() {
            assert!(keys.insert(key.clone()), "{key} is declared twice");
        }
        let counts: BTreeSet<&str> = quota::COUNTS.iter().map(|(key, _)| *key).collect();
        assert_eq!(counts.len(), quota::COUNTS.len());
    }

    #[test]
    fn every_default_is_a_valid_value() {
        for (key, setting) in declarations() {
            assert_eq!(setting.check_defaults(), Ok(()), "{key}");
        }
        for (key, defaults) in quota::COUNTS {
            assert!(defaults.texts().into_iter().all(is_quantity), "{key}");
        }
    }

    #[test]
    fn no_setting_has_the_name_of_a_services_variable() {
        for (key, _) in declarations() {
            let rest = key.replace('.', "__").to_uppercase();
            assert!(service_variables::kinds_of(&rest).is_empty(), "{key} may be ignored");
        }
    }

    /// Otherwise the page lacks a setting, or has one without effect.
    #[test]
    fn exactly_the_declared_keys_are_read() {
        let mut settings =
            Settings::load(Some(("test.toml", TABLES)), std::iter::empty(), &[]).unwrap();
        Config::read(&mut settings);
        let declared: BTreeSet<String> = declarations().into_iter().map(|(key, _)| key).collect();
        assert_eq!(*settings.read_keys(), declared);
    }
}
