#include "tests/bench/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

namespace trafo::bench {
namespace {

constexpr double kTolerance = 1.05;  // more than 5 % is a regression

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

bool is_cost(const std::string& key) {
  return ends_with(key, "_us") || key == "ms" || ends_with(key, "_ms") || ends_with(key, "_MiB");
}

// The measurement of the row, without its figures.
std::string identity(const Json& row) {
  static const std::set<std::string> keys{"sec",  "op",    "what",   "model",  "dt",      "shape",
                                          "mode", "fused", "causal", "device", "threads", "masked"};
  Json found;
  for (const auto& [key, value] : row.items())
    if (keys.count(key)) found[key] = value;
  return found.dump();
}

uint64_t mixed(uint64_t z) {  // the finaliser of SplitMix64 (Steele et al., OOPSLA 2014)
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t next_seed() {
  static uint64_t seed = 0;
  return mixed(++seed);
}

template <class T>
Tensor upload_values(Context& context, const Shape& shape, const RandomValues& values) {
  std::vector<T> host(static_cast<size_t>(element_count(shape)));
  parallel_rows(static_cast<int64_t>(host.size()), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (std::is_same_v<T, BFloat16>)
        host[static_cast<size_t>(i)] = BFloat16::from_float(static_cast<float>(values.at(i)));
      else
        host[static_cast<size_t>(i)] = static_cast<T>(values.at(i));
    }
  });
  return context.from_values<T>(host, shape);
}

template <class T>
std::vector<double> read_as(Context& context, const Tensor& part) {
  const std::vector<T> values = context.values<T>(part);
  std::vector<double> wide;
  wide.reserve(values.size());
  for (const T& value : values) {
    if constexpr (std::is_same_v<T, BFloat16>)
      wide.push_back(value.to_float());
    else
      wide.push_back(static_cast<double>(value));
  }
  return wide;
}

}  // namespace

Device parse_device(const std::string& text) {
  if (text == "cpu") return {DeviceKind::cpu, 0};
  if (text == "cuda") return {DeviceKind::cuda, 0};
  const bool indexed = text.rfind("cuda:", 0) == 0 && text.size() > 5 && text.size() < 9 &&
                       text.find_first_not_of("0123456789", 5) == std::string::npos;
  require(indexed, ErrorCode::invalid_argument, "bench",
          "--device must be cpu, cuda or cuda:N, got ", text);
  return {DeviceKind::cuda, std::stoi(text.substr(5))};
}

std::vector<DType> parse_dtypes(const std::string& text) {
  std::vector<DType> dtypes;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    require(name == "f32" || name == "bf16", ErrorCode::invalid_argument, "bench",
            "--dtype must be f32, bf16 or both with a comma, got ", text);
    dtypes.push_back(name == "f32" ? DType::f32 : DType::bf16);
    begin = end + 1;
  }
  return dtypes;
}

void Report::add(Json row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

void Report::add_ratio(const std::string& kind, bool full, double ratio) {
  ratios_[kind].all.push_back(ratio);
  if (full) ratios_[kind].full.push_back(ratio);
}

void Report::print_ratios() {
  for (const auto& [kind, ratios] : ratios_) {
    for (const bool full : {true, false}) {
      const std::vector<double>& values = full ? ratios.full : ratios.all;
      if (values.empty()) continue;
      const double mean = geometric_mean(values), middle = median(values);
      const char* shapes = full ? "full" : "all";
      add({{"sec", "fused_against_reference"},
           {"what", kind},
           {"shapes", shapes},
           {"count", values.size()},
           {"geometric_mean", mean},
           {"median", middle}});
      std::fprintf(stderr, "reference / fused, %-40s %-4s shapes (%2zu): mean %6.2f median %6.2f\n",
                   kind.c_str(), shapes, values.size(), mean, middle);
    }
  }
}

int Report::regressions(const std::string& file) const {
  std::ifstream in(file);
  require(in.good(), ErrorCode::io, "bench", "cannot read the baseline ", file);
  std::map<std::string, Json> earlier;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line[0] != '{') continue;
    const Json row = Json::parse(line, nullptr, false);
    require(!row.is_discarded(), ErrorCode::corrupt_file, "bench", "line ", number, " of ", file,
            " is no JSON object");
    earlier[identity(row)] = row;
  }
  int worse = 0, compared = 0;
  for (const Json& row : rows_) {
    const auto found = earlier.find(identity(row));
    if (found == earlier.end()) continue;
    for (const auto& [key, value] : row.items()) {
      if (!is_cost(key) || !value.is_number() || !found->second.contains(key)) continue;
      if (!found->second[key].is_number()) continue;
      const double before = found->second[key].get<double>(), now = value.get<double>();
      ++compared;
      if (!(now > before * kTolerance)) continue;
      ++worse;
      std::fprintf(stderr, "worse: %s %s: %.4g, was %.4g (%+.1f %%)\n", identity(row).c_str(),
                   key.c_str(), now, before, (now / before - 1) * 100);
    }
  }
  std::fprintf(stderr, "%d of %d figures are more than 5 %% worse than in %s\n", worse, compared,
               file.c_str());
  require(compared > 0, ErrorCode::invalid_argument, "bench", "nothing in ", file,
          " has been measured again");
  return worse;
}

