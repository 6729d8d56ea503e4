//! Finds or builds libtrafo and says how to link it. In this order:
//!
//! 1. `DOCS_RS` is set: nothing is linked; `cargo check` and `cargo doc` need no library.
//! 2. `TRAFO_LIB_DIR`: the library lies in that folder; static if `libtrafo.a` is there. `TRAFO_LINK` is `static` or `shared`
//!    if that is not to decide.
//! 3. feature `system`: pkg-config finds it.
//! 4. otherwise the engine is built by CMake and linked statically (`engine`): from the package's `vendor`, which is links in the
//!    repository. With the feature `bundled`, which is on by default, so are the libraries that it needs. With the feature `cuda`, so
//!    is the GPU plugin (`plugins`).

mod cache;
mod engine;
mod plugins;
mod progress;
mod requirements;

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Libraries that libtrafo.a needs if it is not bundled, as pkg-config knows them.
const DEPENDENCIES: [&str; 3] = ["sentencepiece", "libhwy", "zlib"];

fn main() {
    println!("cargo:rerun-if-changed=build");
    for variable in [
        "DOCS_RS",
        "TRAFO_LIB_DIR",
        "TRAFO_LINK",
        "TRAFO_CACHE_DIR",
        "TRAFO_CUDA_TOOLKIT",
        "TRAFO_CUDA_ARCHITECTURES",
        "CFLAGS",
        "CXXFLAGS",
        "CXXSTDLIB",
    ] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    generate_bindings();
    // For -sys crates that compile against trafo.h and link the same library: DEP_TRAFO_INCLUDE, DEP_TRAFO_LIB_DIR.
    println!("cargo:include={}", Sources::find().root.join("capi/include").display());
    if env::var_os("DOCS_RS").is_some() {
        return;
    }
    if let Some(directory) = env::var_os("TRAFO_LIB_DIR") {
        link_from(Path::new(&directory));
    } else if env::var_os("CARGO_FEATURE_SYSTEM").is_some() {
        link_system();
    } else {
        let sources = Sources::find();
        if let Err(missing) = requirements::check(&sources) {
            fail(&missing);
        }
        let built = engine::build(&sources);
        plugins::build(&sources, &built);
        link_static(&built, sources.third_party.is_none());
    }
}

/// Ends the build with one line. A panic would put the place in this file in front of it.
fn fail(message: &str) -> ! {
    eprintln!("trafo-sys: {message}");
    std::process::exit(1);
}

/// Where the engine's sources lie.
struct Sources {
    root: PathBuf,
    /// The copy that a package holds, which does not change.
    packaged: bool,
    /// Sources of SentencePiece, Highway, zlib and nlohmann-json; none: the system has these libraries.
    third_party: Option<PathBuf>,
}

impl Sources {
    fn find() -> Sources {
        let manifest = env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
        let manifest = Path::new(&manifest);
        let places = [manifest.join("../../.."), manifest.join("vendor")];
        let is_there = |path: &PathBuf| path.join("capi/include/trafo.h").is_file();
        let roots = places.each_ref().map(|path| path.canonicalize().ok().filter(is_there));
        let packaged = roots[0].is_none();
        let Some(root) = roots.into_iter().flatten().next() else {
            fail(&format!(
                "the engine's source is neither at {} nor at {}: take the whole package, or set TRAFO_LIB_DIR to the \
                 folder of libtrafo, or enable the feature `system` to find it with pkg-config",
                places[0].display(),
                places[1].display()
            ))
        };
        // In a package or a source archive; in a checkout, where scripts/third-party.sh puts them.
        let folders = ["third_party", "build/third-party"].map(|folder| root.join(folder));
        let complete = folders.into_iter().find(|folder| folder.join("complete").is_file());
        let bundled = env::var_os("CARGO_FEATURE_BUNDLED").is_some();
        let third_party = complete.filter(|_| bundled);
        Sources { root, packaged, third_party }
    }
}

