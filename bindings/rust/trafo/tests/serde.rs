//! With the feature `serde`.
#![cfg(feature = "serde")]

use serde_json::{Value, from_str, from_value, json, to_value};
use trafo::{
    DType, EvaluationOptions, Metric, ModelConfig, Norm, Period, Sampling, Schedule, Stop,
    TrainerOptions, TranslateOptions,
};

/// Options come back as they were, and what a file leaves out has its default.
#[test]
fn options_come_back() {
    let trainer = TrainerOptions::new()
        .label_smoothing(0.0)
        .warmup(0)
        .keep_best(false)
        .schedule(Schedule::InverseSqrt)
        .valid_freq(Period::Never)
        .log_freq(Period::Tokens(20000))
        .save_freq(Period::Epochs(2))
        .valid_metrics(&[Metric::Ce, Metric::Bleu]);
    let text = to_value(&trainer).unwrap();
    assert_eq!(text["label_smoothing"], 0.0);
    assert_eq!(text["schedule"], "inv-sqrt");
    assert_eq!(
        (&text["valid_freq"], &text["log_freq"], &text["save_freq"]),
        (&json!("0u"), &json!("20000t"), &json!("2e"))
    );
    assert_eq!(text["valid_metrics"], json!(["ce-mean-words", "bleu"]));
    assert_eq!(from_value::<TrainerOptions>(text).unwrap(), trainer);

    let some: TrainerOptions =
        from_str(r#"{"label_smoothing": 0, "schedule": "inverse_sqrt", "log_freq": "5"}"#).unwrap();
    assert_eq!(some, TrainerOptions::new().label_smoothing(0.0).log_freq(Period::Updates(5)));
    assert_eq!(from_str::<TrainerOptions>("{}").unwrap(), TrainerOptions::new());

    let config = ModelConfig::preset("llama", 500).unwrap().decoder_tied_layers(vec![1, 1, 2]);
    let text = to_value(&config).unwrap();
    assert_eq!((&text["norm"], &text["precision"]), (&json!("rms"), &json!("float32")));
    assert_eq!(from_value::<ModelConfig>(text).unwrap(), config);
    assert_eq!((config.norm, config.precision), (Norm::Rms, DType::F32));

    let search = TranslateOptions::new().beam(2).sampling(Sampling::new().top_k(7));
    assert_eq!(from_value::<TranslateOptions>(to_value(&search).unwrap()).unwrap(), search);
    let measure = EvaluationOptions::new().seed(7);
    assert_eq!(from_value::<EvaluationOptions>(to_value(&measure).unwrap()).unwrap(), measure);
}

#[test]
fn wrong_options_are_told() {
    for (text, words) in [
        (r#"{"schedule": "steep"}"#, "\"steep\" is none of constant, linear"),
        (r#"{"valid_freq": "often"}"#, "\"often\" is no period"),
        (r#"{"valid_freq": "5uu"}"#, "is no period"),
        (r#"{"warm_up": 5}"#, "unknown field `warm_up`"),
        (r#"{"warmup": -5}"#, "-5"),
    ] {
        let error = from_str::<TrainerOptions>(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    assert_eq!(from_str::<Stop>("\"early_stopping\"").unwrap(), Stop::Early);
}

/// Every event of a run is an object without `null`, as JSON has no NaN.
#[test]
fn events_and_results_are_objects() {
    use std::ops::ControlFlow;
    use trafo::{Corpus, Model, TokenizerOptions, Trainer, evaluate};

    let corpus =
        Corpus::from_pairs([("guten Tag", "good day"), ("guten Abend", "good evening")]).unwrap();
    let tokenizer = corpus.train_tokenizer(&TokenizerOptions::new(50).soft_limit(true)).unwrap();
    let config = ModelConfig::preset("tiny", tokenizer.vocabulary()).unwrap();
    let options = TrainerOptions::new()
        .after_updates(4)
        .log_freq(Period::Updates(2))
        .valid_freq(Period::Updates(2))
        .valid_metrics(&[Metric::Ce]);
    let mut trainer = Trainer::builder(Model::new(&config, 1).unwrap(), &tokenizer, &corpus)
        .valid(&corpus)
        .options(options)
        .build()
        .unwrap();
    let mut kinds = Vec::new();
    let step = to_value(trainer.step().unwrap()).unwrap();
    assert_eq!((&step["update"], &step["skipped"]), (&json!(1), &json!(false)));
    trainer
        .run(|event| {
            let value = to_value(event).unwrap();
            let members = value.as_object().unwrap();
            assert!(members.values().all(|member| *member != Value::Null), "{value}");
            kinds.push(members["kind"].as_str().unwrap().to_string());
            match kinds.last().unwrap().as_str() {
                "validated" => {
                    assert_eq!(value["deciding_metric"], "ce-mean-words");
                    assert_eq!(value["metrics"]["ce-mean-words"], value["best_metric"]);
                }
                "finished" => assert_eq!(value["stop"], "limit"),
                _ => assert!(!members.contains_key("best_metric"), "{value}"),
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    for kind in ["log", "validating", "validated", "finished"] {
        assert!(kinds.iter().any(|each| each == kind), "{kinds:?}");
    }
    let lines = ["good day"];
    let measured = evaluate(&lines, &[&lines], None, &EvaluationOptions::new()).unwrap();
    let value = to_value(&measured).unwrap();
    assert_eq!(value["bleu"].as_object().unwrap().len(), 1, "{value}");
    assert!(value.get("baseline_bleu").is_none());
    let model = trainer.model();
    let found = model.translate(&tokenizer, &["guten Tag"], &TranslateOptions::new().max_length(3));
    let value = to_value(&found.unwrap()[0]).unwrap();
    assert!(["end", "length"].contains(&value["hypotheses"][0]["finish"].as_str().unwrap()));
}