int finish(Report& report, const std::string& baseline) {
  const int worse = baseline.empty() ? 0 : report.regressions(baseline);
  if (report.failures() > 0) std::fprintf(stderr, "%d measurements failed\n", report.failures());
  return worse > 0 || report.failures() > 0 ? 1 : 0;
}

double RandomValues::at(int64_t i) const {
  constexpr double kMean = 2 * 65535.0, kDeviation = 37837.2;  // of four uniform 16-bit numbers
  const uint64_t bits = mixed(seed ^ static_cast<uint64_t>(i) * 0xD1342543DE82EF95u);
  const uint64_t total =
      (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  const auto value = static_cast<float>(scale * (static_cast<double>(total) - kMean) / kDeviation);
  return dtype == DType::bf16 ? BFloat16::from_float(value).to_float() : value;
}

RandomTensor random_tensor(Context& context, const Shape& shape, DType dtype, double scale) {
  const RandomValues values{next_seed(), scale, dtype};
  return {dtype == DType::bf16 ? upload_values<BFloat16>(context, shape, values)
                               : upload_values<float>(context, shape, values),
          values};
}

std::vector<int32_t> random_labels(int64_t count, int64_t limit) {
  const uint64_t seed = next_seed();
  std::vector<int32_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < labels.size(); ++i)
    labels[i] = static_cast<int32_t>(mixed(seed ^ i) % static_cast<uint64_t>(limit));
  return labels;
}

void parallel_rows(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  const int64_t threads =
      std::clamp<int64_t>(std::thread::hardware_concurrency(), 1, std::max<int64_t>(1, count));
  std::vector<std::thread> workers;
  for (int64_t t = 1; t < threads; ++t)
    workers.emplace_back([&, t] { body(count * t / threads, count * (t + 1) / threads); });
  body(0, count / threads);
  for (std::thread& worker : workers) worker.join();
}

void ErrorMeter::add(double value, double reference) {
  const double difference = std::abs(value - reference);
  if (!(difference <= difference_) && !std::isnan(difference_)) difference_ = difference;
  magnitude_ = std::max(magnitude_, std::abs(reference));
}

double ErrorMeter::relative() const {
  return difference_ / std::max(magnitude_, 1e-300);
}

std::vector<double> read_values(Context& context, const Tensor& tensor, int64_t begin,
                                int64_t count) {
  const Tensor part = tensor.as_strided({count}, {1}, tensor.offset() + begin);
  if (part.dtype() == DType::bf16) return read_as<BFloat16>(context, part);
  return read_as<float>(context, part);
}

std::vector<int64_t> spread(int64_t limit, int64_t count) {
  const int64_t taken = std::min(limit, count);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < taken; ++i)
    numbers.push_back(taken > 1 ? i * (limit - 1) / (taken - 1) : 0);
  return numbers;
}

int run_program(const char* name, int (*run)(int, char**), int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
    return 1;
  }
}

}  // namespace trafo::bench
