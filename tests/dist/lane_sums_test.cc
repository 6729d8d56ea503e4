// The sum of an update's lanes: its bits, and the bytes that ranks send for it.
#include "engine/train/lane_sums.h"

#include <cmath>

#include "tests/dist/group_support.h"

namespace trafo {
namespace {

using namespace testing;

// Counts what a rank sends.
class CountingGroup final : public Communicator {
 public:
  explicit CountingGroup(Communicator& group)
      : Communicator(group.rank(), group.size()), group_(group) {}
  const char* transport() const override { return group_.transport(); }
  void attach(Backend& backend) override { group_.attach(backend); }
  void exchange(std::span<const SendPiece> sends, std::span<const ReceivePiece> receives) override {
    for (const SendPiece& piece : sends) sent += piece.bytes;
    group_.exchange(sends, receives);
  }
  std::vector<std::string> host_all_gather(std::string_view bytes) override {
    return group_.host_all_gather(bytes);
  }
  void abort(std::string_view reason) noexcept override { group_.abort(reason); }
  void check() override { group_.check(); }

  size_t sent = 0;

 private:
  Communicator& group_;
};

class LaneSumsTest : public ::testing::Test {
 protected:
  LaneSumsTest() : elements_(make_model(*host_, group_config(), 5)->parameters().flat().numel()) {}

  // What a lane adds to element i: of all magnitudes, so that every order has other bits.
  static float value_of(int64_t lane, int64_t i) {
    const auto mixed = static_cast<uint32_t>((lane + 1) * 2654435761u + i * 40503u);
    return static_cast<float>(mixed % 4001) / 1000 * std::ldexp(1.0f, static_cast<int>(i % 11)) - 7;
  }

  // The tree over lanes [begin, end), of which the right half may have fewer.
  static float tree(int64_t begin, int64_t end, int64_t i, bool rounds) {
    if (end - begin == 1) {
      const float value = value_of(begin, i);
      return rounds ? BFloat16::from_float(value).to_float() : value;
    }
    int64_t half = 1;
    while (2 * half < end - begin) half *= 2;
    return tree(begin, begin + half, i, rounds) + tree(begin + half, end, i, rounds);
  }

  // Each rank adds its lanes. Compares the shards with the tree, and returns the bytes that rank 0
  // sends.
  size_t add(int size, int64_t lanes, CommunicationDType communication) {
    const bool rounds = communication == CommunicationDType::bfloat16;
    size_t sent = 0;
    for_each_rank(size, [&](int rank, Communicator* group) {
      const auto context = make_context(device_of_rank(rank), 1);
      const auto model = make_model(*context, group_config(), 5);
      ParameterStore& parameters = model->parameters();
      const LossSums losses(*context, DType::f32);
      CountingGroup counted(*group);
      counted.attach(context->backend());
      TrainOptions options;
      options.lanes = lanes;
      options.communication_dtype = communication;
      LaneSums sums(*context, parameters, losses, options, TrainingGroup(&counted));
      for (int update = 0; update < 2; ++update) {  // the second finds memory as the first left it
        std::vector<float> gradient(static_cast<size_t>(elements_));
        for (int64_t lane = sums.own().begin; lane < sums.own().end; ++lane) {
          for (int64_t i = 0; i < elements_; ++i)
            gradient[static_cast<size_t>(i)] = value_of(lane, i + update);
          const Tensor& flat = parameters.flat_grad();
          context->backend().copy_from_host(flat.raw(), gradient.data(), flat.bytes());
          sums.add_lane(lane);
        }
        counted.sent = 0;
        sums.reduce(Vote::none);
        const std::vector<float> whole = context->values<float>(parameters.flat_grad().detach());
        int64_t wrong = 0;
        for (int64_t i = sums.shard().begin; i < sums.shard().end; ++i)
          wrong += whole[static_cast<size_t>(i)] != tree(0, lanes, i + update, rounds);
        EXPECT_EQ(wrong, 0) << "rank " << rank << " of " << size << ", " << lanes << " lanes, "
                            << (rounds ? "rounded" : "not rounded");
      }
      if (rank == 0) sent = counted.sent;
    });
    return sent;
  }

  std::unique_ptr<Context> host_ = make_context({DeviceKind::cpu, 0}, 1);
  int64_t elements_;
};

TEST_F(LaneSumsTest, TheBitsAreThoseOfTheTreeOnAnyNumberOfRanks) {
  for (const auto communication : {CommunicationDType::float32, CommunicationDType::bfloat16})
    for (const int64_t lanes : {1, 2, 3, 5, 8})
      for (const int size : {1, 2, 3, 4})
        if (size <= lanes && has_room_for(size)) add(size, lanes, communication);
}

// A lane that is a rank's only one travels in half the bytes, and so does the one of three that is
// not added to another. Sums of lanes are float32.
TEST_F(LaneSumsTest, ALaneInBfloat16IsHalfTheBytes) {
  if (!has_room_for(2)) GTEST_SKIP() << kNoRoom;
  const ElementRange own = shard_of(0, 2, elements_);
  const auto outside = static_cast<size_t>(elements_ - own.count());
  const auto rows = [](size_t nodes) { return (1 + 2 * nodes) * sizeof(float); };
  const auto wide = CommunicationDType::float32, narrow = CommunicationDType::bfloat16;
  EXPECT_EQ(add(2, 2, wide), outside * 4 + rows(1));
  EXPECT_EQ(add(2, 2, narrow), outside * 2 + rows(1));
  EXPECT_EQ(add(2, 4, wide), outside * 4 + rows(1));
  EXPECT_EQ(add(2, 4, narrow), outside * 4 + rows(1));
  // Of six lanes rank 0 has 0 + 1 and 2, rank 1 has 3 and 4 + 5.
  EXPECT_EQ(add(2, 6, wide), outside * 8 + rows(2));
  EXPECT_EQ(add(2, 6, narrow), outside * 6 + rows(2));
}

TEST_F(LaneSumsTest, GradientsInFloat64AreRefused) {
  const auto model = make_model(*host_, group_config(), 5, DType::f64);
  TrainOptions options;
  options.communication_dtype = CommunicationDType::bfloat16;
  try {
    Trainer(*host_, *model, options);
    FAIL() << "float64 on a wire of bfloat16";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(error.message().find("communication_dtype is bf16, and the gradients of this model "
                                   "are float64"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace
}  // namespace trafo
