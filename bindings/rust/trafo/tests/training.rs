//! Training runs: progress, cancelling, panics, saving, resuming, translating, threads.

mod common;

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use common::{TestFolder, corpus, model, options, pairs, tokenizer, weights};
use trafo::{
    Activation, Architecture, CancelToken, ContextOptions, Corpus, DType, Device, ErrorCode, Event,
    EventKind, Metric, Model, ModelConfig, Period, QuantizeOptions, Result, RunModel, Sampling,
    Schedule, Score, Shortlist, Stop, StoppingMetrics, TokenizerOptions, Trainer, TrainerOptions,
    TranslateOptions, find_checkpoint, list_checkpoints,
};

fn quiet(_: &Event) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

#[test]
fn a_model_learns_and_translates() -> Result<()> {
    let all = pairs();
    let (held_out, train): (Vec<_>, Vec<_>) =
        all.into_iter().enumerate().partition(|(i, _)| i % 10 == 3);
    let pairs_of = |part: &[(usize, (String, String))]| {
        Corpus::from_pairs(part.iter().map(|(_, (s, t))| (s.clone(), t.clone())))
    };
    let (train, valid) = (pairs_of(&train)?, pairs_of(&held_out)?);
    let tokenizer = tokenizer(&train);
    let mut events = Vec::new();
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &train)
        .valid(&valid)
        .options(
            options()
                .after_updates(250)
                .log_freq(Period::Updates(50))
                .valid_freq(Period::Updates(125))
                .valid_metrics(&[Metric::Bleu, Metric::Ce]),
        )
        .build()?;
    let plan = trainer.plan()?;
    assert!(plan.total > plan.weights + plan.gradients + plan.optimizer, "{plan:?}");
    assert!(plan.limit > plan.total && plan.free <= plan.device, "{plan:?}");
    let stop = trainer.run(|event| {
        events.push(event.clone());
        ControlFlow::Continue(())
    })?;
    assert_eq!(stop, Stop::Limit);
    assert!(matches!(events[0].kind, EventKind::Started { .. }), "{:?}", events[0]);
    assert_eq!(events.last().unwrap().kind, EventKind::Finished(Stop::Limit));
    let losses: Vec<_> =
        events.iter().filter(|e| e.kind == EventKind::Log).map(|e| e.loss).collect();
    assert_eq!(losses.len(), 5);
    assert!(losses[4] < losses[0] * 0.6, "{losses:?}");
    let bleus: Vec<_> = events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Validated { metrics, .. } => {
                Some((metrics.get(Metric::Bleu).unwrap(), metrics.get(Metric::Chrf)))
            }
            _ => None,
        })
        .collect();
    assert_eq!(bleus.len(), 2);
    assert!(bleus[1].0 > 60.0 && bleus[1].1.is_none(), "{bleus:?}");

    let sources: Vec<_> = held_out.iter().map(|(_, (s, _))| s.as_str()).collect();
    let references: Vec<_> = held_out.iter().map(|(_, (_, t))| t.as_str()).collect();
    let greedy = TranslateOptions::new().beam(1);
    let translations = trainer.model().translate(&tokenizer, &sources, &greedy)?;
    let texts: Vec<_> = translations.iter().map(|t| t.text()).collect();
    let bleu = trafo::bleu(&texts, &references, false)?;
    assert!((bleu.score - bleus[1].0).abs() < 1e-6, "{} and {bleus:?}", bleu.score);

    let beam = TranslateOptions::new().beam(4).n_best(3);
    let lists = trainer.model().translate(&tokenizer, &[sources[0], ""], &beam)?;
    assert_eq!(lists[0].hypotheses.len(), 3);
    assert!(lists[0].source_tokens > 1 && lists[0].used_tokens == lists[0].source_tokens);
    assert!(lists[0].hypotheses.windows(2).all(|w| w[0].score >= w[1].score));
    assert_eq!(lists[1].text(), "");

    let right = trainer.model().score(&tokenizer, &sources, &references)?;
    let mut shuffled = references.clone();
    shuffled.rotate_left(1);
    let wrong = trainer.model().score(&tokenizer, &sources, &shuffled)?;
    let total = |scores: &[trafo::Score]| scores.iter().map(|s| s.log_probability).sum::<f64>();
    assert!(total(&right) > total(&wrong));
    assert!(right.iter().all(|s| s.tokens > 1 && s.log_probability < 0.0));
    Ok(())
}

