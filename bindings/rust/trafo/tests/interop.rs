//! Models for other programs, and back.

mod common;

use std::ops::ControlFlow;

use trafo::{
    AdapterOptions, BasePrecision, CancelToken, ContextOptions, Corpus, CorpusOptions, ErrorCode,
    EventKind, ExportFormat, ExportWeights, FactorizeOptions, MemoryPlan, Metric, Model,
    ModelConfig, Objective, Period, PruneOptions, SparsifyOptions, Tokenizer, Trainer,
    TranslateOptions,
};

#[test]
fn exported_models_come_back() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let tokenizer = common::tokenizer(&common::corpus());
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
    let directory = folder.join("marian");
    let pre = Model::new(&config, 3)?;
    let error = pre
        .export(&tokenizer, ExportFormat::HfMarian, ExportWeights::ByFormat, &directory)
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unsupported);
    assert!(error.message().contains("pre-norm"), "{error}");
    let pegasus = folder.join("pegasus");
    assert_eq!(
        pre.export(&tokenizer, ExportFormat::HfPegasus, ExportWeights::ByFormat, &pegasus)?,
        0.0
    );
    assert_eq!(Model::import(&ContextOptions::new(), &pegasus)?.note, "");

    let post = Model::new(&config.pre_norm(false), 3)?;
    assert_eq!(
        post.export(&tokenizer, ExportFormat::HfMarian, ExportWeights::ByFormat, &directory)?,
        0.0
    );
    let error = post
        .export(&tokenizer, ExportFormat::CTranslate2, ExportWeights::Int8, &directory)
        .unwrap_err();
    assert!(error.message().contains("not an empty directory"), "{error}");

    let imported = Model::import(&ContextOptions::new(), &directory)?;
    assert_eq!(imported.note, "");
    let lines = ["der kleine Hund sieht den Baum"];
    let options = TranslateOptions::new().beam(2).max_length(8);
    let theirs = imported.tokenizer.expect("it was written with the model");
    assert_eq!(
        post.translate(&tokenizer, &lines, &options)?[0].text(),
        imported.model.translate(&theirs, &lines, &options)?[0].text()
    );
    let paged = Model::import(&ContextOptions::new().memory_directory(folder.path()), &directory)?;
    assert_eq!(
        paged.model.translate(&theirs, &lines, &options)?[0].text(),
        imported.model.translate(&theirs, &lines, &options)?[0].text()
    );
    let nowhere = ContextOptions::new().memory_directory("nowhere");
    let error = Model::import(&nowhere, &directory).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    let error = Model::import(&ContextOptions::new(), folder.path()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    Ok(())
}

fn score(model: &Model, tokenizer: &Tokenizer) -> trafo::Result<f64> {
    let scores = model.score(tokenizer, &["der kleine Hund"], &["the small dog"])?;
    Ok(scores[0].log_probability)
}

