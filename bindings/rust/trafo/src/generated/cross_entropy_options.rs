// Written by scripts/generate_options.py from schema/structs.toml: change that.
/// Settings of [`Tensor::cross_entropy`], [`Tensor::soft_cross_entropy`] and [`Tensor::linear_cross_entropy`].
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropyOptions<'a> {
    label_smoothing: f64,
    ignore_label: i32,
    reduction: Reduction,
    weights: Option<&'a Tensor>,
    class_weights: Option<&'a Tensor>,
}
impl<'a> CrossEntropyOptions<'a> {
    /// The mean over rows, no smoothing; rows with label -100 are ignored.
    pub fn new() -> Self {
        Self::default()
    }
    /// Mass spread over all classes. Default 0.
    pub fn label_smoothing(mut self, label_smoothing: f64) -> Self {
        self.label_smoothing = label_smoothing;
        self
    }
    /// Rows with this label do not count. Default -100.
    pub fn ignore_label(mut self, ignore_label: i32) -> Self {
        self.ignore_label = ignore_label;
        self
    }
    /// How rows are put together. The mean is divided by the sum of the weights that count. Default
    /// [`Reduction::Mean`].
    pub fn reduction(mut self, reduction: Reduction) -> Self {
        self.reduction = reduction;
        self
    }
    /// `[T]`, a weight for each row, of the logits' dtype (float32 for bfloat16). Without them all are 1. No gradient.
    pub fn weights(mut self, weights: &'a Tensor) -> Self {
        self.weights = Some(weights);
        self
    }
    /// `[V]`, a weight for each class, of the same dtype. Without them all are 1. The term of class v in a row's loss
    /// is multiplied by the weight of v, and a row counts with the weight of its label. No gradient. The linear
    /// cross-entropy takes them without smoothing only.
    pub fn class_weights(mut self, class_weights: &'a Tensor) -> Self {
        self.class_weights = Some(class_weights);
        self
    }
    pub(crate) fn to_raw(self) -> sys::trafo_cross_entropy_options {
        let mut raw = defaults(sys::trafo_cross_entropy_options_init);
        raw.label_smoothing = self.label_smoothing;
        raw.ignore_label = self.ignore_label;
        raw.reduction = self.reduction.as_raw();
        raw.weights = optional(self.weights);
        raw.class_weights = optional(self.class_weights);
        raw
    }
}
impl Default for CrossEntropyOptions<'_> {
    fn default() -> Self {
        let raw = defaults(sys::trafo_cross_entropy_options_init);
        CrossEntropyOptions {
            label_smoothing: raw.label_smoothing,
            ignore_label: raw.ignore_label,
            reduction: Reduction::Mean,
            weights: None,
            class_weights: None,
        }
    }
}
