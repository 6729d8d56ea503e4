//! Translates over HTTP and learns from corrections: see docs/guide/learning-service.md.

use std::ffi::OsString;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use learning_service::base::{Recipe, train_demo};
use learning_service::core::Core;
use learning_service::fault::{Fault, Result, io};
use learning_service::settings::{Settings, USAGE};
use learning_service::store::Store;
use learning_service::{api, learn};
use trafo::Device;

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help") {
        println!("{USAGE}");
        return std::process::ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("learning-service: {fault}");
            std::process::ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<()> {
    let mut settings = Settings::parse(arguments.into_iter())?;
    settings.token = token(std::env::var_os("LEARNING_SERVICE_TOKEN"))?;
    // Before a base is trained, which takes minutes: an address or a folder in use is refused at once.
    let listener = TcpListener::bind(&settings.address)
        .map_err(|error| Fault::Invalid(format!("{}: {error}", settings.address)))?;
    std::fs::create_dir_all(&settings.data).map_err(io(&settings.data))?;
    let store = Store::open(&settings.data.join("service.db"))?;
    if settings.base.is_none() && !settings.base_folder().exists() {
        make_base(&settings.base_folder(), settings.device)?;
    }
    let (core, refused) = Core::open(settings, store)?;
    for reason in refused {
        eprintln!("{reason}");
    }
    let core = Arc::new(core);
    // Before the first request: none may be lost by a signal that nobody handles.
    let signals = Signals::new([SIGTERM, SIGINT]);
    let mut signals = signals.map_err(|error| Fault::Internal(error.to_string()))?;
    let server = api::start(core.clone(), listener)?;
    let learner = learn::start(core.clone());
    println!("learning-service: http://{}", server.address());
    signals.forever().next();
    eprintln!("shutting down: answering what was accepted");
    core.close();
    let left = server.shutdown(Duration::from_secs(30));
    if learner.join().is_err() {
        return Err(Fault::Internal("the learner panicked".into()));
    }
    match left {
        0 => Ok(()),
        left => Err(Fault::Internal(format!("{left} connections were left unanswered"))),
    }
}

/// The token of the variable's value; an empty one is none.
fn token(value: Option<OsString>) -> Result<Option<String>> {
    let token = value.filter(|value| !value.is_empty()).map(OsString::into_string).transpose();
    match token {
        Ok(token) if token.iter().all(|text| text.bytes().all(|byte| byte.is_ascii_graphic())) => {
            Ok(token)
        }
        _ => Err(Fault::Invalid(
            "LEARNING_SERVICE_TOKEN must be of ASCII characters without spaces".into(),
        )),
    }
}

fn make_base(folder: &Path, device: Device) -> Result<()> {
    let (began, of) = (Instant::now(), Recipe::demo().updates);
    eprintln!(
        "there is no base model: a small one is trained from the demo corpus into {}",
        folder.display()
    );
    train_demo(folder, device, |update| {
        if update % 100 == 0 {
            eprintln!("update {update} of {of}, {:.0} s", began.elapsed().as_secs_f64());
        }
    })
}
