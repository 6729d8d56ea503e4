// Low rank: what the factors lose, and what a factorized model can do.
#include "engine/compress/factorize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "engine/autograd/gradcheck.h"
#include "engine/compress/calibration.h"
#include "engine/compress/prune.h"
#include "engine/compress/quantize.h"
#include "engine/compress/sparsify.h"
#include "engine/compress/symmetric_eigen.h"
#include "engine/compress/whitened_svd.h"
#include "engine/io/atomic_file.h"
#include "engine/models/adapter.h"
#include "engine/models/model_io.h"
#include "engine/models/upload.h"
#include "engine/objective/cross_entropy/cross_entropy.h"
#include "tests/decode/decode_models.h"
#include "tests/support/errors.h"
#include "tests/support/model_forms.h"
#include "tests/train/training_support.h"

namespace trafo {
namespace {

using namespace testing;

using Matrix = std::vector<double>;

Matrix normal_matrix(size_t elements, uint64_t seed) {
  PhiloxStream random(seed, 3);
  Matrix values(elements);
  for (double& value : values) value = random.normal();
  return values;
}

// a [m, k] times b [k, n]
Matrix times(const Matrix& a, const Matrix& b, size_t m, size_t k, size_t n) {
  Matrix product(m * n, 0.0);
  for (size_t i = 0; i < m; ++i)
    for (size_t l = 0; l < k; ++l)
      for (size_t j = 0; j < n; ++j) product[i * n + j] += a[i * k + l] * b[l * n + j];
  return product;
}

Matrix turned(const Matrix& a, size_t m, size_t n) {
  Matrix result(a.size());
  for (size_t i = 0; i < m; ++i)
    for (size_t j = 0; j < n; ++j) result[j * m + i] = a[i * n + j];
  return result;
}

double sum_of_squares(const Matrix& a) {
  double sum = 0;
  for (const double value : a) sum += value * value;
  return sum;
}

Matrix difference(Matrix a, const Matrix& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

TEST(SymmetricEigen, VectorsAndValuesMakeTheMatrix) {
  for (const size_t n : {size_t{1}, size_t{2}, size_t{3}, size_t{8}, size_t{33}, size_t{64}})
    for (const size_t rank : {size_t{0}, n / 2, n}) {
      SCOPED_TRACE(concat(n, " ", rank));
      const Matrix half = normal_matrix(n * rank, n + 1);
      const Matrix a = times(half, turned(half, n, rank), n, rank, n);
      const SymmetricEigen eigen = symmetric_eigen(a, n);
      EXPECT_TRUE(std::is_sorted(eigen.values.rbegin(), eigen.values.rend()));
      Matrix scaled = eigen.vectors;
      for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= eigen.values[i / n];
      const double size = 1 + sum_of_squares(a);
      EXPECT_LT(sum_of_squares(difference(times(turned(eigen.vectors, n, n), scaled, n, n, n), a)),
                1e-26 * size);
      Matrix identity = times(eigen.vectors, turned(eigen.vectors, n, n), n, n, n);
      for (size_t i = 0; i < n; ++i) identity[i * n + i] -= 1;
      EXPECT_LT(sum_of_squares(identity), 1e-26);
      for (size_t i = rank; i < n; ++i) EXPECT_LT(std::abs(eigen.values[i]), 1e-12 * size);
    }
}

TEST(SymmetricEigen, DiagonalsAndEqualValues) {
  const SymmetricEigen eigen = symmetric_eigen({2, 9, 9, 0, 5, 9, 0, 0, 2}, 3);  // above: not read
  EXPECT_EQ(eigen.values, (Matrix{5, 2, 2}));
  EXPECT_EQ(symmetric_eigen(Matrix(16, 0.0), 4).values, Matrix(4, 0.0));
  Matrix bad(16, 1.0);
  bad[9] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(code_of([&] { symmetric_eigen(bad, 4); }), ErrorCode::non_finite);
}

// Inputs with very different scales, of which some hang together.
Matrix inputs_of(size_t tokens, size_t columns) {
  const Matrix mixing = normal_matrix(columns * columns, 5);
  Matrix x = times(normal_matrix(tokens * columns, 6), mixing, tokens, columns, columns);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= std::pow(0.8, static_cast<double>(i % columns));
  return x;
}

Matrix mean_products(const Matrix& x, size_t tokens, size_t columns) {
  Matrix gram = times(turned(x, tokens, columns), x, columns, tokens, columns);
  for (double& value : gram) value /= static_cast<double>(tokens);
  return gram;
}

// The amount that damping adds to the mean of the squares of a matrix's outputs.
double damping_of(const Matrix& gram, size_t columns, const Matrix& w) {
  double trace = 0;
  for (size_t i = 0; i < columns; ++i) trace += gram[i * columns + i];
  return 0.01 * trace / static_cast<double>(columns) * sum_of_squares(w);
}

TEST(WhitenedSvd, TheErrorIsThatOfTheSingularValuesLeftOut) {
  constexpr size_t kTokens = 60;
  for (const auto& [rows, columns] :
       {std::pair<size_t, size_t>{12, 20}, {20, 12}, {12, 12}, {1, 5}, {5, 1}}) {
    const Matrix w = normal_matrix(rows * columns, 9), x = inputs_of(kTokens, columns);
    const Matrix gram = mean_products(x, kTokens, columns);
    const WhitenedSvd svd(w, gram, static_cast<int64_t>(rows), static_cast<int64_t>(columns));
    ASSERT_EQ(svd.energies().size(), std::min(rows, columns));
    EXPECT_TRUE(std::is_sorted(svd.energies().rbegin(), svd.energies().rend()));
    double lost = 0;
    for (const double energy : svd.energies()) lost += energy;
    const double all = lost;
    for (size_t rank = 1; rank <= svd.energies().size(); ++rank) {
      SCOPED_TRACE(concat(rows, " x ", columns, ", rank ", rank));
      lost -= svd.energies()[rank - 1];
      const auto f = svd.factors(static_cast<int64_t>(rank));
      const Matrix error = difference(times(f.u, f.v, rows, rank, columns), w);
      const Matrix of_outputs = times(x, turned(error, rows, columns), kTokens, columns, rows);
      const double measured = sum_of_squares(of_outputs) / static_cast<double>(kTokens) +
                              damping_of(gram, columns, error);
      EXPECT_NEAR(measured, lost, 1e-10 * all);
      // Column i of u is as long as row i of v.
      for (size_t i = 0; i < rank; ++i) {
        double u = 0, v = 0;
        for (size_t k = 0; k < rows; ++k) u += f.u[k * rank + i] * f.u[k * rank + i];
        for (size_t k = 0; k < columns; ++k) v += f.v[i * columns + k] * f.v[i * columns + k];
        EXPECT_NEAR(u, v, 1e-9 * (u + v));
      }
    }
  }
}

// Of all matrices of a rank, none is better: small changes of the factors only lose.
TEST(WhitenedSvd, NoOtherFactorsOfTheRankAreBetter) {
  constexpr size_t kTokens = 50, kRows = 9, kColumns = 7, kRank = 3;
  const Matrix w = normal_matrix(kRows * kColumns, 9), x = inputs_of(kTokens, kColumns);
  const Matrix gram = mean_products(x, kTokens, kColumns);
  const WhitenedSvd svd(w, gram, kRows, kColumns);
  const auto loss = [&](const Matrix& u, const Matrix& v) {
    const Matrix error = difference(times(u, v, kRows, kRank, kColumns), w);
    return sum_of_squares(times(x, turned(error, kRows, kColumns), kTokens, kColumns, kRows)) /
               static_cast<double>(kTokens) +
           damping_of(gram, kColumns, error);
  };
  const auto f = svd.factors(kRank);
  const double least = loss(f.u, f.v);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Matrix u = f.u, v = f.v;
    const Matrix du = normal_matrix(u.size(), 20 + seed), dv = normal_matrix(v.size(), 50 + seed);
    for (size_t i = 0; i < u.size(); ++i) u[i] += 1e-3 * du[i];
    for (size_t i = 0; i < v.size(); ++i) v[i] += 1e-3 * dv[i];
    EXPECT_GT(loss(u, v), least);
  }
}

TEST(WhitenedSvd, InputsThatAreAllZeroCountTheSame) {
  const Matrix w = normal_matrix(12, 4);
  const WhitenedSvd svd(w, Matrix(9, 0.0), 4, 3);
  double all = 0;
  for (const double energy : svd.energies()) all += energy;
  EXPECT_NEAR(all, sum_of_squares(w), 1e-12);
  const auto f = svd.factors(3);
  EXPECT_LT(sum_of_squares(difference(times(f.u, f.v, 4, 3, 3), w)), 1e-24);
}

const char* const kLowRankForms[] = {"encdec", "shared", "lm", "llama", "qwen3"};

struct LowRankWorld {
  std::unique_ptr<Context> context;
  std::shared_ptr<const TokenizedCorpus> corpus;
  std::unique_ptr<Model> model;

