//! The command `man`: writes the manual pages, one for each command, from the definition of the
//! command line.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use clap::{
    Command, CommandFactory,
    builder::{Resettable, StyledStr},
};
use clap_mangen::{
    Man,
    roff::{Roff, bold, roman},
};
use tenant_shared::PLUGIN_COMMAND;

use crate::{
    cli::Cli,
    compatibility::PLUGIN_VERSION,
    error::Error,
    reference::{ENVIRONMENT, EXIT_CODES, FILES},
    world::World,
};

/// Section of the manual: commands of users (man-pages(7)).
const SECTION: &str = "1";
/// Argument of `.TH` for "no date". The date of a build would make each build different. An empty
/// text would be left out, and the next argument would take its place.
const NO_DATE: &str = "\"\"";

/// Runs `man`.
pub(crate) fn man(folder: &Path, world: &World) -> Result<(), Error> {
    let root = root();
    let mut pages = Vec::new();
    collect(&root, &mut pages);
    fs::create_dir_all(folder).map_err(|error| Error::file("make the folder", folder, &error))?;
    for page in &pages {
        let path = folder.join(format!("{}.{SECTION}", name(page)));
        let written = render(page, parent_of(page, &pages)).and_then(|text| fs::write(&path, text));
        written.map_err(|error| Error::file("write", &path, &error))?;
    }
    world.print_message(format!("{} manual pages are in {}", pages.len(), folder.display()));
    Ok(())
}

/// The definition of the command line, without the commands `help`.
fn root() -> Command {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    root
}

/// Adds a command and the visible ones below it.
fn collect<'a>(command: &'a Command, pages: &mut Vec<&'a Command>) {
    pages.push(command);
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        collect(below, pages);
    }
}

/// Name of a command's page: the names of the commands above it and its own, with hyphens.
fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The command that a command is below.
fn parent_of<'a>(command: &Command, pages: &[&'a Command]) -> Option<&'a Command> {
    let below = format!("-{}", command.get_name());
    let above = name(command).strip_suffix(&below)?;
    pages.iter().find(|page| name(page) == above).copied()
}

/// Renders the page of a command.
fn render(command: &Command, parent: Option<&Command>) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    // The end of the help text becomes sections of its own.
    Man::new(command.clone().after_help(Resettable::<StyledStr>::Reset))
        .section(SECTION)
        .date(NO_DATE)
        .source(format!("{PLUGIN_COMMAND} {PLUGIN_VERSION}"))
        .manual("Manual of kubectl-tenant")
        .render(&mut text)?;
    let mut more = Roff::new();
    for (heading, items) in
        [("EXIT STATUS", EXIT_CODES), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)]
    {
        more.control("SH", [heading]);
        for (term, meaning) in items {
            more.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
        }
    }
    more.control("SH", ["SEE ALSO"]);
    let above = parent.map(name);
    let below = command.get_subcommands().filter(|below| !below.is_hide_set()).map(name);
    let mut related: Vec<&str> = above.into_iter().chain(below).collect();
    if above != Some(PLUGIN_COMMAND) && name(command) != PLUGIN_COMMAND {
        related.push(PLUGIN_COMMAND);
    }
    related.push("kubectl");
    let last = related.len() - 1;
    for (index, page) in related.into_iter().enumerate() {
        let end = if index == last { "" } else { "," };
        more.text([bold(page), roman(format!("({SECTION}){end}"))]);
    }
    text.write_all(more.to_roff().as_bytes())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::process::{Command as Process, Stdio};

    use super::*;

    /// Name and text of every page.
    fn pages() -> Vec<(String, String)> {
        let root = root();
        let mut pages = Vec::new();
        collect(&root, &mut pages);
        let text = |page: &&Command| {
            let text = render(page, parent_of(page, &pages)).unwrap();
            (name(page).to_owned(), String::from_utf8(text).unwrap())
        };
        pages.iter().map(text).collect()
    }

    #[test]
    fn every_command_has_a_page_with_all_sections() {
        let pages = pages();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for expected in
            ["kubectl-tenant", "kubectl-tenant-login", "kubectl-tenant-credentials-revoke"]
        {
            assert!(names.contains(&expected), "{names:?}");
        }
        assert!(names.iter().all(|name| !name.ends_with("-man") && !name.contains("help")));
        for (name, text) in &pages {
            let headings: Vec<&str> =
                text.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
            for section in
                ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "\"EXIT STATUS\"", "ENVIRONMENT"]
            {
                assert!(headings.contains(&section), "{name}: {headings:?}");
            }
            assert_eq!(headings.last(), Some(&"\"SEE ALSO\""), "{name}");
            let has_commands = names.iter().any(|other| other.starts_with(&format!("{name}-")));
            assert_eq!(headings.contains(&"SUBCOMMANDS"), has_commands, "{name}");
            let title = format!(".TH {name} 1 \"\" \"kubectl-tenant {PLUGIN_VERSION}\" ");
            assert!(text.lines().any(|line| line.starts_with(&title)), "{name}: {text}");
            assert!(!text.contains(".SH EXTRA"), "{name}");
        }
    }

    #[test]
    fn pages_refer_to_their_neighbours() {
        let pages = pages();
        let (_, text) =
            pages.iter().find(|(name, _)| name == "kubectl-tenant-users-suspend").unwrap();
        let (_, related) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
        assert_eq!(
            related,
            "\\fBkubectl\\-tenant\\-users\\fR(1),\n\\fBkubectl\\-tenant\\fR(1),\n\\fBkubectl\\fR(1)\n"
        );
        // Every page that is referred to exists.
        for (name, text) in &pages {
            let (_, related) = text.split_once(".SH \"SEE ALSO\"\n").unwrap();
            for line in related.lines() {
                let (page, _) = line.split_once("\\fR(1)").unwrap();
                let page = page.trim_start_matches("\\fB").replace("\\-", "-");
                let known = page == "kubectl" || pages.iter().any(|(name, _)| *name == page);
                assert!(known, "{name}: {page}");
            }
        }
    }

    /// As `man` renders them, with every warning but that of lines that cannot be filled. Where there
    /// is no groff, as on macOS, the other tests have to do.
    #[test]
    fn groff_renders_the_pages_without_a_warning() {
        let groff = |input: &str| {
            let mut child = Process::new("groff")
                .args(["-k", "-man", "-Tutf8", "-ww", "-Wbreak", "-z"])
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::piped())
                .spawn()
                .ok()?;
            child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
            let ended = child.wait_with_output().unwrap();
            Some((ended.status.success(), String::from_utf8_lossy(&ended.stderr).into_owned()))
        };
        let Some((_, warning)) = groff(".TH X 1\n.SH NAME\n.bogus\n") else { return };
        assert!(warning.contains("bogus"), "groff does not warn of errors: {warning:?}");
        for (name, text) in pages() {
            assert_eq!(groff(&text), Some((true, String::new())), "{name}:\n{text}");
        }
    }

    #[test]
    fn the_command_writes_a_file_for_each_page() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("share/man/man1");
        man(&folder, &World::system()).unwrap();
        let mut names: Vec<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let mut expected: Vec<String> =
            pages().into_iter().map(|(name, _)| format!("{name}.1")).collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
    }
}
