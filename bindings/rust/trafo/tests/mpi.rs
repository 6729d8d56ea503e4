//! Two processes train one model. The tests start themselves, with mpirun or without a launcher.

mod common;

use std::env;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{TestFolder, corpus, model, options, tokenizer};
use trafo::{ErrorCode, Group, GroupId, Period, Result, Trainer, finalize_mpi};

const RUN: &str = "TRAFO_TEST_MPI_RUN";
const TCP_RUN: &str = "TRAFO_TEST_TCP_RUN";
const TCP_ID: &str = "TRAFO_TEST_TCP_ID";
const TCP_LIBRARY: &str = "TRAFO_TCP_LIBRARY";

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

/// A library of Trafo that is loaded when it is needed, beside the engine that this test was built with.
fn library(variable: &str, file: &str) -> Option<PathBuf> {
    let named = env::var_os(variable).map(PathBuf::from);
    let beside = || PathBuf::from(env::var_os("TRAFO_LIB_DIR")?).join(file).canonicalize().ok();
    named.or_else(beside)
}

#[test]
fn two_processes_train_like_one() -> Result<()> {
    if let Some(directory) = env::var_os(RUN) {
        // One of the processes.
        train(Path::new(&directory), |model| {
            let group = Group::join_mpi(model)?;
            assert_eq!(group.size(), 2);
            Ok(group)
        })?;
        return finalize_mpi();
    }
    let Some(library) = library("TRAFO_MPI_LIBRARY", "libtrafo_mpi.so") else {
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
    same_checkpoint(&one, &two);
    Ok(())
}

fn same_checkpoint(one: &TestFolder, two: &TestFolder) {
    for file in ["model.safetensors", "optimizer.safetensors"] {
        let read = |folder: &TestFolder| std::fs::read(folder.join("ckpt/12").join(file)).unwrap();
        assert!(read(one) == read(two), "{file}");
    }
}

/// One process makes the id and gives it to the other as text in the environment.
#[test]
fn two_processes_train_over_tcp() -> Result<()> {
    if let Some(directory) = env::var_os(TCP_RUN) {
        let text = env::var(TCP_ID).unwrap();
        let bytes: Vec<u8> = (0..text.len() / 2)
            .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
            .collect();
        let id = GroupId::tcp_from_bytes(bytes.try_into().unwrap());
        return train(Path::new(&directory), |model| Group::join(model, &id, 1, 2));
    }
    const TEST: [&str; 3] = ["--exact", "two_processes_train_over_tcp", "--nocapture"];
    if env::var_os(TCP_LIBRARY).is_none() {
        // The environment of this process is not its own.
        let Some(library) = library(TCP_LIBRARY, "libtrafo_tcp.so") else {
            eprintln!("skipped: there is no libtrafo_tcp.so in TRAFO_LIB_DIR");
            return Ok(());
        };
        let test = Command::new(env::current_exe().unwrap())
            .args(TEST)
            .env(TCP_LIBRARY, library)
            .output()
            .unwrap();
        assert!(test.status.success(), "{}", String::from_utf8_lossy(&test.stderr));
        return Ok(());
    }
    let (one, two) = (TestFolder::new(), TestFolder::new());
    train(one.path(), |model| Group::join(model, &GroupId::local()?, 0, 1))?;
    let id = GroupId::tcp("localhost:0", None)?;
    let text: String = id.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!format!("{id:?}").contains("localhost"));
    let other = Command::new(env::current_exe().unwrap())
        .args(TEST)
        .env(TCP_RUN, two.path())
        .env(TCP_ID, text)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let trained = train(two.path(), |model| Group::join(model, &id, 0, 2));
    let other = other.wait_with_output().unwrap();
    trained?;
    assert!(other.status.success(), "{}", String::from_utf8_lossy(&other.stderr));
    same_checkpoint(&one, &two);
    let short = GroupId::tcp("localhost:29400", Some(b"short")).unwrap_err();
    assert_eq!(short.code(), ErrorCode::InvalidArgument);
    Ok(())
}
