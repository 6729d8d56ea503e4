//! The libraries that the engine opens at run time: `libtrafo_tcp.so`, and with the feature `cuda` `libtrafo_cuda.so`. An engine that is
//! linked statically looks for them beside the program, so that is where they are put.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Sources, cache, engine, fail, progress};

const TCP: &str = "libtrafo_tcp.so";
const CUDA: &str = "libtrafo_cuda.so";

/// Puts the plugins that lie beside the library in `folder` beside the program. With the feature `cuda`, libtrafo_cuda.so must be there.
pub fn take_from(folder: &Path) {
    let cuda = folder.join(CUDA);
    if wants_cuda() && !cuda.is_file() {
        fail(&format!(
            "{} has no {CUDA}, which the feature `cuda` asks for: build it with -DTRAFO_CUDA=ON (target trafo_cuda_plugin), or leave \
             the feature out",
            folder.display()
        ));
    }
    for file in [folder.join(TCP), cuda] {
        if file.is_file() {
            put_beside_program(&file);
        }
    }
}

/// The plugins of an engine that is built from `sources` and lies in `built`. The feature `cuda` builds libtrafo_cuda.so.
pub fn build(sources: &Sources, built: &Path) {
    put_beside_program(&built.join(TCP));
    if wants_cuda() {
        put_beside_program(&build_cuda(sources));
    }
}

fn wants_cuda() -> bool {
    env::var_os("CARGO_FEATURE_CUDA").is_some()
}

fn build_cuda(sources: &Sources) -> PathBuf {
    let toolkit = toolkit();
    let architectures = env::var("TRAFO_CUDA_ARCHITECTURES").unwrap_or_default();
    let compile = |out: &Path| {
        let mut config = engine::configuration(sources, out);
        config.define("TRAFO_CUDA", "ON").define("TRAFO_CUDA_TOOLKIT", &toolkit);
        if !architectures.is_empty() {
            config.define("TRAFO_CUDA_ARCHITECTURES", &architectures);
        }
        config.build_target("trafo_cuda_plugin");
        progress::tell(
            "compiling the GPU plugin (CUDA), which takes tens of minutes and is done once",
        );
        config.build().join("build")
    };
    match cache::folder(sources) {
        Some(folder) => {
            let names =
                [toolkit.to_string_lossy().replace('/', "_"), architectures.replace(';', "_")];
            let folder = folder.join(format!("cuda{}-{}", names[0], names[1]));
            cache::fill(&folder, &[CUDA], compile);
            folder.join(CUDA)
        }
        None => {
            let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
            compile(&out.join("cuda")).join(CUDA)
        }
    }
}

/// The folder of a CUDA toolkit: `TRAFO_CUDA_TOOLKIT`, `CUDA_HOME`, `CUDA_PATH`, that of the nvcc on PATH, /usr/local/cuda.
fn toolkit() -> PathBuf {
    let named = ["TRAFO_CUDA_TOOLKIT", "CUDA_HOME", "CUDA_PATH"];
    let has_compiler = |folder: &PathBuf| folder.join("bin/nvcc").is_file();
    for name in named {
        let Some(folder) = env::var_os(name).filter(|folder| !folder.is_empty()) else { continue };
        let folder = PathBuf::from(folder);
        if has_compiler(&folder) {
            return folder;
        }
        fail(&format!("{name} is {}, which has no bin/nvcc", folder.display()));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = env::split_paths(&path)
        .filter_map(|folder| folder.join("nvcc").canonicalize().ok())
        .filter_map(|nvcc| Some(nvcc.parent()?.parent()?.to_path_buf()));
    on_path.chain([PathBuf::from("/usr/local/cuda")]).find(has_compiler).unwrap_or_else(|| {
        fail(
            "the feature `cuda` builds the GPU plugin with nvcc, which was not found: set TRAFO_CUDA_TOOLKIT to the folder of a CUDA 13 \
             toolkit, or TRAFO_LIB_DIR to a folder that has libtrafo.a and libtrafo_cuda.so",
        )
    })
}

/// Into the folders of programs, tests and examples of this profile, three levels above OUT_DIR. A link if both are on one disk.
fn put_beside_program(file: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    if !file.starts_with(&out) {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    let profile = out.ancestors().nth(3).expect("OUT_DIR is target/PROFILE/build/CRATE/out");
    let name = file.file_name().expect("a plugin has a name");
    for folder in ["", "deps", "examples"] {
        let to = profile.join(folder).join(name);
        // By another name first: a program that runs may have the old file open, and two builds may be here at once.
        let new =
            profile.join(folder).join(format!("{}.{}", name.to_string_lossy(), std::process::id()));
        let put = fs::create_dir_all(profile.join(folder))
            .and_then(|()| fs::hard_link(file, &new).or_else(|_| fs::copy(file, &new).map(|_| ())))
            .and_then(|()| fs::rename(&new, &to));
        drop(fs::remove_file(&new)); // is still there if both names are one file
        if let Err(error) = put {
            fail(&format!("{} cannot be written: {error}", to.display()));
        }
    }
}
