#include "run_dir/model_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "engine/os/names.h"
#include "report/report_data.h"
#include "report/report_text.h"
#include "report/reporter.h"
#include "settings/setting_types.h"
#include "settings/settings.h"
#include "text/markdown_text.h"

namespace translate_train {
namespace {

namespace fs = std::filesystem;

// The run of RUN/ckpt/UPDATE/model.safetensors, and UPDATE; -1 for other checkpoints (averaged).
struct CheckpointOfRun {
  RunLog run;
  int64_t update = -1;
};

std::optional<CheckpointOfRun> run_of(const std::string& model_path) {
  const fs::path checkpoint =
      fs::absolute(trafo::os::path_of(model_path)).lexically_normal().parent_path();
  const fs::path run = checkpoint.parent_path().parent_path();
  if (checkpoint.parent_path().filename() != "ckpt" || !fs::exists(run / "metrics.jsonl"))
    return std::nullopt;
  std::vector<std::string> warnings;  // of lines that `report` would leave out as well
  CheckpointOfRun found{read_run(run.string(), warnings)};
  const std::string name = checkpoint.filename().string();
  if (!name.empty() && name.size() < 16 &&
      std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
    found.update = std::stoll(name);
  return found;
}

class Table {
 public:
  void row(const char* name, const std::string& value) {
    text_ += fmt::format("| {} | {} |\n", name, value);
  }
  std::string text() const { return text_; }

 private:
  std::string text_ = "| | |\n|---|---|\n";
};

bool is_for_transformers(const std::string& format) {
  return format.starts_with("hf-");
}

std::string metadata(const ModelCard& card, const trafo_model_config& c,
                     const Architecture& architecture) {
  std::string text = "---\n";
  if (is_for_transformers(card.format)) text += "library_name: transformers\n";
  const char* task = c.architecture != TRAFO_ENCODER
                         ? (architecture.has_encoder ? "translation" : "text-generation")
                     : c.encoder_head == TRAFO_ENCODER_HEAD_MASKED_LM ? "fill-mask"
                     : c.encoder_head == TRAFO_ENCODER_HEAD_SEQUENCE  ? "text-classification"
                     : c.encoder_head == TRAFO_ENCODER_HEAD_TOKEN     ? "token-classification"
                                                                      : "feature-extraction";
  text += fmt::format("pipeline_tag: {}\n", task);
  return text + "tags:\n- trafo\n---\n\n";
}

std::string model_table(const ModelCard& card, const trafo_model_config& c,
                        const Architecture& architecture) {
  int64_t tensors = 0, elements = 0;
  check(trafo_model_get_parameter_count(card.model, &tensors, &elements));
  Table table;
  table.row("architecture", architecture.name);
  table.row("layers", architecture.has_encoder
                          ? fmt::format("{} + {}", c.encoder_layers, c.decoder_layers)
                          : std::to_string(c.decoder_layers));
  table.row("width, feed-forward, heads", fmt::format("{}, {}, {}", c.width, c.ffn_width, c.heads));
  table.row("positions", grouped(c.max_positions));
  table.row("parameters", grouped(elements));
  table.row("vocabulary", grouped(c.vocabulary));
  if (c.source_vocabulary > 0) table.row("vocabulary of sources", grouped(c.source_vocabulary));
  table.row("format", card.format + (card.weights.empty() ? "" : ", " + card.weights));
  return table.text();
}

// A text of metrics.jsonl, which may come from somebody else, inside a cell.
std::string cell(const std::string& text) {
  return markdown_text(text.substr(0, 200));
}

std::string training_section(const CheckpointOfRun& of) {
  const RunLog& run = of.run;
  Table table;
  if (of.update >= 0)
    table.row("checkpoint",
              fmt::format("update {} of {}", grouped(of.update), grouped(run.last_update)));
  else
    table.row("checkpoint", "the mean of checkpoints");
  if (run.train_pairs > 0) table.row("training pairs", grouped(run.train_pairs));
  const auto before = [&](const TrainPoint& point) {
    return of.update < 0 || point.update <= of.update;
  };
  const auto last = std::find_if(run.train.rbegin(), run.train.rend(), before);
  if (last != run.train.rend()) {
    if (!std::isnan(last->tokens)) table.row("target tokens", compact(last->tokens));
    if (!std::isnan(last->seconds))
      table.row("time of training", last->seconds < 120
                                        ? fmt::format("{:.0f} s", last->seconds)
                                        : fmt::format("{:.0f} min", last->seconds / 60));
  }
  if (!run.device.empty()) table.row("device", cell(run.device));
  if (!run.version.empty()) table.row("trained with", "Trafo " + cell(run.version));
  return "\n## Training\n\n" + table.text();
}

std::string quality_section(const CheckpointOfRun& of) {
  const auto measured =
      std::find_if(of.run.valid.begin(), of.run.valid.end(),
                   [&](const ValidPoint& point) { return point.update == of.update; });
  if (measured == of.run.valid.end()) return "\nThe run has not validated this checkpoint.\n";
  Table table;
  for (size_t m = 0; m < metric_specs().size(); ++m) {
    const MetricSpec& metric = metric_specs()[m];
    if (std::isnan(measured->metrics[m])) continue;
    table.row(metric.bit == TRAFO_METRIC_CE ? "cross-entropy a word" : metric.title,
              fixed(measured->metrics[m], metric.decimals));
  }
  const std::string pairs =
      of.run.valid_pairs > 0 ? grouped(of.run.valid_pairs) + " validation pairs" : "validation";
  return "\n## Quality\n\nMeasured by the run on " + pairs + ", with float32 weights:\n\n" +
         table.text();
}

bool is_multilingual(const std::string& format) {
  return format == "hf-m2m100" || format == "hf-mbart";
}

std::string use_section(const ModelCard& card, const Architecture& architecture) {
  if (!is_for_transformers(card.format)) return "";
  const bool causal = !architecture.has_encoder;
  const bool has_languages = is_multilingual(card.format);
  const char* kind = causal ? "AutoModelForCausalLM" : "AutoModelForSeq2SeqLM";
  return fmt::format(
      "\n## Use\n\n```python\n"
      "from transformers import AutoTokenizer, {0}\n\n"
      "tokenizer = AutoTokenizer.from_pretrained(\".\"{2})\n"
      "model = {0}.from_pretrained(\".\")\n"
      "inputs = tokenizer([\"...\"], return_tensors=\"pt\", padding=True)\n"
      "output = model.generate(**inputs{3}){1}\n"
      "print(tokenizer.batch_decode(output, skip_special_tokens=True))\n```\n",
      kind, causal ? "[:, inputs.input_ids.shape[1]:]" : "",
      has_languages ? ", src_lang=\"SOURCE\", tgt_lang=\"TARGET\"" : "",
      has_languages ? ", forced_bos_token_id=tokenizer(text_target=\"\").input_ids[0]" : "");
}

}  // namespace

std::string model_card(const ModelCard& card) {
  trafo_model_config c{};
  check(trafo_model_get_config(card.model, &c, sizeof c));
  const Architecture& architecture = architectures()[static_cast<size_t>(c.architecture)];
  std::string text = metadata(card, c, architecture) + "# Model\n\n" +
                     "Trained with Trafo and written by `translate-train export`.\n\n" +
                     model_table(card, c, architecture);
  if (const std::optional<CheckpointOfRun> run = run_of(card.model_path))
    text += training_section(*run) + quality_section(*run);
  else
    text += "\nThe model is from no run directory: there are no figures of its training.\n";
  return text + use_section(card, architecture);
}

}  // namespace translate_train
