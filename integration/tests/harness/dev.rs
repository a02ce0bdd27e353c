//! `cargo dev`, as a person or a script runs it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use integration::probe::{self, Probe};
use rustix::process::{Pid, Signal, kill_process};

const DEV: &str = env!("CARGO_BIN_EXE_dev");

/// Returns the process ids of the children of a process.
fn children(parent: u32) -> Vec<u32> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines()
        .filter_map(|line| {
            let (child, above) = line.trim().split_once(' ')?;
            (above.trim().parse() == Ok(parent)).then(|| child.parse().unwrap())
        })
        .collect()
}

async fn all_gone(pids: Vec<u32>) {
    probe::until("everything to be gone", Duration::from_secs(10), || async {
        let left: Vec<&u32> = pids.iter().filter(|pid| super::process::runs(**pid)).collect();
        Ok(if left.is_empty() { Probe::Ready(()) } else { Probe::NotYet(format!("{left:?}")) })
    })
    .await
    .unwrap();
}

/// Reads its standard output up to the line that contains this text.
async fn read_until(dev: &mut Child, text: &'static str) -> String {
    let stdout = dev.stdout.take().unwrap();
    read_from(dev, stdout, text).await
}

/// Reads one of its outputs up to the line that contains this text.
async fn read_from(
    dev: &mut Child,
    output: impl Read + Send + 'static,
    text: &'static str,
) -> String {
    let read = move || {
        let mut seen = String::new();
        let mut reader = BufReader::new(output);
        while !seen.contains(text) {
            assert_ne!(reader.read_line(&mut seen).unwrap(), 0, "it ended after:\n{seen}");
        }
        seen
    };
    let reading = tokio::task::spawn_blocking(read);
    let Ok(seen) = tokio::time::timeout(Duration::from_mins(2), reading).await else {
        dev.kill().unwrap();
        panic!("cargo dev did not print {text:?}");
    };
    seen.unwrap()
}

async fn wait(mut dev: Child) -> std::process::ExitStatus {
    tokio::task::spawn_blocking(move || dev.wait()).await.unwrap().unwrap()
}

#[tokio::test]
async fn exec_runs_a_command_in_the_stack_and_ends_with_its_status() {
    let script = "set -e
        test -z \"$(ls -A $HOME)\"
        kubectl tenant version >/dev/null
        kubectl --kubeconfig $TENANT_ADMIN_KUBECONFIG get namespaces -o name
        BROWSER=headless-sign-in kubectl tenant login
        kubectl auth whoami -o jsonpath={.status.userInfo.username}
        test -s $TENANT_API_AUDIT_LOG
        test -s $TENANT_BROKER_LOG
        test -d $TENANT_STATE_DIR
        test -n \"$TENANT_DEV_CACHE_HOME\"
        headless-sign-in --help | grep -q 'Usage: headless-sign-in .*<URL>'
        cat
        exit 7";
    let mut dev = Command::new(DEV);
    dev.args(["--", "--exec", script]);
    dev.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut dev = dev.spawn().unwrap();
    std::io::Write::write_all(&mut dev.stdin.take().unwrap(), b" input\n").unwrap();
    let output = tokio::task::spawn_blocking(move || dev.wait_with_output());
    let output = output.await.unwrap().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(7), "{stdout}\n{stderr}");
    assert!(stdout.starts_with("namespace/default\n"), "{stdout}");
    assert!(stdout.ends_with(":sa-tenant-admin input\n"), "{stdout}");
}

#[tokio::test]
async fn ctrl_c_stops_everything() {
    let mut dev = Command::new(DEV).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let told = read_until(&mut dev, "Ctrl-C here stops everything.").await;
    let script = told.lines().find_map(|line| line.trim().strip_prefix("source ")).unwrap();
    // The printed commands work in a shell that has nothing else set. Another `cargo dev` or
    // `cargo test` there uses our cache.
    let cache = integration::machine::cache_home().unwrap();
    let typed = format!(
        ". {script}; BROWSER=headless-sign-in; export BROWSER; \
         kubectl tenant login && kubectl get pods && test \"$HOME\" = /nowhere \
         && test \"$TENANT_DEV_CACHE_HOME\" = '{}' && test \"$XDG_CACHE_HOME\" != '{0}'",
        cache.display()
    );
    let path = std::env::var_os("PATH").unwrap();
    let shell = integration::process::Program::new("/bin/sh")
        .args(["-c", &typed])
        .clear_env()
        .env("PATH", path)
        .env("HOME", "/nowhere");
    shell.run(Duration::from_mins(1)).await.unwrap().success().unwrap();

    let started = children(dev.id());
    // etcd, kube-apiserver, kube-controller-manager, the broker and the guardian.
    assert_eq!(started.len(), 5);
    kill_process(Pid::from_child(&dev), Signal::INT).unwrap();
    assert!(wait(dev).await.success());
    all_gone(started).await;
    assert!(!std::path::Path::new(script).exists());
}

