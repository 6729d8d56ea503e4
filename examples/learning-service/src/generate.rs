//! The language model of the OpenAI interface: one thread generates for all requests together.

use std::collections::HashMap;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use trafo::{
    FinishReason, GenerationOptions, Generator, Model, Tokenizer, find_model, find_vocabulary,
};

use crate::fault::{Fault, Result};
use crate::settings::Settings;

/// Sequences in flight at which further requests wait.
const MOST_SEQUENCES: usize = 32;
/// Ended sequences whose KV cache stays, for the next turn of a conversation.
const KEPT: usize = 8;

/// Prompts of a request.
pub enum Prompts {
    Texts(Vec<String>),
    Ids(Vec<Vec<i32>>),
}

/// Text that a token adds to one of the sequences of a request.
#[derive(Debug)]
pub struct Piece {
    /// Number of the sequence, prompt by prompt.
    pub sequence: usize,
    pub text: String,
    pub finish: Option<FinishReason>,
    /// Counts up to here.
    pub prompt_tokens: usize,
    pub cached_tokens: usize,
    pub generated_tokens: usize,
}

pub type Pieces = UnboundedReceiver<trafo::Result<Piece>>;
type Client = UnboundedSender<trafo::Result<Piece>>;

struct Request {
    prompts: Prompts,
    options: GenerationOptions,
    client: Client,
}

pub struct LanguageModel {
    /// Name of its folder.
    pub name: String,
    pub tokenizer: Tokenizer,
    /// `None` while the model is dropped.
    requests: Option<SyncSender<Request>>,
    worker: Option<JoinHandle<()>>,
}

impl LanguageModel {
    /// Loads a decoder-only model and its vocabulary from a folder.
    pub fn open(folder: &Path, settings: &Settings) -> Result<Self> {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.is_empty() || name.starts_with(crate::openai::TRANSLATION) {
            return Err(Fault::Invalid(format!(
                "--language-model {}: the folder's name is the model's, and may not begin with {:?}",
                folder.display(),
                crate::openai::TRANSLATION
            )));
        }
        let tokenizer = Tokenizer::load(find_vocabulary(folder)?)?;
        let mut model = Model::load_on(&settings.server().options(), find_model(folder)?)?;
        model.prepare_inference()?;
        let generator = Generator::new(&model, &tokenizer, KEPT)?;
        let (requests, incoming) = sync_channel(settings.queue);
        let thread = std::thread::Builder::new().name("generator".into());
        let worker = thread.spawn(move || work(generator, &incoming));
        let worker = worker.map_err(|error| Fault::Internal(error.to_string()))?;
        Ok(Self { name: name.into(), tokenizer, requests: Some(requests), worker: Some(worker) })
    }

    /// The pieces of the sequences that continue the prompts. Who drops them ends the sequences.
    pub fn submit(&self, prompts: Prompts, options: GenerationOptions) -> Result<Pieces> {
        let (client, pieces) = unbounded_channel();
        let requests = self.requests.as_ref().expect("it is there until the end");
        match requests.try_send(Request { prompts, options, client }) {
            Ok(()) => Ok(pieces),
            Err(TrySendError::Full(_)) => {
                Err(Fault::Unavailable("the queue is full, try again later".into()))
            }
            Err(TrySendError::Disconnected(_)) => {
                Err(Fault::Internal("the thread of the model has ended".into()))
            }
        }
    }
}

impl Drop for LanguageModel {
    /// Generates what was accepted, for those who still wait for it.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(worker) = self.worker.take() {
            // A worker that panicked has said so, and its clients have been told.
            let _ = worker.join();
        }
    }
}

/// Clients of the sequences in flight, with the number that each sequence has in its request.
type Clients = HashMap<usize, (usize, Client)>;

fn work(mut generator: Generator, requests: &Receiver<Request>) {
    let mut clients = Clients::new();
    loop {
        while clients.len() < MOST_SEQUENCES {
            let next =
                if clients.is_empty() { requests.recv().ok() } else { requests.try_recv().ok() };
            match next {
                Some(request) => begin(&mut generator, request, &mut clients),
                None if clients.is_empty() => return,
                None => break,
            }
        }
        step(&mut generator, &mut clients);
    }
}

fn begin(generator: &mut Generator, request: Request, clients: &mut Clients) {
    let Request { prompts, options, client } = request;
    if client.is_closed() {
        return;
    }
    let (count, first) = match &prompts {
        Prompts::Texts(texts) => (texts.len(), generator.start(texts, &options)),
        Prompts::Ids(rows) => (rows.len(), generator.start_ids(rows, &options)),
    };
    match first {
        Ok(first) => {
            let added = 0..count * options.decoding.n_best;
            clients.extend(added.map(|number| (first + number, (number, client.clone()))));
        }
        // Nobody listens if the client has gone.
        Err(error) => drop(client.send(Err(error))),
    }
}

