//! Code that must not compile: lifetimes, ownership and threads. Each says with which error, so that it cannot fail to compile
//! for another reason; the first says that the setting itself does.

/// ```
/// # use trafo::*;
/// fn works(mut model: Model, tokenizer: Tokenizer, corpus: Corpus) -> Result<()> {
///     for parameter in model.parameters()? {
///         println!("{}", parameter.name());
///     }
///     for mut parameter in model.parameters_mut()? {
///         parameter.write(&vec![0.0f32; parameter.shape().iter().product()])?;
///     }
///     let trainer = Trainer::builder(model, &tokenizer, &corpus).build()?;
///     drop(tokenizer);
///     let handle = std::thread::spawn(move || trainer.into_model()); // models and trainers move
///     let _model = handle.join().unwrap();
///     Ok(())
/// }
/// fn shared<T: Send + Sync>() {}
/// shared::<Model>(); // translates for several threads
/// shared::<Tokenizer>();
/// shared::<Corpus>();
/// shared::<CancelToken>();
/// shared::<TrainerOptions>();
/// shared::<Event>();
/// shared::<Error>();
/// ```
struct WhatCompiles;

/// ```compile_fail,E0505
/// # use trafo::*;
/// fn a_parameter_does_not_outlive_its_model(model: Model) -> Result<()> {
///     let parameters = model.parameters()?;
///     drop(model);
///     println!("{}", parameters[0].name());
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0505
/// # use trafo::*;
/// fn a_model_does_not_move_while_a_parameter_is_borrowed(model: Model) -> Result<()> {
///     let parameter = model.parameters()?.remove(0);
///     std::thread::spawn(move || model.parameter_count());
///     println!("{}", parameter.name());
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0596
/// # use trafo::*;
/// fn weights_do_not_change_while_others_translate(model: &Model) -> Result<()> {
///     model.parameters_mut()?.remove(0).write(&[0.0f32])
/// }
/// ```
/// ```compile_fail,E0502
/// # use trafo::*;
/// fn threads_do_not_change_under_a_parameter(mut model: Model) -> Result<()> {
///     let parameter = model.parameters()?.remove(0);
///     model.set_threads(2)?;
///     println!("{}", parameter.name());
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0505
/// # use trafo::*;
/// fn a_corpus_lives_until_the_trainer_is_built(model: Model, tokenizer: Tokenizer, corpus: Corpus) -> Result<()> {
///     let builder = Trainer::builder(model, &tokenizer, &corpus);
///     drop(corpus);
///     builder.build()?;
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0505
/// # use trafo::*;
/// fn weights_live_as_long_as_the_options(logits: Tensor, labels: Tensor, weights: Tensor) -> Result<()> {
///     let options = CrossEntropyOptions::new().weights(&weights);
///     drop(weights);
///     logits.cross_entropy(&labels, &options)?;
///     Ok(())
/// }
/// ```
struct Lifetimes;

/// ```compile_fail,E0382
/// # use trafo::*;
/// fn a_trainer_has_the_model(model: Model, tokenizer: Tokenizer, corpus: Corpus) -> Result<()> {
///     let trainer = Trainer::builder(model, &tokenizer, &corpus).build()?;
///     model.parameter_count();
///     drop(trainer);
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0502
/// # use trafo::*;
/// fn nobody_holds_the_model_while_it_is_trained(mut trainer: Trainer) -> Result<()> {
///     let parameters = trainer.model().parameters()?;
///     trainer.step()?;
///     println!("{}", parameters[0].name());
///     Ok(())
/// }
/// ```
/// ```compile_fail,E0502
/// # use trafo::*;
/// # use std::ops::ControlFlow;
/// fn a_callback_does_not_reach_its_trainer(mut trainer: Trainer) -> Result<()> {
///     trainer.run(|_| {
///         println!("{:?}", trainer.model().device());
///         ControlFlow::Continue(())
///     })?;
///     Ok(())
/// }
/// ```
struct Ownership;

/// ```compile_fail,E0277
/// fn sends<T: Send>() {}
/// sends::<trafo::Context>();
/// ```
/// ```compile_fail,E0277
/// fn sends<T: Send>() {}
/// sends::<trafo::Tensor>();
/// ```
/// ```compile_fail,E0277
/// fn sends<T: Send>() {}
/// sends::<trafo::AdamW>();
/// ```
/// ```compile_fail,E0277
/// fn sends<T: Send>() {}
/// sends::<trafo::Parameter<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn shares<T: Sync>() {}
/// shares::<trafo::Trainer>();
/// ```
struct Threads;
