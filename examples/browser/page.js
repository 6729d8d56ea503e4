const losses = [];
const element = id => document.getElementById(id);
const threads = Math.min(navigator.hardwareConcurrency, 4);
let engine = null, ready = false;

function say(text) {
  element("said").textContent = text;
}

function show() {
  for (const button of document.querySelectorAll("button")) button.disabled = !ready;
  element("files").disabled = !ready;
  element("stop").disabled = !engine || ready;
}

function draw() {
  const most = Math.max(...losses), step = 600 / Math.max(losses.length - 1, 1);
  element("line").setAttribute("points", losses.map((loss, i) => `${i * step},${200 - 190 * loss / most}`).join(" "));
}

// One call at a time; buttons wait for its end.
async function run(work) {
  ready = false;
  show();
  try {
    await work();
  } catch (error) {
    say(error.message);
  }
  ready = true;
  show();
}

element("files").onchange = () => run(async () => {
  const files = {};
  for (const file of element("files").files) files[file.name] = new Uint8Array(await file.arrayBuffer());
  for (const name of ["model.safetensors", "spm.model"])
    if (!(name in files)) throw new Error(`choose model.safetensors and spm.model; ${name} is missing`);
  engine.open(files);
  forget();
  say(`opened ${Object.keys(files).join(", ")}`);
});
element("create").onclick = () => run(async () => {
  await engine.create(element("pairs").value, 200, threads);
  forget();
  say("a new model, which knows nothing yet");
});
element("train").onclick = () => run(async () => {
  await engine.train(element("pairs").value, losses.length + Number(element("updates").value), Number(element("rate").value), threads);
  say(losses.length === 0 ? "stopped before the first update" : `trained ${losses.length} updates; loss ${losses.at(-1).toFixed(3)}`);
});
element("stop").onclick = () => engine.stop();
element("translate").onclick = () => run(async () => {
  const done = await engine.translate(element("source").value, 4, threads);
  element("target").value = done.lines;
  say(`${(done.tokens / done.seconds).toFixed(0)} tokens/s`);
});
element("save").onclick = () => run(async () => {
  for (const [name, bytes] of Object.entries(engine.save())) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes]));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }
  say("saved");
});

function forget() {
  losses.length = 0;
  draw();
}

function heard(update, loss) {
  losses.push(loss);
  say(`update ${update}: loss ${loss.toFixed(3)}`);
  draw();
}
show();
if (self.crossOriginIsolated)
  run(async () => {
    engine = await openEngine(loadTrafo, heard);
    say("ready");
  });
else
  say("the server must send the headers of serve.py: without them a browser gives no threads");
