#include "engine/io/checkpoint_directory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "engine/io/atomic_file.h"
#include "engine/io/checksum.h"
#include "engine/io/descriptor.h"
#include "engine/io/manifest.h"
#include "engine/io/safetensors.h"
#include "engine/io/safetensors_header.h"
#include "tests/support/dead_process.h"
#include "tests/support/errors.h"
#include "tests/support/temporary_directory.h"

namespace trafo {
namespace {

CheckpointFile text_file(std::string name, std::string text) {
  return {std::move(name), [text = std::move(text)](ByteSink& sink) { sink.write(text); }};
}

std::vector<CheckpointFile> sample_files(std::string_view mark) {
  return {text_file("model.safetensors", concat("weights ", mark)),
          text_file("optimizer.safetensors", concat("moments ", mark)),
          text_file("state.json", concat("{\"mark\":\"", mark, "\"}")), text_file("empty", "")};
}

void save_sample(CheckpointDirectory& checkpoints, int64_t update) {
  checkpoints.save(update, sample_files(concat(update)));
}

using Names = std::vector<std::string>;

TEST(CheckpointDirectory, RoundTrip) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run / "deeper/run");
  EXPECT_TRUE(checkpoints.list().empty());
  EXPECT_FALSE(checkpoints.newest_valid().update.has_value());
  EXPECT_FALSE(checkpoints.read_pointer("latest").has_value());
  save_sample(checkpoints, 200);
  save_sample(checkpoints, 1000);
  save_sample(checkpoints, 0);
  EXPECT_EQ(checkpoints.list(), (std::vector<int64_t>{0, 200, 1000}));
  EXPECT_EQ(checkpoints.newest_valid().update, 1000);
  EXPECT_EQ(checkpoints.read_pointer("latest"), 0);
  EXPECT_EQ(slurp(run / "deeper/run/latest"), "0\n");
  EXPECT_EQ(checkpoints.read_text(200, "model.safetensors", 100), "weights 200");
  const auto entries = checkpoints.verify(200);
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_EQ(entries[2].name, "state.json");
  EXPECT_EQ(entries[2].bytes, 14u);
  EXPECT_EQ(list_directory(checkpoints.path(200)),
            Names({"empty", "manifest.json", "model.safetensors", "optimizer.safetensors",
                   "state.json"}));
  EXPECT_EQ(list_directory(run / "deeper/run/ckpt"), Names({"0", "1000", "200"}));
}

// ckpt may be a stranger's link: nothing of what it leads to is deleted or added to.
TEST(CheckpointDirectory, ALinkedRootIsRefused) {
  TemporaryDirectory run, other;
  CheckpointDirectory victims(other.path());
  for (const int64_t update : {1, 2, 3}) save_sample(victims, update);
  const Names before = list_directory(other / "ckpt");
  std::filesystem::create_directory_symlink(other / "ckpt", run / "ckpt");
  CheckpointDirectory checkpoints(run.path());
  const auto is_refused = [](auto call) {
    expect_error(ErrorCode::io, "is a symbolic link", call);
  };
  is_refused([&] { save_sample(checkpoints, 4); });
  is_refused([&] { checkpoints.remove_old(1, {}); });
  is_refused([&] { checkpoints.remove_leftovers(); });
  EXPECT_EQ(list_directory(other / "ckpt"), before);
  write_file_atomically(run / "elsewhere", "3\n");
  std::filesystem::create_symlink(run / "elsewhere", run / "latest");
  expect_error(ErrorCode::io, "symbolic link", [&] { checkpoints.read_pointer("latest"); });
}

TEST(CheckpointDirectory, TensorsGoStraightIntoTheCheckpoint) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  const std::vector<float> weights{1, 2, 3};
  const TensorEntry entry{"w", DType::f32, {3}, std::as_bytes(std::span(weights))};
  const CheckpointFile file{"model.safetensors",
                            [&](ByteSink& sink) { write_safetensors(sink, std::span(&entry, 1)); }};
  checkpoints.save(7, std::span(&file, 1));
  checkpoints.verify(7);
  const auto reader = SafetensorsReader::open_no_follow(checkpoints.path(7) / "model.safetensors");
  std::vector<float> loaded(3);
  reader.read("w", std::as_writable_bytes(std::span(loaded)));
  EXPECT_EQ(loaded, weights);
}

