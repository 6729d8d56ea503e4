// Sums in a given tree: against a loop over the tree on the host, bit for bit. With
// TRAFO_TEST_DEVICE=cuda on a GPU.
#include "engine/ops/tree_sum/tree_sum.h"

#include <cstring>

#include "engine/core/numeric/philox.h"
#include "tests/ops/cuda/cuda_test.h"

namespace trafo::testing {
namespace {

class TreeSumTest : public ::testing::Test {
 protected:
  TreeSumTest() : context_(cuda_context()) {
    if (!context_) context_ = make_context({DeviceKind::cpu, 0}, 2);
  }

  // Terms with their values, and the additions that follow.
  struct Tree {
    std::vector<TermKind> kinds;
    std::vector<int32_t> additions;
  };
  Tree random_tree(size_t terms) {
    Tree tree;
    int32_t open = 0;
    for (size_t t = 0; t < terms; ++t) {
      ++open;
      const bool is_last = t + 1 == terms;
      const auto some = static_cast<int32_t>(random_.next_u32() % static_cast<uint32_t>(open));
      tree.additions.push_back(is_last ? open - 1 : some);
      open -= tree.additions.back();
      tree.kinds.push_back(static_cast<TermKind>(random_.next_u32() % 3));
    }
    return tree;
  }

  // Values of all magnitudes, so that every order of additions has other bits.
  std::vector<float> values(int64_t count) {
    std::vector<float> all(static_cast<size_t>(count));
    for (float& each : all)
      each = static_cast<float>(random_.uniform(-1, 1)) *
             std::ldexp(1.0f, static_cast<int>(random_.next_u32() % 24) - 12);
    return all;
  }

  // A term's elements begin `shift` elements after an aligned address. The sum overwrites term
  // `in_place` (a float32 one), or is elsewhere.
  void expect_sum(const Tree& tree, int64_t count, int64_t shift, int in_place) {
    const size_t n = tree.kinds.size();
    std::vector<Tensor> arrays;
    std::vector<TreeTerm> terms;
    std::vector<std::vector<float>> stack;
    for (size_t t = 0; t < n; ++t) {
      std::vector<float> x = values(shift + count);
      if (tree.kinds[t] == TermKind::bfloat16) {
        std::vector<BFloat16> narrow;
        for (const float each : x) narrow.push_back(BFloat16::from_float(each));
        arrays.push_back(context_->from_values<BFloat16>(narrow, {shift + count}));
      } else {
        arrays.push_back(context_->from_values<float>(x, {shift + count}));
      }
      const size_t element = dtype_size(arrays.back().dtype());
      terms.push_back({static_cast<const std::byte*>(arrays.back().raw()) +
                           static_cast<size_t>(shift) * element,
                       tree.kinds[t], tree.additions[t]});
      if (tree.kinds[t] != TermKind::plain)
        for (float& each : x) each = BFloat16::from_float(each).to_float();
      stack.emplace_back(x.begin() + shift, x.end());
      for (int32_t a = 0; a < tree.additions[t]; ++a) {
        const std::vector<float> right = std::move(stack.back());
        stack.pop_back();
        for (size_t i = 0; i < right.size(); ++i) stack.back()[i] += right[i];
      }
    }
    ASSERT_EQ(stack.size(), 1u);
    const Tensor apart = context_->empty({shift + count}, DType::f32);
    const Tensor& whole = in_place < 0 ? apart : arrays[static_cast<size_t>(in_place)];
    auto* out = static_cast<float*>(whole.raw()) + shift;
    ops::TreeSum sum(*context_, n);
    sum.run(terms, DType::f32, count, out);
    const std::vector<float> all = context_->values<float>(whole);
    EXPECT_EQ(std::memcmp(all.data() + shift, stack[0].data(), stack[0].size() * sizeof(float)), 0)
        << n << " terms of " << count << " elements, shifted by " << shift;
  }