  explicit LowRankWorld(const std::string& form, DType dtype = DType::f32, int threads = 2)
      : context(make_context({DeviceKind::cpu, 0}, threads)) {
    const ModelConfig config = form_of(form);
    corpus = copy_corpus(config.architecture, 40, 4);
    model = make_model(*context, config, 5, dtype);
  }
  FactorizeOptions options(int64_t rank, double ratio = 0) const {
    FactorizeOptions given;
    given.rank = rank;
    given.ratio = ratio;
    given.calibration = corpus.get();
    given.start_id = kTokens.bos;
    return given;
  }
  std::vector<double> logits(const Model& of) const {
    BatcherOptions order;
    order.start_id = kTokens.bos;
    Batcher batcher(*corpus, order);
    PackedBatchHost host;
    batcher.next(host);
    const NoGrad no_grad(*context);
    const Tensor all =
        of.logits(*context, upload(*context, host, of.spec(), of.parameters().dtype()));
    return to_doubles(*context, all);
  }
};

double largest_gap(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double gap = 0;
  for (size_t i = 0; i < a.size(); ++i) gap = std::max(gap, std::abs(a[i] - b[i]));
  return gap;
}

// Products of 16 x 16 matrices: with rank 7, 16 x 16 ones become smaller.
TEST(Factorize, FactorsTakeThePlaceOfMatrices) {
  for (const char* form : kLowRankForms) {
    SCOPED_TRACE(form);
    const LowRankWorld w(form, DType::f64);
    const auto before = weight_bytes(*w.context, *w.model);
    const auto small = factorize(*w.context, *w.model, w.options(7));
    EXPECT_EQ(weight_bytes(*w.context, *w.model), before);
    const ParameterStore &from = w.model->parameters(), &to = small->parameters();
    EXPECT_LT(to.parameter_count(), from.parameter_count());
    for (size_t i = 0; i < from.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const ParamId outer = to.find(from.name(id) + kOuterFactor);
      ASSERT_EQ(outer != kNoParam, from.prunable(id)) << from.name(id);
      ASSERT_EQ(to.find(from.name(id)) == kNoParam, from.prunable(id));
      if (outer == kNoParam) continue;
      EXPECT_EQ(to.shape(outer), Shape({from.shape(id)[0], 7}));
      EXPECT_EQ(to.shape(to.inner_factor(outer)), Shape({7, from.shape(id)[1]}));
      EXPECT_GT(to.signal_to_noise(outer), 0);
      EXPECT_EQ(small->config().factor_ranks.at(from.name(id)), 7);
    }
    EXPECT_GT(largest_gap(w.logits(*w.model), w.logits(*small)), 1e-6);
  }
}

// signal_to_noise agrees with the outputs of the layers.
class OutputError : public LinearObserver {
 public:
  OutputError(const ParameterStore& whole, const std::map<std::string, Matrix>& products)
      : whole_(whole), products_(products) {}
  void observe(Context& context, int32_t parameter, const Tensor& x) override {
    const auto found = products_.find(whole_.name(parameter));
    if (found == products_.end()) return;
    const auto rows = static_cast<size_t>(whole_.shape(parameter)[0]);
    const auto columns = static_cast<size_t>(whole_.shape(parameter)[1]);
    const Matrix in = context.values<double>(x), weights = turned(found->second, rows, columns);
    Matrix exact(rows * columns);
    whole_.get_value(context, parameter, exact.data(), exact.size() * sizeof(double));
    const Matrix y = times(in, turned(exact, rows, columns), in.size() / columns, columns, rows);
    signal[found->first] += sum_of_squares(y);
    noise[found->first] +=
        sum_of_squares(difference(times(in, weights, in.size() / columns, columns, rows), y));
  }
  std::map<std::string, double> signal, noise;

