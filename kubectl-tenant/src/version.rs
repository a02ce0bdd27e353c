//! The command `version`: the versions of the plugin and of the broker, and whether they work
//! together.

use serde::Serialize;
use tenant_shared::MIN_BROKER_VERSION;

use crate::{
    account::Account,
    broker_url::BrokerUrl,
    cli::Version as Options,
    compatibility::{BrokerVersion, PLUGIN_VERSION},
    error::{Error, Kind},
    output, runtime,
    store::AccountFlags,
    world::World,
};

/// Output of `version`.
#[derive(Serialize)]
struct Versions {
    /// Version of the plugin.
    version: &'static str,
    /// Commit that the program was built from, if the build knew it.
    commit: Option<&'static str>,
    os: &'static str,
    arch: &'static str,
    /// Oldest broker that the plugin supports.
    min_broker_version: &'static str,
    /// The broker of the account; absent if it was not asked.
    broker: Option<Broker>,
}

/// A broker as it describes itself.
#[derive(Serialize)]
struct Broker {
    url: BrokerUrl,
    /// Absent if the broker does not say it.
    version: Option<String>,
    /// Oldest plugin that the broker supports.
    min_plugin_version: Option<String>,
    /// Whether broker and plugin work together, if that is known.
    compatible: Option<bool>,
    /// What has to be updated.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Broker {
    fn new(url: BrokerUrl, version: Option<&BrokerVersion>) -> Self {
        let advice = version.and_then(|it| it.advice(&url));
        Self {
            version: version.map(|it| it.version.to_string()),
            min_plugin_version: version.map(|it| it.min_plugin_version.to_string()),
            compatible: version.map(|_| advice.is_none()),
            advice,
            url,
        }
    }
}

/// Runs `version`. The commit comes from `TENANT_COMMIT` at build time. Without a session the
/// broker is not asked, which is no failure.
pub(crate) fn version(
    flags: &AccountFlags,
    options: Options,
    world: &mut World,
) -> Result<(), Error> {
    let asked = if options.client { Ok(None) } else { fetch_broker_version(flags, world) };
    let (broker, failure) = match asked {
        Ok(broker) => (broker, None),
        Err(error) => (None, Some(error)),
    };
    let versions = Versions {
        version: PLUGIN_VERSION,
        commit: option_env!("TENANT_COMMIT"),
        os: std::env::consts::OS,
        arch: std::env::consts::ARCH,
        min_broker_version: MIN_BROKER_VERSION,
        broker,
    };
    output::show(world, options.shown.output, &versions, table)?;
    failure.map_or(Ok(()), Err)
}

/// Asks the broker of the account; [`None`] if no account is signed in.
fn fetch_broker_version(flags: &AccountFlags, world: &World) -> Result<Option<Broker>, Error> {
    // Without a flag, a usage error only says that no account is known.
    let is_no_account = |error: &Error| match error.kind {
        Kind::SignIn => true,
        Kind::Usage => flags.broker.is_none() && flags.profile.is_none(),
        _ => false,
    };
    let account = match Account::open(flags, world) {
        Err(error) if is_no_account(&error) => {
            world.print_message(format!("the broker's version is not shown: {error}"));
            return Ok(None);
        }
        opened => opened?,
    };
    let version = runtime::block_on(account.broker.version())??;
    Ok(Some(Broker::new(account.key.broker, version.as_ref())))
}

fn table(it: &Versions) -> String {
    let commit = it.commit.map(|commit| format!(" ({commit})")).unwrap_or_default();
    let mut text = format!(
        "kubectl-tenant {}{commit} {}/{}, supports brokers from {} on\n",
        it.version, it.os, it.arch, it.min_broker_version
    );
    if let Some(broker) = &it.broker {
        let line = match (&broker.version, &broker.min_plugin_version) {
            (Some(version), Some(min)) => format!(
                "broker {version} at {}, supports kubectl-tenant from {min} on\n",
                broker.url
            ),
            _ => format!("broker at {}, which does not say its version\n", broker.url),
        };
        text.push_str(&line);
        text.extend(broker.advice.iter().map(|advice| format!("{advice}\n")));
    }
    text
}
