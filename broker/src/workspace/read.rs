//! Reads of workspaces: their API form, pages, lookup by name and current status.

use tenant_shared::{Name, Workspace, WorkspaceList};
use uuid::Uuid;

use super::{
    WorkspaceError, WorkspaceRow, WorkspaceStatusRow, Workspaces,
    store::{self, drift, list, list::ListedWorkspace},
};
use crate::{
    access::{self, AccessError, Permit, ReadEverything, ReadWorkspace},
    base::paging::{self, Cursor},
    identity::Caller,
};

/// Maximum number of workspaces in the response to a lookup by name.
const MAX_NAMED: u32 = 100;

impl Workspaces {
    /// The API form of a workspace.
    ///
    /// # Errors
    /// The database failed.
    pub async fn show(
        &self,
        permit: &Permit<ReadWorkspace, WorkspaceRow>,
    ) -> Result<Workspace, WorkspaceError> {
        let listed = list::by_id(&self.db, permit.resource().id).await?;
        let listed = listed.ok_or(AccessError::WorkspaceNotFound)?;
        let workspaces = self.with_drift(&[&listed]).await?;
        Ok(workspaces.into_iter().next().ok_or(AccessError::WorkspaceNotFound)?)
    }

    /// The workspaces of this name that the caller may see, oldest first.
    ///
    /// # Errors
    /// There are none, or none that the caller may know of; or the database failed.
    pub async fn by_name(
        &self,
        caller: &Caller,
        name: &Name,
    ) -> Result<Vec<Workspace>, WorkspaceError> {
        let named = list::by_name(&self.db, name, MAX_NAMED).await?;
        let permits: Vec<Permit<ReadWorkspace, ListedWorkspace>> =
            named.into_iter().filter_map(|it| access::authorize(caller, it).ok()).collect();
        if permits.is_empty() {
            return Err(AccessError::NameNotFound.into());
        }
        let visible: Vec<&ListedWorkspace> = permits.iter().map(Permit::resource).collect();
        Ok(self.with_drift(&visible).await?)
    }

    /// A page of the caller's workspaces, oldest first. A caller that is limited to one workspace
    /// gets that one only.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn page_of(
        &self,
        caller: &Caller,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, WorkspaceError> {
        let Some(only) = caller.only_workspace() else {
            return self.page(Some(caller.user_id()), after, limit).await;
        };
        match self.authorize::<ReadWorkspace>(caller, only).await {
            Ok(permit) => {
                let items = vec![self.show(&permit).await?];
                Ok(WorkspaceList { items, next_cursor: None })
            }
            Err(WorkspaceError::Access(AccessError::WorkspaceNotFound)) => {
                Ok(WorkspaceList::default())
            }
            Err(error) => Err(error),
        }
    }

    /// A page of everybody's workspaces, oldest first.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn page_of_all(
        &self,
        _: &Permit<ReadEverything>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, WorkspaceError> {
        self.page(None, after, limit).await
    }

    async fn page(
        &self,
        owner: Option<Uuid>,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<WorkspaceList, WorkspaceError> {
        let after = after.unwrap_or(Cursor::OLDEST);
        // One row more than requested shows whether there is a next page.
        let mut rows = list::page(&self.db, owner, after, limit + 1).await?;
        let next_cursor = paging::truncate_page(&mut rows, limit, |row| row.cursor().to_string());
        let rows: Vec<&ListedWorkspace> = rows.iter().collect();
        Ok(WorkspaceList { items: self.with_drift(&rows).await?, next_cursor })
    }

    /// The API form of these workspaces, with their drift.
    async fn with_drift(&self, listed: &[&ListedWorkspace]) -> sqlx::Result<Vec<Workspace>> {
        let (Some(first), Some(last)) = (listed.first(), listed.last()) else {
            return Ok(Vec::new());
        };
        // Rows of several owners are a page of everybody's workspaces, which is contiguous: it has
        // all workspaces between its first and its last one.
        let owner = first.workspace.user_id;
        let owner = listed.iter().all(|it| it.workspace.user_id == owner).then_some(owner);
        let drifts = drift::between(&self.db, owner, first.cursor(), last.cursor()).await?;
        let drift_of = |id| drifts.iter().filter(move |drift| drift.workspace_id == id);
        let describe = |listed: &&ListedWorkspace| Workspace {
            drift: drift_of(listed.workspace.id).map(drift::DriftRow::to_api).collect(),
            ..listed.to_api()
        };
        Ok(listed.iter().map(describe).collect())
    }

    /// Whether there are more workspaces than this number.
    ///
    /// # Errors
    /// The database failed.
    pub(crate) async fn are_more_than(
        &self,
        _: &Permit<ReadEverything>,
        number: u32,
    ) -> Result<bool, WorkspaceError> {
        Ok(list::count(&self.db, number + 1).await? > i64::from(number))
    }

    /// The workspaces whose status changed after this time, in milliseconds since 1970.
    ///
    /// # Errors
    /// The database failed.
    pub async fn changed_since(&self, since: i64) -> sqlx::Result<Vec<WorkspaceStatusRow>> {
        store::changed_since(&self.db, since).await
    }

    /// The current status and ServiceAccount of a workspace; `None` if there is no such workspace.
    ///
    /// # Errors
    /// The database failed.
    pub async fn current_status(&self, id: Uuid) -> sqlx::Result<Option<WorkspaceStatusRow>> {
        store::current_status(&self.db, id).await
    }
}