#[test]
fn a_model_learns_from_its_teacher() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let vocabulary = tokenizer.vocabulary();
    let config = ModelConfig::preset("tiny", vocabulary)?.encoder_layers(1).decoder_layers(1);
    Model::new(&config.clone().width(256), 4)?.save(folder.join("model.safetensors"))?;
    let strange = ModelConfig::preset("tiny", vocabulary + 1)?.encoder_layers(1).decoder_layers(1);
    Model::new(&strange, 4)?.save(folder.join("strange.safetensors"))?;
    let loss = |model: Model| -> trafo::Result<f64> {
        let mut trainer =
            Trainer::builder(model, &tokenizer, &corpus).options(common::options()).build()?;
        trainer.step()?;
        Ok(trainer.step()?.loss)
    };
    let alone = loss(Model::new(&config, 3)?)?;
    let mut taught = Model::new(&config, 3)?;
    taught.load_teacher(folder.path())?;
    let error = taught.load_teacher(folder.join("strange.safetensors")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("strange.safetensors has a vocabulary of"), "{error}");
    let error = taught.load_teacher(folder.join("missing")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    assert_ne!(loss(taught)?, alone);
    let mut removed = Model::new(&config, 3)?;
    removed.load_teacher(folder.join("model.safetensors"))?;
    removed.remove_teacher()?;
    assert_eq!(removed.remove_teacher().unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(loss(removed)?, alone);

    let options = common::options();
    let wide = ModelConfig::preset("base", vocabulary)?;
    let plan = MemoryPlan::of(&config, &options, 2, 8, 8)?;
    let with =
        MemoryPlan::with_teacher((&config, &wide), &options, &[] as &[&str], (0, 1, 1), 2, 8, 8)?;
    assert_eq!(plan.teacher, 0);
    assert!(with.teacher > 0 && with.total >= plan.total + with.teacher);
    Ok(())
}

#[test]
fn a_model_learns_which_answers_are_preferred() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let triples = [
        ("der kleine Hund", "the small dog", "wrong wrong"),
        ("das große Haus", "the big house", "wrong wrong"),
        ("ein Hund", "a dog", "wrong wrong"),
        ("ein Haus", "a house", "wrong wrong"),
    ];
    let pairs = Corpus::from_preferences(triples)?;
    assert_eq!(pairs.pair(1)?, ("das große Haus".into(), "the big house".into()));
    assert_eq!(pairs.rejected(1)?, "wrong wrong");
    assert_eq!(corpus.rejected(0).unwrap_err().code(), ErrorCode::InvalidArgument);
    let lines: String = triples.iter().map(|(p, c, r)| format!("{p}\t{c}\t{r}\n")).collect();
    std::fs::write(folder.join("pairs.tsv"), lines).unwrap();
    let read = Corpus::open(&[folder.join("pairs.tsv")], &CorpusOptions::new().preferences(true))?;
    assert_eq!(read.rejected(3)?, "wrong wrong");

    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?
        .encoder_layers(1)
        .decoder_layers(1)
        .dropout(0.0);
    let options = common::options()
        .objective(Objective::Dpo)
        .dpo_beta(0.5)
        .learning_rate(1e-3)
        .log_freq(Period::Updates(5))
        .valid_metrics(&[Metric::RewardAccuracy, Metric::RewardMargin])
        .after_updates(40);
    let build = |model| {
        Trainer::builder(model, &tokenizer, &pairs).valid(&read).options(options.clone()).build()
    };
    let error = build(Model::new(&config, 3)?).unwrap_err();
    assert!(error.message().contains("no reference"), "{error}");
    let mut model = Model::new(&config, 3)?;
    model.save(folder.join("base.safetensors"))?;
    model.load_reference(folder.join("base.safetensors"))?;
    assert_eq!(model.remove_teacher().unwrap_err().code(), ErrorCode::InvalidArgument);
    let mut adapted = Model::new(&config, 3)?;
    adapted.add_adapter(&AdapterOptions::new(4))?;
    for model in [model, adapted] {
        let mut trainer = build(model)?;
        let mut margins = Vec::new();
        trainer.run(|event| {
            if event.kind == EventKind::Log {
                let names: Vec<_> =
                    event.objective_metrics.iter().map(|(name, _)| &name[..]).collect();
                assert_eq!(
                    names,
                    ["chosen-reward", "rejected-reward", "reward-margin", "reward-accuracy"]
                );
                margins.push(event.objective_metrics[2].1);
            }
            ControlFlow::Continue(())
        })?;
        assert!(margins.last() > Some(&0.0), "{margins:?}");
        let metrics = trainer.validate()?;
        assert_eq!(metrics.get(Metric::RewardAccuracy), Some(1.0));
        assert!(metrics.get(Metric::RewardMargin) > Some(0.0));
    }
    Ok(())
}

#[test]
fn labelled_answers_and_odds_ratios_train() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let answers = [
        ("der kleine Hund", "the small dog", true),
        ("das große Haus", "the big house", true),
        ("ein Hund", "wrong wrong", false),
        ("ein Haus", "wrong wrong", false),
    ];
    let labelled = Corpus::from_labelled_answers(answers)?;
    assert_eq!(labelled.pair(2)?, ("ein Hund".into(), String::new()));
    assert_eq!(labelled.rejected(2)?, "wrong wrong");
    assert!(labelled.info().labelled);
    let lines: String =
        answers.iter().map(|(p, a, good)| format!("\"{p}\",\"{a}\",{good}\n")).collect();
    std::fs::write(folder.join("a.csv"), format!("prompt,completion,label\n{lines}")).unwrap();
    let read = Corpus::open(&[folder.join("a.csv")], &CorpusOptions::new())?;
    assert!(read.info().csv && read.info().labelled);
    let pairs = Corpus::from_preferences([
        ("ein Hund", "a dog", "wrong wrong"),
        ("ein Haus", "a house", "wrong wrong"),
    ])?;
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary())?
        .encoder_layers(1)
        .decoder_layers(1)
        .dropout(0.0);
    for (objective, data) in [(Objective::Kto, &labelled), (Objective::Orpo, &pairs)] {
        let mut model = Model::new(&config, 3)?;
        if objective == Objective::Kto {
            model.save(folder.join("base.safetensors"))?;
            model.load_reference(folder.join("base.safetensors"))?;
        }
        let options = common::options()
            .objective(objective)
            .kto_beta(0.5)
            .learning_rate(1e-3)
            .log_freq(Period::Updates(5))
            .valid_metrics(&[Metric::RewardAccuracy, Metric::RewardMargin])
            .after_updates(40);
        let mut trainer =
            Trainer::builder(model, &tokenizer, data).valid(data).options(options).build()?;
        trainer.run(|_| ControlFlow::Continue(()))?;
        let metrics = trainer.validate()?;
        assert_eq!(metrics.get(Metric::RewardAccuracy), Some(1.0), "{objective:?}");
        assert!(metrics.get(Metric::RewardMargin) > Some(0.0), "{objective:?}");
    }
    Ok(())
}

