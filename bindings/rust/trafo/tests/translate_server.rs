//! The service of examples/translate_server: what clients get, what is refused, how it ends.

mod common;
#[path = "../examples/translate_server/model.rs"]
mod model;
#[path = "../examples/translate_server/service.rs"]
mod service;
#[path = "../examples/serving/mod.rs"]
mod serving;

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{TestFolder, corpus, options, pairs, tokenizer};
use model::{Search, Translator};
use serde_json::{Value, json};
use service::{Config, Service};
use trafo::{CancelToken, Device, Error, ErrorCode, Hypothesis, Trainer};

/// A run directory, in a second or two.
fn train(folder: &Path) {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    tokenizer.save(folder.join("vocab.spm")).unwrap();
    let mut trainer = Trainer::builder(common::model(&tokenizer), &tokenizer, &corpus)
        .options(options().after_updates(150))
        .run_directory(folder)
        .build()
        .unwrap();
    trainer.run(|_| ControlFlow::Continue(())).unwrap();
}

fn start(translator: Translator, config: Config) -> Service {
    Service::start(TcpListener::bind("127.0.0.1:0").unwrap(), translator, config).unwrap()
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).unwrap();
    stream
}

fn receive(mut stream: TcpStream) -> Answer {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.into(), body: body.into() }
}

fn post(address: SocketAddr, body: &str) -> Answer {
    receive(send(address, "POST", "/translate", body))
}

fn metrics_of(address: SocketAddr) -> String {
    receive(send(address, "GET", "/metrics", "")).body
}

/// The value of a line of the metrics.
fn metric(address: SocketAddr, name: &str) -> f64 {
    let text = metrics_of(address);
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map_or(0.0, |value| value.parse().unwrap())
}

fn eventually(what: &str, is: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < end, "in 20 s not: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn sixty_four_clients_get_what_they_would_get_alone() {
    let folder = TestFolder::new();
    train(folder.path());
    let mut translator = model::open(folder.path(), Device::Cpu).unwrap();
    let searches = [(1, 1), (4, 1), (4, 3)].map(|(beam, n_best)| Search { beam, n_best });
    let mut sources: Vec<String> = pairs().into_iter().step_by(5).map(|(s, _)| s).collect();
    sources.extend(["".into(), "ein Wort, das es nicht gab".into()]);
    let mut alone = HashMap::new();
    for how in searches {
        for line in &sources {
            let found = translator(std::slice::from_ref(line), how, &CancelToken::new()).unwrap();
            alone.insert((how, line.clone()), found.0.into_iter().next().unwrap());
        }
    }

    const CLIENTS: usize = 64;
    const REQUESTS: usize = 4;
    let service = start(translator, Config::default());
    let address = service.address();
    let request = |client: usize, i: usize| {
        let how = searches[(client + i) % searches.len()];
        let count = 1 + (client * 7 + i) % 5;
        let line = |n: usize| sources[(client * 31 + i * 17 + n * 11) % sources.len()].clone();
        let lines: Vec<String> = (0..count).map(line).collect();
        let body = json!({"text": lines, "beam": how.beam, "n_best": how.n_best}).to_string();
        let answer = post(address, &body);
        assert_eq!(answer.status, 200, "{}", answer.body);
        let translations = answer.json()["translations"].as_array().unwrap().clone();
        assert_eq!(translations.len(), lines.len());
        for (line, translation) in lines.into_iter().zip(translations) {
            let mut have = vec![translation.clone()];
            have.extend(translation["alternatives"].as_array().cloned().unwrap_or_default());
            let want = &alone[&(how, line.clone())];
            assert_eq!(have.len(), want.len(), "{line:?}: {have:?}, alone {want:?}");
            for (have, want) in have.iter().zip(want) {
                let near = (have["score"].as_f64().unwrap() - want.score).abs() < 1e-4;
                assert!(have["text"] == want.text && near, "{line:?}: {have:?}, alone {want:?}");
            }
        }
    };
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || (0..REQUESTS).for_each(|i| request(client, i)));
        }
    });
    let all = (CLIENTS * REQUESTS) as f64;
    assert_eq!(metric(address, "translate_requests_total{code=\"200\"}"), all);
    assert_eq!(metric(address, "translate_request_seconds_count"), all);
    assert_eq!(metric(address, "translate_queue_sentences"), 0.0);
    let batches = metric(address, "translate_batch_sentences_count");
    assert!(batches >= 1.0 && batches < all, "{batches} batches: nothing was together");
    assert_eq!(service.shutdown(Duration::from_secs(20)), 0);

    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let program = std::env::var_os("TRAFO_TRANSLATE_TRAIN")
        .map_or_else(|| repository.join("build/release/translate-train"), PathBuf::from);
    if !program.exists() {
        eprintln!("SKIPPED: the same by the command line: there is no {}", program.display());
        return;
    }
    let mut child = Command::new(&program)
        .args(["translate", "--device", "cpu", "--beam", "4", "--quiet", "--model"])
        .arg(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all((sources.join("\n") + "\n").as_bytes()).unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let out = String::from_utf8(out.stdout).unwrap();
    let texts: Vec<_> = out.strip_suffix('\n').unwrap().split('\n').collect();
    assert_eq!(texts.len(), sources.len());
    for (line, text) in sources.iter().zip(texts) {
        assert_eq!(alone[&(searches[1], line.clone())][0].text, text, "{line:?}");
    }
}

