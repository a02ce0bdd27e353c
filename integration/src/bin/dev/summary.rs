//! The summary that `cargo dev` prints once everything runs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use integration::world::World;

use crate::Features;
use crate::environment::written;
use crate::people::People;

const FIRST_COMMANDS: &str = "  kubectl tenant login
  kubectl get pods

Without a browser, as alice and as another account; then alice is the current account again:

  BROWSER=headless-sign-in kubectl tenant login
  BROWSER='headless-sign-in --as operator' kubectl tenant login --profile operator --no-use
  kubectl tenant profiles use $TENANT_BROKER_URL
";
const TENANTS: &str = "
Tenants, after these logins:

  kubectl tenant tenants create solar --owner alice@example.com --profile operator
";
const MODELS: &str = "
Models, after alice's login; there are no operators of KServe and Llama Stack, so phases stay <none>:

  kubectl tenant models
  kubectl tenant models install sample
  kubectl tenant models status
";
const LAST: &str = "
Cluster administrator there: kubectl --kubeconfig $TENANT_ADMIN_KUBECONFIG
Pods stay Pending, because the cluster has no nodes.
After a restart source the new line; accounts and data are new then, unless you set --state DIR.
Ctrl-C here stops everything.
";

/// Prints the addresses, the accounts and the commands to type next.
pub(crate) fn print(
    world: &World,
    people: &People,
    script: &Path,
    features: &Features,
) -> Result<()> {
    let mut text = addresses(world)?;
    writeln!(text, "\nAccounts, with their passwords:\n")?;
    for (account, role) in people.all() {
        writeln!(text, "  {:22}{}  {role}", account.email, account.password)?;
    }
    writeln!(text, "\nNow type in another terminal (it changes that terminal only):\n")?;
    writeln!(text, "  source {}", script.display())?;
    text.push_str(FIRST_COMMANDS);
    if features.tenants {
        text.push_str(TENANTS);
    }
    if features.models {
        text.push_str(MODELS);
    }
    text.push_str(LAST);
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to stdout")
}

fn addresses(world: &World) -> Result<String> {
    let broker = world.broker();
    let mut text = String::new();
    writeln!(text, "\n  broker              {}", written(&broker.public_url()?))?;
    writeln!(text, "  account page        {}/account", written(&broker.public_url()?))?;
    for replica in world.brokers().iter().skip(1) {
        writeln!(text, "  one more replica    {}", written(&replica.url()?))?;
    }
    writeln!(text, "  health and metrics  {}", written(&broker.operator_url()?))?;
    writeln!(text, "  its log             {}", broker.log_file().display())?;
    writeln!(text, "  API server          {}", written(world.cluster().url()))?;
    Ok(text)
}