#[test]
fn int8_weights_are_stored_and_read_as_they_are() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = tokenizer(&corpus());
    let (floats, codes) = (folder.join("floats.safetensors"), folder.join("codes.safetensors"));
    model(&tokenizer).save(&floats)?;
    let quantized = Model::load_int8(&floats)?;
    quantized.save(&codes)?;
    let size = |path: &std::path::Path| std::fs::metadata(path).unwrap().len();
    assert!(size(&codes) < size(&floats) / 2);
    let loaded = Model::load(&codes)?;
    let options = TranslateOptions::new().max_length(8);
    let lines = ["der alte Hund sieht den Stein", "der rote Tisch"];
    assert_eq!(
        loaded.translate(&tokenizer, &lines, &options)?,
        quantized.translate(&tokenizer, &lines, &options)?
    );
    for info in loaded.parameter_infos()? {
        assert_eq!(info.dtype == DType::I8, info.rows > 1, "{info:?}");
        assert_eq!(info.rows * info.columns, info.elements, "{info:?}");
        assert!(!info.trainable, "{info:?}");
    }
    assert_eq!(loaded.parameters().err().unwrap().code(), ErrorCode::Unsupported);
    Ok(())
}

#[test]
fn quantized_weights_are_saved_and_read_as_they_are() -> Result<()> {
    let folder = TestFolder::new();
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let path = folder.join("codes.safetensors");
    let options = TranslateOptions::new().max_length(8);
    let lines = ["der alte Hund sieht den Stein", "der rote Tisch"];
    let gptq = QuantizeOptions::new().gptq().calibration(&tokenizer, &corpus);
    for settings in [QuantizeOptions::new(), QuantizeOptions::new().int4(), gptq] {
        let settings = settings.keep_float("encoder.0.*");
        let quantized = model(&tokenizer).quantize(&settings)?;
        quantized.save(&path)?;
        let loaded = Model::load(&path)?;
        assert_eq!(
            loaded.translate(&tokenizer, &lines, &options)?,
            quantized.translate(&tokenizer, &lines, &options)?
        );
        let bits = if format!("{settings:?}").contains("int4: true") { 4 } else { 8 };
        for (stored, made) in loaded.parameter_infos()?.iter().zip(quantized.parameter_infos()?) {
            let coded = stored.rows > 1 && !stored.name.starts_with("encoder.0.");
            assert_eq!(stored.bits, if coded { bits } else { 32 }, "{stored:?}");
            assert_eq!(made.signal_to_noise > 5.0, coded, "{made:?}");
        }
    }
    let refused = |settings: QuantizeOptions| model(&tokenizer).quantize(&settings).err().unwrap();
    assert_eq!(refused(QuantizeOptions::new().gptq()).code(), ErrorCode::InvalidArgument);
    assert_eq!(refused(QuantizeOptions::new().keep_float("x*")).code(), ErrorCode::NotFound);
    Ok(())
}

#[test]
fn a_saved_model_is_the_same_model() -> Result<()> {
    let folder = TestFolder::new();
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let original = model(&tokenizer);
    let path = folder.join("modell-ä.safetensors");
    original.save(&path)?;
    let mut loaded = Model::load(&path)?;
    assert_eq!(loaded.config(), original.config());
    assert_eq!(weights(&loaded), weights(&original));
    assert_eq!(loaded.parameter_count(), weights(&original).len());
    assert_eq!(loaded.device(), Device::Cpu);
    let load_as = |precision| Model::load_as(&ContextOptions::new().threads(1), &path, precision);
    assert_eq!(weights(&load_as(DType::F32)?), weights(&original));
    assert_eq!(load_as(DType::BF16).unwrap_err().code(), ErrorCode::Unsupported);
    let options = TranslateOptions::new().max_length(8);
    let lines = ["der alte Hund sieht den Stein", "der rote Tisch"];
    assert_eq!(
        loaded.translate(&tokenizer, &lines, &options)?,
        original.translate(&tokenizer, &lines, &options)?
    );
    // A parameter can be changed.
    let mut parameter = loaded.parameters_mut()?.swap_remove(0);
    let zeros = vec![0f32; parameter.to_vec::<f32>()?.len()];
    parameter.write(&zeros)?;
    assert_eq!(parameter.to_vec::<f32>()?, zeros);
    assert_eq!(parameter.write(&zeros[1..]).unwrap_err().code(), ErrorCode::ShapeMismatch);
    assert_eq!(parameter.to_vec::<f64>().unwrap_err().code(), ErrorCode::DTypeMismatch);
    drop(parameter);
    assert_ne!(weights(&loaded), weights(&original));
    Ok(())
}

