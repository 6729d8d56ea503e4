//! OpenAI's interface, with a translation model and a language model. tests/learning/check_openai.py tries it with OpenAI's clients.

mod common;

use common::{Instance, TOOLS, TestFolder, answering_base, language_model, read_events, sentences};
use learning_service::versions::Pair;
use serde_json::{Value, json};
use trafo::{GenerationOptions, Generator, Model, Tokenizer, TranslateOptions};

const ASKED: [&str; 2] = ["heute kauft Anna den Hut in rot", "bald kauft er den Stuhl in blau"];

fn start(folder: &TestFolder, more: &[&str]) -> Instance {
    let model = language_model().to_str().unwrap();
    Instance::start(folder.path(), &[&["--language-model", model], more].concat())
}

fn chat(model: &str, text: &str, change: Value) -> Value {
    let mut body = json!({ "model": model, "messages": [{ "role": "user", "content": text }] });
    body.as_object_mut().unwrap().append(&mut change.as_object().unwrap().clone());
    body
}

/// Texts and reasons of the choices of an answer.
fn choices(answer: &Value) -> Vec<(String, String)> {
    let text = |choice: &Value| {
        let text =
            if choice["text"].is_null() { &choice["message"]["content"] } else { &choice["text"] };
        let finish = choice["finish_reason"].as_str().unwrap();
        (text.as_str().unwrap().to_string(), finish.to_string())
    };
    answer["choices"].as_array().unwrap().iter().map(text).collect()
}

fn events(service: &Instance, path: &str, body: Value) -> Vec<Value> {
    read_events(service.open_stream(path, body))
}

/// The choices that events add up to.
fn joined(events: &[Value], count: usize) -> Vec<(String, String)> {
    let mut choices = vec![(String::new(), String::new()); count];
    for choice in events.iter().flat_map(|event| event["choices"].as_array().unwrap()) {
        let whole = &mut choices[choice["index"].as_u64().unwrap() as usize];
        let delta = &choice["delta"];
        let text = if delta.is_null() { &choice["text"] } else { &delta["content"] };
        assert!(whole.1.is_empty(), "nothing follows the end of a choice");
        whole.0 += text.as_str().unwrap_or_default();
        whole.1 = choice["finish_reason"].as_str().unwrap_or_default().into();
    }
    choices
}

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn assert_streamed(service: &Instance, path: &str, body: &Value) -> Value {
    let whole = service.post(path, body.clone());
    let count = whole["choices"].as_array().unwrap().len();
    let mut body = body.clone();
    body["stream_options"] = json!({ "include_usage": true });
    let events = events(service, path, body);
    assert_eq!(joined(&events, count), choices(&whole));
    let (last, others) = events.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    for count in ["prompt_tokens", "completion_tokens", "total_tokens"] {
        assert_eq!(last["usage"][count], whole["usage"][count], "{count}");
    }
    assert!(others.iter().all(|event| event["usage"].is_null() && event["id"] == last["id"]));
    whole
}

/// The most probable answer to a message, generated in this process.
fn answer_to(text: &str) -> String {
    let folder = language_model();
    let tokenizer = Tokenizer::load(folder).unwrap();
    let mut model = Model::load(folder.join("model.safetensors")).unwrap();
    model.prepare_inference().unwrap();
    let prompt = tokenizer.encode_chat(&[("user", text)], true).unwrap().ids;
    let options = GenerationOptions::new().decoding(TranslateOptions::new().max_length(0));
    let mut generator = Generator::new(&model, &tokenizer, 0).unwrap();
    generator.generate_ids(&[prompt], &options).unwrap().texts().unwrap().remove(0)
}

