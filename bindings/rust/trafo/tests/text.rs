//! Tokenizers, corpora, metrics.

mod common;

use std::fs;
use std::path::Path;

use common::{TestFolder, corpus, pairs, tokenizer};
use trafo::{
    BleuTokenizer, Corpus, CorpusFormat, CorpusOptions, ErrorCode, EvaluationOptions,
    Normalization, Result, Tokenizer, TokenizerOptions, evaluate, find_vocabulary, sentence_scores,
};

#[test]
fn tokenizers_round_trip() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = tokenizer(&corpus());
    let text = "der alte Vogel kennt den Tisch";
    let ids = tokenizer.encode(text)?;
    assert_eq!(tokenizer.encode_target(text)?, ids); // one model for both sides
    assert!(!ids.is_empty() && !ids.contains(&Tokenizer::EOS));
    assert_eq!(tokenizer.decode(&ids)?, text);
    assert_eq!(tokenizer.encode("")?, []);
    assert_eq!(tokenizer.decode(&[])?, "");
    assert_eq!(tokenizer.token(Tokenizer::EOS)?, "</s>");
    let special = tokenizer.special();
    assert_eq!((special.unk, special.eos), (Tokenizer::UNK, Tokenizer::EOS));
    assert_eq!((special.bos, special.pad), (Some(Tokenizer::BOS), Some(Tokenizer::PAD)));

    let path = folder.join("vocab.spm");
    tokenizer.save(&path)?;
    for again in [Tokenizer::load(&path)?, Tokenizer::from_bytes(&fs::read(&path).unwrap())?] {
        assert_eq!(again.vocabulary(), tokenizer.vocabulary());
        assert_eq!(again.encode(text)?, ids);
    }
    let shared = tokenizer.clone();
    let there = std::thread::spawn(move || shared.encode(text)).join().unwrap()?;
    assert_eq!(there, ids);

    let lines: Vec<_> = pairs().into_iter().map(|p| p.0).collect();
    let bpe = Tokenizer::train(&lines, &TokenizerOptions::new(80).bpe(true).byte_fallback(false))?;
    assert_eq!(bpe.vocabulary(), 80);
    assert_eq!(bpe.decode(&bpe.encode(text)?)?, text);
    Ok(())
}

