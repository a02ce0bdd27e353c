//! Fixture: an issuer on a real listener and a real database, and clients that use it.

use std::{collections::BTreeMap, convert::Infallible, net::IpAddr, path::Path, sync::Arc};

use http::uri::Scheme;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use integration::postgres::{Database, Postgres};
pub(crate) use integration::{engine::On, on_both_engines};
use poem::EndpointExt as _;
use poem_openapi::OpenApiService;
use reqwest::{Client, RequestBuilder, Response, StatusCode, header};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tenant_broker::{
    base::{
        clock::Clock,
        db::{Db, Location},
        reload::Reloader,
        telemetry::Metrics,
        throttle::WindowQuota,
    },
    cluster::{Cluster, Clusters},
    config::{Config, Settings},
    http::{API_PATH, OuterStack, PoemService, ReadBody, call_poem},
    identity::{self, BrowserSessions, Identity},
    issuer::{self, Issuer, IssuerSettings},
    on_engine,
    user::{self, Users},
    workspace::{self, Workspaces, notification_channel},
};
use tenant_shared::{Me, Role};
use url::Url;
use uuid::Uuid;

pub(crate) const EMAIL: &str = "ada@example.com";
pub(crate) const PASSWORD: &str = "correct horse battery staple";
pub(crate) const CLIENT: &str = "kubectl-tenant";
pub(crate) const REDIRECT: &str = "http://127.0.0.1:49152/callback";
/// A frontend that the world trusts.
pub(crate) const FRONTEND: &str = "https://app.example.com";
/// The network of the world's trusted proxies.
pub(crate) const PROXIES: &str = "127.0.7.0/24";
pub(crate) const SCOPE: &str = "openid email offline_access";

pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) db: Db,
    pub(crate) clock: Clock,
    pub(crate) identity: Identity,
    pub(crate) issuer: Issuer,
    pub(crate) user: Uuid,
    pub(crate) http: Client,
    pub(crate) folder: tempfile::TempDir,
    metrics: Metrics,
    reloader: Reloader,
    location: Location,
    server: tokio::task::JoinHandle<()>,
    _database: Option<Database>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl World {
    pub(crate) async fn start(on: On) -> Self {
        Self::with(on, |_| {}).await
    }

    /// A world with other settings than the usual ones.
    pub(crate) async fn with(on: On, change: impl FnOnce(&mut IssuerSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (location, database) = match on {
            On::Sqlite => (Location::Sqlite(folder.path().join("broker.db")), None),
            On::Postgres => {
                let server = Postgres::shared().await.unwrap();
                let database = server.database("issuer").await.unwrap();
                (database.url().as_str().parse().unwrap(), Some(database))
            }
        };
        let db = Db::connect(&location).await.unwrap();
        db.migrate().await.unwrap();
        // It stands still at about the real time, because independent clients compare with that.
        let clock = Clock::manual(Clock::system().now());
        let metrics = Metrics::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let browser =
            BrowserSessions::new(&url.parse().unwrap(), vec![FRONTEND.to_owned()], 3600, 86_400);
        let identity = Identity::new(db.clone(), clock.clone(), metrics.clone(), browser);
        let user = identity.create_user(EMAIL, PASSWORD.into(), Role::User).await.unwrap();
        let key = folder.path().join("issuer-key.pem");
        issuer::keys::generate_if_missing(&key).unwrap();
        let mut settings = IssuerSettings {
            public_url: url.parse().unwrap(),
            signing_key_files: vec![key],
            access_token_seconds: 900,
            id_token_seconds: 300,
            session_idle_seconds: 24 * 3600,
            session_max_seconds: 7 * 24 * 3600,
            refresh_grace_seconds: 30,
            authorization_seconds: 600,
            sign_in_account: WindowQuota { count: 5, window_seconds: 300 },
            sign_in_address: WindowQuota { count: 100, window_seconds: 300 },
            sign_in_everywhere: WindowQuota { count: 20, window_seconds: 3600 },
            sign_in_start: WindowQuota { count: 200, window_seconds: 300 },
            device_start: WindowQuota { count: 20, window_seconds: 300 },
            user_code: WindowQuota { count: 5, window_seconds: 300 },
            register: WindowQuota { count: 3, window_seconds: 3600 },
            registration: false,
            local_accounts: true,
            connectors: BTreeMap::new(),
            workloads: BTreeMap::new(),
            exchange: WindowQuota { count: 50, window_seconds: 300 },
        };
        change(&mut settings);
        let reloader = Reloader::new(clock.clone(), metrics.clone());
        let issuer = Issuer::start(
            settings,
            db.clone(),
            clock.clone(),
            identity.clone(),
            metrics.clone(),
            &reloader,
        )
        .unwrap();
        let users = Users::new(user::Dependencies {
            db: db.clone(),
            refusals: db.clone(),
            clock: clock.clone(),
            identity: identity.clone(),
            workspaces: workspaces(folder.path(), &db, &clock, &metrics).await,
            metrics: metrics.clone(),
        });
        let apis = (
            issuer::api::api(issuer.clone()),
            identity::api::api(identity.clone()),
            user::api::api(users),
        );
        let cluster = tenant_shared::CLUSTER_NAME.to_owned();
        let routes = issuer::routes(issuer.clone())
            .nest(API_PATH, OpenApiService::new(apis, "t", "1"))
            .data(identity.clone())
            .with(ReadBody { identity: identity.clone(), known_callers: None, cluster })
            .boxed();
        let outer = OuterStack {
            clock: clock.clone(),
            metrics: metrics.clone(),
            https: false,
            proxies: PROXIES.parse().unwrap(),
            origins: identity.origins().clone(),
            token_header: None,
        };
        let server = tokio::spawn(serve(listener, outer, routes));
        let http = integration::http_client::http_client(None).unwrap();
        Self {
            url,
            db,
            clock,
            identity,
            issuer,
            user,
            http,
            folder,
            metrics,
            reloader,
            location,
            server,
            _database: database,
        }
    }

    /// Has the broker read changed files again; returns all metrics.
    pub(crate) async fn reload_files(&self) -> String {
        // A change is used when two polls have read the same.
        self.reloader.poll().await;
        self.reloader.poll().await;
        self.metrics.render()
    }

    /// A connection to the database like that of another process.
    pub(crate) async fn another_process(&self) -> Db {
        Db::connect(&self.location).await.unwrap()
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    /// Advances the clock by this number of seconds.
    pub(crate) fn advance_seconds(&self, seconds: u64) {
        self.clock.advance(i64::try_from(seconds).unwrap() * 1000);
    }

    /// Number of audit rows with this action.
    pub(crate) async fn count_audited(&self, action: &str) -> usize {
        self.audited(action).await.len()
    }

    /// The audit rows with this action, newest first.
    pub(crate) async fn audited(&self, action: &str) -> Vec<AuditedEvent> {
        const SELECT: &str =
            "SELECT reason, ip_address FROM audit_logs WHERE action = $1 ORDER BY id DESC";
        on_engine!(self.db.reader(), pool =>
            sqlx::query_as(SELECT).bind(action).fetch_all(pool).await)
        .unwrap()
    }

    /// Runs a statement without parameters.
    pub(crate) async fn execute(&self, statement: &'static str) -> u64 {
        let mut tx = self.db.begin().await.unwrap();
        let rows = on_engine!(tx.connection(), c =>
            sqlx::query(statement).execute(c).await.map(|done| done.rows_affected()))
        .unwrap();
        tx.commit().await.unwrap();
        rows
    }

    /// The one number that a statement returns.
    pub(crate) async fn number(&self, statement: &'static str) -> i64 {
        on_engine!(self.db.reader(), pool =>
            sqlx::query_scalar(statement).fetch_one(pool).await)
        .unwrap()
    }

    /// `GET /api/v1/me` with this access token.
    pub(crate) async fn me(&self, access_token: &str) -> Result<Me, StatusCode> {
        let request = self.http.get(self.at("/api/v1/me")).bearer_auth(access_token);
        let response = request.send().await.unwrap();
        match response.status() {
            StatusCode::OK => Ok(response.json().await.unwrap()),
            status => Err(status),
        }
    }

    /// Sends a token request.
    pub(crate) async fn token(&self, form: &[(&str, &str)]) -> JsonResponse {
        JsonResponse::send(self.http.post(self.at("/oauth2/token")).form(form)).await
    }

    pub(crate) async fn refresh(&self, refresh_token: &str) -> JsonResponse {
        let form = [
            ("grant_type", "refresh_token"),
            ("client_id", CLIENT),
            ("refresh_token", refresh_token),
        ];
        self.token(&form).await
    }

    /// Everything from the authorization request to the tokens.
    pub(crate) async fn sign_in(&self) -> Tokens {
        BrowserSignIn::begin(self, REDIRECT).await.tokens(self).await
    }
}

/// A row of the audit trail.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct AuditedEvent {
    pub(crate) reason: Option<String>,
    pub(crate) ip_address: Option<String>,
}

/// Serves the connections of a listener as the broker does, over HTTP/1.1.
async fn serve(listener: tokio::net::TcpListener, outer: OuterStack, routes: PoemService) {
    let services = Arc::new((outer, routes));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new());
    loop {
        let (stream, remote) = listener.accept().await.unwrap();
        let (local, services) = (stream.local_addr().unwrap(), Arc::clone(&services));
        let service = service_fn(move |request| {
            let services = Arc::clone(&services);
            async move {
                let (outer, routes) = &*services;
                let inner = |request, _| call_poem(routes, request, local, remote, Scheme::HTTP);
                Ok::<_, Infallible>(outer.handle(request, remote.ip(), inner).await)
            }
        });
        // A client may end its connection at any time.
        tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
    }
}

