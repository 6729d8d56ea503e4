//! The needs of the engine's build, checked before CMake runs: CMake's own errors come after a page of its output.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{DEPENDENCIES, Sources, runs};

/// As CMakeLists.txt says; product_checks.sh compares them.
const CMAKE_VERSION: (u32, u32) = (3, 25);

/// A program that older compilers refuse: GCC before 11 and Clang before 14 or with an old libstdc++.
const CXX20: &str = "#include <charconv>\n#include <concepts>\n#include <span>\n\
    static_assert(__cplusplus >= 202002L);\n\
    template <std::floating_point T> bool read(std::span<const char> text, T& value) {\n\
      return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();\n\
    }\n\
    int main() { double value = 0; return read(std::span<const char>(\"1\", 1), value) ? 0 : 1; }\n";

const ELSEWHERE: &str = "Or link a library that is built already: set TRAFO_LIB_DIR to its folder (the package trafo-dev has one), or \
    enable the feature `system`.";

/// One line that says what is missing and how to get it.
pub fn check(sources: &Sources) -> Result<(), String> {
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system != "linux" {
        return Err(format!("the engine is built for Linux only, not for {system}. {ELSEWHERE}"));
    }
    let install = match sources.third_party {
        Some(_) => "Debian: apt install g++ make cmake.",
        None => {
            "Debian: apt install g++ make cmake pkg-config libsentencepiece-dev libhwy-dev zlib1g-dev nlohmann-json3-dev."
        }
    };
    check_cmake(install)?;
    if !runs("ninja") && !runs("make") {
        return Err(format!("CMake needs make or ninja, and neither runs. {install} {ELSEWHERE}"));
    }
    if env::var_os("HOST") == env::var_os("TARGET") {
        check_compiler(install)?;
    }
    if sources.third_party.is_none() {
        check_libraries(sources, install)?;
    }
    Ok(())
}

fn check_cmake(install: &str) -> Result<(), String> {
    let cmake = env::var("CMAKE").unwrap_or_else(|_| "cmake".to_string());
    match cmake_version(&cmake) {
        None => Err(format!(
            "the engine is built by CMake, and `{cmake}` does not run. {install} {ELSEWHERE}"
        )),
        Some(version) if version < CMAKE_VERSION => Err(format!(
            "`{cmake}` is version {}.{}; the engine needs CMake {}.{} or newer (pip install cmake has one). {ELSEWHERE}",
            version.0, version.1, CMAKE_VERSION.0, CMAKE_VERSION.1
        )),
        Some(_) => Ok(()),
    }
}

fn cmake_version(program: &str) -> Option<(u32, u32)> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.lines().next()?.rsplit(' ').next()?.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// The C++ compiler and its arguments, as CMake takes them from the environment.
pub fn compiler() -> Vec<String> {
    let words = env::var("CXX").unwrap_or_default();
    let words: Vec<String> = words.split_whitespace().map(str::to_string).collect();
    if words.is_empty() { vec!["c++".to_string()] } else { words }
}

/// The first line of `--version`.
pub fn compiler_version() -> Option<String> {
    let words = compiler();
    let output = Command::new(&words[0]).args(&words[1..]).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_string())
}

fn check_compiler(install: &str) -> Result<(), String> {
    let words = compiler();
    let name = words.join(" ");
    let Some(version) = compiler_version() else {
        return Err(format!("the C++ compiler `{name}` does not run. {install} {ELSEWHERE}"));
    };
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let file = out.join("cxx20.cc");
    fs::write(&file, CXX20).expect("OUT_DIR can be written");
    let compiled = Command::new(&words[0])
        .args(&words[1..])
        .args(["-std=c++20", "-fsyntax-only"])
        .arg(&file)
        .output();
    match compiled {
        Ok(output) if output.status.success() => Ok(()),
        _ => Err(format!(
            "the C++ compiler `{name}` ({version}) does not compile C++20; the engine needs GCC 11, Clang 14 or newer: \
             set CXX to one. {install} {ELSEWHERE}"
        )),
    }
}

fn check_libraries(sources: &Sources, install: &str) -> Result<(), String> {
    if sources.packaged && env::var_os("CARGO_FEATURE_BUNDLED").is_some() {
        return Err(format!(
            "the package lacks {}: it was not made by scripts/third-party.sh and cargo package. Take another, or build \
             with the system's libraries: default-features = false",
            sources.root.join("third_party").display()
        ));
    }
    for name in DEPENDENCIES.into_iter().chain(["nlohmann_json"]) {
        if let Err(error) = pkg_config::Config::new().cargo_metadata(false).probe(name) {
            let reason = error.to_string();
            let reason = reason.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let bundled = match sources.packaged {
                true => "Or take the libraries' sources of the package: the feature `bundled`.",
                false => {
                    "Or build it with the engine: scripts/third-party.sh of the repository gets its source."
                }
            };
            return Err(format!(
                "the engine needs {name}, which pkg-config does not find. {install} {bundled} {ELSEWHERE} ({reason})"
            ));
        }
    }
    Ok(())
}
