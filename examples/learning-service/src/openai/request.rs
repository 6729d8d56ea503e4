//! Requests of OpenAI's clients. Members that the service does not know are refused, unless they are off: null, false, 0 or empty.

use std::hash::{BuildHasher, Hasher, RandomState};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Result;
use super::answer::{Kind, Wrong};
use crate::api::{MOST_BEAM, MOST_LINES, Text};

/// Tokens of a completion of a language model if the request does not say how many (OpenAI's default).
const COMPLETION: usize = 16;
const MOST_STOP: usize = 4;
/// Members that decide nothing here.
const WITHOUT_EFFECT: [&str; 6] =
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"];

/// The members of a request that were not taken yet.
pub struct Fields(Map<String, Value>);

impl Fields {
    pub fn new(request: Value) -> Result<Self> {
        match request {
            Value::Object(members) => Ok(Fields(members)),
            _ => Err(Wrong::new(400, "the request is no JSON object".into())),
        }
    }
    /// A member. `None`: it is missing or null.
    fn take<T: DeserializeOwned>(&mut self, name: &str, what: &str) -> Result<Option<T>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value)
                .map(Some)
                .map_err(|_| Wrong::about(name, format_args!("is {what}"))),
        }
    }
    fn number(&mut self, name: &str, least: f64, most: f64) -> Result<Option<f64>> {
        let what = format!("a number from {least} to {most}");
        match self.take::<f64>(name, &what)? {
            Some(value) if !(least..=most).contains(&value) => {
                Err(Wrong::about(name, format_args!("is {what}")))
            }
            value => Ok(value),
        }
    }
    fn count(&mut self, name: &str, most: usize) -> Result<Option<usize>> {
        let what = format!("an integer from 1 to {most}");
        match self.take::<usize>(name, &what)? {
            Some(value) if !(1..=most).contains(&value) => {
                Err(Wrong::about(name, format_args!("is {what}")))
            }
            value => Ok(value),
        }
    }
    /// Refuses what was not taken.
    pub fn end(self) -> Result<()> {
        let is_off = |value: &Value| match value {
            Value::Null => true,
            Value::Bool(on) => !on,
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.is_empty(),
            Value::Array(list) => list.is_empty(),
            Value::Object(members) => members.is_empty(),
        };
        let known = |name: &str| WITHOUT_EFFECT.contains(&name);
        match self.0.iter().find(|(name, value)| !known(name) && !is_off(value)) {
            None => Ok(()),
            Some((name, _)) => Err(Wrong {
                code: Some("unsupported_parameter"),
                ..Wrong::about(name, "is not supported")
            }),
        }
    }
}

/// Texts to continue, to answer or to translate.
pub enum Input {
    Prompts(Vec<String>),
    /// Objects with the texts `role` and `content`.
    Messages(Vec<Value>),
}

/// A request with the defaults that do not depend on the model.
pub struct Asked {
    pub model: String,
    pub input: Input,
    /// Choices of each prompt.
    pub count: usize,
    /// Most tokens of a choice.
    pub most: Option<usize>,
    pub temperature: Option<f64>,
    pub top_p: Option<f64>,
    pub presence_penalty: f64,
    pub frequency_penalty: f64,
    /// A drawn one if the request has none.
    pub seed: u64,
    pub stop: Vec<String>,
    pub stream: bool,
    pub with_usage: bool,
}

