//! Conversations by the chat template of a tokenizer.

use std::ptr;

use trafo_sys as sys;

use crate::error::{Result, check};
use crate::handle::{OutString, slice, view};
use crate::text::Tokenizer;

/// The tokens of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChatTokens {
    /// The ids, with special tokens where the text has their names.
    pub ids: Vec<i32>,
    /// For each token, whether it belongs to an answer of the assistant, which training learns.
    pub answers: Vec<bool>,
}

fn append_text(text: &str, json: &mut String) {
    json.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => json.extend(['\\', c]),
            c if c < ' ' => json.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => json.push(c),
        }
    }
    json.push('"');
}

/// Messages as the JSON object that templates read.
fn conversation<R: AsRef<str>, C: AsRef<str>>(messages: &[(R, C)]) -> String {
    let mut json = String::from("{\"messages\":[");
    for (i, (role, content)) in messages.iter().enumerate() {
        json.push_str(if i == 0 { "{\"role\":" } else { ",{\"role\":" });
        append_text(role.as_ref(), &mut json);
        json.push_str(",\"content\":");
        append_text(content.as_ref(), &mut json);
        json.push('}');
    }
    json + "]}"
}

impl Tokenizer {
    /// The same vocabulary with this chat template in place of the one that it came with. `source` is the text of a Jinja
    /// template, or `chatml`, which needs the tokens `<|im_start|>` and `<|im_end|>`. [`save`](Self::save) writes it beside
    /// the vocabulary.
    ///
    /// # Errors
    /// [`CorruptFile`](crate::ErrorCode::CorruptFile) and [`Unsupported`](crate::ErrorCode::Unsupported): the template has a
    /// fault, or a construct that is not supported; the message names the line.
    pub fn with_chat_template(&self, source: &str) -> Result<Self> {
        let source = view(source);
        // SAFETY: the handle is live, the text is valid during the call, the output is valid.
        Self::make(|out| unsafe {
            sys::trafo_tokenizer_with_chat_template(self.as_ptr(), source.data, source.length, out)
        })
    }

    /// The text of the chat template.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorCode::NotFound): the vocabulary came without one.
    pub fn chat_template(&self) -> Result<String> {
        let mut text = OutString::new();
        // SAFETY: the handle is live, the outputs are valid.
        check(unsafe {
            sys::trafo_tokenizer_get_chat_template(self.as_ptr(), &mut text.data, &mut text.length)
        })?;
        Ok(text.to_text())
    }

    /// Messages, each a role and a content, as the text that the model reads. With `add_generation_prompt` the text ends
    /// with the beginning of an answer.
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorCode::NotFound): the tokenizer has no chat template.
    /// [`InvalidArgument`](crate::ErrorCode::InvalidArgument): the template refuses the messages.
    pub fn render_chat<R: AsRef<str>, C: AsRef<str>>(
        &self,
        messages: &[(R, C)],
        add_generation_prompt: bool,
    ) -> Result<String> {
        self.render_chat_json(&conversation(messages), add_generation_prompt)
    }

    /// The same of a JSON object: `messages`, and variables of the template, such as `tools`.
    pub fn render_chat_json(
        &self,
        conversation: &str,
        add_generation_prompt: bool,
    ) -> Result<String> {
        let json = view(conversation);
        let mut text = OutString::new();
        // SAFETY: the handle is live, the text is valid during the call, the outputs are valid.
        check(unsafe {
            sys::trafo_chat_render(
                self.as_ptr(),
                json.data,
                json.length,
                i32::from(add_generation_prompt),
                &mut text.data,
                &mut text.length,
            )
        })?;
        Ok(text.to_text())
    }

    /// The tokens of [`render_chat`](Self::render_chat)'s text, in which names of special tokens are those tokens.
    ///
    /// # Errors
    /// As [`render_chat`](Self::render_chat), and where answers cannot be found in the text.
    pub fn encode_chat<R: AsRef<str>, C: AsRef<str>>(
        &self,
        messages: &[(R, C)],
        add_generation_prompt: bool,
    ) -> Result<ChatTokens> {
        self.encode_chat_json(&conversation(messages), add_generation_prompt)
    }

    /// The same of a JSON object.
    pub fn encode_chat_json(
        &self,
        conversation: &str,
        add_generation_prompt: bool,
    ) -> Result<ChatTokens> {
        let json = view(conversation);
        let (mut ids, mut count, mut answers) = (ptr::null_mut(), 0, ptr::null_mut());
        // SAFETY: the text and the outputs are valid; both arrays are ours to free.
        unsafe {
            check(sys::trafo_chat_encode(
                self.as_ptr(),
                json.data,
                json.length,
                i32::from(add_generation_prompt),
                &mut ids,
                &mut count,
                &mut answers,
            ))?;
            let tokens = ChatTokens {
                ids: slice(ids, count).to_vec(),
                answers: slice(answers, count).iter().map(|&one| one != 0).collect(),
            };
            sys::trafo_ids_free(ids);
            sys::trafo_ids_free(answers);
            Ok(tokens)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::conversation;
    use crate::{ErrorCode, Result, Tokenizer, TokenizerOptions};

    #[test]
    fn messages_become_json() {
        assert_eq!(
            conversation(&[("user", "a\"\\\n\u{1}ü"), ("assistant", "")]),
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\\"\\\\\\u000a\\u0001ü\"},\
             {\"role\":\"assistant\",\"content\":\"\"}]}"
        );
    }

    #[test]
    fn conversations_become_text_and_tokens() -> Result<()> {
        let options = TokenizerOptions::new(60).soft_limit(true);
        let plain = Tokenizer::train(&["eins zwei drei", "vier fünf sechs"], &options)?;
        let messages = [("user", "eins"), ("assistant", "vier")];
        let missing = plain.render_chat(&messages, false).unwrap_err();
        assert_eq!(missing.code(), ErrorCode::NotFound);
        let source =
            "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ eos_token }}{% endfor %}";
        let tokenizer = plain.with_chat_template(source)?;
        assert_eq!(tokenizer.chat_template()?, source);
        assert_eq!(tokenizer.render_chat(&messages, false)?, "user:eins</s>assistant:vier</s>");
        let marked = plain.with_chat_template(
            "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}\
             {% endgeneration %}{% else %}{{ m.content }}{% endif %}{{ eos_token }}{% endfor %}",
        )?;
        let tokens = marked.encode_chat(&messages, false)?;
        assert_eq!(tokens.ids.len(), tokens.answers.len());
        let answer: Vec<i32> = tokens
            .ids
            .iter()
            .zip(&tokens.answers)
            .filter(|(_, a)| **a)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(marked.decode(&answer)?, "vier");
        Ok(())
    }
}
