//! Tests of a token's lifecycle, in which the whole program runs in the test's process with a
//! manual clock.

use std::{
    collections::HashMap,
    ffi::OsString,
    fs,
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use kubectl_tenant::{Clock, Env, Input, Keyring, Messages, Parent, World, run};

use crate::{
    stub_server::{StubServer, credential, problem, tokens},
    support::{CANARY, CLUSTER, CommandOutput, EXEC_INFO, Home, WORKSPACE, now},
};

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Sink {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A machine with a manual clock.
struct TestMachine {
    home: Home,
    env: HashMap<OsString, OsString>,
    clock: Arc<AtomicI64>,
    parent: fn() -> Option<Parent>,
}

impl TestMachine {
    fn new(broker: &str) -> Self {
        let home = Home::new(broker);
        home.forge_session(1, 100_000);
        let env = HashMap::from([("HOME".into(), home.path("").into())]);
        let clock = Arc::new(AtomicI64::new(now()));
        Self { home, env, clock, parent: || Some(Parent { pid: 1, started: 1 }) }
    }

    fn advance(&self, seconds: i64) -> &Self {
        self.clock.fetch_add(seconds, Ordering::SeqCst);
        self
    }

    fn get_token(&self) -> CommandOutput {
        self.run(&[
            "get-token",
            &format!("--broker={}", self.home.broker),
            &format!("--cluster={CLUSTER}"),
            &format!("--workspace={WORKSPACE}"),
        ])
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        let (stdout, stderr) = (Sink::default(), Sink::default());
        let mut world = World {
            env: Env::Fixed(self.env.clone()),
            clock: Clock::Manual(self.clock.clone()),
            entropy: |_| Err(io::Error::other("no entropy is needed here")),
            stdin: Input::from(io::empty()),
            stdin_is_terminal: || false,
            stdout: Box::new(stdout.clone()),
            stderr: Messages::to(stderr.clone()),
            browser: |_, _| panic!("a browser was opened"),
            in_container: || false,
            keyring: Keyring::None,
            parent: self.parent,
        };
        let args: Vec<OsString> =
            ["kubectl-tenant"].iter().chain(args).map(OsString::from).collect();
        let code = i32::from(run(&args, &mut world));
        CommandOutput { code, stdout: stdout.take(), stderr: stderr.take() }
    }
}

#[test]
fn a_token_is_renewed_ten_minutes_before_it_expires() {
    let broker = StubServer::start(|_, number| credential(&format!("token-{number}"), 7200));
    let machine = TestMachine::new(&broker.url);
    let start = machine.clock.load(Ordering::SeqCst);
    for (after, token, stamp) in [
        (0, "token-0", 7140),
        (1, "token-0", 7140),
        (6598, "token-0", 7140),
        (2, "token-1", 6601 + 7140),
        (1, "token-1", 6601 + 7140),
        // A night later.
        (30_000, "token-2", 36_602 + 7140),
    ] {
        let output = machine.advance(after).get_token();
        assert_eq!((output.token().as_str(), output.stamp() - start), (token, stamp), "{after}");
        assert_eq!(output.stderr, "");
    }
    assert_eq!(broker.requests().len(), 3);
}

#[test]
fn a_clock_that_is_set_back_does_not_make_a_token_live_longer() {
    let broker = StubServer::start(|request, number| match request.path.as_str() {
        "/oauth2/token" => tokens(2),
        _ => credential(&format!("token-{number}"), 7200),
    });
    let machine = TestMachine::new(&broker.url);
    assert_eq!(machine.get_token().token(), "token-0");
    assert_eq!(machine.advance(-50).get_token().token(), "token-0");
    // Neither the token nor the session's access token is trusted any more.
    assert_eq!(machine.advance(-3600).get_token().token(), "token-2");
    assert_eq!(broker.request_count("/oauth2/token"), 1);
}

#[test]
fn a_rejected_token_is_replaced_at_most_once_in_ten_seconds() {
    let broker = StubServer::start(|_, number| credential(&format!("token-{number}"), 7200));
    let mut machine = TestMachine::new(&broker.url);
    machine.env.insert("KUBERNETES_EXEC_INFO".into(), EXEC_INFO.into());
    assert_eq!(machine.get_token().token(), "token-0");
    assert_eq!(machine.advance(9).get_token().token(), "token-0");
    assert_eq!(machine.advance(1).get_token().token(), "token-1");
    assert_eq!(machine.advance(9).get_token().token(), "token-1");
    // A process with the same id and another start time is another process.
    machine.parent = || Some(Parent { pid: 1, started: 2 });
    assert_eq!(machine.advance(9).get_token().token(), "token-1");
    assert_eq!(machine.advance(1).get_token().token(), "token-2");
    // Other processes may overwrite a mark, which only costs a 401.
    for _ in 0..3 {
        assert_eq!(machine.advance(1).get_token().token(), "token-2");
    }
}

#[test]
fn during_an_outage_the_broker_is_called_twice_a_minute() {
    let broker = StubServer::start(|_, number| match number {
        0 => credential("token-0", 7200),
        1..=3 => problem(503, "cluster_unavailable"),
        _ => credential("token-4", 7200),
    });
    let machine = TestMachine::new(&broker.url);
    machine.get_token();
    for (after, token, requests) in [
        (6700, "token-0", 2),
        (29, "token-0", 2),
        (1, "token-0", 3),
        (60, "token-0", 4),
        (31, "token-4", 5),
    ] {
        let output = machine.advance(after).get_token();
        assert_eq!(
            (output.token().as_str(), broker.requests().len()),
            (token, requests),
            "{after}"
        );
        assert_eq!(output.stderr, "");
    }
    // A success deletes the cached failure.
    let failures = machine.home.path(".local/state/kubectl-tenant/failures");
    assert_eq!(fs::read_dir(failures).unwrap().count(), 0);
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::Error::from(io::ErrorKind::StorageFull))
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let home = Home::new("https://broker.example.com");
    home.forge_token(CANARY, 1, 3600);
    let stderr = Sink::default();
    let mut world = World::system();
    world.env = Env::Fixed(HashMap::from([("HOME".into(), home.path("").into())]));
    (world.stdout, world.stderr) = (Box::new(Full), Messages::to(stderr.clone()));
    let command = home.get_token();
    let args: Vec<OsString> =
        ["x".into()].into_iter().chain(command.get_args().map(OsString::from)).collect();
    assert_eq!(run(&args, &mut world), 1);
    let output = stderr.take();
    assert!(output.contains("cannot write to stdout") && !output.contains(CANARY), "{output}");
}

#[test]
fn a_missing_home_is_an_error() {
    let mut machine = TestMachine::new("https://broker.example.com");
    machine.env.clear();
    assert!(machine.get_token().failed(1).contains("HOME is not set"));
}

#[test]
fn an_invalid_ca_file_is_named() {
    let mut machine = TestMachine::new("https://127.0.0.1:1");
    for (text, says) in
        [(None, "cannot read the CA file"), (Some("nonsense"), "holds no certificate")]
    {
        let path = machine.home.path("ca.pem");
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        machine.env.insert("TENANT_BROKER_CA".into(), path.clone().into());
        let output = machine.get_token();
        let stderr = output.failed(1);
        assert!(stderr.contains(says) && stderr.contains(path.to_str().unwrap()), "{stderr}");
    }
}
