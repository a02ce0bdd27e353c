//! Everything ambient in one struct, so that the whole program runs inside a test.

use std::{
    collections::HashMap,
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use tenant_cached_token::Parent;

pub use crate::store::Keyring;

/// What the program takes from outside: everything it may see, and nothing else is looked at.
pub struct World {
    /// Environment variables.
    pub env: Env,
    /// The time.
    pub clock: Clock,
    /// Fills a buffer with unpredictable bytes.
    pub entropy: fn(&mut [u8]) -> io::Result<()>,
    /// Standard input.
    pub stdin: Input,
    /// Whether a person types at standard input.
    pub stdin_is_terminal: fn() -> bool,
    /// Standard output: data only.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error: everything else.
    pub stderr: Messages,
    /// Shows a page to the person; an error says why that was not possible.
    pub browser: fn(&Env, &str) -> io::Result<()>,
    /// Whether this machine is a container.
    pub in_container: fn() -> bool,
    /// Where long-lived secrets may be kept.
    pub keyring: Keyring,
    /// The process that started this one.
    pub parent: fn() -> Option<Parent>,
}

impl World {
    /// The real one.
    pub fn system() -> Self {
        Self {
            env: Env::Process,
            clock: Clock::System,
            entropy: os_entropy,
            stdin: Input::Process,
            stdin_is_terminal: || rustix::termios::isatty(io::stdin()),
            stdout: Box::new(tenant_cached_token::Stdout),
            stderr: Messages::to(io::stderr()),
            browser: crate::login::open_browser,
            in_container,
            keyring: Keyring::System,
            parent: Parent::of_this_process,
        }
    }

    /// A line to stderr.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        self.stderr.say(line);
    }

    /// Several lines to stderr. What came from outside has to be on one line by now.
    pub(crate) fn say_lines(&self, text: impl AsRef<str>) {
        self.stderr.write(&format!("{}\n", text.as_ref()));
    }

    /// Data to stdout.
    pub(crate) fn print(&mut self, data: &str) -> Result<(), crate::error::Error> {
        self.stdout
            .write_all(data.as_bytes())
            .and_then(|()| self.stdout.flush())
            .map_err(|error| crate::error::Error::unwritable(&error))
    }
}

/// Standard input, read in the background, so that waiting for it can be given up.
#[derive(Clone)]
pub enum Input {
    /// That of this process.
    Process,
    /// A test's.
    Given(Arc<Mutex<Box<dyn BufRead + Send>>>),
}

impl Input {
    /// Input comes from there.
    pub fn from(source: impl Read + Send + 'static) -> Self {
        Self::Given(Arc::new(Mutex::new(Box::new(BufReader::new(source)))))
    }

    /// Reads a line of at most `limit` bytes; empty at the end of the input.
    pub(crate) fn line(&self, limit: u64) -> String {
        let mut line = Vec::new();
        // A line that cannot be read is an empty one.
        let _ = match self {
            Self::Process => io::stdin().lock().take(limit).read_until(b'\n', &mut line),
            Self::Given(source) => {
                let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                (&mut **source).take(limit).read_until(b'\n', &mut line)
            }
        };
        String::from_utf8_lossy(&line).into_owned()
    }
}

/// Standard error, for whoever has something to say.
#[derive(Clone)]
pub struct Messages(Arc<Mutex<Box<dyn Write + Send>>>);

impl Messages {
    /// Messages go there.
    pub fn to(sink: impl Write + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Box::new(sink))))
    }

    /// One line, whatever is in it. What cannot be written is lost: there is no third place to complain.
    pub(crate) fn say(&self, line: impl AsRef<str>) {
        self.write(&format!("{}\n", crate::output::plain(line.as_ref())));
    }

    /// Text as it is but for what a terminal obeys: lines, or a prompt without a line end.
    pub(crate) fn write(&self, text: &str) {
        // Much of what is said came from outside.
        let text = crate::output::lines(text);
        let mut sink = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = sink.write_all(text.as_bytes()).and_then(|()| sink.flush());
    }
}

/// Podman and Docker leave these files in every container.
fn in_container() -> bool {
    ["/run/.containerenv", "/.dockerenv"].into_iter().any(|path| Path::new(path).exists())
}

#[expect(clippy::disallowed_methods, reason = "the one caller of the OS generator here")]
fn os_entropy(buffer: &mut [u8]) -> io::Result<()> {
    getrandom::fill(buffer).map_err(io::Error::other)
}

/// Environment variables: the process's own, or a test's.
#[derive(Clone, Debug)]
pub enum Env {
    /// Those of this process.
    Process,
    /// Exactly these.
    Fixed(HashMap<OsString, OsString>),
}

impl Env {
    /// The value of a variable; an empty one counts as not set.
    pub fn get(&self, name: &str) -> Option<OsString> {
        match self {
            Self::Process => std::env::var_os(name),
            Self::Fixed(map) => map.get(std::ffi::OsStr::new(name)).cloned(),
        }
        .filter(|value| !value.is_empty())
    }

    /// The value of a variable that must be text, [`None`] if it is not set or no UTF-8.
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name).and_then(|value| value.into_string().ok())
    }
}

/// Where the time comes from.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's clock.
    System,
    /// Unix seconds that a test sets.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// Now, in whole seconds since 1970 (UTC).
    pub fn now(&self) -> i64 {
        match self {
            Self::System => tenant_cached_token::now(),
            Self::Manual(seconds) => seconds.load(Ordering::SeqCst),
        }
    }
}