/// Workspaces in a cluster that does not answer.
async fn workspaces(folder: &Path, db: &Db, clock: &Clock, metrics: &Metrics) -> Workspaces {
    let kubeconfig = folder.join("nowhere.kubeconfig");
    std::fs::write(&kubeconfig, NOWHERE).unwrap();
    let arguments = [format!("cluster.kubeconfig={}", kubeconfig.display())];
    let settings = Settings::load(None, std::iter::empty(), &arguments).unwrap();
    let config = Config::from_settings(settings).unwrap();
    let reloader = Reloader::new(clock.clone(), metrics.clone());
    let connecting = Cluster::connect(&config.cluster, clock.clone(), metrics.clone(), &reloader);
    let cluster = connecting.await.unwrap();
    Workspaces::new(workspace::Dependencies {
        db: db.clone(),
        clock: clock.clone(),
        clusters: Clusters::new(cluster),
        tiers: config.tiers,
        init_limit: config.init_limit,
        metrics: metrics.clone(),
        notifier: notification_channel().0,
    })
}

const NOWHERE: &str = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
  "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
  "users": [{"name": "c", "user": {"token": "t"}}],
  "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]}"#;

/// A client whose connections come from another loopback address.
pub(crate) fn client_at(address: &str) -> Client {
    let address: IpAddr = address.parse().unwrap();
    Client::builder()
        .local_address(address)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .unwrap()
}

/// A response with a JSON body.
#[derive(Debug)]
pub(crate) struct JsonResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: header::HeaderMap,
    pub(crate) body: Value,
}

impl JsonResponse {
    pub(crate) async fn send(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// Asserts that it is this error of the token endpoint.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, error: &str) {
        assert_eq!(
            (self.status.as_u16(), self.body["error"].as_str()),
            (status, Some(error)),
            "{self:?}"
        );
        assert_eq!(self.headers[header::CACHE_CONTROL], "no-store");
    }

