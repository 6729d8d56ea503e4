// Groups of parameters: patterns, layouts, what is kept when parameters are frozen.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/nn/parameter_store.h"
#include "engine/ops/op_kernel.h"
#include "tests/support/errors.h"

namespace trafo {
namespace {

TEST(ParameterPattern, StarsAndQuestionMarks) {
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "encoder.0.norm"));
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "encoder.*"));
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "*"));
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "*.norm"));
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "encoder.?.norm"));
  EXPECT_TRUE(matches_pattern("encoder.0.norm", "*n*.*m**"));
  EXPECT_TRUE(matches_pattern("aab", "*ab"));
  EXPECT_FALSE(matches_pattern("encoder.0.norm", "encoder"));
  EXPECT_TRUE(matches_pattern("abxab", std::string_view("*ab*").substr(0, 3)));
  EXPECT_FALSE(matches_pattern("encoder.0.norm", "encoder.0.norm."));
  EXPECT_FALSE(matches_pattern("encoder.10.norm", "encoder.?.norm"));
  EXPECT_FALSE(matches_pattern("encoder.0.norm", "decoder.*"));
  EXPECT_FALSE(matches_pattern("encoder.0.norm", ""));
  EXPECT_TRUE(matches_pattern("", ""));
  // A pattern that backtracks at every character ends at once all the same.
  EXPECT_FALSE(matches_pattern(std::string(4000, 'a'), std::string(500, '*').append("a*a*a*a*b")));
}

class ParameterGroupsTest : public ::testing::Test {
 protected:
  // Two matrices, a bias and a norm.
  ParameterStore store(DType dtype) {
    ParameterStore store;
    first_ = store.declare("first.weight", {3, 5}, Init::normal(1));
    bias_ = store.declare("first.bias", {5}, Init::normal(0.1));
    second_ = store.declare("second.weight", {7, 5}, Init::normal(1));
    norm_ = store.declare("second.norm", {5}, Init::ones());
    store.allocate(*context_, dtype, 3);
    return store;
  }
  // Values in the master's dtype.
  std::vector<std::byte> exact(const ParameterStore& store, ParamId id) {
    std::vector<std::byte> bytes(static_cast<size_t>(store.value(id).numel()) *
                                 dtype_size(store.master().dtype()));
    store.get_value(*context_, id, bytes.data(), bytes.size());
    return bytes;
  }
  std::vector<std::byte> value(const ParameterStore& store, ParamId id) {
    std::vector<std::byte> bytes(store.value(id).bytes());
    context_->to_host(store.value(id).detach(), bytes.data(), bytes.size());
    return bytes;
  }
  std::vector<ParamId> all() const { return {first_, bias_, second_, norm_}; }

  std::unique_ptr<Context> context_ = make_context({DeviceKind::cpu, 0}, 1);
  ParamId first_ = 0, bias_ = 0, second_ = 0, norm_ = 0;
};

TEST_F(ParameterGroupsTest, VectorsAreNormsAndBiases) {
  ParameterStore store;
  store.declare("own", {4}, Init::zeros(), "adapters");
  const ParameterStore plain = this->store(DType::f32);
  EXPECT_EQ(store.group(0).name, "adapters");
  EXPECT_EQ(plain.group(first_).name, kMatrices);
  EXPECT_EQ(plain.group(second_).name, kMatrices);
  EXPECT_EQ(plain.group(bias_).name, kNormsAndBiases);
  EXPECT_EQ(plain.group(norm_).name, kNormsAndBiases);
  for (const ParamId id : all())
    EXPECT_EQ(plain.group(id), (ParameterGroup{plain.group(id).name, DType::f32, true, 1, 1}));
}

TEST_F(ParameterGroupsTest, ANameIsDeclaredOnce) {
  ParameterStore store;
  for (const char* name : {"a", "b", "a"}) store.declare(name, {4}, Init::zeros());
  expect_error(ErrorCode::internal, "a is declared twice",
               [&] { store.allocate(*context_, DType::f32, 1); });
}

TEST_F(ParameterGroupsTest, FrozenParametersLieApartAndKeepTheirValues) {
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    ParameterStore store = this->store(dtype);
    std::vector<std::vector<std::byte>> before, masters;
    for (const ParamId id : all()) before.push_back(value(store, id));
    for (const ParamId id : all()) masters.push_back(exact(store, id));
    EXPECT_EQ(store.flat().numel(), 16 + 16 + 48 + 16);

    EXPECT_EQ(store.set_trainable(*context_, "first.*", false), 2);
    EXPECT_EQ(store.flat().numel(), 48 + 16);
    EXPECT_EQ(store.flat_grad().numel(), 48 + 16);
    EXPECT_EQ(store.master().numel(), 48 + 16);
    EXPECT_EQ(store.parameter_count(), 15 + 5 + 35 + 5);
    for (const ParamId id : all()) {
      const bool frozen = id == first_ || id == bias_;
      EXPECT_EQ(store.trainable(id), !frozen);
      EXPECT_EQ(requires_grad(store.value(id)), !frozen);
      EXPECT_EQ(store.grad(id).defined(), !frozen);
      EXPECT_EQ(store.value(id).storage() == store.flat().storage(), !frozen);
      EXPECT_EQ(store.value(id).dtype(), dtype);
      EXPECT_EQ(value(store, id), before[static_cast<size_t>(id)]);
      if (frozen && dtype == DType::bf16) continue;  // the digits of its master are gone
      EXPECT_EQ(exact(store, id), masters[static_cast<size_t>(id)]);
    }
    EXPECT_EQ(store.offset(second_), 0);
    EXPECT_EQ(store.offset(norm_), 48);

    EXPECT_EQ(store.set_trainable(*context_, "*", true), 4);
    EXPECT_EQ(store.flat().numel(), 16 + 16 + 48 + 16);
    for (const ParamId id : all()) {
      EXPECT_TRUE(store.trainable(id));
      EXPECT_EQ(value(store, id), before[static_cast<size_t>(id)]);
    }
    EXPECT_EQ(exact(store, second_), masters[static_cast<size_t>(second_)]);
  }
}