fn link_from(directory: &Path) {
    let has = |name: &str| directory.join(name).exists();
    let archive = has("libtrafo.a");
    // Of Windows: the import library of trafo.dll.
    let library = ["libtrafo.so", "libtrafo.dylib", "libtrafo.dll.a"].into_iter().any(has);
    let wanted = env::var("TRAFO_LINK").unwrap_or_default();
    let shared = match wanted.as_str() {
        "" => !archive,
        "static" => false,
        "shared" => true,
        other => fail(&format!("TRAFO_LINK is {other:?}; it can be \"static\" or \"shared\"")),
    };
    if shared && library {
        println!("cargo:lib_dir={}", directory.display());
        println!("cargo:rustc-link-search=native={}", directory.display());
        println!("cargo:rustc-link-lib=dylib=trafo");
    } else if !shared && archive {
        println!("cargo:rerun-if-changed={}", directory.join("libtrafo.a").display());
        plugins::take_from(directory);
        link_static(directory, needs_system_libraries(directory));
    } else {
        let missing = match wanted.as_str() {
            "static" => "no libtrafo.a",
            "shared" => "no libtrafo.so (on Windows, libtrafo.dll.a)",
            _ => "neither libtrafo.a nor libtrafo.so (on Windows, libtrafo.dll.a)",
        };
        fail(&format!(
            "TRAFO_LIB_DIR is {}, which has {missing} (of the Debian packages, trafo-dev has both)",
            directory.display()
        ));
    }
}

/// Whether a libtrafo.a is without the libraries it needs, which the trafo.pc of its build or installation says.
fn needs_system_libraries(directory: &Path) -> bool {
    let files = ["trafo.pc", "pkgconfig/trafo.pc"].map(|name| directory.join(name));
    let text = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
    text.is_none_or(|text| {
        text.lines().any(|line| line.starts_with("Libs.private:") && line.contains("sentencepiece"))
    })
}

fn link_system() {
    match pkg_config::Config::new().atleast_version("0.1").probe("trafo") {
        Ok(found) => found
            .link_paths
            .iter()
            .take(1)
            .for_each(|folder| println!("cargo:lib_dir={}", folder.display())),
        Err(error) => fail(&format!(
            "pkg-config does not find trafo (is it installed, is PKG_CONFIG_PATH right?): {error}"
        )),
    }
}

/// Everything goes into the final binary but the C and C++ runtimes and, without the feature `bundled`, the system's libraries.
fn link_static(directory: &Path, system_libraries: bool) {
    println!("cargo:lib_dir={}", directory.display());
    println!("cargo:rustc-link-search=native={}", directory.display());
    println!("cargo:rustc-link-lib=static=trafo");
    for name in DEPENDENCIES.into_iter().filter(|_| system_libraries) {
        if let Err(error) = pkg_config::probe_library(name) {
            fail(&format!(
                "pkg-config does not find {name}, which libtrafo.a needs (Debian: apt install libsentencepiece-dev \
                 libhwy-dev zlib1g-dev; or link the shared library: TRAFO_LIB_DIR and TRAFO_LINK=shared): {error}"
            ));
        }
    }
    link_cxx_runtime();
    let windows = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "windows");
    for name in ["pthread", if windows { "bcrypt" } else { "dl" }, "m"] {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
}

/// `CXXSTDLIB` names another C++ library than libstdc++, as for the crate cc.
fn link_cxx_runtime() {
    if env::var_os("CARGO_FEATURE_STATIC_LIBSTDC++").is_some() {
        let compiler = requirements::compiler();
        let output = Command::new(&compiler[0])
            .args(&compiler[1..])
            .arg("-print-file-name=libstdc++.a")
            .output();
        let file =
            output.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
        match file
            .ok()
            .as_ref()
            .and_then(|file| file.parent())
            .filter(|folder| folder.is_absolute())
        {
            Some(folder) => println!("cargo:rustc-link-search=native={}", folder.display()),
            None => fail(&format!(
                "`{}` has no libstdc++.a for the feature `static-libstdc++`",
                compiler.join(" ")
            )),
        }
        println!("cargo:rustc-link-lib=static:-bundle=stdc++");
        return;
    }
    let name = env::var("CXXSTDLIB").unwrap_or_else(|_| "stdc++".to_string());
    if !name.is_empty() {
        println!("cargo:rustc-link-lib=dylib={name}");
    }
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
    let include = Sources::find().root.join("capi/include");
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