 private:
  const ParameterStore& whole_;
  const std::map<std::string, Matrix>& products_;
};

TEST(Factorize, TheRatiosAreThoseOfTheOutputs) {
  const LowRankWorld w("encdec", DType::f64);
  const auto small = factorize(*w.context, *w.model, w.options(5));
  const ParameterStore& to = small->parameters();
  std::map<std::string, Matrix> products;
  for (const auto& [name, rank] : small->config().factor_ranks) {
    const std::vector<std::byte> bytes = whole_value(*w.context, to, to.find(name + kOuterFactor));
    Matrix values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    products[name] = values;
  }
  OutputError errors(w.model->parameters(), products);
  observe_calibration(*w.context, *w.model, *w.corpus, kTokens.bos, errors);
  ASSERT_EQ(errors.signal.size(), products.size());
  for (const auto& [name, signal] : errors.signal)  // the damping counts a little
    EXPECT_NEAR(to.signal_to_noise(to.find(name + kOuterFactor)),
                10 * std::log10(signal / errors.noise[name]), 0.5)
        << name;
}

TEST(Factorize, FullRankGivesTheSameOutputs) {
  for (const char* form : kLowRankForms) {
    SCOPED_TRACE(form);
    const LowRankWorld w(form, DType::f64);
    // Full-rank factors are no smaller, so they are put together here.
    ModelConfig config = w.model->config();
    const ParameterStore& from = w.model->parameters();
    std::vector<bool> wanted(from.count());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto id = static_cast<ParamId>(i);
      wanted[i] = from.prunable(id);
      if (wanted[i])
        config.factor_ranks[from.name(id)] = std::min(from.shape(id)[0], from.shape(id)[1]);
    }
    InputProducts products(wanted);
    observe_calibration(*w.context, *w.model, *w.corpus, kTokens.bos, products);
    const auto full = make_model(*w.context, config, 8, DType::f64);
    ParameterStore& to = full->parameters();
    for (size_t i = 0; i < from.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      Matrix values(static_cast<size_t>(element_count(from.shape(id))));
      from.get_value(*w.context, id, values.data(), values.size() * sizeof(double));
      if (!wanted[i]) {
        to.set_value(*w.context, to.find(from.name(id)), values.data(),
                     values.size() * sizeof(double));
        continue;
      }
      const int64_t rows = from.shape(id)[0], columns = from.shape(id)[1];
      const WhitenedSvd svd(values, products.take(id, columns), rows, columns);
      const auto f = svd.factors(std::min(rows, columns));
      const ParamId outer = to.find(from.name(id) + kOuterFactor);
      to.set_value(*w.context, outer, f.u.data(), f.u.size() * sizeof(double));
      to.set_value(*w.context, to.inner_factor(outer), f.v.data(), f.v.size() * sizeof(double));
    }
    EXPECT_LT(largest_gap(w.logits(*w.model), w.logits(*full)), 1e-9);
  }
}

TEST(Factorize, ARatioIsKeptAndSharedOut) {
  const LowRankWorld w("encdec");
  ModelConfig config = form_of("encdec");
  config.width = 64;
  config.ffn_width = 128;
  const auto model = make_model(*w.context, config, 5);
  const auto weights_of = [](const Model& of) {
    int64_t sum = 0;
    for (size_t i = 0; i < of.parameters().count(); ++i)
      if (of.parameters().prunable(static_cast<ParamId>(i)))
        sum += element_count(of.parameters().shape(static_cast<ParamId>(i)));
    return static_cast<double>(sum);
  };
  double last = 0;
  for (const double ratio : {0.3, 0.5, 0.8}) {
    const auto small = factorize(*w.context, *model, w.options(0, ratio));
    const double share = weights_of(*small) / weights_of(*model);
    EXPECT_LE(share, ratio);
    EXPECT_GT(share, ratio - 0.05);
    std::vector<int64_t> ranks;
    for (const auto& [name, rank] : small->config().factor_ranks) {
      EXPECT_TRUE(rank % 8 == 0) << name << " " << rank;
      ranks.push_back(rank);
    }
    EXPECT_NE(*std::min_element(ranks.begin(), ranks.end()),
              *std::max_element(ranks.begin(), ranks.end()));
    EXPECT_GT(share, last);
    last = share;
  }
  expect_error(ErrorCode::invalid_argument, "ratio 0.01 is too low: with ranks of 8",
               [&] { factorize(*w.context, *model, w.options(0, 0.01)); });
  // Matrices so small that rank 1 is the only one become whole again where the ratio lets them.
  config.width = config.ffn_width = 4;
  config.heads = 1;
  const auto tiny = make_model(*w.context, config, 5);
  EXPECT_GT(weights_of(*factorize(*w.context, *tiny, w.options(0, 0.95))), 0.9 * weights_of(*tiny));
}

TEST(Factorize, PatternsChooseTheMatrices) {
  const LowRankWorld w("encdec");
  FactorizeOptions options = w.options(4);
  options.layers = {"decoder.*.ffn.*", "encoder.0.attention.qkv.weight"};
  const auto small = factorize(*w.context, *w.model, options);
  std::vector<std::string> names;
  for (const auto& [name, rank] : small->config().factor_ranks) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"decoder.0.ffn.down.weight", "decoder.0.ffn.up.weight",
                                             "decoder.1.ffn.down.weight", "decoder.1.ffn.up.weight",
                                             "encoder.0.attention.qkv.weight"}));
  options.layers = {"decoder.*.ffn.*", "embedding.weight"};
  expect_error(ErrorCode::not_found, "no matrix has a name that matches \"embedding.weight\"",
               [&] { factorize(*w.context, *w.model, options); });
}