#[tokio::test]
async fn ctrl_c_in_the_middle_of_starting_stops_what_has_started() {
    let mut dev = Command::new(DEV);
    let dev = dev.args(["--exec", "true"]).stdin(Stdio::null()).spawn().unwrap();
    let started = probe::until("etcd and the API server", Duration::from_mins(2), || async {
        let started = children(dev.id());
        // The guardian is the third child.
        Ok(if started.len() < 3 {
            Probe::NotYet(format!("{started:?}"))
        } else {
            Probe::Ready(started)
        })
    })
    .await
    .unwrap();
    kill_process(Pid::from_child(&dev), Signal::INT).unwrap();
    assert_eq!(wait(dev).await.code(), Some(130));
    all_gone(started).await;
}

#[tokio::test]
async fn a_killed_dev_leaves_nothing_behind() {
    let mut dev = Command::new(DEV);
    dev.args(["--postgres", "--replicas", "2", "--exec"])
        .arg("echo $TENANT_BROKER_URLS; sleep 1000")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut dev = dev.spawn().unwrap();
    let urls = read_until(&mut dev, "\n").await;
    assert_eq!(urls.split_whitespace().count(), 2);
    let started = children(dev.id());
    // The control plane, PostgreSQL, two brokers, the command and the guardian.
    assert_eq!(started.len(), 8);
    kill_process(Pid::from_child(&dev), Signal::KILL).unwrap();
    wait(dev).await;
    all_gone(started).await;
}

#[tokio::test]
async fn the_operator_creates_a_tenant_and_alice_installs_a_llama_stack_for_the_sample_model() {
    let script = "set -e
        kubectl --kubeconfig $TENANT_ADMIN_KUBECONFIG get clusterrole -o name \\
            tenant-model-services-view tenant-model-services-edit >$HOME/roles
        BROWSER=headless-sign-in kubectl tenant login
        BROWSER='headless-sign-in --as operator' kubectl tenant login --profile operator --no-use
        kubectl tenant profiles use $TENANT_BROKER_URL
        kubectl tenant tenants create solar --owner alice@example.com --profile operator
        kubectl tenant models install $(kubectl tenant models -o name)
        kubectl tenant namespaces create solar-production
        kubectl tenant kubeconfig --mode gateway --use
        kubectl create namespace solar-test
        kubectl tenant sessions -o json >$HOME/sessions
        grep -c '\"id\":' $HOME/sessions";
    let mut dev = Command::new(DEV);
    dev.args(["--tls", "--tenants", "--models", "--exec", script]).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || dev.output()).await.unwrap().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stdout}\n{stderr}");
    for told in
        ["LlamaStackDistribution lsd-genai-playground created", "namespace/solar-test created"]
    {
        assert!(stdout.contains(told), "{told}: {stdout}\n{stderr}");
    }
    // Alice's workspace was created in a session of hers, which has ended.
    assert!(stdout.ends_with("\n1\n"), "{stdout}");
}

#[tokio::test]
async fn the_end_of_a_broker_is_reported_and_all_other_programs_go_on() {
    let mut dev = Command::new(DEV);
    dev.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut dev = dev.spawn().unwrap();
    read_until(&mut dev, "Ctrl-C here stops everything.").await;
    let mut started = children(dev.id());
    let broker = started.iter().position(|pid| name_of(*pid) == "tenant-broker").unwrap();
    let broker = i32::try_from(started.swap_remove(broker)).unwrap();
    kill_process(Pid::from_raw(broker).unwrap(), Signal::KILL).unwrap();

    let stderr = dev.stderr.take().unwrap();
    let told = read_from(&mut dev, stderr, "start it again").await;
    assert!(told.contains("error: broker-1 ended (signal: 9 (SIGKILL))"), "{told}");
    let log = told.split_once("the end of ").unwrap().1.split_once(":\n").unwrap().0;
    assert!(std::fs::read_to_string(log).unwrap().contains("the broker is ready"), "{log}");
    for pid in &started {
        assert!(super::process::runs(*pid), "{}", name_of(*pid));
    }
    kill_process(Pid::from_child(&dev), Signal::INT).unwrap();
    assert_eq!(wait(dev).await.code(), Some(1));
    all_gone(started).await;
}

/// Returns the file name of the program that a process runs.
fn name_of(pid: u32) -> String {
    let output = Command::new("ps").args(["-o", "comm=", "-p", &pid.to_string()]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
