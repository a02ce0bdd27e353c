//! Every side effect behind one struct, so that the whole program can run inside a test.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use tenant_cached_token::Parent;

use crate::{
    browser::open_browser,
    environment::Env,
    error::Error,
    keyring::Keyring,
    terminal::{sanitize, sanitize_lines},
};

/// Everything that the program uses of its environment.
pub struct World {
    /// Environment variables.
    pub env: Env,
    /// Current time.
    pub clock: Clock,
    /// Fills a buffer with unpredictable bytes.
    pub entropy: fn(&mut [u8]) -> io::Result<()>,
    /// Standard input.
    pub stdin: Input,
    /// Whether standard input is a terminal.
    pub stdin_is_terminal: fn() -> bool,
    /// Standard output, for data only.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error, for everything else.
    pub stderr: Messages,
    /// Opens a page in a browser; an error says why that was not possible.
    pub browser: fn(&Env, &str) -> io::Result<()>,
    /// Whether this process runs in a container.
    pub in_container: fn() -> bool,
    /// Keyring for long-lived secrets.
    pub keyring: Keyring,
    /// The parent process.
    pub parent: fn() -> Option<Parent>,
}

impl World {
    /// The environment of this process.
    pub fn system() -> Self {
        Self {
            env: Env::Process,
            clock: Clock::System,
            entropy: os_entropy,
            stdin: Input::Process,
            stdin_is_terminal: || rustix::termios::isatty(io::stdin()),
            stdout: Box::new(tenant_cached_token::Stdout),
            stderr: Messages::to(io::stderr()),
            browser: open_browser,
            in_container,
            keyring: Keyring::System,
            parent: Parent::of_this_process,
        }
    }

    /// Prints one line to stderr.
    pub(crate) fn print_message(&self, line: impl AsRef<str>) {
        self.stderr.print_message(line);
    }

    /// Prints several lines to stderr. Untrusted text in it must already be on one line.
    pub(crate) fn print_lines(&self, text: impl AsRef<str>) {
        self.stderr.write(&format!("{}\n", text.as_ref()));
    }

    /// Prints data to stdout.
    pub(crate) fn print(&mut self, data: &str) -> Result<(), Error> {
        self.stdout
            .write_all(data.as_bytes())
            .and_then(|()| self.stdout.flush())
            .map_err(|error| Error::unwritable(&error))
    }
}

/// Standard input, which is read in the background so that a wait for it can be abandoned.
#[derive(Clone)]
pub enum Input {
    /// Standard input of this process.
    Process,
    /// A reader, in tests.
    Reader(Arc<Mutex<Box<dyn BufRead + Send>>>),
}

impl Input {
    /// Input from a reader.
    pub fn from(source: impl Read + Send + 'static) -> Self {
        Self::Reader(Arc::new(Mutex::new(Box::new(BufReader::new(source)))))
    }

    /// Reads a line of at most `limit` bytes; empty at the end of the input.
    pub(crate) fn line(&self, limit: u64) -> String {
        let mut line = Vec::new();
        // A line that cannot be read counts as empty.
        let _ = match self {
            Self::Process => io::stdin().lock().take(limit).read_until(b'\n', &mut line),
            Self::Reader(source) => {
                let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                (&mut **source).take(limit).read_until(b'\n', &mut line)
            }
        };
        String::from_utf8_lossy(&line).into_owned()
    }

    /// Reads at most `limit` bytes, up to the end of the input.
    pub(crate) fn bytes(&self, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = match self {
            Self::Process => io::stdin().lock().take(limit).read_to_end(&mut bytes),
            Self::Reader(source) => {
                let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                (&mut **source).take(limit).read_to_end(&mut bytes)
            }
        };
        read.map(|_| bytes)
    }
}

/// Standard error, shared by everything that prints messages.
#[derive(Clone)]
pub struct Messages(Arc<Mutex<Box<dyn Write + Send>>>);

impl Messages {
    /// Messages go to this writer.
    pub fn to(sink: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(sink))))
    }

    /// Prints one line and sanitizes it. A failed write is ignored, because there is no other place
    /// to report it.
    pub(crate) fn print_message(&self, line: impl AsRef<str>) {
        self.write(&format!("{}\n", sanitize(line.as_ref())));
    }

    /// Prints text without the characters that a terminal obeys: lines, or a prompt without a line
    /// end.
    pub(crate) fn write(&self, text: &str) {
        // Much of the text comes from outside.
        let text = sanitize_lines(text);
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sink.write_all(text.as_bytes()).and_then(|()| sink.flush());
    }
}

/// Podman and Docker create these files in every container.
fn in_container() -> bool {
    ["/run/.containerenv", "/.dockerenv"].into_iter().any(|path| Path::new(path).exists())
}

#[expect(clippy::disallowed_methods, reason = "the one caller of the OS generator here")]
fn os_entropy(buffer: &mut [u8]) -> io::Result<()> {
    getrandom::fill(buffer).map_err(io::Error::other)
}

/// Source of the current time.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's clock.
    System,
    /// Unix seconds that a test sets.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Current time in whole Unix seconds (UTC).
    pub fn now(&self) -> i64 {
        match self {
            Self::System => tenant_cached_token::now(),
            Self::Manual(seconds) => seconds.load(Ordering::SeqCst),
        }
    }
}
