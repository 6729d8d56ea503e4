//! More tokens for a model and its vocabulary.

use std::ptr;

use trafo_sys as sys;

use crate::error::Result;
use crate::handle::{RawModel, views};
use crate::model::Model;
use crate::text::Tokenizer;

impl Model {
    /// Adds tokens after those of the vocabulary, and gives the tokenizer that has them. A token is found in every text
    /// or, if it is special, only by a tokenizer of [`Tokenizer::parse_special`]; a special one can be a language
    /// ([`Tokenizer::with_languages`]). Its rows of the embeddings and of the output are copied from the token `like` or,
    /// without one, the mean of the rows of the subwords that its text has in `tokenizer`. After an error the model is as
    /// before. `InvalidArgument` names the token: it is there already, is given twice, is empty or too long, or no text has
    /// it; or there is no token `like`; or the model has an adapter or int8 weights. `Unsupported`: a vocabulary of
    /// bytes or of Marian.
    ///
    /// ```
    /// use trafo::{Model, ModelConfig, Tokenizer, TokenizerOptions};
    /// # fn main() -> trafo::Result<()> {
    /// let options = TokenizerOptions::new(40).soft_limit(true);
    /// let tokenizer = Tokenizer::train(&["a small text", "another text"], &options)?;
    /// let mut model = Model::new(&ModelConfig::preset("tiny", tokenizer.vocabulary())?, 1)?;
    /// let more = model.add_tokens(&tokenizer, &["xyz"], false, None)?;
    /// assert_eq!(more.vocabulary(), tokenizer.vocabulary() + 1);
    /// assert!(more.encode("a xyz text")?.contains(&(tokenizer.vocabulary() as i32)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn add_tokens<S: AsRef<str>>(
        &mut self,
        tokenizer: &Tokenizer,
        tokens: &[S],
        special: bool,
        like: Option<&str>,
    ) -> Result<Tokenizer> {
        let names = views(tokens);
        let like = like.unwrap_or_default();
        let (model, mut made) = (self.as_ptr(), ptr::null_mut());
        // SAFETY: the handles are live, the views and the outputs are valid during the call. The new model is in the context
        // of this one and takes its place.
        let raw = RawModel::make(|out| unsafe {
            sys::trafo_model_add_tokens(
                model,
                tokenizer.as_ptr(),
                names.as_ptr(),
                names.len(),
                special.into(),
                like.as_ptr().cast(),
                like.len(),
                out,
                &mut made,
            )
        })?;
        let tokenizer = Tokenizer::make(|out| {
            // SAFETY: `make` gives a place for the handle, which the call above made.
            unsafe { *out = made };
            ptr::null_mut()
        })?;
        self.replace(raw);
        Ok(tokenizer)
    }
}
