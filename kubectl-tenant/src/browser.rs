//! Opens a page in a browser.

use std::{
    io,
    process::{Command, Stdio},
};

use crate::{environment::Env, shell_words::split_words};

/// Opens a page: with the command line in `BROWSER`, in which the address replaces `%s` or becomes
/// the last argument, else with the desktop's browser. Blocks until that command ends. Its output
/// is discarded, because stdout is reserved for this program's data.
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
    let status = Command::new(&program)
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("{program}: {status}"))) }
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
    fn no_browser_is_started_without_a_desktop() {
        if cfg!(target_os = "linux") {
            let error = open_browser(&Env::Fixed(HashMap::new()), "http://127.0.0.1/");
            assert!(error.unwrap_err().to_string().contains("no desktop"));
        }
    }
}