TEST(CheckpointDirectory, SameContentGivesTheSameBytes) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 5);
  const std::string first = slurp(checkpoints.path(5) / "manifest.json");
  save_sample(checkpoints, 5);
  EXPECT_EQ(slurp(checkpoints.path(5) / "manifest.json"), first);
}

TEST(CheckpointDirectory, SavingTheSameUpdateReplacesIt) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  checkpoints.save(5, sample_files("first"));
  checkpoints.save(5, sample_files("second"));
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "{\"mark\":\"second\"}");
  EXPECT_EQ(list_directory(run / "ckpt"), Names({"5"}));
}

TEST(CheckpointDirectory, AFailingWriterLeavesNothingBehind) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  checkpoints.save(5, sample_files("first"));
  auto files = sample_files("second");
  files.push_back({"broken", [](ByteSink& sink) {
                     sink.write(std::string_view("half"));
                     fail(ErrorCode::device_lost, "test", "the device is gone");
                   }});
  EXPECT_EQ(error_of([&] { checkpoints.save(5, files); }).code(), ErrorCode::device_lost);
  EXPECT_EQ(error_of([&] { checkpoints.save(6, files); }).code(), ErrorCode::device_lost);
  EXPECT_EQ(list_directory(run / "ckpt"), Names({"5"}));
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "{\"mark\":\"first\"}");
  EXPECT_EQ(checkpoints.read_pointer("latest"), 5);
}

