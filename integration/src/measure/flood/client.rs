//! Unauthenticated clients that ask without a pause, whatever the answer: a process of its own with one
//! thread, so that what it needs itself is known.

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

/// Connections, each with a request under way at all times.
pub(super) const CONNECTIONS: u16 = 200;
/// Until the process has begun or ended.
const LIMIT: Duration = Duration::from_secs(20);
/// What the process says when it begins.
const BEGUN: &str = "flooding";
/// What the program is called with to be this process.
pub const ARGUMENT: &str = "unauthenticated";
/// Bytes of an answer's head at most.
const MAX_HEAD: usize = 16 * 1024;
/// One-byte chunks of one write.
const CHUNKS: usize = 1000;
/// Pause after a connection that the broker did not accept.
const PAUSE: Duration = Duration::from_millis(10);

/// What the process is told on its standard input.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct Told {
    pub(super) broker: SocketAddr,
    /// The request as it is sent. With `chunks` its head, and one-byte chunks follow.
    pub(super) request: String,
    /// Whether one-byte chunks follow for as long as the broker takes them.
    pub(super) chunks: bool,
    /// Whether each connection comes from an address of its own, below 127.0.0.0/8.
    pub(super) many_addresses: bool,
}

/// Answers by status; 0 counts connections that were closed without one.
type Answers = BTreeMap<u16, u64>;

/// A flood that goes on.
pub(super) struct Flood {
    process: Captured,
    began: Instant,
}

/// What came of it, by second.
#[derive(Clone, Debug)]
pub(super) struct Flooded {
    /// Answers by status.
    pub(super) answers: BTreeMap<u16, f64>,
}

impl Flood {
    /// Begins.
    pub(super) async fn begin(program: std::path::PathBuf, told: &Told) -> Result<Self> {
        let process = Program::new(program)
            .arg(ARGUMENT)
            .input(serde_json::to_vec(told)?)
            .spawn_captured()?;
        process.until_stdout("the flood", LIMIT, |said| said.contains(BEGUN)).await?;
        Ok(Self { process, began: Instant::now() })
    }

    /// Ends it.
    pub(super) async fn end(self) -> Result<Flooded> {
        let seconds = self.began.elapsed().as_secs_f64();
        self.process.process().signal(rustix::process::Signal::TERM)?;
        let finished = self.process.finish(LIMIT).await?.success()?;
        let last = finished.stdout.lines().next_back().unwrap_or_default();
        let answers: Answers = serde_json::from_str(last).context("read what the flood says")?;
        ensure!(!answers.is_empty(), "the flood did not get through at all");
        let rate = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / seconds;
        let answers = answers.into_iter().map(|(status, count)| (status, rate(count))).collect();
        Ok(Flooded { answers })
    }
}

/// The process: reads what to send, sends it until SIGTERM, and says what was answered.
///
/// # Errors
/// The input cannot be read.
#[expect(clippy::print_stdout, reason = "the measuring process reads it")]
pub async fn run() -> Result<()> {
    let told = std::io::read_to_string(std::io::stdin()).context("read what to send")?;
    let told: Told = serde_json::from_str(&told).context("read what to send")?;
    let told = Rc::new(told);
    let answers: Rc<RefCell<Answers>> = Rc::default();
    let mut end = signal(SignalKind::terminate()).context("wait for SIGTERM")?;
    println!("{BEGUN}");
    let flood = LocalSet::new();
    for number in 0..CONNECTIONS {
        let (told, answers) = (Rc::clone(&told), Rc::clone(&answers));
        flood.spawn_local(async move {
            loop {
                if connection(&told, number, &answers).await.is_err() {
                    *answers.borrow_mut().entry(0).or_default() += 1;
                    tokio::time::sleep(PAUSE).await;
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

/// One connection, until it is closed.
async fn connection(told: &Told, number: u16, answers: &RefCell<Answers>) -> Result<()> {
    let socket = TcpSocket::new_v4()?;
    if told.many_addresses {
        let [high, low] = number.to_be_bytes();
        socket.bind(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1, high, low)), 0))?;
    }
    let mut stream = socket.connect(told.broker).await?;
    stream.set_nodelay(true)?;
    loop {
        stream.write_all(told.request.as_bytes()).await?;
        let status =
            if told.chunks { chunked(&mut stream).await? } else { answer(&mut stream).await? };
        *answers.borrow_mut().entry(status).or_default() += 1;
        if told.chunks {
            return Ok(());
        }
    }
}

/// Sends chunks until the broker takes no more, and returns the status that it answered meanwhile.
async fn chunked(stream: &mut TcpStream) -> Result<u16> {
    let chunks = "1\r\nx\r\n".repeat(CHUNKS);
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
                Ok(count) => head.extend_from_slice(&buffer[..count.min(MAX_HEAD)]),
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

/// Reads one answer with a Content-Length.
async fn answer(stream: &mut TcpStream) -> Result<u16> {
    let mut read = Vec::with_capacity(4096);
    let end = loop {
        if let Some(at) = read.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        ensure!(read.len() < MAX_HEAD, "the head of an answer does not end");
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
