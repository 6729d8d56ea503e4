// The HTML report, from run directories that are written here record by record.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/translate-train/report/template.h"
#include "examples/demo/corpus.h"
#include "tests/cli/program.h"

namespace translate_train::testing {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Json train_record(int64_t update, double loss) {
  return {{"type", "train"},
          {"update", update},
          {"time", now()},
          {"epoch", 1},
          {"loss", loss},
          {"nll", loss},
          {"grad_norm", 1.5},
          {"learning_rate", 1e-5 * static_cast<double>(update)},
          {"target_tokens", 100 * update},
          {"target_tokens_per_second", 5000.0},
          {"elapsed_seconds", 0.5 * static_cast<double>(update)},
          {"memory_bytes", 1'000'000'000},
          {"peak_memory_bytes", 2'500'000'000},
          {"skipped_updates", 0}};
}

Json valid_record(int64_t update, double bleu) {
  return {{"type", "valid"},
          {"update", update},
          {"time", now()},
          {"target_tokens", 100 * update},
          {"elapsed_seconds", 0.5 * static_cast<double>(update)},
          {"bleu", bleu},
          {"chrf", bleu + 20},
          {"ce-mean-words", 5 - bleu / 20}};
}

class Report : public ::testing::Test {
 protected:
  // A folder that looks like a run directory; "" as `config`: none.
  void make_run(const std::string& name, const std::vector<Json>& records,
                const std::string& config = "seed: 1\n") {
    std::string lines;
    for (const Json& record : records) lines += record.dump() + "\n";
    make_raw_run(name, lines, config);
  }
  void make_raw_run(const std::string& name, const std::string& metrics,
                    const std::string& config) {
    fs::create_directories(folder_.file(name));
    write_file(folder_.file(name + "/metrics.jsonl"), metrics);
    if (!config.empty()) write_file(folder_.file(name + "/config.yml"), config);
  }
  Outcome run(const std::vector<std::string>& arguments) {
    std::vector<std::string> all = {"report"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_program(folder_.path(), all);
  }
  // The page of these runs, which must be made without complaint.
  std::string page(const std::vector<std::string>& runs) {
    const Outcome outcome = run(runs);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_EQ(outcome.err.find("warning"), std::string::npos) << outcome.err;
    return read_file(folder_.file("report.html"));
  }
  // Input of the page's script: every value of the curves.
  static Json data_of(const std::string& page) {
    const std::string begin = "<script type=\"application/json\" id=\"data\">";
    const size_t at = page.find(begin) + begin.size();
    return Json::parse(page.substr(at, page.find("</script>", at) - at));
  }
  // The path of the first curve of a chart over updates.
  static std::string curve(const std::string& page, const std::string& chart) {
    const size_t figure = page.find("<figure data-chart=\"" + chart + "\"");
    EXPECT_NE(figure, std::string::npos) << chart;
    const std::string begin = "<path class=\"line\" d=\"";
    const size_t at = page.find(begin, figure) + begin.size();
    return page.substr(at, page.find('"', at) - at);
  }
  static int64_t count(const std::string& text, const std::string& part) {
    int64_t found = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++found;
    return found;
  }

  TemporaryFolder folder_;
};

TEST(ReportTemplate, FillsSectionsAndEscapesText) {
  const Json data = {{"name", "<b> & 'x'"},
                     {"markup", "<i>"},
                     {"list", {{{"name", "one"}, {"on", true}}, {{"name", "two"}, {"on", false}}}},
                     {"words", {"a", "b"}},
                     {"none", Json::array()},
                     {"nothing", nullptr},
                     {"of", {{"inner", "in"}}}};
  EXPECT_EQ(fill_template("{{name}}|{{{markup}}}", data), "&lt;b&gt; &amp; &#39;x&#39;|<i>");
  EXPECT_EQ(fill_template("{{#list}}{{name}}{{#on}}!{{/on}}{{^on}}?{{/on}},{{/list}}", data),
            "one!,two?,");
  EXPECT_EQ(
      fill_template("{{#words}}[{{.}}]{{/words}}{{#none}}x{{/none}}{{^none}}none{{/none}}", data),
      "[a][b]none");
  EXPECT_EQ(fill_template("{{#nothing}}x{{/nothing}}{{#of}}{{inner}} {{markup}}{{/of}}", data),
            "in &lt;i&gt;");
  EXPECT_EQ(fill_template("a\n  {{#words}}\n    <{{.}}>\n  {{/words}}\nz\n", data),
            "a\n<a>\n<b>\nz\n");
  for (const char* wrong : {"{{absent}}", "{{list}}", "{{name", "{{#of}}open", "{{{name}}"})
    EXPECT_THROW(fill_template(wrong, data), std::logic_error) << wrong;
}

TEST_F(Report, WhatIsNoRunIsRefused) {
  const auto expect_refused = [&](const std::vector<std::string>& arguments,
                                  const std::string& text, int code) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, code);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_FALSE(fs::exists(folder_.file("report.html")));
  };
  expect_refused({}, "runs is required", 2);
  expect_refused({"nowhere"}, "nowhere: there is no such run directory", 2);
  write_file(folder_.file("file"), "");
  expect_refused({"file"}, "file: is no run directory", 2);
  fs::create_directories(folder_.file("empty"));
  expect_refused({"empty"}, "empty: is no run directory, it has no metrics.jsonl", 2);
  make_run("good", {train_record(1, 5)});
  expect_refused(std::vector<std::string>(9, "good"), "at most 8", 2);
  expect_refused({"good", "-o", "/proc/report.html"}, "/proc/report.html", 1);
}

TEST_F(Report, CurvesAreDrawnWhereTheValuesAre) {
  std::vector<Json> records;
  for (int64_t update = 1; update <= 100; ++update) {
    records.push_back(train_record(update, 8.0 / std::sqrt(update)));
    if (update % 25 == 0) records.push_back(valid_record(update, update == 75 ? 40 : 30));
  }
  make_run("run", records);
  const std::string html = page({"run"});
  for (const char* chart : {"loss", "bleu", "chrf", "rate", "norm", "speed", "memory"})
    EXPECT_EQ(count(html, std::string("<figure data-chart=\"") + chart + "\""), 1) << chart;
  EXPECT_EQ(count(html, "role=\"img\""), 7 * 3);  // over updates, tokens and time
  // The plot reaches from 54 to 468, the last update is at its end: 25 at a quarter.
  const std::string bleu = curve(html, "bleu");
  EXPECT_TRUE(bleu.starts_with("M157.5 ")) << bleu;
  EXPECT_EQ(count(bleu, "L"), 3);
  EXPECT_NE(bleu.find("L364.5 "), std::string::npos) << bleu;
  EXPECT_NE(bleu.find("L468.0 "), std::string::npos) << bleu;
  // From 0 to 41.6 over 212 units: 30 is 152.9 over the ground at 226, 40 203.8.
  EXPECT_NE(bleu.find("M157.5 73.1"), std::string::npos) << bleu;
  EXPECT_NE(bleu.find("L364.5 22.2"), std::string::npos) << bleu;
  EXPECT_NE(html.find("<b>40.00</b> <small>at update 75</small>"), std::string::npos);
  EXPECT_NE(html.find("<b>2.5 GB</b>"), std::string::npos);

  const Json data = data_of(html);
  EXPECT_EQ(data["charts"]["loss"].size(), 2u);
  EXPECT_EQ(data["charts"]["loss"][0]["y"][3], 4.0);
  EXPECT_EQ(data["charts"]["loss"][0]["x"][1][3], 400);
  EXPECT_EQ(data["charts"]["loss"][0]["x"][2][3], 2.0);
}

TEST_F(Report, FetchesNothing) {
  make_run("run", {train_record(1, 5), valid_record(1, 3)});
  const std::string html = page({"run"});
  for (const char* text : {"http:", "https:", "//", "src=", "url(", "@import", "fetch(", "import("})
    for (size_t at = html.find(text); at != std::string::npos; at = html.find(text, at + 1))
      // The namespace of SVG is a name, not an address.
      EXPECT_NE(html.substr(0, at + 30).find("http://www.w3.org/2000/svg", at < 8 ? 0 : at - 8),
                std::string::npos)
          << html.substr(at < 40 ? 0 : at - 40, 120);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
}

TEST_F(Report, HostileTextStaysText) {
  const std::string hostile =
      "</script><script>alert(1)</script><img src=x onerror=\"alert(2)\">'&";
  Json samples = {{"type", "samples"},
                  {"update", 0},
                  {"lines", {0, 1}},
                  {"sources", {hostile, "plain"}},
                  {"references", {hostile, std::string("nul\0 bell\a", 10)}}};
  Json run_record = {{"type", "run"}, {"update", 0}, {"device", hostile}, {"version", hostile}};
  Json valid = valid_record(2, 10);
  valid["samples"] = {hostile + " more", ""};
  std::string lines;
  for (const Json& record : {run_record, samples, train_record(1, 4), valid})
    lines += record.dump() + "\n";
  // Invalid records: no UTF-8, no JSON, no object, no update, numbers beyond all reason.
  lines +=
      "{\"type\":\"train\",\"update\":3,\"x\":\"\xFF\xFE\"}\n{\"type\":\n[1]\n{\"type\":\"train\"}"
      "\n";
  lines += "{\"type\":\"train\",\"update\":1e300,\"loss\":1}\n{\"type\":\"train\",\"update\":-4}\n";
  lines += "{\"type\":\"train\",\"update\":4,\"loss\":1e300,\"target_tokens\":\"many\"}\n";
  const std::string name = "<b>run & \"x\"";
  make_raw_run(name, lines, "seed: \"</dd><script>alert(3)</script>\"\n\"<i>\": \"\\x01\"\n");
  const Outcome outcome = run({name, "-o", "-"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("metrics.jsonl:5 is no record, and 5 more"), std::string::npos)
      << outcome.err;
  const std::string& html = outcome.out;
  EXPECT_EQ(count(html, "<script"), 2);  // data and script
  EXPECT_EQ(count(html, "</script>"), 2);
  for (const char* text : {"<img", "alert(1)</script>", "<b>run", "<i>\"", "<script>alert"})
    EXPECT_EQ(html.find(text), std::string::npos) << text;
  EXPECT_NE(html.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
  EXPECT_EQ(data_of(html)["runs"][0], name);
  // Valid UTF-8 without control characters, or nlohmann's reader would refuse it.
  EXPECT_NO_THROW(Json(html).dump());
  for (const char c : html) EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n');
}

TEST_F(Report, ValuesThatAreNotFiniteAreGaps) {
  std::vector<Json> records;
  for (int64_t update = 1; update <= 9; ++update) {
    records.push_back(train_record(update, 3));
    // As JSON writes them.
    if (update == 4 || update == 6) records.back()["loss"] = records.back()["nll"] = nullptr;
  }
  make_run("run", records);
  const std::string html = page({"run"});
  const std::string loss = curve(html, "loss");
  EXPECT_EQ(count(loss, "M"), 3) << loss;  // 1 to 3, 5 alone, 7 to 9
  EXPECT_EQ(count(loss, "L"), 2 + 0 + 2) << loss;
  EXPECT_EQ(loss.find("nan"), std::string::npos);
  EXPECT_EQ(html.find("data-chart=\"bleu\""), std::string::npos);
  EXPECT_NE(html.find("No validation has recorded"), std::string::npos);
}

TEST_F(Report, AContinuedRunHasNoPointTwice) {
  std::vector<Json> records;
  for (int64_t update = 1; update <= 10; ++update) records.push_back(train_record(update, 5));
  records.push_back(valid_record(8, 12));
  records.push_back({{"type", "run"}, {"update", 5}, {"resumed", true}, {"time", now()}});
  for (int64_t update = 6; update <= 12; ++update) records.push_back(train_record(update, 4));
  records.push_back(valid_record(8, 13));
  make_run("run", records);
  const std::string html = page({"run"});
  const Json data = data_of(html);
  const Json& loss = data["charts"]["loss"][0];
  EXPECT_EQ(loss["x"][0], Json::parse("[1,2,3,4,5,6,7,8,9,10,11,12]"));
  EXPECT_EQ(loss["y"], Json::parse("[5,5,5,5,5,4,4,4,4,4,4,4]"));
  EXPECT_EQ(data["charts"]["bleu"][0]["y"], Json::parse("[13]"));
  EXPECT_NE(html.find("continued after update 5"), std::string::npos);
}

TEST_F(Report, ListsThatNameThemselvesOrDoubleHaveAnEnd) {
  std::string doubling = "a0: &a0 [x, y]\n";
  for (int i = 1; i <= 60; ++i) {
    const std::string now = std::to_string(i), before = std::to_string(i - 1);
    doubling += "a" + now + ": &a" + now + " [*a" + before + ", *a" + before + "]\n";
  }
  for (const std::string& config : {std::string("seed: &a [1, *a]\n"), doubling}) {
    make_run("odd", {}, config);
    EXPECT_EQ(run({"odd"}).exit_code, 0);
    EXPECT_LT(read_file(folder_.file("report.html")).size(), 1u << 20);
  }
}

TEST_F(Report, RunsThatHaveJustBegunAndOldOnes) {
  make_run("begun", {}, "");
  const Outcome begun = run({"begun"});
  EXPECT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_NE(begun.err.find("config.yml is missing"), std::string::npos);
  EXPECT_NE(read_file(folder_.file("report.html")).find("Nothing has been displayed yet"),
            std::string::npos);
  // The last line is being written.
  make_raw_run("going", train_record(7, 5).dump() + "\n{\"type\":\"train\",\"upd", "seed: 1\n");
  const std::string going = page({"going"});
  EXPECT_NE(going.find("class=\"state running\""), std::string::npos);
  EXPECT_EQ(data_of(going)["charts"]["loss"][0]["x"][0], Json::parse("[7]"));
  make_run("diverged",
           {train_record(7, 5), {{"type", "end"}, {"update", 7}, {"stop", "diverged"}}});
  EXPECT_NE(page({"diverged"}).find("class=\"state failed\">diverged"), std::string::npos);
  make_run("ended",
           {train_record(7, 5), {{"type", "end"}, {"update", 7}, {"stop", "early stopping"}}});
  EXPECT_NE(page({"ended"}).find("finished: no more improvement"), std::string::npos);
  // Records as they were before there were times, runs and samples.
  Json old_train = train_record(10, 4), old_valid = valid_record(10, 9);
  for (const char* key : {"time"}) old_train.erase(key), old_valid.erase(key);
  old_valid.erase("target_tokens");
  make_run("old", {old_train, old_valid});
  const Json data = data_of(page({"old/"}));
  EXPECT_EQ(data["runs"][0], "old");
  EXPECT_EQ(data["charts"]["bleu"][0]["x"], Json::parse("[[10],[1000],[5]]"));
}

TEST_F(Report, SeveralRunsAreCompared) {
  make_run("a", {train_record(1, 5), train_record(100, 2), valid_record(100, 20)},
           "seed: 1\nlearn-rate: 0.001\nafter: [100u, 2e]\n");
  make_run("b", {train_record(1, 5), train_record(50, 3), valid_record(50, 30)},
           "seed: 1\nlearn-rate: 0.002\nafter: [100u, 2e]\nnew-thing: 7\n");
  fs::create_directories(folder_.file("other"));
  make_run("other/a", {train_record(1, 4), train_record(80, 1)}, "seed: 1\nlearn-rate: 0.001\n");
  const std::string html = page({"a", "b", "other/a"});
  const Json data = data_of(html);
  EXPECT_EQ(data["runs"], Json::parse(R"(["a","b","other/a"])"));
  EXPECT_EQ(data["charts"]["loss"].size(), 5u);
  EXPECT_EQ(data["charts"]["bleu"].size(), 2u);
  // All on one scale: the run of 50 updates ends in the middle.
  EXPECT_NE(html.find("id=\"run-2\""), std::string::npos);
  EXPECT_NE(html.find("L261.0 "), std::string::npos);
  const size_t different = html.find("Where the runs differ");
  const size_t same = html.find("settings are the same in all runs");
  ASSERT_TRUE(different != std::string::npos && same != std::string::npos && different < same);
  const auto in_differences = [&](const std::string& setting) {
    const size_t at = html.find(">" + setting + "<", different);
    EXPECT_NE(at, std::string::npos) << setting;
    return at < same;
  };
  EXPECT_TRUE(in_differences("learn-rate"));
  EXPECT_TRUE(in_differences("after"));  // the third does not have it
  EXPECT_TRUE(in_differences("new-thing"));
  EXPECT_FALSE(in_differences("seed"));
  EXPECT_EQ(count(html, "<td class=\"top\"><b>30.00</b>"), 1);
  EXPECT_EQ(count(page({"a", "other/a"}), "class=\"top\"><b>20.00"), 0);  // the only one
}

TEST_F(Report, LongRunsAreThinnedOutAndKeepTheirSpread) {
  std::string lines;
  for (int64_t update = 1; update <= 40000; ++update)
    lines += "{\"type\":\"train\",\"update\":" + std::to_string(update) +
             ",\"loss\":" + (update == 20000 ? "9.5" : "2.0") + "}\n";
  make_raw_run("run", lines, "seed: 1\n");
  const std::string html = page({"run"});
  EXPECT_LT(html.size(), 400'000u);
  const Json loss = data_of(html)["charts"]["loss"][0];
  EXPECT_LE(loss["y"].size(), 400u);
  EXPECT_GE(loss["y"].size(), 300u);
  EXPECT_EQ(loss["x"][0].back(), 40000);
  EXPECT_NE(html.find("highest 2.0"), std::string::npos);  // the means,
  EXPECT_NE(html.find("class=\"band\""), std::string::npos);
  const size_t figure = html.find("data-chart=\"loss\"");
  const size_t high = html.find("data-high=\"", figure) + 11;
  EXPECT_GT(std::stod(html.substr(high)), 9.5);  // and the spike has room
}

TEST_F(Report, ShowsARunThatWasTrained) {
  const demo::Corpus corpus = demo::make_corpus(3, 200, 20);
  std::string de, en;
  for (const demo::Pair& pair : corpus.train) de += pair.german + "\n", en += pair.english + "\n";
  write_file(folder_.file("t.de"), de);
  write_file(folder_.file("t.en"), en);
  const Outcome trained = run_program(
      folder_.path(), with_tiny_model({"train", "-t", "t.de", "t.en", "--valid-sets", "t.de",
                                       "t.en", "--model", "run", "--after", "6u", "--valid-freq",
                                       "3u", "--cpu-threads", "1", "--tensorboard", "--quiet"}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(trained.err, "");
  EXPECT_FALSE(fs::is_empty(folder_.file("run/tensorboard")));
  const std::string html = page({"run"});
  EXPECT_NE(html.find("finished: limit reached"), std::string::npos);
  EXPECT_EQ(count(html, "<article>"), 6);
  EXPECT_NE(html.find(corpus.train[16].english), std::string::npos);  // of 200: 16, 50, 83, ...
  EXPECT_EQ(count(html, "<th scope=\"row\">update 3 "), 6);
  EXPECT_NE(html.find("mini-batch-words</dt><dd>200</dd>"), std::string::npos);
  const Json data = data_of(html);
  EXPECT_EQ(data["charts"]["bleu"][0]["x"][0], Json::parse("[3,6]"));
}

}  // namespace
}  // namespace translate_train::testing
