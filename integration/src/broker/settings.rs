//! The broker's configuration file.

use anyhow::{Context, Result, bail};
use toml::{Table, Value};
use url::Url;

use crate::port;

/// Settings by dotted key, as the broker's configuration names them.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    table: Table,
    /// Whether the ports must stay: because one was requested, or because the broker has served on
    /// them.
    fixed_port: bool,
}

impl Settings {
    /// Sets a key such as `limits.init_per_hour`.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        let mut table = &mut self.table;
        let mut parts = key.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                table.insert(part.to_owned(), value.into());
                return;
            }
            let inner = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
            if !inner.is_table() {
                *inner = Value::Table(Table::new());
            }
            let Value::Table(next) = inner else { return };
            table = next;
        }
    }

    /// Returns the value of a key if it is a string.
    pub fn text(&self, key: &str) -> Option<&str> {
        let mut parts = key.split('.');
        let first = self.table.get(parts.next()?)?;
        parts.try_fold(first, |value, part| value.get(part))?.as_str()
    }

    /// Chooses the ports: this one, or free ones.
    pub(super) fn take_ports(&mut self, port: Option<u16>) -> Result<()> {
        self.fixed_port = port.is_some();
        self.listen_on(match port {
            Some(port) if port::is_free(port) => port,
            Some(port) => bail!("port {port} of 127.0.0.1 is taken; choose another one"),
            None => port::free()?,
        })
    }

    /// Replaces the ports with other free ones; returns whether that was allowed.
    pub(super) fn other_ports(&mut self) -> Result<bool> {
        if self.fixed_port {
            return Ok(false);
        }
        self.listen_on(port::free()?)?;
        Ok(true)
    }

    /// Fixes the ports, because clients know them from now on.
    pub(super) fn keep_ports(&mut self) {
        self.fixed_port = true;
    }

    fn listen_on(&mut self, port: u16) -> Result<()> {
        let scheme = self.scheme();
        let own = self.text("listen").map(|listen| format!("{scheme}://{listen}"));
        // A public URL of another broker stays.
        if self.text("public_url").is_none_or(|url| own.as_deref() == Some(url)) {
            self.set("public_url", format!("{scheme}://127.0.0.1:{port}"));
        }
        self.set("listen", format!("127.0.0.1:{port}"));
        self.set("operator_listen", format!("127.0.0.1:{}", port::free()?));
        Ok(())
    }

    pub(super) fn url(&self) -> Result<Url> {
        self.address(self.scheme(), "listen")
    }

    pub(super) fn operator_url(&self) -> Result<Url> {
        self.address("http", "operator_listen")
    }

    pub(super) fn public_url(&self) -> Result<Url> {
        let url = self.text("public_url").context("public_url is not set")?;
        url.parse().with_context(|| format!("public_url is {url:?}"))
    }

    fn scheme(&self) -> &'static str {
        if self.text("tls.cert_file").is_some() { "https" } else { "http" }
    }

    fn address(&self, scheme: &str, key: &str) -> Result<Url> {
        let address = self.text(key).with_context(|| format!("{key} is not set"))?;
        format!("{scheme}://{address}/").parse().with_context(|| format!("{key} is {address:?}"))
    }

    pub(super) fn to_toml(&self) -> Result<String> {
        toml::to_string(&self.table).context("write the broker's settings as TOML")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dotted_keys_become_tables() {
        let mut settings = Settings::default();
        settings.set("listen", "127.0.0.1:1");
        settings.set("tiers.basic.cpu", "4");
        settings.set("tiers.basic.memory", "8Gi");
        settings.set("tiers.basic.cpu", "5");
        settings.set("limits.init_per_hour", 3);
        let table: Table = settings.to_toml().unwrap().parse().unwrap();
        assert_eq!(table["tiers"]["basic"]["cpu"].as_str(), Some("5"));
        assert_eq!(table["tiers"]["basic"]["memory"].as_str(), Some("8Gi"));
        assert_eq!(table["limits"]["init_per_hour"].as_integer(), Some(3));
        assert_eq!(settings.text("tiers.basic.memory"), Some("8Gi"));
    }

    #[test]
    fn other_ports_change_the_own_public_url_and_no_other() {
        let mut settings = Settings::default();
        settings.take_ports(None).unwrap();
        assert!(settings.other_ports().unwrap());
        assert_eq!(settings.public_url().unwrap(), settings.url().unwrap());

        let mut replica = Settings::default();
        replica.set("public_url", "http://127.0.0.1:1");
        replica.take_ports(None).unwrap();
        assert!(replica.other_ports().unwrap());
        assert_eq!(replica.text("public_url"), Some("http://127.0.0.1:1"));
    }

    #[test]
    fn a_requested_port_is_never_replaced() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let taken = listener.local_addr().unwrap().port();
        assert!(Settings::default().take_ports(Some(taken)).is_err());
        let mut settings = Settings::default();
        settings.take_ports(Some(port::free().unwrap())).unwrap();
        assert!(!settings.other_ports().unwrap());

        let mut known = Settings::default();
        known.take_ports(None).unwrap();
        known.keep_ports();
        assert!(!known.other_ports().unwrap());
    }
}