/// Takes a piece, and gives it to its client.
fn step(generator: &mut Generator, clients: &mut Clients) {
    let piece = match generator.next_piece(None) {
        Ok(Some(piece)) => piece,
        Ok(None) => return clients.clear(),
        Err(error) => {
            for (sequence, (_, client)) in clients.drain() {
                let _ = client.send(Err(error.clone()));
                let _ = generator.end(sequence); // it has such a sequence, or had one
            }
            return;
        }
    };
    let Some((number, client)) = clients.get(&piece.sequence) else { return };
    let sent = client.send(Ok(Piece {
        sequence: *number,
        text: piece.text,
        finish: piece.finish,
        prompt_tokens: piece.prompt_tokens,
        cached_tokens: piece.cached_tokens,
        generated_tokens: piece.generated_tokens,
    }));
    if sent.is_err() || piece.finish.is_some() {
        let _ = generator.end(piece.sequence); // as above
        clients.remove(&piece.sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trafo::{Architecture, ModelConfig, TokenizerOptions, TranslateOptions};

    fn model(bound: usize) -> (LanguageModel, Generator, Receiver<Request>) {
        let options = TokenizerOptions::new(60).soft_limit(true);
        let tokenizer = Tokenizer::train(&["eins zwei drei", "vier fünf sechs"], &options).unwrap();
        let config = ModelConfig::new(tokenizer.vocabulary())
            .architecture(Architecture::DecoderLm)
            .decoder_layers(1)
            .width(16)
            .ffn_width(32)
            .heads(2)
            .max_positions(64);
        let mut model = Model::new(&config, 3).unwrap();
        model.prepare_inference().unwrap();
        let generator = Generator::new(&model, &tokenizer, 1).unwrap();
        let (requests, incoming) = sync_channel(bound);
        let requests = Some(requests);
        (LanguageModel { name: "m".into(), tokenizer, requests, worker: None }, generator, incoming)
    }

    fn options(length: usize) -> GenerationOptions {
        let decoding = TranslateOptions::new().max_length(length).min_length(length - 1);
        GenerationOptions::new().decoding(decoding)
    }

    fn ask(model: &LanguageModel, length: usize) -> Result<Pieces> {
        model.submit(Prompts::Texts(vec!["eins".into()]), options(length))
    }

    #[test]
    fn a_full_queue_and_a_thread_that_has_ended_are_refusals() {
        let (model, _, incoming) = model(1);
        let _waiting = ask(&model, 2).unwrap();
        assert_eq!(ask(&model, 2).unwrap_err().status(), 503);
        drop(incoming);
        assert_eq!(ask(&model, 2).unwrap_err().status(), 500);
    }

    #[test]
    fn clients_that_go_away_end_their_sequences_and_no_others() {
        let (model, mut generator, incoming) = model(8);
        let mut clients = Clients::new();
        let (gone, mut there) = (ask(&model, 40).unwrap(), ask(&model, 4).unwrap());
        let never_begun = ask(&model, 40).unwrap();
        drop(never_begun);
        while let Ok(request) = incoming.try_recv() {
            begin(&mut generator, request, &mut clients);
        }
        assert_eq!(clients.len(), 2);
        step(&mut generator, &mut clients);
        drop(gone);
        while !clients.is_empty() {
            step(&mut generator, &mut clients);
        }
        let mut last = None;
        while let Ok(piece) = there.try_recv() {
            last = Some(piece.unwrap());
        }
        let last = last.unwrap();
        assert_eq!((last.generated_tokens, last.finish), (4, Some(FinishReason::Length)));
        assert_eq!(generator.next_piece(None).unwrap(), None, "nothing is generated for nobody");
    }

    #[test]
    fn a_prompt_that_is_too_long_is_its_client_s_error_alone() {
        let (model, mut generator, incoming) = model(8);
        let mut clients = Clients::new();
        let long = Prompts::Ids(vec![vec![5; 65]]);
        let mut refused = model.submit(long, options(4)).unwrap();
        let mut there = ask(&model, 2).unwrap();
        while let Ok(request) = incoming.try_recv() {
            begin(&mut generator, request, &mut clients);
        }
        step(&mut generator, &mut clients);
        let error = refused.try_recv().unwrap().unwrap_err();
        assert_eq!(error.code(), trafo::ErrorCode::InvalidArgument);
        assert!(there.try_recv().unwrap().is_ok());
    }
}