#[test]
fn an_adapter_is_trained_over_a_base_in_few_bits() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
    Model::new(&config, 3)?.save(folder.join("base.safetensors"))?;
    let coded = config.clone().base_precision(BasePrecision::Nf4);
    let mut model = Model::new(&coded, 4)?;
    model.load_weights(folder.join("base.safetensors"), None)?;
    let adapter = AdapterOptions::new(4);
    model.add_adapter(&adapter)?;
    let options = common::options();
    let plan = MemoryPlan::with_adapter(&coded, &adapter, &options, (0, 1, 1), 2, 8, 8)?;
    let whole = MemoryPlan::with_adapter(&config, &adapter, &options, (0, 1, 1), 2, 8, 8)?;
    assert!(plan.weights < whole.weights);
    let before = score(&model, &tokenizer)?;
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus).options(options).build()?;
    for _ in 0..4 {
        trainer.step()?;
    }
    let mut model = trainer.into_model();
    assert!((score(&model, &tokenizer)? - before).abs() > 1e-6);
    assert_eq!(model.merge_adapter().unwrap_err().code(), ErrorCode::Unsupported);
    model.save(folder.join("coded.safetensors"))?;
    let mut again = Model::load(folder.join("coded.safetensors"))?;
    assert_eq!(score(&again, &tokenizer)?, score(&model, &tokenizer)?);
    assert_eq!(again.unfreeze("*.weight").unwrap_err().code(), ErrorCode::Unsupported);
    Ok(())
}

#[test]
fn adapters_are_trained_stored_and_merged() -> trafo::Result<()> {
    let folder = common::TestFolder::new();
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
    let mut base = Model::new(&config, 3)?;
    let before = score(&base, &tokenizer)?;
    let error = base.add_adapter(&AdapterOptions::new(4).targets(&["head"])).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("'head'"), "{error}");

    let mut model = Model::new(&config, 3)?;
    model.add_adapter(&AdapterOptions::new(4).alpha(32.0).targets(&["query", "down"]).seed(2))?;
    assert_eq!(score(&model, &tokenizer)?, before);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &corpus).options(common::options()).build()?;
    for _ in 0..4 {
        trainer.step()?;
    }
    let model = trainer.into_model();
    let trained = score(&model, &tokenizer)?;
    assert!((trained - before).abs() > 1e-6);
    model.save_adapter(folder.join("adapter"))?;
    base.load_adapter(folder.join("adapter"))?;
    assert_eq!(score(&base, &tokenizer)?, trained);
    base.merge_adapter()?;
    assert!((score(&base, &tokenizer)? - trained).abs() < 1e-3);
    base.unmerge_adapter()?;
    assert_eq!(score(&base, &tokenizer)?, trained);
    base.remove_adapter()?;
    assert_eq!(score(&base, &tokenizer)?, before);

    let error = base.with_adapter(folder.join("adapter")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("prepared"), "{error}");
    base.prepare_inference()?;
    let support = base.with_adapter(folder.join("adapter"))?;
    let legal = base.with_adapter(folder.join("adapter"))?;
    std::thread::scope(|scope| {
        for (model, expected) in [(&base, before), (&support, trained), (&legal, trained)] {
            let tokenizer = &tokenizer;
            scope.spawn(move || {
                (0..4).for_each(|_| assert_eq!(score(model, tokenizer).unwrap(), expected));
            });
        }
    });
    drop(base); // its weights stay
    assert_eq!(score(&support, &tokenizer)?, trained);

    let mut other = Model::new(&config.width(64), 3)?;
    let error = other.load_adapter(folder.join("adapter")).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("width"), "{error}");
    Ok(())
}

