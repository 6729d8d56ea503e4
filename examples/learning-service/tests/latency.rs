//! Latencies beside training, for docs/guide/learning-service.md. Services with and without a round take turns: while one
//! answers, the others are stopped by a signal.
//!
//!     cargo test --test latency -- --ignored --nocapture
//!
//! LEARNING_BASE: the folder of a base; without it, one is trained from the demo corpus. The base's own sentences are asked for and
//! learned: what a round learns changes no latency.
//! LATENCY_TURNS (5), LATENCY_SECONDS of a service in a turn (20), LATENCY_CLIENTS (4).

mod common;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Instance, TestFolder, device};
use learning_service::base::{read_pairs, train_demo};
use learning_service::versions::Pair;

/// A round that does not end while it is measured.
const ENDLESS: [&str; 6] = ["--batch", "100", "--updates", "1000000", "--patience", "1000000"];
const SERVICES: [(&str, &[&str]); 3] = [
    ("nothing is learned", &["--batch", "1000000"]),
    ("a round in the background", &[]),
    ("a round with --busy-share 1", &["--busy-share", "1"]),
];

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Milliseconds of the requests of clients that send one sentence after the other.
fn ask(service: &Instance, lines: &[Pair], time: Duration) -> Vec<f64> {
    let end = Instant::now() + time;
    let clients = number("LATENCY_CLIENTS", 4);
    let client = |first: usize| {
        let mut times = Vec::new();
        for pair in lines.iter().cycle().skip(first) {
            let began = Instant::now();
            if began >= end {
                break;
            }
            service.translate("rail", &[&pair.0]);
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        times
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            (0..clients).map(|n| scope.spawn(move || client(97 * n % lines.len()))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

/// p50, p95 and p99.
fn percentiles(times: &[f64]) -> [f64; 3] {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    [0.5, 0.95, 0.99].map(|share| times[((times.len() - 1) as f64 * share) as usize])
}

fn update(service: &Instance) -> i64 {
    let domains = service.get("/domains");
    domains["domains"][0]["learning"]["update"].as_i64().unwrap_or(0)
}

struct Measured {
    name: &'static str,
    service: Instance,
    turns: Vec<Vec<f64>>,
    updates: i64,
}

fn start(name: &'static str, options: &[&str], base: &Path, data: &Path) -> Measured {
    let all = [&["--serve-threads", "2"], &ENDLESS[..], options].concat(); // the last value of an option counts
    let service = Instance::start_on(base, data, &all);
    service.signal("STOP");
    Measured { name, service, turns: Vec::new(), updates: 0 }
}

fn tell(measured: &Measured, base: &Measured, seconds: usize) {
    let all: Vec<f64> = measured.turns.concat();
    let [p50, p95, p99] = percentiles(&all);
    let of_base = percentiles(&base.turns.concat());
    let ratios: Vec<f64> = (measured.turns.iter().zip(&base.turns))
        .map(|(own, other)| percentiles(own)[2] / percentiles(other)[2])
        .collect();
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    println!(
        "{}: {} requests, p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms; p50 {:.2} x, p95 {:.2} x, p99 {:.2} x ({least:.2} to {most:.2} in a turn); {:.2} updates a second",
        measured.name,
        all.len(),
        p50 / of_base[0],
        p95 / of_base[1],
        p99 / of_base[2],
        measured.updates as f64 / (measured.turns.len() * seconds) as f64
    );
}

#[test]
#[ignore = "takes minutes"]
fn latencies_beside_training() {
    let folder = TestFolder::new();
    let base =
        std::env::var_os("LEARNING_BASE").map_or_else(|| folder.path().join("base"), PathBuf::from);
    if !base.exists() {
        train_demo(&base, device(), |_| {}).unwrap();
    }
    let pairs = |name: &str| {
        let side = |side: &str| base.join(format!("{name}.{side}"));
        read_pairs(&side("source"), &side("target")).unwrap()
    };
    let (train, lines) = (pairs("replay"), pairs("regression"));
    let mut services: Vec<Measured> = (SERVICES.iter().enumerate())
        .map(|(n, (name, options))| {
            start(name, options, &base, &folder.path().join(format!("data-{n}")))
        })
        .collect();
    for measured in &services {
        measured.service.signal("CONT");
        measured.service.correct("rail", "anna", &train[..100.min(train.len())]);
        let began = Instant::now();
        while measured.name != SERVICES[0].0 && update(&measured.service) < 1 {
            assert!(began.elapsed() < Duration::from_secs(60), "the round does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        measured.service.signal("STOP");
    }
    let (turns, seconds) = (number("LATENCY_TURNS", 5), number("LATENCY_SECONDS", 20));
    for _ in 0..turns {
        for measured in &mut services {
            measured.service.signal("CONT");
            ask(&measured.service, &lines, Duration::from_millis(500));
            let before = update(&measured.service);
            let times = ask(&measured.service, &lines, Duration::from_secs(seconds as u64));
            measured.updates += update(&measured.service) - before;
            measured.service.signal("STOP");
            measured.turns.push(times);
        }
    }
    for measured in &services {
        tell(measured, &services[0], seconds);
    }
    println!("{turns} turns of {seconds} s");
}