TEST(CheckpointDirectory, ArgumentsAreChecked) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  const auto code_of = [&](int64_t update, std::vector<CheckpointFile> files) {
    return error_of([&] { checkpoints.save(update, files); }).code();
  };
  EXPECT_EQ(code_of(-1, {}), ErrorCode::invalid_argument);
  for (const char* name : {"", ".", "..", "../escape", "a/b", "/etc/passwd", ".hidden",
                           "manifest.json", "a b", "a\nb", "\xc3\xbc"})
    EXPECT_EQ(code_of(1, {text_file(name, "x")}), ErrorCode::invalid_argument) << name;
  EXPECT_EQ(code_of(1, {text_file(std::string(101, 'n'), "x")}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(1, {text_file("a", "x"), text_file("a", "y")}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(1, {{"a", nullptr}}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of(1, std::vector<CheckpointFile>(1025, text_file("a", "x"))),
            ErrorCode::invalid_argument);
  EXPECT_TRUE(list_directory(run.path()).empty());
  EXPECT_EQ(error_of([&] { checkpoints.write_pointer("../best", 1); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { checkpoints.remove_old(0, {}); }).code(), ErrorCode::invalid_argument);
}

TEST(CheckpointDirectory, RunDirectoryThatIsAFile) {
  TemporaryDirectory run;
  spill(run / "file", "x");
  CheckpointDirectory checkpoints(run / "file");
  const Error error = error_of([&] { save_sample(checkpoints, 1); });
  EXPECT_EQ(error.code(), ErrorCode::io);
  EXPECT_TRUE(mentions(error, "Not a directory")) << error.what();
}

TEST(CheckpointDirectory, DamageNamesFileAndDirectory) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 1);
  const auto file = checkpoints.path(1) / "optimizer.safetensors";
  const std::string content = slurp(file);
  const auto expect_damage = [&](std::string_view reason) {
    const Error error = error_of([&] { checkpoints.verify(1); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    EXPECT_TRUE(mentions(error, "optimizer.safetensors")) << error.what();
    EXPECT_TRUE(mentions(error, checkpoints.path(1).string())) << error.what();
    EXPECT_TRUE(mentions(error, reason)) << error.what();
    EXPECT_EQ(error_of([&] { checkpoints.read_text(1, "optimizer.safetensors", 100); }).code(),
              ErrorCode::corrupt_file);
  };
  for (size_t length = 0; length < content.size(); ++length) {
    spill(file, std::string_view(content).substr(0, length));
    expect_damage("bytes, the manifest says");
  }
  spill(file, content + "x");
  expect_damage("bytes, the manifest says");
  for (size_t bit = 0; bit < content.size() * 8; ++bit) {
    std::string damaged = content;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    spill(file, damaged);
    expect_damage("checksum");
  }
  std::filesystem::remove(file);
  expect_damage("is missing");
  spill(file, content);
  checkpoints.verify(1);
}

TEST(CheckpointDirectory, AFileOfACheckpointIsCheckedWhereverItIsRead) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 7);
  const std::filesystem::path folder = checkpoints.path(7), model = folder / "model.safetensors";
  const auto refused = [&](const std::string& text) {
    const Error error = error_of([&] { verify_file_of_checkpoint(model); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    EXPECT_TRUE(mentions(error, text)) << error.what();
  };
  verify_file_of_checkpoint(model);
  verify_file_of_checkpoint(run / "elsewhere.safetensors");
  spill(folder / "optimizer.safetensors", "not what is read");
  verify_file_of_checkpoint(model);
  spill(model, "weights 8");
  refused("model.safetensors is damaged");
  spill(model, "weights 7");
  spill(folder / "state.json", "{\"mark\":\"8\"}");
  refused("state.json is damaged");
  spill(folder / "state.json", "{\"mark\":\"7\"}");
  // A copy under another name has its manifest beside it, and the file must be in it.
  std::filesystem::copy(folder, run / "copy");
  verify_file_of_checkpoint(run / "copy/model.safetensors");
  spill(run / "copy/more.safetensors", "x");
  const Error more = error_of([&] { verify_file_of_checkpoint(run / "copy/more.safetensors"); });
  EXPECT_TRUE(mentions(more, "the manifest has no file 'more.safetensors'")) << more.what();
  spill(run / "copy/model.safetensors", "weights 8");
  EXPECT_EQ(error_of([&] { verify_file_of_checkpoint(run / "copy/model.safetensors"); }).code(),
            ErrorCode::corrupt_file);
  // The manifest of another update, and none at all.
  std::filesystem::rename(folder, checkpoints.path(9));
  EXPECT_EQ(error_of([&] {
              verify_file_of_checkpoint(checkpoints.path(9) / "model.safetensors");
            }).code(),
            ErrorCode::corrupt_file);
  std::filesystem::rename(checkpoints.path(9), folder);
  std::filesystem::remove(folder / "manifest.json");
  refused("manifest.json is missing");
}

TEST(CheckpointDirectory, DamageNamesTheTensor) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  const std::vector<float> values(300, 1.5f);
  const std::vector<TensorEntry> tensors{
      {"encoder.weight", DType::f32, {200}, std::as_bytes(std::span(values).first(200))},
      {"encoder.bias", DType::f32, {100}, std::as_bytes(std::span(values).first(100))}};
  checkpoints.save(1, std::vector<CheckpointFile>{{"model.safetensors", [&](ByteSink& sink) {
                                                     write_safetensors(sink, tensors, {});
                                                   }}});
  const auto file = checkpoints.path(1) / "model.safetensors";
  const std::string content = slurp(file);
  const auto damaged_at = [&](size_t at) {
    std::string damaged = content;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    spill(file, damaged);
    const Error error = error_of([&] { checkpoints.verify(1); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << error.what();
    EXPECT_TRUE(mentions(error, "model.safetensors is damaged")) << error.what();
    return std::string(error.what());
  };
  // By name within a dtype: the bias comes first.
  EXPECT_TRUE(contains(damaged_at(content.size() - 1),
                       concat("tensor ", quote("encoder.weight"), " is damaged")));
  EXPECT_TRUE(contains(damaged_at(content.size() - 801),
                       concat("tensor ", quote("encoder.bias"), " is damaged")));
  EXPECT_TRUE(contains(damaged_at(20), "header"));
  spill(file, content);
  checkpoints.verify(1);
}

TEST(CheckpointDirectory, AFileReplacedByASymbolicLinkIsNotFollowed) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 1);
  const auto file = checkpoints.path(1) / "state.json";
  std::filesystem::rename(file, run / "elsewhere");
  std::filesystem::create_symlink(run / "elsewhere", file);
  EXPECT_TRUE(mentions(error_of([&] { checkpoints.verify(1); }), "symbolic link"));
  EXPECT_TRUE(
      mentions(error_of([&] { checkpoints.read_text(1, "state.json", 100); }), "symbolic link"));
}

TEST(CheckpointDirectory, EveryBitAndTruncationOfTheManifestIsRefused) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 1);
  const auto path = checkpoints.path(1) / "manifest.json";
  const std::string manifest = slurp(path);
  for (size_t bit = 0; bit < manifest.size() * 8; ++bit) {
    std::string damaged = manifest;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const Error error = error_of([&] { parse_manifest(damaged, 1, "manifest"); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << "bit " << bit << ": " << error.what();
  }
  for (size_t length = 0; length < manifest.size(); ++length) {
    spill(path, std::string_view(manifest).substr(0, length));
    const Error error = error_of([&] { checkpoints.verify(1); });
    EXPECT_EQ(error.code(), ErrorCode::corrupt_file) << length;
    EXPECT_TRUE(mentions(error, path.string())) << error.what();
  }
  std::filesystem::remove(path);
  const Error error = error_of([&] { checkpoints.verify(1); });
  EXPECT_EQ(error.code(), ErrorCode::corrupt_file);
  EXPECT_TRUE(mentions(error, "manifest.json is missing")) << error.what();
}

// The manifest with `from` replaced by `to` and a checksum that fits.
std::string edited(std::string manifest, std::string_view from, std::string_view to) {
  const size_t at = manifest.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  manifest.replace(at, from.size(), to);
  seal_text(manifest, std::string_view("{\"crc32\":\"").size());
  return manifest;
}

TEST(CheckpointDirectory, ManifestWithAFittingSumAndWrongContent) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 12);
  const auto path = checkpoints.path(12) / "manifest.json";
  const std::string manifest = slurp(path);
  const std::string sum = checkpoints.verify(12)[0].crc32;
  const struct {
    std::string_view from;
    std::string to;
    ErrorCode code;
  } cases[] = {
      {sum, "01234567", ErrorCode::corrupt_file},
      {sum, "", ErrorCode::corrupt_file},
      {"\"bytes\":10", "\"bytes\":11", ErrorCode::corrupt_file},
      {"\"bytes\":10", "\"bytes\":-10", ErrorCode::corrupt_file},
      {"\"bytes\":10", "\"bytes\":10.0", ErrorCode::corrupt_file},
      {"\"bytes\":10", "\"bytes\":18446744073709551615", ErrorCode::corrupt_file},
      {"\"bytes\":10", "\"bytes\":\"10\"", ErrorCode::corrupt_file},
      {"model.safetensors", "../../escape", ErrorCode::corrupt_file},
      {"model.safetensors", "absent", ErrorCode::corrupt_file},
      {"model.safetensors", "optimizer.safetensors", ErrorCode::corrupt_file},
      {"model.safetensors", "manifest.json", ErrorCode::corrupt_file},
      {"\"update\":12", "\"update\":13", ErrorCode::corrupt_file},
      {"\"version\":1,", "", ErrorCode::corrupt_file},
      {"\"version\":1,", "\"version\":0,", ErrorCode::corrupt_file},
      {"\"version\":1,", "\"version\":2,", ErrorCode::version},
      {"trafo-checkpoint", "other", ErrorCode::corrupt_file},
      {"\"files\":{", "\"files\":[", ErrorCode::corrupt_file},
      {"\"files\":{", "\"more\":1,\"files\":{", ErrorCode::corrupt_file},
      {"\"files\":{", "\"files\":" + std::string(100000, '['), ErrorCode::corrupt_file},
  };
  for (const auto& each : cases) {
    spill(path, edited(manifest, each.from, each.to));
    const Error error = error_of([&] { checkpoints.verify(12); });
    EXPECT_EQ(error.code(), each.code)
        << each.from << " -> " << each.to.substr(0, 40) << ": " << error.what();
  }
  spill(path, std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(error_of([&] { checkpoints.verify(12); }).code(), ErrorCode::io);
}

TEST(CheckpointDirectory, NewestValidReportsWhatItPassedOver) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  for (const int64_t update : {1, 2, 3, 4}) save_sample(checkpoints, update);
  std::filesystem::remove(checkpoints.path(4) / "manifest.json");
  spill(checkpoints.path(3) / "state.json", "short");
  const NewestValid newest = checkpoints.newest_valid();
  EXPECT_EQ(newest.update, 2);
  ASSERT_EQ(newest.refused.size(), 2u);
  EXPECT_TRUE(mentions(newest.refused[0], "manifest.json is missing")) << newest.refused[0].what();
  EXPECT_TRUE(mentions(newest.refused[1], "state.json")) << newest.refused[1].what();
  EXPECT_EQ(checkpoints.list(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(error_of([&] { checkpoints.verify(9); }).code(), ErrorCode::not_found);
  EXPECT_EQ(error_of([&] { checkpoints.read_text(2, "absent", 9); }).code(), ErrorCode::not_found);

  // A newer release's checkpoint is not damage: going back silently would lose work.
  const auto path = checkpoints.path(3) / "manifest.json";
  spill(path, edited(slurp(path), "\"version\":1", "\"version\":2"));
  EXPECT_EQ(error_of([&] { checkpoints.newest_valid(); }).code(), ErrorCode::version);
}

TEST(CheckpointDirectory, RemoveOldKeepsTheLastTheProtectedAndTheNewestValid) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  for (int64_t update = 1; update <= 9; ++update) save_sample(checkpoints, update);
  const int64_t best[] = {3, 77};
  EXPECT_EQ(checkpoints.remove_old(2, best), (std::vector<int64_t>{1, 2, 4, 5, 6, 7}));
  EXPECT_EQ(checkpoints.list(), (std::vector<int64_t>{3, 8, 9}));
  EXPECT_TRUE(checkpoints.remove_old(2, best).empty());
  EXPECT_EQ(list_directory(run / "ckpt"), Names({"3", "8", "9"}));

  for (const int64_t update : {8, 9}) spill(checkpoints.path(update) / "state.json", "damaged");
  CheckpointDirectory later(run.path());  // has saved nothing itself, so it looks
  EXPECT_TRUE(later.remove_old(1, {}) == std::vector<int64_t>{8});
  EXPECT_EQ(later.list(), (std::vector<int64_t>{3, 9}));
  spill(checkpoints.path(3) / "state.json", "damaged");
  EXPECT_TRUE(later.remove_old(1, {}).empty()) << "without a valid one nothing is deleted";
  EXPECT_EQ(later.remove_old(std::numeric_limits<int64_t>::max(), {}), std::vector<int64_t>{});
}

TEST(CheckpointDirectory, LeftoversOfDeadProcessesAreIgnoredAndRemoved) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  save_sample(checkpoints, 1);
  const pid_t dead = dead_process();
  const auto leave = [&](const std::string& name) {
    std::filesystem::create_directories(run.path() / name);
    spill(run.path() / name / "model.safetensors", "half");
  };
  const std::string unfinished = concat(".2.tmp-", dead), replaced = concat(".1.old-", dead),
                    own = concat(".3.tmp-", getpid()), working = concat(".4.tmp-", getppid()),
                    pointer = concat(".latest.tmp-", dead, "-0");
  for (const std::string& name : {unfinished, replaced, own, working}) leave("ckpt/" + name);
  leave("ckpt/.notes");
  spill(run / pointer, "2");
  EXPECT_EQ(checkpoints.list(), std::vector<int64_t>{1});
  EXPECT_EQ(checkpoints.newest_valid().update, 1);
  auto removed = checkpoints.remove_leftovers();
  std::sort(removed.begin(), removed.end());
  auto expected = Names({unfinished, replaced, own, pointer});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(removed, expected);
  EXPECT_EQ(list_directory(run / "ckpt"), Names({working, ".notes", "1"}));
  EXPECT_TRUE(checkpoints.remove_leftovers().empty());
}

