//! Lists that are read page by page. A page is limited in bytes, because a tenant may make each object
//! as large as the API server accepts.

mod metadata;
pub(super) mod page_size;
mod protobuf;

use std::fmt;

use http::{StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use k8s_openapi::NamespaceResourceScope;
use kube::{
    Client, Resource,
    api::ListParams,
    client::Body,
    core::{Request, Status},
};
use prost::Message;
use serde::{Deserialize, de::DeserializeOwned};

pub(crate) use self::protobuf::{PROTOBUF_MAGIC, ProtobufEnvelope, TypeMeta};
pub(super) use self::{
    metadata::{Metadata, without_managed_fields},
    protobuf::PROTOBUF,
};
use self::{
    page_size::PageSize,
    protobuf::{PROTOBUF_METADATA, ProtobufList, StatusMessage},
};

/// The largest page of several objects, in bytes.
pub(super) const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The largest page of one object, in bytes. The API server accepts 1.5 MiB for an object, which is up
/// to six times as much in JSON.
pub(super) const MAX_OBJECT_BYTES: usize = 16 * 1024 * 1024;

/// Representation of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Representation {
    Full,
    /// `PartialObjectMetadata`.
    Metadata,
}

/// Decodes the body of a page.
type Decode<T> = fn(&[u8]) -> Result<Page<T>, kube::Error>;

/// A list, of which each object is parsed as `T`.
pub(super) struct Pages<T> {
    client: Client,
    path: String,
    representation: Representation,
    selected: ListParams,
    size: PageSize,
    is_complete: bool,
    is_protobuf: bool,
    decode: Decode<T>,
}

impl<T: DeserializeOwned + Send + 'static> Pages<T> {
    /// A list of all selected objects of a kind, in all namespaces, in JSON.
    pub(super) fn new<K>(
        client: Client,
        representation: Representation,
        selected: ListParams,
    ) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self::with_decode::<K>(client, representation, selected, decode_json)
    }
}

impl<T: Message + Default + fmt::Debug + 'static> Pages<T> {
    /// Like [`Self::new`], in Protobuf, which costs the API server and the broker less. `T` is the
    /// message of an object, of which it may declare a part. Custom resources are not served in
    /// Protobuf.
    pub(super) fn protobuf<K>(
        client: Client,
        representation: Representation,
        selected: ListParams,
    ) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        let pages = Self::with_decode::<K>(client, representation, selected, decode_protobuf);
        Self { is_protobuf: true, ..pages }
    }
}

