//! OpenAI's interface: chat, completions and models.
//!
//! The model `translation` translates with the base, `translation:DOMAIN` with the version that the domain serves, and the language
//! model has the name of its folder. Of a conversation, a translation model translates the last message of the user.

mod answer;
mod request;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use trafo::{FinishReason, GenerationOptions, Sampling, TranslateOptions};

use crate::api::{App, MOST_LINES, blocking, domain_name, read, respond, translate_lines};
use crate::fault::Fault;
use crate::generate::{LanguageModel, Piece, Pieces, Prompts};
use crate::serve::{Draw, Line, Search};
use answer::{Choice, Head, Usage};
use request::{Asked, Fields, Input};

pub use answer::{Kind, Wrong, refuse};

/// Name of the translation model. The names of the domains' models begin with it.
pub const TRANSLATION: &str = "translation";
/// Sequences of a request.
const MOST_SEQUENCES: usize = 64;
/// Events that wait for a client.
const MOST_EVENTS: usize = 64;
/// Only for the metrics.
const CLIENT_GONE: u16 = 499;

type Result<T, E = Wrong> = std::result::Result<T, E>;

/// Numbers of the metrics.
#[derive(Default)]
pub struct Counts {
    requests: Mutex<BTreeMap<u16, u64>>,
    prompt: AtomicU64,
    completion: AtomicU64,
}

impl Counts {
    fn add(&self, usage: &Usage) {
        self.prompt.fetch_add(usage.prompt as u64, Ordering::Relaxed);
        self.completion.fetch_add(usage.completion as u64, Ordering::Relaxed);
    }
    /// In Prometheus' text format.
    pub fn text(&self) -> String {
        let mut text = String::from(
            "# HELP openai_requests_total Requests to /v1, by status.\n# TYPE openai_requests_total counter\n",
        );
        for (status, count) in self.requests.lock().expect("no thread panics with the lock").iter()
        {
            let _ = writeln!(text, "openai_requests_total{{code=\"{status}\"}} {count}");
        }
        for (name, value) in [("prompt", &self.prompt), ("completion", &self.completion)] {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(
                text,
                "# HELP openai_{name}_tokens_total Tokens that answers were told to have used.\n# TYPE openai_{name}_tokens_total counter\nopenai_{name}_tokens_total {value}"
            );
        }
        text
    }
}

/// Counts a request. If the client goes away before the answer, its future, and this with it, is dropped.
struct Counted {
    app: Arc<App>,
    status: u16,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut requests = self.app.openai.requests.lock().expect("no thread panics with the lock");
        *requests.entry(self.status).or_default() += 1;
    }
}

pub(crate) async fn chat(State(app): State<Arc<App>>, request: Request) -> Response {
    complete(app, request, Kind::Chat).await
}

pub(crate) async fn completions(State(app): State<Arc<App>>, request: Request) -> Response {
    complete(app, request, Kind::Text).await
}

async fn complete(app: Arc<App>, request: Request, kind: Kind) -> Response {
    let mut counted = Counted { app: app.clone(), status: CLIENT_GONE };
    let response = completed(&app, request, kind).await.unwrap_or_else(Wrong::response);
    counted.status = response.status().as_u16();
    response
}

async fn completed(app: &Arc<App>, request: Request, kind: Kind) -> Result<Response> {
    let mut fields = Fields::new(read(request, app.core.settings.most_body).await?)?;
    let asked = Asked::take(&mut fields, kind)?;
    fields.end()?;
    match &app.language {
        Some(language) if language.name == asked.model => {
            generate(app, language, asked, kind).await
        }
        _ => translate(app, asked, kind).await,
    }
}

/// The domain of a translation model.
fn domain_of(model: &str) -> Result<&str> {
    let domain = match model.strip_prefix(TRANSLATION) {
        Some("") => Some("default"),
        Some(rest) => rest.strip_prefix(':'),
        None => None,
    };
    match domain {
        Some(domain) if domain_name(domain).is_ok() => Ok(domain),
        _ => Err(no_model(model)),
    }
}

