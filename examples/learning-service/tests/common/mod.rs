#![allow(dead_code)] // each test binary uses a part

//! A small base, the service as separate processes, and a client.
//!
//! LEARNING_SERVICE_PROGRAM: another program than this crate's that is tested in its place, such as the one in Go. Several,
//! with ':' between them, take turns where a test starts more than one.
//! LEARNING_DEVICE: computes for the services and trains bases, as `--device` (cpu).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use learning_service::base::{Recipe, train};
use learning_service::frame::Frame;
use learning_service::versions::Pair;
use serde_json::{Value, json};
use trafo::{
    Architecture, Corpus, Device, Model, ModelConfig, Schedule, Tokenizer, TokenizerOptions,
    Trainer, TrainerOptions,
};

pub struct TestFolder(PathBuf);

impl TestFolder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("learning-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        TestFolder(path)
    }
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TIMES: [(&str, &str); 4] =
    [("heute", "today"), ("morgen", "tomorrow"), ("bald", "soon"), ("jetzt", "now")];
const PEOPLE: [(&str, &str); 3] = [("Anna", "Anna"), ("mein Bruder", "my brother"), ("er", "he")];
const COLOURS: [(&str, &str); 4] =
    [("rot", "red"), ("blau", "blue"), ("grün", "green"), ("weiß", "white")];
pub const THINGS: [(&str, &str); 5] = [
    ("Tisch", "table"),
    ("Stuhl", "chair"),
    ("Schrank", "cupboard"),
    ("Hut", "hat"),
    ("Koffer", "suitcase"),
];
/// Words that the base has never seen.
pub const TOOLS: [(&str, &str); 4] =
    [("Bohrer", "drill"), ("Hobel", "plane"), ("Seil", "rope"), ("Kran", "crane")];

/// "heute kauft Anna den Hut in rot" is "Anna buys the hat in red today"; neighbours in the list differ in all words.
pub fn sentences(things: &[(&str, &str)]) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (time, t) in TIMES {
        for (person, p) in PEOPLE {
            for (colour, c) in COLOURS {
                for (thing, th) in things {
                    pairs.push((
                        format!("{time} kauft {person} den {thing} in {colour}"),
                        format!("{p} buys the {th} in {c} {t}"),
                    ));
                }
            }
        }
    }
    let count = pairs.len();
    let step = (0..).map(|n| 61 + 2 * n).find(|step| gcd(*step, count) == 1).unwrap();
    (0..count).map(|n| pairs[n * step % count].clone()).collect()
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A base that knows the furniture, trained once for all tests of a program. It stays in cargo's folder for tests until
/// the next run replaces it: no test is the last one.
pub fn base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let name = concat!("base-of-", env!("CARGO_CRATE_NAME"));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&path);
        let pairs = sentences(&THINGS);
        let (regression, learned) = pairs.split_at(40);
        let recipe = Recipe {
            device: device(),
            vocabulary: 150,
            layers: 1,
            width: 64,
            learning_rate: 4e-3,
            warmup: 60,
            updates: 400,
            batch_tokens: 512,
            replay: 200,
        };
        train(&path, learned, regression, &recipe, |_| {}).unwrap();
        path
    })
}

/// Ends each message as the pairs of its corpus end.
const TEMPLATE: &str = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}";

/// A language model that answers a sentence about the furniture with its translation. As [`base`], it stays in cargo's folder.
pub fn language_model() -> &'static Path {
    static MODEL: OnceLock<PathBuf> = OnceLock::new();
    MODEL.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answers");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let corpus = Corpus::from_pairs(sentences(&THINGS)).unwrap();
        let options = TokenizerOptions::new(150).soft_limit(true);
        let plain = corpus.train_tokenizer(&options).unwrap();
        let tokenizer = plain.with_chat_template(TEMPLATE).unwrap();
        let config = small_language_model(tokenizer.vocabulary());
        let model = trained(&config, &tokenizer, &corpus, 500);
        model.save(path.join("model.safetensors")).unwrap();
        tokenizer.save(&path).unwrap();
        path
    })
}

/// Ends what it writes with the end of the text, so that no token is partly in an answer.
const TURNS: &str = "{% for m in messages %}{{ m.role }}{{ eos_token }}{{ m.content }}{{ eos_token }}{% endfor %}\
                     {% if add_generation_prompt %}assistant{{ eos_token }}{% endif %}";

