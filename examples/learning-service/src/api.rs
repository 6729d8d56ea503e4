//! The HTTP interface. openapi.json describes it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::response::Response;
use axum::routing::{delete, get, post};
use hyper::body::Incoming;
use hyper::header::{
    AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, RETRY_AFTER,
};
use hyper::{StatusCode, Uri};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tower_service::Service as _;

use crate::core::Core;
use crate::fault::{Fault, Result};
use crate::generate::LanguageModel;
use crate::hash;
use crate::openai;
use crate::serve::{Line, Search};
use crate::serving::batcher::{Batcher, Refused};
use crate::serving::connections::{Handler, PATIENCE, Refusal, Server};
use crate::serving::metrics::Metrics;
use crate::store::NewCorrection;
use crate::versions::now;

const PAGE: &str = include_str!("../shared/page.html");
const OPENAPI: &str = include_str!("../shared/openapi.json");
/// Connections at a time.
const MOST_CONNECTIONS: usize = 1024;
/// Requests at a time that work on the database.
const MOST_WORK: usize = 64;
pub(crate) const MOST_LINES: usize = 256;
pub(crate) const MOST_BEAM: usize = 16;
/// Lines translated together, and how long the first of them waits for others.
const BATCH: usize = 64;
const WINDOW: Duration = Duration::from_millis(5);
/// Largest texts in bytes: a sentence, and a name.
const MOST_TEXT: usize = 4000;
const MOST_NAME: usize = 100;
/// In the metrics only: nobody is there to read it.
const CLIENT_GONE: u16 = 499;

pub(crate) struct App {
    pub(crate) core: Arc<Core>,
    pub(crate) language: Option<LanguageModel>,
    pub(crate) openai: openai::Counts,
    batcher: Batcher<Search, Line>,
    metrics: Arc<Metrics>,
    /// Work on the database in progress or in the queue of its threads.
    room: Arc<Semaphore>,
}

struct Service {
    router: Router,
    token: Option<[u8; 32]>,
}

/// Serves until [`Server::shutdown`].
pub fn start(core: Arc<Core>, listener: TcpListener) -> Result<Server> {
    let address = listener.local_addr().map_err(|error| Fault::Internal(error.to_string()))?;
    let token = core.settings.token.clone();
    if token.is_none() && !address.ip().is_loopback() {
        return Err(Fault::Invalid(format!(
            "{address} is not a loopback address: set LEARNING_SERVICE_TOKEN"
        )));
    }
    let settings = &core.settings;
    let folder = settings.language_model.as_deref();
    let language = folder.map(|folder| LanguageModel::open(folder, settings)).transpose()?;
    let openai = openai::Counts::default();
    let metrics = Arc::new(Metrics::new());
    let translator = core.models.clone().translator(&core.base);
    let queue = core.settings.queue;
    let batcher = Batcher::new(translator, WINDOW, BATCH, queue, metrics.clone());
    let room = Arc::new(Semaphore::new(MOST_WORK));
    let app = Arc::new(App { core, language, openai, batcher, metrics, room });
    let token = token.map(|token| hash::of_texts(&[&token]));
    let service = Service { router: router(app), token };
    Server::start(listener, MOST_CONNECTIONS, service)
        .map_err(|error| Fault::Internal(format!("{address}: {error}")))
}

fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(|| async { respond(200, "text/html; charset=utf-8", PAGE) }))
        .route("/openapi.json", get(|| async { respond(200, "application/json", OPENAPI) }))
        .route("/healthz", get(|| async { respond(200, "text/plain", "ok\n") }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/translate", post(translate))
        .route("/corrections", post(correct))
        .route("/terms", post(set_term))
        .route("/terms/{domain}/{source}", delete(delete_term))
        .route("/learn", post(learn))
        .route("/domains", get(domains))
        .route("/versions", get(versions))
        .route("/rollback", post(roll_back))
        .route("/people/{who}", get(export).delete(forget))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{model}", get(openai::model))
        .route("/v1/chat/completions", post(openai::chat))
        .route("/v1/completions", post(openai::completions))
        .fallback(|uri: Uri| async move {
            refusal_at(uri.path())(404, "there is no such path, see /openapi.json")
        })
        .method_not_allowed_fallback(|uri: Uri| async move {
            refusal_at(uri.path())(405, "not with this method")
        })
        .with_state(app)
}

/// Paths that tell nothing about texts and people.
const OPEN: [&str; 4] = ["/", "/openapi.json", "/healthz", "/readyz"];

impl Handler for Service {
    type Body = Body;

    async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        refusal: Option<Refusal>,
    ) -> Response {
        let refuse = refusal_at(request.uri().path());
        if let Some((status, message)) = refusal {
            return refuse(status, &message);
        }
        if let Err(reason) = check_sender(request.headers(), self.token.is_some()) {
            return refuse(403, &reason);
        }
        if let Some(token) = &self.token {
            let given = bearer(request.headers()).unwrap_or_default();
            // Hashes are compared: the time that this takes tells nothing about the token.
            if !OPEN.contains(&request.uri().path()) && hash::of_texts(&[given]) != *token {
                return refuse(401, "the bearer token is missing or wrong");
            }
        }
        let mut router = self.router.clone();
        router.call(request).await.unwrap_or_else(|never| match never {})
    }
}

/// The token of a request. The scheme may be in lower case.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start())
}

/// Refuses requests that a page of another site has its visitor's browser send. Without a token, a site could also give
/// its own name this machine's address and read the answers: the name must be one of this machine then.
fn check_sender(headers: &HeaderMap, has_token: bool) -> Result<(), String> {
    let one = |name: HeaderName| match headers.get(&name).map(HeaderValue::to_str) {
        None => Ok(None),
        Some(Ok(text)) => Ok(Some(text)),
        Some(Err(_)) => Err(format!("the header {name} is no text")),
    };
    let host = one(HOST)?.unwrap_or_default();
    if !has_token && !is_loopback(host) {
        return Err(format!("the host {host:?} is not this machine, and there is no token"));
    }
    let Some(origin) = one(ORIGIN)? else { return Ok(()) };
    let site = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    if site.is_some_and(|site| site.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(format!("the request is of a page of {origin:?}, not of this service"))
}

/// Whether the host of a header, with or without a port, is a loopback address or `localhost`.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    let address = address.parse::<std::net::IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

pub(crate) fn respond(status: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of HTTP");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    match status {
        401 => drop(headers.insert("www-authenticate", HeaderValue::from_static("Bearer"))),
        503 => drop(headers.insert(RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => {}
    }
    response
}

fn refuse(status: u16, message: &str) -> Response {
    respond(status, "application/json", json!({ "error": message }).to_string())
}

/// The form of refusals at a path.
fn refusal_at(path: &str) -> fn(u16, &str) -> Response {
    if path.starts_with("/v1/") { openai::refuse } else { refuse }
}

fn answer(status: u16, result: Result<Value>) -> Response {
    match result {
        Ok(value) => respond(status, "application/json", value.to_string()),
        Err(fault) => refuse(fault.status(), fault.message()),
    }
}

/// Status and message of a request that was not understood, or the parsed body.
pub(crate) async fn read<T: DeserializeOwned>(request: Request, most: usize) -> Result<T, Refusal> {
    let body = tokio::time::timeout(PATIENCE, to_bytes(request.into_body(), most)).await;
    let body = body.map_err(|_| (408, "the request did not arrive in time".to_string()))?;
    let body = body.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if too_large {
            (413, format!("a request has at most {most} bytes"))
        } else {
            (400, error.to_string())
        }
    })?;
    serde_json::from_slice(&body).map_err(|error| (400, format!("the request: {error}")))
}

