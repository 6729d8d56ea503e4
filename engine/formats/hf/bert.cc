// The directories of BertModel, RobertaModel and XLMRobertaModel of transformers and of their heads
// for masked tokens, texts and tokens: post-norm, learned positions, one text of the first token
// type. The positions of RoBERTa begin after the token <pad>, 1. Those of ModernBertModel have
// another configuration, see modernbert.cc.
#include <algorithm>

#include "engine/formats/formats.h"
#include "engine/formats/hf/directory.h"
#include "engine/formats/hf/lm_files.h"
#include "engine/formats/hf/modernbert.h"

namespace trafo::interop {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRobertaPad = 1;  // positions are counted from the row after it
constexpr int64_t kRobertaFront = kRobertaPad + 1;

struct BertClass {
  EncoderClass of_class;
  const char *model_type, *name, *base;
};
constexpr BertClass kBertModels[] = {
    {EncoderClass::bert, "bert", "Bert", "bert."},
    {EncoderClass::roberta, "roberta", "Roberta", "roberta."},
    {EncoderClass::xlm_roberta, "xlm-roberta", "XLMRoberta", "roberta."},
    {EncoderClass::modernbert, "modernbert", "ModernBert", "model."}};

constexpr std::pair<EncoderHead, const char*> kBertHeads[] = {
    {EncoderHead::none, "Model"},
    {EncoderHead::masked_lm, "ForMaskedLM"},
    {EncoderHead::sequence, "ForSequenceClassification"},
    {EncoderHead::token, "ForTokenClassification"}};

const BertClass& class_of(EncoderClass of_class) {
  return *std::find_if(std::begin(kBertModels), std::end(kBertModels),
                       [&](const BertClass& each) { return each.of_class == of_class; });
}

std::string class_name(const BertClass& of_class, EncoderHead head) {
  const auto found = std::find_if(std::begin(kBertHeads), std::end(kBertHeads),
                                  [&](const auto& each) { return each.first == head; });
  return concat(of_class.name, found->second);
}

bool is_roberta(const BertClass& each) {
  return each.of_class == EncoderClass::roberta || each.of_class == EncoderClass::xlm_roberta;
}

int64_t front_positions(const BertClass& of_class) {
  return is_roberta(of_class) ? kRobertaFront : 0;
}

// --- writing ---

// The keys that ModernBERT does not have.
void put_bert_config(const HostModel& host, const ExportVocabulary& vocabulary,
                     const BertClass& of_class, Json& json) {
  const ModelSpec& spec = host.spec();
  const StackSpec& stack = spec.decoder;
  json["hidden_act"] = activation_to_name(stack.feed_forward.activation);
  json["hidden_dropout_prob"] = stack.dropout;
  json["attention_probs_dropout_prob"] = stack.attention.dropout;
  json["max_position_embeddings"] = spec.max_positions + front_positions(of_class);
  json["type_vocab_size"] = spec.embedding.token_types;
  json["layer_norm_eps"] = stack.norm.epsilon;
  if (!host.model->labels().empty()) json["classifier_dropout"] = spec.head.dropout;
  if (is_roberta(of_class)) {
    put_special_ids(vocabulary.tokens, json);
    json["pad_token_id"] = kRobertaPad;
  } else {
    json["pad_token_id"] = std::max(vocabulary.tokens.special.pad, 0);
  }
}

Json bert_config(const HostModel& host, const ExportVocabulary& vocabulary) {
  const ModelSpec& spec = host.spec();
  const StackSpec& stack = spec.decoder;
  const BertClass& of_class = class_of(spec.head.of_class);
  Json json;
  json["architectures"] = Json::List{class_name(of_class, spec.head.kind)};
  json["model_type"] = of_class.model_type;
  json["vocab_size"] = spec.vocabulary;
  json["hidden_size"] = stack.width;
  json["num_hidden_layers"] = stack.layers();
  json["num_attention_heads"] = stack.attention.heads;
  json["intermediate_size"] = stack.feed_forward.width;
  if (of_class.of_class == EncoderClass::modernbert)
    put_modernbert_config(host, vocabulary, json);
  else
    put_bert_config(host, vocabulary, of_class, json);
  json["tie_word_embeddings"] = spec.output.tied || spec.head.kind != EncoderHead::masked_lm;
  const std::vector<std::string>& labels = host.model->labels();
  for (size_t i = 0; i < labels.size(); ++i) json["id2label"][std::to_string(i)] = labels[i];
  for (size_t i = 0; i < labels.size(); ++i) json["label2id"][labels[i]] = i;
  json["torch_dtype"] = "float32";
  return json;
}

// --- reading ---

EncoderHead head_of(const ConfigReader& json, const BertClass& of_class) {
  if (!json.has("architectures")) return EncoderHead::none;
  const std::vector<std::string> names = json.texts("architectures");
  std::string known;
  for (const auto& [head, suffix] : kBertHeads) {
    const std::string name = concat(of_class.name, suffix);
    if (names.size() == 1 && names.front() == name) return head;
    known.append(known.empty() ? "" : ", ").append(name);
  }
  fail(ErrorCode::unsupported, kOrigin, json.label(), ": architectures is ",
       names.empty() ? "empty" : names.front().substr(0, 64), "; there are ", known);
}

std::vector<std::string> labels_of(const ConfigReader& json) {
  constexpr int64_t kUsualLabels = 2;  // of transformers
  std::vector<std::string> labels;
  if (json.has("id2label")) {
    const ConfigReader names = json.inside("id2label");
    for (int64_t i = 0; names.has(std::to_string(i).c_str()); ++i)
      labels.push_back(names.text(std::to_string(i).c_str()));
    require(!labels.empty(), ErrorCode::corrupt_file, kOrigin, names.label(), " has no label 0");
    return labels;
  }
  const int64_t count =
      json.has("num_labels") ? json.integer("num_labels", 1, limits::kVocabulary) : kUsualLabels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(concat("LABEL_", i));
  return labels;
}

void check_settings_of(const ConfigReader& json, const BertClass& of_class) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) json.demand(key, false, false);
  if (json.has("position_embedding_type"))
    require(json.text("position_embedding_type") == "absolute", ErrorCode::unsupported, kOrigin,
            json.label(), ": position_embedding_type is ",
            json.text("position_embedding_type").substr(0, 64), "; there is absolute");
  if (json.has("pruned_heads"))
    require(!json.inside("pruned_heads").has("0"), ErrorCode::unsupported, kOrigin, json.label(),
            ": pruned_heads is not supported");
  constexpr const char* kProblem = "problem_type";
  if (json.has(kProblem))
    require(json.text(kProblem) == "single_label_classification", ErrorCode::unsupported, kOrigin,
            json.label(), ": ", kProblem, " is ", json.text(kProblem).substr(0, 64),
            "; there is single_label_classification");
  if (!is_roberta(of_class)) return;
  const int64_t pad =
      json.has("pad_token_id") ? json.integer("pad_token_id", 0, limits::kVocabulary) : kRobertaPad;
  require(pad == kRobertaPad, ErrorCode::unsupported, kOrigin, json.label(), ": pad_token_id is ",
          pad, "; positions here begin after 1");
}

