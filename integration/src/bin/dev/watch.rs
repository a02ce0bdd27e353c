//! Programs of the stack that end by themselves.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::Path;
use std::process::ExitStatus;

use futures_util::future::{join, join_all};
use integration::process::log_tail;
use integration::progress::print_message;
use integration::world::World;

/// Number of lines of the log that are printed.
const LOG_LINES: usize = 10;

/// Prints a message for each broker and each program of the control plane that ends, and sets
/// `ended`. Nothing is stopped, because the folder of the log would be deleted, and because a
/// developer may kill one of several brokers to see what the others do.
pub(crate) async fn report_ends(world: &World, ended: &Cell<bool>) -> Infallible {
    let brokers = world.brokers().iter().map(|broker| async {
        let status = broker.wait().await;
        report(broker.name(), status, Some(&broker.log_file()));
        ended.set(true);
    });
    let cluster = world.cluster().processes().map(|process| async {
        let status = process.wait().await;
        report(process.name(), status, process.log());
        ended.set(true);
    });
    join(join_all(brokers), join_all(cluster)).await;
    std::future::pending().await
}

fn report(name: &str, status: Option<ExitStatus>, log: Option<&Path>) {
    let status = status.map_or_else(|| "an unknown status".to_owned(), |status| status.to_string());
    let tail = log.map(|log| format!("; {}", log_tail(log, LOG_LINES))).unwrap_or_default();
    print_message(&format!(
        "error: {name} ended ({status}){tail}\n\
         All other programs go on. Stop cargo dev and start it again to replace {name}."
    ));
}
