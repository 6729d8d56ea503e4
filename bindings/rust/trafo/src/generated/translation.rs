// Written by scripts/generate_options.py from schema/decoding.toml: change that.
translate_options! {
    /// Hypotheses kept of each sentence. 1 is greedy search. Default 5.
    beam: usize = to_count, from_i64;
    /// Hypotheses returned of each sentence, at most `beam`. With `sampling`: translations drawn of each sentence.
    /// Default 1.
    n_best: usize = to_count, from_i64;
    /// The score of a hypothesis is log-probability / tokens^length_penalty, its end counted (Marian's --normalize). 0:
    /// no normalisation. Default 1.
    length_penalty: f64 = same, same;
    /// Longest translation in tokens, its end counted and a given beginning not. Default 0: twice the source plus 10,
    /// at most 200.
    max_length: usize = to_count, from_i64;
    /// Tokens before a translation may end; a given beginning is not counted. Default 0.
    min_length: usize = to_count, from_i64;
    /// Source tokens times `beam` of the sentences that are decoded together. Default 4096.
    batch_tokens: usize = to_count, from_i64;
    /// The logit of each token that the translation already has is divided by it if it is positive, and multiplied
    /// otherwise (Keskar et al., arXiv 1909.05858). 1: no penalty. Where a decoder-lm continues a text (no
    /// `end_source`), tokens of that text count as well. Default 1.
    repetition_penalty: f64 = same, same;
    /// Subtracted from the logit of each token that was generated before, however often (OpenAI's presence_penalty). A
    /// negative number makes such tokens more probable. Tokens of a prompt, a source or a given beginning do not count.
    /// Default 0.
    presence_penalty: f64 = same, same;
    /// Subtracted from the logit of a token for each time that it was generated before (OpenAI's frequency_penalty).
    /// Otherwise as `presence_penalty`. Default 0.
    frequency_penalty: f64 = same, same;
    /// No token completes an n-gram of this many tokens that the translation already has. Where a decoder-lm continues
    /// a text (no `end_source`), n-grams of that text count as well. Default 0: any may repeat.
    no_repeat_ngram_size: usize = to_count, from_i64;
    /// Whether every hypothesis has the log-probability of each of its tokens. Default false.
    word_scores: bool = i32::from, from_flag;
    /// Whether every hypothesis has an alignment: for each of its tokens, the cross-attention to the source tokens. A
    /// decoder-lm has none: UNSUPPORTED. Default false.
    alignment: bool = i32::from, from_flag;
    /// Decoder layer whose cross-attention, the mean over its heads, is the `alignment`; counted from 1. Default 0: the
    /// last but one.
    alignment_layer: usize = to_count, from_i64;
    /// Whether equal texts of a line are returned once, with the best score. A line then has fewer than `n_best`
    /// hypotheses if the search or the samples have no more texts. Default false.
    distinct: bool = i32::from, from_flag;
    /// Whether a source over the model's limit is cut. Otherwise it is INVALID_ARGUMENT. Default true.
    truncate: bool = i32::from, from_flag;
    /// Tokens of a window of `window_stride`, from 2 to the model's limit: max_length of the training of a model that
    /// learned windows. Default 0: the model's limit.
    window_length: usize = to_count, from_i64;
    /// Of plain text that is scored under a decoder-lm: a text of more than `window_length` tokens is scored in windows
    /// of that many tokens, each of which begins `window_stride` tokens after the one before, at most `window_length`.
    /// Each token is scored once, in the first window that predicts it. Default 0: no windows, `truncate` holds.
    window_stride: usize = to_count, from_i64;
    /// With a shortlist: this many tokens from the start of the vocabulary are chosen among as well. Default 100.
    shortlist_first: usize = to_count, from_i64;
    /// With a shortlist: this many of the best translations of each source token are chosen among. Default 100.
    shortlist_best: usize = to_count, from_i64;
    /// Whether eos follows a source. Without it a decoder-lm continues the text, as base models do; a text over the
    /// model's limit then loses its beginning. Default [`FrameToken::ByModel`].
    end_source: FrameToken = FrameToken::as_raw, FrameToken::from_raw;
    /// Whether bos precedes a source of a decoder-lm. Default [`FrameToken::ByModel`].
    begin_source: FrameToken = FrameToken::as_raw, FrameToken::from_raw;
}
sampling! {
    /// Logits are divided by it. Default 1.
    temperature: f64 = same, same;
    /// Only this many of the most probable tokens. Default 0: all.
    top_k: usize = to_count, from_i64;
    /// Only the fewest tokens that have this share of the probability together (Holtzman et al., arXiv 1904.09751).
    /// Default 1.
    top_p: f64 = same, same;
    /// Of the tokens that `top_k` and `top_p` leave, only those with at least this share of the probability of the most
    /// probable token (transformers' MinPLogitsWarper; Nguyen et al., arXiv 2407.01082). Default 0: all.
    min_p: f64 = same, same;
    /// Seed of the draws. Default 1.
    seed: u64 = same, same;
    /// Number of the first line, so that a text in several calls is drawn as in one. Default 0.
    first_line: usize = to_count, from_i64;
}
