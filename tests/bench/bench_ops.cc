// Ops, forward and backward: time, bandwidth or operations a second, error against float64, and the
// same function made of simpler ops.
//
//   bench_ops [--device cpu|cuda|cuda:N] [--dtype f32,bf16] [--threads N] [--baseline FILE]
//             [--no-reference] [--quick] [SECTION ...]
//
// Sections: softmax layernorm dropout cross_entropy attention flce seed gemm weight_gradients adamw
// llama fp8 coded_rows; default: all. A JSON object a row on stdout, a table on stderr. Shapes
// match the PyTorch comparison script; the shapes of `seed` match the assignment that this project
// grew from.
// --baseline FILE (rows of an earlier run): says what got more than 5 % slower, and the exit status
// is then 1. Times are medians of samples of calls back to back; on a device the host waits before
// and after a sample only. Backward is timed alone, over graphs that are recorded before. --quick:
// small shapes, few samples.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/ops/op_kernel.h"
#include "tests/bench/op_sections.h"

namespace trafo::bench {
namespace {

struct Section {
  const char* name;
  void (*run)(OpBench&);
};

constexpr Section kSections[] = {
    {"softmax", bench_softmax},
    {"layernorm", bench_layer_norm},
    {"dropout", bench_dropout},
    {"cross_entropy", bench_cross_entropy},
    {"attention", bench_attention},
    {"flce", bench_linear_cross_entropy},
    {"seed", bench_seed},
    {"gemm", bench_gemms},
    {"weight_gradients", bench_weight_gradients},
    {"adamw", bench_adamw},
    {"llama", bench_llama},
    {"fp8", bench_fp8},
    {"coded_rows", bench_coded_rows},
};

constexpr const char* kUsage =
    "usage: bench_ops [--device cpu|cuda|cuda:N] [--dtype f32,bf16] [--threads N] [--baseline FILE]"
    " [--no-reference] [--quick] [SECTION ...]\n"
    "sections: softmax layernorm dropout cross_entropy attention flce seed gemm weight_gradients"
    " adamw llama fp8 coded_rows\n";

std::string number(const Json& row, const char* key, const char* format) {
  if (!row.contains(key) || !row[key].is_number()) return "-";
  char text[32];
  std::snprintf(text, sizeof text, format, row[key].get<double>());
  return text;
}

void print_table_row(const Json& row) {
  static std::string section;
  if (row["sec"] != section) {
    section = row["sec"];
    std::fprintf(stderr, "\n%-28s %-8s %-20s %10s %10s %7s %7s %7s %7s %8s %8s\n", section.c_str(),
                 "dtype", "shape", "fw us", "bw us", "fw", "bw", "fw x", "bw x", "error",
                 "gradient");
  }
  std::string name = row.contains("op") ? row["op"] : row["sec"];
  if (row.value("causal", false)) name += " causal";
  if (row.contains("window")) name += concat(" window ", row["window"].get<int64_t>());
  const bool flops = row.contains("fw_TF") || row.contains("bw_TF");
  std::fprintf(stderr, "%-28s %-8s %-20s %10s %10s %7s %7s %7s %7s %8s %8s\n", name.c_str(),
               row["dt"].get<std::string>().c_str(), row["shape"].dump().c_str(),
               number(row, "fw_us", "%.1f").c_str(), number(row, "bw_us", "%.1f").c_str(),
               number(row, flops ? "fw_TF" : "fw_GBps", "%.1f").c_str(),
               number(row, flops ? "bw_TF" : "bw_GBps", "%.1f").c_str(),
               number(row, "fw_ratio", "%.2f").c_str(), number(row, "bw_ratio", "%.2f").c_str(),
               number(row, "error", "%.1e").c_str(), number(row, "grad_error", "%.1e").c_str());
}

Json shape_json(const Shape& shape) {
  return std::vector<int64_t>(shape.begin(), shape.end());
}

}  // namespace

bool OpBench::takes(const char* section, const Shape& shape, double elements,
                    double operations) const {
  const double most_elements = quick ? 1 << 21 : on_cpu() ? 1 << 27 : 1e18;
  const double most_operations = quick ? 2e9 : on_cpu() ? 3e10 : 1e18;
  if (elements <= most_elements && operations <= most_operations) return true;
  std::fprintf(stderr, "%s %s left out: too large for %s\n", section, shape.str().c_str(),
               quick ? "--quick" : "a CPU");
  return false;
}

void guarded(OpBench& bench, const Json& identity, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    Json row = identity;
    row["err"] = error.what();
    bench.report.add(row);
    bench.report.add_failure();
    std::fprintf(stderr, "%s: %s\n", identity.dump().c_str(), error.what());
  }
  bench.context.backend().release_cached_memory();
}