/// Work on the database, which waits for the disk.
pub(crate) async fn blocking(
    app: &Arc<App>,
    work: impl FnOnce(&Core) -> Result<Value> + Send + 'static,
) -> Result<Value> {
    let core = app.core.clone();
    within(&app.room, move || work(&core)).await
}

/// Does work on a thread that may wait, or refuses it if `room` is full.
async fn within(
    room: &Arc<Semaphore>,
    work: impl FnOnce() -> Result<Value> + Send + 'static,
) -> Result<Value> {
    let Ok(permit) = room.clone().try_acquire_owned() else {
        return Err(Fault::Unavailable("too many requests wait for the database".into()));
    };
    // The permit is the work's: a client that goes away does not end it.
    let done = tokio::task::spawn_blocking(move || {
        let result = work();
        drop(permit);
        result
    });
    let done = done.await;
    done.unwrap_or_else(|_| Err(Fault::Internal("the work on the database panicked".into())))
}

/// Reads a body and works on it.
async fn post_with<T: DeserializeOwned + Send + 'static>(
    app: &Arc<App>,
    request: Request,
    work: impl FnOnce(&Core, T) -> Result<Value> + Send + 'static,
) -> Response {
    match read::<T>(request, app.core.settings.most_body).await {
        Ok(body) => answer(200, blocking(app, move |core| work(core, body)).await),
        Err((status, message)) => refuse(status, &message),
    }
}

fn text(field: &str, value: &str, most: usize) -> Result<String> {
    let value = value.trim();
    if value.is_empty() || value.len() > most || value.chars().any(char::is_control) {
        return Err(Fault::Invalid(format!(
            "\"{field}\" is 1 to {most} bytes of text without control characters"
        )));
    }
    Ok(value.to_string())
}

/// Names of domains are names of folders.
pub(crate) fn domain_name(value: &str) -> Result<String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if value.is_empty() || value.len() > MOST_NAME || !value.chars().all(allowed) {
        return Err(Fault::Invalid(format!(
            "\"domain\" is 1 to {MOST_NAME} of the characters a-z, 0-9, - and _"
        )));
    }
    Ok(value.to_string())
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    One(String),
    Many(Vec<String>),
}