impl<T: Send + 'static> Pages<T> {
    /// Like [`Self::protobuf`]: `M` is the message of an object, and `T` what is made of it.
    pub(super) fn from_protobuf<K, M>(client: Client, selected: ListParams) -> Self
    where
        K: Resource<DynamicType = ()>,
        M: Message + Default + fmt::Debug,
        T: From<M>,
    {
        let decode = decode_from::<M, T>;
        let pages = Self::with_decode::<K>(client, Representation::Full, selected, decode);
        Self { is_protobuf: true, ..pages }
    }

    fn with_decode<K>(
        client: Client,
        representation: Representation,
        selected: ListParams,
        decode: Decode<T>,
    ) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        Self {
            client,
            path: K::url_path(&(), None),
            representation,
            selected,
            size: PageSize::default(),
            is_complete: false,
            is_protobuf: false,
            decode,
        }
    }

    /// The same list, of one namespace only.
    pub(super) fn in_namespace<K>(self, namespace: &str) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Self { path: K::url_path(&(), Some(namespace)), ..self }
    }

    /// The same list in smaller pages at first, because others may have made its objects large: the API
    /// server encodes a page completely before a byte of it is read.
    pub(super) fn with_small_pages(self) -> Self {
        Self { size: PageSize::small(), ..self }
    }

    /// The same list, one object after the other.
    pub(super) fn one_by_one(self) -> Self {
        Self { size: PageSize::smallest(), ..self }
    }

    /// Begins the list anew. Its pages keep the size that fits.
    pub(super) fn restart(&mut self) {
        self.is_complete = false;
        self.selected.continue_token = None;
    }

    /// The objects of the next page; `None` after the last page. A page that is too large is read
    /// again in smaller ones.
    ///
    /// # Errors
    /// A request failed, or an object is larger than [`MAX_OBJECT_BYTES`].
    pub(super) async fn next(&mut self) -> Result<Option<Vec<T>>, kube::Error> {
        if self.is_complete {
            return Ok(None);
        }
        loop {
            let limit = self.size.limit();
            let max_bytes = if limit == 1 { MAX_OBJECT_BYTES } else { MAX_PAGE_BYTES };
            if let Some(items) = self.read(self.representation, limit, max_bytes).await? {
                self.size.fits();
                return Ok(Some(items));
            }
            if self.size.shrink().is_none() {
                return Err(kube::Error::Service("an object is too large".into()));
            }
        }
    }

    /// Like [`Self::next`], but reads only the metadata of a page that is too large. That costs
    /// less than to read its objects in smaller pages, so pages have less than 50 objects only
    /// where the metadata are too large, too. The flag is true if the objects are complete.
    ///
    /// # Errors
    /// See [`Self::next`].
    pub(super) async fn next_or_metadata(&mut self) -> Result<Option<(Vec<T>, bool)>, kube::Error> {
        if self.is_complete {
            return Ok(None);
        }
        let mut limit = self.size.limit();
        if let Some(items) = self.read(self.representation, limit, MAX_PAGE_BYTES).await? {
            self.size.fits();
            return Ok(Some((items, true)));
        }
        self.size.read_as_metadata();
        loop {
            if let Some(items) =
                self.read(Representation::Metadata, limit, MAX_OBJECT_BYTES).await?
            {
                return Ok(Some((items, false)));
            }
            if self.size.limit() == limit && self.size.shrink().is_none() {
                return Err(kube::Error::Service("an object is too large".into()));
            }
            limit = self.size.limit();
        }
    }

    /// Whether the last page was read.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Reads the next page, of at most `limit` objects; `None` if it has more than `max_bytes`.
    async fn read(
        &mut self,
        representation: Representation,
        limit: u32,
        max_bytes: usize,
    ) -> Result<Option<Vec<T>>, kube::Error> {
        let (request, params) =
            (Request::new(self.path.clone()), self.selected.clone().limit(limit));
        let request = match representation {
            Representation::Full => request.list(&params),
            Representation::Metadata => request.list_metadata(&params),
        };
        let mut request = request.map_err(kube::Error::BuildRequest)?;
        if self.is_protobuf {
            let accepted =
                if representation == Representation::Full { PROTOBUF } else { PROTOBUF_METADATA };
            request.headers_mut().insert(header::ACCEPT, accepted);
        }
        let response = self.client.send(request.map(Body::from)).await?;
        let status = response.status();
        let body = match Limited::new(response.into_body(), max_bytes).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Ok(None),
            Err(error) => return Err(kube::Error::Service(error)),
        };
        if !status.is_success() {
            return Err(kube::Error::Api(refusal(&body, status).boxed()));
        }
        // A large page takes milliseconds.
        let decode = self.decode;
        let page = tokio::task::spawn_blocking(move || decode(&body)).await;
        let page = page.map_err(|error| kube::Error::Service(error.into()))??;
        self.is_complete = page.continue_token.is_empty();
        self.selected.continue_token = Some(page.continue_token).filter(|token| !token.is_empty());
        Ok(Some(page.items))
    }
}

/// A page that was read.
struct Page<T> {
    /// Empty in the last page.
    continue_token: String,
    items: Vec<T>,
}

