// Written by scripts/generate_options.py from schema/enums.toml: change that.
/// How the hidden states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pooling {
    /// The mean over all tokens, the special ones included.
    Mean,
    /// The hidden state of the first token.
    First,
}
impl Pooling {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            Pooling::Mean => sys::TRAFO_POOLING_MEAN,
            Pooling::First => sys::TRAFO_POOLING_FIRST,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_POOLING_FIRST => Pooling::First,
            _ => Pooling::Mean,
        }
    }
}
named! { Pooling:
    Mean = "mean",
    First = "first",
}
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
    /// M2M100ForConditionalGeneration of transformers, M2M100 and NLLB-200: such a model with fairseq_positions.
    HfM2m100,
    /// MBartForConditionalGeneration of transformers, mBART-50: such a model with learned_positions.
    HfMbart,
    /// BartForConditionalGeneration of transformers: such a model with post-norm layers and byte-level BPE.
    HfBart,
    /// T5ForConditionalGeneration or MT5ForConditionalGeneration of transformers: a pre-norm encoder-decoder with
    /// relative_buckets and RMS norm.
    HfT5,
    /// BertModel, RobertaModel, XLMRobertaModel and ModernBertModel of transformers, with the head that the model has:
    /// an encoder.
    HfBert,
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
            ExportFormat::HfM2m100 => sys::TRAFO_EXPORT_HF_M2M100,
            ExportFormat::HfMbart => sys::TRAFO_EXPORT_HF_MBART,
            ExportFormat::HfBart => sys::TRAFO_EXPORT_HF_BART,
            ExportFormat::HfT5 => sys::TRAFO_EXPORT_HF_T5,
            ExportFormat::HfBert => sys::TRAFO_EXPORT_HF_BERT,
        }
    }
}
named! { ExportFormat:
    HfMarian = "hf-marian" | "hf_marian",
    HfGpt2 = "hf-gpt2" | "hf_gpt2",
    CTranslate2 = "ctranslate2",
    HfLlama = "hf-llama" | "hf_llama",
    Onnx = "onnx",
    Gguf = "gguf",
    HfCompressed = "hf-compressed" | "hf_compressed",
    HfPegasus = "hf-pegasus" | "hf_pegasus",
    HfM2m100 = "hf-m2m100" | "hf_m2m100",
    HfMbart = "hf-mbart" | "hf_mbart",
    HfBart = "hf-bart" | "hf_bart",
    HfT5 = "hf-t5" | "hf_t5",
    HfBert = "hf-bert" | "hf_bert",
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
named! { ExportWeights:
    ByFormat = "by-format" | "by_format",
    Float32 = "float32" | "f32",
    Float16 = "float16" | "f16",
    BFloat16 = "bfloat16" | "bf16",
    Int16 = "int16",
    Int8 = "int8",
    Q8_0 = "q8_0",
    Q4_0 = "q4_0",
    Int4 = "int4",
}
/// Format of the files of a corpus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CorpusFormat {
    /// JSON lines if the name of the file ends in .jsonl, .ndjson or .json, or if the first line that is not empty is a
    /// JSON object; CSV if it ends in .csv; all also with .gz; text otherwise.
    Auto,
    /// A text, or the texts of a pair with tabs between them.
    Text,
    /// A JSON object, whose members are a text, the texts of a pair or a conversation.
    JsonLines,
    /// A JSON object that becomes a conversation, also with a prompt and a completion or Alpaca's members.
    Chats,
    /// CSV. Its first line names the columns as JSON lines name their members.
    Csv,
    /// Token ids of text without a source in a .bin file of llm.c: of GPT-2 (uint16) or Llama 3 (uint32).
    LlmC,
    /// The same in a .bin file of nanoGPT: uint16 without a header.
    NanoGpt,
    /// The same in NAME.bin and NAME.idx of Megatron: uint16 or int32. Its index says where documents end.
    Megatron,
}
impl CorpusFormat {
    pub(crate) fn as_raw(self) -> i32 {
        match self {
            CorpusFormat::Auto => sys::TRAFO_CORPUS_AUTO,
            CorpusFormat::Text => sys::TRAFO_CORPUS_TEXT,
            CorpusFormat::JsonLines => sys::TRAFO_CORPUS_JSON_LINES,
            CorpusFormat::Chats => sys::TRAFO_CORPUS_CHATS,
            CorpusFormat::Csv => sys::TRAFO_CORPUS_CSV,
            CorpusFormat::LlmC => sys::TRAFO_CORPUS_LLM_C,
            CorpusFormat::NanoGpt => sys::TRAFO_CORPUS_NANOGPT,
            CorpusFormat::Megatron => sys::TRAFO_CORPUS_MEGATRON,
        }
    }
}
named! { CorpusFormat:
    Auto = "auto",
    Text = "text",
    JsonLines = "jsonl" | "json_lines",
    Chats = "chat" | "chats",
    Csv = "csv",
    LlmC = "llmc" | "llm_c",
    NanoGpt = "nanogpt",
    Megatron = "megatron",
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
named! { Normalization:
    NmtNfkc = "nmt_nfkc",
    Nfkc = "nfkc",
    NmtNfkcCf = "nmt_nfkc_cf",
    NfkcCf = "nfkc_cf",
    Identity = "identity",
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
    /// Of a generation alone: a stop string or a stop token.
    Stop,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl FinishReason {
    /// The number in the C ABI.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        match self {
            FinishReason::End => sys::TRAFO_FINISH_END,
            FinishReason::Length => sys::TRAFO_FINISH_LENGTH,
            FinishReason::Blocked => sys::TRAFO_FINISH_BLOCKED,
            FinishReason::Stop => sys::TRAFO_FINISH_STOP,
            FinishReason::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_FINISH_END => FinishReason::End,
            sys::TRAFO_FINISH_LENGTH => FinishReason::Length,
            sys::TRAFO_FINISH_BLOCKED => FinishReason::Blocked,
            sys::TRAFO_FINISH_STOP => FinishReason::Stop,
            other => FinishReason::Unknown(other),
        }
    }
}
named! { FinishReason?:
    End = "end",
    Length = "length",
    Blocked = "blocked",
    Stop = "stop",
}
/// Why training ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stop {
    /// It has not.
    None,
    /// after_updates, after_epochs or after_tokens was reached.
    Limit,
    /// No improvement for early_stopping validations.
    Early,
    /// The function that receives events asked for it.
    Callback,
    /// The cancel token was set.
    Cancelled,
    /// The updates that were asked for are done.
    Paused,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl Stop {
    /// The number in the C ABI.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        match self {
            Stop::None => sys::TRAFO_STOP_NONE,
            Stop::Limit => sys::TRAFO_STOP_LIMIT,
            Stop::Early => sys::TRAFO_STOP_EARLY,
            Stop::Callback => sys::TRAFO_STOP_CALLBACK,
            Stop::Cancelled => sys::TRAFO_STOP_CANCELLED,
            Stop::Paused => sys::TRAFO_STOP_PAUSED,
            Stop::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_STOP_NONE => Stop::None,
            sys::TRAFO_STOP_LIMIT => Stop::Limit,
            sys::TRAFO_STOP_EARLY => Stop::Early,
            sys::TRAFO_STOP_CALLBACK => Stop::Callback,
            sys::TRAFO_STOP_CANCELLED => Stop::Cancelled,
            sys::TRAFO_STOP_PAUSED => Stop::Paused,
            other => Stop::Unknown(other),
        }
    }
}
named! { Stop?:
    None = "none",
    Limit = "limit",
    Early = "early_stopping",
    Callback = "callback",
    Cancelled = "cancelled",
    Paused = "paused",
}
/// The work of a call that tells how far it is. Later versions may add values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Work {
    /// Files of text are read. Counts bytes of the files, which may be compressed; the total of a pipe is unknown.
    ReadText,
    /// Text for the training of a tokenizer is looked at. Counts lines.
    GatherText,
    /// A tokenizer is trained. Counts subwords; both numbers are 0 where SentencePiece does it.
    LearnVocabulary,
    /// A corpus becomes token ids. Counts pairs.
    EncodeText,
    /// A model scores pairs. Counts pairs.
    Score,
    /// A model translates. Counts lines, and with sampling each sample of a line.
    Translate,
    /// Losses of the validation corpus are computed. Counts sequences: windows of long texts, and two of a preference
    /// pair.
    Validate,
    /// Translations are compared with references, for each metric. Counts lines.
    Evaluate,
    /// Confidence intervals are computed, for each metric. Counts resamples.
    Resample,
    /// Weights are copied, written, read or compared for another format. Counts weights; the writing of an export
    /// counts each twice.
    ConvertWeights,
    /// A model reads calibration text. Counts target tokens.
    Calibrate,
    /// Weights are quantized, factorized or made sparse. Counts tensors.
    Compress,
    /// A shortlist is learned, in several passes. Counts pairs of all passes.
    LearnShortlist,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl Work {
    /// The number in the C ABI.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        match self {
            Work::ReadText => sys::TRAFO_WORK_READ_TEXT,
            Work::GatherText => sys::TRAFO_WORK_GATHER_TEXT,
            Work::LearnVocabulary => sys::TRAFO_WORK_LEARN_VOCABULARY,
            Work::EncodeText => sys::TRAFO_WORK_ENCODE_TEXT,
            Work::Score => sys::TRAFO_WORK_SCORE,
            Work::Translate => sys::TRAFO_WORK_TRANSLATE,
            Work::Validate => sys::TRAFO_WORK_VALIDATE,
            Work::Evaluate => sys::TRAFO_WORK_EVALUATE,
            Work::Resample => sys::TRAFO_WORK_RESAMPLE,
            Work::ConvertWeights => sys::TRAFO_WORK_CONVERT_WEIGHTS,
            Work::Calibrate => sys::TRAFO_WORK_CALIBRATE,
            Work::Compress => sys::TRAFO_WORK_COMPRESS,
            Work::LearnShortlist => sys::TRAFO_WORK_LEARN_SHORTLIST,
            Work::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_WORK_READ_TEXT => Work::ReadText,
            sys::TRAFO_WORK_GATHER_TEXT => Work::GatherText,
            sys::TRAFO_WORK_LEARN_VOCABULARY => Work::LearnVocabulary,
            sys::TRAFO_WORK_ENCODE_TEXT => Work::EncodeText,
            sys::TRAFO_WORK_SCORE => Work::Score,
            sys::TRAFO_WORK_TRANSLATE => Work::Translate,
            sys::TRAFO_WORK_VALIDATE => Work::Validate,
            sys::TRAFO_WORK_EVALUATE => Work::Evaluate,
            sys::TRAFO_WORK_RESAMPLE => Work::Resample,
            sys::TRAFO_WORK_CONVERT_WEIGHTS => Work::ConvertWeights,
            sys::TRAFO_WORK_CALIBRATE => Work::Calibrate,
            sys::TRAFO_WORK_COMPRESS => Work::Compress,
            sys::TRAFO_WORK_LEARN_SHORTLIST => Work::LearnShortlist,
            other => Work::Unknown(other),
        }
    }
}
named! { Work?:
    ReadText = "read_text",
    GatherText = "gather_text",
    LearnVocabulary = "learn_vocabulary",
    EncodeText = "encode_text",
    Score = "score",
    Translate = "translate",
    Validate = "validate",
    Evaluate = "evaluate",
    Resample = "resample",
    ConvertWeights = "convert_weights",
    Calibrate = "calibrate",
    Compress = "compress",
    LearnShortlist = "learn_shortlist",
}
/// Codes of errors. Later versions may add codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// An argument is impossible; the message names it.
    InvalidArgument,
    /// Shapes do not fit each other.
    ShapeMismatch,
    /// Element types do not fit each other or the op.
    DTypeMismatch,
    /// No host memory.
    OutOfMemory,
    /// No device memory.
    OutOfDeviceMemory,
    /// A name, a preset or a file does not exist.
    NotFound,
    /// Reading or writing failed.
    Io,
    /// A file is damaged.
    CorruptFile,
    /// The library cannot do that.
    Unsupported,
    /// Stopped on request.
    Cancelled,
    /// The device does not answer any more.
    DeviceLost,
    /// NaN or Inf where the work cannot continue with it.
    NonFinite,
    /// The library and the program, or a file, are of versions that do not fit.
    Version,
    /// A bug in the library.
    Internal,
    /// Another rank of a group has left, has died or does not answer.
    PeerLost,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl ErrorCode {
    /// The number in the C ABI.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        match self {
            ErrorCode::InvalidArgument => sys::TRAFO_INVALID_ARGUMENT,
            ErrorCode::ShapeMismatch => sys::TRAFO_SHAPE_MISMATCH,
            ErrorCode::DTypeMismatch => sys::TRAFO_DTYPE_MISMATCH,
            ErrorCode::OutOfMemory => sys::TRAFO_OUT_OF_MEMORY,
            ErrorCode::OutOfDeviceMemory => sys::TRAFO_OUT_OF_DEVICE_MEMORY,
            ErrorCode::NotFound => sys::TRAFO_NOT_FOUND,
            ErrorCode::Io => sys::TRAFO_IO,
            ErrorCode::CorruptFile => sys::TRAFO_CORRUPT_FILE,
            ErrorCode::Unsupported => sys::TRAFO_UNSUPPORTED,
            ErrorCode::Cancelled => sys::TRAFO_CANCELLED,
            ErrorCode::DeviceLost => sys::TRAFO_DEVICE_LOST,
            ErrorCode::NonFinite => sys::TRAFO_NON_FINITE,
            ErrorCode::Version => sys::TRAFO_VERSION,
            ErrorCode::Internal => sys::TRAFO_INTERNAL,
            ErrorCode::PeerLost => sys::TRAFO_PEER_LOST,
            ErrorCode::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_INVALID_ARGUMENT => ErrorCode::InvalidArgument,
            sys::TRAFO_SHAPE_MISMATCH => ErrorCode::ShapeMismatch,
            sys::TRAFO_DTYPE_MISMATCH => ErrorCode::DTypeMismatch,
            sys::TRAFO_OUT_OF_MEMORY => ErrorCode::OutOfMemory,
            sys::TRAFO_OUT_OF_DEVICE_MEMORY => ErrorCode::OutOfDeviceMemory,
            sys::TRAFO_NOT_FOUND => ErrorCode::NotFound,
            sys::TRAFO_IO => ErrorCode::Io,
            sys::TRAFO_CORRUPT_FILE => ErrorCode::CorruptFile,
            sys::TRAFO_UNSUPPORTED => ErrorCode::Unsupported,
            sys::TRAFO_CANCELLED => ErrorCode::Cancelled,
            sys::TRAFO_DEVICE_LOST => ErrorCode::DeviceLost,
            sys::TRAFO_NON_FINITE => ErrorCode::NonFinite,
            sys::TRAFO_VERSION => ErrorCode::Version,
            sys::TRAFO_INTERNAL => ErrorCode::Internal,
            sys::TRAFO_PEER_LOST => ErrorCode::PeerLost,
            other => ErrorCode::Unknown(other),
        }
    }
}
/// Types of a tensor's elements. Ops compute in float32 and float64, on CUDA also in bfloat16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit floats.
    F32,
    /// 64-bit floats: for gradient checks.
    F64,
    /// 16-bit brain floats, a storage type on the CPU.
    BF16,
    /// 32-bit integers: tokens, labels, offsets.
    I32,
    /// 8-bit codes, of int8 weights. No tensor has them.
    I8,
    /// A value that this crate does not know yet.
    Unknown(i32),
}
impl DType {
    /// The number in the C ABI.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        match self {
            DType::F32 => sys::TRAFO_FLOAT32,
            DType::F64 => sys::TRAFO_FLOAT64,
            DType::BF16 => sys::TRAFO_BFLOAT16,
            DType::I32 => sys::TRAFO_INT32,
            DType::I8 => sys::TRAFO_INT8,
            DType::Unknown(raw) => raw,
        }
    }
    pub(crate) fn from_raw(raw: i32) -> Self {
        match raw {
            sys::TRAFO_FLOAT32 => DType::F32,
            sys::TRAFO_FLOAT64 => DType::F64,
            sys::TRAFO_BFLOAT16 => DType::BF16,
            sys::TRAFO_INT32 => DType::I32,
            sys::TRAFO_INT8 => DType::I8,
            other => DType::Unknown(other),
        }
    }
}
named! { DType?:
    F32 = "float32",
    F64 = "float64",
    BF16 = "bfloat16",
    I32 = "int32",
    I8 = "int8",
}