impl Text {
    pub(crate) fn into_list(self) -> Vec<String> {
        match self {
            Text::One(line) => vec![line],
            Text::Many(lines) => lines,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Translate {
    text: Text,
    domain: Option<String>,
    beam: Option<usize>,
}

/// Counts a request to /translate. If the client goes away, its future, and this with it, is dropped unanswered.
struct Asked {
    app: Arc<App>,
    began: Instant,
    status: u16,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.app.metrics.answered(self.status, self.began.elapsed());
    }
}

async fn translate(State(app): State<Arc<App>>, request: Request) -> Response {
    let mut asked = Asked { app: app.clone(), began: Instant::now(), status: CLIENT_GONE };
    let response = match translated(&app, request).await {
        Ok(value) => answer(200, Ok(value)),
        Err((status, message)) => refuse(status, &message),
    };
    asked.status = response.status().as_u16();
    response
}

async fn translated(app: &App, request: Request) -> Result<Value, Refusal> {
    let settings = &app.core.settings;
    let asked: Translate = read(request, settings.most_body).await?;
    let lines = asked.text.into_list();
    if lines.is_empty() || lines.len() > MOST_LINES {
        return Err((400, format!("\"text\" is a string or a list of 1 to {MOST_LINES} strings")));
    }
    let beam = asked.beam.unwrap_or(settings.beam);
    if !(1..=MOST_BEAM).contains(&beam) {
        return Err((400, format!("\"beam\" is 1 to {MOST_BEAM}")));
    }
    let domain = asked.domain.as_deref().unwrap_or("default");
    domain_name(domain).map_err(|fault| (400, fault.to_string()))?;
    let search = Search::new(app.core.models.id(domain), beam);
    let lines = translate_lines(app, lines, search).await?;
    let version = lines.first().map_or(0, |line| line.version);
    let best = lines.iter().map(|line| &line.hypotheses[0]);
    let best: Vec<_> = best.map(|best| json!({ "text": best.text, "score": best.score })).collect();
    Ok(json!({ "domain": domain, "version": version, "translations": best }))
}

/// The translations of the lines, in their order.
pub(crate) async fn translate_lines(
    app: &App,
    lines: Vec<String>,
    search: Search,
) -> Result<Vec<Line>, Refusal> {
    let mut ticket = app.batcher.submit(lines, search).map_err(|why| match why {
        Refused::Closing => (503, "the server is shutting down".to_string()),
        Refused::QueueFull => (503, "the queue is full, try again later".to_string()),
    })?;
    let limit = Duration::from_secs_f64(app.core.settings.time_limit);
    let found = tokio::time::timeout(limit, ticket.answer())
        .await
        .map_err(|_| (504, format!("not translated within {limit:?}")))?;
    match found {
        Some(Ok(lines)) => Ok(lines),
        Some(Err(error)) => {
            let refused = error.code() == trafo::ErrorCode::InvalidArgument;
            Err((if refused { 400 } else { 500 }, error.to_string()))
        }
        None => Err((500, "the thread of the model has ended".into())),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Correct {
    domain: String,
    source: String,
    said: String,
    right: String,
    who: String,
    when: Option<i64>,
    id: Option<String>,
}

async fn correct(State(app): State<Arc<App>>, request: Request) -> Response {
    let is_new = Arc::new(AtomicUsize::new(0));
    let noted = is_new.clone();
    let mut response = post_with(&app, request, move |core, body: Correct| {
        let new = NewCorrection {
            domain: domain_name(&body.domain)?,
            who: text("who", &body.who, MOST_NAME)?,
            key: body.id.map(|id| text("id", &id, MOST_NAME)).transpose()?,
            source: text("source", &body.source, MOST_TEXT)?,
            said: body.said.chars().filter(|c| !c.is_control()).take(MOST_TEXT).collect(),
            right: text("right", &body.right, MOST_TEXT)?,
            when: body.when.unwrap_or_else(now),
        };
        let (id, fresh) = core.store.add_correction(&new, core.room())?;
        noted.store(fresh.into(), Ordering::Release);
        core.wake();
        Ok(json!({ "id": id, "new": fresh }))
    })
    .await;
    if is_new.load(Ordering::Acquire) == 1 {
        *response.status_mut() = StatusCode::CREATED;
    }
    response
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SetTerm {
    domain: String,
    source: String,
    target: String,
}

async fn set_term(State(app): State<Arc<App>>, request: Request) -> Response {
    post_with(&app, request, |core, body: SetTerm| {
        let source = text("source", &body.source, MOST_NAME)?;
        let target = text("target", &body.target, MOST_NAME)?;
        core.store.set_term(&domain_name(&body.domain)?, &source, &target, core.room())?;
        Ok(json!({ "source": source, "target": target }))
    })
    .await
}

async fn delete_term(
    State(app): State<Arc<App>>,
    term: Result<Path<(String, String)>, PathRejection>,
) -> Response {
    let Ok(Path((domain, source))) = term else { return refuse(400, "the term is no UTF-8 text") };
    let done = blocking(&app, move |core| {
        Ok(json!({ "terms": core.store.delete_term(&domain, source.trim())? }))
    });
    answer(200, done.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InDomain {
    domain: String,
}

async fn learn(State(app): State<Arc<App>>, request: Request) -> Response {
    post_with(&app, request, |core, body: InDomain| {
        core.store.ask(&body.domain)?;
        core.wake();
        Ok(json!({ "domain": body.domain }))
    })
    .await
}

async fn domains(State(app): State<Arc<App>>) -> Response {
    let list = blocking(&app, |core| {
        let learning = core.progress();
        let mut list = Vec::new();
        for domain in core.store.domains()? {
            let terms: BTreeMap<_, _> = core.store.terms(domain.id)?.into_iter().collect();
            list.push(json!({
                "name": domain.name,
                "current": domain.current,
                "corrections": domain.corrections,
                "pending": domain.pending,
                "terms": terms,
                "learning": learning.as_ref().filter(|now| now.domain == domain.name),
            }));
        }
        Ok(json!({ "domains": list, "batch": core.settings.batch, "fault": core.fault() }))
    });
    answer(200, list.await)
}

async fn versions(State(app): State<Arc<App>>, RawQuery(query): RawQuery) -> Response {
    // Neither names of domains nor numbers have a character that a query encodes.
    let (mut name, mut last) = (None, Some(i64::MAX));
    for part in query.as_deref().unwrap_or_default().split('&') {
        match part.split_once('=') {
            Some(("domain", value)) => name = Some(value.to_string()),
            Some(("last", value)) => last = value.parse().ok(),
            _ => name = None,
        }
    }
    let (Some(name), Some(last)) = (name, last) else {
        return refuse(400, "the query is domain=NAME or domain=NAME&last=VERSION");
    };
    let list = blocking(&app, move |core| {
        let domain = core.store.domain(&name)?;
        let versions = serde_json::to_value(core.store.versions(&domain, last)?)?;
        Ok(json!({ "domain": domain.name, "current": domain.current, "versions": versions }))
    });
    answer(200, list.await)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RollBack {
    domain: String,
    version: i64,
}

async fn roll_back(State(app): State<Arc<App>>, request: Request) -> Response {
    post_with(&app, request, |core, body: RollBack| {
        core.roll_back(&body.domain, body.version)?;
        Ok(json!({ "domain": body.domain, "current": body.version }))
    })
    .await
}

const NO_NAME: &str = "the name of the person is no UTF-8 text";

async fn export(State(app): State<Arc<App>>, who: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(who)) = who else { return refuse(400, NO_NAME) };
    let list = blocking(&app, move |core| {
        let corrections = serde_json::to_value(core.store.export(&who)?)?;
        Ok(json!({ "who": who, "corrections": corrections }))
    });
    answer(200, list.await)
}

async fn forget(State(app): State<Arc<App>>, who: Result<Path<String>, PathRejection>) -> Response {
    let Ok(Path(who)) = who else { return refuse(400, NO_NAME) };
    let done = blocking(&app, move |core| {
        let forgotten = core.forget(&who)?;
        let versions = forgotten.versions.into_iter();
        let versions: Vec<_> = versions
            .map(|(domain, version)| json!({ "domain": domain, "version": version }))
            .collect();
        Ok(json!({ "corrections": forgotten.corrections, "versions": versions }))
    });
    answer(200, done.await)
}

async fn ready(State(app): State<Arc<App>>) -> Response {
    if app.core.is_closing() {
        return refuse(503, "the server is shutting down");
    }
    match blocking(&app, |core| core.store.domains().map(|_| Value::Null)).await {
        Ok(_) => respond(200, "text/plain", "ready\n"),
        Err(fault) => refuse(503, fault.message()),
    }
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let text = blocking(&app, |core| Ok(Value::String(learning_metrics(core)?)));
    match text.await {
        Ok(Value::String(text)) => {
            let text = app.metrics.text() + &app.openai.text() + &text;
            respond(200, "text/plain; version=0.0.4", text)
        }
        other => answer(500, other),
    }
}

/// The part of the metrics about learning.
fn learning_metrics(core: &Core) -> Result<String> {
    let domains = core.store.domains()?;
    let learning = core.progress();
    let mut text = String::new();
    let mut write = |name: &str, help: &str, values: &[(String, i64)]| {
        let _ = writeln!(text, "# HELP learning_{name} {help}\n# TYPE learning_{name} gauge");
        for (labels, value) in values {
            let _ = writeln!(text, "learning_{name}{labels} {value}");
        }
    };
    let of_domains = |value: &dyn Fn(&crate::store::Domain) -> i64| {
        let line = |domain: &crate::store::Domain| {
            (format!("{{domain=\"{}\"}}", domain.name), value(domain))
        };
        domains.iter().map(line).collect::<Vec<_>>()
    };
    write("corrections", "Corrections that are stored.", &of_domains(&|d| d.corrections as i64));
    write("pending", "Corrections after the last round.", &of_domains(&|d| d.pending as i64));
    write("version", "Version that is served; 0 is the base.", &of_domains(&|d| d.current));
    let running = [(String::new(), i64::from(learning.is_some()))];
    write("running", "Whether a round is in progress.", &running);
    let failing = [(String::new(), i64::from(core.fault().is_some()))];
    write("failing", "Whether the round could not be continued and is tried again.", &failing);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, origin: Option<&str>, has_token: bool) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, origin.parse().unwrap());
        }
        check_sender(&headers, has_token).is_ok()
    }

    #[test]
    fn pages_of_other_sites_and_other_names_of_this_machine_are_refused() {
        for host in
            ["localhost", "LOCALHOST:8080", "127.0.0.1:80", "127.9.9.9", "[::1]", "[::1]:8080"]
        {
            assert!(check(host, None, false), "{host}");
            assert!(check(host, Some(&format!("http://{host}")), false), "{host}");
            assert!(!check(host, Some("http://example.com"), false), "{host}");
        }
        for host in [
            "example.com:8080",
            "127.0.0.1.example.com",
            "localhost.example.com",
            "192.168.0.1",
            "",
        ] {
            assert!(!check(host, None, false), "{host:?}");
            assert!(check(host, None, true), "{host:?}");
        }
        assert!(check("example.com", Some("https://example.com"), true));
        for origin in
            ["null", "http://localhost:81", "file://", "http://localhost:8080.example.com"]
        {
            assert!(!check("localhost:8080", Some(origin), true), "{origin}");
        }
        assert!(check_sender(&HeaderMap::new(), false).is_err());
    }

    #[test]
    fn work_on_the_database_is_refused_while_as_much_as_may_be_is_in_progress() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let room = Arc::new(Semaphore::new(MOST_WORK));
            let (end, ended) = std::sync::mpsc::channel::<()>();
            let ended = Arc::new(std::sync::Mutex::new(ended));
            let held = (0..MOST_WORK).map(|n| {
                let (room, ended) = (room.clone(), ended.clone());
                tokio::spawn(async move {
                    let wait = move || {
                        let _ = ended.lock().unwrap().recv();
                        Ok(json!(n))
                    };
                    within(&room, wait).await
                })
            });
            let held: Vec<_> = held.collect();
            while room.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = within(&room, || Ok(Value::Null)).await.unwrap_err();
            assert_eq!(answer(200, Err(refused.clone())).status(), 503);
            assert!(refused.message().contains("too many requests"), "{refused}");
            // A client that goes away does not make room: its work continues.
            held[0].abort();
            tokio::task::yield_now().await;
            assert!(within(&room, || Ok(Value::Null)).await.is_err());
            drop(end);
            for (n, task) in held.into_iter().enumerate().skip(1) {
                assert_eq!(task.await.unwrap(), Ok(json!(n)));
            }
            assert_eq!(within(&room, || Ok(json!("again"))).await, Ok(json!("again")));
        });
    }

    #[test]
    fn the_scheme_of_a_token_may_be_in_lower_case() {
        for (given, expected) in [
            ("Bearer secret", Some("secret")),
            ("bearer  secret", Some("secret")),
            ("Basic secret", None),
            ("secret", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, given.parse().unwrap());
            assert_eq!(bearer(&headers), expected, "{given}");
        }
    }
}
