//! The forms of OpenAI's answers.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::response::Response;
use serde_json::{Value, json};

use crate::api::respond;
use crate::fault::Fault;
use crate::serving::connections::Refusal;
use crate::versions::now;

/// The two interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Chat,
    Text,
}

/// A refusal in OpenAI's form.
#[derive(Debug)]
pub struct Wrong {
    pub status: u16,
    pub message: String,
    /// The member of the request that it is about.
    pub param: Option<String>,
    pub code: Option<&'static str>,
}

impl Wrong {
    pub fn new(status: u16, message: String) -> Self {
        let code = (status == 401).then_some("invalid_api_key");
        Wrong { status, message, param: None, code }
    }
    /// About a member of the request.
    pub fn about(param: &str, message: impl std::fmt::Display) -> Self {
        Wrong { param: Some(param.into()), ..Wrong::new(400, format!("\"{param}\" {message}")) }
    }
    pub fn body(&self) -> Value {
        let kind = if self.status < 500 { "invalid_request_error" } else { "server_error" };
        json!({
            "error": { "message": self.message, "type": kind, "param": self.param, "code": self.code }
        })
    }
    pub fn response(self) -> Response {
        respond(self.status, "application/json", self.body().to_string())
    }
}

impl From<Refusal> for Wrong {
    fn from((status, message): Refusal) -> Self {
        Wrong::new(status, message)
    }
}

impl From<Fault> for Wrong {
    fn from(fault: Fault) -> Self {
        Wrong::new(fault.status(), fault.to_string())
    }
}

/// A refusal without further members.
pub fn refuse(status: u16, message: &str) -> Response {
    Wrong::new(status, message.into()).response()
}

#[derive(Clone, Debug)]
pub struct Choice {
    pub text: String,
    pub finish: &'static str,
}

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    pub prompt: usize,
    /// Of the prompt, those whose keys and values were there.
    pub cached: usize,
    pub completion: usize,
}

impl Usage {
    fn json(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": { "cached_tokens": self.cached },
        })
    }
}

/// Members that all parts of an answer have.
pub struct Head {
    kind: Kind,
    id: String,
    created: i64,
    model: String,
    fingerprint: Option<String>,
    /// Whether events have the member `usage`.
    with_usage: bool,
}

impl Head {
    pub fn new(kind: Kind, model: &str, fingerprint: Option<String>, with_usage: bool) -> Self {
        static ANSWERS: AtomicU64 = AtomicU64::new(0);
        let prefix = if kind == Kind::Chat { "chatcmpl" } else { "cmpl" };
        let (now, number) = (now(), ANSWERS.fetch_add(1, Ordering::Relaxed));
        let id = format!("{prefix}-{now:x}-{number}");
        Head { kind, id, created: now / 1000, model: model.into(), fingerprint, with_usage }
    }

    fn object(&self, object: &str, choices: Value) -> Value {
        let mut value = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let Some(fingerprint) = &self.fingerprint {
            value["system_fingerprint"] = json!(fingerprint);
        }
        value
    }

    /// An answer that is not in events.
    pub fn whole(&self, choices: &[Choice], usage: &Usage) -> Value {
        let choices = choices.iter().enumerate().map(|(index, choice)| {
            let mut value =
                json!({ "index": index, "logprobs": null, "finish_reason": choice.finish });
            match self.kind {
                Kind::Chat => {
                    value["message"] =
                        json!({ "role": "assistant", "content": choice.text, "refusal": null })
                }
                Kind::Text => value["text"] = json!(choice.text),
            }
            value
        });
        let object = if self.kind == Kind::Chat { "chat.completion" } else { "text_completion" };
        let mut answer = self.object(object, choices.collect());
        answer["usage"] = usage.json();
        answer
    }

    fn chunk(&self, choices: Value, usage: Value) -> String {
        let object =
            if self.kind == Kind::Chat { "chat.completion.chunk" } else { "text_completion" };
        let mut value = self.object(object, choices);
        if self.with_usage {
            value["usage"] = usage;
        }
        event(&value)
    }
    fn change(&self, index: usize, delta: Value, text: &str, finish: Value) -> String {
        let mut choice = json!({ "index": index, "logprobs": null, "finish_reason": finish });
        match self.kind {
            Kind::Chat => choice["delta"] = delta,
            Kind::Text => choice["text"] = json!(text),
        }
        self.chunk(json!([choice]), Value::Null)
    }
    /// The event in front of a sequence of a conversation, which tells its role.
    pub fn begin(&self, index: usize) -> String {
        if self.kind == Kind::Text {
            return String::new();
        }
        self.change(index, json!({ "role": "assistant", "content": "" }), "", Value::Null)
    }
    pub fn text(&self, index: usize, text: &str) -> String {
        self.change(index, json!({ "content": text }), text, Value::Null)
    }
    pub fn finish(&self, index: usize, finish: &str) -> String {
        self.change(index, json!({}), "", json!(finish))
    }
    /// The last events of an answer.
    pub fn end(&self, usage: &Usage) -> String {
        let usage =
            if self.with_usage { self.chunk(json!([]), usage.json()) } else { String::new() };
        usage + "data: [DONE]\n\n"
    }
}

/// A server-sent event.
pub fn event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
