// Written by scripts/generate_options.py from schema/model.toml: change that.
/// Kinds of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// Encoder and decoder with cross-attention.
    EncoderDecoder,
    /// `source <eos> target <eos>` in one causal stream.
    DecoderLm,
    /// A bidirectional stream of one text, or of two, with a head for labels or masked tokens, as BERT.
    Encoder,
}
impl Architecture {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Architecture::EncoderDecoder => sys::TRAFO_ENCODER_DECODER,
            Architecture::DecoderLm => sys::TRAFO_DECODER_LM,
            Architecture::Encoder => sys::TRAFO_ENCODER,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_DECODER_LM => Architecture::DecoderLm,
            sys::TRAFO_ENCODER => Architecture::Encoder,
            _ => Architecture::EncoderDecoder,
        }
    }
}
named! { Architecture:
    EncoderDecoder = "encoder-decoder" | "encoder_decoder",
    DecoderLm = "decoder-lm" | "decoder_lm",
    Encoder = "encoder",
}
/// The norm of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Norm {
    /// Layer norm.
    Layer,
    /// RMS norm, without biases.
    Rms,
}
impl Norm {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Norm::Layer => sys::TRAFO_NORM_LAYER,
            Norm::Rms => sys::TRAFO_NORM_RMS,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_NORM_RMS => Norm::Rms,
            _ => Norm::Layer,
        }
    }
}
named! { Norm:
    Layer = "layer",
    Rms = "rms",
}
/// How a model knows the position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Positions {
    /// Sinusoidal (encoder-decoder) or learned (decoder-lm).
    Standard,
    /// Rotary position embedding of queries and keys. A decoder-lm only.
    Rotary,
}
impl Positions {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Positions::Standard => sys::TRAFO_POSITIONS_STANDARD,
            Positions::Rotary => sys::TRAFO_POSITIONS_ROTARY,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_POSITIONS_ROTARY => Positions::Rotary,
            _ => Positions::Standard,
        }
    }
}
named! { Positions:
    Standard = "standard",
    Rotary = "rotary",
}
/// The feed-forward blocks of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FeedForward {
    /// Two linear layers with an activation between them.
    Plain,
    /// A gated unit with SiLU.
    Swiglu,
    /// A gated unit with the tanh form of GELU, as in Gemma and T5 1.1.
    Geglu,
}
impl FeedForward {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            FeedForward::Plain => sys::TRAFO_FFN_PLAIN,
            FeedForward::Swiglu => sys::TRAFO_FFN_SWIGLU,
            FeedForward::Geglu => sys::TRAFO_FFN_GEGLU,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_FFN_SWIGLU => FeedForward::Swiglu,
            sys::TRAFO_FFN_GEGLU => FeedForward::Geglu,
            _ => FeedForward::Plain,
        }
    }
}
named! { FeedForward:
    Plain = "plain",
    Swiglu = "swiglu",
    Geglu = "geglu",
}
/// The norm of queries and keys of self-attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum QkNorm {
    /// There is none.
    None,
    /// RMS norm of each head before the rotary positions, with one vector of weights for queries and one for keys, as
    /// in Qwen3. A decoder-lm only.
    Head,
    /// The same after the rotary positions, as in Hunyuan.
    HeadAfterRotary,
    /// RMS norm of all queries and of all keys of a token before the rotary positions, as in OLMo 2. A decoder-lm only.
    Whole,
}
impl QkNorm {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            QkNorm::None => sys::TRAFO_QK_NORM_NONE,
            QkNorm::Head => sys::TRAFO_QK_NORM_HEAD,
            QkNorm::HeadAfterRotary => sys::TRAFO_QK_NORM_HEAD_AFTER_ROTARY,
            QkNorm::Whole => sys::TRAFO_QK_NORM_WHOLE,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_QK_NORM_HEAD => QkNorm::Head,
            sys::TRAFO_QK_NORM_HEAD_AFTER_ROTARY => QkNorm::HeadAfterRotary,
            sys::TRAFO_QK_NORM_WHOLE => QkNorm::Whole,
            _ => QkNorm::None,
        }
    }
}
named! { QkNorm:
    None = "none",
    Head = "head",
    HeadAfterRotary = "head-after-rotary" | "head_after_rotary",
    Whole = "whole",
}
/// How rotary positions are stretched from a number of original positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RopeScaling {
    /// By the turns of a pair in the original positions, as in Llama 3.1.
    Llama3,
    /// By the number of a pair, and queries and keys grow (YaRN, Peng et al., arXiv 2309.00071).
    Yarn,
}
impl RopeScaling {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            RopeScaling::Llama3 => sys::TRAFO_ROPE_SCALING_LLAMA3,
            RopeScaling::Yarn => sys::TRAFO_ROPE_SCALING_YARN,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_ROPE_SCALING_YARN => RopeScaling::Yarn,
            _ => RopeScaling::Llama3,
        }
    }
}
named! { RopeScaling:
    Llama3 = "llama3",
    Yarn = "yarn",
}
/// The classes of transformers that an encoder is imported from and exported to. The first three compute the same. The
/// names of their weights and the first position differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncoderClass {
    /// BertModel and its heads.
    Bert,
    /// RobertaModel and its heads.
    Roberta,
    /// XLMRobertaModel and its heads.
    XlmRoberta,
    /// ModernBertModel and its heads: pre-norm, rotary positions, gated feed-forward blocks, a window in most layers.
    Modernbert,
}
impl EncoderClass {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            EncoderClass::Bert => sys::TRAFO_ENCODER_CLASS_BERT,
            EncoderClass::Roberta => sys::TRAFO_ENCODER_CLASS_ROBERTA,
            EncoderClass::XlmRoberta => sys::TRAFO_ENCODER_CLASS_XLM_ROBERTA,
            EncoderClass::Modernbert => sys::TRAFO_ENCODER_CLASS_MODERNBERT,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_ENCODER_CLASS_ROBERTA => EncoderClass::Roberta,
            sys::TRAFO_ENCODER_CLASS_XLM_ROBERTA => EncoderClass::XlmRoberta,
            sys::TRAFO_ENCODER_CLASS_MODERNBERT => EncoderClass::Modernbert,
            _ => EncoderClass::Bert,
        }
    }
}
named! { EncoderClass:
    Bert = "bert",
    Roberta = "roberta",
    XlmRoberta = "xlm-roberta" | "xlm_roberta",
    Modernbert = "modernbert",
}
/// Layers on top of the hidden states of an encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EncoderHead {
    /// Nothing.
    None,
    /// Logits over the vocabulary, one row for each token.
    MaskedLm,
    /// Logits over the labels, one row for each text.
    Sequence,
    /// Logits over the labels, one row for each token.
    Token,
}
impl EncoderHead {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            EncoderHead::None => sys::TRAFO_ENCODER_HEAD_NONE,
            EncoderHead::MaskedLm => sys::TRAFO_ENCODER_HEAD_MASKED_LM,
            EncoderHead::Sequence => sys::TRAFO_ENCODER_HEAD_SEQUENCE,
            EncoderHead::Token => sys::TRAFO_ENCODER_HEAD_TOKEN,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_ENCODER_HEAD_MASKED_LM => EncoderHead::MaskedLm,
            sys::TRAFO_ENCODER_HEAD_SEQUENCE => EncoderHead::Sequence,
            sys::TRAFO_ENCODER_HEAD_TOKEN => EncoderHead::Token,
            _ => EncoderHead::None,
        }
    }
}
named! { EncoderHead:
    None = "none",
    MaskedLm = "masked-lm" | "masked_lm",
    Sequence = "sequence",
    Token = "token",
}
/// Formats of the frozen matrices of linear layers in a model that trains an adapter (QLoRA, Dettmers et al., arXiv
/// 2305.14314).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BasePrecision {
    /// Floating point, as the other parameters.
    None,
    /// NormalFloat in 4 bits, in blocks of 64 with scales in 8 bits (double quantization); 4.13 bits a weight.
    Nf4,
    /// Integers in 8 bits with a scale for each row.
    Int8,
    /// Integers in 4 bits with a float16 scale for 32 columns of a row; 4.5 bits a weight.
    Int4,
}
impl BasePrecision {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            BasePrecision::None => sys::TRAFO_BASE_PRECISION_NONE,
            BasePrecision::Nf4 => sys::TRAFO_BASE_PRECISION_NF4,
            BasePrecision::Int8 => sys::TRAFO_BASE_PRECISION_INT8,
            BasePrecision::Int4 => sys::TRAFO_BASE_PRECISION_INT4,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_BASE_PRECISION_NF4 => BasePrecision::Nf4,
            sys::TRAFO_BASE_PRECISION_INT8 => BasePrecision::Int8,
            sys::TRAFO_BASE_PRECISION_INT4 => BasePrecision::Int4,
            _ => BasePrecision::None,
        }
    }
}
named! { BasePrecision:
    None = "none",
    Nf4 = "nf4",
    Int8 = "int8",
    Int4 = "int4",
}
model_config! {
    /// Kind of model. Default [`Architecture::EncoderDecoder`].
    architecture: Architecture = Architecture::as_raw, Architecture::from_raw;
    /// Activation of the feed-forward layers. Default [`Activation::Relu`].
    activation: Activation = Activation::as_raw, Activation::from_raw;
    /// Tokens of the vocabulary. It must be set.
    vocabulary: usize = to_count, from_i64;
    /// Layers of the encoder. A decoder-lm has none and ignores it. Default 6.
    encoder_layers: usize = to_count, from_i64;
    /// Layers of the decoder. Default 6.
    decoder_layers: usize = to_count, from_i64;
    /// Width of the residual stream: an even multiple of `heads`. Default 512.
    width: usize = to_count, from_i64;
    /// Width inside the feed-forward layers. Default 2048.
    ffn_width: usize = to_count, from_i64;
    /// Attention heads. Default 8.
    heads: usize = to_count, from_i64;
    /// Longest sequence that either side may have, in tokens. Default 1024.
    max_positions: usize = to_count, from_i64;
    /// Whether the norm precedes each block instead of following it. Default true.
    pre_norm: bool = i32::from, from_flag;
    /// Whether source, target and output share one embedding matrix. Otherwise there are three, two in a decoder-lm.
    /// Default true.
    tied_embeddings: bool = i32::from, from_flag;
    /// Dropout of the embeddings and of the output of every block. Default 0.1.
    dropout: f64 = same, same;
    /// Dropout of attention probabilities. Default 0.
    attention_dropout: f64 = same, same;
    /// Dropout after the activation of the feed-forward layers. Default 0.
    ffn_dropout: f64 = same, same;
    /// Epsilon of the norms. Default 1e-5.
    norm_epsilon: f64 = same, same;
    /// Norm of a decoder-lm, or with `relative_buckets`; other encoder-decoders have layer norm. Default
    /// [`Norm::Layer`].
    norm: Norm = Norm::as_raw, Norm::from_raw;
    /// Positions of a decoder-lm or of an encoder of the `encoder_class` modernbert. Default [`Positions::Standard`].
    positions: Positions = Positions::as_raw, Positions::from_raw;
    /// Whether an encoder-decoder has the sinusoidal positions of fairseq, M2M100 and NLLB-200: the first one is 2, and
    /// the lowest frequency is 1/10000. Default false.
    fairseq_positions: bool = i32::from, from_flag;
    /// Whether both stacks of an encoder-decoder have learned positions, and a norm of the embeddings with their
    /// positions, as in mBART. Default false.
    learned_positions: bool = i32::from, from_flag;
    /// Feed-forward blocks of a decoder-lm or an encoder (modernbert), or with `relative_buckets`. Default
    /// [`FeedForward::Plain`].
    ffn: FeedForward = FeedForward::as_raw, FeedForward::from_raw;
    /// Whether all linear layers have biases. A model with RMS norm may have `qkv_biases`, `attention_output_bias` and
    /// `ffn_biases` instead. Default true.
    biases: bool = i32::from, from_flag;
    /// Heads of keys and values (grouped-query attention), with rotary positions. Default 0: as many as heads.
    kv_heads: usize = to_count, from_i64;
    /// Base of the angles of rotary positions. Default 10000.
    rope_theta: f64 = same, same;
    /// Whether the initial weights of layer l are divided by the root of l (Zhang et al., arXiv 1908.11365). Deep
    /// models begin better. Default false.
    depth_scaled_init: bool = i32::from, from_flag;
    /// Whether the output layer has a bias, in a model with biases or an encoder. GPT-2 has none. Default true.
    output_bias: bool = i32::from, from_flag;
    /// Width of an attention head. A model whose heads were pruned has it, and one with rotary positions may. Default
    /// 0: width / heads.
    head_width: usize = to_count, from_i64;
    /// Whether queries, keys and values have biases in a model that has no others (`biases` is 0), as in Qwen2. Default
    /// false.
    qkv_biases: bool = i32::from, from_flag;
    /// Whether the output of an attention has a bias in a model without `biases`. Default false.
    attention_output_bias: bool = i32::from, from_flag;
    /// Whether the feed-forward layers have biases in a model without `biases`. Default false.
    ffn_biases: bool = i32::from, from_flag;
    /// The angles of rotary positions are divided by it, all of them or, with `rope_original_positions`, the slow ones.
    /// Default 1.
    rope_factor: f64 = same, same;
    /// Positions that a model was trained with before `rope_factor` (Llama 3.1): the factor divides the angles of pairs
    /// that turn fewer than `rope_low_turns` times in them. It divides the angles of pairs of more turns less and less.
    /// Default 0: `rope_factor` divides all angles.
    rope_original_positions: usize = to_count, from_i64;
    /// Turns in `rope_original_positions` positions up to which `rope_factor` divides an angle whole. Default 1.
    rope_low_turns: f64 = same, same;
    /// Turns in `rope_original_positions` positions from which on `rope_factor` does not change an angle; above
    /// `rope_low_turns`. Default 4.
    rope_high_turns: f64 = same, same;
    /// Width inside the feed-forward layers of the encoder, where pruning left it another one than the decoder has.
    /// Default 0: `ffn_width`.
    encoder_ffn_width: usize = to_count, from_i64;
    /// Attention heads of the encoder, where pruning left it another number than the decoder has. With `head_width`.
    /// Default 0: `heads`.
    encoder_heads: usize = to_count, from_i64;
    /// Which layers of the decoder share their parameters: a number from 1 to `decoder_layers` for each layer, and
    /// layers with the same number share. For up to 32 layers. Default: none are shared.
    decoder_tied_layers: Vec<usize> = to_layers, from_layers;
    /// The same for the layers of the encoder and `encoder_layers`. Default: none are shared.
    encoder_tied_layers: Vec<usize> = to_layers, from_layers;
    /// Norm of queries and keys in a decoder-lm. Default [`QkNorm::None`].
    qk_norm: QkNorm = QkNorm::as_raw, QkNorm::from_raw;
    /// How `rope_factor` divides the angles of a model with `rope_original_positions`. With yarn, the first pair whose
    /// angle it divides is the one of `rope_high_turns` turns (usual: 32), and from the pair of `rope_low_turns` turns
    /// on it divides them whole. Default [`RopeScaling::Llama3`].
    rope_scaling: RopeScaling = RopeScaling::as_raw, RopeScaling::from_raw;
    /// Factor of rotated queries and keys with the `rope_scaling` yarn; other models have none. Default 0: 0.1
    /// ln(`rope_factor`) + 1.
    rope_magnitude: f64 = same, same;
    /// Whether the norm is that of the output of each block, before the residual connection adds it (OLMo 2), in a
    /// model with RMS norm and `pre_norm`. Default false.
    norm_outputs: bool = i32::from, from_flag;
    /// The layers whose number, from 1, is a multiple of it have no rotary positions (SmolLM3: 4). Default 0: all
    /// layers have them.
    no_rope_interval: usize = to_count, from_i64;
    /// Factor of the embeddings of a decoder-lm (Granite), or of a model with `learned_positions` or
    /// `relative_buckets`. Default 0: 1, in an encoder-decoder the root of `width`.
    embedding_scale: f64 = same, same;
    /// Factor of the scores of attention in a decoder-lm (Granite), or with `relative_buckets` (T5: 1). Default 0: 1 /
    /// the root of `head_width`.
    attention_scale: f64 = same, same;
    /// Factor of the output of each block before the residual connection adds it, in a decoder-lm with RMS norm
    /// (Granite). Default 1.
    residual_scale: f64 = same, same;
    /// The logits of a decoder-lm are divided by it (Granite), or with `relative_buckets` (T5: the root of `width`).
    /// The last hidden states are divided, too. Default 1.
    logits_divisor: f64 = same, same;
    /// Tokens that a token of a decoder-lm attends to at most, itself included, as in Mistral 7B v0.1. In an encoder it
    /// attends to as many on either side (ModernBERT: 65). Default 0: all.
    sliding_window: usize = to_count, from_i64;
    /// The layers whose number, from 1, is a multiple of it attend to all tokens before, without `sliding_window`
    /// (Gemma 2: 2, Gemma 3: 6). In an encoder the first layer and every such one after it do (ModernBERT: 3). Default
    /// 0: all layers have the window.
    full_attention_interval: usize = to_count, from_i64;
    /// Base of the angles of rotary positions in the layers with `sliding_window`, where `rope_factor` does not divide
    /// them (Gemma 3, ModernBERT). Default 0: the angles of the other layers.
    rope_local_theta: f64 = same, same;
    /// A scaled score s of attention in a decoder-lm becomes c tanh(s / c), c being the number (Gemma 2: 50). Default
    /// 0: none.
    attention_soft_cap: f64 = same, same;
    /// A logit z of a decoder-lm becomes c tanh(z / c), c being the number (Gemma 2: 30). Default 0: none.
    logits_soft_cap: f64 = same, same;
    /// Whether the output of each block has a norm, before the residual connection adds it, in addition to the norm of
    /// its input (Gemma), in a model with RMS norm and `pre_norm`. Default false.
    sandwich_norm: bool = i32::from, from_flag;
    /// Buckets of distances of an encoder-decoder with relative position biases, as in T5: each stack learns a bias of
    /// attention scores for each bucket and head, which its layers share, and has no other positions. Such a model may
    /// have RMS norm, no `biases`, a gated `ffn`, `embedding_scale`, `attention_scale` and `logits_divisor`. Default 0:
    /// none.
    relative_buckets: usize = to_count, from_i64;
    /// Distance in tokens from which on all keys have the last bucket, with `relative_buckets`; above half of them.
    /// Default 128.
    relative_distance: usize = to_count, from_i64;
    /// Whether a model with `relative_buckets` and `tied_embeddings` has an output matrix that is not the embedding of
    /// source and target, as T5 1.1 and mT5 have. Default false.
    separate_output: bool = i32::from, from_flag;
    /// Class of an encoder that exports write. Default [`EncoderClass::Bert`].
    encoder_class: EncoderClass = EncoderClass::as_raw, EncoderClass::from_raw;
    /// Head of an encoder. Default [`EncoderHead::None`].
    encoder_head: EncoderHead = EncoderHead::as_raw, EncoderHead::from_raw;
    /// Vector of a text that the head of an encoder of the `encoder_class` modernbert for texts reads. Default
    /// [`Pooling::First`].
    classifier_pooling: Pooling = Pooling::as_raw, Pooling::from_raw;
    /// Labels of an encoder with a head for texts or tokens. Default 0.
    labels: usize = to_count, from_i64;
    /// Rows of the table of token types of an encoder. The first row is added to the embeddings of a text, the second
    /// one to the embeddings of the second text of a pair. 0: no table. Default 0.
    token_types: usize = to_count, from_i64;
    /// Dropout of the vectors that the classifier of an encoder reads. Default 0.
    classifier_dropout: f64 = same, same;
    /// Whether an encoder without head keeps the pooler, a linear layer of BertModel, which hidden states and
    /// embeddings do not go through. A head for texts always has one, but in ModernBERT. Default false.
    pooler: bool = i32::from, from_flag;
    /// Rotated queries of a token at position p, from 0, are multiplied by 1 + c ln(1 + floor(p /
    /// `rope_original_positions`)), c being the number (Ministral 3: 0.1). Default 0: none.
    rope_query_growth: f64 = same, same;
    /// Tokens of the vocabulary of sources, if it is another one than that of targets. `vocabulary` is then of targets,
    /// sources have their own embedding matrix, and `tied_embeddings` is about target and output. Default 0: sources
    /// have the vocabulary of targets.
    source_vocabulary: usize = to_count, from_i64;
    /// Format of the matrices of linear layers. Except with `none`, all parameters are frozen until an adapter is added
    /// or others are made trainable, and these matrices stay frozen. Embeddings, norms, biases and the output
    /// projection keep `precision`. Default [`BasePrecision::None`].
    base_precision: BasePrecision = BasePrecision::as_raw, BasePrecision::from_raw;
    /// Type of the computation: float32; bfloat16 on CUDA, with float32 master copies of the parameters, which the
    /// optimizer works on and files hold; float64 on the CPU, for gradient checks. A float32 model on the CPU can
    /// multiply in bfloat16: matmul_precision of trafo_context_options. Not part of the model's file. Default
    /// [`DType::F32`].
    precision: DType = DType::as_raw, DType::from_raw;
}
