// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// Settings of [`Tensor::attention`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions<'a> {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    q_column: usize,
    k_column: usize,
    v_column: usize,
    scale: f64,
    causal: bool,
    dropout: Option<Dropout>,
    mask: Option<&'a Tensor>,
    window: usize,
}
impl<'a> AttentionOptions<'a> {
    fn with_defaults() -> Self {
        let raw = defaults(sys::trafo_attention_options_init);
        AttentionOptions {
            heads: from_i64(raw.heads),
            kv_heads: from_i64(raw.kv_heads),
            head_dim: from_i64(raw.head_dim),
            q_column: from_i64(raw.q_column),
            k_column: from_i64(raw.k_column),
            v_column: from_i64(raw.v_column),
            scale: raw.scale,
            causal: raw.causal != 0,
            dropout: None,
            mask: None,
            window: from_i64(raw.window),
        }
    }
    /// Heads of k and v, a divisor of heads (grouped-query attention); 0: as many as heads. Default 0.
    pub fn kv_heads(mut self, kv_heads: usize) -> Self {
        self.kv_heads = kv_heads;
        self
    }
    /// Of the scores; 0: 1 / sqrt(head_dim). Default 0.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }
    /// Whether a query attends to no later key. Default false.
    pub fn causal(mut self, causal: bool) -> Self {
        self.causal = causal;
        self
    }
    /// On probabilities.
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }
    /// `[B, heads, queries, keys]`, of which each may be 1; queries and keys of the longest sequences. int32: what is
    /// not 0 is masked. Of the dtype of q: added to the scaled scores; it gets a gradient, and -infinity masks. A query
    /// whose keys are all masked gives zeros. With a mask the scores of all heads are stored: memory and time are as
    /// for a matmul and a softmax.
    pub fn mask(mut self, mask: &'a Tensor) -> Self {
        self.mask = Some(mask);
        self
    }
    /// With causal, keys that a query attends to at most: its last one and those before it (sliding window). Without,
    /// it attends to the keys whose distance from that one is less, on both sides. 0: all. Default 0.
    pub fn window(mut self, window: usize) -> Self {
        self.window = window;
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_attention_options {
        let mut raw = defaults(sys::trafo_attention_options_init);
        raw.heads = to_i64(self.heads);
        raw.kv_heads = to_i64(self.kv_heads);
        raw.head_dim = to_i64(self.head_dim);
        raw.q_column = to_i64(self.q_column);
        raw.k_column = to_i64(self.k_column);
        raw.v_column = to_i64(self.v_column);
        raw.scale = self.scale;
        raw.causal = self.causal.into();
        if let Some(dropout) = self.dropout {
            raw.dropout = dropout.to_raw();
        }
        raw.mask = optional(self.mask);
        raw.window = to_i64(self.window);
        raw
    }
}