TEST(Factorize, TheNumberOfThreadsDoesNotMatter) {
  std::vector<std::byte> bits;
  for (const int threads : {1, 4}) {
    const LowRankWorld w("lm", DType::f32, threads);
    const auto bytes = weight_bytes(*w.context, *factorize(*w.context, *w.model, w.options(5)));
    if (bits.empty()) bits = bytes;
    EXPECT_EQ(bytes, bits);
  }
}

TEST(Factorize, ALinearLayerOfFactorsPassesGradcheck) {
  const auto context = make_context({DeviceKind::cpu, 0}, 1);
  for (const int64_t rank : {1, 3, 4}) {
    const auto tensor = [&](const Shape& shape, uint64_t seed) {
      return context->from_values<double>(
          normal_matrix(static_cast<size_t>(element_count(shape)), seed), shape);
    };
    const GradcheckResult result =
        gradcheck(*context,
                  [](Context& c, const std::vector<Tensor>& in) {
                    Weight weight{in[1], nullptr};
                    weight.inner = std::make_shared<const Weight>(Weight{in[2], nullptr});
                    return std::vector<Tensor>{nn::linear(c, in[0], weight, in[3])};
                  },
                  {tensor({5, 4}, 1), tensor({6, rank}, 2), tensor({rank, 4}, 3), tensor({6}, 4)});
    EXPECT_TRUE(result.ok) << result.message;
    EXPECT_EQ(result.checked, 5 * 4 + 6 * rank + rank * 4 + 6);
  }
}