    #[track_caller]
    pub(crate) fn tokens(&self) -> Tokens {
        assert_eq!(self.status, 200, "{self:?}");
        assert_eq!(self.headers[header::CACHE_CONTROL], "no-store");
        let text = |name: &str| self.body[name].as_str().unwrap_or_default().to_owned();
        Tokens {
            access: text("access_token"),
            refresh: text("refresh_token"),
            id: text("id_token"),
            expires_in: self.body["expires_in"].as_i64().unwrap(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Tokens {
    pub(crate) access: String,
    pub(crate) refresh: String,
    pub(crate) id: String,
    pub(crate) expires_in: i64,
}

pub(crate) fn challenge(verifier: &str) -> String {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

pub(crate) const VERIFIER: &str = "a-verifier-of-a-test-that-is-long-enough-0123456789";

/// The usual authorization request, as parameters that a test may change.
pub(crate) fn authorization_parameters(redirect: &str) -> Vec<(&'static str, String)> {
    vec![
        ("response_type", "code".into()),
        ("client_id", CLIENT.into()),
        ("redirect_uri", redirect.into()),
        ("scope", SCOPE.into()),
        ("state", "a state & more".into()),
        ("nonce", "a-nonce".into()),
        ("code_challenge", challenge(VERIFIER)),
        ("code_challenge_method", "S256".into()),
    ]
}

/// Sends an authorization request.
pub(crate) async fn authorize(world: &World, parameters: &[(&str, String)]) -> Response {
    world.http.get(world.at("/oauth2/authorize")).query(parameters).send().await.unwrap()
}

pub(crate) fn location(response: &Response) -> &str {
    response.headers()[header::LOCATION].to_str().unwrap()
}

/// A parameter of the query of a URL.
pub(crate) fn query(url: &str, name: &str) -> Option<String> {
    let url = Url::parse("http://relative.invalid").unwrap().join(url).unwrap();
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

/// A browser at the sign-in page.
#[derive(Clone, Debug)]
pub(crate) struct BrowserSignIn {
    pub(crate) handle: String,
    pub(crate) cookie: String,
    pub(crate) redirect: String,
}

impl BrowserSignIn {
    pub(crate) async fn begin(world: &World, redirect: &str) -> Self {
        let response = authorize(world, &authorization_parameters(redirect)).await;
        assert_eq!(response.status(), 303, "{response:?}");
        let cookie = response.headers()[header::SET_COOKIE].to_str().unwrap();
        Self {
            handle: query(location(&response), "request").unwrap(),
            cookie: cookie.split(';').next().unwrap().to_owned(),
            redirect: redirect.to_owned(),
        }
    }

    /// Requests the form.
    pub(crate) async fn page(&self, world: &World) -> Response {
        let request = world.http.get(world.at("/login")).query(&[("request", &self.handle)]);
        request.header(header::COOKIE, &self.cookie).send().await.unwrap()
    }

    /// Sends the form.
    pub(crate) async fn post(&self, world: &World, email: &str, password: &str) -> Response {
        self.post_from(&world.http, world, email, password).await
    }

    pub(crate) async fn post_from(
        &self,
        http: &Client,
        world: &World,
        email: &str,
        password: &str,
    ) -> Response {
        let form = [("request", self.handle.as_str()), ("email", email), ("password", password)];
        let request = http.post(world.at("/login")).header(header::COOKIE, &self.cookie);
        request.form(&form).send().await.unwrap()
    }

    /// Signs in with the correct password; returns the code.
    pub(crate) async fn code(&self, world: &World) -> String {
        let response = self.post(world, EMAIL, PASSWORD).await;
        assert_eq!(response.status(), 303, "{response:?}");
        let location = location(&response);
        assert!(location.starts_with(&format!("{}?", self.redirect)), "{location}");
        query(location, "code").unwrap()
    }

    /// The form of the token request that redeems a code of this sign-in.
    pub(crate) fn redeeming<'a>(&'a self, code: &'a str) -> Vec<(&'static str, &'a str)> {
        vec![
            ("grant_type", "authorization_code"),
            ("client_id", CLIENT),
            ("redirect_uri", &self.redirect),
            ("code_verifier", VERIFIER),
            ("code", code),
        ]
    }

    pub(crate) async fn tokens(&self, world: &World) -> Tokens {
        let code = self.code(world).await;
        world.token(&self.redeeming(&code)).await.tokens()
    }
}

/// The parameters with one of them replaced.
pub(crate) fn with<'a>(
    parameters: &[(&'static str, &'a str)],
    name: &'static str,
    value: &'a str,
) -> Vec<(&'static str, &'a str)> {
    let mut changed: Vec<_> = parameters.iter().filter(|(n, _)| *n != name).copied().collect();
    changed.push((name, value));
    changed
}
