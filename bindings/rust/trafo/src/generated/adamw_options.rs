// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// Settings of [`AdamW`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default, deny_unknown_fields))]
pub struct AdamWOptions {
    /// Decay of the first moment. Default 0.9.
    pub beta1: f64,
    /// Decay of the second moment. Default 0.98.
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-9.
    pub epsilon: f64,
    /// Decoupled weight decay. Default 0.
    pub weight_decay: f64,
    /// Limit of the global gradient norm; 0: off. Default 0.
    pub clip_norm: f64,
}
impl AdamWOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }
    /// Decay of the first moment. Default 0.9.
    pub fn beta1(mut self, beta1: f64) -> Self {
        self.beta1 = beta1;
        self
    }
    /// Decay of the second moment. Default 0.98.
    pub fn beta2(mut self, beta2: f64) -> Self {
        self.beta2 = beta2;
        self
    }
    /// Added to the root of the second moment. Default 1e-9.
    pub fn epsilon(mut self, epsilon: f64) -> Self {
        self.epsilon = epsilon;
        self
    }
    /// Decoupled weight decay. Default 0.
    pub fn weight_decay(mut self, weight_decay: f64) -> Self {
        self.weight_decay = weight_decay;
        self
    }
    /// Limit of the global gradient norm; 0: off. Default 0.
    pub fn clip_norm(mut self, clip_norm: f64) -> Self {
        self.clip_norm = clip_norm;
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_adamw_options {
        let mut raw = defaults(sys::trafo_adamw_options_init);
        raw.beta1 = self.beta1;
        raw.beta2 = self.beta2;
        raw.epsilon = self.epsilon;
        raw.weight_decay = self.weight_decay;
        raw.clip_norm = self.clip_norm;
        raw
    }
}
impl Default for AdamWOptions {
    fn default() -> Self {
        let raw = defaults(sys::trafo_adamw_options_init);
        AdamWOptions {
            beta1: raw.beta1,
            beta2: raw.beta2,
            epsilon: raw.epsilon,
            weight_decay: raw.weight_decay,
            clip_norm: raw.clip_norm,
        }
    }
}
