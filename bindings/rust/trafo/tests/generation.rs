//! Generation: pieces, sessions, samples, and a generator on another thread.

mod common;

use std::sync::mpsc;

use common::{TestFolder, corpus, tokenizer};
use trafo::{
    Architecture, CancelToken, ErrorCode, FinishReason, GenerationOptions, Generator, Model,
    ModelConfig, Result, Sampling, Tokenizer, TranslateOptions,
};

fn language_model(tokenizer: &Tokenizer) -> Result<Model> {
    let config = ModelConfig::new(tokenizer.vocabulary())
        .architecture(Architecture::DecoderLm)
        .decoder_layers(1)
        .width(16)
        .ffn_width(32)
        .heads(2)
        .max_positions(64);
    let mut model = Model::new(&config, 3)?;
    model.prepare_inference()?;
    Ok(model)
}

fn drawing(length: usize) -> GenerationOptions {
    let decoding = TranslateOptions::new().max_length(length).sampling(Sampling::new().min_p(0.01));
    GenerationOptions::new().decoding(decoding)
}

#[test]
fn pieces_are_the_text_of_tokens() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = language_model(&tokenizer)?;
    let mut generator = Generator::new(&model, &tokenizer, 0)?;
    let mut options = drawing(10).alternatives(3);
    options.decoding.n_best = 2;
    options.decoding.word_scores = true;
    let prompts = ["der kleine Hund", "alte"];
    let mut texts = vec![String::new(); 4];
    let mut tokens = vec![Vec::new(); 4];
    for piece in generator.generate(&prompts, &options)? {
        let piece = piece?;
        assert_eq!(piece.alternatives.len(), 3);
        assert!(piece.log_probability.is_some_and(|p| p < 0.0));
        texts[piece.sequence].push_str(&piece.text);
        tokens[piece.sequence].extend(piece.token);
        assert_eq!(piece.generated_tokens, tokens[piece.sequence].len());
        assert_eq!(piece.finish.is_some(), piece.generated_tokens == 10 || piece.token == Some(2));
    }
    let decoding = options.decoding.clone().end_source(trafo::FrameToken::Off);
    let translated = model.translate(&tokenizer, &prompts, &decoding)?;
    let expected: Vec<_> =
        translated.iter().flat_map(|t| t.hypotheses.iter().map(|h| h.text.clone())).collect();
    assert_eq!(texts, expected);
    assert_eq!(generator.generate(&prompts, &options)?.texts()?, expected);
    // Sequences end with the iterator.
    drop(generator.generate(&prompts, &options)?);
    assert_eq!(generator.next_piece(None)?, None);
    Ok(())
}

#[test]
fn a_session_reads_new_tokens_alone() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = language_model(&tokenizer)?;
    let mut session = Generator::new(&model, &tokenizer, 1)?;
    let mut text = tokenizer.encode("der alte")?;
    let mut known = 0;
    for _ in 0..3 {
        let mut alone = Generator::new(&model, &tokenizer, 0)?;
        let options = drawing(5);
        let expected: Result<Vec<_>> =
            alone.generate_ids(&[&text], &options)?.map(|piece| Ok(piece?.token)).collect();
        let found: Vec<_> = session.generate_ids(&[&text], &options)?.collect::<Result<_>>()?;
        assert_eq!(found.iter().map(|piece| piece.token).collect::<Vec<_>>(), expected?);
        assert!(found.iter().all(|piece| piece.cached_tokens == known));
        text.extend(found.iter().filter_map(|piece| piece.token));
        known = text.len() - 1; // the last token was not read
        text.extend(tokenizer.encode("Baum")?);
    }
    Ok(())
}

#[test]
fn a_draft_changes_no_token() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = language_model(&tokenizer)?;
    let folder = TestFolder::new();
    let path = folder.join("draft.safetensors");
    model.save(&path)?;
    let mut generator = Generator::new(&model, &tokenizer, 0)?;
    let tokens = |generator: &mut Generator, options: &GenerationOptions| -> Result<Vec<_>> {
        generator.generate(&["der kleine"], options)?.collect()
    };
    let expected = tokens(&mut generator, &drawing(12))?;
    let drafting = drawing(12).draft_tokens(4);
    let error = generator.start(&["der"], &drafting).unwrap_err();
    assert!(error.to_string().contains("the generator has no draft model"), "{error}");
    generator.load_draft(&path)?;
    let found = tokens(&mut generator, &drafting)?;
    let of = |pieces: &[trafo::GenerationPiece]| {
        pieces.iter().map(|piece| (piece.token, piece.text.clone())).collect::<Vec<_>>()
    };
    assert_eq!(of(&found), of(&expected));
    let last = found.last().unwrap();
    assert!(last.drafted_tokens > 0 && last.accepted_tokens == last.drafted_tokens);
    Ok(())
}

