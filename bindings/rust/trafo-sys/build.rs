//! Finds or builds libtrafo and says how to link it. In this order:
//!
//! 1. `DOCS_RS` is set: nothing is linked; `cargo check` and `cargo doc` need no library.
//! 2. `TRAFO_LIB_DIR`: the library lies in that folder; static if `libtrafo.a` is there. `TRAFO_LINK` is `static` or `shared`
//!    if that is not to decide.
//! 3. feature `system`: pkg-config finds it.
//! 4. otherwise the engine is built by CMake and linked statically: from the repository that this crate lies in, or from
//!    its copy in the package (`vendor`, which is links in the repository). This takes minutes, and cargo shows nothing of a
//!    build script: the terminal is told what is built, how far it is and how to do without.

use std::env;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Dependencies of libtrafo.a, as pkg-config knows them; the names are Debian's.
const DEPENDENCIES: [&str; 3] = ["sentencepiece", "libhwy", "zlib"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["DOCS_RS", "TRAFO_LIB_DIR", "TRAFO_LINK", "CFLAGS", "CXXFLAGS"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    generate_bindings();
    // For -sys crates that compile against trafo.h and link the same library: DEP_TRAFO_INCLUDE, DEP_TRAFO_LIB_DIR.
    println!("cargo:include={}", repository().join("capi/include").display());
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Some(directory) = env::var_os("TRAFO_LIB_DIR") {
        link_from(Path::new(&directory));
    } else if env::var_os("CARGO_FEATURE_SYSTEM").is_some() {
        link_system();
    } else {
        if let Err(missing) = can_build() {
            panic!("{missing}");
        }
        link_static(&build_engine());
    }
}

/// The needs of the CMake build of the engine, checked first: CMake's own errors come after a page of its output.
fn can_build() -> Result<(), String> {
    let elsewhere = "Or link a library that is built already: set TRAFO_LIB_DIR to its folder (the package trafo-dev has one), or \
                     enable the feature `system`.";
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        return Err(format!("the engine is built for Linux only, not for {system}. {elsewhere}"));
    }
    let install = "Debian: apt install g++ cmake pkg-config libsentencepiece-dev libhwy-dev zlib1g-dev nlohmann-json3-dev.";
    let cmake = env::var("CMAKE").unwrap_or_else(|_| "cmake".to_string());
    match cmake_version(&cmake) {
        None => {
            return Err(format!(
                "the engine is built by CMake, and `{cmake}` does not run. {install} {elsewhere}"
            ));
        }
        Some(version) if version < CMAKE_VERSION => {
            return Err(format!(
                "`{cmake}` is version {}.{}; the engine needs CMake {}.{} or newer (pip install cmake has one). {elsewhere}",
                version.0, version.1, CMAKE_VERSION.0, CMAKE_VERSION.1
            ));
        }
        Some(_) => {}
    }
    if env::var_os("HOST") == env::var_os("TARGET") {
        let compiler = env::var("CXX").unwrap_or_else(|_| "c++".to_string());
        if !compiler.split_whitespace().next().is_some_and(runs) {
            return Err(format!(
                "the C++ compiler `{compiler}` does not run. {install} {elsewhere}"
            ));
        }
    }
    for name in DEPENDENCIES.into_iter().chain(["nlohmann_json"]) {
        if let Err(error) = pkg_config::Config::new().cargo_metadata(false).probe(name) {
            let reason = error.to_string();
            let reason = reason.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            return Err(format!(
                "the engine needs {name}, which pkg-config does not find. {install} {elsewhere} ({reason})"
            ));
        }
    }
    Ok(())
}

/// As CMakeLists.txt says; product_checks.sh compares them.
const CMAKE_VERSION: (u32, u32) = (3, 25);

