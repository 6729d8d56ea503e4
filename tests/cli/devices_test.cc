// train --devices: ranks as threads of the program. On the CPU, so that no GPU is needed.
#include <csignal>
#include <thread>

#include "apps/translate-train/launch/ranks.h"
#include "tests/cli/cli_fixture.h"

namespace translate_train::testing {
namespace {

class DevicesCli : public Cli {
 protected:
  static Arguments with(const std::string& name, const std::string& after,
                        const std::string& more) {
    return small(name, after) + words_of("--lanes 2 " + more);
  }
  static Outcome trained(const Arguments& arguments) {
    Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  static void expect_same(const std::string& one, const std::string& two,
                          const std::string& update) {
    for (const char* name : {"model", "optimizer"}) {
      const std::string path = "/ckpt/" + update + "/" + name + ".safetensors";
      EXPECT_TRUE(read_file(file(one) + path) == read_file(file(two) + path)) << two << path;
    }
  }
};

TEST_F(DevicesCli, SeveralDevicesTrainLikeOne) {
  trained(with("one", "20u", "--device cpu"));
  for (const char* devices : {"--devices cpu,cpu", "-d cpu cpu"}) {
    fs::remove_all(file("two"));
    const Outcome two = trained(with("two", "20u", devices));
    EXPECT_NE(two.err.find("2 ranks: cpu, 1 thread + cpu, 1 thread"), std::string::npos) << two.err;
    EXPECT_NE(two.err.find("memory of rank 0: planned peak "), std::string::npos) << two.err;
    expect_same("one", "two", "20");
  }
  EXPECT_NE(read_file(file("two/config.yml")).find("devices: [cpu, cpu]\n"), std::string::npos);
  // One after the other, like an uncut run.
  trained(with("cut", "10u", "--devices cpu,cpu"));
  trained({"train", "--model", "cut", "--after", "15u", "--device", "cpu"});
  EXPECT_EQ(read_file(file("cut/config.yml")).find("devices:"), std::string::npos);
  trained({"train", "--model", "cut", "--after", "20u", "--devices", "cpu,cpu"});
  expect_same("one", "cut", "20");
  // Without a flag they are the run's.
  const Outcome again = trained({"train", "--model", "cut", "--after", "21u"});
  EXPECT_NE(again.err.find("2 ranks: "), std::string::npos) << again.err;
}

TEST_F(DevicesCli, ARunGetsALaneForEachDevice) {
  trained(small("three", "3u") + words_of("--devices cpu,cpu,cpu"));
  trained(small("lanes", "3u") + words_of("--device cpu --lanes 3"));
  expect_same("lanes", "three", "3");
}

TEST_F(DevicesCli, GradientsMayTravelInBfloat16) {
  const std::string flags = "--communication-dtype bf16 ";
  trained(with("bf16-one", "6u", flags + "--device cpu"));
  trained(with("bf16-two", "6u", flags + "--devices cpu,cpu"));
  expect_same("bf16-one", "bf16-two", "6");
  trained(with("bf16-wide", "6u", "--devices cpu,cpu"));
  const auto weights = [](const char* name) {
    return read_file(file(std::string(name) + "/ckpt/6/model.safetensors"));
  };
  EXPECT_FALSE(weights("bf16-one") == weights("bf16-wide"));
  EXPECT_NE(read_file(file("bf16-two/config.yml")).find("communication-dtype: bf16\n"),
            std::string::npos);
  const Outcome wrong = run({"train", "--communication-dtype", "half"});
  EXPECT_NE(wrong.exit_code, 0);
  EXPECT_NE(wrong.err.find("communication-dtype"), std::string::npos) << wrong.err;
}

TEST_F(DevicesCli, AdaptersFrozenParametersAndProfilesAreThoseOfOneDevice) {
  ASSERT_EQ(trained_->exit_code, 0) << trained_->err;
  const std::string flags = "--pretrained-model run --lora-rank 2 ";
  trained(with("lora-one", "10u", flags + "--device cpu"));
  const Outcome two = trained(with(
      "lora-two", "10u", flags + "--devices cpu,cpu --profile trace.json --profile-updates 3:4"));
  EXPECT_NE(two.err.find("profile of updates 3 to 4: trace.json"), std::string::npos) << two.err;
  EXPECT_TRUE(fs::exists(file("trace.json")));
  expect_same("lora-one", "lora-two", "10");
  EXPECT_TRUE(read_file(file("lora-one/adapter/adapter_model.safetensors")) ==
              read_file(file("lora-two/adapter/adapter_model.safetensors")));
  trained(with("frozen-one", "5u", "--device cpu --freeze encoder.*"));
  trained(with("frozen-two", "5u", "--devices cpu,cpu --freeze encoder.*"));
  expect_same("frozen-one", "frozen-two", "5");
}

TEST_F(DevicesCli, ASignalSavesAndStopsAllRanks) {
  Running running(folder_->path(), with("stopped", "1000000u", "--devices cpu,cpu"));
  ASSERT_TRUE(waits_for_training(file("stopped")));
  running.signal(SIGTERM);
  const Outcome outcome = running.wait();
  EXPECT_EQ(outcome.exit_code, 143) << outcome.err;
  EXPECT_NE(outcome.err.find("interrupted, everything is saved"), std::string::npos) << outcome.err;
  const std::string next = std::to_string(std::stoll(read_file(file("stopped/latest"))) + 1);
  trained({"train", "--model", "stopped", "--after", next + "u"});
  trained(with("unstopped", next + "u", "--device cpu"));
  expect_same("unstopped", "stopped", next);
}

// Rank 0 cannot save: it alone writes, and all end.
TEST_F(DevicesCli, AnErrorOfOneRankEndsAll) {
  Running running(folder_->path(), with("lost", "1000000u", "--devices cpu,cpu"));
  for (int i = 0; i < 3000 && !fs::exists(file("lost/ckpt/10")); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  ASSERT_TRUE(fs::exists(file("lost/ckpt/10")));
  fs::rename(file("lost"), file("away"));
  // Of a file of rank 0: the checkpoint or a pointer, whichever comes first.
  expect_refused(running.wait(), "lost/", 1);
}

TEST_F(DevicesCli, WrongDevicesAreNamed) {
  const Arguments files = {"train", "--model", "never", "-t", "t.de", "t.en"};
  for (const auto& [devices, text] : {
           std::pair{"0,x", "--devices: wants numbers of GPUs as 0,1, or cpu,cpu; got 'x'"},
           {"cuda:-1", "got 'cuda:-1'"},
           {"0,", "got ''"},
           {"cuda", "got 'cuda'"},
           {"0,cuda:0", "--devices: has cuda:0 twice"},
           {"cpu,0", "--devices: wants GPUs or the CPU, not both"},
           {"cpu,cpu --device cpu", "--device and --devices: give one of them"},
           {"cpu,cpu,cpu --lanes 2", "lanes is 2 and the group has 3 ranks"},
       })
    expect_refused(run(files + words_of(std::string("--devices ") + devices)), text);
  write_file(file("both.yml"), "device: cpu\ndevices: [cpu, cpu]\n");
  expect_refused(run(files + words_of("-c both.yml")), "both.yml:2 devices: is instead of device");
  EXPECT_FALSE(fs::exists(file("never/ckpt")));
}

TEST_F(DevicesCli, APlanHasTheRanks) {
  const std::string tiny = "plan --task tiny --json ";
  const auto one = nlohmann::json::parse(trained(words_of(tiny)).out);
  EXPECT_FALSE(one.contains("ranks"));
  const auto four = nlohmann::json::parse(trained(words_of(tiny + "--devices 0,1,2,3")).out);
  ASSERT_EQ(four.at("ranks").size(), 4u);
  int64_t optimizer = 0, largest = 0;
  for (size_t rank = 0; rank < 4; ++rank) {
    const auto& plan = four.at("ranks")[rank];
    EXPECT_EQ(plan.at("device"), fmt::format("cuda:{}", rank));
    EXPECT_EQ(plan.at("weights_bytes"), one.at("weights_bytes"));
    EXPECT_LT(plan.at("total_bytes"), one.at("total_bytes"));
    optimizer += plan.at("optimizer_bytes").get<int64_t>();
    largest = std::max(largest, plan.at("total_bytes").get<int64_t>());
  }
  EXPECT_NEAR(static_cast<double>(optimizer), one.at("optimizer_bytes").get<double>(), 5e4);
  EXPECT_EQ(four.at("total_bytes").get<int64_t>(), largest);
  // The sum of a second lane waits, and more is received.
  const auto lanes = nlohmann::json::parse(trained(words_of(tiny + "--devices 0,1 --lanes 8")).out);
  EXPECT_GT(lanes.at("total_bytes").get<int64_t>(),
            largest + 2 * one.at("gradients_bytes").get<int64_t>());
  const Outcome text = trained(words_of("plan --task tiny --devices 0,1"));
  EXPECT_NE(text.out.find("rank 1 of 2, on cuda:1\n"), std::string::npos) << text.out;
  // Hosts of one rank exchange beside the backward pass: received data has separate memory.
  const auto nodes = nlohmann::json::parse(trained(words_of(tiny + "--nodes 4")).out);
  ASSERT_EQ(nodes.at("ranks").size(), 4u);
  EXPECT_EQ(nodes.at("ranks")[3].at("node"), 3);
  EXPECT_GT(nodes.at("total_bytes").get<int64_t>(),
            largest + one.at("gradients_bytes").get<int64_t>() / 2);
  const Outcome pairs = trained(words_of("plan --task tiny --devices 0,1 --nodes 2"));
  EXPECT_NE(pairs.out.find("rank 3 of 4, on cuda:1 of node 1\n"), std::string::npos) << pairs.out;
  const Outcome fit = trained(
      words_of("plan --task tiny --devices 0,1 --mini-batch-fit --memory-limit 300MiB --json"));
  const auto fitted = nlohmann::json::parse(fit.out);
  EXPECT_TRUE(fitted.at("fits").get<bool>());
  EXPECT_GT(fitted.at("total_bytes").get<int64_t>(), int64_t{280} << 20);
  expect_refused(run(words_of("plan --devices cpu,cpu")), "--devices: plan is for GPUs, got cpu");
}

// The rows of the table of memory in docs/design/distributed.md, for eight GPUs and for two hosts
// of eight, as fractions of the gradient of the whole model. The moments are two gradients.
TEST_F(DevicesCli, APlanOfEightGpusHasTheMemoryOfTheDesign) {
  const auto plan_of = [](const std::string& flags) {
    return nlohmann::json::parse(trained(words_of("plan --task base --json " + flags)).out);
  };
  const auto bytes = [](const nlohmann::json& plan, const char* part) {
    return plan.at(part).get<double>();
  };
  const auto alone = plan_of("");
  const double gradient = bytes(alone, "gradients_bytes");
  const double masters = bytes(alone, "optimizer_bytes") - 2 * gradient;
  // Memory beside that of training alone, of each rank.
  const auto other = [&](const nlohmann::json& plan) {
    double rest = bytes(plan, "total_bytes");
    for (const char* part :
         {"weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes"})
      rest -= bytes(plan, part);
    return rest / gradient;
  };
  const std::string eight = "--devices 0,1,2,3,4,5,6,7 ";
  for (const size_t nodes : {1, 2}) {
    const auto plan = plan_of(eight + fmt::format("--nodes {}", nodes));
    const auto& ranks = plan.at("ranks");
    ASSERT_EQ(ranks.size(), 8 * nodes);
    double moments = 0;
    for (size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_EQ(ranks[rank].at("device"), fmt::format("cuda:{}", rank % 8));
      EXPECT_EQ(ranks[rank].at("node"), rank / 8);
      for (const char* part : {"weights_bytes", "gradients_bytes", "activations_bytes"})
        EXPECT_EQ(ranks[rank].at(part), alone.at(part));
      const double own = bytes(ranks[rank], "optimizer_bytes") - masters;
      EXPECT_NEAR(own, 2 * gradient / static_cast<double>(8 * nodes), 2 * 4 * 32768);  // a piece
      EXPECT_LT(bytes(ranks[rank], "total_bytes"), bytes(alone, "total_bytes"));
      moments += own;
    }
    EXPECT_NEAR(moments, 2 * gradient, 1e5);  // each shard is rounded up
  }
  // The memory of a large step has room for received sums. That of a small one has not: they are
  // these fractions. An allocation is rounded up by at most an eighth.
  const double beside = other(plan_of(eight));
  const auto expect_received = [&](double fraction, const std::string& flags) {
    const double received = other(plan_of("--mini-batch-words 64 " + flags)) - beside;
    EXPECT_GE(received, fraction * 0.999) << flags;
    EXPECT_LE(received, fraction * 9 / 8) << flags;
  };
  const std::string four = "--devices 0,1,2,3 --nodes 2 ", bf16 = "--communication-dtype bf16 ";
  expect_received(7.0 / 8, eight);         // of seven other ranks
  expect_received(7.0 / 8, eight + bf16);  // half of them, and half of the lane
  expect_received(7.0 / 8, "--nodes 8");
  expect_received(7.0 / 8 + 3, eight + "--lanes 64");            // three left halves wait
  expect_received(7.0 / 8, eight + "--nodes 2");                 // two shards of seven others
  expect_received(7.0 / 16 + 0.5, eight + "--nodes 2 " + bf16);  // the whole lane is packed
  expect_received(3.0 / 4, four);                                // two shards of three others
  expect_received(3.0 / 8 + 0.5, four + bf16);
  expect_received(1.0 / 2, "--devices 0,1 --nodes 4");  // four shards of one other
}

// The one cause is thrown, with its exit code, and not what follows from it on other ranks.
TEST(Ranks, AnErrorNamesItsRank) {
  Settings settings;
  settings.set(Setting::devices, {"cpu", "cpu,cpu"}, "--devices");
  settings.set(Setting::cpu_threads, {"1"}, "--cpu-threads");
  const Ranks ranks(settings, Job{});
  ASSERT_EQ(ranks.count(), 3u);
  const auto error_of = [&](const Ranks::Work& work) -> std::pair<int, std::string> {
    try {
      ranks.run(work);
      return {};
    } catch (const CliError& error) {
      return {error.exit_code(), error.what()};
    }
  };
  EXPECT_EQ(error_of([](size_t rank, trafo_group* group) {
              trafo_group_info info{};
              check(trafo_group_get_info(group, &info, sizeof info));
              EXPECT_EQ(info.rank, static_cast<int32_t>(rank));
              EXPECT_EQ(info.size, 3);
            }),
            std::pair(0, std::string()));
  EXPECT_EQ(error_of([](size_t rank, trafo_group*) {
              if (rank != 1) throw CliError(kFailed, "rank 1 has left", TRAFO_PEER_LOST);
              throw CliError(kOutOfMemory, "no memory", TRAFO_OUT_OF_MEMORY);
            }),
            std::pair(int{kOutOfMemory}, std::string("rank 1 on cpu: no memory")));
  EXPECT_EQ(error_of([](size_t rank, trafo_group*) {
              if (rank == 2) throw std::bad_alloc();
            }),
            std::pair(int{kOutOfMemory}, std::string("rank 2 on cpu: out of memory")));
  // All have the same.
  EXPECT_EQ(error_of([](size_t, trafo_group*) { throw CliError(kFailed, "rank 2: no disk"); }),
            std::pair(int{kFailed}, std::string("rank 2: no disk")));
  EXPECT_EQ(error_of([](size_t rank, trafo_group*) {
              if (rank == 1) throw CliError(kFailed, "rank 2 has not come", TRAFO_PEER_LOST);
            }),
            std::pair(int{kFailed}, std::string("rank 1 on cpu: rank 2 has not come")));
}

}  // namespace
}  // namespace translate_train::testing