void measure(OpBench& bench, const OpRun& run) {
  Json row;
  row["sec"] = run.section;
  if (!run.op.empty()) row["op"] = run.op;
  row["dt"] = dtype_name(run.dtype);
  row["shape"] = shape_json(run.shape);
  for (const auto& [key, value] : run.extra.items()) row[key] = value;
  row["device"] = device_name(bench.context.device());
  if (bench.on_cpu()) row["threads"] = bench.context.backend().threads();
  guarded(bench, row, [&] {
    Context& context = bench.context;
    if (run.forward) row["fw_us"] = time_forward(context, bench.sampling, run.forward);
    if (run.record) {
      const BackwardTiming timing =
          time_backward(context, bench.sampling, run.record, run.upstream);
      row["bw_us"] = timing.us;
      row["bw_graphs"] = timing.graphs;
    }
    const auto rate = [&](const char* key, const char* time, double amount, double unit) {
      if (amount > 0 && row.contains(time)) row[key] = amount / row[time].get<double>() / unit;
    };
    rate("fw_GBps", "fw_us", run.forward_bytes, 1e3);
    rate("bw_GBps", "bw_us", run.backward_bytes, 1e3);
    rate("fw_TF", "fw_us", run.forward_operations, 1e6);
    rate("bw_TF", "bw_us", run.backward_operations, 1e6);
    if (run.forward && run.record)
      row["fwbw_us"] = row["fw_us"].get<double>() + row["bw_us"].get<double>();
    ErrorMeter forward_error, backward_error;
    run.check(forward_error, backward_error);
    for (const auto& [key, value] : run.extra.items()) row[key] = value;  // check may add to it
    if (run.forward) row["error"] = forward_error.relative();
    if (run.record) row["grad_error"] = backward_error.relative();

    const std::string kind = (run.op.empty() ? run.section : run.op) + " " + dtype_name(run.dtype);
    const auto compare = [&](const char* pass, double reference) {
      const std::string name = pass;
      row["reference_" + name + "_us"] = reference;
      const double ratio = reference / row[name + "_us"].get<double>();
      row[name + "_ratio"] = ratio;
      bench.report.add_ratio((run.section == "seed" ? "seed " : "") + kind + " " + name, run.full,
                             ratio);
    };
    if (bench.reference && run.reference_forward)
      compare("fw", time_forward(context, bench.sampling, run.reference_forward));
    if (bench.reference && run.reference_record)
      compare("bw", time_backward(context, bench.sampling, run.reference_record, run.upstream).us);
    print_table_row(row);
    bench.report.add(row);
  });
}

namespace {

int run(int argc, char** argv) {
  Device device;
  int threads = 1;
  bool quick = false, reference = true;
  std::vector<DType> dtypes;
  std::string baseline;
  std::vector<const Section*> sections;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--device" && has_value) {
      device = parse_device(argv[++i]);
    } else if (word == "--dtype" && has_value) {
      dtypes = parse_dtypes(argv[++i]);
    } else if (word == "--threads" && has_value) {
      threads = std::atoi(argv[++i]);
    } else if (word == "--baseline" && has_value) {
      baseline = argv[++i];
    } else if (word == "--no-reference") {
      reference = false;
    } else if (word == "--quick") {
      quick = true;
    } else {
      const Section* found = nullptr;
      for (const Section& section : kSections)
        if (word == section.name) found = &section;
      if (!found) {
        std::fprintf(stderr, "bench_ops: unknown argument %s\n%s", word.c_str(), kUsage);
        return 2;
      }
      sections.push_back(found);
    }
  }
  if (threads < 1) {
    std::fprintf(stderr, "bench_ops: --threads must be at least 1\n%s", kUsage);
    return 2;
  }
  if (sections.empty())
    for (const Section& section : kSections) sections.push_back(&section);
  const auto context = make_context(device, threads);
  Report report;
  OpBench bench{*context, report, sampling_for(*context, quick), dtypes, quick, reference};
  for (const Section* section : sections) section->run(bench);
  report.print_ratios();
  return finish(report, baseline);
}

}  // namespace
}  // namespace trafo::bench

int main(int argc, char** argv) {
  return trafo::bench::run_program("bench_ops", &trafo::bench::run, argc, argv);
}
