/* Written by scripts/generate_options.py from schema/model.toml: change that. Include trafo.h. */
#ifndef TRAFO_GENERATED_MODEL_CONFIG_H
#define TRAFO_GENERATED_MODEL_CONFIG_H

/* Kinds of models. */
#define TRAFO_ENCODER_DECODER 0 /* Encoder and decoder with cross-attention. */
#define TRAFO_DECODER_LM      1 /* `source <eos> target <eos>` in one causal stream. */
/* A bidirectional stream of one text, or of two, with a head for labels or masked tokens, as BERT. */
#define TRAFO_ENCODER         2

/* The norm of a model. */
#define TRAFO_NORM_LAYER 0 /* Layer norm. */
#define TRAFO_NORM_RMS   1 /* RMS norm, without biases. */

/* How a model knows the position of a token. */
#define TRAFO_POSITIONS_STANDARD 0 /* Sinusoidal (encoder-decoder) or learned (decoder-lm). */
#define TRAFO_POSITIONS_ROTARY   1 /* Rotary position embedding of queries and keys. A decoder-lm only. */

/* The feed-forward blocks of a model. */
#define TRAFO_FFN_PLAIN  0 /* Two linear layers with an activation between them. */
#define TRAFO_FFN_SWIGLU 1 /* A gated unit with SiLU. */
#define TRAFO_FFN_GEGLU  2 /* A gated unit with the tanh form of GELU, as in Gemma and T5 1.1. */

/* The norm of queries and keys of self-attention. */
#define TRAFO_QK_NORM_NONE              0 /* There is none. */
/* RMS norm of each head before the rotary positions, with one vector of weights for queries and one for keys, as in Qwen3. A
 * decoder-lm only. */
#define TRAFO_QK_NORM_HEAD              1
#define TRAFO_QK_NORM_HEAD_AFTER_ROTARY 2 /* The same after the rotary positions, as in Hunyuan. */
/* RMS norm of all queries and of all keys of a token before the rotary positions, as in OLMo 2. A decoder-lm only. */
#define TRAFO_QK_NORM_WHOLE             3

/* How rotary positions are stretched from a number of original positions. */
#define TRAFO_ROPE_SCALING_LLAMA3 0 /* By the turns of a pair in the original positions, as in Llama 3.1. */
/* By the number of a pair, and queries and keys grow (YaRN, Peng et al., arXiv 2309.00071). */
#define TRAFO_ROPE_SCALING_YARN   1

/* The classes of transformers that an encoder is imported from and exported to. The first three compute the same. The names of their weights and the first position differ. */
#define TRAFO_ENCODER_CLASS_BERT        0 /* BertModel and its heads. */
#define TRAFO_ENCODER_CLASS_ROBERTA     1 /* RobertaModel and its heads. */
#define TRAFO_ENCODER_CLASS_XLM_ROBERTA 2 /* XLMRobertaModel and its heads. */
/* ModernBertModel and its heads: pre-norm, rotary positions, gated feed-forward blocks, a window in most layers. */
#define TRAFO_ENCODER_CLASS_MODERNBERT  3

/* Layers on top of the hidden states of an encoder. */
#define TRAFO_ENCODER_HEAD_NONE      0 /* Nothing. */
#define TRAFO_ENCODER_HEAD_MASKED_LM 1 /* Logits over the vocabulary, one row for each token. */
#define TRAFO_ENCODER_HEAD_SEQUENCE  2 /* Logits over the labels, one row for each text. */
#define TRAFO_ENCODER_HEAD_TOKEN     3 /* Logits over the labels, one row for each token. */

/* Formats of the frozen matrices of linear layers in a model that trains an adapter (QLoRA, Dettmers et al., arXiv 2305.14314). */
#define TRAFO_BASE_PRECISION_NONE 0 /* Floating point, as the other parameters. */
/* NormalFloat in 4 bits, in blocks of 64 with scales in 8 bits (double quantization); 4.13 bits a weight. */
#define TRAFO_BASE_PRECISION_NF4  1
#define TRAFO_BASE_PRECISION_INT8 2 /* Integers in 8 bits with a scale for each row. */
#define TRAFO_BASE_PRECISION_INT4 3 /* Integers in 4 bits with a float16 scale for 32 columns of a row; 4.5 bits a weight. */

