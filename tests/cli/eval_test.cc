// eval: tokenizers, several references, BLEU's parts, a baseline; --json of every command that has
// it.
#include <nlohmann/json.hpp>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

using Json = nlohmann::json;

class Eval : public Cli {
 protected:
  void SetUp() override {
    write_file(file("hyp"), "the cat sat on the mat\nThere is a dog.\n");
    write_file(file("ref"), "the cat sat on the mat\nThere is a cat.\n");
    write_file(file("ref2"), "a cat sat on that mat\nThere is one dog.\n");
    write_file(file("zh.hyp"), "今天天气很好，我们去公园。\n他说了一些话就走了。\n");
    write_file(file("zh.ref"), "今天天气不错，我们去公园。\n他说了几句话就离开了。\n");
  }
  // The object that a command writes as its only line.
  static Json object(const Arguments& arguments, int exit_code = 0) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
    EXPECT_EQ(lines_of(outcome.out).size(), 1u) << outcome.out;
    return Json::parse(outcome.out);
  }
};

TEST_F(Eval, ShowsThePartsOfBleu) {
  const Outcome outcome = run({"eval", "--hyp", "hyp", "--ref", "ref"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 2u);
  // 10 of 11 words, 7 of 9 pairs, 5 of 7 triples, 3 of 5 quadruples: (10/11 7/9 5/7 3/5)^(1/4).
  EXPECT_TRUE(lines[0].starts_with("BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|trafo:"))
      << lines[0];
  EXPECT_TRUE(lines[0].ends_with(
      " = 74.19 90.9/77.8/71.4/60.0 (BP = 1.000 ratio = 1.000 hyp_len = 11 ref_len = 11)"))
      << lines[0];
  EXPECT_TRUE(lines[1].starts_with("chrF2|nrefs:1|")) << lines[1];
}

TEST_F(Eval, TokenizersAreNamedAndRefused) {
  for (const char* name : {"13a", "none", "zh", "intl", "char"}) {
    const Outcome outcome = run({"eval", "--hyp", "hyp", "--ref", "ref", "--tokenize", name});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_NE(outcome.out.find(std::string("|tok:") + name + "|"), std::string::npos)
        << outcome.out;
  }
  const auto refused = [](Arguments arguments, const char* text) {
    arguments.insert(arguments.begin(), {"eval", "--hyp", "hyp", "--ref", "ref"});
    expect_refused(run(arguments), text);
  };
  refused({"--tokenize", "ko-mecab"}, "use char");
  refused({"--tokenize", "spm"}, "use flores200");
  refused({"--tokenize", "v13b"}, "v13b");
  refused({"--tokenize", "flores200"}, "--tokenize-model");
  refused({"--tokenize-model", "run/vocab.spm"}, "--tokenize flores200");
  refused({"--tokenize", "flores200", "--tokenize-model", "none.spm"}, "none.spm");
  refused({"--baseline", "t.de"}, "t.de");
  refused({"--resamples", "0"}, "--resamples");
  expect_refused(run({"eval", "--hyp", "hyp", "--ref", "ref", "t.de"}), "t.de");
}

TEST_F(Eval, SubwordsOfAGivenModel) {
  const Json own = object({"eval", "--json", "--hyp", "hyp", "--ref", "ref", "--tokenize",
                           "flores200", "--tokenize-model", "run/vocab.spm"});
  const std::string signature = own["bleu"]["signature"];
  EXPECT_NE(signature.find("|tok:flores200|model:"), std::string::npos) << signature;
  EXPECT_GT(own["bleu"]["hypothesis_tokens"].get<int64_t>(), 11);
}

TEST_F(Eval, WarnsOfScriptsWithoutSpaces) {
  const Outcome words = run({"eval", "--hyp", "zh.hyp", "--ref", "zh.ref"});
  EXPECT_EQ(words.exit_code, 0);
  EXPECT_NE(words.err.find("2 of 2 references are written without spaces"), std::string::npos)
      << words.err;
  EXPECT_NE(words.err.find("--tokenize zh"), std::string::npos) << words.err;
  const Outcome characters =
      run({"eval", "--hyp", "zh.hyp", "--ref", "zh.ref", "--tokenize", "zh"});
  EXPECT_EQ(characters.err, "");
  EXPECT_EQ(run({"eval", "--hyp", "hyp", "--ref", "ref"}).err, "");
}

TEST_F(Eval, SeveralReferencesAndABaseline) {
  const Json one = object({"eval", "--json", "--hyp", "hyp", "--ref", "ref"});
  const Json two = object({"eval", "--json", "--hyp", "hyp", "--ref", "ref", "ref2"});
  EXPECT_EQ(one["references"], 1);
  EXPECT_EQ(two["references"], 2);
  EXPECT_EQ(two["lines"], 2);
  EXPECT_GT(two["bleu"]["score"].get<double>(), one["bleu"]["score"].get<double>());
  EXPECT_EQ(two["bleu"]["matches"][0], 11);
  EXPECT_FALSE(one["bleu"].contains("mean"));

  const Arguments compare{"eval", "--hyp", "ref", "--ref", "ref", "--baseline", "hyp"};
  const Json compared = object(compare + Arguments{"--json", "--resamples", "200"});
  EXPECT_NEAR(compared["bleu"]["score"].get<double>(), 100, 1e-9);
  EXPECT_NEAR(compared["bleu"]["baseline"]["score"].get<double>(), 74.19, 0.01);
  for (const char* metric : {"bleu", "chrf"}) {
    const double p = compared[metric]["p_value"];
    EXPECT_TRUE(p > 0 && p <= 1) << p;
    EXPECT_EQ(compared[metric]["half_width"], 0);
    EXPECT_GT(compared[metric]["baseline"]["half_width"].get<double>(), 0);
    const std::string signature = compared[metric]["signature"];
    EXPECT_TRUE(signature.starts_with("nrefs:1|bs:200|seed:12345|case:mixed|")) << signature;
  }
  const Outcome text = run(compare);
  ASSERT_EQ(lines_of(text.out).size(), 4u) << text.out;
  EXPECT_NE(lines_of(text.out)[0].find(" = 100.00 (mean 100.00 ± 0.00) 100.0/"), std::string::npos)
      << text.out;
  EXPECT_TRUE(lines_of(text.out)[2].starts_with("baseline BLEU = 74.19 (mean ")) << text.out;
  EXPECT_NE(lines_of(text.out)[2].find("), difference +25.81, p = "), std::string::npos)
      << text.out;
  EXPECT_EQ(run(compare).out, text.out);  // the same seed

  const Outcome interval = run({"eval", "--hyp", "hyp", "--ref", "ref", "--confidence"});
  EXPECT_EQ(lines_of(interval.out).size(), 2u);
  EXPECT_NE(interval.out.find(" ± "), std::string::npos) << interval.out;
}

TEST_F(Eval, OtherCommandsAsJson) {
  const Json scores = object({"score", "--model", "run", "-t", "v.de", "v.en", "--json"});
  EXPECT_EQ(scores["pairs"], 40);
  ASSERT_EQ(scores["scores"].size(), 40u);
  double total = 0;
  int64_t tokens = 0;
  for (const Json& each : scores["scores"]) {
    total += each["log_probability"].get<double>();
    tokens += each["tokens"].get<int64_t>();
  }
  EXPECT_NEAR(scores["log_probability"].get<double>(), total, 1e-6);
  EXPECT_EQ(scores["target_tokens"], tokens);
  EXPECT_NEAR(scores["cross_entropy"].get<double>(), -total / static_cast<double>(tokens), 1e-9);
  expect_refused(run({"score", "--model", "run", "-t", "v.de", "v.en", "--json", "-n"}), "--json");

  const Json run_facts = object({"info", "run", "--json"});
  EXPECT_EQ(run_facts["kind"], "run");
  EXPECT_EQ(run_facts["run"]["pointers"]["latest"], "20");
  EXPECT_EQ(run_facts["run"]["vocabulary"]["subwords"], 300);
  EXPECT_EQ(run_facts["run"]["checkpoint"]["model"]["width"], 32);
  EXPECT_TRUE(run_facts["run"]["checkpoint"]["state"].is_object());
  const Json model = object({"info", "run/ckpt/20/model.safetensors", "--json", "--tensors"});
  EXPECT_EQ(model["kind"], "model");
  EXPECT_EQ(model["model"]["tensors"].size(), model["model"]["tensor_count"]);
  int64_t elements = 0;
  for (const Json& tensor : model["model"]["tensors"]) {
    int64_t product = 1;
    for (const Json& size : tensor["shape"]) product *= size.get<int64_t>();
    elements += product;
  }
  EXPECT_EQ(model["model"]["parameters"], elements);
  EXPECT_EQ(object({"info", "run/vocab.spm", "--json"})["vocabulary"]["first"].size(), 12u);
  EXPECT_EQ(object({"info", "run/ckpt/20", "--json"})["kind"], "checkpoint");

  const Json plan = object({"plan", "--task", "tiny", "--json"});
  EXPECT_TRUE(plan["fits"]);
  EXPECT_EQ(plan["total_bytes"].get<int64_t>() > plan["weights_bytes"].get<int64_t>(), true);
  EXPECT_EQ(plan["limit_bytes"], 0);
  const Json over = object({"plan", "--task", "tiny", "--memory-limit", "1MiB", "--json"}, 4);
  EXPECT_FALSE(over["fits"]);
}

// Of sentences without spaces, chrF decides about the best model, and the run says so once.
TEST_F(Eval, ChrfDecidesWhereWordsHaveNoSpaces) {
  const std::string words[] = {"天气", "公园", "学校", "朋友", "今天", "我们", "图书馆", "电影"};
  std::string source, target;
  for (size_t i = 0; i < 120; ++i) {
    for (const size_t j : {i, 3 * i + 1, i / 8, 5 * i + 2}) {
      source += "w" + std::to_string(j % 8) + " ";
      target += words[j % 8];
    }
    source += "\n";
    target += "。\n";
  }
  write_file(file("zh.src"), source);
  write_file(file("zh.trg"), target);
  const Outcome outcome =
      run(words_of("train -t zh.src zh.trg --valid-sets zh.src zh.trg --model zh-run --after 4u "
                   "--valid-freq 2u --save-freq 2u") +
          with_tiny_model({"--task", "tiny", "--cpu-threads", "1", "--autotune-gemm", "off"},
                          {.width = 32, .vocabulary = 60, .batch_tokens = 300}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const size_t at = outcome.err.find("chrf decides which model is best and when to stop");
  ASSERT_NE(at, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("decides which model", at + 10), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(file("zh-run/best-bleu")));
  EXPECT_TRUE(fs::exists(file("zh-run/best-chrf")));
  EXPECT_NE(read_file(file("zh-run/metrics.jsonl")).find(R"("deciding_metric":"chrf")"),
            std::string::npos);

  // `average --best` judges by the same metric.
  write_file(file("zh-run/metrics.jsonl"),
             R"({"type":"valid","update":2,"bleu":9,"chrf":1,"deciding_metric":"chrf"})"
             "\n"
             R"({"type":"valid","update":4,"bleu":1,"chrf":2,"deciding_metric":"chrf"})"
             "\n");
  const Outcome best = run({"average", "--model", "zh-run", "--best", "1", "-o", "zh.safetensors"});
  EXPECT_NE(best.err.find("(4)"), std::string::npos) << best.err;
}

}  // namespace
}  // namespace translate_train::testing
