//! Child processes end with their parent, however the parent ends.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use integration::probe::{self, Probe};
use integration::process::Program;
use integration::scratch::Scratch;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

const WAIT_TIMEOUT: Duration = Duration::from_secs(15);

fn shell(script: &str) -> Program {
    Program::new("/bin/sh").args(["-c", script])
}

/// Whether the process still runs; a zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    if test_kill_process(pid) == Err(Errno::SRCH) {
        return false;
    }
    let state = Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.as_raw_nonzero().to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8(state.stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

async fn gone(pid: u32) {
    probe::until("a process to end", WAIT_TIMEOUT, || async {
        Ok(if runs(pid) { Probe::NotYet(format!("{pid} runs")) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn output_input_and_exit_status_come_through() {
    let finished = shell("cat; echo problem >&2; exit 7")
        .input("line one\nline two\n")
        .run(WAIT_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(finished.stdout, "line one\nline two\n");
    assert_eq!(finished.stderr, "problem\n");
    assert_eq!(finished.code(), 7);
    let error = finished.success().unwrap_err().to_string();
    assert!(error.contains("problem"), "{error}");
}

#[tokio::test]
async fn a_program_past_its_limit_is_killed_and_its_output_shown() {
    // Long enough for the shell to start on a busy machine.
    let error = shell("echo so far; sleep 1000").run(Duration::from_secs(5)).await.unwrap_err();
    assert!(error.to_string().contains("so far"), "{error}");
}

#[tokio::test]
async fn a_missing_program_is_named() {
    let finished = Program::new("/nowhere/program").run(WAIT_TIMEOUT).await.unwrap();
    assert_ne!(finished.code(), 0);
    assert!(finished.stderr.contains("/nowhere/program"), "{}", finished.stderr);
}

#[tokio::test]
async fn output_is_seen_while_the_program_runs() {
    let running = shell("echo first; sleep 1000").spawn_captured().unwrap();
    let text =
        running.until_stdout("a line", WAIT_TIMEOUT, |text| text.ends_with('\n')).await.unwrap();
    assert_eq!(text, "first\n");
    let ended = shell("echo last words").spawn_captured().unwrap();
    let error = ended.until_stdout("what never comes", WAIT_TIMEOUT, |_| false).await.unwrap_err();
    assert!(error.to_string().contains("last words"), "{error}");
}

#[tokio::test]
async fn dropping_ends_the_whole_group() {
    let running = shell("sleep 1000 & echo $!; wait").spawn_captured().unwrap();
    let text =
        running.until_stdout("a pid", WAIT_TIMEOUT, |text| text.ends_with('\n')).await.unwrap();
    let grandchild = text.trim().parse().unwrap();
    let child = running.process().pid();
    assert!(runs(child) && runs(grandchild));
    drop(running);
    gone(child).await;
    gone(grandchild).await;
}

#[tokio::test]
async fn a_program_that_ignores_sigterm_is_killed_after_its_grace_period() {
    let running = shell("trap '' TERM; echo ready; while :; do sleep 1; done")
        .stop_with(Signal::TERM, Duration::from_millis(200))
        .spawn_captured()
        .unwrap();
    running.until_stdout("the trap", WAIT_TIMEOUT, |text| text.contains("ready")).await.unwrap();
    let error = running.process().stop(Duration::from_millis(200)).await.unwrap_err();
    assert!(error.to_string().contains("was killed"), "{error}");
    assert!(running.process().status().is_some());
}

#[test]
fn a_scratch_folder_is_removed_on_drop_and_kept_after_a_panic() {
    let scratch = Scratch::new("goes").unwrap();
    let goes = scratch.path().to_owned();
    std::fs::write(goes.join("file"), "").unwrap();
    drop(scratch);
    assert!(!goes.exists());

    let (sender, receiver) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let scratch = Scratch::new("stays").unwrap();
        sender.send(scratch.path().to_owned()).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    let stays = receiver.recv().unwrap();
    assert!(stays.is_dir());
    std::fs::remove_dir(stays).unwrap();
}

/// Plays the harness of [`a_killed_harness_leaves_nothing_behind`]: starts programs, creates a
/// folder, writes down what it made and waits to be killed.
async fn be_a_harness(report: &Path) {
    let scratch = Scratch::new("killed").unwrap();
    let obedient = shell("sleep 1000 & echo $!; wait").spawn_captured().unwrap();
    let grandchild =
        obedient.until_stdout("a pid", WAIT_TIMEOUT, |text| text.ends_with('\n')).await.unwrap();
    let stubborn = shell("trap '' TERM; echo ready; while :; do sleep 1; done");
    let stubborn = stubborn.spawn_captured().unwrap();
    stubborn.until_stdout("the trap", WAIT_TIMEOUT, |text| text.contains("ready")).await.unwrap();
    let text = format!(
        "{}\n{} {} {}\n",
        scratch.path().display(),
        obedient.process().pid(),
        stubborn.process().pid(),
        grandchild.trim()
    );
    let whole = report.with_extension("part");
    std::fs::write(&whole, text).unwrap();
    std::fs::rename(whole, report).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_harness_leaves_nothing_behind() {
    const ROLE: &str = "HARNESS_TEST_REPORT";
    if let Some(report) = std::env::var_os(ROLE) {
        return be_a_harness(Path::new(&report)).await;
    }
    let scratch = Scratch::new("kill-test").unwrap();
    let report = scratch.path().join("report");
    let mut harness = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "process::a_killed_harness_leaves_nothing_behind"])
        .env(ROLE, &report)
        .spawn()
        .unwrap();
    let text = probe::until("the other harness", WAIT_TIMEOUT, || async {
        Ok(std::fs::read_to_string(&report)
            .map_or_else(|error| Probe::NotYet(error.to_string()), Probe::Ready))
    })
    .await
    .unwrap();
    let (folder, pids) = text.trim().split_once('\n').unwrap();
    let folder = PathBuf::from(folder);
    let pids: Vec<u32> = pids.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    assert!(pids.iter().all(|pid| runs(*pid)));
    assert!(folder.is_dir());

    kill_process(Pid::from_child(&harness), Signal::KILL).unwrap();
    harness.wait().unwrap();

    for pid in pids {
        gone(pid).await;
    }
    probe::until("its folder to go", WAIT_TIMEOUT, || async {
        Ok(if folder.exists() { Probe::NotYet("it is there".into()) } else { Probe::Ready(()) })
    })
    .await
    .unwrap();
}
