// Common parts of the benchmark programs: timing, random inputs that can be recomputed anywhere,
// rows of figures.
//
// A row is a flat JSON object: what was measured (section, dtype, shape, ...) and figures. Keys
// that end in _us or ms are times, keys that end in _MiB memory: smaller is better. Everything else
// that is a number is derived from them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/runtime/context.h"

namespace trafo::bench {

using Json = nlohmann::ordered_json;

// --- command line ---
// INVALID_ARGUMENT for another text than "cpu", "cuda" or "cuda:N".
Device parse_device(const std::string& text);
// "f32,bf16"
std::vector<DType> parse_dtypes(const std::string& text);

// --- rows ---
class Report {
 public:
  // Prints the row on stdout and keeps it.
  void add(Json row);
  // Collects reference / fused of one kind; `full`: the shape fills the device.
  void add_ratio(const std::string& kind, bool full, double ratio);
  // Geometric mean and median of the ratios of every kind, as rows and in words.
  void print_ratios();
  void add_failure() { ++failures_; }
  int failures() const { return failures_; }
  // Against rows of an earlier run in `file`: prints what takes more than 5 % more time or memory
  // and returns how many figures do. Throws IO or CORRUPT_FILE.
  int regressions(const std::string& file) const;

 private:
  struct Ratios {
    std::vector<double> all, full;
  };
  std::vector<Json> rows_;
  std::map<std::string, Ratios> ratios_;
  int failures_ = 0;
};

// Prints what got slower and returns the exit status of the program.
int finish(Report& report, const std::string& baseline);

// --- random inputs ---
// A long array that is a function of its seed: about standard normal (the sum of four uniform
// numbers) times `scale`, rounded to `dtype`.
struct RandomValues {
  uint64_t seed = 0;
  double scale = 1;
  DType dtype = DType::f32;
  double at(int64_t i) const;
};

struct RandomTensor {
  Tensor tensor;
  RandomValues values;
  double at(int64_t i) const { return values.at(i); }  // what tensor holds at flat index i
};

// Another seed in every call.
RandomTensor random_tensor(Context& context, const Shape& shape, DType dtype, double scale = 1);
// Numbers from 0 to limit - 1, on the host.
std::vector<int32_t> random_labels(int64_t count, int64_t limit);

// Runs body(begin, end) over [0, count) on every core of the host.
void parallel_rows(int64_t count, const std::function<void(int64_t, int64_t)>& body);

// --- error against float64 ---
class ErrorMeter {
 public:
  void add(double value, double reference);
  // The largest difference, relative to the largest reference; NaN if there was one.
  double relative() const;

 private:
  double difference_ = 0, magnitude_ = 0;
};

// Elements [begin, begin + count) of a contiguous tensor.
std::vector<double> read_values(Context& context, const Tensor& tensor, int64_t begin,
                                int64_t count);
// At most `count` numbers spread over [0, limit), the first and the last among them.
std::vector<int64_t> spread(int64_t limit, int64_t count);

// The main() of a benchmark: an Error ends it with exit status 1.
int run_program(const char* name, int (*run)(int, char**), int argc, char** argv);

// --- timing ---
struct Sampling {
  int samples = 5;
  int max_calls = 50;       // back to back between two synchronisations
  double sample_us = 40e3;  // slow calls: fewer of them
  int64_t graph_bytes = 0;  // that recorded graphs may hold
};

Sampling sampling_for(const Context& context, bool quick);

double median(std::vector<double> values);
double geometric_mean(const std::vector<double>& values);

// Microseconds a call of `body`: warm-up, then the median over samples.
double time_calls(Context& context, const Sampling& sampling, const std::function<void()>& body);
// The same with nothing recorded.
double time_forward(Context& context, const Sampling& sampling, const std::function<void()>& body);

struct BackwardTiming {
  double us = 0;   // of one graph
  int graphs = 0;  // between two synchronisations
};
// Backward alone: `record` records one forward and returns its roots; `upstream` are their
// gradients. As many graphs as fit are recorded first, then walked in one go.
BackwardTiming time_backward(Context& context, const Sampling& sampling,
                             const std::function<std::vector<Tensor>()>& record,
                             const std::vector<Tensor>& upstream);

// A leaf whose gradient lands in `gradient`; every graph needs separate leaves.
Tensor make_leaf(const Tensor& value, const Tensor& gradient);

}  // namespace trafo::bench
