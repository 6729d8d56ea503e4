#include "engine/text/tokenizer/sentencepiece/subword_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/core/numeric/portable_math.h"
#include "engine/core/status.h"
#include "engine/core/strings/utf8.h"

namespace trafo {
namespace {

constexpr std::string_view kSubwordSamplerOrigin = "subword sampling";
// How far the score of an unknown character is below the worst token, as in SentencePiece.
constexpr double kUnknownPenalty = 10;

double log_add(double a, double b) {
  const double more = std::max(a, b), less = std::min(a, b);
  return less == -std::numeric_limits<double>::infinity()
             ? more
             : more + portable_log(1 + portable_exp(less - more));
}

size_t character_end(std::string_view text, size_t begin) {
  next_code_point(text, begin);
  return begin;
}

}  // namespace

// A trie of the subwords, with its edges in one hash table.
struct SentencePieceSampler::Vocabulary {
  struct Edge {
    uint64_t key = 0;  // node << 8 | byte, plus 1; 0: free
    int32_t node = 0;
  };
  std::vector<Edge> edges;
  std::vector<int32_t> subword;  // the token that ends at each node, or -1
  std::vector<float> score;      // of each token
  double unknown_score = 0;
  int32_t unknown = 0;
  bool has_bytes = false;
  std::vector<int32_t> byte_ids;