// With W = u v: dL/du = dL/dW v^T and dL/dv = u^T dL/dW.
TEST(Factorize, GradientsOfFactorsFollowFromThoseOfTheMatrix) {
  for (const char* form : kLowRankForms) {
    SCOPED_TRACE(form);
    const LowRankWorld w(form, DType::f64, 1);
    const auto small = factorize(*w.context, *w.model, w.options(3));
    ParameterStore &of_small = small->parameters(), &of_whole = w.model->parameters();
    for (size_t i = 0; i < of_whole.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const std::string& name = of_whole.name(id);
      const ParamId whole = of_small.find(name);
      const auto bytes = whole_value(
          *w.context, of_small, whole != kNoParam ? whole : of_small.find(name + kOuterFactor));
      of_whole.set_value(*w.context, id, bytes.data(), bytes.size());
    }
    BatcherOptions order;
    order.start_id = kTokens.bos;
    Batcher batcher(*w.corpus, order);
    PackedBatchHost host;
    batcher.next(host);
    for (Model* model : {w.model.get(), small.get()}) {
      model->parameters().zero_grad();
      const Batch batch = upload(*w.context, host, model->spec(), DType::f64);
      const DropoutPass dropout{9, 4, true, {}};
      w.context->backward(
          LabelSmoothedCrossEntropy(0.1).loss(*w.context, *model, batch, dropout).loss);
      model->parameters().complete_grads(*w.context);
    }
    const auto gradient = [&](const ParameterStore& store, ParamId id) {
      return w.context->values<double>(store.grad(id));
    };
    for (size_t i = 0; i < of_whole.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      const Matrix whole = gradient(of_whole, id);
      const double size = 1e-12 * (1 + std::sqrt(sum_of_squares(whole)));
      const ParamId outer = of_small.find(of_whole.name(id) + kOuterFactor);
      if (outer == kNoParam) {
        const ParamId same = of_small.find(of_whole.name(id));
        EXPECT_LT(largest_gap(gradient(of_small, same), whole), size) << of_whole.name(id);
        continue;
      }
      const ParamId inner = of_small.inner_factor(outer);
      const auto rows = static_cast<size_t>(of_whole.shape(id)[0]);
      const auto columns = static_cast<size_t>(of_whole.shape(id)[1]);
      const Matrix u = w.context->values<double>(of_small.value(outer).detach());
      const Matrix v = w.context->values<double>(of_small.value(inner).detach());
      EXPECT_GT(sum_of_squares(whole), 0);
      EXPECT_LT(largest_gap(gradient(of_small, outer),
                            times(whole, turned(v, 3, columns), rows, columns, 3)),
                10 * size)
          << of_whole.name(id);
      EXPECT_LT(largest_gap(gradient(of_small, inner),
                            times(turned(u, rows, 3), whole, 3, rows, columns)),
                10 * size)
          << of_whole.name(id);
    }
  }
}

