//! The demo accounts.

use std::path::Path;

use anyhow::{Context, Result};
use integration::random;
use integration::world::World;
use serde::{Deserialize, Serialize};

/// An account and its password, which is valid on this machine only.
#[derive(Deserialize, Serialize)]
pub(crate) struct Account {
    pub(crate) email: String,
    pub(crate) password: String,
}

/// Two people and an administrator.
#[derive(Deserialize, Serialize)]
pub(crate) struct People {
    pub(crate) first: Account,
    pub(crate) second: Account,
    pub(crate) operator: Account,
}

impl People {
    /// Reads the accounts of a kept folder, or creates new ones.
    pub(crate) async fn open(world: &World) -> Result<Self> {
        let file = world.folder().join("people.json");
        if file.exists() {
            return Self::read(&file);
        }
        let people = Self {
            first: make(world, "alice", false).await?,
            second: make(world, "bob", false).await?,
            operator: make(world, "operator", true).await?,
        };
        let text = serde_json::to_string_pretty(&people).context("write the demo accounts")?;
        integration::scratch::write_private(&file, text)?;
        Ok(people)
    }

    fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file).context("read the demo accounts")?;
        serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))
    }

    /// Returns all accounts with their roles.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Account, &'static str)> {
        [(&self.first, ""), (&self.second, ""), (&self.operator, "(administrator)")].into_iter()
    }
}

async fn make(world: &World, name: &str, admin: bool) -> Result<Account> {
    let account = Account { email: format!("{name}@example.com"), password: random::hex(8)? };
    world.broker().create_user(&account.email, &account.password, admin).await?;
    Ok(account)
}
