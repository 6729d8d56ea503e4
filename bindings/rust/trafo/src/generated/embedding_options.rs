// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// Settings of [`Tensor::embedding`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingOptions<'a> {
    scale: f64,
    padding_id: Option<usize>,
    positions: Option<&'a Tensor>,
    position_table: Option<&'a Tensor>,
    dropout: Option<Dropout>,
}
impl<'a> EmbeddingOptions<'a> {
    /// No scale, no padding, no positions, no dropout.
    pub fn new() -> Self {
        Self::default()
    }
    /// Multiplies the rows of the table. Default 1.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = scale;
        self
    }
    /// Tokens with this id give the table no gradient.
    pub fn padding_id(mut self, padding_id: usize) -> Self {
        self.padding_id = Some(padding_id);
        self
    }
    /// On the sum.
    pub fn dropout(mut self, dropout: Dropout) -> Self {
        self.dropout = Some(dropout);
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_embedding_options {
        let mut raw = defaults(sys::trafo_embedding_options_init);
        raw.scale = self.scale;
        if let Some(padding_id) = self.padding_id {
            raw.padding_id = to_i64(padding_id);
        }
        raw.positions = optional(self.positions);
        raw.position_table = optional(self.position_table);
        if let Some(dropout) = self.dropout {
            raw.dropout = dropout.to_raw();
        }
        raw
    }
}
impl Default for EmbeddingOptions<'_> {
    fn default() -> Self {
        let raw = defaults(sys::trafo_embedding_options_init);
        EmbeddingOptions {
            scale: raw.scale,
            padding_id: None,
            positions: None,
            position_table: None,
            dropout: None,
        }
    }
}