// The ids of ByT5, in a directory that says which vocabulary it has.
#[test]
fn a_byte_tokenizer() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = Tokenizer::train::<&str>(&[], &TokenizerOptions::new(259).kind("byte"))?;
    assert_eq!(tokenizer.kind(), "byte");
    assert_eq!(tokenizer.vocabulary(), 259);
    assert_eq!(tokenizer.encode("Life ü")?, [79, 108, 105, 104, 35, 198, 191]);
    assert_eq!(tokenizer.decode(&[79, 108, 105, 104, 35, 198, 191, 1, 198])?, "Life ü");
    let special = tokenizer.special();
    assert_eq!((special.unk, special.eos, special.bos, special.pad), (2, 1, None, Some(0)));
    assert_eq!(find_vocabulary(folder.path()).unwrap_err().code(), ErrorCode::NotFound);
    tokenizer.save(folder.path())?;
    assert_eq!(find_vocabulary(folder.path())?, folder.join("vocab.byte"));
    assert_eq!(Tokenizer::load(folder.path())?.kind(), "byte");
    let unknown = Tokenizer::train(&["a"], &TokenizerOptions::new(259).kind("word"));
    assert_eq!(unknown.unwrap_err().code(), ErrorCode::InvalidArgument);
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
    for id in [-1, i32::MAX, tokenizer.vocabulary() as i32] {
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
    let info = corpus.info();
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
fn json_lines_say_what_they_are() -> Result<()> {
    let folder = TestFolder::new();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let open = |path: &Path, format| {
        Corpus::open(&[path], &CorpusOptions::new().monolingual(true).format(format))
    };
    let record = r#"{"prompt": "ein\nBär", "completion": "a bear"}"#;
    let file = write("pairs.txt", &format!("\n{record}\n"));
    for format in [CorpusFormat::Auto, CorpusFormat::JsonLines] {
        let pairs = open(&file, format)?;
        let info = pairs.info();
        assert_eq!((info.lines, info.pairs, info.texts, info.json_lines), (2, 1, 2, true));
        assert_eq!(pairs.pair(0)?, ("ein\nBär".into(), "a bear".into()));
    }
    let text = open(&file, CorpusFormat::Text)?;
    assert_eq!((text.info().texts, text.info().json_lines), (1, false));
    assert_eq!(text.pair(0)?, (String::new(), record.into()));
    let preferences = write("p.jsonl", r#"{"prompt": "a", "chosen": "b", "rejected": "c"}"#);
    let preferences = open(&preferences, CorpusFormat::Auto)?;
    assert_eq!((preferences.info().texts, preferences.rejected(0)?), (3, "c".into()));
    let error =
        open(&write("bad.jsonl", &format!("{record}\n{{}}\n")), CorpusFormat::Auto).unwrap_err();
    assert_eq!(error.code(), ErrorCode::CorruptFile);
    assert!(error.message().contains("bad.jsonl:2: there is no prompt"), "{error}");
    Ok(())
}

#[test]
fn files_of_token_ids() -> Result<()> {
    let folder = TestFolder::new();
    let lines = ["a b c d e", "b c", "d e f a b c"];
    let options = TokenizerOptions::new(40).soft_limit(true);
    let tokenizer = Tokenizer::train(&lines, &options)?;
    let file = folder.join("text.txt");
    fs::write(&file, lines.join("\n")).unwrap();
    let text = Corpus::open(&[&file], &CorpusOptions::new().monolingual(true))?;
    for format in [CorpusFormat::LlmC, CorpusFormat::NanoGpt, CorpusFormat::Megatron] {
        let path = folder.join(&format!("{format}.bin"));
        let (documents, tokens) = text.write_ids(&tokenizer, format, &path)?;
        let mut options = CorpusOptions::new().format(format);
        if format != CorpusFormat::Megatron {
            options = options.document_end(usize::try_from(tokenizer.special().eos).unwrap());
        }
        let ids = Corpus::open(&[&path], &options)?;
        let info = ids.info();
        assert_eq!((info.pairs, info.ids, info.texts, documents), (3, true, 1, 3), "{format}");
        assert!(tokens >= 6);
        let error = ids.write_ids(&tokenizer, format, &path).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
    }
    let error = text.write_ids(&tokenizer, CorpusFormat::Text, &file).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    fs::write(&file, "odd").unwrap();
    let options = CorpusOptions::new().format(CorpusFormat::NanoGpt);
    assert_eq!(Corpus::open(&[&file], &options).unwrap_err().code(), ErrorCode::CorruptFile);
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
    assert_eq!(corpus.info().pairs, 40);
    assert_eq!(corpus.pair(39)?, ("Haus 39".into(), "house 39".into()));
    let (rest, held) = corpus.hold_out(4)?;
    assert_eq!((rest.info().pairs, held.info().pairs), (36, 4));
    let text = Corpus::open(&[&source], &CorpusOptions::new().monolingual(true))?;
    assert_eq!(text.pair(0)?, (String::new(), "Haus 0".into()));
    let mix = Corpus::mix(&[(&rest, 0.5), (&held, 2.0)])?;
    drop((rest, held));
    assert_eq!(mix.info().pairs, 40);
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

const HYPOTHESES: [&str; 2] = ["the cat sat on the mat", "There is a dog."];
const REFERENCES: [&str; 2] = ["the cat sat on the mat", "There is a cat."];
const MORE_REFERENCES: [&str; 2] = ["a cat sat on that mat", "There is one dog."];

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn sentences_have_scores_of_their_own() -> Result<()> {
    let options = EvaluationOptions::new();
    let scores =
        sentence_scores(&["two words", HYPOTHESES[1]], &["two words", REFERENCES[1]], &options)?;
    // Orders longer than a translation are left out.
    assert!(near(scores[0].bleu, 100.0) && near(scores[0].chrf, 100.0), "{scores:?}");
    let alone = trafo::chrf(&HYPOTHESES[1..], &REFERENCES[1..])?;
    assert!(scores[1].bleu < 99.0 && near(scores[1].chrf, alone.score), "{scores:?}");
    let refused = sentence_scores(&HYPOTHESES, &REFERENCES[1..], &options);
    assert_eq!(refused.unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}

#[test]
fn evaluation_has_the_parts_of_bleu() -> Result<()> {
    let options = EvaluationOptions::new();
    let one = evaluate(&HYPOTHESES, &[&REFERENCES], None, &options)?;
    // 10 of 11 words, 7 of 9 pairs, 5 of 7 triples, 3 of 5 quadruples.
    assert_eq!((one.matches, one.totals), ([10, 7, 5, 3], [11, 9, 7, 5]));
    assert_eq!((one.hypothesis_tokens, one.reference_tokens), (11, 11));
    for (precision, (matches, total)) in
        one.precisions.iter().zip(one.matches.iter().zip(one.totals))
    {
        assert!(near(*precision, 100.0 * *matches as f64 / total as f64), "{one:?}");
    }
    let product = 10.0 / 11.0 * 7.0 / 9.0 * 5.0 / 7.0 * 3.0 / 5.0_f64;
    assert!(near(one.bleu.score, 100.0 * product.powf(0.25)), "{one:?}");
    assert!(near(one.brevity_penalty, 1.0) && one.unspaced_references == 0, "{one:?}");
    assert_eq!(one.chrf.score, trafo::chrf(&HYPOTHESES, &REFERENCES)?.score);
    assert!(one.bleu_signature.starts_with("nrefs:1|case:mixed|eff:no|tok:13a|"), "{one:?}");
    assert!(one.chrf_signature.starts_with("nrefs:1|case:mixed|eff:yes|nc:6|"), "{one:?}");
    assert!(one.baseline_bleu.is_none() && one.baseline_chrf.is_none(), "{one:?}");
    assert_eq!((one.bleu.mean, one.bleu.half_width, one.bleu.p_value), (None, None, None));

    let two = evaluate(&HYPOTHESES, &[&REFERENCES, &MORE_REFERENCES], None, &options)?;
    assert_eq!(two.matches, [11, 8, 5, 3]);
    assert!(two.bleu.score > one.bleu.score && two.bleu_signature.starts_with("nrefs:2|"));

    let upper = HYPOTHESES.map(str::to_uppercase);
    let lowercase = EvaluationOptions::new().lowercase(true);
    let caseless = evaluate(&upper, &[&REFERENCES], None, &lowercase)?;
    assert_eq!(caseless.matches, one.matches);
    assert!(caseless.bleu_signature.contains("|case:lc|"), "{caseless:?}");
    Ok(())
}

#[test]
fn evaluation_resamples_and_compares() -> Result<()> {
    let options = EvaluationOptions::new().resamples(200).seed(7);
    let baseline = Some(&HYPOTHESES[..]);
    let compared = evaluate(&REFERENCES, &[&REFERENCES], baseline, &options)?;
    assert!(near(compared.bleu.score, 100.0) && near(compared.bleu.mean.unwrap(), 100.0));
    assert_eq!(compared.bleu.half_width, Some(0.0));
    let p = compared.bleu.p_value.unwrap();
    assert!(p > 0.0 && p < 1.0, "{compared:?}");
    let (bleu, chrf) = (compared.baseline_bleu.unwrap(), compared.baseline_chrf.unwrap());
    let alone = evaluate(&HYPOTHESES, &[&REFERENCES], None, &options.clone().confidence(true))?;
    assert_eq!((bleu, chrf), (alone.bleu, alone.chrf)); // the same draws
    assert!(bleu.half_width.unwrap() > 0.0 && bleu.p_value.is_none(), "{bleu:?}");
    assert!(compared.bleu_signature.starts_with("nrefs:1|bs:200|seed:7|"), "{compared:?}");
    assert_eq!(compared, evaluate(&REFERENCES, &[&REFERENCES], baseline, &options)?);
    let other = evaluate(&REFERENCES, &[&REFERENCES], baseline, &options.clone().seed(8))?;
    assert_ne!(other.baseline_bleu, compared.baseline_bleu);
    let same = evaluate(&HYPOTHESES, &[&REFERENCES], baseline, &options)?;
    assert_eq!((same.bleu.p_value, same.chrf.p_value), (Some(1.0), Some(1.0)));
    Ok(())
}

#[test]
fn evaluation_with_every_tokenizer() -> Result<()> {
    let (hypotheses, references) = (["今天天气很好，我们去公园。"], ["今天天气不错，我们去公园。"]);
    let words = |tokenizer| {
        let options = EvaluationOptions::new().tokenize(tokenizer);
        evaluate(&hypotheses, &[&references], None, &options)
    };
    for (tokenizer, name, tokens) in [
        (BleuTokenizer::Mteval13a, "13a", 1),
        (BleuTokenizer::None, "none", 1),
        (BleuTokenizer::Zh, "zh", 13),
        (BleuTokenizer::Intl, "intl", 4), // two phrases, a comma, a full stop
        (BleuTokenizer::Char, "char", 13),
    ] {
        let result = words(tokenizer)?;
        assert_eq!(result.hypothesis_tokens, tokens, "{result:?}");
        assert_eq!(result.unspaced_references, 1, "{result:?}");
        assert!(result.bleu_signature.contains(&format!("|tok:{name}|")), "{result:?}");
    }
    // MeCab is no part of the library. Without it the error says what to install.
    let options = EvaluationOptions::new().tokenize(BleuTokenizer::JaMecab);
    let japanese = ["東京都に住んでいます。"];
    match evaluate(&japanese, &[&japanese], None, &options) {
        Ok(result) => {
            assert_eq!(result.hypothesis_tokens, 8, "{result:?}");
            assert!(result.bleu_signature.contains("|tok:ja-mecab-0.99"), "{result:?}");
        }
        Err(error) => assert_eq!(error.code(), ErrorCode::Unsupported, "{error}"),
    }

    let (source, target): (Vec<_>, Vec<_>) = pairs().into_iter().unzip();
    let tokenizer = tokenizer(&corpus());
    let pieces = target.iter().map(|line| tokenizer.encode(line).unwrap().len() as i64).sum();
    let options = EvaluationOptions::new().subwords(&tokenizer);
    drop(tokenizer); // the options keep it
    let subwords = evaluate(&target, &[&target], None, &options)?;
    assert_eq!((subwords.hypothesis_tokens, subwords.reference_tokens), (pieces, pieces));
    assert!(near(subwords.bleu.score, 100.0), "{subwords:?}");
    assert!(subwords.bleu_signature.contains("|tok:flores200|model:"), "{subwords:?}");
    assert!(evaluate(&source, &[&target], None, &options)?.bleu.score < 50.0);
    for bad in [
        words(BleuTokenizer::Flores200), // without a model
        evaluate(&target, &[&target], None, &options.tokenize(BleuTokenizer::Zh)),
        evaluate(&target[1..], &[&target], None, &EvaluationOptions::new()),
        evaluate(&target, &[&target], Some(&target[1..]), &EvaluationOptions::new()),
        evaluate::<_, &str>(&target, &[], None, &EvaluationOptions::new()),
        evaluate::<&str, &str>(&[], &[&[]], None, &EvaluationOptions::new()),
        evaluate(&target, &[&target], None, &EvaluationOptions::new().resamples(0)),
    ] {
        assert_eq!(bad.unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    Ok(())
}

#[test]
fn a_tokenizer_has_a_normal_form_and_symbols() -> Result<()> {
    let lines = ["Ein <b>Wort</b>, zwei <b>Worte</b>", "ein WORT und noch ein Wort"];
    let options = TokenizerOptions::new(60)
        .soft_limit(true)
        .user_symbols(["<b>", "</b>"])
        .normalization(Normalization::NfkcCf);
    let tokenizer = Tokenizer::train(&lines, &options)?;
    let ids = tokenizer.encode("<b>WORT</b>")?;
    assert_eq!(tokenizer.decode(&ids)?, "<b>wort</b>");
    assert_eq!(tokenizer.token(*ids.last().unwrap())?, "</b>");
    let refused = Tokenizer::train(&lines, &options.user_symbols(["two words"]));
    assert_eq!(refused.err().unwrap().code(), ErrorCode::InvalidArgument);
    Ok(())
}