/// A base that is a language model: it answers a sentence about the furniture with its translation. As [`base`], it stays in
/// cargo's folder.
pub fn answering_base() -> &'static Path {
    static BASE: OnceLock<PathBuf> = OnceLock::new();
    BASE.get_or_init(|| {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("answering-base");
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        let pairs = sentences(&THINGS);
        let (regression, learned) = pairs.split_at(40);
        let options = TokenizerOptions::new(150).soft_limit(true);
        let roles = [("user".to_string(), "assistant".to_string())];
        let text = Corpus::from_pairs(pairs.iter().chain(&roles).cloned()).unwrap();
        let plain = text.train_tokenizer(&options).unwrap();
        let tokenizer = plain.with_chat_template(TURNS).unwrap();
        let config = small_language_model(tokenizer.vocabulary());
        let frame = Frame::new(tokenizer, &config).unwrap();
        let corpus = frame.corpus(learned).unwrap();
        let model = trained(&config, &frame.tokenizer, &corpus, 1000);
        model.save(path.join("model.safetensors")).unwrap();
        frame.tokenizer.save(&path).unwrap();
        for (name, pairs) in [("replay", learned), ("regression", regression)] {
            let (sources, targets): (Vec<_>, Vec<_>) = pairs.iter().cloned().unzip();
            for (side, lines) in [("source", sources), ("target", targets)] {
                let text = lines.join("\n") + "\n";
                std::fs::write(path.join(format!("{name}.{side}")), text).unwrap();
            }
        }
        path
    })
}

fn small_language_model(vocabulary: usize) -> ModelConfig {
    ModelConfig::new(vocabulary)
        .architecture(Architecture::DecoderLm)
        .decoder_layers(2)
        .width(64)
        .ffn_width(128)
        .heads(4)
        .max_positions(200)
}

fn trained(config: &ModelConfig, tokenizer: &Tokenizer, corpus: &Corpus, updates: usize) -> Model {
    let options = TrainerOptions::new()
        .learning_rate(4e-3)
        .warmup(60)
        .schedule(Schedule::Linear)
        .schedule_updates(updates)
        .batch_tokens(512)
        .max_length(100)
        .after_updates(updates);
    let model = Model::new(config, 1).unwrap();
    let mut trainer = Trainer::builder(model, tokenizer, corpus).options(options).build().unwrap();
    trainer.run(|_| ControlFlow::Continue(())).unwrap();
    trainer.into_model()
}

/// Process of a service, which several threads may kill.
#[derive(Clone)]
pub struct Process(Arc<Mutex<Child>>);

impl Process {
    pub fn kill(&self) {
        let mut child = self.0.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
    pub fn id(&self) -> u32 {
        self.0.lock().unwrap().id()
    }
}

/// A running service.
pub struct Instance {
    pub process: Process,
    pub address: String,
    /// Reads what the service says, if a test listens.
    listener: Option<JoinHandle<()>>,
}

/// The program of this crate.
pub const RUST: &str = env!("CARGO_BIN_EXE_learning-service");

/// The program that is tested; with several, they take turns.
fn next_program() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let given = std::env::var("LEARNING_SERVICE_PROGRAM").unwrap_or(RUST.into());
    let programs: Vec<&str> = given.split(':').collect();
    programs[NEXT.fetch_add(1, Ordering::Relaxed) % programs.len()].into()
}

fn device_name() -> String {
    std::env::var("LEARNING_DEVICE").unwrap_or("cpu".into())
}

pub fn device() -> Device {
    device_name().parse().expect("LEARNING_DEVICE is a device")
}

fn command_on(program: &str, base: &Path, data: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.arg("--data").arg(data).arg("--base").arg(base);
    command.args(["--address", "127.0.0.1:0", "--device", &device_name()]).args(options);
    command.env_remove("LEARNING_SERVICE_TOKEN");
    command
}

/// The service on the small base.
pub fn command(data: &Path, options: &[&str]) -> Command {
    command_of(&next_program(), data, options)
}

pub fn command_of(program: &str, data: &Path, options: &[&str]) -> Command {
    let mut command = command_on(program, base(), data, &["--beam", "1", "--serve-threads", "1"]);
    command.args(["--train-share", "1", "--updates", "300", "--every", "20", "--patience", "4"]);
    command
        .args([
            "--replay",
            "100",
            "--learning-rate",
            "0.01",
            "--share",
            "0.5",
            "--batch-tokens",
            "512",
        ])
        .args(options);
    command
}

