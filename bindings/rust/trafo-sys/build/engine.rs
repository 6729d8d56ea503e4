//! Builds the engine by CMake.

use std::env;
use std::path::{Path, PathBuf};

use crate::{Sources, cache, progress, runs};

/// Files of the build that outlive it.
const KEPT: [&str; 2] = ["libtrafo_tcp.so", "libtrafo.a"];

/// The folder with libtrafo.a: of an earlier build, if the cache has one of the same sources.
pub fn build(sources: &Sources) -> PathBuf {
    let watched = match sources.packaged {
        true => vec![sources.root.clone()],
        false => ["engine", "capi", "cmake", "CMakeLists.txt"]
            .map(|path| sources.root.join(path))
            .to_vec(),
    };
    for path in watched.iter().chain(&sources.third_party) {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    match cache::folder(sources) {
        Some(folder) => {
            let library = folder.join("libtrafo.a");
            // Somebody may delete the cache.
            println!("cargo:rerun-if-changed={}", library.display());
            cache::fill(&folder, &KEPT, |out| compile(sources, out));
            folder
        }
        None => {
            let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
            compile(sources, &out)
        }
    }
}

/// Features of the crate that select kernels.
pub const KERNELS: [&str; 3] = ["avx2", "avx512", "float64"];

/// Those of the features that are enabled.
pub fn enabled<'a>(features: &[&'a str]) -> Vec<&'a str> {
    let is_enabled =
        |name: &&str| env::var_os(format!("CARGO_FEATURE_{}", name.to_uppercase())).is_some();
    features.iter().copied().filter(is_enabled).collect()
}

/// Builds libtrafo.a in the folder `out` and returns its folder.
fn compile(sources: &Sources, out: &Path) -> PathBuf {
    let mut config = configuration(sources, out);
    config.build_target("trafo_static");
    progress::tell_during(&out.join("build"), || config.build()).join("build")
}

/// The build in the folder `out`, without its target.
pub fn configuration(sources: &Sources, out: &Path) -> cmake::Config {
    let mut config = cmake::Config::new(&sources.root);
    let third_party = sources.third_party.as_deref().unwrap_or(Path::new(""));
    let ccache = runs("ccache");
    config
        .out_dir(out)
        // An unoptimised engine is of no use, also under an unoptimised program.
        .profile("Release")
        .no_default_flags(true)
        // Otherwise the cmake crate adds -w, and ccache could not share objects with the engine's other builds.
        .define("CMAKE_C_FLAGS", env::var("CFLAGS").unwrap_or_default())
        .define("CMAKE_CXX_FLAGS", env::var("CXXFLAGS").unwrap_or_default())
        .define("TRAFO_BUILD_APPS", "OFF")
        .define("TRAFO_BUILD_TESTS", "OFF")
        .define("TRAFO_BUILD_BENCH", "OFF")
        .define("TRAFO_MPI", "OFF")
        // Larger groups take less time. In a checkout, ccache has the objects of the engine's other builds.
        .define("TRAFO_UNITY_SIZE", if sources.packaged || !ccache { "24" } else { "8" })
        .define("TRAFO_INSTRUCTION_SETS", enabled(&["avx2", "avx512"]).join(";"))
        .define("TRAFO_FLOAT64", if enabled(&["float64"]).is_empty() { "OFF" } else { "ON" })
        .define("TRAFO_THIRD_PARTY", third_party);
    if runs("ninja") {
        config.generator("Ninja");
    }
    if ccache {
        // With the settings for precompiled headers, without which nothing would be cached.
        let launcher = sources.root.join("cmake/ccache.sh");
        config.define("CMAKE_CXX_COMPILER_LAUNCHER", &launcher);
        config.define("CMAKE_C_COMPILER_LAUNCHER", &launcher);
    }
    config
}
