//! Tells the terminal how far a build is: cargo shows nothing of a build script.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Targets of CMakeLists.txt that libtrafo.a is made of.
const TARGETS: [&str; 5] = [
    "CMakeFiles/trafo_engine.dir",
    "capi/CMakeFiles/trafo_capi.dir",
    "CMakeFiles/trafo_sentencepiece.dir",
    "CMakeFiles/trafo_highway.dir",
    "CMakeFiles/trafo_zlib.dir",
];

/// A line on the terminal, if there is one: from the left edge, over cargo's own line. A terminal that has gone is no reason to fail.
pub fn tell(text: &str) {
    if let Ok(mut terminal) = File::options().write(true).open("/dev/tty") {
        drop(writeln!(terminal, "\r\x1b[Ktrafo-sys: {text}"));
    }
}

/// Builds in the folder `build`, and tells the terminal about it: at once, and then every 20 seconds.
pub fn tell_during<T>(build: &Path, work: impl FnOnce() -> T) -> T {
    if File::options().write(true).open("/dev/tty").is_err() {
        return work();
    }
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    tell(&format!(
        "compiling the engine (C++) with {cores} cores, which takes minutes and is done once. With a library that is \
         built already, for example from the package trafo-dev, set TRAFO_LIB_DIR to its folder"
    ));
    let (ended, has_ended) = channel::<()>();
    let began = Instant::now();
    let build = build.to_path_buf();
    let teller = thread::spawn(move || {
        loop {
            match has_ended.recv_timeout(Duration::from_secs(20)) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) => break,
                Err(RecvTimeoutError::Disconnected) => return, // the build failed, and cargo says how
            }
            tell(&state(&build, began.elapsed().as_secs()));
        }
        tell(&format!("the engine is built, after {} s", began.elapsed().as_secs()));
    });
    let built = work();
    let _ = ended.send(()); // the teller waits for it
    drop(teller.join());
    built
}

fn state(build: &Path, seconds: u64) -> String {
    let commands = fs::read_to_string(build.join("compile_commands.json")).unwrap_or_default();
    let wanted: usize =
        TARGETS.iter().map(|folder| commands.matches(&format!("-o {folder}/")).count()).sum();
    let there: usize = TARGETS.iter().map(|folder| objects(&build.join(folder))).sum();
    match wanted {
        0 => format!("still configuring after {seconds} s"),
        _ => format!("{there} of {wanted} files after {seconds} s"),
    }
}

/// Object files in a folder and its folders.
fn objects(folder: &Path) -> usize {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    entries
        .filter_map(|entry| entry.ok())
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => objects(&entry.path()),
            _ => usize::from(entry.path().extension().is_some_and(|name| name == "o")),
        })
        .sum()
}
