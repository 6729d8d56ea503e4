//! Several ranks that train one model, as threads of this process.

mod common;

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use common::{TestFolder, corpus, model, options, tokenizer, weights};
use trafo::{CommunicationDType, ErrorCode, Group, GroupId, Period, Result, Trainer};

/// Trains on `ranks` ranks with two lanes, and returns the weights of each.
fn train(ranks: i32, directory: &Path, communication: CommunicationDType) -> Result<Vec<Vec<u32>>> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let id = GroupId::local()?;
    let rank = |rank| -> Result<Vec<u32>> {
        let model = model(&tokenizer);
        let group = Group::join(&model, &id, rank, ranks)?;
        assert_eq!((group.rank(), group.size()), (rank, ranks));
        let options = options()
            .lanes(2)
            .communication_dtype(communication)
            .after_updates(12)
            .save_freq(Period::Updates(6));
        let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
            .options(options)
            .run_directory(directory)
            .group(&group)
            .build()?;
        assert!(trainer.run(|_| ControlFlow::Continue(()))?.is_finished());
        Ok(weights(trainer.model()))
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        let threads: Vec<_> = (0..ranks).map(|r| scope.spawn(move || rank(r))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn two_ranks_train_like_one() -> Result<()> {
    for communication in [CommunicationDType::Float32, CommunicationDType::Bfloat16] {
        let (one, two) = (TestFolder::new(), TestFolder::new());
        let alone = train(1, one.path(), communication)?;
        let together = train(2, two.path(), communication)?;
        assert!(together.iter().all(|weights| weights == &alone[0]));
        for file in ["model.safetensors", "optimizer.safetensors"] {
            let read =
                |folder: &TestFolder| std::fs::read(folder.join("ckpt/12").join(file)).unwrap();
            assert!(read(&one) == read(&two), "{file} with {communication:?}");
        }
    }
    Ok(())
}

#[test]
fn a_rank_that_is_alone_or_aborted_says_so() -> Result<()> {
    let tokenizer = tokenizer(&corpus());
    let model = model(&tokenizer);
    let id = GroupId::local()?;
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(60));
    let error = Group::join_within(&model, &id, 0, 2, short, long).unwrap_err();
    assert_eq!(error.code(), ErrorCode::PeerLost);
    assert!(error.to_string().contains("rank 1 has not joined"), "{error}");

    let corpus = corpus();
    let id = GroupId::local()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let model = common::model(&tokenizer);
            let group = Group::join(&model, &id, 1, 2)?;
            Trainer::builder(model, &tokenizer, &corpus)
                .options(options())
                .group(&group)
                .build()
                .map(drop)
        });
        let group = Group::join(&model, &id, 0, 2)?;
        group.abort("the test says so")?;
        let error = other.join().unwrap().unwrap_err();
        assert_eq!(error.code(), ErrorCode::PeerLost);
        assert!(error.to_string().contains("rank 0 has left: the test says so"), "{error}");
        Ok(())
    })
}

// With a GPU and NCCL the id is one; without them it says what is missing.
#[test]
fn nccl_is_loaded_or_named() {
    match GroupId::nccl() {
        Ok(id) => assert_ne!(id, GroupId::local().unwrap()),
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Unsupported);
            let words = error.to_string();
            assert!(words.contains("CUDA plugin") || words.contains("NCCL"), "{words}");
        }
    }
}