// The options that ModernBERT reads from other keys.
void read_bert_options(const ConfigReader& json, const BertClass& of_class, ModelConfig& config) {
  config.pre_norm = false;
  config.activation = activation_from_name(json, "hidden_act");
  config.dropout = json.number("hidden_dropout_prob", 0.1);
  if (config.encoder_head == EncoderHead::sequence || config.encoder_head == EncoderHead::token)
    config.classifier_dropout = json.number("classifier_dropout", config.dropout);
  config.attention_dropout = json.number("attention_probs_dropout_prob", 0.1);
  config.norm_epsilon = json.number("layer_norm_eps", 1e-12);
  const int64_t front = front_positions(of_class);
  config.max_positions =
      json.integer("max_position_embeddings", 2 + front, limits::kModelDimension) - front;
  config.token_types = json.integer("type_vocab_size", 1, 1024);
}

ModelConfig read_bert_config(const ConfigReader& json, const BertClass& of_class) {
  check_settings_of(json, of_class);
  ModelConfig config;
  config.architecture = Architecture::encoder;
  config.encoder_class = of_class.of_class;
  config.encoder_head = head_of(json, of_class);
  config.width = json.integer("hidden_size", 2, limits::kModelDimension);
  config.decoder_layers = json.integer("num_hidden_layers", 1, limits::kLayers);
  config.heads = json.integer("num_attention_heads", 1, limits::kModelDimension);
  config.ffn_width = json.integer("intermediate_size", 1, limits::kModelDimension);
  if (of_class.of_class == EncoderClass::modernbert)
    read_modernbert_config(json, config);
  else
    read_bert_options(json, of_class, config);
  const bool has_words = config.encoder_head == EncoderHead::masked_lm;
  config.tied_embeddings = !has_words || json.flag("tie_word_embeddings", true);
  return config;
}