#[test]
fn a_run_directory_gives_its_best_last_and_averaged_model() -> Result<()> {
    let folder = TestFolder::new();
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let build = |valid| {
        let builder = Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
            .options(options().after_updates(12).valid_freq(Period::Updates(6)).average_last(2))
            .run_directory(folder.path());
        if valid { builder.valid(&corpus).build() } else { builder.build() }
    };
    let missing = |which| Model::load_run(folder.path(), which).unwrap_err();
    assert_eq!(missing(RunModel::Last).code(), ErrorCode::NotFound);
    assert_eq!(build(false)?.run(quiet)?, Stop::Limit);
    assert_eq!(missing(RunModel::Best).code(), ErrorCode::NotFound);

    std::fs::remove_dir_all(folder.path()).unwrap();
    let mut trainer = build(true)?;
    assert_eq!(trainer.run(quiet)?, Stop::Limit);
    let load = |which| Model::load_run(folder.path(), which);
    assert_eq!(weights(&load(RunModel::Last)?), weights(trainer.model()));
    assert_ne!(weights(&load(RunModel::Averaged)?), weights(trainer.model()));
    let updates = list_checkpoints(folder.path())?;
    assert!(updates.is_sorted() && updates.last() == Some(&12), "{updates:?}");
    assert!(list_checkpoints(folder.path().join("nowhere"))?.is_empty());
    let latest = find_checkpoint(folder.path(), "latest")?;
    assert_eq!(latest, find_checkpoint(folder.path(), "12")?);
    assert_eq!(find_checkpoint(folder.path(), "7").unwrap_err().code(), ErrorCode::NotFound);
    let config = ModelConfig::read(&latest)?;
    assert_eq!(config, load(RunModel::Last)?.config());
    let other = Corpus::from_pairs([("another text", "7 other words")])?
        .train_tokenizer(&TokenizerOptions::new(60).soft_limit(true))?;
    let last = load(RunModel::Last)?;
    last.check_tokenizer(&tokenizer)?;
    assert_eq!(last.check_tokenizer(&other).unwrap_err().code(), ErrorCode::InvalidArgument);
    let best = trainer.into_best_model()?;
    assert_eq!(weights(&best), weights(&load(RunModel::Best)?));
    let short = TranslateOptions::new().max_length(8);
    assert_eq!(best.translate(&tokenizer, &["der alte Hund"], &short)?.len(), 1);
    let one = ContextOptions::new().threads(1);
    let error = Model::load_run_as(&one, folder.path(), RunModel::Best, DType::BF16).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);

    let homeless =
        Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(options()).build()?;
    assert_eq!(homeless.into_best_model().unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}