#[derive(Deserialize)]
struct JsonPage<T> {
    metadata: JsonPageMeta,
    /// Null in an empty list of metadata.
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct JsonPageMeta {
    #[serde(rename = "continue")]
    continue_token: Option<String>,
}

/// The `Status` of a response that refuses a request, in JSON or Protobuf. A body of another kind is the
/// message.
pub(super) fn refusal(body: &[u8], status: StatusCode) -> Status {
    let in_protobuf = || {
        let message = StatusMessage::decode(&*ProtobufEnvelope::parse(body)?.raw).ok()?;
        let of_response = Status::failure(&message.message, &message.reason);
        Some(of_response.with_code(status.as_u16()))
    };
    let in_json = || serde_json::from_slice(body).ok();
    let text = || Status::failure(&String::from_utf8_lossy(body), "").with_code(status.as_u16());
    in_protobuf().or_else(in_json).unwrap_or_else(text)
}

fn decode_json<T: DeserializeOwned>(body: &[u8]) -> Result<Page<T>, kube::Error> {
    let JsonPage { metadata, items } =
        serde_json::from_slice(body).map_err(kube::Error::SerdeError)?;
    let continue_token = metadata.continue_token.unwrap_or_default();
    Ok(Page { continue_token, items: items.unwrap_or_default() })
}

fn decode_protobuf<T: Message + Default + fmt::Debug>(body: &[u8]) -> Result<Page<T>, kube::Error> {
    let invalid = |error: Box<dyn std::error::Error + Send + Sync>| kube::Error::Service(error);
    let envelope =
        ProtobufEnvelope::parse(body).ok_or_else(|| invalid("the page is not Protobuf".into()))?;
    let list = ProtobufList::decode(&*envelope.raw).map_err(|error| invalid(error.into()))?;
    let continue_token = list.metadata.unwrap_or_default().continue_token;
    Ok(Page { continue_token, items: list.items })
}

fn decode_from<M: Message + Default + fmt::Debug, T: From<M>>(
    body: &[u8],
) -> Result<Page<T>, kube::Error> {
    let Page { continue_token, items } = decode_protobuf::<M>(body)?;
    Ok(Page { continue_token, items: items.into_iter().map(T::from).collect() })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use serde_json::{Value, json};

    use self::protobuf::{ListMeta, PROTOBUF_MAGIC};
    use super::*;
    use crate::testing::StubApiServer;

    /// An API server whose namespaces have these sizes, but for their metadata. The token of a page is
    /// the number of the objects before it.
    fn with_sizes(sizes: impl IntoIterator<Item = usize>) -> StubApiServer {
        server(sizes, 0)
    }

    /// The same, with up to this many bytes of each object in its metadata.
    fn server(sizes: impl IntoIterator<Item = usize>, of_metadata: usize) -> StubApiServer {
        let sizes: Vec<usize> = sizes.into_iter().collect();
        StubApiServer::new(move |request| {
            let (first, limit) = (request.number("continue"), request.number("limit"));
            let end = sizes.len().min(first + limit);
            let items: Vec<Value> = (first..end)
                .map(|number| {
                    let is_for_metadata = request.is_for_metadata();
                    let most = if is_for_metadata { of_metadata } else { usize::MAX };
                    let padding = sizes[number].min(most);
                    json!({"metadata": {"name": number.to_string()}, "spec": "x".repeat(padding)})
                })
                .collect();
            let token = if end < sizes.len() { end.to_string() } else { String::new() };
            (StatusCode::OK, json!({"metadata": {"continue": token}, "items": items}))
        })
    }

    fn pages_of(server: &StubApiServer) -> Pages<Metadata> {
        Pages::new::<Namespace>(server.client(), Representation::Full, ListParams::default())
    }

    /// Limits of the pages that were read in a form.
    fn limits_of(server: &StubApiServer, representation: Representation) -> Vec<usize> {
        let is_metadata = representation == Representation::Metadata;
        let requests = server.requests();
        let of_form = requests.iter().filter(|request| request.is_for_metadata() == is_metadata);
        of_form.map(|request| request.number("limit")).collect()
    }

    fn names(objects: Vec<Metadata>) -> impl Iterator<Item = String> {
        objects.into_iter().filter_map(|object| object.metadata.name)
    }

    #[tokio::test]
    async fn a_page_that_is_too_large_is_read_in_smaller_ones() {
        let small = || std::iter::repeat_n(10, 600);
        let server = with_sizes(small().chain([MAX_PAGE_BYTES / 3; 7]).chain(small()));
        let (mut pages, mut found) = (pages_of(&server), Vec::new());
        while let Some(page) = pages.next().await.unwrap() {
            found.extend(names(page));
        }
        let all: Vec<String> = (0..1207).map(|number| number.to_string()).collect();
        assert_eq!(found, all);
        assert!(pages.is_complete() && pages.next().await.unwrap().is_none());
        let limits = limits_of(&server, Representation::Full);
        assert_eq!(limits[..4], [500, 500, 50, 50], "{limits:?}");
        assert!(limits.contains(&1), "{limits:?}");

        // One that is too large by itself fails the list.
        let server = with_sizes([MAX_OBJECT_BYTES]);
        let error = pages_of(&server).next().await.err().unwrap().to_string();
        assert!(error.contains("an object is too large"), "{error}");
        assert_eq!(limits_of(&server, Representation::Full), [500, 50, 5, 1]);
    }

    #[derive(Message, PartialEq)]
    struct Item {
        #[prost(string, tag = "3")]
        name: String,
    }

    #[test]
    fn pages_in_protobuf_have_items_and_a_token() {
        let page = |token: &str, items: &[&str]| {
            let metadata = ListMeta { continue_token: token.to_owned() };
            let items = items.iter().map(|&name| Item { name: name.to_owned() }).collect();
            let raw = ProtobufList { metadata: Some(metadata), items }.encode_to_vec();
            [PROTOBUF_MAGIC, &ProtobufEnvelope { type_meta: None, raw }.encode_to_vec()].concat()
        };
        let decoded = decode_protobuf::<Item>(&page("next", &["a", "b"])).unwrap();
        assert_eq!(decoded.continue_token, "next");
        assert_eq!(decoded.items.iter().map(|item| &*item.name).collect::<Vec<_>>(), ["a", "b"]);
        let last = decode_protobuf::<Item>(&page("", &[])).unwrap();
        assert!(last.continue_token.is_empty() && last.items.is_empty());
        let whole = page("next", &["a"]);
        for invalid in [&b"{}"[..], b"", &whole[4..], &whole[..whole.len() - 1]] {
            assert!(decode_protobuf::<Item>(invalid).is_err(), "{invalid:?}");
        }
    }

    #[tokio::test]
    async fn metadata_replaces_a_page_that_is_too_large() {
        let sizes = std::iter::repeat_n(10, 500).chain([MAX_PAGE_BYTES; 2]);
        let server = with_sizes(sizes);
        let (mut pages, mut found) = (pages_of(&server), Vec::new());
        while let Some((page, is_full)) = pages.next_or_metadata().await.unwrap() {
            assert_eq!(is_full, found.is_empty());
            found.extend(names(page));
        }
        assert_eq!(found.len(), 502);
        assert_eq!(limits_of(&server, Representation::Full), [500, 500]);
        assert_eq!(limits_of(&server, Representation::Metadata), [500]);
    }

    /// Reads all pages, or the metadata of those that are too large.
    async fn names_of_all(server: &StubApiServer) -> Vec<String> {
        let (mut pages, mut found) = (pages_of(server), Vec::new());
        while let Some((page, _)) = pages.next_or_metadata().await.unwrap() {
            found.extend(names(page));
        }
        found
    }

    #[tokio::test]
    async fn a_few_large_objects_keep_the_pages_of_others_large() {
        let all: Vec<String> = (0..20_000).map(|number| number.to_string()).collect();
        let sizes = (0..20_000).map(|number| if number % 1000 == 0 { MAX_PAGE_BYTES } else { 1 });
        let server = with_sizes(sizes);
        assert_eq!(names_of_all(&server).await, all);
        let limits = limits_of(&server, Representation::Full);
        assert!(limits.iter().all(|limit| *limit >= 50), "{limits:?}");
        // One after the other there are 16 of 50 objects, and larger ones.
        let requests = server.requests().len();
        assert!(requests < 20 * 20, "{requests}");
    }

    #[tokio::test]
    async fn metadata_that_are_too_large_are_read_in_smaller_pages_than_others() {
        let all: Vec<String> = (0..6000).map(|number| number.to_string()).collect();
        let large = MAX_OBJECT_BYTES / 10;
        // Twelve large ones at three places.
        let sizes = (0..6000).map(|number| if number % 2000 < 12 { large } else { 1 });
        let server = server(sizes, large);
        assert_eq!(names_of_all(&server).await, all);
        let of_metadata = limits_of(&server, Representation::Metadata);
        assert_eq!(of_metadata[..4], [500, 50, 5, 5], "{of_metadata:?}");
        let limits = limits_of(&server, Representation::Full);
        let large_again = limits.iter().filter(|limit| **limit == 500).count();
        assert!(large_again > 3, "{limits:?}");
        assert!(server.requests().len() < 3 * 50, "{}", server.requests().len());

        // One that is too large by itself fails the list.
        let server = self::server([MAX_OBJECT_BYTES], usize::MAX);
        let error = pages_of(&server).next_or_metadata().await.err().unwrap().to_string();
        assert!(error.contains("an object is too large"), "{error}");
    }

    #[test]
    fn the_text_of_a_refusal_is_read_in_both_formats() {
        let status = StatusMessage { message: "no".to_owned(), reason: "Forbidden".to_owned() };
        let envelope = ProtobufEnvelope { type_meta: None, raw: status.encode_to_vec() };
        let protobuf = [PROTOBUF_MAGIC, &envelope.encode_to_vec()].concat();
        let json = json!({"kind": "Status", "message": "no", "reason": "Forbidden", "code": 403});
        for body in [protobuf, json.to_string().into_bytes()] {
            let refusal = refusal(&body, StatusCode::FORBIDDEN);
            let read = (refusal.message.as_str(), refusal.reason.as_str(), refusal.code);
            assert_eq!(read, ("no", "Forbidden", 403));
        }
        let refusal = refusal(b"bad gateway", StatusCode::BAD_GATEWAY);
        assert_eq!((refusal.message.as_str(), refusal.code), ("bad gateway", 502));
    }
}