fn no_model(model: &str) -> Wrong {
    Wrong {
        code: Some("model_not_found"),
        param: Some("model".into()),
        ..Wrong::new(404, format!("there is no model {model:?}; /v1/models lists them"))
    }
}

async fn translate(app: &Arc<App>, asked: Asked, kind: Kind) -> Result<Response> {
    let domain = domain_of(&asked.model)?;
    let texts = match asked.input {
        Input::Prompts(prompts) => prompts,
        Input::Messages(messages) => vec![request::last_of_user(&messages)?],
    };
    // Lines of all texts, and how many each text has.
    let lines_of = |text: String| match app.core.base.frame.template {
        Some(_) => vec![text], // a message may have several lines
        None => text.lines().map(String::from).collect(),
    };
    let lines: Vec<Vec<String>> = texts.into_iter().map(lines_of).collect();
    let counts: Vec<usize> = lines.iter().map(Vec::len).collect();
    let lines = lines.concat();
    if lines.len() > MOST_LINES {
        return Err(Wrong::new(400, format!("a request has at most {MOST_LINES} lines")));
    }
    let beam = app.core.settings.beam.max(asked.count);
    let mut search = Search::new(app.core.models.id(domain), beam);
    search.count = asked.count;
    search.presence_penalty = asked.presence_penalty;
    search.frequency_penalty = asked.frequency_penalty;
    let temperature = asked.temperature.unwrap_or(if asked.top_p.is_some() { 1.0 } else { 0.0 });
    if temperature > 0.0 {
        static REQUESTS: AtomicU64 = AtomicU64::new(0);
        let request = REQUESTS.fetch_add(1, Ordering::Relaxed);
        let top_p = asked.top_p.unwrap_or(1.0);
        search.draw = Some(Draw { temperature, top_p, seed: asked.seed, request });
    }
    let found = match lines.is_empty() {
        true => Vec::new(),
        false => translate_lines(app, lines, search).await?,
    };
    let mut usage =
        Usage { prompt: found.iter().map(|line| line.source_tokens).sum(), ..Usage::default() };
    let (mut rest, mut choices) = (found.as_slice(), Vec::new());
    for count in counts {
        let text;
        (text, rest) = rest.split_at(count);
        for rank in 0..asked.count {
            let (choice, tokens) = choice_of(app, text, rank, asked.most, &asked.stop)?;
            usage.completion += tokens;
            choices.push(choice);
        }
    }
    app.openai.add(&usage);
    let fingerprint = found.first().map(|line| format!("{domain}@{}", line.version));
    let head = Head::new(kind, &asked.model, fingerprint, asked.with_usage);
    if !asked.stream {
        return Ok(respond(200, "application/json", head.whole(&choices, &usage).to_string()));
    }
    let mut events = String::new();
    for (index, choice) in choices.iter().enumerate() {
        events += &head.begin(index);
        for line in choice.text.split_inclusive('\n') {
            events += &head.text(index, line);
        }
        events += &head.finish(index, choice.finish);
    }
    Ok(respond(200, EVENTS, events + &head.end(&usage)))
}

/// A translation of a text of several lines, and its tokens: the hypotheses of a rank, up to the most tokens and a stop string.
fn choice_of(
    app: &App,
    lines: &[Line],
    rank: usize,
    most: Option<usize>,
    stop: &[String],
) -> Result<(Choice, usize)> {
    let (mut text, mut tokens, mut cut) = (String::new(), 0, false);
    for (number, line) in lines.iter().enumerate() {
        let found = &line.hypotheses[rank.min(line.hypotheses.len() - 1)];
        if number > 0 {
            text.push('\n');
        }
        let room = most.map_or(usize::MAX, |most| most - tokens);
        cut |= found.cut || found.tokens.len() > room;
        if found.tokens.len() > room {
            let kept = app.core.base.frame.tokenizer.decode(&found.tokens[..room]);
            text += &kept.map_err(Fault::from)?;
            tokens += room;
            break;
        }
        text += &found.text;
        tokens += found.tokens.len();
    }
    let stopped = stop.iter().filter_map(|stop| text.find(stop.as_str())).min();
    if let Some(end) = stopped {
        text.truncate(end);
    }
    let finish = if cut && stopped.is_none() { "length" } else { "stop" };
    Ok((Choice { text, finish }, tokens))
}