#[test]
fn a_resumed_run_ends_with_the_same_bits() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let options =
        options().after_updates(30).save_freq(Period::Updates(1000)).log_freq(Period::Updates(5));
    let start = |folder: &TestFolder| {
        Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
            .options(options.clone())
            .run_directory(folder.path())
            .build()
    };
    let (whole, cut) = (TestFolder::new(), TestFolder::new());
    let mut uncut = start(&whole)?;
    assert_eq!(uncut.run(quiet)?, Stop::Limit);
    let expected = weights(uncut.model());

    let mut first = start(&cut)?;
    assert_eq!(first.run_updates(7, quiet)?, Stop::Paused);
    first.save()?;
    drop(first);
    let mut second = start(&cut)?;
    let mut resumed = false;
    let stop = second.run(|event| {
        resumed |= matches!(event.kind, EventKind::Resumed { .. });
        if event.update >= 15 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    assert_eq!((stop, resumed), (Stop::Callback, true));
    drop(second);
    let mut third = start(&cut)?;
    assert_eq!(third.run(quiet)?, Stop::Limit);
    assert_eq!(weights(third.model()), expected);
    // A run directory belongs to one trainer at a time.
    assert_eq!(start(&cut).unwrap_err().code(), ErrorCode::Io);
    drop(third);

    // Another architecture must not go on with this checkpoint.
    let llama = ModelConfig::preset("llama", tokenizer.vocabulary())?.decoder_layers(1).kv_heads(2);
    let model = Model::new(&llama, 1)?;
    assert_eq!(model.config(), llama);
    assert_eq!(model.config().norm, trafo::Norm::Rms);
    let config = ModelConfig::preset("lm", tokenizer.vocabulary())?.decoder_layers(1);
    let other = Trainer::builder(Model::new(&config, 1)?, &tokenizer, &corpus)
        .options(options.clone())
        .run_directory(cut.path())
        .build();
    assert_eq!(other.unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}

#[test]
fn autotuning_changes_nothing_on_the_cpu() -> Result<()> {
    let train = corpus();
    let tokenizer = tokenizer(&train);
    let folder = TestFolder::new();
    let mut results = Vec::new();
    for tune in [false, true] {
        let run = folder.join(if tune { "tuned" } else { "plain" });
        let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &train)
            .options(options().autotune_gemm(tune).after_updates(6))
            .run_directory(&run)
            .build()?;
        assert_eq!(trainer.run(quiet)?, Stop::Limit);
        assert!(run.join("latest").exists() && !run.join("gemm-cache").exists());
        results.push(weights(trainer.model()));
    }
    assert!(results[0] == results[1]);
    Ok(())
}

#[test]
fn ema_is_kept_beside_the_weights() -> Result<()> {
    let train = corpus();
    let tokenizer = tokenizer(&train);
    let folder = TestFolder::new();
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &train)
        .options(options().ema_alpha(0.05).after_updates(12))
        .run_directory(folder.path())
        .build()?;
    assert_eq!(trainer.run(quiet)?, Stop::Limit);
    let checkpoint = folder.join("ckpt/12");
    let smoothed = Model::load(checkpoint.join("model.safetensors"))?;
    let raw = Model::load(checkpoint.join("unsmoothed.safetensors"))?;
    assert!(weights(&raw) == weights(trainer.model()));
    assert!(weights(&smoothed) != weights(trainer.model()));
    Ok(())
}

#[test]
fn layers_share_their_parameters() -> Result<()> {
    let config = || {
        Ok::<_, trafo::Error>(ModelConfig::preset("tiny", 50)?.encoder_layers(2).decoder_layers(3))
    };
    let elements =
        |config: &ModelConfig| Ok::<_, trafo::Error>(weights(&Model::new(config, 1)?).len());
    let tied = config()?.decoder_tied_layers(vec![1, 1, 3]).encoder_tied_layers(vec![2, 2]);
    assert!(elements(&tied)? < elements(&config()?)?);
    assert_eq!(tied.decoder_tied_layers, [1, 1, 3]);
    assert_eq!(Model::new(&tied, 1)?.config(), tied);
    for wrong in [vec![1, 1], vec![1, 0, 1], vec![1, 1, 4], vec![1, 1, 300], vec![1; 40]] {
        let error = Model::new(&config()?.decoder_tied_layers(wrong), 1).unwrap_err();
        assert!(error.to_string().contains("decoder_tied_layers"), "{error}");
    }
    Ok(())
}

#[test]
fn layers_are_dropped_in_training_alone() -> Result<()> {
    let train = corpus();
    let tokenizer = tokenizer(&train);
    let trained = |layer_drop: f64| -> Result<_> {
        let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &train)
            .options(options().layer_drop(layer_drop).after_updates(6))
            .build()?;
        trainer.run(quiet)?;
        Ok(weights(trainer.model()))
    };
    let dropped = trained(0.5)?;
    assert!(dropped == trained(0.5)?);
    assert!(dropped != trained(0.0)?);
    let error = trained(1.0).unwrap_err();
    assert!(error.to_string().contains("layer_drop"), "{error}");
    Ok(())
}