/// A model that works when it is let, and what it has seen.
#[derive(Clone, Default)]
struct Held {
    let_go: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<String>>>,
    cancelled: Arc<AtomicBool>,
}

impl Held {
    fn translator(&self) -> Translator {
        let held = self.clone();
        Box::new(move |lines, _, cancel| {
            held.seen.lock().unwrap().extend_from_slice(lines);
            while !held.let_go.load(Ordering::Acquire) {
                if cancel.is_cancelled() {
                    held.cancelled.store(true, Ordering::Release);
                    return Err(Error::new(ErrorCode::Cancelled, "test", "cancelled"));
                }
                thread::sleep(Duration::from_millis(1));
            }
            if lines.iter().any(|line| line == "refused") {
                return Err(Error::new(ErrorCode::InvalidArgument, "test", "refused"));
            }
            let one = |line: &String| {
                let mut shouted = Hypothesis::default();
                (shouted.text, shouted.score) = (line.to_uppercase(), -1.0);
                vec![shouted]
            };
            Ok((lines.iter().map(one).collect(), 0))
        })
    }
    fn let_go(&self) {
        self.let_go.store(true, Ordering::Release);
    }
}

#[test]
fn a_shutdown_answers_what_was_accepted() {
    let held = Held::default();
    let config = Config { batch: 4, window: Duration::ZERO, ..Config::default() };
    let service = start(held.translator(), config);
    let address = service.address();
    let clients: Vec<_> = (0..40)
        .map(|i| thread::spawn(move || (i, post(address, &format!("{{\"text\": \"line {i}\"}}")))))
        .collect();
    eventually("all are accepted", || {
        metric(address, "translate_batch_sentences_sum")
            + metric(address, "translate_queue_sentences")
            == 40.0
    });
    let ending = thread::spawn(move || service.shutdown(Duration::from_secs(20)));
    eventually("no new connections", || TcpStream::connect(address).is_err());
    held.let_go();
    for client in clients {
        let (i, answer) = client.join().unwrap();
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(answer.json()["translations"][0]["text"], format!("LINE {i}"));
    }
    assert_eq!(ending.join().unwrap(), 0);
}

#[test]
fn a_shutdown_gives_up_after_its_grace() {
    let held = Held::default();
    let service = start(held.translator(), Config::default());
    let stream = send(service.address(), "POST", "/translate", "{\"text\": \"for ever\"}");
    eventually("it is being translated", || !held.seen.lock().unwrap().is_empty());
    assert_eq!(service.shutdown(Duration::from_millis(50)), 1);
    held.let_go();
    drop(stream);
}

#[test]
fn a_client_that_goes_away_is_forgotten() {
    let held = Held::default();
    let config = Config { batch: 1, window: Duration::ZERO, ..Config::default() };
    let service = start(held.translator(), config);
    let address = service.address();
    let first = send(address, "POST", "/translate", "{\"text\": \"first\"}");
    eventually("the first is being translated", || held.seen.lock().unwrap().len() == 1);
    let second = send(address, "POST", "/translate", "{\"text\": \"second\"}");
    eventually("the second waits", || metric(address, "translate_queue_sentences") == 1.0);
    drop(second);
    let gone = "translate_requests_total{code=\"499\"}";
    eventually("the second is told", || metric(address, gone) == 1.0);
    drop(first);
    eventually("the first is given up", || held.cancelled.load(Ordering::Acquire));
    held.let_go();
    assert_eq!(post(address, "{\"text\": \"third\"}").status, 200);
    assert_eq!(*held.seen.lock().unwrap(), ["first", "third"]);
    assert_eq!(service.shutdown(Duration::from_secs(20)), 0);
}

