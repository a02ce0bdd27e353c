//! The matrix of streams: every kind × kubectl version × protocol × route.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use integration::kubectl::{self, Kubectl};
use integration::machine;
use integration::node::{COUNT_PORT, ECHO_PORT, Node};
use integration::process::Finished;
use integration::progress::print_message;
use integration::streams::{forward, make_pod};
use integration::world::World;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{POD, directly, through_the_gateway};

/// Time limit for pending output to appear.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of bytes that are sent and counted.
const PAYLOAD_BYTES: usize = 20_000_000;

/// The observed output, as text to compare.
type Transcript = Vec<(&'static str, String)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_sees_the_same_directly_and_through_the_gateway() {
    see_the_same(&kubectl::oldest_and_newest().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: cargo test --workspace --test e2e -- --ignored every_kubectl"]
async fn every_kubectl_sees_the_same_directly_and_through_the_gateway() {
    see_the_same(&kubectl::all_versions().unwrap()).await;
}

async fn see_the_same(programs: &[PathBuf]) {
    let world = World::builder().node().tls().start().await.unwrap();
    let node = world.node().unwrap();
    let alice = through_the_gateway(&world, "alice").await;
    let direct = directly(&alice).await;
    make_pod(alice.kubectl(), node, POD).await.unwrap();
    for program in programs {
        for websockets in ["true", "false"] {
            let what = format!("{} with WebSocket {websockets}", program.display());
            let mut ways = Vec::new();
            for (person, is_direct) in [(&direct, true), (&alice, false)] {
                let kubectl = person
                    .kubectl()
                    .clone()
                    .with_program(program.clone())
                    .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
                    .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets);
                ways.push(everything(&kubectl, is_direct, node, person.home()).await);
            }
            assert_eq!(ways[0], ways[1], "{what}");
            print_message(&format!("{what}: the same both ways"));
        }
    }
    // The streams really went through the gateway, because it counted their bytes.
    let api = alice.api().await.unwrap();
    let id = api.workspaces(false).await.unwrap().items[0].id;
    world.broker().stop().await.unwrap();
    world.broker().start().await.unwrap();
    let usage = api.usage(id).await.unwrap();
    let connect = usage.items.iter().find(|day| day.verb == "connect").unwrap();
    let each = u64::try_from(PAYLOAD_BYTES).unwrap();
    assert!(connect.bytes_up > 2 * each && connect.bytes_down > 2 * each, "{usage:?}");
}

async fn everything(kubectl: &Kubectl, is_direct: bool, node: &Node, home: &Path) -> Transcript {
    let mut seen = Transcript::new();
    let run = async |args: &[&str]| not_too_early(async || kubectl.run(args).await.unwrap()).await;
    let phase = run(&["get", "pod", POD, "-o", "jsonpath={.status.phase}"]).await;
    assert_eq!(phase.stdout, "Running", "{phase:?}");

    let said = run(&["exec", POD, "--", "sh", "-c", "echo out; echo err >&2"]).await;
    assert_eq!((said.stdout.as_str(), said.stderr.as_str(), said.code()), ("out\n", "err\n", 0));
    for command in ["exit 3", "echo last; exit 1", "kill -9 $$"] {
        let failed = run(&["exec", POD, "--", "sh", "-c", command]).await;
        assert_ne!(failed.code(), 0, "{failed:?}");
        seen.push(("a command that fails", words(&failed)));
    }
    seen.push(("no such command", words(&run(&["exec", POD, "--", "/no/such/command"]).await)));
    seen.push(("no such pod", words(&run(&["exec", "absent", "--", "true"]).await)));
    seen.push(("no such container", words(&run(&["logs", POD, "-c", "absent"]).await)));

    // Bulk data in both directions.
    let output = format!("head -c {PAYLOAD_BYTES} /dev/zero | tr '\\0' x");
    let large = run(&["exec", POD, "--", "sh", "-c", &output]).await.success().unwrap();
    assert_eq!(large.stdout.len(), PAYLOAD_BYTES);
    let input: Vec<u8> = (0..=250).cycle().take(PAYLOAD_BYTES).collect();
    let count = format!("head -c {PAYLOAD_BYTES} | cksum");
    let exec = ["exec", "-i", POD, "--", "sh", "-c", &count];
    let sum = async || kubectl.run_with_input(exec, input.clone()).await.unwrap();
    let sum = if is_direct { with_output(sum).await } else { not_too_early(sum).await };
    let sum = sum.success().unwrap();
    assert!(sum.stdout.contains(&PAYLOAD_BYTES.to_string()), "{sum:?}");
    seen.push(("exec -i", sum.stdout));

    // A file that is readable for all users and not small.
    let source = kubectl.program().display().to_string();
    let copy = home.join("copy");
    let from = format!("{POD}:{source}");
    run(&["cp", &from, copy.to_str().unwrap()]).await.success().unwrap();
    assert!(std::fs::read(&copy).unwrap() == std::fs::read(&source).unwrap(), "cp changed it");
    copy_in(kubectl, node, &copy).await;
    std::fs::remove_file(copy).unwrap();

    logs(kubectl, node).await;
    ports(kubectl).await;
    seen
}

/// `cp` into the pod. `tar` waits for the end of its input, which the simulated node does not pass
/// on. The `tar` here is therefore told its input's length: a head, whole blocks, two empty ones.
async fn copy_in(kubectl: &Kubectl, node: &Node, file: &Path) {
    let content = std::fs::read(file).unwrap();
    let bytes = 512 * (1 + content.len().div_ceil(512) + 2);
    let tar = machine::find("tar").expect("tar is needed for this: sudo apt-get install tar");
    let tar = tar.display();
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n\
         -x*) head -c {bytes} | {tar} \"$@\" ;;\n\
         *) exec {tar} \"$@\" ;;\nesac\n"
    );
    node.program("tar", &script).unwrap();
    let there = node.files().join("copied");
    let to = format!("{POD}:{}", there.display());
    let copy = ["cp", file.to_str().unwrap(), &to];
    let copied = not_too_early(async || kubectl.run(copy).await.unwrap()).await;
    copied.success().unwrap();
    assert!(std::fs::read(&there).unwrap() == content, "cp changed it");
    std::fs::remove_file(there).unwrap();
}

