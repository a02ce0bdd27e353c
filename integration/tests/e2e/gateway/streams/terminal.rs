//! `exec -it` at a terminal: an interactive shell.

use std::time::{Duration, Instant};

use integration::kubectl::{self, Kubectl};
use integration::streams::make_pod;
use integration::terminal::Terminal;
use integration::world::World;

use super::{POD, directly, through_the_gateway};

/// Time limit for pending output to appear.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_at_a_terminal_is_the_same_directly_and_through_the_gateway() {
    let world = World::builder().node().tls().start().await.unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let direct = directly(&alice).await;
    make_pod(alice.kubectl(), world.node().unwrap(), POD).await.unwrap();
    for program in kubectl::oldest_and_newest().unwrap() {
        for websockets in ["true", "false"] {
            for (way, person) in [("directly", &direct), ("through the gateway", &alice)] {
                let kubectl = person
                    .kubectl()
                    .clone()
                    .with_program(program.clone())
                    .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets);
                let what = format!("{}, WebSocket {websockets}, {way}", program.display());
                shell(&kubectl, &what).await;
            }
        }
    }
}

async fn shell(kubectl: &Kubectl, what: &str) {
    let terminal = Terminal::run(kubectl, ["exec", "-it", POD, "--", "sh"], (100, 30)).unwrap();
    let shows = async |text: &str| {
        let shown = terminal.until_shown(text, OUTPUT_TIMEOUT).await;
        shown.unwrap_or_else(|error| panic!("{what}: {error:#}"));
    };
    // The size is sent after the program has started, so the first output may be without it.
    let measures = async |size: &str| {
        let start = Instant::now();
        while !terminal.shown().contains(size) {
            assert!(start.elapsed() < OUTPUT_TIMEOUT, "{what}: {:?}", terminal.shown());
            terminal.types("stty size\n").unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    // The remote shell echoes the input, so the expected text must not be part of it.
    measures("30 100").await;
    terminal.types("tty -s && echo ter''minal\n").unwrap();
    shows("terminal").await;

    terminal.resize((132, 50)).unwrap();
    measures("50 132").await;

    // Bulk output, then single keys.
    terminal.types("head -c 300000 /dev/zero | tr '\\0' x; echo d''one\n").unwrap();
    shows("done").await;
    assert!(terminal.shown().matches('x').count() >= 300_000, "{what}");
    for key in "echo k''eys\n".chars() {
        terminal.types(&key.to_string()).unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    shows("keys").await;
    // Ctrl-D.
    terminal.types("\u{4}").unwrap();
    let ended = tokio::time::timeout(OUTPUT_TIMEOUT, terminal.program().process().wait()).await;
    let ended = ended.unwrap_or_else(|_| panic!("{what}: {:?}", terminal.shown()));
    assert!(ended.unwrap().success(), "{what}: {:?}", terminal.shown());
}