#[test]
fn bad_requests_are_refused() {
    let held = Held::default();
    let config = Config {
        batch: 1,
        window: Duration::ZERO,
        queue: 2,
        most_body: 2000,
        most_lines: 3,
        most_beam: 4,
        search: Search { beam: 2, n_best: 1 },
        ..Config::default()
    };
    let service = start(held.translator(), config);
    let address = service.address();
    // One is translated, two wait.
    let mut streams = Vec::new();
    for i in 0..3 {
        streams.push(send(address, "POST", "/translate", "{\"text\": \"line\"}"));
        eventually("the queue is as it should be", || {
            metric(address, "translate_batch_sentences_count") == 1.0
                && metric(address, "translate_queue_sentences") == f64::from(i)
        });
    }
    let full = post(address, "{\"text\": \"too many\"}");
    assert!(full.status == 503 && full.body.contains("queue is full"), "{}", full.body);
    assert!(full.head.contains("Retry-After"), "{}", full.head);
    held.let_go();
    for stream in streams {
        assert_eq!(receive(stream).status, 200);
    }

    let long = format!("{{\"text\": \"{}\"}}", "a".repeat(3000));
    for (body, status, says) in [
        ("{\"text\": [\"a\", \"b\", \"c\", \"d\"]}", 413, "at most 3 lines"),
        (long.as_str(), 413, "at most 2000 bytes"),
        ("{\"text\": []}", 400, "missing or empty"),
        ("{}", 400, "missing or empty"),
        ("[]", 400, "not an object"),
        ("{\"text\": 7}", 400, "a string or a list"),
        ("{\"text\": \"a\", \"bean\": 3}", 400, "bean"),
        ("{\"text\": \"a\"} {}", 400, "not what it should be"),
        ("{\"text\": \"a\"", 400, "not what it should be"),
        ("{\"text\": \"a\", \"beam\": 0}", 400, "1 to 4"),
        ("{\"text\": \"a\", \"beam\": 5}", 400, "1 to 4"),
        ("{\"text\": \"a\", \"beam\": -1}", 400, "a number"),
        ("{\"text\": \"a\", \"n_best\": 3}", 400, "the beam, which is 2"),
        ("{\"text\": \"refused\"}", 400, "refused"),
    ] {
        let answer = post(address, body);
        assert_eq!(answer.status, status, "{body:.50}: {}", answer.body);
        let message = answer.json()["error"].as_str().unwrap().to_string();
        assert!(message.contains(says), "{body:.50}: {message}");
    }
    assert_eq!(receive(send(address, "GET", "/translate", "")).status, 405);
    assert_eq!(receive(send(address, "GET", "/nothing", "")).status, 404);
    assert_eq!(receive(send(address, "GET", "/healthz", "")).body, "ok\n");
    let send_raw = |text: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(text.as_bytes()).unwrap();
        receive(stream)
    };
    assert_eq!(send_raw("\x16\x03\x01 this is not HTTP\r\n\r\n").status, 400);
    let many = "X: y\r\n".repeat(100);
    let long = format!("X: {}\r\n", "y".repeat(20000));
    for (headers, status) in [
        ("Content-Length: +13\r\n", 400),
        ("Content-Length: -1\r\n", 400),
        ("Content-Length: 99999999999999999999\r\n", 400),
        ("Content-Length: 13\r\nContent-Length: 14\r\n", 400),
        ("Content-Length: 13, 14\r\n", 400),
        ("Content-Length: 13, 13\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 400),
        (many.as_str(), 431),
        (long.as_str(), 431),
    ] {
        let request = format!("POST /translate HTTP/1.1\r\n{headers}\r\n");
        assert_eq!(send_raw(&request).status, status, "{headers:.50}");
    }
    // One length and only one. hyper takes the first of two that are equal.
    let body = "{\"text\": \"a\"}";
    let once = format!("Content-Length: {}\r\n", body.len());
    let other = once.replace("Content-Length", "content-LENGTH");
    let chunked = "Transfer-Encoding: chunked\r\n";
    for twice in [once.repeat(2), once.clone() + "X: y\r\n" + &other, once.clone() + chunked] {
        // A request before it on the same connection is answered, one after it is not.
        let good = format!("POST /translate HTTP/1.1\r\n{once}\r\n{body}");
        let bad = format!("POST /translate HTTP/1.1\r\n{twice}\r\n{body}");
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(format!("{good}{bad}{good}").as_bytes()).unwrap();
        let mut answers = String::new();
        let _ = stream.read_to_string(&mut answers); // the rest of what was sent may reset the connection
        let statuses: Vec<_> =
            answers.match_indices("HTTP/1.1 ").map(|(i, _)| &answers[i + 9..i + 12]).collect();
        assert_eq!(statuses, ["200", "400"], "{twice}: {answers}");
        assert!(answers.contains("names its length twice"), "{answers}");
    }
    // A body that is announced as too large is refused before it is sent.
    let announced = "Content-Length: 3000\r\nExpect: 100-continue\r\n";
    assert_eq!(send_raw(&format!("POST /translate HTTP/1.1\r\n{announced}\r\n")).status, 413);
    let chunked = |size: usize| {
        let body = format!("{{\"text\": \"{}\"}}", "a".repeat(size));
        let head = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
        send_raw(&format!(
            "POST /translate HTTP/1.1\r\n{head}\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ))
    };
    assert_eq!(chunked(1).status, 200);
    assert_eq!(chunked(3000).status, 413);
    assert_eq!(service.shutdown(Duration::from_secs(20)), 0);
}

#[test]
fn a_connection_serves_many_requests() {
    let held = Held::default();
    held.let_go();
    let service = start(held.translator(), Config::default());
    let mut stream = TcpStream::connect(service.address()).unwrap();
    for _ in 0..3 {
        // The length of an answer is known: the texts have one length.
        stream
            .write_all(b"POST /translate HTTP/1.1\r\nContent-Length: 13\r\n\r\n{\"text\": \"a\"}")
            .unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"}]}") {
            let mut chunk = [0; 512];
            let count = stream.read(&mut chunk).unwrap();
            assert!(count > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&chunk[..count]);
        }
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    }
    // Open connections without a request do not hold the end up.
    let fresh = TcpStream::connect(service.address()).unwrap();
    assert_eq!(receive(send(service.address(), "GET", "/healthz", "")).status, 200); // it was accepted
    assert_eq!(service.shutdown(Duration::from_secs(20)), 0);
    drop(fresh);
}

#[test]
fn one_refused_request_does_not_spoil_its_batch() {
    let held = Held::default();
    held.let_go();
    let metrics = Arc::new(serving::metrics::Metrics::new());
    let hour = Duration::from_secs(3600); // it begins when three wait
    let batcher = serving::batcher::Batcher::new(held.translator(), hour, 3, 10, metrics.clone());
    let how = Search { beam: 1, n_best: 1 };
    let submit = |line: &str| batcher.submit(vec![line.to_string()], how).ok().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let [a, refused, b] = ["a", "refused", "b"]
        .map(submit)
        .map(|mut ticket| runtime.block_on(ticket.answer()).unwrap());
    assert_eq!(a.unwrap()[0][0].text, "A");
    assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(b.unwrap()[0][0].text, "B");
    drop(batcher);
    assert!(metrics.text().contains("translate_sentences_total 2\n"), "{}", metrics.text());
}

#[test]
fn nobody_waits_for_a_model_that_has_panicked() {
    let held = Held::default();
    let mut inner = held.translator();
    let translator: Translator = Box::new(move |lines, how, cancel| {
        let _ = inner(lines, how, cancel);
        panic!("as the test wants it");
    });
    let config = Config { batch: 1, window: Duration::ZERO, ..Config::default() };
    let service = start(translator, config);
    let address = service.address();
    let first = send(address, "POST", "/translate", "{\"text\": \"first\"}");
    eventually("the first is being translated", || held.seen.lock().unwrap().len() == 1);
    let second = send(address, "POST", "/translate", "{\"text\": \"second\"}");
    eventually("the second waits", || metric(address, "translate_queue_sentences") == 1.0);
    held.let_go();
    for stream in [first, second] {
        assert_eq!(receive(stream).status, 500);
    }
    eventually("nothing is accepted", || post(address, "{\"text\": \"third\"}").status == 503);
    assert_eq!(service.shutdown(Duration::from_secs(20)), 0);
}
