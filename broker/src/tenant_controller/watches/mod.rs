//! Watches of the cluster and of the database: each change is the name of a tenant in the queue.

mod changes;
mod events;
mod watch_retry;
