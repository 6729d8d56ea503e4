//! The service: requests and their answers.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, EXPECT, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use trafo::{ErrorCode, Hypothesis};

use crate::model::{Search, Translator};
use crate::serving::batcher::{Batcher, Refused};
use crate::serving::connections::{Handler, PATIENCE, Refusal, Server};
use crate::serving::metrics::Metrics;

#[derive(Clone, Debug)]
pub struct Config {
    /// How long a request waits for others to be translated with.
    pub window: Duration,
    /// Sentences translated together.
    pub batch: usize,
    /// Sentences that may wait; 503 beyond it.
    pub queue: usize,
    /// Connections at a time; 503 beyond it.
    pub connections: usize,
    /// Largest request in bytes.
    pub most_body: usize,
    /// Most lines in a request.
    pub most_lines: usize,
    /// Widest beam that a request may ask for.
    pub most_beam: usize,
    /// How requests that do not say are searched.
    pub search: Search,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            window: Duration::from_millis(5),
            batch: 64,
            queue: 1024,
            connections: 1024,
            most_body: 1 << 20,
            most_lines: 256,
            most_beam: 16,
            search: Search { beam: 5, n_best: 1 },
        }
    }
}

struct Shared {
    config: Config,
    metrics: Arc<Metrics>,
    batcher: Batcher<Search, Vec<Hypothesis>>,
}

pub struct Service(Server);

/// In the metrics only: nobody is there to read it.
const CLIENT_GONE: u16 = 499;

impl Service {
    pub fn start(
        listener: TcpListener,
        translator: Translator,
        config: Config,
    ) -> io::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let batcher =
            Batcher::new(translator, config.window, config.batch, config.queue, metrics.clone());
        let connections = config.connections;
        Server::start(listener, connections, Shared { config, metrics, batcher }).map(Service)
    }

    pub fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Accepts no new connections and answers every accepted request. Returns the number of connections that were left
    /// after `grace`: they are closed, and their translations are cancelled.
    pub fn shutdown(self, grace: Duration) -> usize {
        self.0.shutdown(grace)
    }
}

impl Handler for Shared {
    type Body = Full<Bytes>;

    async fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        refusal: Option<Refusal>,
    ) -> Answer {
        match refusal {
            Some(refusal) => refuse(refusal),
            None => respond_to(request, &self).await,
        }
    }
}

type Answer = Response<Full<Bytes>>;

async fn respond_to(request: Request<Incoming>, shared: &Shared) -> Answer {
    let path = request.uri().path().to_string();
    match (request.method().as_str(), path.as_str()) {
        ("POST", "/translate") => {
            let mut asked = Asked::new(&shared.metrics);
            let response = match translate(request, shared).await {
                Ok(body) => respond(200, "application/json", body),
                Err(refusal) => refuse(refusal),
            };
            asked.status = response.status().as_u16();
            response
        }
        ("GET", "/healthz") => respond(200, "text/plain", "ok\n".into()),
        ("GET", "/metrics") => respond(200, "text/plain; version=0.0.4", shared.metrics.text()),
        (_, "/translate" | "/healthz" | "/metrics") => refuse((405, "not with this method".into())),
        _ => refuse((404, "there is /translate, /healthz and /metrics".into())),
    }
}

/// Counts a request to /translate. If the client goes away, hyper drops its future, and this with it, unanswered.
struct Asked<'a> {
    metrics: &'a Metrics,
    began: Instant,
    status: u16,
}

impl<'a> Asked<'a> {
    fn new(metrics: &'a Metrics) -> Self {
        Asked { metrics, began: Instant::now(), status: CLIENT_GONE }
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.metrics.answered(self.status, self.began.elapsed());
    }
}

