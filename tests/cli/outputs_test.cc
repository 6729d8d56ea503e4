// Outputs: what is lost when one is written, and when it is not.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

using Outputs = Cli;

TEST_F(Outputs, AnInputIsNotReplaced) {
  const std::string text = "Der Hund.\nDie Katze.\n", lost = ", which would be lost";
  const auto refused = [&](const std::string& command, const std::string& input) {
    expect_refused(run(words_of(command)), "is the input " + input + lost);
    EXPECT_EQ(read_file(file(input)), text) << command;
  };
  write_file(file("same"), text);
  fs::create_symlink(file("same"), file("link"));
  fs::create_hard_link(file("same"), file("other"));
  for (const char* output : {"same", "./same", "link", "other"})
    refused(std::string("translate -m run -i same -o ") + output, "same");
  refused("translate -m run -i v.de --prefixes same -o same", "same");
  refused("vocab -t v.de same -o same", "same");
  refused("encode -t same -v run --to llmc -o same", "same");
  refused("shortlist -t same v.en -v run/vocab.spm -o same", "same");
  fs::copy(file("run/vocab.spm"), file("v.spm"));
  expect_refused(run(words_of("shortlist -t v.de v.en -v v.spm -o v.spm")),
                 "is the input v.spm" + lost);
  expect_refused(run(words_of("encode -t v.de -v v.spm --to llmc -o v.spm")),
                 "is the input v.spm" + lost);
  const Outcome both = run(words_of("translate -m run -i /dev/null -o /dev/null"));
  EXPECT_EQ(both.exit_code, 0) << both.err;
}

TEST_F(Outputs, AnEarlierOneStaysUntilThereIsAnother) {
  const std::string before = "precious\nand long enough to show a rest\n";
  write_file(file("bad"), "Der Hund.\n\xff\n");
  write_file(file("short"), "Ja.\n");
  for (const char* command :
       {"translate -m run -i v.de --shortlist nowhere 10 10", "translate -m run -i nowhere",
        "translate -m run -i v.de --prefixes short", "translate -m run -i bad"}) {
    write_file(file("keep"), before);
    EXPECT_NE(run(words_of(command) + Arguments{"-o", "keep"}).exit_code, 0) << command;
    EXPECT_EQ(read_file(file("keep")), before) << command;
  }
  EXPECT_EQ(run({"translate", "-m", "run", "-o", "keep", "--beam-size", "1"}, "Ja.\n").exit_code,
            0);
  EXPECT_EQ(lines_of(read_file(file("keep"))).size(), 1u);
  EXPECT_EQ(read_file(file("keep")).find("precious"), std::string::npos);
  EXPECT_EQ(run({"translate", "-m", "run", "-o", "keep"}, "").exit_code, 0);
  EXPECT_EQ(read_file(file("keep")), "");  // the translation of nothing
}

TEST_F(Outputs, FilesOfARunStay) {
  copy_of_run("whole");
  const std::string model = "whole/ckpt/20/model.safetensors";
  expect_refused(run({"average", model, model, "-o", model}), "is the input " + model);
  expect_refused(run(words_of("vocab -t v.de --dim-vocabs 60 -o whole/vocab.spm")),
                 "is a file of a run");
  for (const char* output : {"whole/vocab.spm", model.c_str()})
    expect_refused(run({"translate", "-m", "whole", "-o", output}, "Ja.\n"), "is a file of a ");
  expect_refused(run({"average", "-m", "whole", "--last", "1", "-o", model}),
                 "is a file of a checkpoint");
  const Outcome without_output =
      run_program(file("whole"), words_of("vocab -t ../v.de --dim-vocabs 60"));
  expect_refused(without_output, "is a file of a run");
  EXPECT_EQ(run({"translate", "-m", "whole"}, "Ja.\n").exit_code, 0);
  fs::create_directories(file("page"));
  write_file(file("page/manifest.json"), R"({"name": "a web page"})");
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_EQ(run({"translate", "-m", "whole", "-o", "page/text"}, "Ja.\n").exit_code, 0);
  for (int twice = 0; twice < 2; ++twice)
    EXPECT_EQ(run({"average", model, model, "-o", "whole/mean.safetensors"}).exit_code, 0);
}

TEST_F(Outputs, NothingScoredIsSaid) {
  write_file(file("none"), "");
  const Outcome pairs = run(words_of("score -m run -t none none --json"));
  EXPECT_EQ(pairs.exit_code, 0) << pairs.err;
  EXPECT_NE(pairs.out.find("\"pairs\":0"), std::string::npos) << pairs.out;
  EXPECT_NE(pairs.err.find("0 pairs: nothing was scored"), std::string::npos) << pairs.err;
}

TEST_F(Outputs, ARunWithoutACheckpointIsNamed) {
  fs::create_directories(file("begun"));
  write_file(file("begun/metrics.jsonl"), "");
  expect_refused(run({"info", "begun"}), "begun: has no checkpoint yet");
}

TEST_F(Outputs, SettingsAreOneDocument) {
  write_file(file("two.yml"), "seed: 3\ntrain-sets: [t.de, t.en]\n---\nseed: 4\n");
  expect_refused(run({"train", "--config", "two.yml", "--dump-config"}), "a second document");
  write_file(file("one.yml"), "---\nseed: 3\ntrain-sets: [t.de, t.en]\n---\n");
  EXPECT_EQ(run({"train", "--config", "one.yml", "--dump-config"}).exit_code, 0);
}

}  // namespace
}  // namespace translate_train::testing
