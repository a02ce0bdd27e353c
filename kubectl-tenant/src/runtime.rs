//! The async runtime, which is built only when something has to be awaited.

use std::future::Future;

use crate::error::Error;

/// Runs a future to completion on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> Result<F::Output, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::other(format!("cannot start the runtime: {error}")))?;
    let output = runtime.block_on(future);
    // A name resolution that hangs must not delay the end of the program.
    runtime.shutdown_background();
    Ok(output)
}