#[test]
fn a_run_ends_with_the_mean_of_its_checkpoints_and_another_begins_with_it() -> Result<()> {
    let train = corpus();
    let tokenizer = tokenizer(&train);
    let folder = TestFolder::new();
    let run = folder.join("run");
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &train)
        .valid(&train)
        .options(
            options()
                .average_last(2)
                .early_stopping(100)
                .early_stopping_on(StoppingMetrics::All)
                .save_freq(Period::Updates(3))
                .after_updates(6),
        )
        .run_directory(&run)
        .build()?;
    let mut averaged = None;
    trainer.run(|event| {
        if let EventKind::Averaged { model, updates, metrics, .. } = &event.kind {
            averaged = Some((model.clone(), updates.clone(), metrics.get(Metric::Bleu).is_some()));
        }
        ControlFlow::Continue(())
    })?;
    let expected = run.join("ckpt/averaged/model.safetensors");
    assert_eq!(averaged, Some((expected.clone(), "3, 6".to_string(), true)));

    let of = |update: &str| run.join("ckpt").join(update).join("model.safetensors");
    let mine = folder.join("mine.safetensors");
    Model::average(&[of("3"), of("6")], &mine)?;
    assert_eq!(std::fs::read(&mine).unwrap(), std::fs::read(&expected).unwrap());
    let none: [&str; 0] = [];
    assert_eq!(Model::average(&none, &mine).unwrap_err().code(), ErrorCode::InvalidArgument);

    let deep = ModelConfig::preset("tiny", 50)?.depth_scaled_init(true);
    let (deep, flat) =
        (Model::new(&deep, 1)?, Model::new(&deep.clone().depth_scaled_init(false), 1)?);
    assert!(deep.config().depth_scaled_init && !flat.config().depth_scaled_init);
    assert!(weights(&deep) != weights(&flat));

    let mut tuned = model(&tokenizer);
    tuned.load_weights(&mine, Some(&tokenizer))?;
    assert!(weights(&tuned) == weights(&Model::load(&mine)?));
    let mut other = Model::new(&ModelConfig::preset("tiny", 77)?, 1)?;
    let error = other.load_weights(&mine, None).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains("vocabulary is"), "{error}");
    Ok(())
}

#[test]
fn cancelling_from_another_thread() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let token = CancelToken::new();
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
        .options(options().log_freq(Period::Updates(1)))
        .cancel(&token)
        .build()?;
    let elsewhere = token.clone();
    let watch = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        elsewhere.cancel();
        Instant::now()
    });
    // The trainer has no limit: only the token ends it.
    let runner = std::thread::spawn(move || trainer.run(quiet).map(|stop| (stop, trainer)));
    let (stop, mut trainer) = runner.join().unwrap()?;
    assert_eq!(stop, Stop::Cancelled);
    assert!(watch.join().unwrap().elapsed() < Duration::from_secs(10));
    token.reset();
    let before = trainer.step()?.update;
    assert_eq!(trainer.run_updates(2, quiet)?, Stop::Paused);
    assert_eq!(trainer.step()?.update, before + 3);

    token.cancel();
    let options = TranslateOptions::new().cancel(&token);
    let error = trainer.model().translate(&tokenizer, &["der Hund"], &options).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    Ok(())
}

/// The callback of a run translates with the model in training, and copies it for another thread.
#[test]
fn a_model_in_training_is_lent_and_copied() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
        .options(options().log_freq(Period::Updates(1)))
        .build()?;
    let settings = TranslateOptions::new().max_length(6);
    let texts = ["der kleine Hund", "den alten Baum"];
    let (tokenizer, settings) = (&tokenizer, &settings);
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        trainer.run_with_model(3, |event, model| {
            if event.kind == EventKind::Log {
                let lent = model.score(tokenizer, &texts, &texts).unwrap();
                assert_eq!(model.translate(tokenizer, &texts, settings).unwrap().len(), 2);
                let mut bytes = Vec::new();
                model.write_to(&mut bytes).unwrap();
                let copy = Model::read_from(&ContextOptions::new(), &mut &bytes[..]).unwrap();
                // The copy belongs to a context that does not wait for training.
                let reader = scope.spawn(move || copy.score(tokenizer, &texts, &texts).unwrap());
                copies.push((lent, reader.join().unwrap()));
            }
            ControlFlow::Continue(())
        })
    })?;
    assert!(copies.len() >= 3);
    for (lent, copied) in &copies {
        let bits = |scores: &[Score]| -> Vec<u64> {
            scores.iter().map(|score| score.log_probability.to_bits()).collect()
        };
        assert_eq!(bits(lent), bits(copied));
    }
    Ok(())
}

#[test]
fn a_panic_in_the_callback_stops_and_goes_on_in_the_caller() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let mut trainer = Trainer::builder(model(&tokenizer), &tokenizer, &corpus)
        .options(options().after_updates(20).log_freq(Period::Updates(1)))
        .build()?;
    let mut calls = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _ = trainer.run(|event| {
            calls += 1;
            assert!(event.update < 3, "three updates are enough");
            ControlFlow::Continue(())
        });
    }));
    assert_eq!(*result.unwrap_err().downcast::<&str>().unwrap(), "three updates are enough");
    assert!(calls <= 5, "not called again after the panic, called {calls} times");
    assert_eq!(trainer.step()?.update, 4);
    assert_eq!(trainer.run(quiet)?, Stop::Limit);
    Ok(())
}

