//! Tokenizers, corpora, metrics.

mod common;

use std::fs;

use common::{TestFolder, corpus, pairs, tokenizer};
use trafo::{Corpus, CorpusOptions, ErrorCode, Result, Tokenizer, TokenizerOptions};

#[test]
fn tokenizers_round_trip() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = tokenizer(&corpus());
    let text = "der alte Vogel kennt den Tisch";
    let ids = tokenizer.encode(text)?;
    assert!(!ids.is_empty() && !ids.contains(&Tokenizer::EOS));
    assert_eq!(tokenizer.decode(&ids)?, text);
    assert_eq!(tokenizer.encode("")?, []);
    assert_eq!(tokenizer.decode(&[])?, "");
    assert_eq!(tokenizer.token(Tokenizer::EOS)?, "</s>");

    let path = folder.join("vocab.spm");
    tokenizer.save(&path)?;
    for again in [Tokenizer::load(&path)?, Tokenizer::from_bytes(&fs::read(&path).unwrap())?] {
        assert_eq!(again.vocabulary()?, tokenizer.vocabulary()?);
        assert_eq!(again.encode(text)?, ids);
    }
    let shared = tokenizer.clone();
    let there = std::thread::spawn(move || shared.encode(text)).join().unwrap()?;
    assert_eq!(there, ids);

    let lines: Vec<_> = pairs().into_iter().map(|p| p.0).collect();
    let bpe = Tokenizer::train(&lines, &TokenizerOptions::new(80).bpe(true).byte_fallback(false))?;
    assert_eq!(bpe.vocabulary()?, 80);
    assert_eq!(bpe.decode(&bpe.encode(text)?)?, text);
    Ok(())
}

#[test]
fn tokenizers_refuse() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = tokenizer(&corpus());
    assert_eq!(Tokenizer::load(folder.join("none")).unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(Tokenizer::from_bytes(b"no model").unwrap_err().code(), ErrorCode::CorruptFile);
    assert!(Tokenizer::from_bytes(&[]).is_err());
    assert_eq!(Tokenizer::load("").unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(Tokenizer::load("a\0b").unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(tokenizer.encode("a\0b").unwrap_err().code(), ErrorCode::InvalidArgument);
    for id in [-1, i32::MAX, tokenizer.vocabulary()? as i32] {
        assert_eq!(tokenizer.decode(&[id]).unwrap_err().code(), ErrorCode::InvalidArgument);
        assert_eq!(tokenizer.token(id).unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    assert!(Tokenizer::train::<&str>(&[], &TokenizerOptions::new(100)).is_err());
    assert!(Tokenizer::train(&["a b c"], &TokenizerOptions::new(30000)).is_err());
    assert!(Tokenizer::train(&["a b c"], &TokenizerOptions::new(usize::MAX)).is_err());
    Ok(())
}

#[test]
fn corpora_are_read_and_checked() -> Result<()> {
    let folder = TestFolder::new();
    let write = |name: &str, text: &[u8]| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let source = write("a.de", "ein Haus\n\nein Bär\n".as_bytes());
    let target = write("a.en", b"a house\nnothing\na bear\n");
    let corpus = Corpus::load(&source, &target)?;
    let info = corpus.info()?;
    assert_eq!((info.lines, info.pairs, info.dropped_empty), (3, 2, 1));
    assert_eq!(corpus.pair(1)?, ("ein Bär".into(), "a bear".into()));
    assert_eq!(corpus.pair(2).unwrap_err().code(), ErrorCode::InvalidArgument);

    let tsv = Corpus::load_tsv(write("a.tsv", b"ein Haus\ta house\n"))?;
    assert_eq!(tsv.pair(0)?.1, "a house");

    let short = write("short.en", b"a house\n");
    let error = Corpus::load(&source, short).unwrap_err();
    assert!(error.message().contains("short.en"), "{error}");
    let invalid = write("invalid.en", b"a house\nbad \xff\nc\n");
    let error = Corpus::load(&source, invalid).unwrap_err();
    assert!(error.message().contains("invalid.en") && error.message().contains('2'), "{error}");
    let nul = write("nul.en", b"a house\nb\nbad \0\n");
    assert!(Corpus::load(&source, nul).is_err());
    assert!(Corpus::load(&source, write("empty.en", b"")).is_err());
    assert!(Corpus::load_tsv(write("no.tsv", b"no tab\n")).is_err());
    assert_eq!(Corpus::load(&source, folder.join("none")).unwrap_err().code(), ErrorCode::NotFound);
    assert!(Corpus::from_pairs([("fine", "a\0b")]).is_err());
    Ok(())
}

#[test]
fn corpora_stay_on_disk_are_mixed_and_held_out() -> Result<()> {
    let folder = TestFolder::new();
    let lines = |word: &str| (0..40).map(|i| format!("{word} {i}\n")).collect::<String>();
    let (source, target) = (folder.join("a.de"), folder.join("a.en"));
    fs::write(&source, lines("Haus")).unwrap();
    fs::write(&target, lines("house")).unwrap();
    let on_disk = CorpusOptions::new().memory_bytes(0).unpack_directory(folder.join("unpacked"));
    let corpus = Corpus::open(&[&source, &target], &on_disk)?;
    assert_eq!(corpus.info()?.pairs, 40);
    assert_eq!(corpus.pair(39)?, ("Haus 39".into(), "house 39".into()));
    let (rest, held) = corpus.hold_out(4)?;
    assert_eq!((rest.info()?.pairs, held.info()?.pairs), (36, 4));
    let text = Corpus::open(&[&source], &CorpusOptions::new().monolingual(true))?;
    assert_eq!(text.pair(0)?, (String::new(), "Haus 0".into()));
    let mix = Corpus::mix(&[(&rest, 0.5), (&held, 2.0)])?;
    drop((rest, held));
    assert_eq!(mix.info()?.pairs, 40);
    for bad in [
        Corpus::mix(&[]),
        Corpus::mix(&[(&corpus, 0.0)]),
        Corpus::mix(&[(&corpus, 1.0), (&text, 1.0)]),
        Corpus::open::<&str>(&[], &on_disk),
        corpus.hold_out(40).map(|_| corpus.clone()),
    ] {
        assert_eq!(bad.unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    Ok(())
}

#[test]
fn metrics_are_sacrebleus() -> Result<()> {
    let hypotheses = ["the dog sees the tree", "an old bird knows"];
    let references = ["the dog sees the tree", "the old bird knows it"];
    let bleu = trafo::bleu(&hypotheses, &references, false)?;
    assert!(bleu.score > 20.0 && bleu.score < 90.0, "{bleu:?}");
    assert!(bleu.signature.contains("13a") && bleu.signature.contains("exp"), "{bleu:?}");
    let chrf = trafo::chrf(&hypotheses, &references)?;
    assert!(chrf.score > 50.0 && chrf.score < 100.0, "{chrf:?}");
    let upper = ["THE DOG SEES THE TREE", "THE OLD BIRD KNOWS IT"];
    assert_eq!(trafo::bleu(&upper, &references, true)?.score.round(), 100.0);
    assert_eq!(
        trafo::bleu(&["a"], &["a", "b"], false).unwrap_err().code(),
        ErrorCode::InvalidArgument
    );
    Ok(())
}