#[test]
fn a_pruned_model_takes_the_place_of_the_whole_one() -> trafo::Result<()> {
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(2).decoder_layers(2);
    let mut model = Model::new(&config, 3)?;
    let (whole, before) = (model.parameter_count(), score(&model, &tokenizer)?);
    let error =
        model.prune(&tokenizer, &corpus, &PruneOptions::new().ffn_shares(0.5, 2.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("decoder_ffn_share"), "{error}");
    let token = CancelToken::new();
    token.cancel();
    let options = PruneOptions::new().ffn_shares(0.25, 0.5).head_shares(0.5, 0.5).layers(1, 1);
    let error = model.prune(&tokenizer, &corpus, &options.clone().cancel(&token)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!((model.parameter_count(), score(&model, &tokenizer)?), (whole, before));

    model.prune(&tokenizer, &corpus, &options)?;
    assert!(model.parameter_count() < whole);
    assert_ne!(score(&model, &tokenizer)?, before);
    let mut trainer =
        Trainer::builder(model, &tokenizer, &corpus).options(common::options()).build()?;
    trainer.step()?;
    Ok(())
}

fn share_of_zeros(model: &Model, name: &str) -> trafo::Result<f64> {
    let infos = model.parameter_infos()?;
    let index = infos.iter().position(|info| info.name == name).unwrap();
    Ok(model.zeros(index)? as f64 / infos[index].elements as f64)
}

#[test]
fn weights_become_zero_and_stay_so() -> trafo::Result<()> {
    const MATRIX: &str = "decoder.0.ffn.down.weight";
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
    let mut model = Model::new(&config, 3)?;
    let error = model.sparsify(&SparsifyOptions::new().sparsity(1.0)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    assert!(error.message().contains("sparsity must be at least 0 and below 1"), "{error}");
    let error = model.sparsify(&SparsifyOptions::new().two_of_four().sparsity(0.8)).unwrap_err();
    assert!(error.message().contains("2:4"), "{error}");
    let token = CancelToken::new();
    token.cancel();
    let options = SparsifyOptions::new().two_of_four().wanda(&tokenizer, &corpus);
    let error = model.sparsify(&options.clone().cancel(&token)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(share_of_zeros(&model, MATRIX)?, 0.0);

    model.sparsify(&options)?;
    assert_eq!(share_of_zeros(&model, MATRIX)?, 0.5);
    assert_eq!(share_of_zeros(&model, "embedding.weight")?, 0.0);
    assert_eq!(model.zeros(10_000).unwrap_err().code(), ErrorCode::InvalidArgument);
    let training =
        common::options().prune_sparsity(0.75).prune_start(2).prune_end(4).prune_every(1);
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus).options(training).build()?;
    for _ in 0..4 {
        trainer.step()?;
    }
    assert_eq!(share_of_zeros(trainer.model(), MATRIX)?, 0.75);
    Ok(())
}

#[test]
fn a_factorized_model_is_trained_and_made_again_from_its_file() -> trafo::Result<()> {
    let corpus = common::corpus();
    let tokenizer = common::tokenizer(&corpus);
    let config =
        ModelConfig::preset("tiny", tokenizer.vocabulary())?.encoder_layers(1).decoder_layers(1);
    let mut model = Model::new(&config, 3)?;
    let before = model.parameter_count();
    let refused = |model: &mut Model, options: FactorizeOptions| {
        model.factorize(&tokenizer, &corpus, &options).unwrap_err()
    };
    for (options, text) in [
        (FactorizeOptions::ratio(1.0), "ratio must be above 0 and below 1"),
        (FactorizeOptions::rank(0), "ratio or a rank is needed"),
        (FactorizeOptions::rank(1 << 40), "no matrix is smaller"),
    ] {
        let error = refused(&mut model, options);
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains(text), "{error}");
    }
    let error = refused(&mut model, FactorizeOptions::rank(8).layers("no.such.*"));
    assert_eq!(error.code(), ErrorCode::NotFound);
    let token = CancelToken::new();
    token.cancel();
    let error = refused(&mut model, FactorizeOptions::ratio(0.5).cancel(&token));
    assert_eq!(error.code(), ErrorCode::Cancelled);
    assert_eq!(model.parameter_count(), before);

    model.factorize(&tokenizer, &corpus, &FactorizeOptions::ratio(0.5))?;
    assert!(model.parameter_count() < before);
    let infos = model.parameter_infos()?;
    let outer = infos.iter().find(|info| info.name.ends_with(".weight.u")).unwrap();
    assert!(outer.signal_to_noise > 0.0);
    assert!(refused(&mut model, FactorizeOptions::rank(8)).message().contains("already"));

    let folder = common::TestFolder::new();
    let path = folder.join("model.safetensors");
    model.save(&path)?;
    let error = Model::new(&config, 3)?.load_weights(&path, Some(&tokenizer)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    let mut like = Model::new_like(&config, 3, &path)?;
    like.load_weights(&path, Some(&tokenizer))?;
    assert_eq!(like.parameter_count(), model.parameter_count());
    let mut trainer =
        Trainer::builder(like, &tokenizer, &corpus).options(common::options()).build()?;
    trainer.step()?;
    Ok(())
}
