//! The service as a process: the story, kills, damage, deletion, limits.

mod common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Instance, TOOLS, TestFolder, correction, fails_to_start, sentences};
use learning_service::measure::contains_words;
use learning_service::versions::Pair;
use serde_json::{Value, json};

/// How many translations have the right word for the tool of the sentence.
fn terms_right(service: &Instance, domain: &str, pairs: &[Pair]) -> usize {
    let lines: Vec<&str> = pairs.iter().map(|pair| pair.0.as_str()).collect();
    let (_, translations) = service.translate(domain, &lines);
    let right = translations.iter().zip(&lines).filter(|(translation, line)| {
        TOOLS.iter().any(|(tool, t)| contains_words(line, tool) && contains_words(translation, t))
    });
    right.count()
}

/// Translates all the time until `end`. Every request must be answered.
fn ask_until(service: &Instance, end: &AtomicBool, answered: &AtomicUsize) {
    while !end.load(Ordering::Acquire) {
        service.translate("tools", &["heute kauft Anna den Bohrer in rot"]);
        answered.fetch_add(1, Ordering::AcqRel);
    }
}

#[test]
fn a_domain_is_learned_served_and_rolled_back() {
    let folder = TestFolder::new();
    let service = Instance::start(folder.path(), &["--batch", "60"]);
    let pairs = sentences(&TOOLS);
    let (taught, asked) = pairs.split_at(60);
    let asked = &asked[..40];
    for (source, target) in TOOLS {
        service.post("/terms", json!({ "domain": "tools", "source": source, "target": target }));
    }
    let before = terms_right(&service, "tools", asked);
    let (end, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let versions = std::thread::scope(|scope| {
        scope.spawn(|| ask_until(&service, &end, &answered));
        service.correct("tools", "Anna", taught);
        let versions = service.wait_for_versions("tools", 1);
        end.store(true, Ordering::Release);
        versions
    });
    assert!(answered.load(Ordering::Acquire) > 10);
    let version = &versions[0];
    assert_eq!(
        (&version["state"], &version["current"]),
        (&json!("good"), &json!(true)),
        "{version}"
    );
    assert_eq!(version["corrections"].as_array().unwrap().len(), 48);
    assert_eq!(version["held_out"].as_array().unwrap().len(), 12);
    let figures = &version["figures"];
    let (candidate, base) = (&figures["candidate"], &figures["base"]);
    let number = |value: &Value| value.as_f64().unwrap();
    assert!(number(&candidate["regression_bleu"]) >= number(&base["regression_bleu"]) - 0.5);
    assert!(number(&candidate["held_chrf"]) > number(&base["held_chrf"]) + 10.0, "{figures}");
    assert!(!version["points"].as_array().unwrap().is_empty());

    let after = terms_right(&service, "tools", asked);
    assert!(
        before <= 4 && after >= 30,
        "{before} terms of {} were right, {after} are",
        asked.len()
    );
    // Another domain is translated by the base.
    assert_eq!(terms_right(&service, "other", asked), before);

    let line = [asked[0].0.as_str()];
    let learned = service.translate("tools", &line);
    assert_eq!(learned.0, 1);
    service.post("/rollback", json!({ "domain": "tools", "version": 0 }));
    assert_eq!(service.translate("tools", &line), service.translate("other", &line));
    service.post("/rollback", json!({ "domain": "tools", "version": 1 }));
    assert_eq!(service.translate("tools", &line), learned);
    let (status, answer) =
        service.call("POST", "/rollback", &json!({ "domain": "tools", "version": 2 }));
    assert_eq!(status, 404, "{answer}");
}

/// The part of the versions that every run of the same history has.
fn history(service: &Instance) -> Vec<Value> {
    let mut versions = service.wait_for_versions("tools", 2);
    for version in &mut versions {
        let version = version.as_object_mut().unwrap();
        version.remove("began");
        version.remove("ended");
        for which in ["candidate", "before", "base"] {
            version["figures"][which].as_object_mut().unwrap().remove("milliseconds");
        }
    }
    versions
}

fn adapters(data: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for version in ["1", "2"] {
        let folder = data.join("adapters/tools").join(version);
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(data).unwrap().display().to_string();
            files.push((name, fs::read(path).unwrap()));
        }
    }
    files.sort();
    files
}

