//! The service is killed at random instants of a story, and nothing that a client was told or a version is made of differs
//! from a run that was never killed.
//!
//!     LEARNING_KILLS=200 cargo test --test kills        # 12 without it
//!     LEARNING_SERVICE_PROGRAM=go-program:rust-program cargo test --test kills kills    # the programs take turns

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{
    Instance, Process, RUST, TOOLS, TestFolder, command, command_of, correction, sentences,
};
use learning_service::versions::Pair;
use serde_json::{Value, json};

/// A round takes about a second.
const OPTIONS: [&str; 8] =
    ["--batch", "1000", "--updates", "60", "--every", "10", "--train-share", "0.8"];
/// Corrections of a round.
const STAGE: usize = 5;
/// Phases that a kill is aimed at. The last two are no phases of the learner.
const AIMS: [&str; 6] = ["training", "writing", "measuring", "switching", "storing", "any time"];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

/// Client of a story without an end: corrections, a round, corrections, a round.
struct Story {
    pairs: Vec<Pair>,
    acknowledged: usize,
}

/// How a part of the story ended.
#[derive(Debug, PartialEq)]
enum End {
    /// As many rounds have ended as were wanted.
    Whole,
    /// The connection broke, while a correction was sent or not.
    Broken { storing: bool },
}

impl Story {
    fn new() -> Self {
        Story { pairs: sentences(&TOOLS), acknowledged: 0 }
    }