// All but XLM-R: tokenizer.json, or else vocab.txt.
ReadTokenizer read_bert_tokenizer(const fs::path& directory, const ConfigReader& json,
                                  int64_t stored, const BertClass& of_class) {
  if (of_class.of_class == EncoderClass::xlm_roberta)
    return read_xlm_roberta_tokenizer(directory, json, stored);
  return read_tokenizer_of(directory, json, stored, SpecialIds{});
}

// The name of a tensor in files with other names: the base model of a file with a head, or the
// other way round; gamma and beta of old files; the bias of the output in one of its two places.
std::string name_in(const WeightFiles& weights, const std::string& base, const std::string& name) {
  const auto with_suffix = [&](const std::string& each, std::string_view from, const char* to) {
    return each.ends_with(from) ? each.substr(0, each.size() - from.size()) + to : each;
  };
  const auto other_base = [&](const std::string& each) {
    return each.starts_with(base) ? each.substr(base.size()) : base + each;
  };
  for (const std::string& each : {name, other_base(name)}) {
    const std::string old = with_suffix(with_suffix(each, "LayerNorm.weight", "LayerNorm.gamma"),
                                        "LayerNorm.bias", "LayerNorm.beta");
    const std::string bias = each.ends_with(".decoder.bias")
                                 ? with_suffix(each, "decoder.bias", "bias")
                                 : with_suffix(each, ".bias", ".decoder.bias");
    for (const std::string& place : {each, old, bias})
      if (weights.has(place)) return place;
  }
  return name;
}

// Tensors that the class of the head does not have, or has twice.
bool is_surplus(const TensorInfo& info, const ModelConfig& config) {
  const std::string_view name = info.name;
  const bool has_words = config.encoder_head == EncoderHead::masked_lm;
  if (name.ends_with("embeddings.position_ids") || name.starts_with("cls.seq_relationship."))
    return true;
  // Another head uses the pooler; a copy of the embeddings or of the bias.
  if (name.find("pooler.dense.") != std::string_view::npos)
    return has_words || config.encoder_head == EncoderHead::token ||
           config.encoder_class != EncoderClass::bert;
  return has_words &&
         ((config.tied_embeddings &&
           (name.ends_with(".decoder.weight") || name == "decoder.weight")) ||
          name == "cls.predictions.decoder.bias" || name == "lm_head.decoder.bias" ||
          (!config.tied_embeddings && (name == "cls.predictions.bias" || name == "lm_head.bias")));
}

// The output matrix of a file that has it beside the embedding.
const char* output_of(const BertClass& of_class) {
  return is_roberta(of_class)                      ? "lm_head.decoder.weight"
         : of_class.of_class == EncoderClass::bert ? "cls.predictions.decoder.weight"
                                                   : "decoder.weight";
}

}  // namespace

