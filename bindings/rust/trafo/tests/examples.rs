//! The examples do what they say, at a small size.

mod common;
#[allow(dead_code)] // its main
#[path = "../examples/finetune.rs"]
mod finetune;
#[allow(dead_code)]
#[path = "../examples/own_network.rs"]
mod own_network;
#[allow(dead_code)]
#[path = "../examples/resume.rs"]
mod resume;

use common::TestFolder;
use trafo::{CancelToken, Result, Stop};

#[test]
fn finetuning_teaches_the_new_and_keeps_the_old() -> Result<()> {
    let folder = TestFolder::new();
    let [before, after, kept] = finetune::run(folder.path(), 400)?;
    assert!(before < 10.0 && after > 80.0 && kept > 80.0, "{before} {after} {kept}");
    Ok(())
}

#[test]
fn an_interrupted_run_ends_like_one_that_was_not() -> Result<()> {
    let folder = TestFolder::new();
    let (whole, parts) = (folder.join("whole"), folder.join("parts"));
    assert_eq!(resume::run(&whole, 60, &CancelToken::new(), |_| {})?, Stop::Limit);
    for at in [13, 37] {
        let token = CancelToken::new();
        let interrupt = |update| {
            if update == at {
                token.cancel();
            }
        };
        assert_eq!(resume::run(&parts, 60, &token, interrupt)?, Stop::Cancelled);
    }
    let mut first = None;
    let stop = resume::run(&parts, 60, &CancelToken::new(), |update| {
        first.get_or_insert(update);
    })?;
    assert_eq!((stop, first), (Stop::Limit, Some(38)));
    let file =
        |run: &std::path::Path| std::fs::read(run.join("ckpt/60/model.safetensors")).unwrap();
    assert!(file(&whole) == file(&parts), "other weights");
    Ok(())
}

#[test]
fn the_own_network_learns() -> Result<()> {
    let right = own_network::run(trafo::Device::Cpu)?;
    assert!(right > 0.98, "{right} of the digits are right");
    Ok(())
}