    /// Goes on from wherever the story is. `before` is called before a correction is sent.
    fn go_on(&mut self, service: &Instance, rounds: usize, before: &mut dyn FnMut()) -> End {
        let broken = End::Broken { storing: false };
        while let Some((_, ended)) = versions(service) {
            if ended >= rounds {
                return End::Whole;
            }
            while self.acknowledged < (ended + 1) * STAGE {
                before();
                if !self.send(service) {
                    return End::Broken { storing: true };
                }
                self.acknowledged += 1;
            }
            let mut asked = false;
            loop {
                let Some((begun, now)) = versions(service) else { return broken };
                if now > ended {
                    break;
                }
                if begun == ended && !asked {
                    // Refused if the round has begun meanwhile.
                    service.send("POST", "/learn", "", r#"{"domain": "tools"}"#);
                    asked = true;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        broken
    }

    /// Sends the next correction. The same sentences come again, of other people.
    fn send(&self, service: &Instance) -> bool {
        let (source, right) = &self.pairs[self.acknowledged % self.pairs.len()];
        let who = format!("person {}", self.acknowledged / self.pairs.len());
        let body = correction("tools", &who, source, right).to_string();
        let Some((status, answer)) = service.send("POST", "/corrections", "", &body) else {
            return false;
        };
        assert!(status == 200 || status == 201, "{status} {answer}");
        true
    }
}

/// How many versions there are and have ended; none if the service does not answer.
fn versions(service: &Instance) -> Option<(usize, usize)> {
    let (status, list) = service.send("GET", "/versions?domain=tools", "", "")?;
    if status == 404 {
        return Some((0, 0)); // no correction yet
    }
    assert_eq!(status, 200, "{list}");
    let newest = list["versions"][0]["version"].as_i64().unwrap_or(0) as usize;
    let learning = list["versions"][0]["state"] == "learning";
    Some((newest, newest - usize::from(learning)))
}

/// Everything that every run of the same story has.
#[derive(Debug, PartialEq)]
struct History {
    versions: Vec<Value>,
    people: Vec<Value>,
    adapters: BTreeMap<String, Vec<u8>>,
}

impl History {
    fn of(service: &Instance, data: &Path, story: &Story, rounds: usize) -> Self {
        let mut versions = Vec::new();
        for version in 1..=rounds {
            let list = service.get(&format!("/versions?domain=tools&last={version}"));
            let mut newest = list["versions"][0].clone();
            let row = newest.as_object_mut().unwrap();
            row.remove("began");
            row.remove("ended");
            for which in ["candidate", "before", "base"] {
                row["figures"][which].as_object_mut().unwrap().remove("milliseconds");
            }
            versions.push(newest);
        }
        let last = (story.acknowledged - 1) / story.pairs.len();
        let people =
            (0..=last).map(|n| service.get(&format!("/people/person%20{n}"))).collect::<Vec<_>>();
        let stored: usize =
            people.iter().map(|person| person["corrections"].as_array().unwrap().len()).sum();
        assert_eq!(stored, story.acknowledged, "corrections that were acknowledged");
        let mut adapters = BTreeMap::new();
        for entry in fs::read_dir(data.join("adapters/tools")).unwrap() {
            for file in fs::read_dir(entry.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                let name = path.strip_prefix(data).unwrap().display().to_string();
                adapters.insert(name, fs::read(path).unwrap());
            }
        }
        History { versions, people, adapters }
    }
}

fn assert_same(found: &History, expected: &History) {
    assert_eq!(found.people, expected.people);
    assert_eq!(found.versions, expected.versions);
    let names = |history: &History| history.adapters.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(found), names(expected));
    for (name, bytes) in &found.adapters {
        assert!(bytes == &expected.adapters[name], "{name} differs");
    }
}

/// The story up to a number of rounds, without a kill, by the program in Rust: all programs have the same bytes.
fn whole(rounds: usize) -> History {
    let folder = TestFolder::new();
    let service = Instance::spawn(command_of(RUST, folder.path(), &OPTIONS));
    let mut story = Story::new();
    assert_eq!(story.go_on(&service, rounds, &mut || ()), End::Whole);
    History::of(&service, folder.path(), &story, rounds)
}

/// Kills a process after a while, on a separate thread.
struct Killer(mpsc::Sender<(Process, Duration)>);

impl Killer {
    fn new() -> Self {
        let (sender, orders) = mpsc::channel::<(Process, Duration)>();
        std::thread::spawn(move || {
            for (process, delay) in orders {
                std::thread::sleep(delay);
                process.kill();
            }
        });
        Killer(sender)
    }
}

/// One life of the service, which ends with a kill. Returns the phase that the kill has hit.
fn life(data: &Path, story: &mut Story, aim: &'static str, random: &mut Random) -> String {
    let killer = Killer::new();
    let phase = Arc::new(Mutex::new(String::from("idle")));
    let (noted, orders) = (phase.clone(), killer.0.clone());
    // Longer than the phase takes at times, so that kills come after it as well.
    let delay = Duration::from_micros(match aim {
        "training" | "measuring" => random.below(400_000),
        "any time" => random.below(2_000_000),
        _ => random.below(6000),
    });
    let mut service = Instance::spawn_with(command(data, &OPTIONS), move |process, line| {
        let Some(now) = line.strip_prefix("learning-service: tools ") else { return };
        let now = now.rsplit(' ').next().unwrap_or_default();
        *noted.lock().unwrap() = now.to_string();
        if now == aim {
            let _ = orders.send((process.clone(), delay));
        }
    });
    let process = service.process.clone();
    if aim == "any time" {
        let _ = killer.0.send((process.clone(), delay));
    }
    let mut wait = random.below(STAGE as u64);
    let end = story.go_on(&service, usize::MAX, &mut || {
        if aim == "storing" && wait == 0 {
            let _ = killer.0.send((process.clone(), delay));
        }
        wait = wait.saturating_sub(1);
    });
    service.kill();
    match end {
        End::Broken { storing: true } => "storing".into(),
        _ => phase.lock().unwrap().clone(),
    }
}

#[test]
fn kills_change_no_byte() {
    let kills = std::env::var("LEARNING_KILLS").map_or(12, |n| n.parse().expect("a number"));
    let folder = TestFolder::new();
    let (mut story, mut random) = (Story::new(), Random(12345));
    let mut hit = BTreeMap::<String, usize>::new();
    let began = Instant::now();
    let missed = |hit: &BTreeMap<String, usize>| {
        AIMS[..5].iter().find(|phase| !hit.contains_key(**phase)).copied()
    };
    let mut count = 0;
    while count < kills || missed(&hit).is_some() {
        assert!(count < 3 * kills + 30, "no kill has hit {:?}: {hit:?}", missed(&hit));
        // In turns; at the end those that were missed.
        let aim = missed(&hit).filter(|_| count >= kills).unwrap_or(AIMS[count % AIMS.len()]);
        *hit.entry(life(folder.path(), &mut story, aim, &mut random)).or_default() += 1;
        count += 1;
    }
    println!("{count} kills in {:.0} s: {hit:?}", began.elapsed().as_secs_f64());
    let service = Instance::start(folder.path(), &OPTIONS);
    let rounds = versions(&service).expect("the service answers").1 + 1;
    assert_eq!(story.go_on(&service, rounds, &mut || ()), End::Whole);
    let found = History::of(&service, folder.path(), &story, rounds);
    drop(service);
    println!("{rounds} rounds, {} corrections", story.acknowledged);
    assert_same(&found, &whole(rounds));
}

/// A clock that jumps by up to 60 years with each look at it, ahead and back.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static time_t jump(void) {
  static uint64_t state = 88172645463325252u;
  uint64_t x = __atomic_add_fetch(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  return (time_t)(x >> 33) % 1892160000 - 946080000;
}
int clock_gettime(clockid_t id, struct timespec *out) {
  int result = (int)syscall(SYS_clock_gettime, id, out);
  if (id == CLOCK_REALTIME) out->tv_sec += jump();
  return result;
}
int gettimeofday(struct timeval *out, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}
"#;

#[test]
fn jumps_of_the_clock_change_no_byte() {
    let folder = TestFolder::new();
    let (source, library) = (folder.path().join("clock.c"), folder.path().join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .status();
    assert!(status.unwrap().success());
    let data = folder.path().join("data");
    // A program in Go does not ask the C library for the time.
    let mut jumping = command_of(RUST, &data, &OPTIONS);
    jumping.env("LD_PRELOAD", &library);
    let service = Instance::spawn(jumping);
    let mut story = Story::new();
    assert_eq!(story.go_on(&service, 2, &mut || ()), End::Whole);
    let began = |version: i64| {
        let list = service.get(&format!("/versions?domain=tools&last={version}"));
        list["versions"][0]["began"].as_i64().unwrap()
    };
    assert!((began(2) - began(1)).abs() > 3_600_000, "the clock has not jumped");
    let found = History::of(&service, &data, &story, 2);
    assert_same(&found, &whole(2));
    let (status, _) = service.call("POST", "/learn", &json!({ "domain": "tools" }));
    assert_eq!(status, 409, "nothing is new");
}
