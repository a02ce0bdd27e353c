//! The OpenAPI description of an API whose operations are types of their own.

use std::collections::HashMap;

use poem::{endpoint::BoxEndpoint, http::Method};
use poem_openapi::{
    OpenApi,
    registry::{MetaApi, MetaPath, Registry},
};

/// An API that describes each path once. `poem_openapi` describes a path once for each type with
/// operations at it, and a document that contains a path twice is not valid.
#[derive(Debug)]
pub struct MergedPaths<T>(pub T);

impl<T: OpenApi> OpenApi for MergedPaths<T> {
    fn meta() -> Vec<MetaApi> {
        let mut paths: Vec<MetaPath> = Vec::new();
        for path in T::meta().into_iter().flat_map(|api| api.paths) {
            match paths.iter_mut().find(|known| known.path == path.path) {
                Some(known) => known.operations.extend(path.operations),
                None => paths.push(path),
            }
        }
        vec![MetaApi { paths }]
    }

    fn register(registry: &mut Registry) {
        T::register(registry);
    }

    fn add_routes(self, route_table: &mut HashMap<String, HashMap<Method, BoxEndpoint<'static>>>) {
        self.0.add_routes(route_table);
    }
}