TEST(Factorize, TheFileIsReadAndTrainedOn) {
  const TemporaryDirectory folder;
  for (const char* form : kLowRankForms) {
    SCOPED_TRACE(form);
    const LowRankWorld w(form);
    const auto small = factorize(*w.context, *w.model, w.options(6));
    const auto path = folder / (std::string(form) + ".safetensors");
    save_model(path, *w.context, *small);
    const auto loaded = load_model(*w.context, path);
    EXPECT_EQ(loaded->config(), small->config());
    EXPECT_EQ(weight_bytes(*w.context, *loaded), weight_bytes(*w.context, *small));
    TrainOptions training = quick_options();
    training.after_updates = 8;
    TrainingRun(*w.context, *loaded, copy_data(loaded->config().architecture), training,
                std::nullopt)
        .run();
    const ParameterStore &before = small->parameters(), &after = loaded->parameters();
    for (size_t i = 0; i < before.count(); ++i) {
      const auto id = static_cast<ParamId>(i);
      EXPECT_NE(bytes_of(*w.context, before.value(id)), bytes_of(*w.context, after.value(id)))
          << before.name(id);
    }
    // Another model has none of the factors.
    const auto whole = make_model(*w.context, w.model->config(), 1);
    expect_error(ErrorCode::invalid_argument, "of rank 6 in the checkpoint, whole here",
                 [&] { load_weights(*w.context, SafetensorsReader::open(path), *whole); });
    expect_error(ErrorCode::invalid_argument, "is not for this model",
                 [&] { load_pretrained(*w.context, SafetensorsReader::open(path), *whole); });
  }
}