fn respond(status: u16, content_type: &'static str, body: String) -> Answer {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status of HTTP");
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if status == 503 {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn refuse((status, message): Refusal) -> Answer {
    respond(status, "application/json", json!({ "error": message }).to_string())
}

async fn translate(request: Request<Incoming>, shared: &Shared) -> Result<String, Refusal> {
    let body = tokio::time::timeout(PATIENCE, body_of(request, shared.config.most_body))
        .await
        .map_err(|_| (408, "the request did not arrive in time".to_string()))??;
    let (lines, how) = read(&body, &shared.config)?;
    let mut ticket = shared.batcher.submit(lines, how).map_err(|why| match why {
        Refused::Closing => (503, "the server is shutting down".to_string()),
        Refused::QueueFull => (503, "the queue is full, try again later".to_string()),
    })?;
    match ticket.answer().await {
        Some(Ok(found)) => Ok(translations(&found)),
        Some(Err(error)) => {
            let refused = error.code() == ErrorCode::InvalidArgument;
            Err((if refused { 400 } else { 500 }, error.to_string()))
        }
        None => Err((500, "the thread of the model has ended".into())),
    }
}

/// A body that is too large is still read, so that the client is there for the answer; nothing of it is kept.
async fn body_of(request: Request<Incoming>, most: usize) -> Result<Vec<u8>, Refusal> {
    let too_large = || (413, format!("a request has at most {most} bytes"));
    let mut kept = Vec::new();
    let mut fits = request.body().size_hint().lower() <= most as u64;
    if !fits && request.headers().contains_key(EXPECT) {
        return Err(too_large()); // it waits for this before it sends anything
    }
    let mut body = request.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| (400, error.to_string()))?;
        let Some(data) = frame.data_ref() else { continue };
        fits = fits && kept.len() + data.len() <= most;
        if fits {
            kept.extend_from_slice(data);
        }
    }
    if fits { Ok(kept) } else { Err(too_large()) }
}

/// Checks a request against the limits.
fn read(body: &[u8], config: &Config) -> Result<(Vec<String>, Search), Refusal> {
    let bad = |message: String| (400, message);
    let request: Value = serde_json::from_slice(body)
        .map_err(|error| bad(format!("the request is not what it should be: {error}")))?;
    let fields =
        request.as_object().ok_or_else(|| bad("the request is not an object".to_string()))?;
    let mut lines = Vec::new();
    let mut how = config.search;
    for (name, value) in fields {
        let number = || {
            let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
            number.ok_or_else(|| bad(format!("\"{name}\" is a number, 1 or more")))
        };
        match name.as_str() {
            "text" => lines = texts(value).ok_or_else(|| bad(TEXT.into()))?,
            "beam" => how.beam = number()?,
            "n_best" => how.n_best = number()?,
            other => return Err(bad(format!("there is no field \"{other}\""))),
        }
    }
    if lines.is_empty() {
        return Err(bad("\"text\" is missing or empty".into()));
    }
    if lines.len() > config.most_lines {
        let (most, have) = (config.most_lines, lines.len());
        return Err((413, format!("a request has at most {most} lines, this one has {have}")));
    }
    if how.beam < 1 || how.beam > config.most_beam {
        return Err(bad(format!("\"beam\" is 1 to {}", config.most_beam)));
    }
    if how.n_best < 1 || how.n_best > how.beam {
        return Err(bad(format!("\"n_best\" is 1 to the beam, which is {}", how.beam)));
    }
    Ok((lines, how))
}

const TEXT: &str = "\"text\" is a string or a list of strings";

fn texts(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(list) => list.iter().map(|text| text.as_str().map(String::from)).collect(),
        _ => None,
    }
}

/// The best hypothesis of every line and, if several were asked for, those after it.
fn translations(found: &[Vec<Hypothesis>]) -> String {
    let one = |h: &Hypothesis| json!({ "text": h.text, "score": h.score });
    let line = |hypotheses: &Vec<Hypothesis>| {
        let mut best = hypotheses.first().map_or(Value::Null, one);
        if hypotheses.len() > 1 {
            best["alternatives"] = hypotheses[1..].iter().map(one).collect();
        }
        best
    };
    json!({ "translations": found.iter().map(line).collect::<Vec<_>>() }).to_string()
}