impl Instance {
    pub fn start(data: &Path, options: &[&str]) -> Self {
        Self::with_token(data, options, None)
    }
    pub fn with_token(data: &Path, options: &[&str], token: Option<&str>) -> Self {
        let mut command = command(data, options);
        if let Some(token) = token {
            command.env("LEARNING_SERVICE_TOKEN", token);
        }
        Self::spawn(command)
    }
    /// On another base, with the service's own settings.
    pub fn start_on(base: &Path, data: &Path, options: &[&str]) -> Self {
        Self::spawn(command_on(&next_program(), base, data, options))
    }
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let address = Self::wait_for_address(&mut child);
        Instance { process: Process(Arc::new(Mutex::new(child))), address, listener: None }
    }
    /// `hear` gets the lines that the service writes to standard error.
    pub fn spawn_with(
        mut command: Command,
        mut hear: impl FnMut(&Process, &str) + Send + 'static,
    ) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = Self::wait_for_address(&mut child);
        let process = Process(Arc::new(Mutex::new(child)));
        let told = process.clone();
        let listener =
            std::thread::spawn(move || lines.map_while(Result::ok).for_each(|l| hear(&told, &l)));
        Instance { process, address, listener: Some(listener) }
    }
    fn wait_for_address(child: &mut Child) -> String {
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("learning-service: http://"), "{line:?}");
        line.trim().rsplit('/').next().unwrap().to_string()
    }
    /// Status, and the answer as JSON or as text.
    pub fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(method, path, "", &body).expect("the service answers")
    }
    pub fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("GET", path, &Value::Null);
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
    pub fn post(&self, path: &str, body: Value) -> Value {
        let (status, answer) = self.call("POST", path, &body);
        assert!(status == 200 || status == 201, "{path}: {status} {answer}");
        answer
    }
    /// None: the connection broke.
    pub fn send(&self, method: &str, path: &str, head: &str, body: &str) -> Option<(u16, Value)> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        let (length, host) = (body.len(), &self.address);
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n{head}Connection: close\r\n\r\n{body}"
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or_else(|_| body.into())))
    }
    /// Sends a request for a stream. HTTP/1.0 has no chunks.
    pub fn open_stream(&self, path: &str, mut body: Value) -> TcpStream {
        body["stream"] = true.into();
        let body = body.to_string();
        let (host, length) = (&self.address, body.len());
        let mut stream = TcpStream::connect(host).unwrap();
        let head =
            format!("POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    }
    pub fn translate(&self, domain: &str, lines: &[&str]) -> (i64, Vec<String>) {
        let answer = self.post("/translate", json!({ "domain": domain, "text": lines }));
        let lines = answer["translations"].as_array().unwrap().iter();
        let lines = lines.map(|line| line["text"].as_str().unwrap().to_string()).collect();
        (answer["version"].as_i64().unwrap(), lines)
    }
    pub fn correct(&self, domain: &str, who: &str, pairs: &[Pair]) {
        for (source, right) in pairs {
            let mut body = correction(domain, who, source, right);
            body.as_object_mut().unwrap().remove("id"); // sentences may be longer than an id
            let (status, answer) = self.call("POST", "/corrections", &body);
            assert_eq!(status, 201, "{answer}");
        }
    }
    /// The versions of a domain when `count` of them have ended.
    pub fn wait_for_versions(&self, domain: &str, count: usize) -> Vec<Value> {
        let began = Instant::now();
        loop {
            let answer = self.get(&format!("/versions?domain={domain}"));
            let versions = answer["versions"].as_array().unwrap();
            if versions.iter().filter(|version| version["state"] != "learning").count() >= count {
                return versions.clone();
            }
            let fault = self.get("/domains")["fault"].clone();
            assert!(began.elapsed() < Duration::from_secs(900), "no version {count}: {fault}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// Sends a signal, such as `STOP`.
    pub fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.unwrap().success(), "kill -s {name}");
    }
    /// Returns after the last line that the service has written was heard.
    pub fn kill(&mut self) {
        self.process.kill();
        if let Some(listener) = self.listener.take() {
            listener.join().unwrap();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The events of an answer.
pub fn read_events(mut stream: TcpStream) -> Vec<Value> {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, text) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    let mut events: Vec<_> =
        text.split_terminator("\n\n").map(|event| event.strip_prefix("data: ").unwrap()).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{text}");
    events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

pub fn correction(domain: &str, who: &str, source: &str, right: &str) -> Value {
    json!({
        "domain": domain, "who": who, "source": source, "said": "?", "right": right, "id": source, "when": 5
    })
}

/// Whether the files of the database have a text in them.
pub fn files_have(data: &Path, text: &str) -> bool {
    ["service.db", "service.db-wal"].iter().any(|name| {
        let bytes = std::fs::read(data.join(name)).unwrap();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// The error of a service that does not start.
pub fn fails_to_start(data: &Path, options: &[&str]) -> String {
    let output = command(data, options).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}