#[test]
fn the_language_model_answers_by_its_template() {
    let folder = TestFolder::new();
    let expected = answer_to(ASKED[0]);
    let service = start(&folder, &[]);
    let greedy = json!({ "temperature": 0 });
    let whole = assert_streamed(&service, CHAT, &chat("answers", ASKED[0], greedy));
    assert_eq!(choices(&whole), [(expected.clone(), "stop".into())]);
    assert!(expected.contains(" hat in red"), "{expected}");
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!("answers")));
    let usage = &whole["usage"];
    let tokens = usage["completion_tokens"].as_u64().unwrap();
    assert!(tokens > 3 && usage["prompt_tokens"].as_u64().unwrap() > 3, "{usage}");
    assert_eq!(usage["total_tokens"], tokens + usage["prompt_tokens"].as_u64().unwrap());

    // Another turn: the prompt begins like the first one, which is cached.
    let turns = json!([
        { "role": "user", "content": ASKED[0] },
        { "role": "assistant", "content": expected.trim_start() },
        { "role": "user", "content": [{ "type": "text", "text": ASKED[1] }] },
    ]);
    let body = json!({ "model": "answers", "messages": turns, "temperature": 0 });
    let second = service.post(CHAT, body);
    let cached = &second["usage"]["prompt_tokens_details"]["cached_tokens"];
    assert!(cached.as_u64().unwrap() + 1 >= usage["prompt_tokens"].as_u64().unwrap(), "{second}");

    let short = json!({ "temperature": 0, "max_completion_tokens": 2 });
    let short = assert_streamed(&service, CHAT, &chat("answers", ASKED[0], short));
    assert_eq!(
        (&short["usage"]["completion_tokens"], &choices(&short)[0].1[..]),
        (&json!(2), "length")
    );
    let stop = json!({ "temperature": 0, "stop": ["hat in", "nowhere"] });
    let stopped = assert_streamed(&service, CHAT, &chat("answers", ASKED[0], stop));
    let before = expected[..expected.find("hat in").unwrap()].to_string();
    assert_eq!(choices(&stopped), [(before, "stop".into())]);
    let copies = assert_streamed(
        &service,
        CHAT,
        &chat("answers", ASKED[0], json!({ "temperature": 0, "n": 3 })),
    );
    assert_eq!(choices(&copies), vec![choices(&whole)[0].clone(); 3]);
    assert_eq!(copies["usage"]["prompt_tokens"], usage["prompt_tokens"], "one prompt");
}

#[test]
fn draws_depend_on_the_seed() {
    let folder = TestFolder::new();
    let service = start(&folder, &[]);
    for (model, path) in [("answers", CHAT), ("answers", TEXT), ("translation", CHAT)] {
        let drawn = |seed: i64, top_p: f64| {
            let change =
                json!({ "temperature": 2, "top_p": top_p, "seed": seed, "n": 3, "max_tokens": 20 });
            let mut body = chat(model, ASKED[0], change);
            if path == TEXT {
                body.as_object_mut().unwrap().remove("messages");
                body["prompt"] = ASKED[0].into();
            }
            choices(&assert_streamed(&service, path, &body))
        };
        let first = drawn(7, 1.0);
        assert_eq!(drawn(7, 1.0), first, "{model} {path}");
        assert_ne!(drawn(-8, 1.0), first, "{model} {path}");
        assert!(first.iter().any(|choice| *choice != first[0]), "{first:?}");
        let sure = drawn(7, 1e-6);
        assert_eq!(sure, vec![sure[0].clone(); 3], "the most probable token alone");
    }
}

#[test]
fn prompts_are_continued_in_their_order() {
    let folder = TestFolder::new();
    let service = start(&folder, &[]);
    let body = json!({ "model": "answers", "prompt": ASKED, "temperature": 0, "n": 2 });
    let both = assert_streamed(&service, TEXT, &body);
    assert_eq!(both["object"], "text_completion");
    for (number, prompt) in ASKED.iter().enumerate() {
        let body = json!({ "model": "answers", "prompt": prompt, "temperature": 0 });
        let alone = service.post(TEXT, body);
        assert_eq!(choices(&both)[2 * number..][..2], vec![choices(&alone)[0].clone(); 2]);
        assert!(alone["usage"]["completion_tokens"].as_u64().unwrap() <= 16, "OpenAI's default");
    }
}