impl Asked {
    pub fn take(fields: &mut Fields, kind: Kind) -> Result<Self> {
        let model = fields.take("model", "a string")?;
        let model: String = model.ok_or_else(|| Wrong::about("model", "is missing"))?;
        let input = match kind {
            Kind::Chat => Input::Messages(messages(fields)?),
            Kind::Text => Input::Prompts(prompts(fields)?),
        };
        let most = fields.count("max_tokens", i32::MAX as usize)?;
        let most = match kind {
            Kind::Chat => fields.count("max_completion_tokens", i32::MAX as usize)?.or(most),
            Kind::Text if model.starts_with(super::TRANSLATION) => most,
            Kind::Text => most.or(Some(COMPLETION)),
        };
        let top_p = fields.number("top_p", 0.0, 1.0)?;
        if top_p == Some(0.0) {
            return Err(Wrong::about("top_p", "must be above 0"));
        }
        let stream = fields.take("stream", "true or false")?.unwrap_or(false);
        Ok(Asked {
            model,
            input,
            count: fields.count("n", MOST_BEAM)?.unwrap_or(1),
            most,
            temperature: fields.number("temperature", 0.0, 2.0)?,
            top_p,
            presence_penalty: fields.number("presence_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            frequency_penalty: fields.number("frequency_penalty", -2.0, 2.0)?.unwrap_or(0.0),
            seed: fields
                .take::<i64>("seed", "an integer of 64 bits")?
                .map_or_else(|| RandomState::new().build_hasher().finish(), |seed| seed as u64),
            stop: stop(fields)?,
            stream,
            with_usage: with_usage(fields, stream)?,
        })
    }
}

fn prompts(fields: &mut Fields) -> Result<Vec<String>> {
    let what = format!("a string or a list of 1 to {MOST_LINES} strings");
    let prompts = fields.take::<Text>("prompt", &what)?;
    let prompts = prompts.ok_or_else(|| Wrong::about("prompt", "is missing"))?.into_list();
    if prompts.is_empty() || prompts.len() > MOST_LINES {
        return Err(Wrong::about("prompt", format_args!("is {what}")));
    }
    Ok(prompts)
}

fn stop(fields: &mut Fields) -> Result<Vec<String>> {
    let what = format!("a string or a list of at most {MOST_STOP} strings, none of them empty");
    let stop = fields.take::<Text>("stop", &what)?.map_or(Vec::new(), Text::into_list);
    if stop.len() > MOST_STOP || stop.iter().any(String::is_empty) {
        return Err(Wrong::about("stop", format_args!("is {what}")));
    }
    Ok(stop)
}

fn with_usage(fields: &mut Fields, stream: bool) -> Result<bool> {
    let options = fields.take::<Map<String, Value>>("stream_options", "an object")?;
    let Some(options) = options else { return Ok(false) };
    if !stream {
        return Err(Wrong::about("stream_options", "is for requests with \"stream\""));
    }
    let mut options = Fields(options);
    let with_usage = options.take("include_usage", "true or false")?;
    options.end()?;
    Ok(with_usage.unwrap_or(false))
}

fn messages(fields: &mut Fields) -> Result<Vec<Value>> {
    let list = fields.take::<Vec<Map<String, Value>>>("messages", "a list of objects")?;
    let list = list.ok_or_else(|| Wrong::about("messages", "is missing"))?;
    if list.is_empty() {
        return Err(Wrong::about("messages", "is empty"));
    }
    let message = |(number, members)| {
        message(Fields(members)).map_err(|wrong| Wrong {
            message: format!("message {}: {}", number + 1, wrong.message),
            param: Some("messages".into()),
            ..wrong
        })
    };
    list.into_iter().enumerate().map(message).collect()
}

/// A message as templates read it: `content` is a text.
fn message(mut fields: Fields) -> Result<Value> {
    let role = fields.take::<String>("role", "a string")?;
    let role = role.ok_or_else(|| Wrong::about("role", "is missing"))?;
    let role = match role.as_str() {
        "developer" => "system", // OpenAI's newer name of it, which templates do not know
        "system" | "user" | "assistant" => &role,
        _ => return Err(Wrong::about("role", "is system, developer, user or assistant")),
    };
    let content = match fields.take::<Value>("content", "a text")? {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => parts.into_iter().map(part).collect::<Result<_>>()?,
        None if role == "assistant" => String::new(),
        _ => return Err(Wrong::about("content", "is a string or a list of texts")),
    };
    let name = fields.take::<String>("name", "a string")?;
    fields.end()?;
    let mut message = serde_json::json!({ "role": role, "content": content });
    if let Some(name) = name {
        message["name"] = name.into();
    }
    Ok(message)
}

/// The text of a part of a message.
fn part(part: Value) -> Result<String> {
    let mut fields =
        Fields::new(part).map_err(|_| Wrong::about("content", "has a part that is no object"))?;
    let kind = fields.take::<String>("type", "a string")?;
    if kind.as_deref() != Some("text") {
        return Err(Wrong::about("content", "has a part whose type is not \"text\""));
    }
    let text = fields.take("text", "a string")?;
    fields.end()?;
    text.ok_or_else(|| Wrong::about("content", "has a part without a text"))
}

/// The text of the last message of the user.
pub fn last_of_user(messages: &[Value]) -> Result<String> {
    let last = messages.iter().rev().find(|message| message["role"] == "user");
    let last = last.and_then(|message| message["content"].as_str());
    let missing = || Wrong::about("messages", "have none of the user, which would be translated");
    last.map(String::from).ok_or_else(missing)
}

/// Each text as many times, one after the other.
pub fn repeated(texts: &[String], copies: usize) -> Vec<String> {
    texts.iter().flat_map(|text| std::iter::repeat_n(text.clone(), copies)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn asked(kind: Kind, change: Value) -> Result<Asked> {
        let mut request = match kind {
            Kind::Chat => json!({ "model": "m", "messages": [{ "role": "user", "content": "a" }] }),
            Kind::Text => json!({ "model": "m", "prompt": "a" }),
        };
        for (name, value) in change.as_object().unwrap() {
            request[name] = value.clone();
        }
        let mut fields = Fields::new(request)?;
        let asked = Asked::take(&mut fields, kind)?;
        fields.end()?;
        Ok(asked)
    }

    fn param(kind: Kind, change: Value) -> Option<String> {
        asked(kind, change).err().and_then(|wrong| wrong.param)
    }

    #[test]
    fn a_wrong_member_is_named() {
        for (name, value) in [
            ("model", json!(null)),
            ("messages", json!([])),
            ("messages", json!([{ "role": "tool", "content": "a" }])),
            ("messages", json!([{ "role": "user" }])),
            ("messages", json!([{ "role": "user", "content": [{ "type": "image_url" }] }])),
            ("messages", json!([{ "role": "user", "content": "a", "tool_calls": [1] }])),
            ("n", json!(0)),
            ("n", json!(17)),
            ("max_tokens", json!(0)),
            ("temperature", json!(2.1)),
            ("temperature", json!("1")),
            ("top_p", json!(0)),
            ("stop", json!(["a", "b", "c", "d", "e"])),
            ("stop", json!("")),
            ("stream", json!("yes")),
            ("stream_options", json!({ "include_usage": true })),
            ("seed", json!(1.5)),
            ("tools", json!([{ "type": "function" }])),
            ("logprobs", json!(true)),
        ] {
            let change = json!({ name: value });
            assert_eq!(param(Kind::Chat, change.clone()).as_deref(), Some(name), "{change}");
        }
        assert_eq!(param(Kind::Text, json!({ "prompt": [] })).as_deref(), Some("prompt"));
        assert_eq!(param(Kind::Text, json!({ "prompt": [1, 2] })).as_deref(), Some("prompt"));
        assert_eq!(param(Kind::Text, json!({ "echo": true })).as_deref(), Some("echo"));
    }

    #[test]
    fn members_that_are_off_or_decide_nothing_are_passed_over() {
        let change = json!({ "tools": [], "logprobs": false, "top_logprobs": 0, "logit_bias": {}, "user": "x", "stop": null });
        let found = asked(Kind::Chat, change).unwrap();
        assert_eq!((found.count, found.most, found.stop.len()), (1, None, 0));
        assert_eq!(asked(Kind::Text, json!({})).unwrap().most, Some(COMPLETION));
        let whole = asked(Kind::Text, json!({ "model": "translation:rail" })).unwrap();
        assert_eq!(whole.most, None, "translations end by themselves");
        let both = json!({ "max_tokens": 5, "max_completion_tokens": 7 });
        assert_eq!(asked(Kind::Chat, both).unwrap().most, Some(7));
    }

    #[test]
    fn messages_become_what_templates_read() {
        let parts = json!([{ "type": "text", "text": "b" }, { "type": "text", "text": "c" }]);
        let list = json!([
            { "role": "developer", "content": "a" },
            { "role": "user", "content": parts, "name": "Anna" },
            { "role": "assistant", "content": null, "refusal": null, "annotations": [] },
        ]);
        let Input::Messages(found) = asked(Kind::Chat, json!({ "messages": list })).unwrap().input
        else {
            panic!("no messages")
        };
        let expected = [
            json!({ "role": "system", "content": "a" }),
            json!({ "role": "user", "content": "bc", "name": "Anna" }),
            json!({ "role": "assistant", "content": "" }),
        ];
        assert_eq!(found, expected);
        assert_eq!(last_of_user(&found).unwrap(), "bc");
        assert!(last_of_user(&found[2..]).is_err());
    }
}
