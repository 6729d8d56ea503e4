//! The service: connections, requests, an orderly end.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use trafo::{ErrorCode, Hypothesis};

use crate::batcher::{Batcher, Refused, Search, Translator};
use crate::http::{Connection, Failure, Request, TICK};
use crate::metrics::Metrics;

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
    batcher: Mutex<Option<Arc<Batcher>>>, // gone when the service has ended
    ending: AtomicBool,
    connections: AtomicUsize,
}

pub struct Service {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

/// In the metrics only: nobody is there to read it.
const CLIENT_GONE: u16 = 499;
const IDLE: Duration = Duration::from_secs(120);
const PATIENCE: Duration = Duration::from_secs(30);

impl Service {
    pub fn start(
        listener: TcpListener,
        translator: Translator,
        config: Config,
    ) -> io::Result<Self> {
        let metrics = Arc::new(Metrics::new());
        let batcher =
            Batcher::new(translator, config.window, config.batch, config.queue, metrics.clone());
        let shared = Arc::new(Shared {
            config,
            metrics,
            batcher: Mutex::new(Some(Arc::new(batcher))),
            ending: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
        });
        let address = listener.local_addr()?;
        let theirs = shared.clone();
        let accepting = std::thread::spawn(move || accept(&listener, &theirs));
        Ok(Service { address, shared, accepting: Some(accepting) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// No new connections, every accepted request is answered. Gives the number of connections that were left after
    /// `grace`, which end with the process.
    pub fn shutdown(mut self, grace: Duration) -> usize {
        self.shared.ending.store(true, Ordering::Release);
        // Wakes the thread that accepts; it may have ended by itself.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
        let deadline = Instant::now() + grace;
        while self.shared.connections.load(Ordering::Acquire) > 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let left = self.shared.connections.load(Ordering::Acquire);
        let batcher = self.shared.batcher.lock().expect("no thread panics with the lock").take();
        if left == 0 {
            drop(batcher); // joins the thread of the model
        } else {
            std::mem::forget(batcher); // that thread is busy for those that are given up
        }
        left
    }
}

/// Counts a connection while it lives, also if its thread panics.
struct Counted(Arc<Shared>);

impl Counted {
    fn new(shared: &Arc<Shared>) -> (Self, usize) {
        let before = shared.connections.fetch_add(1, Ordering::AcqRel);
        (Counted(shared.clone()), before + 1)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Accepts until the service ends, and then what has been waiting for it.
fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.ending.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, _)) => take(stream, shared),
            Err(_) => std::thread::sleep(TICK), // out of file descriptors, for instance
        }
    }
    if listener.set_nonblocking(true).is_ok() {
        while let Ok((stream, _)) = listener.accept() {
            take(stream, shared);
        }
    }
}

fn take(stream: TcpStream, shared: &Arc<Shared>) {
    let (counted, connections) = Counted::new(shared);
    let Ok(mut connection) = Connection::new(stream) else { return };
    if connections > shared.config.connections {
        let body = error_body("too many connections, try again later");
        let _ = connection.write(503, "application/json", &body, false);
        return;
    }
    let spawned = std::thread::Builder::new().spawn(move || {
        // A client that has gone is its own affair.
        let _ = converse(&mut connection, &counted.0);
    });
    if spawned.is_err() {
        std::thread::sleep(TICK); // no more threads; the connection is closed
    }
}

/// Answers the requests of a connection until it ends.
fn converse(connection: &mut Connection, shared: &Shared) -> io::Result<()> {
    let ending = || shared.ending.load(Ordering::Acquire);
    loop {
        match connection.read(shared.config.most_body, IDLE, PATIENCE, &ending) {
            Ok(request) => {
                if !answer(connection, &request, shared)? {
                    return Ok(());
                }
            }
            Err(Failure::Closed) => return Ok(()),
            Err(Failure::Refused(status, message)) => {
                shared.metrics.answered(status, Duration::ZERO);
                let body = error_body(&message);
                connection.write(status, "application/json", &body, false)?;
                connection.drain();
                return Ok(());
            }
        }
    }
}

/// Gives whether the connection can be used again.
fn answer(connection: &mut Connection, request: &Request, shared: &Shared) -> io::Result<bool> {
    let keep_alive = request.keep_alive && !shared.ending.load(Ordering::Acquire);
    let (status, content_type, body) = match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/translate") => {
            let began = Instant::now();
            let (status, body) = match translate(connection, &request.body, shared) {
                Ok(body) => (200, body),
                Err((status, message)) => (status, error_body(&message)),
            };
            shared.metrics.answered(status, began.elapsed());
            if status == CLIENT_GONE {
                return Ok(false);
            }
            (status, "application/json", body)
        }
        ("GET", "/healthz") => (200, "text/plain", "ok\n".into()),
        ("GET", "/metrics") => (200, "text/plain; version=0.0.4", shared.metrics.text()),
        (_, "/translate" | "/healthz" | "/metrics") => {
            (405, "application/json", error_body("not with this method"))
        }
        _ => (404, "application/json", error_body("there is /translate, /healthz and /metrics")),
    };
    connection.write(status, content_type, &body, keep_alive)?;
    Ok(keep_alive)
}

fn error_body(message: &str) -> String {
    json!({ "error": message }).to_string()
}

type Refusal = (u16, String);

fn translate(connection: &Connection, body: &[u8], shared: &Shared) -> Result<String, Refusal> {
    let (lines, how) = read(body, &shared.config)?;
    let batcher = shared.batcher.lock().expect("no thread panics with the lock").clone();
    let closing = || (503, "the server is shutting down".to_string());
    let ticket = batcher.ok_or_else(closing)?.submit(lines, how).map_err(|why| match why {
        Refused::Closing => closing(),
        Refused::QueueFull => (503, "the queue is full, try again later".into()),
    })?;
    loop {
        match ticket.answer.recv_timeout(TICK) {
            Ok(Ok(found)) => return Ok(respond(&found)),
            Ok(Err(error)) => {
                let refused = error.code() == ErrorCode::InvalidArgument;
                return Err((if refused { 400 } else { 500 }, error.to_string()));
            }
            Err(RecvTimeoutError::Timeout) => {
                if connection.is_closed() {
                    return Err((CLIENT_GONE, String::new()));
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err((500, "the thread of the model has ended".into()));
            }
        }
    }
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
fn respond(found: &[Vec<Hypothesis>]) -> String {
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
