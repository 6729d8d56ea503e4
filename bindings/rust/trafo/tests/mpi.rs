//! Two processes of an MPI job train one model. The test starts itself with mpirun.

mod common;

use std::env;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{TestFolder, corpus, model, options, tokenizer};
use trafo::{Group, GroupId, Period, Result, Trainer, finalize_mpi};

const RUN: &str = "TRAFO_TEST_MPI_RUN";

fn train(directory: &Path, join: impl FnOnce(&trafo::Model) -> Result<Group>) -> Result<()> {
    let corpus = corpus();
    let tokenizer = tokenizer(&corpus);
    let model = model(&tokenizer);
    let group = join(&model)?;
    let options = options().lanes(2).after_updates(12).save_freq(Period::Updates(6));
    let mut trainer = Trainer::builder(model, &tokenizer, &corpus)
        .options(options)
        .run_directory(directory)
        .group(&group)
        .build()?;
    assert!(trainer.run(|_| ControlFlow::Continue(()))?.is_finished());
    Ok(())
}

/// The MPI library of Trafo, beside the engine that this test was built with.
fn library() -> Option<PathBuf> {
    let named = env::var_os("TRAFO_MPI_LIBRARY").map(PathBuf::from);
    let beside = || {
        let folder = PathBuf::from(env::var_os("TRAFO_LIB_DIR")?);
        folder.join("libtrafo_mpi.so").canonicalize().ok()
    };
    named.or_else(beside)
}

#[test]
fn two_processes_train_like_one() -> Result<()> {
    if let Some(directory) = env::var_os(RUN) {
        // One of the processes.
        train(Path::new(&directory), |model| {
            let group = Group::join_mpi(model)?;
            assert_eq!(group.size()?, 2);
            Ok(group)
        })?;
        return finalize_mpi();
    }
    let Some(library) = library() else {
        eprintln!("skipped: there is no libtrafo_mpi.so in TRAFO_LIB_DIR");
        return Ok(());
    };
    if Command::new("mpirun").arg("--version").output().is_err() {
        eprintln!("skipped: there is no mpirun");
        return Ok(());
    }
    let (one, two) = (TestFolder::new(), TestFolder::new());
    train(one.path(), |model| Group::join(model, &GroupId::local()?, 0, 1))?;
    let job = Command::new("mpirun")
        .args(["--oversubscribe", "--bind-to", "none", "-n", "2"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "two_processes_train_like_one", "--nocapture"])
        .env(RUN, two.path())
        .env("TRAFO_MPI_LIBRARY", library)
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_btl_vader_single_copy_mechanism", "none")
        .output()
        .unwrap();
    assert!(job.status.success(), "{}", String::from_utf8_lossy(&job.stderr));
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let read = |folder: &TestFolder| std::fs::read(folder.join("ckpt/12").join(file)).unwrap();
        assert!(read(&one) == read(&two), "{file}");
    }
    Ok(())
}