TEST(CheckpointDirectory, AReplacementCutShortIsUndone) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  checkpoints.save(5, sample_files("first"));
  const pid_t dead = dead_process();
  // The state between the two renames of a replacement.
  std::filesystem::rename(checkpoints.path(5), run / "ckpt" / concat(".5.old-", dead));
  std::filesystem::create_directories(run / "ckpt" / concat(".5.tmp-", dead));
  EXPECT_FALSE(checkpoints.newest_valid().update.has_value());
  EXPECT_EQ(checkpoints.remove_leftovers(), Names({concat(".5.tmp-", dead)}));
  EXPECT_EQ(checkpoints.newest_valid().update, 5);
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "{\"mark\":\"first\"}");
}

TEST(CheckpointDirectory, SavingAgainAfterAReplacementThatFailedHalfWay) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  checkpoints.save(5, sample_files("first"));
  std::filesystem::rename(checkpoints.path(5), run / "ckpt" / concat(".5.old-", getpid()));
  CheckpointFile broken{"broken", [](ByteSink&) { fail(ErrorCode::io, "test", "no"); }};
  EXPECT_EQ(error_of([&] { checkpoints.save(5, std::span(&broken, 1)); }).code(), ErrorCode::io);
  EXPECT_EQ(list_directory(run / "ckpt"), Names({concat(".5.old-", getpid())}));
  checkpoints.save(5, sample_files("second"));
  EXPECT_EQ(list_directory(run / "ckpt"), Names({"5"}));
  EXPECT_EQ(checkpoints.read_text(5, "state.json", 100), "{\"mark\":\"second\"}");
}

