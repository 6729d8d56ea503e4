// Corpora, tokenizers and lexical tables.
#include <optional>
#include <sstream>

#include "engine/core/strings/utf8.h"
#include "engine/data/corpus.h"
#include "engine/data/text_corpus.h"
#include "engine/data/text_pairs.h"
#include "engine/data/tokenized_corpus.h"
#include "engine/decode/lexical_table.h"
#include "engine/formats/tokenizers/spm_subwords.h"
#include "engine/text/tokenizer/subword_sampling.h"
#include "engine/text/tokenizer/tokenizer.h"
#include "tests/fuzz/support.h"
#include "tests/fuzz/targets.h"
#include "tests/support/gzip.h"

namespace trafo::fuzz {
namespace {

const Tokenizer& tokenizer(TokenizerModel model) {
  const auto train = [](TokenizerModel kind) {
    const std::vector<std::string> lines = {
        "der Hund sieht einen Baum.", "die Katze findet das Haus.", "ein Vogel sucht den Stein."};
    TokenizerTrainOptions options;
    options.vocab_size = 48;
    options.model = kind;
    options.hard_vocab_limit = false;
    return Tokenizer::train(std::span<const std::string>(lines), options);
  };
  static const Tokenizer unigram = train(TokenizerModel::unigram), bpe = train(TokenizerModel::bpe);
  return model == TokenizerModel::bpe ? bpe : unigram;
}

enum Mode : unsigned {
  kTsv = 1,
  kMono = 2,
  kPack = 4,
  kRawGzip = 8,
  kTrain = 16,
  kJson = 32,
  kCsv = 64
};

TextCorpus load(unsigned mode, const std::string& a, const std::string& b, int64_t memory) {
  LoadOptions options;
  options.memory_bytes = memory;
  options.unpack_directory = folder().path().string();
  if (mode & kJson) options.format = CorpusFormat::json_lines;
  if (mode & kCsv) options.format = CorpusFormat::csv;
  if (mode & kTsv) return load_tsv(a, options);
  if (mode & kMono) return load_monolingual(a, options);
  return load_parallel(a, b, options);
}

// From memory and from disk: the same pairs, or the same refusal.
void compare(unsigned mode, const std::string& a, const std::string& b) {
  std::optional<TextCorpus> sides[2];
  std::string errors[2];
  for (int side = 0; side < 2; ++side) try {
      sides[side].emplace(load(mode, a, b, side == 0 ? int64_t{1} << 30 : -1));
    } catch (const Error& error) {
      expect(error.code() != ErrorCode::internal, "an internal error of a corpus");
      errors[side] = error.message();
    }
  if (errors[0] != errors[1])
    finding("memory says '" + errors[0] + "', disk says '" + errors[1] + "'");
  if (!sides[0]) return;
  expect(sides[0]->fingerprint() == sides[1]->fingerprint(), "fingerprints differ");
  expect(sides[0]->size() == sides[1]->size(), "sizes differ");
  PairBuffers buffers[2];
  for (int64_t i = 0; i < sides[0]->size(); ++i) {
    const PairView memory = sides[0]->view(i, buffers[0]), disk = sides[1]->view(i, buffers[1]);
    expect(memory.source == disk.source && memory.target == disk.target, "pairs differ");
    expect(memory.rejected == disk.rejected, "rejected answers differ");
    for (const std::string_view text : {memory.source, memory.target, memory.rejected})
      expect(text_fault(text, 0).empty(), "a pair that is not UTF-8, or with a NUL");
  }
  if (mode & kTrain)
    attempt([&] {
      const TokenizedCorpus ids(*sides[1], tokenizer(TokenizerModel::unigram), {}, 1);
      expect(ids.size() <= sides[0]->size(), "more pairs than there are");
    });
}

// Every id, text and subword goes there and back without a fault.
void use(const Tokenizer& tokenizer, std::string_view text) {
  for (const std::string_view each : {std::string_view("der Hund \xe2\x96\x81 x"), text})
    attempt([&] {
      const std::vector<int32_t> ids = tokenizer.encode(each);
      for (const int32_t id : ids)
        expect(id >= 0 && id < tokenizer.vocab_size(), "an id outside the vocabulary");
      tokenizer.decode(ids);
      if (const auto* model = tokenizer.as_sentencepiece()) model->normalize(each);
      const auto sampler = tokenizer.sampler();
      ShuffleRng rng(1, 2);
      std::vector<int32_t> sampled;
      sampler->sample(each, 0.3, rng, sampled);
      for (const int32_t id : sampled)
        expect(id >= 0 && id < tokenizer.vocab_size(), "a sampled id outside the vocabulary");
    });
  std::vector<int32_t> all;
  for (int32_t id = 0; id < std::min(tokenizer.vocab_size(), 512); ++id) {
    all.push_back(id);
    tokenizer.token(id);
    tokenizer.continues_character(id);
    if (const auto* model = tokenizer.as_sentencepiece()) {
      model->score(id);
      model->type(id);
    }
  }
  attempt([&] { tokenizer.decode(all); });
  if (tokenizer.as_sentencepiece() == nullptr) return;
  attempt([&] {
    const interop::SpmModel model = interop::parse_spm(tokenizer.serialized());
    Tokenizer::from_bytes(interop::serialize_spm(model, model.subwords));
  });
}

void append_field(std::string& out, uint32_t number, std::string_view bytes) {
  const auto varint = [&](uint64_t value) {
    for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
    out += static_cast<char>(value);
  };
  varint(uint64_t{number} << 3 | 2);
  varint(bytes.size());
  out += bytes;
}

// A model of lines TYPE TEXT, the trainer's settings and a character map.
std::string built_model(Parts& parts) {
  interop::SpmModel model;
  const unsigned flags = parts.byte();
  const std::string trainer{'\x18', static_cast<char>(1 + (flags & 3)),          // model_type
                            '\xb8', '\x02', static_cast<char>(flags >> 2 & 1)};  // byte_fallback
  append_field(model.rest, 2, trainer);
  std::istringstream lines{std::string(parts.part())};
  std::vector<interop::ScoredSubword> subwords = {{"<unk>", 0, SubwordType::unknown},
                                                  {"</s>", 0, SubwordType::control}};
  for (std::string line; std::getline(lines, line) && subwords.size() < 4096;) {
    if (line.size() < 2) continue;
    const auto type = static_cast<SubwordType>(static_cast<unsigned>(line[0]) & 7);
    subwords.push_back({line.substr(1), -static_cast<float>(subwords.size() % 13), type});
  }
  if (!parts.empty()) {
    std::string normalizer;
    append_field(normalizer, 2, parts.rest());
    append_field(model.rest, 3, normalizer);
  }
  return interop::serialize_spm(model, subwords);
}

}  // namespace

void run_corpus(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte();
  const bool gzip = (mode & (kPack | kRawGzip)) != 0;
  const std::string names[] = {gzip ? "a.gz" : "a", gzip ? "b.gz" : "b"};
  const bool two = (mode & (kTsv | kMono)) == 0;
  std::string text[2] = {std::string(two ? parts.part() : parts.rest()), std::string(parts.rest())};
  if (mode & kPack) text[0] = gzip_of(text[0]), text[1] = gzip_of(text[1]);
  const std::string a = folder().write(names[0], text[0]).string();
  const std::string b = two ? folder().write(names[1], text[1]).string() : a;
  compare(mode, a, b);
  CorpusOptions narrow;
  narrow.max_line_bytes = 16;
  attempt([&] {
    LineReader reader(a, narrow);
    for (std::string line; reader.next(line);)
      expect(line.size() <= narrow.max_line_bytes, "a line over the limit");
  });
  attempt([&] { make_parallel({text[0]}, {text[1]}, narrow); });
}

void run_sentencepiece(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte();
  const std::string model = mode % 2 == 0 ? std::string(parts.rest()) : built_model(parts);
  std::optional<Tokenizer> loaded;
  if (attempt([&] { loaded.emplace(Tokenizer::from_bytes(model, "input")); }))
    use(*loaded, parts.rest().substr(0, 200));
}

void run_vocabulary(Bytes input) {
  Parts parts(input);
  const auto kind = parts.byte() % 2 == 0 ? TokenizerModel::unigram : TokenizerModel::bpe;
  std::istringstream in{std::string(parts.rest())};
  attempt([&] {
    const LexicalTable table = LexicalTable::read(in, "table", tokenizer(kind));
    const std::vector<int32_t> sources = {0, 5, 6, 47, 1000, -1};
    for (const int32_t id : table.candidates(sources, 4, 3))
      expect(id >= 0 && id < tokenizer(kind).vocab_size(), "a candidate outside the vocabulary");
    std::stringstream again;
    table.write(again, tokenizer(kind));
    expect(LexicalTable::read(again, "again", tokenizer(kind)).size() == table.size(),
           "a table changes when written");
  });
}

std::vector<Seed> corpus_seeds() {
  const auto mode = [](unsigned number) { return std::string(1, static_cast<char>(number)); };
  const std::string pair =
                        "eins zwei\ndrei\n\xff"
                        "one two\nthree\n",
                    tsv = "eins\tone\r\nzwei\ttwo";
  return {
      {"pair", mode(kTrain) + pair},
      {"pair-gz", mode(kPack) + pair},
      {"tsv", mode(kTsv) + tsv},
      {"tsv-gz", mode(kTsv | kPack) + tsv},
      {"mono", mode(kMono | kTrain) + "\xef\xbb\xbf"
                                      "eins\n\n\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\n"},
      {"mono-raw-gz", concat(mode(kMono | kRawGzip), gzip_of("eins\nzwei\n"))},
      {"counts", mode(0) + "a\n\xff"
                           "b\nc\n"},
      {"json-text", mode(kMono | kTrain) + "{\"text\": \"a\\n\\ud83d\\ude00\"}\n"},
      {"json-pair",
       mode(kTsv | kJson) + "{\"prompt\": \"a\", \"completion\": \"b\", \"n\": [{}]}\n\n"},
      {"csv", mode(kTsv | kCsv) + "prompt,completion,label\n\"a\r\nb\",\"\"\"\",true\n\nc,d,0\n"},
      {"json-alpaca", mode(kTsv) + "{\"instruction\": \"a\", \"input\": \"b\", "
                                   "\"output\": \"c\"}\n"},
      {"json-preferences", mode(kMono | kPack) + "{\"prompt\": \"a\", \"chosen\": \"b\", "
                                                 "\"rejected\": \"c\"}\n"},
      {"json-chat", mode(kMono) + "{\"messages\": []}\n"},
      {"nul", concat(mode(kMono), std::string_view("a\0b\n", 4))},
      {"blank", mode(0) + " \n\xff\n"}};
}

std::vector<Seed> sentencepiece_seeds() {
  const std::string raw(1, '\0'), built(1, '\1');
  const std::string bytes = built + '\x04' + "\1a\n\6<0x41>\n\4user\n\5unused\n";
  return {{"unigram", raw + tokenizer(TokenizerModel::unigram).serialized().substr(0, 4096)},
          {"bpe", raw + tokenizer(TokenizerModel::bpe).serialized().substr(0, 4096)},
          {"built", built + '\0' +
                        "\1a\n\1b\n\1\xe2\x96\x81"
                        "a\n"},
          {"built-bpe", built + '\1' + "\1a\n\1b\n\1ab\n"},
          {"bytes", bytes}};
}

// A byte of options, then sentences, one a line.
void run_training(Bytes input) {
  Parts parts(input);
  const unsigned mode = parts.byte();
  TokenizerTrainOptions options;
  options.model = mode & 1 ? TokenizerModel::bpe : TokenizerModel::unigram;
  options.byte_fallback = (mode & 2) != 0;
  options.character_coverage = mode & 4 ? 0.98 : 1;
  options.hard_vocab_limit = (mode & 8) != 0;
  options.vocab_size = (mode & 2 ? 261 : 5) + static_cast<int32_t>(mode & 16 ? 8000 : mode >> 5);
  std::vector<std::string_view> sentences;
  for (std::string_view rest = parts.rest().substr(0, 1 << 14); !rest.empty();) {
    const size_t end = rest.find('\n');
    sentences.push_back(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  }
  attempt([&] {
    const Tokenizer trained = Tokenizer::train(sentences, options);
    for (const std::string_view sentence : sentences)
      for (const int32_t id : trained.encode(sentence))
        expect(id >= 0 && id < trained.vocab_size(), "a token outside the vocabulary");
  });
}

std::vector<Seed> training_seeds() {
  const std::string large(1, '\x10'), bpe(1, '\x11'), coverage(1, '\x14'), bytes(1, '\x12');
  std::string special;
  for (int i = 0; i < 100; ++i) special += "<s>";
  return {{"text", large + "ein Hund\neine Katze\n"},
          {"text-bpe", bpe + "ein Hund\neine Katze\n"},
          {"spaces", large + "\u3000\n\u00a0\n\u200b\u2028\n"},
          {"controls", large + "\x7f\x01\x1b\n\t\n"},
          {"escapes", bpe + "\u2581\n\u3000\u2581\n"},
          {"special", coverage + special},
          {"bytes", bytes + "\ufffd\U0001f600\n"}};
}

std::vector<Seed> vocabulary_seeds() {
  std::ostringstream table;
  const std::vector<std::vector<int32_t>> sources = {{5, 6}, {7, 8}}, targets = {{9}, {10, 11}};
  LexicalTable::learn(sources, targets, tokenizer(TokenizerModel::unigram).vocab_size(), 4)
      .write(table, tokenizer(TokenizerModel::unigram));
  const std::string mode(1, '\0');
  return {{"learned", mode + table.str()},
          {"null", mode + "NULL e 0.5\r\n\ne n 0.25\n"},
          {"infinite", mode + "e n inf\n"},
          {"two", mode + "e n\n"}};
}

}  // namespace trafo::fuzz
