//! Opens a page in a browser.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _, SeekFrom},
    process::{Command, Stdio},
};

use crate::{environment::Env, shell_words::split_words, terminal::sanitize};

/// Maximum number of bytes and of lines that an error has of a command's stderr.
const MAX_STDERR_BYTES: u64 = 512;
const MAX_STDERR_LINES: usize = 3;

/// Opens a page: with the command line in `BROWSER`, in which the address replaces `%s` or becomes
/// the last argument, else with the desktop's browser. Blocks until that command ends. Its stdout is
/// discarded, because stdout is reserved for this program's data; the error of a command that fails
/// has the end of its stderr.
pub(crate) fn open_browser(env: &Env, url: &str) -> io::Result<()> {
    if let Some(line) = env.text("BROWSER") {
        return run(&line, url);
    }
    let has_desktop = ["DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME"]
        .into_iter()
        .any(|variable| env.get(variable).is_some());
    if cfg!(target_os = "linux") && !has_desktop {
        return Err(io::Error::other("there is no desktop here"));
    }
    webbrowser::open(url)
}

fn run(line: &str, url: &str) -> io::Result<()> {
    let mut words = split_words(line);
    if words.iter().any(|word| word.contains("%s")) {
        for word in &mut words {
            *word = word.replace("%s", url);
        }
    } else {
        words.push(url.to_owned());
    }
    let mut words = words.into_iter();
    let program = words.next().unwrap_or_default();
    // Not a pipe: a browser that outlives this program must still be able to write. Therefore the
    // file has no limit, too: nobody is left to truncate it. It has no name, so the system frees it
    // when the browser ends.
    let messages = tempfile::tempfile().ok();
    let stderr = messages.as_ref().and_then(|file| file.try_clone().ok());
    let status = Command::new(&program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(stderr.map_or_else(Stdio::null, Stdio::from))
        .status()
        .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if status.success() {
        return Ok(());
    }
    let lines = messages.and_then(|file| last_lines(file).ok()).filter(|text| !text.is_empty());
    let lines = lines.map(|text| format!(": {text}")).unwrap_or_default();
    Err(io::Error::other(format!("{program}: {status}{lines}")))
}

/// The last lines of a file on one line, without what a terminal obeys.
fn last_lines(mut file: File) -> io::Result<String> {
    let size = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_STDERR_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_STDERR_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(MAX_STDERR_LINES)..];
    Ok(sanitize(&last.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn the_command_gets_the_address() {
        let home = tempfile::tempdir().unwrap();
        let seen = home.path().join("seen");
        let browser = |line: String| {
            let map = HashMap::from([("BROWSER".into(), line.into())]);
            open_browser(&Env::Fixed(map), "http://127.0.0.1/?a=1&b=2")
        };
        for line in ["sh -c 'echo $0 > SEEN'", "sh -c \"echo \\$0 > SEEN\" %s"] {
            browser(line.replace("SEEN", seen.to_str().unwrap())).unwrap();
            let text = std::fs::read_to_string(&seen).unwrap();
            assert_eq!(text, "http://127.0.0.1/?a=1&b=2\n", "{line}");
        }
        assert!(browser("false".into()).is_err());
        assert!(browser("/nonexistent/browser".into()).unwrap_err().to_string().contains("/none"));
    }

    #[test]
    fn the_error_of_a_command_has_the_end_of_its_stderr() {
        let error = |script: &str| {
            let line = format!("sh -c '{script}'");
            let map = HashMap::from([("BROWSER".into(), line.into())]);
            open_browser(&Env::Fixed(map), "http://127.0.0.1/").unwrap_err().to_string()
        };
        let text = error(r#"echo out; printf "one\ntwo\n\nthree\nfo\033[2Jur\n" >&2; exit 3"#);
        assert_eq!(text, "sh: exit status: 3: two; three; fo [2Jur");
        assert_eq!(error("exit 3"), "sh: exit status: 3");
        let long = error("head -c 100000 /dev/zero | tr \\\\0 x >&2; exit 1");
        assert!(long.len() < 600 && long.ends_with("xxx"), "{}", long.len());
    }

    #[test]
    fn no_browser_is_started_without_a_desktop() {
        if cfg!(target_os = "linux") {
            let error = open_browser(&Env::Fixed(HashMap::new()), "http://127.0.0.1/");
            assert!(error.unwrap_err().to_string().contains("no desktop"));
        }
    }
}