TEST(Factorize, ARunResumesBitForBit) {
  const TemporaryDirectory folder;
  const LowRankWorld w("encdec");
  ModelConfig config = factorize(*w.context, *w.model, w.options(6))->config();
  const TrainingData data = copy_data();
  TrainOptions options = quick_options();
  options.ema_alpha = 0.01;
  options.after_updates = 12;
  Process whole(data, options, folder / "whole", 1, config);
  whole.run->run();
  options.after_updates = 5;
  Process(data, options, folder / "parts", 1, config).run->run();
  options.after_updates = 12;
  Process rest(data, options, folder / "parts", 1, config);
  rest.run->run();
  EXPECT_EQ(weight_bytes(*rest.context, *rest.model), weight_bytes(*whole.context, *whole.model));
}

TEST(Factorize, CodesOfFactors) {
  const TemporaryDirectory folder;
  const LowRankWorld w("encdec");
  const auto small = factorize(*w.context, *w.model, w.options(7));
  for (const int32_t bits : {8, 4}) {
    SCOPED_TRACE(bits);
    QuantizeOptions codes;
    codes.bits = bits;
    codes.method = bits == 4 ? QuantizeMethod::gptq : QuantizeMethod::nearest;
    codes.calibration = w.corpus.get();
    codes.start_id = kTokens.bos;
    const auto quantized = quantize_model(*w.context, *small, codes);
    const ParamId outer = quantized->parameters().find("encoder.0.ffn.up.weight.u");
    EXPECT_TRUE(quantized->parameters().is_int8(outer));
    EXPECT_TRUE(quantized->parameters().is_int8(quantized->parameters().inner_factor(outer)));
    const auto path = folder / concat(bits, ".safetensors");
    save_model(path, *w.context, *quantized);
    const auto loaded = load_model(*w.context, path);
    EXPECT_EQ(w.logits(*loaded), w.logits(*quantized));
    EXPECT_LT(largest_gap(w.logits(*loaded), w.logits(*small)), bits == 8 ? 0.2 : 2.0);
  }
  const auto path = folder / "float.safetensors";
  save_model(path, *w.context, *small);
  const auto at_load = load_model(*w.context, path, DType::f32, true);
  EXPECT_EQ(w.logits(*at_load), w.logits(*quantize_model(*w.context, *small, {})));
}

TEST(Factorize, ZerosOfFactors) {
  const LowRankWorld w("encdec");
  const auto small = factorize(*w.context, *w.model, w.options(7));
  SparsifyOptions half;
  half.score = PruneScore::wanda;
  half.calibration = w.corpus.get();
  const auto sparse = sparsify(*w.context, *small, half);
  EXPECT_EQ(sparse->config(), small->config());
  const ParamId outer = sparse->parameters().find("encoder.0.ffn.up.weight.u");
  EXPECT_EQ(count_zeros(*w.context, sparse->parameters(), outer), 32 * 4);  // 7 columns: 4 of a row
}