/// Options of the language model. OpenAI's default is to draw from the whole distribution.
fn options_of(asked: &Asked, samples: usize) -> GenerationOptions {
    let mut decoding = TranslateOptions::new()
        .max_length(asked.most.unwrap_or(0))
        .n_best(samples)
        .presence_penalty(asked.presence_penalty)
        .frequency_penalty(asked.frequency_penalty);
    let temperature = asked.temperature.unwrap_or(1.0);
    if temperature > 0.0 {
        let top_p = asked.top_p.unwrap_or(1.0);
        decoding = decoding
            .sampling(Sampling::new().temperature(temperature).top_p(top_p).seed(asked.seed));
    }
    GenerationOptions::new().decoding(decoding).stop(asked.stop.iter().cloned())
}

async fn generate(
    app: &Arc<App>,
    language: &LanguageModel,
    asked: Asked,
    kind: Kind,
) -> Result<Response> {
    // Without draws, the sequences of a prompt are equal: the engine takes each as a prompt.
    let draws = asked.temperature != Some(0.0);
    let copies = if draws { 1 } else { asked.count };
    let options = options_of(&asked, if draws { asked.count } else { 1 });
    let prompts = match &asked.input {
        Input::Prompts(texts) => Prompts::Texts(request::repeated(texts, copies)),
        Input::Messages(messages) => {
            let conversation = json!({ "messages": messages }).to_string();
            let tokens = language.tokenizer.encode_chat_json(&conversation, true);
            let ids = tokens.map_err(|error| Wrong::new(400, error.to_string()))?.ids;
            Prompts::Ids(vec![ids; copies])
        }
    };
    let sequences = asked.count
        * match &asked.input {
            Input::Prompts(texts) => texts.len(),
            Input::Messages(_) => 1,
        };
    if sequences > MOST_SEQUENCES {
        return Err(Wrong::new(400, format!("a request has at most {MOST_SEQUENCES} sequences")));
    }
    let limit = Duration::from_secs_f64(app.core.settings.time_limit);
    let mut pieces = language.submit(prompts, options)?;
    // Awaited before the answer begins: an error still decides its status.
    let first = next(&mut pieces, limit).await?;
    let head = Head::new(kind, &asked.model, None, asked.with_usage);
    let mut progress = Progress::new(app.clone(), sequences, asked.count);
    if asked.stream {
        let (sender, events) = channel(MOST_EVENTS);
        tokio::spawn(send_events(head, progress, pieces, first, limit, sender));
        return Ok(respond(200, EVENTS, Body::new(Events(events))));
    }
    let all = async {
        let mut piece = first;
        while progress.take(&piece) {
            piece = next(&mut pieces, limit).await?;
        }
        Ok::<_, Wrong>(())
    };
    tokio::time::timeout(limit, all).await.map_err(|_| too_late(limit))??;
    let usage = progress.usage();
    Ok(respond(200, "application/json", head.whole(&progress.choices, &usage).to_string()))
}

fn too_late(limit: Duration) -> Wrong {
    Wrong::new(504, format!("not generated within {limit:?}"))
}

async fn next(pieces: &mut Pieces, limit: Duration) -> Result<Piece> {
    match tokio::time::timeout(limit, pieces.recv()).await {
        Ok(Some(Ok(piece))) => Ok(piece),
        Ok(Some(Err(error))) => Err(Fault::from(error).into()),
        Ok(None) => Err(Wrong::new(500, "the thread of the model has ended".into())),
        Err(_) => Err(too_late(limit)),
    }
}

/// How far the sequences of a request are.
struct Progress {
    app: Arc<App>,
    choices: Vec<Choice>,
    /// Sequences of a prompt.
    samples: usize,
    counts: Vec<Usage>,
    left: usize,
}

