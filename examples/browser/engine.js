// The engine for JavaScript, in a page or in Node.js: calls return promises. One call at a time.
function openEngine(load, heard, more = {}) {
  const HOME = "/home/web_user";  // of the file system in memory
  const FOLDER = `${HOME}/model`, PAIRS = `${HOME}/pairs.tsv`, RUN = `${HOME}/run`;
  let ended = null;
  return load({heard, done: result => ended(result), ...more}).then(module => {
    const {FS} = module;
    const text = name => module.ccall(name, "string", [], []);
    const call = (kind, content, run, number, rate, threads) => new Promise((resolve, reject) => {
      ended = result => { result === 0 ? resolve() : reject(new Error(text("page_error"))); };
      const types = ["number", "string", "string", "string", "number", "number", "number"];
      if (module.ccall("page_start", "number", types, [kind, FOLDER, content, run, number, rate, threads]) !== 0)
        reject(new Error("the engine has no thread"));
    });
    const remove = path => {
      if (!FS.analyzePath(path).exists) return;
      if (!FS.isDir(FS.lstat(path).mode)) return FS.unlink(path);
      for (const name of FS.readdir(path)) if (name !== "." && name !== "..") remove(`${path}/${name}`);
      FS.rmdir(path);
    };
    FS.mkdirTree(FOLDER);
    return {
      FS, HOME,
      // Files of a model: {name: bytes}.
      open(files) {
        remove(RUN);
        for (const [name, bytes] of Object.entries(files)) FS.writeFile(`${FOLDER}/${name}`, bytes);
      },
      create(pairs, vocabulary, threads) {
        remove(RUN);
        FS.writeFile(PAIRS, pairs);
        return call(0, PAIRS, "", vocabulary, 0, threads);
      },
      // `updates` are those of the whole run: a second call trains on.
      train(pairs, updates, rate, threads) {
        FS.writeFile(PAIRS, pairs);
        return call(1, PAIRS, RUN, updates, rate, threads);
      },
      stop() { module.ccall("page_stop", null, [], []); },
      async translate(lines, beam, threads) {
        const begin = performance.now();
        await call(2, lines, "", beam, 0, threads);
        return {lines: text("page_output"), tokens: module.ccall("page_output_tokens", "number", [], []),
                seconds: (performance.now() - begin) / 1000};
      },
      save() {
        return Object.fromEntries(["model.safetensors", "spm.model"].map(name => [name, FS.readFile(`${FOLDER}/${name}`)]));
      },
    };
  });
}
if (typeof module === "object") module.exports = openEngine;