TEST_F(ParameterGroupsTest, AFrozenParameterTakesValues) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ParameterStore store = this->store(dtype);
    store.set_trainable(*context_, "first.bias", false);
    const std::vector<float> values{1, -2, 3.5f, 0.1f, 1e-3f};
    store.set_value(*context_, bias_, values.data(), values.size() * sizeof(float));
    std::vector<float> back(values.size());
    store.get_value(*context_, bias_, back.data(), back.size() * sizeof(float));
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(back[i],
                dtype == DType::f32 ? values[i] : BFloat16::from_float(values[i]).to_float());
    EXPECT_EQ(code_of([&] { store.set_value(*context_, bias_, values.data(), 4); }),
              ErrorCode::shape_mismatch);
    EXPECT_EQ(code_of([&] { store.get_value(*context_, bias_, back.data(), 4); }),
              ErrorCode::shape_mismatch);
  }
}

TEST_F(ParameterGroupsTest, GradientsOfTheOthersAreWhole) {
  ParameterStore store = this->store(DType::f32);
  store.set_trainable(*context_, "*.weight", false);
  for (const ParamId id : {bias_, norm_}) std::memset(store.grad(id).raw(), 0x3f, 20);
  store.zero_grad();
  store.complete_grads(*context_);
  for (const float g : context_->values<float>(store.flat_grad().detach())) EXPECT_EQ(g, 0);
}

TEST_F(ParameterGroupsTest, EverythingMayBeFrozen) {
  ParameterStore store = this->store(DType::f32);
  EXPECT_TRUE(store.any_trainable());
  store.set_trainable(*context_, "*", false);
  EXPECT_FALSE(store.any_trainable());
  EXPECT_EQ(store.flat().numel(), 0);
  store.set_trainable(*context_, "second.norm", true);
  EXPECT_TRUE(store.any_trainable());
  for (const float v : context_->values<float>(store.value(norm_).detach())) EXPECT_EQ(v, 1);
}

TEST_F(ParameterGroupsTest, FactorsAreSetByPattern) {
  ParameterStore store = this->store(DType::f32);
  EXPECT_EQ(store.set_factors("second.*", 0.5, 0), 2);
  EXPECT_EQ(store.group(second_).lr_factor, 0.5);
  EXPECT_EQ(store.group(norm_).weight_decay, 0);
  EXPECT_EQ(store.group(first_).lr_factor, 1);
  // They stay while a parameter is frozen, and come along to another model.
  store.set_trainable(*context_, "second.norm", false);
  ParameterStore other = this->store(DType::f32);
  other.copy_groups(*context_, store);
  for (const ParamId id : all()) EXPECT_EQ(other.group(id), store.group(id));
  EXPECT_FALSE(other.trainable(norm_));
  store.set_trainable(*context_, "second.norm", true);
  EXPECT_EQ(store.group(norm_).weight_decay, 0);
}

TEST_F(ParameterGroupsTest, RefusalsChangeNothing) {
  ParameterStore store = this->store(DType::f32);
  EXPECT_EQ(code_of([&] { store.set_trainable(*context_, "third.*", false); }),
            ErrorCode::not_found);
  EXPECT_EQ(code_of([&] { store.set_factors("third.*", 1, 1); }), ErrorCode::not_found);
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(code_of([&] { store.set_factors("*", bad, 1); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { store.set_factors("*", 1, bad); }), ErrorCode::invalid_argument);
  }
  const auto refused = [&] {
    EXPECT_EQ(code_of([&] { store.set_trainable(*context_, "second.*", true); }),
              ErrorCode::ok);  // they are trainable: nothing moves
    EXPECT_EQ(code_of([&] { store.set_trainable(*context_, "second.*", false); }),
              ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { store.set_factors("second.*", 2, 1); }), ErrorCode::invalid_argument);
    EXPECT_TRUE(store.trainable(second_));
    EXPECT_EQ(store.group(second_).lr_factor, 1);
  };
  {
    const Tensor view = store.value(first_).detach();  // as the C ABI hands out
    refused();
  }
  {
    const Tensor workspace = store.master().detach();  // as an optimizer keeps
    refused();
  }
  store.set_trainable(*context_, "first.weight", false);
  {
    const Tensor view = store.value(first_).detach();  // of a frozen one
    refused();
  }
  EXPECT_EQ(store.set_trainable(*context_, "second.*", false), 2);
}

}  // namespace
}  // namespace trafo