const Expressible& hf_bert_expressible() {
  static const Expressible expressible = [] {
    Expressible all{"BERT", {}};
    for (const char* head : {"none", "masked-lm", "sequence", "token"})
      all.forms.push_back({{"architecture", "encoder"},
                           {"positions", "learned"},
                           {"norm placement", "after"},
                           {"activation", "*"},
                           {"embeddings", "*"},
                           {"embedding_norm", "yes"},
                           {"norm_epsilon", "*"},
                           {"output_bias", "yes"},
                           {"token_types", "yes"},
                           {"head", head},
                           {"pooler", "*"},
                           {"class", "bert roberta xlm-roberta"}});
    for (const char* head : {"none", "masked-lm", "sequence", "token"})
      all.forms.push_back({{"architecture", "encoder"},
                           {"positions", "rotary"},
                           {"feed-forward", "gated geglu exact-geglu"},
                           {"norm placement", "before"},
                           {"norm_bias", "no"},
                           {"first_norm", "no"},
                           {"biases", "none ffn qkv+output all"},
                           {"rope_theta", "*"},
                           {"sliding_window", "*"},
                           {"rope_local_theta", "*"},
                           {"activation", "*"},
                           {"embeddings", "*"},
                           {"embedding_norm", "yes"},
                           {"norm_epsilon", "*"},
                           {"output_bias", "*"},
                           {"head", head},
                           {"class", "modernbert"},
                           {"classifier_pooling", "*"}});
    return all;
  }();
  return expressible;
}

void write_bert(const HostModel& host, const ExportVocabulary& vocabulary,
                const fs::path& directory) {
  write_json(directory / "config.json", bert_config(host, vocabulary));
  write_lm_tokenizer(vocabulary, host.spec(), directory);
  write_tensors(directory / "model.safetensors", host, bert_tensors(host.config()));
}

Imported read_bert(const fs::path& directory, const ReadTarget& target) {
  const ConfigReader json(directory / "config.json");
  const std::string type = json.text("model_type");
  const BertClass& of_class =
      *std::find_if(std::begin(kBertModels), std::end(kBertModels) - 1,
                    [&](const BertClass& each) { return type == each.model_type; });
  ModelConfig config = read_bert_config(json, of_class);
  const int64_t stored = json.integer("vocab_size", 4, limits::kVocabulary);
  std::vector<std::string> labels;
  if (config.encoder_head == EncoderHead::sequence || config.encoder_head == EncoderHead::token) {
    labels = labels_of(json);
    config.labels = std::ssize(labels);
  }
  ReadTokenizer read = read_bert_tokenizer(directory, json, stored, of_class);
  config.vocabulary = read.tokenizer ? read.tokenizer->vocab_size() : stored;
  const WeightFiles weights = WeightFiles::open(directory);
  const std::string base = of_class.base;
  config.pooler = config.encoder_head == EncoderHead::none &&
                  weights.has(name_in(weights, base, "pooler.dense.weight"));
  validate_read(config, json);
  std::vector<MappedTensor> tensors = bert_tensors(config);
  set_stored_vocabulary(tensors, config, stored);
  const auto name = [&](const MappedTensor& tensor) { return name_in(weights, base, tensor.name); };
  const auto surplus = [&](const TensorInfo& info) { return is_surplus(info, config); };
  const HostModel* const written = target.written;
  const ReadTarget into{
      target.context, written != nullptr && written->model->labels() == labels ? written : nullptr,
      target.memory};
  Imported imported{read_tensors({weights, name, surplus}, config, tensors, into),
                    std::move(read.tokenizer), std::move(read.note)};
  if (imported.host.owned) imported.host.model->set_labels(std::move(labels));
  if (config.encoder_head == EncoderHead::masked_lm && config.tied_embeddings)
    check_copy(weights, name_in(weights, base, tensors.front().name), output_of(of_class));
  return imported;
}

}  // namespace trafo::interop