#[test]
fn the_last_message_of_the_user_is_translated() {
    let folder = TestFolder::new();
    let service = start(&folder, &[]);
    let expected = service.translate("default", &ASKED).1;
    assert_eq!(expected[0], "Anna buys the hat in red today");
    let text = ASKED.join("\n\n");
    let messages = json!([
        { "role": "system", "content": "You translate." },
        { "role": "user", "content": "nein" },
        { "role": "assistant", "content": "no" },
        { "role": "user", "content": text },
    ]);
    let body = json!({ "model": "translation", "messages": messages });
    let whole = assert_streamed(&service, CHAT, &body);
    let expected = format!("{}\n\n{}", expected[0], expected[1]);
    assert_eq!(choices(&whole), [(expected.clone(), "stop".into())]);
    assert_eq!(whole["system_fingerprint"], "default@0");
    let body = json!({ "model": "translation:new-domain", "prompt": [ASKED[0], text, ""] });
    let texts = assert_streamed(&service, TEXT, &body);
    let found: Vec<_> = choices(&texts).into_iter().map(|choice| choice.0).collect();
    assert_eq!(found, [expected.split('\n').next().unwrap(), &expected, ""]);

    let several =
        assert_streamed(&service, CHAT, &chat("translation", ASKED[0], json!({ "n": 3 })));
    let several = choices(&several);
    assert_eq!((several.len(), &several[0].0[..]), (3, "Anna buys the hat in red today"));
    assert_ne!(several[0], several[1], "the hypotheses of a beam differ");
    let short =
        assert_streamed(&service, CHAT, &chat("translation", ASKED[0], json!({ "max_tokens": 2 })));
    let (said, finish) = choices(&short).remove(0);
    assert!(expected.starts_with(&said) && finish == "length", "{said}");
    assert_eq!(short["usage"]["completion_tokens"], 2);
    let stopped =
        assert_streamed(&service, CHAT, &chat("translation", ASKED[0], json!({ "stop": "the" })));
    assert_eq!(choices(&stopped), [("Anna buys ".into(), "stop".into())]);
    let metrics = service.get("/metrics");
    assert!(metrics.as_str().unwrap().contains("openai_requests_total{code=\"200\"}"), "{metrics}");
}

#[test]
fn a_language_model_learns_its_answers_from_corrections() {
    let folder = TestFolder::new();
    let base = answering_base();
    let options = ["--batch", "60", "--learning-rate", "0.005", "--share", "0.5"];
    let more = ["--beam", "1", "--updates", "400", "--patience", "5", "--replay", "200"];
    // The base knows all sentences of the regression set, and loses up to 4 BLEU.
    let bounds = ["--batch-tokens", "512", "--regression-loss", "10"];
    let same = ["--language-model", base.to_str().unwrap()];
    let service =
        Instance::start_on(base, folder.path(), &[&options[..], &more, &bounds, &same].concat());
    let answer = |model: &str, text: &str| {
        let answer = service.post(CHAT, chat(model, text, json!({ "temperature": 0 })));
        choices(&answer).remove(0)
    };
    // The base answers as the model that learns nothing: the prompt is that of the template.
    let known = answer("answering-base", ASKED[0]);
    assert_eq!(known, ("Anna buys the hat in red today".into(), "stop".into()));
    assert_eq!(answer("translation:tools", ASKED[0]), known);
    let pairs = sentences(&TOOLS);
    let (taught, asked) = pairs.split_at(60);
    let right = |asked: &[Pair]| {
        let is_right = |(text, right): &&Pair| answer("translation:tools", text).0 == *right;
        asked.iter().filter(is_right).count()
    };
    let before = right(&asked[..20]);
    service.correct("tools", "Anna", taught);
    let version = &service.wait_for_versions("tools", 1)[0];
    assert_eq!(
        (&version["state"], &version["current"]),
        (&json!("good"), &json!(true)),
        "{version}"
    );
    let after = right(&asked[..20]);
    assert!(before == 0 && after >= 10, "{before} answers of 20 were right, {after} are");
    assert_eq!(answer("translation", ASKED[0]), known, "other domains have the base");
    service.post("/rollback", json!({ "domain": "tools", "version": 0 }));
    assert_eq!(right(&asked[..20]), before);
}