/// Pauses make the story long enough for several kills on a fast machine, too.
const SLOW: [&str; 6] = ["--batch", "1000", "--updates", "120", "--train-share", "0.4"];
const STAGES: [usize; 2] = [20, 40];

/// Goes on with the story from wherever it is, until the time is over or two versions have ended. Whether they have.
fn go_on(service: &Instance, pairs: &[Pair], acknowledged: &AtomicUsize, end: Instant) -> bool {
    let alive = || Instant::now() < end;
    let ended = |answer: &Value| {
        let versions = answer["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ended = versions.iter().filter(|version| version["state"] != "learning").count();
        (versions.len(), ended)
    };
    for (stage, most) in STAGES.into_iter().enumerate() {
        for (source, right) in &pairs[acknowledged.load(Ordering::Acquire).min(most)..most] {
            if !alive() {
                return false;
            }
            let body = correction("tools", "Anna", source, right).to_string();
            let Some((status, _)) = service.send("POST", "/corrections", "", &body) else {
                return false;
            };
            assert!(status == 200 || status == 201);
            acknowledged.fetch_add(1, Ordering::AcqRel);
        }
        let mut asked = false;
        loop {
            let list = service.send("GET", "/versions?domain=tools", "", "");
            let Some((200, list)) = list else { return false };
            let (begun, ended) = ended(&list);
            if ended > stage {
                break;
            }
            if begun <= stage && !asked {
                // Refused if the round has begun meanwhile.
                service.send("POST", "/learn", "", r#"{"domain": "tools"}"#);
                asked = true;
            }
            if !alive() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    true
}

#[test]
fn kills_change_no_byte() {
    let pairs = sentences(&TOOLS);
    let whole = TestFolder::new();
    let service = Instance::start(whole.path(), &SLOW);
    let never = Instant::now() + Duration::from_secs(600);
    assert!(go_on(&service, &pairs, &AtomicUsize::new(0), never));
    let expected = (history(&service), service.get("/people/Anna"));
    drop(service);

    let killed = TestFolder::new();
    let acknowledged = AtomicUsize::new(0);
    let (mut random, mut kills) = (12345u64, 0);
    let found = loop {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        // Lives grow, so that the story ends on a slow machine as well.
        let life = (100 + (random >> 33) % 600) as f64 * 1.1f64.powi(kills);
        let end = Instant::now() + Duration::from_secs_f64(life / 1e3);
        let mut service = Instance::start(killed.path(), &SLOW);
        if go_on(&service, &pairs, &acknowledged, end) {
            break (history(&service), service.get("/people/Anna"));
        }
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        service.kill();
        kills += 1;
    };
    assert!(kills >= 2, "the story ended after {kills} kills");
    assert_eq!(found, expected);
    assert_eq!(adapters(killed.path()), adapters(whole.path()));
}

#[test]
fn damage_and_deletion_leave_a_good_version() {
    let folder = TestFolder::new();
    let data = folder.path();
    let pairs = sentences(&TOOLS);
    let mut service = Instance::start(data, &["--batch", "30", "--regression-loss", "100"]);
    service.correct("tools", "Anna", &pairs[..30]);
    assert_eq!(service.wait_for_versions("tools", 1)[0]["state"], "good");
    service.correct("tools", "Otto", &pairs[30..60]);
    assert_eq!(service.wait_for_versions("tools", 2)[0]["state"], "good");
    let error = fails_to_start(data, &[]);
    assert!(error.contains("another instance uses this folder"), "{error}");
    service.kill();

    let file = data.join("adapters/tools/2/adapter_model.safetensors");
    let whole = fs::read(&file).unwrap();
    let mut bytes = whole.clone();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).unwrap();
    let service = Instance::start(data, &["--batch", "1000"]);
    let versions = service.wait_for_versions("tools", 2);
    assert_eq!((&versions[0]["state"], &versions[1]["current"]), (&json!("damaged"), &json!(true)));
    assert!(versions[0]["reason"].as_str().unwrap().contains("is damaged"));
    assert_eq!(service.translate("tools", &["bald kauft er den Hut in rot"]).0, 1);
    let back = json!({ "domain": "tools", "version": 2 });
    assert_eq!(service.call("POST", "/rollback", &back).0, 409);
    // Files that cannot be read say nothing about their contents.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert_eq!(service.call("POST", "/rollback", &back).0, 503);
    fs::remove_dir(&file).unwrap();
    // Whole files make it good again.
    fs::write(&file, &whole).unwrap();
    service.post("/rollback", back.clone());
    let versions = service.wait_for_versions("tools", 2);
    assert_eq!((&versions[0]["state"], &versions[0]["current"]), (&json!("good"), &json!(true)));
    assert_eq!(service.translate("tools", &["bald kauft er den Hut in rot"]).0, 2);
    // The current version is found to be damaged: the one before it is served, also without a restart.
    fs::remove_file(&file).unwrap();
    assert_eq!(service.call("POST", "/rollback", &back).0, 409);
    assert_eq!(service.translate("tools", &["bald kauft er den Hut in rot"]).0, 1);

    // Version 1 has learned from Anna's corrections alone: the base is left until Otto's are learned.
    let right = pairs[0].1.clone();
    let has = |text: &str| common::files_have(data, text);
    assert!(has(&right));
    assert_eq!(service.get("/people/Anna")["corrections"][0]["right"], json!(right));
    let (status, gone) = service.call("DELETE", "/people/Anna", &Value::Null);
    assert_eq!((status, &gone["corrections"]), (200, &json!(30)), "{gone}");
    assert_eq!(service.translate("tools", &["bald kauft er den Hut in rot"]).0, 0);
    for text in pairs[..30].iter().flat_map(|(source, right)| [source, right]) {
        assert!(!has(text), "{text:?} is still in the files");
    }
    assert!(pairs[30..60].iter().all(|(source, right)| has(source) && has(right)));
    assert!(!data.join("adapters/tools/1").exists() && !data.join("adapters/tools/2").exists());
    assert_eq!(service.get("/people/Anna")["corrections"], json!([]));
    let versions = service.wait_for_versions("tools", 3);
    assert_eq!(
        versions[0]["corrections"].as_array().unwrap().len()
            + versions[0]["held_out"].as_array().unwrap().len(),
        30
    );
    assert_eq!(
        (&versions[1]["state"], &versions[2]["state"]),
        (&json!("forgotten"), &json!("forgotten"))
    );
}

#[test]
fn a_worse_version_is_not_served() {
    let folder = TestFolder::new();
    let service = Instance::start(
        folder.path(),
        &["--batch", "30", "--updates", "2", "--warmup", "1", "--regression-loss", "0"],
    );
    let pairs = sentences(&TOOLS);
    service.correct("tools", "Anna", &pairs[..30]);
    let version = &service.wait_for_versions("tools", 1)[0];
    assert_eq!(
        (&version["state"], &version["current"]),
        (&json!("refused"), &json!(false)),
        "{version}"
    );
    assert!(version["reason"].as_str().unwrap().starts_with("it "), "{version}");
    assert_eq!(service.translate("tools", &["bald kauft er den Hut in rot"]).0, 0);
}

#[test]
fn requests_that_are_wrong_are_refused_with_a_reason() {
    let folder = TestFolder::new();
    let service = Instance::with_token(folder.path(), &["--most-body", "2000"], Some("secret"));
    let send = |method: &str, path: &str, body: &str| {
        service.send(method, path, "Authorization: Bearer secret\r\n", body).unwrap()
    };
    for path in ["/", "/openapi.json", "/healthz", "/readyz"] {
        assert_eq!(service.send("GET", path, "", "").unwrap().0, 200, "{path}");
    }
    assert_eq!(service.send("GET", "/domains", "", "").unwrap().0, 401);
    let wrong = "Authorization: Bearer secre\r\n";
    assert_eq!(service.send("GET", "/domains", wrong, "").unwrap().0, 401);
    assert_eq!(send("GET", "/domains", "").0, 200);
    let correction = |change: (&str, &str)| {
        let mut body = correction("tools", "Anna", "ein Seil", "a rope");
        body[change.0] = change.1.into();
        send("POST", "/corrections", &body.to_string())
    };
    assert_eq!(correction(("said", "x")).0, 201);
    assert_eq!(correction(("said", "x")), (200, json!({ "id": 1, "new": false })));
    assert_eq!(correction(("right", "a cord")).0, 409);
    for change in
        [("domain", "../x"), ("who", ""), ("right", "a\nb"), ("source", " "), ("extra", "x")]
    {
        let (status, answer) = correction(change);
        assert_eq!(status, 400, "{change:?}: {answer}");
    }
    for (method, path, body, expected) in [
        ("POST", "/translate", r#"{"text": []}"#, 400),
        ("POST", "/translate", r#"{"text": "x", "beam": 99}"#, 400),
        ("POST", "/translate", "{", 400),
        ("POST", "/translate", &format!("{{\"text\": \"{}\"}}", "x".repeat(3000)), 413),
        ("GET", "/translate", "", 405),
        ("GET", "/nothing", "", 404),
        ("GET", "/versions?domain=none", "", 404),
        ("GET", "/versions", "", 400),
        ("GET", "/versions?domain=tools&last=x", "", 400),
        ("GET", "/versions?domain=tools&last=9", "", 200),
        ("POST", "/rollback", r#"{"domain": "none", "version": 0}"#, 404),
        ("POST", "/learn", r#"{"domain": "none"}"#, 404),
    ] {
        let (status, answer) = send(method, path, body);
        assert_eq!(status, expected, "{method} {path}: {answer}");
    }
    // A page of another site, and a name that another site has given this machine.
    let token = "Authorization: bearer secret\r\n";
    let own = format!("{token}Origin: http://{}\r\n", service.address);
    assert_eq!(service.send("GET", "/domains", &own, "").unwrap().0, 200);
    let other = format!("{token}Origin: http://example.com\r\n");
    assert_eq!(service.send("POST", "/learn", &other, r#"{"domain": "tools"}"#).unwrap().0, 403);
    let term = json!({ "domain": "tools", "source": "ein Seil", "target": "a rope" }).to_string();
    assert_eq!(send("POST", "/terms", &term).0, 200);
    assert_eq!(send("DELETE", "/terms/tools/ein%20Seil", ""), (200, json!({ "terms": 1 })));
    assert_eq!(send("GET", "/domains", "").1["domains"][0]["terms"], json!({}));
    let fill = |path: &str| {
        path.replace("{who}", "x").replace("{domain}", "tools").replace("{source}", "x")
    };
    let description: Value = serde_json::from_str(include_str!("../openapi.json")).unwrap();
    for (path, methods) in description["paths"].as_object().unwrap() {
        for method in ["get", "post", "delete"].iter().filter(|name| !methods[**name].is_null()) {
            let (status, answer) = send(&method.to_uppercase(), &fill(path), "");
            assert!(![404, 405].contains(&status), "{path}: {answer}");
        }
    }
    let metrics = send("GET", "/metrics", "").1;
    let metrics = metrics.as_str().unwrap();
    for line in [
        "learning_corrections{domain=\"tools\"} 1\n",
        "learning_running 0\n",
        "translate_requests_total{code=\"413\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let error = fails_to_start(folder.path(), &["--beam", "x"]);
    assert!(error.contains("--beam"), "{error}");
    let error = fails_to_start(&folder.path().join("other"), &["--address", "0.0.0.0:0"]);
    assert!(error.contains("LEARNING_SERVICE_TOKEN"), "{error}");
}