#[test]
fn threads_and_schedules_do_what_they_say() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let train = |threads: usize| -> Result<Vec<u32>> {
        let mut model = model(&tokenizer);
        model.set_threads(threads)?;
        let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
            .options(options().after_updates(5))
            .build()?;
        trainer.run(quiet)?;
        Ok(weights(&trainer.into_model()))
    };
    // Two trainers at once, each on its own thread and engine.
    let (one, three) = std::thread::scope(|scope| {
        let one = scope.spawn(|| train(1));
        let three = scope.spawn(|| train(3));
        (one.join().unwrap(), three.join().unwrap())
    });
    assert_eq!(one?, three?);

    let linear =
        options().schedule(Schedule::Linear).warmup(2).schedule_updates(6).after_updates(6);
    let mut trainer =
        Trainer::builder(model(&tokenizer), &tokenizer, &corpus).options(linear).build()?;
    let rates = (0..6).map(|_| Ok(trainer.step()?.learning_rate)).collect::<Result<Vec<_>>>()?;
    assert!(rates[0] < rates[1] && rates.windows(2).skip(1).all(|w| w[1] < w[0]), "{rates:?}");
    assert!(trainer.model().memory_stats()?.peak > 0);
    Ok(())
}

#[test]
fn the_decoder_only_form_trains_as_well() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let config = ModelConfig::preset("lm", tokenizer.vocabulary())?
        .decoder_layers(1)
        .width(32)
        .ffn_width(64)
        .heads(2)
        .max_positions(64);
    assert_eq!(config.architecture, Architecture::DecoderLm);
    let mut trainer = Trainer::builder(Model::new(&config, 1)?, &tokenizer, &corpus)
        .options(options())
        .build()?;
    let first = trainer.step()?;
    let mut last = first;
    for _ in 0..40 {
        last = trainer.step()?;
    }
    assert!(last.nll < first.nll * 0.8, "{first:?} {last:?}");
    assert!(first.labels > 0 && !first.skipped && first.grad_norm > 0.0);
    Ok(())
}