impl Progress {
    fn new(app: Arc<App>, sequences: usize, samples: usize) -> Self {
        let choice = || Choice { text: String::new(), finish: "stop" };
        let choices = (0..sequences).map(|_| choice()).collect();
        let counts = vec![Usage::default(); sequences];
        Progress { app, choices, samples, counts, left: sequences }
    }
    /// Whether more pieces are to come.
    fn take(&mut self, piece: &Piece) -> bool {
        let choice = &mut self.choices[piece.sequence];
        choice.text += &piece.text;
        let counts = &mut self.counts[piece.sequence];
        (counts.prompt, counts.cached) = (piece.prompt_tokens, piece.cached_tokens);
        counts.completion = piece.generated_tokens;
        if let Some(finish) = piece.finish {
            choice.finish = if finish == FinishReason::Length { "length" } else { "stop" };
            self.left -= 1;
        }
        self.left > 0
    }
    fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (number, counts) in self.counts.iter().enumerate() {
            usage.completion += counts.completion;
            if number % self.samples == 0 {
                usage.prompt += counts.prompt;
                usage.cached += counts.cached;
            }
        }
        usage
    }
}

impl Drop for Progress {
    /// Also of an answer that nobody waits for any more.
    fn drop(&mut self) {
        self.app.openai.add(&self.usage());
    }
}

const EVENTS: &str = "text/event-stream";

/// Sends what the pieces add. It ends if the client goes away, and the sequences with it.
async fn send_events(
    head: Head,
    mut progress: Progress,
    mut pieces: Pieces,
    first: Piece,
    limit: Duration,
    events: Sender<String>,
) {
    let begin = (0..progress.choices.len()).map(|index| head.begin(index)).collect();
    if events.send(begin).await.is_err() {
        return;
    }
    let mut piece = first;
    loop {
        let more = progress.take(&piece);
        let index = piece.sequence;
        let mut event = String::new();
        if !piece.text.is_empty() {
            event += &head.text(index, &piece.text);
        }
        if piece.finish.is_some() {
            event += &head.finish(index, progress.choices[index].finish);
        }
        if !more {
            event += &head.end(&progress.usage());
        }
        if (!event.is_empty() && events.send(event).await.is_err()) || !more {
            return;
        }
        piece = match next(&mut pieces, limit).await {
            Ok(piece) => piece,
            Err(wrong) => {
                let _ = events.send(answer::event(&wrong.body())).await; // the client may have gone
                return;
            }
        };
    }
}

/// The body of an answer in events.
struct Events(Receiver<String>);

impl hyper::body::Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let event = self.0.poll_recv(context);
        event.map(|event| event.map(|event| Ok(hyper::body::Frame::data(event.into()))))
    }
}

fn listed(id: &str) -> Value {
    json!({ "id": id, "object": "model", "created": 0, "owned_by": "trafo" })
}

/// Names of all models.
async fn names(app: &Arc<App>) -> Result<Vec<String>> {
    let domains = blocking(app, |core| {
        let domains = core.store.domains()?.into_iter();
        Ok(domains.map(|domain| Value::String(domain.name)).collect())
    });
    let domains = domains.await?;
    let domains = domains.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names = vec![TRANSLATION.to_string()];
    names.extend(domains.map(|domain| format!("{TRANSLATION}:{domain}")));
    names.extend(app.language.iter().map(|language| language.name.clone()));
    Ok(names)
}

pub(crate) async fn models(State(app): State<Arc<App>>) -> Response {
    match names(&app).await {
        Ok(names) => {
            let list: Vec<_> = names.iter().map(|name| listed(name)).collect();
            let list = json!({ "object": "list", "data": list });
            respond(200, "application/json", list.to_string())
        }
        Err(wrong) => wrong.response(),
    }
}

pub(crate) async fn model(
    State(app): State<Arc<App>>,
    model: std::result::Result<Path<String>, PathRejection>,
) -> Response {
    let Ok(Path(model)) = model else { return refuse(400, "the model is no UTF-8 text") };
    match names(&app).await {
        Ok(names) if names.contains(&model) => {
            respond(200, "application/json", listed(&model).to_string())
        }
        Ok(_) => no_model(&model).response(),
        Err(wrong) => wrong.response(),
    }
}
