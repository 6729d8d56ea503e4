// The graphs of each architecture, with the names of inputs and outputs that optimum gives them.
#pragma once

#include <string>
#include <vector>

#include "engine/formats/onnx/onnx_graph.h"

namespace trafo::interop {

struct OnnxFile {
  std::string name;  // "encoder_model.onnx"
  OnnxGraph graph;
};

// encoder_model.onnx, decoder_model.onnx (the first tokens) and decoder_with_past_model.onnx (the
// tokens after them).
std::vector<OnnxFile> encoder_decoder_graphs(const HostModel& host, OnnxWeights& weights);
// model.onnx, with the keys and values of earlier tokens as inputs, of length 0 at first.
std::vector<OnnxFile> decoder_lm_graphs(const HostModel& host, OnnxWeights& weights);

}  // namespace trafo::interop
