//! The service as a process: the story, damage, deletion, rollback, limits.

mod common;

use std::fs;
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

/// The phase of the round in progress.
fn phase(service: &Instance) -> Option<String> {
    let domains = service.get("/domains");
    domains["domains"][0]["learning"]["phase"].as_str().map(String::from)
}

#[test]
fn a_version_is_measured_again_after_a_rollback_while_it_was_measured() {
    let folder = TestFolder::new();
    // Pauses make measuring long enough to be seen.
    let options = ["--batch", "1000", "--train-share", "0.3", "--regression-loss", "100"];
    let service = Instance::start(folder.path(), &options);
    let pairs = sentences(&TOOLS);
    for (stage, taught) in pairs.chunks(30).enumerate() {
        service.correct("tools", "Anna", taught);
        if stage > 0 {
            service.post("/rollback", json!({ "domain": "tools", "version": 1 }));
        }
        service.post("/learn", json!({ "domain": "tools" }));
        let mut hit = false;
        if stage > 0 {
            while phase(&service).as_deref() != Some("measuring") {
                std::thread::sleep(Duration::from_millis(2));
            }
            service.post("/rollback", json!({ "domain": "tools", "version": 0 }));
            hit = phase(&service).as_deref() == Some("measuring");
        }
        let newest = &service.wait_for_versions("tools", stage + 1)[0];
        assert!(stage > 0 || newest["current"] == true, "{newest}");
        if hit {
            // It was compared with the base in the end, which it beats.
            assert_eq!(newest["figures"]["before_version"], 0, "{newest}");
            assert_eq!(newest["current"], true, "{newest}");
            return;
        }
    }
    panic!("no rollback came while a version was measured");
}

#[test]
fn a_full_queue_is_a_503() {
    let folder = TestFolder::new();
    let service = Instance::start(folder.path(), &["--queue", "1"]);
    let end = Instant::now() + Duration::from_secs(60);
    let (refused, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let done =
                    || refused.load(Ordering::Acquire) > 0 && answered.load(Ordering::Acquire) > 0;
                while !done() && Instant::now() < end {
                    let body = json!({ "text": "heute kauft Anna den Hut in rot" });
                    match service.call("POST", "/translate", &body) {
                        (200, _) => answered.fetch_add(1, Ordering::AcqRel),
                        (503, answer) => {
                            assert!(answer["error"].as_str().unwrap().contains("queue is full"));
                            refused.fetch_add(1, Ordering::AcqRel)
                        }
                        other => panic!("{other:?}"),
                    };
                }
            });
        }
    });
    assert!(refused.into_inner() > 0 && answered.into_inner() > 0);
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
        let path = path.replace("{who}", "x").replace("{model}", "translation");
        path.replace("{domain}", "tools").replace("{source}", "x")
    };
    let description: Value = serde_json::from_str(include_str!("../shared/openapi.json")).unwrap();
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
    let error = fails_to_start(folder.path(), &["--device", "gpu"]);
    assert!(error.contains("--device: ") && error.contains("gpu"), "{error}");
    let error = fails_to_start(&folder.path().join("other"), &["--address", "0.0.0.0:0"]);
    assert!(error.contains("LEARNING_SERVICE_TOKEN"), "{error}");
}
