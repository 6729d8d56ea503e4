//! Compiles examples/demo, the program that writes the demo corpus.

use std::env;
use std::path::PathBuf;

fn main() {
    let demo = PathBuf::from("../demo");
    let sources = ["main.cc", "corpus.cc", "grammar.cc", "lexicon.cc"];
    println!("cargo:rerun-if-changed=../demo");
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR")).join("demo-corpus");
    let compiler = cc::Build::new().cpp(true).std("c++20").opt_level(0).debug(false).get_compiler();
    let mut command = compiler.to_command();
    command.args(sources.map(|name| demo.join(name))).arg("-o").arg(&out);
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("the C++ compiler ended with {status} on {}", demo.display()),
        Err(error) => {
            panic!("the C++ compiler {} does not run: {error}", compiler.path().display())
        }
    }
    println!("cargo:rustc-env=DEMO_CORPUS={}", out.display());
}
