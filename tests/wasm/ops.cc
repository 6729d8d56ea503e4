// Prints a hash of the result of each op and one of its gradients: the bits of two systems are
// compared line by line.
//
//   ops [narrow]     narrow: with the vectors of WebAssembly, which have 128 bits and no fused
//   multiply-add
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "trafo.h"
#ifndef __EMSCRIPTEN__
#include "hwy/highway.h"
#endif

namespace {

using Shape = std::vector<int64_t>;

trafo_context* context;
uint32_t random_state;

void must(trafo_error* error) {
  if (error == nullptr) return;
  std::fprintf(stderr, "ops: %s\n", trafo_error_message(error));
  std::exit(1);
}

float random_float() {  // -2 to 2
  random_state = random_state * 1664525u + 1013904223u;
  return static_cast<float>(static_cast<int32_t>(random_state)) * 0x1p-30f;
}

int64_t elements(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

trafo_tensor* tensor(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(elements(shape)));
  for (float& value : values) value = random_float();
  trafo_tensor* out = nullptr;
  must(trafo_tensor_new(context, TRAFO_FLOAT32, shape.data(), static_cast<int32_t>(shape.size()),
                        values.data(), values.size() * sizeof(float), &out));
  return out;
}

trafo_tensor* ids(const std::vector<int32_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  trafo_tensor* out = nullptr;
  must(trafo_tensor_new(context, TRAFO_INT32, &count, 1, values.data(),
                        values.size() * sizeof(int32_t), &out));
  return out;
}

Shape shape_of(const trafo_tensor* of) {
  Shape shape(8);
  int32_t rank = 0;
  must(trafo_tensor_get_shape(of, shape.data(), 8, &rank));
  shape.resize(static_cast<size_t>(rank));
  return shape;
}

uint64_t hash_of(const trafo_tensor* of, uint64_t hash = 14695981039346656037u) {
  std::vector<unsigned char> bytes(static_cast<size_t>(elements(shape_of(of))) * sizeof(float));
  must(trafo_tensor_read(of, bytes.data(), bytes.size()));
  for (const unsigned char byte : bytes) hash = (hash ^ byte) * 1099511628211u;
  return hash;
}

using Inputs = std::vector<trafo_tensor*>;
using Op = std::function<trafo_error*(const Inputs&, trafo_tensor**)>;

void check(const char* name, const std::vector<Shape>& shapes, const Op& op) {
  random_state = 1;
  Inputs inputs;
  for (const Shape& shape : shapes) {
    inputs.push_back(tensor(shape));
    must(trafo_tensor_set_requires_grad(inputs.back(), 1));
  }
  trafo_tensor* out = nullptr;
  must(op(inputs, &out));
  trafo_tensor* upstream = tensor(shape_of(out));
  must(trafo_backward(context, out, upstream));
  uint64_t gradients = 0;
  for (trafo_tensor* input : inputs) {
    trafo_tensor* gradient = nullptr;
    must(trafo_tensor_get_grad(input, &gradient));
    gradients = hash_of(gradient, gradients);
    trafo_tensor_free(gradient);
    trafo_tensor_free(input);
  }
  std::printf("%-24s %016llx %016llx\n", name, static_cast<unsigned long long>(hash_of(out)),
              static_cast<unsigned long long>(gradients));
  trafo_tensor_free(upstream);
  trafo_tensor_free(out);
}

void check_elementwise() {
  const std::vector<Shape> two = {{7, 37}, {7, 37}}, one = {{7, 37}};
  check("add", two,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_add(context, x[0], x[1], out); });
  check("multiply", two, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_multiply(context, x[0], x[1], out);
  });
  check("divide", two, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_divide(context, x[0], x[1], out);
  });
  check("exp", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_exp(context, x[0], out); });
  check("tanh", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_tanh(context, x[0], out); });
  check("sigmoid", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_sigmoid(context, x[0], out); });
  check("sin", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_sin(context, x[0], out); });
  check("erf", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_erf(context, x[0], out); });
  for (const int32_t kind : {TRAFO_RELU, TRAFO_GELU, TRAFO_SILU, TRAFO_GELU_ERF})
    check(("activation " + std::to_string(kind)).c_str(), one,
          [&](const Inputs& x, trafo_tensor** out) {
            return trafo_op_activation(context, x[0], kind, out);
          });
  check("swiglu", {{7, 74}},
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_swiglu(context, x[0], out); });
}

void check_reductions() {
  const std::vector<Shape> one = {{9, 61}};
  check("sum", one,
        [](const Inputs& x, trafo_tensor** out) { return trafo_op_sum(context, x[0], out); });
  check("sum_dim of rows", one, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_sum_dim(context, x[0], 1, 0, out);
  });
  check("sum_dim of columns", one, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_sum_dim(context, x[0], 0, 0, out);
  });
  check("max_dim", one, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_max_dim(context, x[0], 1, 0, out);
  });
  check("softmax", one, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_softmax(context, x[0], 0.5, 0, nullptr, out);
  });
  check("layer_norm", {{9, 61}, {61}, {61}}, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_layer_norm(context, x[0], x[1], x[2], 1e-5, out);
  });
  check("rms_norm", {{9, 61}, {61}}, [](const Inputs& x, trafo_tensor** out) {
    return trafo_op_rms_norm(context, x[0], x[1], 1e-5, out);
  });
}

void check_products() {
  for (const int64_t rows : {int64_t{3}, int64_t{70}})
    for (const int transposed : {0, 1, 2, 3}) {
      const Shape a = transposed & 1 ? Shape{50, rows} : Shape{rows, 50};
      const Shape b = transposed & 2 ? Shape{45, 50} : Shape{50, 45};
      const std::string name =
          "matmul " + std::to_string(rows) + " rows " + std::to_string(transposed);
      check(name.c_str(), {a, b}, [&](const Inputs& x, trafo_tensor** out) {
        return trafo_op_matmul(context, x[0], x[1], transposed & 1, transposed >> 1, out);
      });
    }
  trafo_tensor* ends = ids({0, 5, 19});
  trafo_attention_options options;
  must(trafo_attention_options_init(&options, sizeof options));
  options.heads = 2;
  options.head_dim = 12;
  check("attention", {{19, 24}, {19, 24}, {19, 24}}, [&](const Inputs& x, trafo_tensor** out) {
    return trafo_op_attention(context, x[0], x[1], x[2], ends, ends, &options, out);
  });
  trafo_tensor_free(ends);
  trafo_tensor* labels = ids({3, 0, 29, 17, 8});
  check("cross_entropy", {{5, 30}}, [&](const Inputs& x, trafo_tensor** out) {
    return trafo_op_cross_entropy(context, x[0], labels, nullptr, out, nullptr);
  });
  check("embedding", {{30, 24}}, [&](const Inputs& x, trafo_tensor** out) {
    return trafo_op_embedding(context, labels, x[0], nullptr, out);
  });
  trafo_tensor_free(labels);
}

}  // namespace

int main(int count, char** arguments) {
#ifndef __EMSCRIPTEN__
  if (count == 2 && std::strcmp(arguments[1], "narrow") == 0)
    hwy::DisableTargets(~int64_t{HWY_SSE4 | HWY_SSSE3});
#else
  static_cast<void>(count), static_cast<void>(arguments);
#endif
  trafo_context_options options;
  must(trafo_context_options_init(&options, sizeof options));
  options.threads = 1;
  must(trafo_context_new(&options, &context));
  check_elementwise();
  check_reductions();
  check_products();
  trafo_context_free(context);
  return 0;
}