TEST(Factorize, ADamagedFileIsNamed) {
  const TemporaryDirectory folder;
  const LowRankWorld w("encdec");
  const auto small = factorize(*w.context, *w.model, w.options(6));
  save_model(folder / "good.safetensors", *w.context, *small);
  const auto good = SafetensorsReader::open(folder / "good.safetensors");
  const std::string u = "encoder.0.ffn.up.weight.u", v = "encoder.0.ffn.up.weight.v";
  // Writes the file with one tensor in another shape, or without it.
  const auto damaged = [&](const std::string& name, std::optional<std::vector<int64_t>> shape,
                           const char* text) {
    SCOPED_TRACE(text);
    std::vector<std::vector<std::byte>> storage;
    std::vector<TensorEntry> entries;
    for (const TensorInfo& info : good.tensors()) {
      if (info.name == name && !shape) continue;
      std::vector<std::byte> bytes(info.bytes);
      good.read(info, bytes);
      std::vector<int64_t> dims = info.shape;
      if (info.name == name) {
        dims = *shape;
        size_t size = sizeof(float);
        for (const int64_t dim : dims) size *= static_cast<size_t>(dim);
        bytes.resize(size);
      }
      storage.push_back(std::move(bytes));
      entries.push_back({info.name, DType::f32, dims, storage.back(), {}});
    }
    AtomicFile file(folder / "bad.safetensors");
    write_safetensors(file, entries, good.metadata());
    file.commit();
    expect_error(ErrorCode::corrupt_file, text,
                 [&] { load_model(*w.context, folder / "bad.safetensors"); });
  };
  damaged(u, std::nullopt, "lacks the tensor encoder.0.ffn.up.weight.u");
  damaged(v, std::nullopt, "lacks the tensor encoder.0.ffn.up.weight");
  damaged(v, std::vector<int64_t>{5, 16}, "encoder.0.ffn.up.weight.u has the shape");
  damaged(u, std::vector<int64_t>{31, 6}, "encoder.0.ffn.up.weight.u has the shape");
  damaged(v, std::vector<int64_t>{96}, "a factor has two dimensions");
  damaged(v, std::vector<int64_t>{17, 16}, "the rank is 1 to 16");
  damaged(v, std::vector<int64_t>{0, 16}, "the rank is 1 to 16");
}

TEST(Factorize, WhatCannotBeIsNamed) {
  const LowRankWorld w("encdec");
  const auto refused = [&](const FactorizeOptions& options, const char* text) {
    expect_error(ErrorCode::invalid_argument, text,
                 [&] { factorize(*w.context, *w.model, options); });
  };
  for (const double ratio : {1.0, -0.5, 80.0, std::numeric_limits<double>::quiet_NaN()})
    refused(w.options(0, ratio), "ratio must be above 0 and below 1");
  refused(w.options(0), "ratio or a rank is needed");
  refused(w.options(4, 0.5), "ratio and a rank exclude each other");
  refused(w.options(-4), "rank must be at least 1");
  refused(w.options(4000), "rank 4000 is too high: no matrix is smaller");
  FactorizeOptions blind = w.options(4);
  blind.calibration = nullptr;
  refused(blind, "the calibration data have no pair");
  const auto other = copy_corpus(Architecture::decoder_lm, 10, 4);
  blind.calibration = other.get();
  refused(blind, "another architecture");

  CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(code_of([&] { factorize(*w.context, *w.model, w.options(4), &cancel); }),
            ErrorCode::cancelled);
  const auto small = factorize(*w.context, *w.model, w.options(4));
  expect_error(ErrorCode::invalid_argument, "the model is factorized already",
               [&] { factorize(*w.context, *small, w.options(3)); });
  expect_error(ErrorCode::unsupported, "prune the whole model, then factorize it",
               [&] { prune(*w.context, *small, *w.corpus, kTokens, {}); });
  expect_error(ErrorCode::unsupported, "is factorized: an adapter is for whole matrices", [&] {
    add_adapter(*w.context, *small, {2, 4, {}}, 1);
  });
  const auto int8 = quantize_model(*w.context, *w.model, {});
  EXPECT_EQ(code_of([&] { factorize(*w.context, *int8, w.options(4)); }), ErrorCode::unsupported);
  ModelConfig config = w.model->config();
  config.factor_ranks["no.such.weight"] = 3;
  expect_error(ErrorCode::invalid_argument, "no linear layer with the matrix no.such.weight",
               [&] { make_model(*w.context, config, 1); });

  const ParamId id = w.model->parameters().find("encoder.0.ffn.up.weight");
  std::vector<float> values(static_cast<size_t>(element_count(w.model->parameters().shape(id))), 1);
  values[7] = NAN;
  w.model->parameters().set_value(*w.context, id, values.data(), values.size() * sizeof(float));
  expect_error(ErrorCode::non_finite, "that is not finite",
               [&] { factorize(*w.context, *w.model, w.options(4)); });
  add_adapter(*w.context, *w.model, {2, 4, {}}, 1);
  refused(w.options(4), "has an adapter");
}

}  // namespace
}  // namespace trafo
