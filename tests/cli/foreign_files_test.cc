// Files in a run directory that no run has written: they are used or refused, never overwritten.
#include <algorithm>

#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class ForeignFiles : public Cli {
 protected:
  // A fresh run directory with one file in it.
  static std::string with_file(const std::string& name, const std::string& content) {
    fs::remove_all(file("mine"));
    fs::create_directories(fs::path(file("mine/" + name)).parent_path());
    write_file(file("mine/" + name), content);
    return file("mine/" + name);
  }
  // Training refuses it by name, says what to do, and leaves it alone.
  static void expect_refused_and_kept(const std::string& name, const std::string& content) {
    const std::string path = with_file(name, content);
    const Outcome outcome = run(small("mine", "2u"));
    // Of a folder's content, the folder.
    const bool in_checkpoint = name.starts_with("ckpt/");
    expect_refused(outcome, "mine/" + (in_checkpoint ? name.substr(0, name.rfind('/')) : name));
    EXPECT_NE(outcome.err.find("move it away"), std::string::npos) << outcome.err;
    EXPECT_EQ(read_file(path), content) << name;
    EXPECT_FALSE(fs::exists(file("mine/ckpt/2/model.safetensors"))) << name;
  }
  // Another vocabulary than the one that `small` trains.
  static std::string other_vocabulary() {
    const Outcome made = run(
        {"vocab", "-t", "t.de", "t.en", "v.de", "v.en", "-o", "other.spm", "--dim-vocabs", "290"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return read_file(file("other.spm"));
  }
  static Arguments without(Arguments arguments, const std::string& flag) {
    const auto at = std::find(arguments.begin(), arguments.end(), flag);
    EXPECT_NE(at, arguments.end());
    arguments.erase(at, at + 2);
    return arguments;
  }
};

TEST_F(ForeignFiles, AConfigurationIsRefused) {
  const std::string settings =
      "# my settings\ntrain-sets: [t.de, t.en]\nvalid-sets: [v.de, v.en]\nmodel: mine\n"
      "after: 2u\n";
  expect_refused_and_kept("config.yml", settings);
  // The same file, given as what it is: settings for a run in the directory it lies in.
  const Outcome given = run({"train", "-c", "mine/config.yml"});
  expect_refused(given, "mine/config.yml");
  EXPECT_NE(given.err.find("--config reads settings from any file"), std::string::npos)
      << given.err;
  EXPECT_EQ(read_file(file("mine/config.yml")), settings);
  // Before anything is read or written.
  EXPECT_FALSE(fs::exists(file("mine/.lock")));
  // Moved away, as the message says.
  fs::rename(file("mine/config.yml"), file("mine.yml"));
  const Outcome moved = run(Arguments{"train", "-c", "mine.yml"} + small_model());
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(read_file(file("mine.yml")), settings);
}

TEST_F(ForeignFiles, EveryOtherFileIsRefused) {
  expect_refused_and_kept("metrics.jsonl", "{\"loss\": 1}\n");
  expect_refused_and_kept("latest", "of my own\n");
  expect_refused_and_kept("best-bleu", "of my own\n");
  expect_refused_and_kept("gemm-cache", "of my own\n");
  expect_refused_and_kept("valid/2.hyp", "of my own\n");
  expect_refused_and_kept("ckpt/2/notes.txt", "of my own\n");
  expect_refused_and_kept("ckpt/averaged/model.safetensors", "of my own\n");
  expect_refused_and_kept(".lock", "of my own\n");
}

TEST_F(ForeignFiles, ALogIsAppendedTo) {
  const std::string path = with_file("train.log", "of my own\n");
  ASSERT_EQ(run(small("mine", "2u")).exit_code, 0);
  EXPECT_TRUE(read_file(path).starts_with("of my own\n"));
}

TEST_F(ForeignFiles, AVocabularyIsAdopted) {
  const std::string vocabulary = other_vocabulary();
  const std::string path = with_file("vocab.spm", vocabulary);
  const Arguments train = without(small("mine", "2u"), "--dim-vocabs");
  const Outcome outcome = run(train);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("mine/vocab.spm, which was there before the run"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(read_file(path), vocabulary);
  EXPECT_NE(read_file(file("mine/config.yml")).find("dim-vocabs: 290"), std::string::npos);
  EXPECT_EQ(run({"train", "--model", "mine", "--after", "3u"}).exit_code, 0);
  EXPECT_EQ(read_file(path), vocabulary);
  // A run that ended before its first checkpoint does not make it its own.
  fs::remove_all(file("mine/ckpt"));
  ASSERT_EQ(run(train).exit_code, 0);
  EXPECT_EQ(read_file(path), vocabulary);
}

TEST_F(ForeignFiles, AVocabularyThatDoesNotFitIsRefused) {
  const std::string vocabulary = other_vocabulary();
  expect_refused_and_kept("vocab.spm", vocabulary);  // --dim-vocabs 300
  const std::string path = with_file("vocab.spm", vocabulary);
  fs::copy_file(file("run/vocab.spm"), file("third.spm"), fs::copy_options::overwrite_existing);
  const Arguments train = without(small("mine", "2u"), "--dim-vocabs");
  const Outcome given = run(train + Arguments{"--vocabs", "third.spm"});
  expect_refused(given, "mine/vocab.spm");
  EXPECT_NE(given.err.find("move it away"), std::string::npos) << given.err;
  EXPECT_EQ(read_file(path), vocabulary);
  // The same vocabulary is no other one.
  EXPECT_EQ(run(train + Arguments{"--vocabs", "other.spm"}).exit_code, 0);
  EXPECT_EQ(read_file(path), vocabulary);
}

// Files of a run that ended before its first checkpoint count as a run's.
TEST_F(ForeignFiles, ARunWithoutACheckpointBeginsAnew) {
  fs::remove_all(file("again"));
  ASSERT_EQ(run(small("again", "2u")).exit_code, 0);
  const auto forget = [] {
    fs::remove_all(file("again/ckpt"));
    for (const char* name : {"latest", "best-bleu"}) fs::remove(file("again/" + std::string(name)));
  };
  forget();
  Arguments other = small("again", "2u");
  *(std::find(other.begin(), other.end(), "--dim-vocabs") + 1) = "290";
  const Outcome outcome = run(other);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(read_file(file("again/config.yml")).find("dim-vocabs: 290"), std::string::npos);
  // One letter of the user's makes the file the user's.
  forget();
  const std::string edited = read_file(file("again/config.yml")) + "# mine\n";
  write_file(file("again/config.yml"), edited);
  expect_refused(run(other), "again/config.yml");
  EXPECT_EQ(read_file(file("again/config.yml")), edited);
}

TEST_F(ForeignFiles, AResumedRunKeepsWhatWasAddedToItsConfiguration) {
  copy_of_run("noted");
  const std::string noted = "# a note\n" + read_file(file("noted/config.yml"));
  write_file(file("noted/config.yml"), noted);
  ASSERT_EQ(run({"train", "--model", "noted"}).exit_code, 0);
  EXPECT_EQ(read_file(file("noted/config.yml")), noted);
  ASSERT_EQ(run({"train", "--model", "noted", "--after", "21u"}).exit_code, 0);
  EXPECT_NE(read_file(file("noted/config.yml")).find("after: [21u]"), std::string::npos);
}

// A kill between a checkpoint and the pointer to it.
TEST_F(ForeignFiles, ARunWithoutItsPointerIsResumed) {
  copy_of_run("pointless");
  fs::remove(file("pointless/latest"));
  const Outcome outcome = run({"train", "--model", "pointless", "--after", "21u"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("continuing after update 20"), std::string::npos) << outcome.err;
  EXPECT_EQ(read_file(file("pointless/latest")), "21\n");
}

TEST_F(ForeignFiles, APageThatIsNoReportIsNotReplacedUnasked) {
  write_file(file("report.html"), "<!DOCTYPE html>\nmine\n");
  expect_refused(run({"report", "run"}), "report.html");
  EXPECT_EQ(read_file(file("report.html")), "<!DOCTYPE html>\nmine\n");
  EXPECT_EQ(run({"report", "run", "-o", "report.html"}).exit_code, 0);
  EXPECT_EQ(run({"report", "run"}).exit_code, 0);
  EXPECT_NE(read_file(file("report.html")).find("Training report"), std::string::npos);
  fs::remove(file("report.html"));
}

}  // namespace
}  // namespace translate_train::testing
