//! Streams that stay idle for longer than any usual timeout of a proxy.

use std::time::Duration;

use anyhow::Result;

use super::step;
use crate::progress::print_message;
use crate::streams::{OpenStreams, make_pod};
use crate::world::World;

/// Name of the pod of all streams.
const POD: &str = "p";

/// Opens a watch, `logs -f`, `exec` and `port-forward`, directly and through the gateway, leaves
/// them idle for `idle`, and uses them again.
///
/// # Errors
/// A stream ended, or does not work any more.
pub async fn run(idle: Duration) -> Result<()> {
    print_message("streams");
    let start = World::builder().node().tls().setting("log.level", "info").start();
    let world = step("start the control plane, a node and the broker", Box::pin(start)).await?;
    let node = world.node()?;
    let (direct, through) = (world.person("direct").await?, world.person("through").await?);
    direct.login(&[]).await?.success()?;
    through.login(&[]).await?.success()?;
    let gateway = ["tenant", "kubeconfig", "--mode", "gateway", "--use"];
    through.kubectl().run(gateway).await?.success()?;
    let mut open = Vec::new();
    for (way, person) in [("directly", &direct), ("through the gateway", &through)] {
        let opened = async {
            make_pod(person.kubectl(), node, POD).await?;
            OpenStreams::open(person.kubectl(), node, POD, idle, "first").await
        };
        let what = format!("open a watch, logs -f, exec and port-forward {way}");
        open.push((way, step(&what, opened).await?));
    }
    let wait = async {
        tokio::time::sleep(idle).await;
        Ok(())
    };
    step("leave them alone", wait).await?;
    for (way, streams) in &mut open {
        let used = async {
            streams.exec_speaks().await?;
            streams.still_work(node, "later").await
        };
        step(&format!("use them again {way}"), used).await?;
    }
    Ok(())
}