#[test]
fn a_thread_serves_channels() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = language_model(&tokenizer)?;
    let mut generator = Generator::new(&model, &tokenizer, 4)?;
    drop(model); // the generator has what it needs
    let prompts = ["der", "der kleine", "die", "rote"];
    let (requests, incoming) = mpsc::channel::<(String, mpsc::Sender<String>)>();
    let server = std::thread::spawn(move || -> Result<()> {
        let mut clients = std::collections::HashMap::new();
        loop {
            let request =
                if clients.is_empty() { incoming.recv().ok() } else { incoming.try_recv().ok() };
            match request {
                Some((prompt, client)) => {
                    let _ = clients.insert(generator.start(&[prompt], &drawing(6))?, client);
                }
                None if clients.is_empty() => return Ok(()),
                None => {}
            }
            let Some(piece) = generator.next_piece(None)? else { continue };
            let gone = clients[&piece.sequence].send(piece.text).is_err();
            if gone || piece.finish.is_some() {
                generator.end(piece.sequence)?;
                clients.remove(&piece.sequence);
            }
        }
    });
    let answers: Vec<_> = prompts
        .iter()
        .map(|prompt| {
            let (sender, receiver) = mpsc::channel();
            requests.send(((*prompt).to_owned(), sender)).unwrap();
            receiver
        })
        .collect();
    drop(requests);
    let texts: Vec<String> = answers.iter().map(|answer| answer.iter().collect()).collect();
    server.join().unwrap()?;
    assert!(texts.iter().any(|text| !text.is_empty()));
    Ok(())
}

#[test]
fn options_do_what_they_say() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = language_model(&tokenizer)?;
    let mut generator = Generator::new(&model, &tokenizer, 0)?;
    let greedy =
        |options: GenerationOptions| options.decoding(TranslateOptions::new().max_length(4));
    let first = |generator: &mut Generator, options: &GenerationOptions| -> Result<_> {
        let piece = generator.generate(&["der"], options)?.next().unwrap()?;
        Ok((piece.token.unwrap(), piece.finish))
    };
    let (best, finish) = first(&mut generator, &greedy(GenerationOptions::new()))?;
    assert_eq!(finish, None);
    let banned = greedy(GenerationOptions::new().banned_tokens(&[best]));
    assert_ne!(first(&mut generator, &banned)?.0, best);
    let biased = greedy(GenerationOptions::new().logit_bias(&[(best, -100.0)]));
    assert_eq!(first(&mut generator, &biased)?, first(&mut generator, &banned)?);
    let stopping = greedy(GenerationOptions::new().stop_tokens(&[best]));
    assert_eq!(first(&mut generator, &stopping)?, (best, Some(FinishReason::Stop)));
    let only = GenerationOptions::new().json_schema("{\"enum\": [true, null]}");
    let value = generator.generate(&["der"], &only)?.texts()?.remove(0);
    assert!(["true", "null"].contains(&value.trim_start()), "{value}");
    let unknown = GenerationOptions::new().json_schema("{\"items\": {\"format\": \"uri\"}}");
    let error = generator.generate(&["der"], &unknown).unwrap_err();
    assert!(error.to_string().contains("#/items/format"), "{error}");
    let text = generator.generate(&["der"], &drawing(12))?.texts()?.remove(0);
    let stop: String = text.chars().skip(2).take(2).collect();
    let stopped = generator.generate(&["der"], &drawing(12).stop([stop.clone()]))?.texts()?;
    assert_eq!(stopped[0], text[..text.find(&stop).unwrap()]);

    let token = CancelToken::new();
    let mut options = drawing(4);
    options.decoding.cancel = Some(token.clone());
    let mut pieces = generator.generate(&["der"], &options)?;
    pieces.next().unwrap()?;
    token.cancel();
    assert_eq!(pieces.next().unwrap().unwrap_err().code(), ErrorCode::Cancelled);
    assert!(pieces.next().is_none());
    drop(pieces);
    let refused = generator.start(&["der"], &greedy(GenerationOptions::new().stop([""])));
    assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}
