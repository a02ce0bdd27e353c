//! Sign-in methods, and how the one that fits this machine is detected.

use crate::{environment::Env, world::World};

/// How a person signs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInMethod {
    /// In this machine's browser, which is redirected to a port of this machine.
    Browser {
        /// Whether the address that the browser ended at may be pasted, too.
        paste: bool,
    },
    /// In any browser: the person copies a code from a page.
    Paste,
    /// On any device, with the device grant: the person types a code into a page, and this program
    /// polls until that is done.
    Device(DeviceReason),
}

/// Reason for using the device grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeviceReason {
    /// The person asked for it with `--device`.
    Requested,
    /// The terminal is on another machine.
    Ssh,
    /// A browser in the container has no display, and one outside cannot reach the container's
    /// port.
    Container,
    /// There is no desktop on this machine.
    NoDesktop,
}

impl DeviceReason {
    /// Message that explains the detected method; none if the person asked for it.
    pub(super) fn text(self) -> Option<&'static str> {
        match self {
            Self::Requested => None,
            Self::Ssh => Some("This is an SSH session, so you sign in with a code."),
            Self::Container => Some("This is a container, so you sign in with a code."),
            Self::NoDesktop => Some("There is no desktop here, so you sign in with a code."),
        }
    }
}

/// Properties of the environment that decide the method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "six independent facts, each looked up once")]
struct Environment {
    browser_command: bool,
    ssh: bool,
    wsl: bool,
    container: bool,
    display: bool,
    linux: bool,
}

impl Environment {
    fn detect(env: &Env, in_container: bool, linux: bool) -> Self {
        let any = |names: &[&str]| names.iter().any(|name| env.get(name).is_some());
        Self {
            browser_command: any(&["BROWSER"]),
            ssh: any(&["SSH_CONNECTION", "SSH_TTY", "SSH_CLIENT"]),
            wsl: any(&["WSL_DISTRO_NAME"]),
            container: in_container || any(&["container"]),
            display: any(&["DISPLAY", "WAYLAND_DISPLAY"]),
            linux,
        }
    }

    /// `BROWSER` comes first: remote editors set it to a command that opens a page where the person
    /// is. A forwarded display in an SSH session or a container does not count as a desktop,
    /// because the person's browser is elsewhere.
    fn sign_in_method(self) -> SignInMethod {
        let browser = SignInMethod::Browser { paste: true };
        match self {
            Self { browser_command: true, .. } => browser,
            Self { ssh: true, .. } => SignInMethod::Device(DeviceReason::Ssh),
            Self { wsl: true, .. } => browser,
            Self { container: true, .. } => SignInMethod::Device(DeviceReason::Container),
            Self { linux: true, display: false, .. } => {
                SignInMethod::Device(DeviceReason::NoDesktop)
            }
            _ => browser,
        }
    }
}

/// Detects the method that fits this machine.
pub(super) fn detect(world: &World) -> SignInMethod {
    Environment::detect(&world.env, (world.in_container)(), cfg!(target_os = "linux"))
        .sign_in_method()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_decides_the_sign_in_method() {
        let browser = SignInMethod::Browser { paste: true };
        let device = SignInMethod::Device;
        for (variables, in_container, linux, expected) in [
            (&["DISPLAY"][..], false, true, browser),
            (&["WAYLAND_DISPLAY"], false, true, browser),
            (&[], false, true, device(DeviceReason::NoDesktop)),
            (&["BROWSER"], false, true, browser),
            (&["BROWSER", "SSH_CONNECTION"], true, true, browser),
            (&["SSH_CONNECTION", "DISPLAY"], false, true, device(DeviceReason::Ssh)),
            (&["SSH_TTY"], false, true, device(DeviceReason::Ssh)),
            (&["SSH_CLIENT"], false, true, device(DeviceReason::Ssh)),
            (&["WSL_DISTRO_NAME"], false, true, browser),
            (&["WSL_DISTRO_NAME", "SSH_TTY"], false, true, device(DeviceReason::Ssh)),
            (&["DISPLAY"], true, true, device(DeviceReason::Container)),
            (&["container", "DISPLAY"], false, true, device(DeviceReason::Container)),
            // macOS
            (&[], false, false, browser),
            (&["SSH_TTY"], false, false, device(DeviceReason::Ssh)),
        ] {
            let set = variables.iter().map(|name| (name.into(), "x".into())).collect();
            let found = Environment::detect(&Env::Fixed(set), in_container, linux).sign_in_method();
            assert_eq!(found, expected, "{variables:?} {in_container} {linux}");
        }
    }

    #[test]
    fn a_detected_method_is_explained() {
        assert!(DeviceReason::Requested.text().is_none());
        assert!(DeviceReason::Ssh.text().unwrap().contains("SSH"));
        assert!(DeviceReason::Container.text().unwrap().contains("container"));
        assert!(DeviceReason::NoDesktop.text().unwrap().contains("desktop"));
    }
}
