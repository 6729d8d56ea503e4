// The steps of native.cc in WebAssembly: node steps.js PAGE OUT PAIRS LINES THREADS
// PAGE is the folder with trafo.js.
"use strict";
const fs = require("fs"), path = require("path");
const [page, out, pairs, lines, threads] = process.argv.slice(2);
const openEngine = require(path.resolve(page, "engine.js")), load = require(path.resolve(page, "trafo.js"));
let losses = "";

function copyOut(FS, from, to) {
  fs.mkdirSync(to, {recursive: true});
  for (const name of FS.readdir(from)) {
    if (name === "." || name === "..") continue;
    const source = `${from}/${name}`, target = path.join(to, name), mode = FS.lstat(source).mode;
    if (FS.isDir(mode)) copyOut(FS, source, target);
    else if (FS.isFile(mode)) fs.writeFileSync(target, FS.readFile(source));
  }
}

async function main() {
  const engine = await openEngine(load, (update, loss) => { losses += `${update} ${loss}\n`; },
    {wasmBinary: fs.readFileSync(path.join(page, "trafo.wasm"))});
  const content = fs.readFileSync(pairs, "utf8"), text = fs.readFileSync(lines, "utf8"), count = Number(threads);
  const {FS, HOME} = engine;
  const newer = folder => { FS.rename(`${HOME}/model`, `${HOME}/${folder}`); FS.rename(`${HOME}/run`, `${HOME}/${folder}_run`); };

  await engine.create(content, 200, count);
  const begin = performance.now();
  await engine.train(content, 40, 0.005, count);
  console.log(`training: ${(40000 / (performance.now() - begin)).toFixed(1)} updates/s`);
  newer("whole");
  const whole = losses;
  losses = "";
  FS.mkdir(`${HOME}/model`);
  await engine.create(content, 200, count);
  await engine.train(content, 20, 0.005, count);
  await engine.train(content, 40, 0.005, count);  // resumes
  if (losses !== whole) throw new Error("a run in two parts has other losses than a run in one");

  fs.mkdirSync(out, {recursive: true});
  for (const beam of [1, 4]) {
    await engine.translate(text, beam, count);  // loads the model
    const done = await engine.translate(text, beam, count);
    fs.writeFileSync(path.join(out, `beam${beam}.txt`), done.lines);
    console.log(`beam ${beam}: ${(done.tokens / done.seconds).toFixed(0)} tokens/s`);
  }
  await engine.train("no tab\n", 50, 0.005, count).then(
    () => { throw new Error("pairs without a tab are taken"); },
    error => { if (!error.message.includes("pairs.tsv")) throw error; });
  fs.writeFileSync(path.join(out, "losses.txt"), losses);
  copyOut(FS, HOME, out);
}
main().then(() => process.exit(0), error => {
  console.error(`steps: ${error.stack}`);
  process.exit(1);
});