  static uint64_t key_of(int32_t node, char c) {  // never 0, which marks a free slot
    return (static_cast<uint64_t>(node) << 8 | static_cast<unsigned char>(c)) + 1;
  }
  // The slot of the key, or the free slot for it.
  size_t slot_of(uint64_t key) const {
    size_t slot = mix_bits(key) & (edges.size() - 1);
    while (edges[slot].key != key && edges[slot].key != 0) slot = (slot + 1) & (edges.size() - 1);
    return slot;
  }
  int32_t follow(int32_t node, char c) const {
    const uint64_t key = key_of(node, c);
    const Edge& edge = edges[slot_of(key)];
    return edge.key == key ? edge.node : -1;
  }
  void insert(std::string_view text, int32_t id) {
    int32_t node = 0;
    for (const char c : text) {
      int32_t next = follow(node, c);
      if (next < 0) {
        next = static_cast<int32_t>(subword.size());
        subword.push_back(-1);
        const uint64_t key = key_of(node, c);
        edges[slot_of(key)] = {key, next};
      }
      node = next;
    }
    subword[static_cast<size_t>(node)] = id;
  }
  int32_t find(std::string_view text) const {
    int32_t node = 0;
    for (const char c : text)
      if ((node = follow(node, c)) < 0) return -1;
    return subword[static_cast<size_t>(node)];
  }
};

SentencePieceSampler::SentencePieceSampler(const SentencePieceModel& model) : model_(model) {
  const SpmKind kind = model.model_kind();
  require(kind == SpmKind::unigram || kind == SpmKind::bpe, ErrorCode::unsupported,
          kSubwordSamplerOrigin,
          "the vocabulary is neither a unigram nor a BPE model: it has one segmentation only");
  auto vocabulary = std::make_unique<Vocabulary>();
  size_t bytes = 1;
  for (int32_t id = 0; id < model.vocab_size(); ++id) bytes += model.token(id).size();
  size_t slots = 16;
  while (slots < 2 * bytes) slots *= 2;
  vocabulary->edges.resize(slots);
  vocabulary->subword.assign(1, -1);
  vocabulary->unknown = model.special_tokens().unk;
  double worst = 0;
  for (int32_t id = 0; id < model.vocab_size(); ++id) {
    vocabulary->score.push_back(model.score(id));
    if (model.type(id) != SubwordType::normal) continue;
    worst = std::min(worst, static_cast<double>(model.score(id)));
    vocabulary->insert(model.token(id), id);
  }
  vocabulary->unknown_score = worst - kUnknownPenalty;
  for (int byte = 0; byte < 256; ++byte) {
    constexpr char digits[] = "0123456789ABCDEF";
    const char name[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>', 0};
    const int32_t id = model.id(name);
    vocabulary->byte_ids.push_back(id);
    vocabulary->has_bytes = model.type(id) == SubwordType::byte;
  }
  vocabulary_ = std::move(vocabulary);
}

SentencePieceSampler::~SentencePieceSampler() = default;

void SentencePieceSampler::sample(std::string_view text, double alpha, ShuffleRng& rng,
                                  std::vector<int32_t>& ids) const {
  ids.clear();
  for (const NormalizedRun& run : model_.normalize(text)) {
    if (run.id >= 0)
      ids.push_back(run.id);
    else if (model_.model_kind() == SpmKind::unigram)
      sample_unigram(run.text, alpha, rng, ids);
    else
      sample_bpe(run.text, alpha, rng, ids);
  }
}

void SentencePieceSampler::add_unknown(std::string_view character,
                                       std::vector<int32_t>& ids) const {
  const Vocabulary& v = *vocabulary_;
  if (v.has_bytes)
    for (const char c : character) ids.push_back(v.byte_ids[static_cast<unsigned char>(c)]);
  else if (ids.empty() || ids.back() != v.unknown)  // consecutive unknown characters are one token
    ids.push_back(v.unknown);
}

// Forward sums over the lattice of all segmentations, then a draw from the end to the beginning.
void SentencePieceSampler::sample_unigram(std::string_view text, double alpha, ShuffleRng& rng,
                                          std::vector<int32_t>& ids) const {
  struct Arc {
    int32_t id;  // -1: an unknown character
    size_t begin;
    double weight;
    int64_t next;  // arc with the same end
  };
  thread_local std::vector<Arc> arcs;
  thread_local std::vector<int64_t> arcs_to;
  thread_local std::vector<double> sums;
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  const Vocabulary& v = *vocabulary_;
  const size_t size = text.size();
  arcs.clear();
  arcs_to.assign(size + 1, -1);
  sums.assign(size + 1, kNothing);
  sums[0] = 0;
  const auto add = [&](size_t begin, size_t end, int32_t id, double score) {
    const double weight = sums[begin] + alpha * score;
    arcs.push_back({id, begin, weight, arcs_to[end]});
    arcs_to[end] = static_cast<int64_t>(arcs.size()) - 1;
    sums[end] = log_add(sums[end], weight);
  };
  for (size_t begin = 0; begin < size; begin = character_end(text, begin)) {
    const size_t one = character_end(text, begin);
    bool single = false;
    int32_t node = 0;
    for (size_t end = begin; end < size && (node = v.follow(node, text[end])) >= 0;) {
      ++end;
      const int32_t id = v.subword[static_cast<size_t>(node)];
      if (id < 0) continue;
      add(begin, end, id, static_cast<double>(v.score[static_cast<size_t>(id)]));
      single = single || end == one;
    }
    if (!single) add(begin, one, -1, v.unknown_score);
  }
  thread_local std::vector<const Arc*> path;
  path.clear();
  for (size_t end = size; end > 0;) {
    double left = uniform(rng);
    const Arc* chosen = nullptr;
    for (int64_t each = arcs_to[end]; each >= 0;) {
      chosen = &arcs[static_cast<size_t>(each)];
      left -= portable_exp(chosen->weight - sums[end]);
      if (left < 0) break;
      each = chosen->next;
    }
    path.push_back(chosen);
    end = chosen->begin;
  }
  size_t end = 0;
  for (auto arc = path.rbegin(); arc != path.rend(); ++arc) {
    end = arc + 1 == path.rend() ? size : (*(arc + 1))->begin;
    if ((*arc)->id >= 0)
      ids.push_back((*arc)->id);
    else
      add_unknown(text.substr((*arc)->begin, end - (*arc)->begin), ids);
  }
}

// Merges the best pair first, as without dropout, but skips each candidate with probability alpha.
// Its two parts may still merge with other neighbours.
void SentencePieceSampler::sample_bpe(std::string_view text, double alpha, ShuffleRng& rng,
                                      std::vector<int32_t>& ids) const {
  struct Symbol {
    size_t begin, size;  // size 0: merged into its left neighbour
    int64_t previous, next;
  };
  struct Candidate {
    float score;
    int64_t left, right;
    size_t size;
  };
  const Vocabulary& v = *vocabulary_;
  thread_local std::vector<Symbol> symbols;
  thread_local std::vector<Candidate> heap;
  symbols.clear();
  heap.clear();
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = character_end(text, begin);
    const auto i = static_cast<int64_t>(symbols.size());
    symbols.push_back({begin, end - begin, i - 1, end < text.size() ? i + 1 : -1});
    begin = end;
  }
  const auto worse = [](const Candidate& a, const Candidate& b) {
    return a.score != b.score ? a.score < b.score : a.left > b.left;
  };
  const auto propose = [&](int64_t left, int64_t right) {
    if (left < 0 || right < 0) return;
    const Symbol& a = symbols[static_cast<size_t>(left)];
    const size_t size = a.size + symbols[static_cast<size_t>(right)].size;
    const int32_t id = v.find(text.substr(a.begin, size));
    if (id < 0) return;
    heap.push_back({v.score[static_cast<size_t>(id)], left, right, size});
    std::push_heap(heap.begin(), heap.end(), worse);
  };
  for (int64_t i = 1; i < static_cast<int64_t>(symbols.size()); ++i) propose(i - 1, i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), worse);
    const Candidate merge = heap.back();
    heap.pop_back();
    Symbol& left = symbols[static_cast<size_t>(merge.left)];
    Symbol& right = symbols[static_cast<size_t>(merge.right)];
    if (left.size == 0 || right.size == 0 || left.size + right.size != merge.size) continue;
    if (uniform(rng) < alpha) continue;
    left.size = merge.size;
    right.size = 0;
    left.next = right.next;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = merge.left;
    propose(left.previous, merge.left);
    propose(merge.left, left.next);
  }
  for (int64_t i = symbols.empty() ? -1 : 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    const std::string_view subword = text.substr(symbol.begin, symbol.size);
    const int32_t id = v.find(subword);
    if (id >= 0)
      ids.push_back(id);
    else
      add_unknown(subword, ids);
  }
}

}  // namespace trafo
