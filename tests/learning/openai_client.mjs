// Uses the learning service through OpenAI's client for JavaScript. check_openai.py runs it: openai_client.mjs URL TOKEN LANGUAGE-MODEL.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [url, token, languageModel] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: token, maxRetries: 0 });
const messages = [{ role: "user", content: "heute kauft Anna den Hut in rot" }];

const models = [];
for await (const model of client.models.list()) models.push(model.id);
assert.ok(models.includes("translation") && models.includes(languageModel), models);
assert.equal((await client.models.retrieve("translation")).id, "translation");

for (const model of ["translation", languageModel]) {
  const request = { model, messages, temperature: 0, n: 2 };
  const whole = await client.chat.completions.create(request);
  assert.equal(whole.choices.length, 2);
  const texts = ["", ""];
  let usage;
  for await (const part of await client.chat.completions.create({ ...request, stream: true, stream_options: { include_usage: true } })) {
    for (const choice of part.choices) texts[choice.index] += choice.delta.content ?? "";
    usage = part.usage ?? usage;
  }
  assert.deepEqual(texts, whole.choices.map((choice) => choice.message.content));
  assert.ok(texts[0].includes("hat in red"), texts[0]);
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.equal(usage.total_tokens, whole.usage.total_tokens);
  const final = await client.chat.completions.stream({ model, messages, temperature: 0 }).finalChatCompletion();
  assert.equal(final.choices[0].message.content, texts[0]);

  const prompt = { model, prompt: ["heute kauft Anna", "bald kauft er"], temperature: 0, max_tokens: 5, stop: ["nowhere"] };
  const completion = await client.completions.create(prompt);
  const streamed = ["", ""];
  for await (const part of await client.completions.create({ ...prompt, stream: true })) {
    for (const choice of part.choices) streamed[choice.index] += choice.text;
  }
  assert.deepEqual(streamed, completion.choices.map((choice) => choice.text));

  const draw = async (seed) =>
    (await client.chat.completions.create({ model, messages, temperature: 2, top_p: 0.99, seed })).choices[0].message.content;
  assert.equal(await draw(3), await draw(3));
}

await assert.rejects(client.chat.completions.create({ model: "none", messages }), OpenAI.NotFoundError);
await assert.rejects(client.chat.completions.create({ model: "translation", messages, tools: [{ type: "function" }] }),
  (error) => error instanceof OpenAI.BadRequestError && error.param === "tools");
const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
await assert.rejects(stranger.models.list(), OpenAI.AuthenticationError);

// A client that goes away in the middle of a stream does the service no harm.
const stream = await client.chat.completions.create({ model: languageModel, messages, stream: true });
for await (const _ of stream) break;
console.log("openai_client.mjs: all is well");