TEST(CheckpointDirectory, Pointers) {
  TemporaryDirectory run;
  CheckpointDirectory checkpoints(run.path());
  checkpoints.write_pointer("best-bleu", 1200);
  EXPECT_EQ(checkpoints.read_pointer("best-bleu"), 1200);
  for (const char* text :
       {"", "\n", "x\n", "-1\n", "01\n", "12 \n", "12\n\n", "99999999999999999999\n"}) {
    spill(run / "best-bleu", text);
    EXPECT_EQ(error_of([&] { checkpoints.read_pointer("best-bleu"); }).code(),
              ErrorCode::corrupt_file)
        << text;
  }
}

// A child saves checkpoints, beginning with a replacement, until it is killed; whatever it had
// reported as saved must load. The moment of the kill sweeps over the time of a save as measured
// here, since fsync takes what the disk takes.
TEST(CheckpointDirectory, KilledSavesLoseNothing) {
  TemporaryDirectory run;
  constexpr int kTrials = 24;
  CheckpointDirectory first(run.path());
  save_sample(first, 0);
  const auto start_of_save = std::chrono::steady_clock::now();
  save_sample(first, 0);
  const auto save_time = std::chrono::steady_clock::now() - start_of_save;
  int64_t reported = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    int saved[2];
    ASSERT_EQ(pipe(saved), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(saved[0]);
      CheckpointDirectory checkpoints(run.path());
      checkpoints.remove_leftovers();
      const int64_t start = checkpoints.newest_valid().update.value_or(0);
      for (int64_t update = start;; ++update) {
        save_sample(checkpoints, update);
        if (write(saved[1], &update, sizeof(update)) != sizeof(update)) _exit(1);
        checkpoints.remove_old(2, {});
      }
    }
    close(saved[1]);
    int64_t update;
    if (trial % 2 == 1) {
      ASSERT_EQ(read(saved[0], &update, sizeof(update)), ssize_t{sizeof(update)});
      reported = update;
    }
    std::this_thread::sleep_for(save_time * trial / (kTrials / 2));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    while (read(saved[0], &update, sizeof(update)) == sizeof(update)) reported = update;
    close(saved[0]);

    CheckpointDirectory checkpoints(run.path());
    checkpoints.remove_leftovers();
    for (const std::string& name : list_directory(run / "ckpt"))
      EXPECT_FALSE(name.starts_with('.')) << name;
    for (const int64_t each : checkpoints.list()) checkpoints.verify(each);
    const NewestValid newest = checkpoints.newest_valid();
    EXPECT_TRUE(newest.refused.empty());
    ASSERT_TRUE(newest.update.has_value());
    EXPECT_GE(*newest.update, reported);
  }
}

}  // namespace
}  // namespace trafo
