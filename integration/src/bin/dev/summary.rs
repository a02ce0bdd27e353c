//! The summary that `cargo dev` prints once everything runs.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use integration::world::World;

use crate::environment::written;
use crate::people::People;

/// Prints the addresses, the accounts and the commands to type next.
pub(crate) fn print(world: &World, people: &People, script: &Path) -> Result<()> {
    let text = text(world, people, script)?;
    let mut stdout = std::io::stdout();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("write to stdout")
}

fn text(world: &World, people: &People, script: &Path) -> Result<String> {
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
    writeln!(text, "\nAccounts, with their passwords:\n")?;
    for (account, role) in people.all() {
        writeln!(text, "  {:22}{}  {role}", account.email, account.password)?;
    }
    writeln!(text, "\nNow type in another terminal (it changes that terminal only):\n")?;
    writeln!(text, "  source {}", script.display())?;
    writeln!(text, "  kubectl tenant login")?;
    writeln!(text, "  kubectl get pods\n")?;
    writeln!(text, "Cluster administrator there: kubectl --kubeconfig $TENANT_ADMIN_KUBECONFIG")?;
    writeln!(text, "Ctrl-C here stops everything.")?;
    Ok(text)
}