#[test]
fn a_stream_that_was_accepted_ends_whole_when_the_service_is_told_to_end() {
    let folder = TestFolder::new();
    let service = start(&folder, &[]);
    let body = json!({ "model": "answers", "prompt": ASKED[0], "temperature": 2, "n": 16, "max_tokens": 150 });
    let stream = service.open_stream(TEXT, body);
    stream.peek(&mut [0]).unwrap(); // the answer has begun
    service.signal("TERM");
    let found = joined(&read_events(stream), 16);
    assert!(found.iter().all(|(_, finish)| finish == "stop" || finish == "length"), "{found:?}");
}

#[test]
fn errors_have_openai_s_form() {
    let folder = TestFolder::new();
    let model = language_model().to_str().unwrap();
    let options = ["--language-model", model, "--most-body", "2000"];
    let service = Instance::with_token(folder.path(), &options, Some("secret"));
    let send = |method: &str, path: &str, body: &str| {
        let (status, answer) =
            service.send(method, path, "Authorization: Bearer secret\r\n", body).unwrap();
        let error = &answer["error"];
        assert!(
            status == 200 || error["message"].is_string() && error["type"].is_string(),
            "{path}: {answer}"
        );
        (status, answer)
    };
    let (status, answer) = service.send("GET", "/v1/models", "", "").unwrap();
    assert_eq!((status, &answer["error"]["code"]), (401, &json!("invalid_api_key")));
    let post =
        |model: &str, change: Value| send("POST", CHAT, &chat(model, "a", change).to_string());
    for model in ["nothing", "translation:Rail", "translations", "translation:"] {
        let (status, answer) = post(model, json!({}));
        assert_eq!((status, &answer["error"]["code"]), (404, &json!("model_not_found")), "{model}");
    }
    let (status, answer) = post("answers", json!({ "tools": [{}] }));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("tools")));
    let long = chat("answers", &"rot ".repeat(300), json!({}));
    let (status, answer) = send("POST", CHAT, &long.to_string());
    assert_eq!(status, 400, "{answer}");
    assert!(answer["error"]["message"].as_str().unwrap().contains("200"), "{answer}");
    let many = json!({ "model": "answers", "prompt": vec!["a"; 9], "n": 8 }).to_string();
    let large = chat("answers", &"x".repeat(3000), json!({})).to_string();
    for (method, path, body, expected) in [
        ("POST", CHAT, "{", 400),
        ("POST", CHAT, "[]", 400),
        ("POST", TEXT, &many, 400),
        ("POST", TEXT, &large, 413),
        ("GET", TEXT, "", 405),
        ("GET", "/v1/nothing", "", 404),
        ("GET", "/v1/models/nothing", "", 404),
        ("GET", "/v1/models/%ff", "", 400),
        ("GET", "/v1/models/translation", "", 200),
    ] {
        assert_eq!(send(method, path, body).0, expected, "{method} {path} {body}");
    }
    let body = json!({ "domain": "rail", "source": "a", "target": "b" }).to_string();
    send("POST", "/terms", &body);
    let models = send("GET", "/v1/models", "").1;
    let names: Vec<_> =
        models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(names, ["translation", "translation:rail", "answers"]);
}

#[test]
fn a_language_model_that_cannot_be_served_is_refused_at_the_start() {
    let folder = TestFolder::new();
    let start = |model: &std::path::Path| {
        common::fails_to_start(folder.path(), &["--language-model", model.to_str().unwrap()])
    };
    assert!(start(common::base()).contains("encoder"), "{}", start(common::base()));
    assert!(start(&folder.path().join("nothing")).contains("nothing"));
    assert!(start(&folder.path().join("translation")).contains("may not begin with"));
}