/// `logs`, `logs -f` and `attach`, which arrive line by line.
async fn logs(kubectl: &Kubectl, node: &Node) {
    node.log("a line").unwrap();
    let last = kubectl.run(["logs", POD, "--tail=1"]).await.unwrap().success().unwrap();
    assert_eq!(last.stdout, "a line\n");
    for args in [&["logs", "-f", "--tail=0", POD][..], &["attach", POD]] {
        let follow = kubectl.spawn(args).unwrap();
        // No signal tells when it listens, so lines are written until one arrives.
        let mut line = 0;
        while follow.stdout().unwrap().is_empty() {
            line += 1;
            assert!(line < 600, "{args:?}: {:?}", follow.stderr());
            node.log(&format!("early {line}")).unwrap();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for line in ["one", "two", "three"] {
            node.log(line).unwrap();
            follow.until_stdout(line, OUTPUT_TIMEOUT, |said| said.contains(line)).await.unwrap();
        }
    }
}

/// `port-forward`: bytes in both directions at once, more than one connection, and one half-closed
/// end.
async fn ports(kubectl: &Kubectl) {
    let (_echo, port) = forward(kubectl, POD, ECHO_PORT).await.unwrap();
    let mut connections = Vec::new();
    for fill in [b'a', b'b', b'c'] {
        let connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        connections.push(tokio::spawn(async move {
            let sent = vec![fill; 1_000_000];
            let (mut reader, mut writer) = connection.into_split();
            let writing = async {
                writer.write_all(&sent).await.unwrap();
                writer.shutdown().await.unwrap();
            };
            let mut back = Vec::new();
            let (read, ()) = tokio::join!(reader.read_to_end(&mut back), writing);
            read.unwrap();
            assert!(back == sent, "{} bytes came back", back.len());
        }));
    }
    for connection in connections {
        tokio::time::timeout(OUTPUT_TIMEOUT, connection).await.unwrap().unwrap();
    }

    let (_count, port) = forward(kubectl, POD, COUNT_PORT).await.unwrap();
    let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    connection.write_all(&vec![b'x'; 3_000_000]).await.unwrap();
    // A half-closed end still receives the response.
    connection.shutdown().await.unwrap();
    let mut answer = String::new();
    let read = connection.read_to_string(&mut answer);
    tokio::time::timeout(OUTPUT_TIMEOUT, read).await.unwrap().unwrap();
    assert_eq!(answer.trim(), "3000000");
}

/// Runs a command. kubectl up to 1.33 may read a WebSocket before it is ready, prints so and drops
/// the data (kubernetes/kubernetes#131189); then the command is run again.
async fn not_too_early(command: impl AsyncFn() -> Finished) -> Finished {
    for _ in 0..5 {
        let finished = command().await;
        if !finished.stderr.contains("Unknown stream id") {
            return finished;
        }
    }
    panic!("kubectl is too early again and again");
}

/// Runs a command that prints something, directly at the API server. There kubectl 1.31 over SPDY was
/// seen to end with success and without output; then the command is run again. Through the gateway
/// this is a failure.
async fn with_output(command: impl AsyncFn() -> Finished) -> Finished {
    for _ in 0..5 {
        let finished = not_too_early(&command).await;
        if !(finished.code() == 0 && finished.stdout.is_empty()) {
            return finished;
        }
    }
    panic!("kubectl prints nothing again and again");
}

/// Returns the outcome, without the parts that differ from run to run.
fn words(finished: &Finished) -> String {
    format!("{} | {} | {}", finished.code(), finished.stdout.trim(), finished.stderr.trim())
}