typedef struct trafo_model_config {
  size_t struct_size;
  int64_t vocabulary; /* Tokens of the vocabulary. It must be set. */
  int64_t encoder_layers; /* Layers of the encoder. A decoder-lm has none and ignores it. Default 6. */
  int64_t decoder_layers; /* Layers of the decoder. Default 6. */
  int64_t width; /* Width of the residual stream: an even multiple of heads. Default 512. */
  int64_t ffn_width; /* Width inside the feed-forward layers. Default 2048. */
  int64_t heads; /* Attention heads. Default 8. */
  int64_t max_positions; /* Longest sequence that either side may have, in tokens. Default 1024. */
  double dropout; /* Dropout of the embeddings and of the output of every block. Default 0.1. */
  double attention_dropout; /* Dropout of attention probabilities. Default 0. */
  double ffn_dropout; /* Dropout after the activation of the feed-forward layers. Default 0. */
  double norm_epsilon; /* Epsilon of the norms. Default 1e-5. */
  /* Heads of keys and values (grouped-query attention), with rotary positions. Default 0: as many as heads. */
  int64_t kv_heads;
  double rope_theta; /* Base of the angles of rotary positions. Default 10000. */
  /* Width of an attention head. A model whose heads were pruned has it, and one with rotary positions may. Default 0: width /
   * heads. */
  int64_t head_width;
  /* The angles of rotary positions are divided by it, all of them or, with rope_original_positions, the slow ones. Default 1.
   * */
  double rope_factor;
  /* Positions that a model was trained with before rope_factor (Llama 3.1): the factor divides the angles of pairs that turn
   * fewer than rope_low_turns times in them. It divides the angles of pairs of more turns less and less. Default 0: rope_factor
   * divides all angles. */
  int64_t rope_original_positions;
  /* Turns in rope_original_positions positions up to which rope_factor divides an angle whole. Default 1. */
  double rope_low_turns;
  /* Turns in rope_original_positions positions from which on rope_factor does not change an angle; above rope_low_turns.
   * Default 4. */
  double rope_high_turns;
  /* Width inside the feed-forward layers of the encoder, where pruning left it another one than the decoder has. Default 0:
   * ffn_width. */
  int64_t encoder_ffn_width;
  /* Attention heads of the encoder, where pruning left it another number than the decoder has. With head_width. Default 0:
   * heads. */
  int64_t encoder_heads;
  /* Which layers of the decoder share their parameters: a number from 1 to decoder_layers for each layer, and layers with the
   * same number share. For up to 32 layers. Default: none are shared. 0 ends the list. */
  uint8_t decoder_tied_layers[32];
  /* The same for the layers of the encoder and encoder_layers. Default: none are shared. 0 ends the list. */
  uint8_t encoder_tied_layers[32];
  /* Factor of rotated queries and keys with the rope_scaling yarn; other models have none. Default 0: 0.1 ln(rope_factor) + 1.
   * */
  double rope_magnitude;
  /* The layers whose number, from 1, is a multiple of it have no rotary positions (SmolLM3: 4). Default 0: all layers have
   * them. */
  int64_t no_rope_interval;
  /* Factor of the embeddings of a decoder-lm (Granite), or of a model with learned_positions or relative_buckets. Default 0: 1,
   * in an encoder-decoder the root of width. */
  double embedding_scale;
  /* Factor of the scores of attention in a decoder-lm (Granite), or with relative_buckets (T5: 1). Default 0: 1 / the root of
   * head_width. */
  double attention_scale;
  /* Factor of the output of each block before the residual connection adds it, in a decoder-lm with RMS norm (Granite). Default
   * 1. */
  double residual_scale;
  /* The logits of a decoder-lm are divided by it (Granite), or with relative_buckets (T5: the root of width). The last hidden
   * states are divided, too. Default 1. */
  double logits_divisor;
  /* Tokens that a token of a decoder-lm attends to at most, itself included, as in Mistral 7B v0.1. In an encoder it attends to
   * as many on either side (ModernBERT: 65). Default 0: all. */
  int64_t sliding_window;
  /* The layers whose number, from 1, is a multiple of it attend to all tokens before, without sliding_window (Gemma 2: 2, Gemma
   * 3: 6). In an encoder the first layer and every such one after it do (ModernBERT: 3). Default 0: all layers have the window.
   * */
  int64_t full_attention_interval;
  /* Base of the angles of rotary positions in the layers with sliding_window, where rope_factor does not divide them (Gemma 3,
   * ModernBERT). Default 0: the angles of the other layers. */
  double rope_local_theta;
  /* A scaled score s of attention in a decoder-lm becomes c tanh(s / c), c being the number (Gemma 2: 50). Default 0: none. */
  double attention_soft_cap;
  /* A logit z of a decoder-lm becomes c tanh(z / c), c being the number (Gemma 2: 30). Default 0: none. */
  double logits_soft_cap;
  /* Buckets of distances of an encoder-decoder with relative position biases, as in T5: each stack learns a bias of attention
   * scores for each bucket and head, which its layers share, and has no other positions. Such a model may have RMS norm, no
   * biases, a gated ffn, embedding_scale, attention_scale and logits_divisor. Default 0: none. */
  int64_t relative_buckets;
  /* Distance in tokens from which on all keys have the last bucket, with relative_buckets; above half of them. Default 128. */
  int64_t relative_distance;
  int64_t labels; /* Labels of an encoder with a head for texts or tokens. Default 0. */
  /* Rows of the table of token types of an encoder. The first row is added to the embeddings of a text, the second one to the
   * embeddings of the second text of a pair. 0: no table. Default 0. */
  int64_t token_types;
  double classifier_dropout; /* Dropout of the vectors that the classifier of an encoder reads. Default 0. */
  /* Rotated queries of a token at position p, from 0, are multiplied by 1 + c ln(1 + floor(p / rope_original_positions)), c
   * being the number (Ministral 3: 0.1). Default 0: none. */
  double rope_query_growth;
  /* Tokens of the vocabulary of sources, if it is another one than that of targets. vocabulary is then of targets, sources have
   * their own embedding matrix, and tied_embeddings is about target and output. Default 0: sources have the vocabulary of
   * targets. */
  int64_t source_vocabulary;
  int32_t architecture; /* Kind of model. Default TRAFO_ENCODER_DECODER. */
  int32_t activation; /* Activation of the feed-forward layers. Default TRAFO_RELU. */
  int32_t pre_norm; /* 1: the norm precedes each block instead of following it. Default 1. */
  /* 1: source, target and output share one embedding matrix. Otherwise there are three, two in a decoder-lm. Default 1. */
  int32_t tied_embeddings;
  /* TRAFO_NORM_*. Norm of a decoder-lm, or with relative_buckets; other encoder-decoders have layer norm. Default
   * TRAFO_NORM_LAYER. */
  int32_t norm;
  /* TRAFO_POSITIONS_*. Positions of a decoder-lm or of an encoder of the encoder_class modernbert. Default
   * TRAFO_POSITIONS_STANDARD. */
  int32_t positions;
  /* 1: an encoder-decoder has the sinusoidal positions of fairseq, M2M100 and NLLB-200: the first one is 2, and the lowest
   * frequency is 1/10000. Default 0. */
  int32_t fairseq_positions;
  /* 1: both stacks of an encoder-decoder have learned positions, and a norm of the embeddings with their positions, as in
   * mBART. Default 0. */
  int32_t learned_positions;
  /* TRAFO_FFN_*. Feed-forward blocks of a decoder-lm or an encoder (modernbert), or with relative_buckets. Default
   * TRAFO_FFN_PLAIN. */
  int32_t ffn;
  /* 1: all linear layers have biases. A model with RMS norm may have qkv_biases, attention_output_bias and ffn_biases instead.
   * Default 1. */
  int32_t biases;
  /* 1: the initial weights of layer l are divided by the root of l (Zhang et al., arXiv 1908.11365). Deep models begin better.
   * Default 0. */
  int32_t depth_scaled_init;
  int32_t output_bias; /* 1: the output layer has a bias, in a model with biases or an encoder. GPT-2 has none. Default 1. */
  /* 1: queries, keys and values have biases in a model that has no others (biases is 0), as in Qwen2. Default 0. */
  int32_t qkv_biases;
  int32_t attention_output_bias; /* 1: the output of an attention has a bias in a model without biases. Default 0. */
  int32_t ffn_biases; /* 1: the feed-forward layers have biases in a model without biases. Default 0. */
  int32_t qk_norm; /* TRAFO_QK_NORM_*. Norm of queries and keys in a decoder-lm. Default TRAFO_QK_NORM_NONE. */
  /* TRAFO_ROPE_SCALING_*. How rope_factor divides the angles of a model with rope_original_positions. With yarn, the first pair
   * whose angle it divides is the one of rope_high_turns turns (usual: 32), and from the pair of rope_low_turns turns on it
   * divides them whole. Default TRAFO_ROPE_SCALING_LLAMA3. */
  int32_t rope_scaling;
  /* 1: the norm is that of the output of each block, before the residual connection adds it (OLMo 2), in a model with RMS norm
   * and pre_norm. Default 0. */
  int32_t norm_outputs;
  /* 1: the output of each block has a norm, before the residual connection adds it, in addition to the norm of its input
   * (Gemma), in a model with RMS norm and pre_norm. Default 0. */
  int32_t sandwich_norm;
  /* 1: a model with relative_buckets and tied_embeddings has an output matrix that is not the embedding of source and target,
   * as T5 1.1 and mT5 have. Default 0. */
  int32_t separate_output;
  int32_t encoder_class; /* TRAFO_ENCODER_CLASS_*. Class of an encoder that exports write. Default TRAFO_ENCODER_CLASS_BERT. */
  int32_t encoder_head; /* TRAFO_ENCODER_HEAD_*. Head of an encoder. Default TRAFO_ENCODER_HEAD_NONE. */
  /* TRAFO_POOLING_*. Vector of a text that the head of an encoder of the encoder_class modernbert for texts reads. Default
   * TRAFO_POOLING_FIRST. */
  int32_t classifier_pooling;
  /* 1: an encoder without head keeps the pooler, a linear layer of BertModel, which hidden states and embeddings do not go
   * through. A head for texts always has one, but in ModernBERT. Default 0. */
  int32_t pooler;
  /* TRAFO_BASE_PRECISION_*. Format of the matrices of linear layers. Except with `none`, all parameters are frozen until an
   * adapter is added or others are made trainable, and these matrices stay frozen. Embeddings, norms, biases and the output
   * projection keep precision. Default TRAFO_BASE_PRECISION_NONE. */
  int32_t base_precision;
  /* Type of the computation: float32; bfloat16 on CUDA, with float32 master copies of the parameters, which the optimizer works
   * on and files hold; float64 on the CPU, for gradient checks. A float32 model on the CPU can multiply in bfloat16:
   * matmul_precision of trafo_context_options. Not part of the model's file. Default TRAFO_FLOAT32. */
  int32_t precision;
} trafo_model_config;

/* Fills in the defaults. struct_size is the size of the caller's struct. since 0.1 */
TRAFO_API TRAFO_MUST_USE trafo_error *trafo_model_config_init(trafo_model_config *config, size_t struct_size);

#endif /* TRAFO_GENERATED_MODEL_CONFIG_H */