fn cmake_version(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.lines().next()?.rsplit(' ').next()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The repository, or the part of it that the package holds.
fn repository() -> PathBuf {
    let manifest = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let manifest = Path::new(&manifest);
    let is_there = |path: &PathBuf| path.join("capi/include/trafo.h").is_file();
    let places = [manifest.join("../../.."), manifest.join("vendor")];
    let found = places.iter().filter_map(|path| path.canonicalize().ok()).find(is_there);
    found.unwrap_or_else(|| {
        panic!(
            "the engine's source is neither at {} nor at {}: take the whole package, or set TRAFO_LIB_DIR to the folder \
             of libtrafo, or enable the feature `system` to find it with pkg-config",
            places[0].display(),
            places[1].display()
        )
    })
}

fn link_from(directory: &Path) {
    let has = |name: &str| directory.join(name).exists();
    let archive = has("libtrafo.a");
    let library = has("libtrafo.so") || has("libtrafo.dylib");
    let wanted = env::var("TRAFO_LINK").unwrap_or_default();
    let shared = match wanted.as_str() {
        "" => !archive,
        "static" => false,
        "shared" => true,
        other => panic!("TRAFO_LINK is {other:?}; it can be \"static\" or \"shared\""),
    };
    if shared && library {
        println!("cargo:lib_dir={}", directory.display());
        println!("cargo:rustc-link-search=native={}", directory.display());
        println!("cargo:rustc-link-lib=dylib=trafo");
    } else if !shared && archive {
        println!("cargo:rerun-if-changed={}", directory.join("libtrafo.a").display());
        link_static(directory);
    } else {
        let missing = match wanted.as_str() {
            "static" => "no libtrafo.a",
            "shared" => "no libtrafo.so",
            _ => "neither libtrafo.a nor libtrafo.so",
        };
        panic!(
            "TRAFO_LIB_DIR is {}, which has {missing} (of the Debian packages, trafo-dev has both)",
            directory.display()
        );
    }
}

fn link_system() {
    match pkg_config::Config::new().atleast_version("0.1").probe("trafo") {
        Ok(found) => found
            .link_paths
            .iter()
            .take(1)
            .for_each(|folder| println!("cargo:lib_dir={}", folder.display())),
        Err(error) => panic!(
            "pkg-config does not find trafo (is it installed, is PKG_CONFIG_PATH right?): {error}"
        ),
    }
}

/// Everything goes into the final binary but the C++ runtime and Debian's shared libraries, so that it runs without
/// LD_LIBRARY_PATH.
fn link_static(directory: &Path) {
    println!("cargo:lib_dir={}", directory.display());
    println!("cargo:rustc-link-search=native={}", directory.display());
    println!("cargo:rustc-link-lib=static=trafo");
    for name in DEPENDENCIES {
        if let Err(error) = pkg_config::probe_library(name) {
            panic!(
                "pkg-config does not find {name}, which libtrafo.a needs (Debian: apt install \
                    libsentencepiece-dev libhwy-dev zlib1g-dev; or link the shared library: TRAFO_LIB_DIR and \
                    TRAFO_LINK=shared): {error}"
            );
        }
    }
    for name in ["stdc++", "pthread", "dl", "m"] {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}

fn build_engine() -> PathBuf {
    let repository = repository();
    for path in ["engine", "capi", "cmake", "CMakeLists.txt"] {
        println!("cargo:rerun-if-changed={}", repository.join(path).display());
    }
    let mut config = cmake::Config::new(&repository);
    config
        // An unoptimised engine is of no use, also under an unoptimised program.
        .profile("Release")
        .no_default_flags(true)
        // Otherwise the cmake crate adds -w, and ccache could not share objects with the engine's other builds.
        .define("CMAKE_C_FLAGS", env::var("CFLAGS").unwrap_or_default())
        .define("CMAKE_CXX_FLAGS", env::var("CXXFLAGS").unwrap_or_default())
        .define("TRAFO_BUILD_APPS", "OFF")
        .define("TRAFO_BUILD_TESTS", "OFF")
        .define("TRAFO_BUILD_BENCH", "OFF")
        .build_target("trafo_static");
    if runs("ninja") {
        config.generator("Ninja");
    }
    if runs("ccache") {
        // With the settings for precompiled headers, without which nothing would be cached.
        let launcher = repository.join("cmake/ccache.sh");
        config.define("CMAKE_CXX_COMPILER_LAUNCHER", &launcher);
        config.define("CMAKE_C_COMPILER_LAUNCHER", &launcher);
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    with_progress(&out.join("build"), || config.build()).join("build")
}

/// Builds, and tells the terminal, if there is one, about it: at once, and then every 20 seconds.
fn with_progress<T>(build: &Path, work: impl FnOnce() -> T) -> T {
    let Ok(mut terminal) = File::options().write(true).open("/dev/tty") else {
        return work();
    };
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    // From the left edge, over cargo's own line. A terminal that has gone is no reason to fail.
    let mut tell = move |text: String| drop(writeln!(terminal, "\r\x1b[Ktrafo-sys: {text}"));
    tell(format!(
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
            let commands =
                fs::read_to_string(build.join("compile_commands.json")).unwrap_or_default();
            let (mut wanted, mut there) = (0, 0);
            for folder in ["CMakeFiles/trafo_engine.dir", "capi/CMakeFiles/trafo_capi.dir"] {
                wanted += commands.matches(&format!("-o {folder}/")).count();
                there += objects(&build.join(folder));
            }
            let seconds = began.elapsed().as_secs();
            tell(if wanted == 0 {
                format!("still configuring after {seconds} s")
            } else {
                format!("{there} of {wanted} files after {seconds} s")
            });
        }
        tell(format!("the engine is built, after {} s", began.elapsed().as_secs()));
    });
    let built = work();
    let _ = ended.send(()); // the teller waits for it
    drop(teller.join());
    built
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

fn runs(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(not(feature = "buildtime-bindgen"))]
fn generate_bindings() {}

#[cfg(feature = "buildtime-bindgen")]
fn generate_bindings() {
    let include = repository().join("capi/include");
    println!("cargo:rerun-if-changed={}", include.display());
    let header = include.join("trafo.h");
    let bindings = bindgen::Builder::default()
        .header(header.to_str().expect("the path of trafo.h is UTF-8"))
        .allowlist_function("trafo_.*")
        .allowlist_type("trafo_.*")
        .allowlist_var("TRAFO_.*")
        // Plain constants and int32: a new value from a newer library must not be undefined behaviour.
        .default_enum_style(bindgen::EnumVariation::Consts)
        .default_macro_constant_type(bindgen::MacroTypeVariation::Signed)
        .rust_target(bindgen::RustTarget::stable(85, 0).expect("bindgen knows Rust 1.85"))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .use_core()
        .clang_arg("-fparse-all-comments")
        .generate_comments(true)
        .enable_function_attribute_detection()
        .formatter(bindgen::Formatter::Rustfmt)
        .generate()
        .expect("bindgen reads trafo.h");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    bindings.write_to_file(out.join("bindings.rs")).expect("OUT_DIR can be written");
}
