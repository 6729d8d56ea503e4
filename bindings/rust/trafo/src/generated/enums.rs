// Written by scripts/generate_options.py from schema/enums.toml: change that.
/// Models of other programs that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportFormat {
    /// MarianMTModel of transformers: a post-norm encoder-decoder with tied embeddings.
    HfMarian,
    /// GPT2LMHeadModel of transformers: a pre-norm decoder-lm.
    HfGpt2,
    /// CTranslate2: every architecture.
    CTranslate2,
    /// LlamaForCausalLM of transformers: a pre-norm decoder-lm with RMS norm, rotary positions and SwiGLU.
    HfLlama,
    /// ONNX graphs of opset 17 and their weights: every model.
    Onnx,
    /// llama.cpp's file of such a model, model.gguf; a BPE vocabulary with byte fallback.
    Gguf,
    /// compressed-tensors for transformers and vLLM: such a model in int8 or int4.
    HfCompressed,
    /// PegasusForConditionalGeneration of transformers: a pre-norm encoder-decoder with tied embeddings.
    HfPegasus,
}
impl ExportFormat {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            ExportFormat::HfMarian => sys::TRAFO_EXPORT_HF_MARIAN,
            ExportFormat::HfGpt2 => sys::TRAFO_EXPORT_HF_GPT2,
            ExportFormat::CTranslate2 => sys::TRAFO_EXPORT_CTRANSLATE2,
            ExportFormat::HfLlama => sys::TRAFO_EXPORT_HF_LLAMA,
            ExportFormat::Onnx => sys::TRAFO_EXPORT_ONNX,
            ExportFormat::Gguf => sys::TRAFO_EXPORT_GGUF,
            ExportFormat::HfCompressed => sys::TRAFO_EXPORT_HF_COMPRESSED,
            ExportFormat::HfPegasus => sys::TRAFO_EXPORT_HF_PEGASUS,
        }
    }
}
/// How an export stores matrices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ExportWeights {
    /// float16 in GGUF, int8 in compressed-tensors, float32 in the others.
    #[default]
    ByFormat,
    /// float32.
    Float32,
    /// float16: CTranslate2, GGUF.
    Float16,
    /// bfloat16: CTranslate2.
    BFloat16,
    /// CTranslate2: one scale for a matrix.
    Int16,
    /// CTranslate2, ONNX (7 bits), compressed-tensors: a scale for each output.
    Int8,
    /// GGUF: 8 bits, a scale for each block of 32.
    Q8_0,
    /// GGUF: 4 bits, a scale for each block of 32.
    Q4_0,
    /// compressed-tensors: 4 bits, a scale for each 32 values of a row.
    Int4,
}
impl ExportWeights {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            ExportWeights::ByFormat => sys::TRAFO_EXPORT_WEIGHTS_BY_FORMAT,
            ExportWeights::Float32 => sys::TRAFO_EXPORT_WEIGHTS_FLOAT32,
            ExportWeights::Float16 => sys::TRAFO_EXPORT_WEIGHTS_FLOAT16,
            ExportWeights::BFloat16 => sys::TRAFO_EXPORT_WEIGHTS_BFLOAT16,
            ExportWeights::Int16 => sys::TRAFO_EXPORT_WEIGHTS_INT16,
            ExportWeights::Int8 => sys::TRAFO_EXPORT_WEIGHTS_INT8,
            ExportWeights::Q8_0 => sys::TRAFO_EXPORT_WEIGHTS_Q8_0,
            ExportWeights::Q4_0 => sys::TRAFO_EXPORT_WEIGHTS_Q4_0,
            ExportWeights::Int4 => sys::TRAFO_EXPORT_WEIGHTS_INT4,
        }
    }
}
/// The normal form of text, by the names of SentencePiece. NMT: white space of all kinds becomes a space, control
/// characters vanish, and U+200C becomes a space unless the text writes words with it, as Persian and Telugu do. CF:
/// letters are folded to lower case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Normalization {
    /// NMT's NFKC. The default.
    #[default]
    NmtNfkc,
    /// NFKC.
    Nfkc,
    /// NMT's NFKC, with letters folded to lower case.
    NmtNfkcCf,
    /// NFKC, with letters folded to lower case.
    NfkcCf,
    /// Text stays as it is.
    Identity,
}
impl Normalization {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Normalization::NmtNfkc => sys::TRAFO_NORMALIZATION_NMT_NFKC,
            Normalization::Nfkc => sys::TRAFO_NORMALIZATION_NFKC,
            Normalization::NmtNfkcCf => sys::TRAFO_NORMALIZATION_NMT_NFKC_CF,
            Normalization::NfkcCf => sys::TRAFO_NORMALIZATION_NFKC_CF,
            Normalization::Identity => sys::TRAFO_NORMALIZATION_IDENTITY,
        }
    }
}
/// Why a hypothesis ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FinishReason {
    /// An end token. So ends the translation of an empty line as well.
    #[default]
    End,
    /// The longest length: max_length, or the positions that the model has. A text that is scored without its end has
    /// this, too.
    Length,
    /// No token was allowed to follow, by no_repeat_ngram_size or min_length.
    Blocked,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl FinishReason {
    /// The number in the C ABI.
    pub fn as_raw(self) -> i32 {
        match self {
            FinishReason::End => sys::TRAFO_FINISH_END,
            FinishReason::Length => sys::TRAFO_FINISH_LENGTH,
            FinishReason::Blocked => sys::TRAFO_FINISH_BLOCKED,
            FinishReason::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_FINISH_END => FinishReason::End,
            sys::TRAFO_FINISH_LENGTH => FinishReason::Length,
            sys::TRAFO_FINISH_BLOCKED => FinishReason::Blocked,
            other => FinishReason::Unknown(other),
        }
    }
}
