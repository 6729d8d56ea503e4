// The configuration of a model of a few thousand weights.
#pragma once

#include "trafo.h"

// The vocabulary is left to be set.
static inline trafo_error* tiny_config(trafo_model_config* config) {
  trafo_error* error = trafo_model_config_init(config, sizeof *config);
  config->encoder_layers = config->decoder_layers = 1;
  config->width = config->ffn_width = 16;
  config->heads = 2;
  config->max_positions = 32;
  return error;
}