#[test]
fn bad_files_and_arguments_are_errors() -> Result<()> {
    let folder = TestFolder::new();
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let model = model(&tokenizer);

    assert_eq!(Model::load(folder.join("nothing")).unwrap_err().code(), ErrorCode::NotFound);
    let path = folder.join("model.safetensors");
    model.save(&path)?;
    let mut bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert_eq!(Model::load(&path).unwrap_err().code(), ErrorCode::CorruptFile);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(Model::load(&path).unwrap_err().code(), ErrorCode::CorruptFile);
    let nul = Model::load("a\0b").unwrap_err();
    assert_eq!(nul.code(), ErrorCode::InvalidArgument);
    assert!(nul.message().contains("NUL"), "{nul}");
    assert!(model.save(folder.join("no/such/folder/model")).is_err());

    let error = ModelConfig::preset("gigantic", 100).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert!(error.message().contains("tiny"), "{error}");
    for config in [
        ModelConfig::new(100).heads(7),
        ModelConfig::new(0),
        ModelConfig::new(100).width(usize::MAX),
        ModelConfig::new(100).dropout(2.0),
    ] {
        let error = Model::new(&config, 1).unwrap_err();
        assert!(
            matches!(error.code(), ErrorCode::InvalidArgument | ErrorCode::ShapeMismatch),
            "{error}"
        );
    }

    let start = |options: TrainerOptions| {
        Trainer::builder(common::model(&tokenizer), &tokenizer, &corpus).options(options).build()
    };
    for options in [
        options().batch_tokens(usize::MAX),
        options().learning_rate(f64::NAN),
        options().schedule(Schedule::Cosine),
        options().gradient_accumulation(0),
    ] {
        assert_eq!(start(options).unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    let mut trainer = start(options())?;
    assert_eq!(trainer.validate().unwrap_err().code(), ErrorCode::InvalidArgument);

    let other = Corpus::from_pairs([("x", "y"), ("z", "w")])?;
    let other = other.train_tokenizer(&trafo::TokenizerOptions::new(10).soft_limit(true))?;
    let error = model.translate(&other, &["x"], &TranslateOptions::new()).unwrap_err();
    assert!(error.message().contains("the tokenizer has"), "{error}");
    let nul = model.translate(&tokenizer, &["fine", "a\0b"], &TranslateOptions::new()).unwrap_err();
    assert!(nul.message().contains("line 2"), "{nul}");
    let error = model.score(&tokenizer, &["a"], &["b", "c"]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);

    let long = "der Hund ".repeat(100);
    let cut = TranslateOptions::new().beam(1).max_length(3);
    assert_eq!(model.translate_counted(&tokenizer, &[long.as_str(), "der Hund"], &cut)?.1, 1);
    let error = model.translate(&tokenizer, &[&long], &cut.truncate(false)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    Ok(())
}

#[test]
fn types_cross_threads_as_documented() {
    fn send<T: Send>() {}
    fn shared<T: Send + Sync>() {}
    shared::<Model>();
    send::<Trainer>();
    shared::<trafo::Tokenizer>();
    shared::<Corpus>();
    shared::<CancelToken>();
    shared::<TrainerOptions>();
    shared::<TranslateOptions>();
    shared::<ModelConfig>();
    shared::<Event>();
    shared::<trafo::Error>();
}

#[test]
fn samples_are_the_same_of_the_same_seed() -> Result<()> {
    let tokenizer = common::tokenizer(&common::corpus());
    let mut model = common::model(&tokenizer);
    model.prepare_inference()?;
    assert_eq!(model.parameters().unwrap_err().code(), ErrorCode::InvalidArgument);
    let drawn = |lines: &[&str], seed, first_line| {
        let sampling = Sampling::new()
            .temperature(0.9)
            .top_k(20)
            .top_p(0.95)
            .seed(seed)
            .first_line(first_line);
        let options = TranslateOptions::new().n_best(3).min_length(2).max_length(6);
        model.translate(&tokenizer, lines, &options.sampling(sampling))
    };
    let lines = ["der Hund", "den alten Baum"];
    let both = drawn(&lines, 5, 0)?;
    assert_eq!(both[1].hypotheses.len(), 3);
    assert_eq!(drawn(&lines[1..], 5, 1)?[0], both[1]);
    assert_ne!(drawn(&lines, 6, 0)?, both);
    Ok(())
}

#[test]
fn a_shortlist_restricts_translations() -> Result<()> {
    let folder = TestFolder::new();
    let tokenizer = common::tokenizer(&common::corpus());
    let model = common::model(&tokenizer);
    let (source, target): (Vec<_>, Vec<_>) = pairs().into_iter().unzip();
    let learnt = Shortlist::learn(&tokenizer, &source, &target, 5)?;
    learnt.save(folder.join("lex.s2t"))?;
    let loaded = Shortlist::load(&tokenizer, folder.join("lex.s2t"))?;
    let with = |list: &Shortlist| {
        let options = TranslateOptions::new()
            .max_length(6)
            .shortlist(list)
            .shortlist_first(0)
            .shortlist_best(5);
        model.translate(&tokenizer, &source[..3], &options)
    };
    assert_eq!(with(&learnt)?, with(&loaded)?);
    assert!(Shortlist::learn(&tokenizer, &source, &target[1..], 5).is_err());
    Ok(())
}

#[test]
fn frozen_parameters_do_not_change() -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let mut model = model(&tokenizer);
    assert_eq!(model.freeze("nothing.*").unwrap_err().code(), ErrorCode::NotFound);
    let of_encoder = model.freeze("encoder.*")?;
    assert!(of_encoder > 4);
    assert!(model.freeze("*embedding.weight")? > 0);
    assert_eq!(model.set_update_factors("decoder.0.ffn.*", 0.5, 0.0)?, 4);
    assert_eq!(
        model.set_update_factors("*", f64::NAN, 1.0).unwrap_err().code(),
        ErrorCode::InvalidArgument
    );
    let infos = model.parameter_infos()?;
    for info in &infos {
        let frozen = info.name.starts_with("encoder.") || info.name.ends_with("embedding.weight");
        assert_eq!(info.trainable, !frozen, "{info:?}");
        let slow = info.name.starts_with("decoder.0.ffn.");
        assert_eq!(info.lr_factor, if slow { 0.5 } else { 1.0 }, "{info:?}");
        assert_eq!(info.dtype, DType::F32);
    }
    let elements: usize = infos.iter().map(|info| info.elements).sum();
    assert_eq!(elements, model.parameter_count());
    let values = |model: &Model| -> Result<Vec<Vec<f32>>> {
        model.parameters()?.iter().map(|parameter| parameter.to_vec::<f32>()).collect()
    };
    let before = values(&model)?;
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
        .options(options().after_updates(3).valid_metrics(&[Metric::Ce]))
        .build()?;
    trainer.run(quiet)?;
    let mut model = trainer.into_model();
    let after = values(&model)?;
    for ((info, before), after) in infos.iter().zip(&before).zip(&after) {
        assert_eq!(before == after, !info.trainable, "{}", info.name);
    }
    assert_eq!(model.unfreeze("encoder.*")?, of_encoder);
    assert_eq!(values(&model)?, after);
    Ok(())
}

#[test]
fn word_scores_and_alignments() -> Result<()> {
    let tokenizer = common::tokenizer(&common::corpus());
    let model = common::model(&tokenizer);
    let options = TranslateOptions::new().n_best(2).max_length(6).word_scores(true).alignment(true);
    let lines = ["der Hund", "", "das Haus"];
    let found = model.translate(&tokenizer, &lines, &options)?;
    for (line, translation) in lines.iter().zip(&found) {
        for hypothesis in &translation.hypotheses {
            let scores = &hypothesis.word_scores;
            if line.is_empty() {
                assert!(scores.is_empty() && hypothesis.alignment.is_none());
                continue;
            }
            assert!([0, 1].contains(&(scores.len() - hypothesis.tokens.len())));
            let mean = scores.iter().sum::<f64>() / scores.len() as f64;
            assert!((mean - hypothesis.score).abs() < 1e-9);
            let alignment = hypothesis.alignment.as_ref().unwrap();
            assert_eq!(alignment.rows().len(), scores.len());
            assert_eq!(alignment.hard().len(), scores.len());
            for (row, best) in alignment.rows().zip(alignment.hard()) {
                assert_eq!(row.len(), translation.used_tokens);
                assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
                assert!(row.iter().all(|weight| *weight <= row[best]));
            }
        }
    }
    let plain = model.translate(&tokenizer, &lines, &TranslateOptions::new().max_length(6))?;
    assert!(plain[0].hypotheses[0].word_scores.is_empty());
    assert!(plain[0].hypotheses[0].alignment.is_none());

    let (source, target) = (["der Hund", "das Haus"], ["the dog", "the house"]);
    let scores = model.score(&tokenizer, &source, &target)?;
    let given = model.force_decode(&tokenizer, &source, &target, &options.length_penalty(0.0))?;
    for ((translation, score), text) in given.iter().zip(&scores).zip(target) {
        let hypothesis = &translation.hypotheses[0];
        assert_eq!(hypothesis.text, text);
        assert_eq!(hypothesis.word_scores.len(), score.tokens);
        assert!((hypothesis.score - score.log_probability).abs() < 1e-9);
        assert_eq!(hypothesis.alignment.as_ref().unwrap().rows().len(), score.tokens);
    }
    let options =
        TranslateOptions::new().max_length(6).repetition_penalty(1.5).no_repeat_ngram_size(2);
    let prefixes = ["the dog", ""];
    let begun =
        model.translate_with_prefixes(&tokenizer, &source, &prefixes, &options.distinct(true))?;
    assert!(begun[0].hypotheses[0].text.starts_with("the dog"), "{begun:?}");
    let one =
        model.translate_with_prefixes(&tokenizer, &source, &["the"], &TranslateOptions::new());
    assert_eq!(one.unwrap_err().code(), ErrorCode::InvalidArgument);
    let text = model.score_text(&tokenizer, &target, &TranslateOptions::new());
    assert_eq!(text.unwrap_err().code(), ErrorCode::Unsupported);
    let uneven = model.force_decode(&tokenizer, &source, &["one"], &TranslateOptions::new());
    assert_eq!(uneven.unwrap_err().code(), ErrorCode::InvalidArgument);
    Ok(())
}

// Configuration files name choices as the command line does.
#[test]
fn choices_are_read_and_printed_by_name() -> Result<()> {
    assert_eq!("inv-sqrt".parse::<Schedule>()?, Schedule::InverseSqrt);
    assert_eq!("inverse_sqrt".parse::<Schedule>()?, Schedule::InverseSqrt);
    assert_eq!("decoder-lm".parse::<Architecture>()?.to_string(), "decoder-lm");
    assert_eq!("swish".parse::<Activation>()?, Activation::Silu);
    for text in ["best", "last"] {
        assert_eq!(text.parse::<RunModel>()?.to_string(), text);
    }
    let error = "nonesuch".parse::<Schedule>().unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.to_string().contains("inv-sqrt"), "{error}");
    Ok(())
}