  std::unique_ptr<Context> context_;
  PhiloxStream random_{3, 9};
};

TEST_F(TreeSumTest, TheBitsAreThoseOfTheTree) {
  for (const size_t terms : {1, 2, 3, 4, 5, 8, 33})
    for (const int64_t count : {1, 7, 8, 1000, 4096 + 8, 70'003}) {
      Tree tree = random_tree(terms);
      expect_sum(tree, count, 0, -1);
      expect_sum(tree, count, 3, -1);  // no aligned access
      tree.kinds[terms / 2] = TermKind::rounded;
      expect_sum(tree, count, 0, static_cast<int>(terms / 2));
    }
}

// Of the sums, 40 are open at once.
TEST_F(TreeSumTest, TreesMayBeDeep) {
  Tree tree;
  for (int t = 0; t < 40; ++t) {
    tree.kinds.push_back(static_cast<TermKind>(t % 3));
    tree.additions.push_back(t == 39 ? 39 : 0);
  }
  expect_sum(tree, 5000, 0, -1);
}

TEST_F(TreeSumTest, TheTableFollowsTheTerms) {
  const Tensor a = context_->from_values<float>(std::vector<float>{1, 2}, {2});
  const Tensor b = context_->from_values<float>(std::vector<float>{10, 20}, {2});
  const Tensor out = context_->empty({2}, DType::f32);
  ops::TreeSum sum(*context_, 2);
  const auto run = [&](std::vector<TreeTerm> terms) {
    sum.run(terms, DType::f32, 2, out.raw());
    return context_->values<float>(out);
  };
  const TreeTerm first{a.raw(), TermKind::plain, 0}, second{b.raw(), TermKind::plain, 1};
  EXPECT_EQ(run({first, second}), (std::vector<float>{11, 22}));
  EXPECT_EQ(run({first, {a.raw(), TermKind::plain, 1}}), (std::vector<float>{2, 4}));
  EXPECT_EQ(run({first}), (std::vector<float>{1, 2}));
  EXPECT_EQ(run({first, second}), (std::vector<float>{11, 22}));
}

TEST_F(TreeSumTest, Float64OnTheCpu) {
  if (context_->device().kind != DeviceKind::cpu) GTEST_SKIP() << "CUDA adds float32";
  const Tensor a = context_->from_values<double>(std::vector<double>{1e-12, 1}, {2});
  const Tensor out = context_->empty({2}, DType::f64);
  ops::TreeSum sum(*context_, 3);
  const TreeTerm terms[] = {
      {a.raw(), TermKind::plain, 0}, {a.raw(), TermKind::plain, 0}, {a.raw(), TermKind::plain, 2}};
  sum.run(terms, DType::f64, 2, out.raw());
  EXPECT_EQ(context_->values<double>(out), (std::vector<double>{3e-12, 3}));
}

TEST_F(TreeSumTest, WhatIsNoTreeIsNamed) {
  const Tensor x = context_->zeros({4}, DType::f32);
  ops::TreeSum sum(*context_, 2);
  const auto message = [&](const std::vector<TreeTerm>& terms, DType dtype = DType::f32) {
    try {
      sum.run(terms, dtype, 4, x.raw());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      return error.message();
    }
    return std::string("no error");
  };
  const TreeTerm open{x.raw(), TermKind::plain, 0}, joined{x.raw(), TermKind::plain, 1};
  EXPECT_EQ(message({}), "a tree here has 1 to 2 terms, got 0");
  EXPECT_EQ(message({open, open, joined}), "a tree here has 1 to 2 terms, got 3");
  EXPECT_EQ(message({open, open}), "2 sums are left, not one");
  EXPECT_EQ(message({joined, open}), "1 additions of 1 sums");
  EXPECT_EQ(message({open}, DType::bf16), "sums are float32 or float64, not bfloat16");
  EXPECT_EQ(message({{x.raw(), TermKind::rounded, 0}}, DType::f64),
            "terms in bfloat16 are added in float32, not in float64");
}

}  // namespace
}  // namespace trafo::testing
