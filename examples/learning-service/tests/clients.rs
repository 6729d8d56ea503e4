//! Many clients at once, while rounds are learned: no request fails, streams are whole, and the process does not grow.
//!
//! CLIENTS (64), CLIENT_SECONDS (3; 3600 for an hour), CLIENT_PAUSE between the requests of a client, in milliseconds (0).
//! LEARNING_OPTIONS: options of the service. Memory is compared in runs of 120 s or more: in the first twentieth of the time, clients
//! do not pause, so that the service has taken the memory for requests of all of them at once.

mod common;

use std::io::Read;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{
    Instance, THINGS, TOOLS, TestFolder, correction, language_model, read_events, sentences,
};
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn chat(text: &str) -> Value {
    json!({ "model": "answers", "messages": [{ "role": "user", "content": text }], "temperature": 0 })
}

/// The text of a stream.
fn streamed(service: &Instance, body: Value) -> String {
    let events = read_events(service.open_stream(CHAT, body));
    let parts = events.iter().flat_map(|event| event["choices"].as_array().unwrap());
    parts.map(|choice| choice["delta"]["content"].as_str().unwrap_or_default()).collect()
}

#[derive(Debug, Default)]
struct Counts {
    streams: AtomicUsize,
    hung_up: AtomicUsize,
    translations: AtomicUsize,
    corrections: AtomicUsize,
}

/// A client until the end: it reads streams, hangs up in the middle of some, and translates in both domains. It waits for
/// `pause` after each.
fn ask(
    service: &Instance,
    client: usize,
    lines: &[(String, String)],
    (pause, end): (Duration, Instant),
    counts: &Counts,
) {
    for (n, (text, answer)) in lines.iter().cycle().skip(37 * client).enumerate() {
        if Instant::now() >= end {
            return;
        }
        match (client + n) % 4 {
            0 => {
                let domain = if n % 8 < 4 { "tools" } else { "house" };
                let (_, said) = service.translate(domain, &[text]);
                assert!(!said[0].is_empty(), "{text}");
                counts.translations.fetch_add(1, Ordering::Relaxed);
            }
            1 if n % 5 == 0 => {
                let mut stream = service.open_stream(CHAT, chat(text));
                assert_eq!(stream.read(&mut [0; 16]).unwrap(), 16);
                counts.hung_up.fetch_add(1, Ordering::Relaxed);
            }
            _ => {
                assert_eq!(streamed(service, chat(text)).trim(), answer, "{text}");
                counts.streams.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(pause.min(end.saturating_duration_since(Instant::now())));
    }
}

/// Sends corrections of the tools' domain, so that round follows round.
fn correct(service: &Instance, end: Instant, counts: &Counts) {
    let pairs = sentences(&TOOLS);
    for n in 0.. {
        if Instant::now() >= end {
            return;
        }
        let (source, right) = &pairs[n % pairs.len()];
        let mut body = correction("tools", &format!("client-{}", n % 7), source, right);
        body["id"] = n.to_string().into();
        let (status, answer) = service.call("POST", "/corrections", &body);
        assert_eq!(status, 201, "{answer}");
        counts.corrections.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(250));
    }
}

#[derive(Clone, Copy, Debug)]
struct Used {
    megabytes: usize,
    threads: usize,
    descriptors: usize,
}

/// The most that the process used until the end.
fn watch(process: u32, end: Instant) -> Used {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let entries = |name: &str| std::fs::read_dir(folder.join(name)).unwrap().count();
    let mut most = Used { megabytes: 0, threads: 0, descriptors: 0 };
    while Instant::now() < end {
        let status = std::fs::read_to_string(folder.join("status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: usize = resident.trim().trim_end_matches(" kB").parse().unwrap();
        most.megabytes = most.megabytes.max(kilobytes / 1024);
        most.threads = most.threads.max(entries("task"));
        most.descriptors = most.descriptors.max(entries("fd"));
        std::thread::sleep(Duration::from_millis(100));
    }
    most
}

#[test]
fn many_clients_and_rounds() {
    let folder = TestFolder::new();
    let model = language_model().to_str().unwrap();
    let more = std::env::var("LEARNING_OPTIONS").unwrap_or_default();
    let options = ["--language-model", model, "--batch", "20"];
    let options: Vec<&str> = options.into_iter().chain(more.split_whitespace()).collect();
    let service = Instance::start(folder.path(), &options);
    let lines: Vec<_> = (sentences(&THINGS).into_iter().take(60))
        .map(|(text, _)| {
            let answer = streamed(&service, chat(&text)).trim().to_string();
            (text, answer)
        })
        .collect();
    let time = Duration::from_secs(number("CLIENT_SECONDS", 3) as u64);
    let (began, clients, counts) = (Instant::now(), number("CLIENTS", 64), Counts::default());
    let pause = Duration::from_millis(number("CLIENT_PAUSE", 0) as u64);
    let end = began + time;
    let (first, last) = std::thread::scope(|scope| {
        for client in 0..clients {
            let (service, lines, counts) = (&service, &lines, &counts);
            scope.spawn(move || {
                let crowd = began + time / 20;
                ask(service, client, lines, (Duration::ZERO, crowd), counts);
                // Clients with a pause do not ask in the same moment.
                std::thread::sleep(pause * client as u32 / clients as u32);
                ask(service, client, lines, (pause, end), counts);
            });
        }
        scope.spawn(|| correct(&service, end, &counts));
        let process = service.process.id();
        let first = watch(process, began + time / 4);
        watch(process, end - time / 4);
        (first, watch(process, end))
    });
    let versions = service.get("/versions?domain=tools")["versions"].as_array().unwrap().len();
    println!(
        "{clients} clients, {} s: {counts:?}, {versions} rounds; {first:?}, later {last:?}",
        time.as_secs()
    );
    assert!(counts.streams.into_inner() > 0 && counts.translations.into_inner() > 0);
    if time >= Duration::from_secs(120) {
        assert!(last.megabytes <= first.megabytes + first.megabytes / 10 + 8, "{first:?} {last:?}");
        // Go keeps a thread for each call into C that was in progress at the same time.
        assert!(last.threads <= first.threads + 4, "{first:?} {last:?}");
        assert!(last.descriptors <= first.descriptors + clients, "{first:?} {last:?}");
    }
}
