//! Lists of the API, which come in pages.

use http::Method;
use serde::de::DeserializeOwned;

use super::Broker;
use crate::error::Error;

/// Maximum number of pages that are read of a list.
const MAX_PAGES: usize = 1000;

/// Maximum number of items that are requested per page: the maximum of every list of the broker.
const MAX_PAGE_SIZE: usize = 500;

/// A page of a list, or the concatenation of several pages.
#[derive(serde::Deserialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    /// Cursor of the next page, if there is one.
    #[serde(default)]
    pub(crate) next_cursor: Option<String>,
    /// Whether the list has more items, also at an older broker without cursors.
    #[serde(skip)]
    pub(crate) more: bool,
}

impl Broker {
    /// Lists at most `limit` items, page by page.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        fixed: &[(&str, &str)],
        limit: u32,
    ) -> Result<Page<T>, Error> {
        let limit = limit as usize;
        let mut all = Page { items: Vec::new(), next_cursor: None, more: false };
        for _ in 0..MAX_PAGES {
            let page_size = MAX_PAGE_SIZE.min(limit - all.items.len()).to_string();
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("limit", &page_size).extend_pairs(fixed);
            if let Some(cursor) = &all.next_cursor {
                query.append_pair("cursor", cursor);
            }
            let path = format!("{path}?{}", query.finish());
            let page: Page<T> = self.parse(&self.call(Method::GET, &path, None).await?)?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() || all.items.len() >= limit {
                // An older broker ignores the limit.
                all.more = all.next_cursor.is_some() || all.items.len() > limit;
                all.items.truncate(limit);
                return Ok(all);
            }
        }
        Err(Error::unreachable(format!(
            "{} returned more than {MAX_PAGES} pages of {path}",
            self.account.broker
        )))
    }
}
