//! Unauthenticated clients that send requests without a pause, whatever the response. They run in a
//! process of its own with one thread, so that its own CPU use is known.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::process::{Captured, Program};

/// Number of connections, each with a request in flight at all times.
pub(super) const CONNECTIONS: u16 = 200;
/// Time limit for the process to start, and to end.
const PROCESS_TIMEOUT: Duration = Duration::from_secs(20);
/// Line that the process prints when it starts to send.
const STARTED_LINE: &str = "flooding";
/// Argument of the program that selects this client.
pub const ARGUMENT: &str = "unauthenticated";
/// Size limit of a response head in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Number of one-byte chunks in one write.
const CHUNKS_PER_WRITE: usize = 1000;
/// Pause after a connection that the broker did not accept.
const RECONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Input of the process, as JSON on its standard input.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct FloodInput {
    pub(super) broker: SocketAddr,
    /// The request as it is sent; with `chunks` only its head, which one-byte chunks follow.
    pub(super) request: String,
    /// Whether one-byte chunks follow for as long as the broker accepts them.
    pub(super) chunks: bool,
    /// Whether each connection has a source address of its own, below 127.0.0.0/8.
    pub(super) many_addresses: bool,
}

/// Number of responses by status; 0 counts connections that were closed without a response.
type ResponseCounts = BTreeMap<u16, u64>;

/// A running flood.
pub(super) struct UnauthenticatedFlood {
    process: Captured,
    began: Instant,
}

/// The result of a flood, per second.
#[derive(Clone, Debug)]
pub(super) struct ResponseRates {
    /// Responses a second, by status.
    pub(super) answers: BTreeMap<u16, f64>,
}

impl UnauthenticatedFlood {
    /// Starts the process.
    pub(super) async fn begin(program: std::path::PathBuf, input: &FloodInput) -> Result<Self> {
        let process = Program::new(program)
            .arg(ARGUMENT)
            .input(serde_json::to_vec(input)?)
            .spawn_captured()?;
        process
            .until_stdout("the flood", PROCESS_TIMEOUT, |said| said.contains(STARTED_LINE))
            .await?;
        Ok(Self { process, began: Instant::now() })
    }

    /// Stops the process and reads its result.
    pub(super) async fn end(self) -> Result<ResponseRates> {
        let seconds = self.began.elapsed().as_secs_f64();
        self.process.process().signal(rustix::process::Signal::TERM)?;
        let finished = self.process.finish(PROCESS_TIMEOUT).await?.success()?;
        let last = finished.stdout.lines().next_back().unwrap_or_default();
        let answers: ResponseCounts =
            serde_json::from_str(last).context("read the flood's output")?;
        ensure!(!answers.is_empty(), "the flood got no response");
        let rate = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
        let answers = answers.into_iter().map(|(status, count)| (status, rate(count))).collect();
        Ok(ResponseRates { answers })
    }
}

/// Runs the flooding process: reads its input, sends until SIGTERM, and prints the responses by
/// status.
///
/// # Errors
/// The input cannot be read.
#[expect(clippy::print_stdout, reason = "the measuring process reads it")]
pub async fn run() -> Result<()> {
    let input = std::io::read_to_string(std::io::stdin()).context("read what to send")?;
    let input: FloodInput = serde_json::from_str(&input).context("read what to send")?;
    let input = Rc::new(input);
    let answers: Rc<RefCell<ResponseCounts>> = Rc::default();
    let mut end = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    println!("{STARTED_LINE}");
    let flood = LocalSet::new();
    for number in 0..CONNECTIONS {
        let (input, answers) = (Rc::clone(&input), Rc::clone(&answers));
        flood.spawn_local(async move {
            loop {
                if connection(&input, number, &answers).await.is_err() {
                    *answers.borrow_mut().entry(0).or_default() += 1;
                    tokio::time::sleep(RECONNECT_PAUSE).await;
                }
            }
        });
    }
    flood
        .run_until(async {
            end.recv().await;
        })
        .await;
    println!("{}", serde_json::to_string(&*answers.borrow())?);
    Ok(())
}

/// Sends requests over one connection until it is closed.
async fn connection(
    input: &FloodInput,
    number: u16,
    answers: &RefCell<ResponseCounts>,
) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    if input.many_addresses {
        let [high, low] = number.to_be_bytes();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1, high, low)), 0))?;
    }
    let mut stream = socket.connect(input.broker).await?;
    stream.set_nodelay(true)?;
    loop {
        stream.write_all(input.request.as_bytes()).await?;
        let status =
            if input.chunks { chunked(&mut stream).await? } else { answer(&mut stream).await? };
        *answers.borrow_mut().entry(status).or_default() += 1;
        if input.chunks {
            return Ok(());
        }
    }
}

/// Sends chunks until the broker accepts no more, and returns the status of its response.
async fn chunked(stream: &mut TcpStream) -> Result<u16> {
    let chunks = "1\r\nx\r\n".repeat(CHUNKS_PER_WRITE);
    let (mut reader, mut writer) = stream.split();
    let send = async {
        while writer.write_all(chunks.as_bytes()).await.is_ok() {}
        std::future::pending::<()>().await;
    };
    let mut head = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        loop {
            match reader.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(count) => head.extend_from_slice(&buffer[..count.min(MAX_HEAD_BYTES)]),
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = send => {}
    }
    status(&head)
}

fn status(head: &[u8]) -> Result<u16> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).context("read the status line")?;
    let status = line.split(' ').nth(1).with_context(|| format!("no status in {line:?}"))?;
    Ok(status.parse()?)
}

/// Reads one response with a Content-Length.
async fn answer(stream: &mut TcpStream) -> Result<u16> {
    let mut read = Vec::with_capacity(4096);
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(read.len() < MAX_HEAD_BYTES, "the head of an answer does not end");
        if stream.read_buf(&mut read).await? == 0 {
            bail!("the broker closed the connection");
        }
    };
    let head = std::str::from_utf8(&read[..end])?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.unwrap_or("0").trim().parse()?;
    let mut left = (end + length).saturating_sub(read.len());
    let mut buffer = [0; 4096];
    while left > 0 {
        let most = left.min(buffer.len());
        let count = stream.read(&mut buffer[..most]).await?;
        ensure!(count > 0, "the answer was cut off");
        left -= count;
    }
    status(&read)
}
