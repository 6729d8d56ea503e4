//! The named parameters of an own network.

use std::cell::RefCell;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use trafo_sys as sys;

use crate::context::{Context, ContextInner};
use crate::error::{Error, ErrorCode, Result, check};
use crate::handle::{OutString, RawContext, RawTensor, path_view, views};
use crate::network::tensor::Tensor;

/// The parameters of an own network by their names, in the order in which they were inserted.
///
/// Like its tensors it stays on its thread. [`close`](Parameters::close) makes something that moves between threads.
///
/// ```
/// use trafo::{AdamW, AdamWOptions, Context, Parameters};
/// # fn main() -> trafo::Result<()> {
/// let context = Context::new()?;
/// let mut network = Parameters::new(&context);
/// network.insert("w", context.parameter(&[5.0f32], &[1])?)?;
/// let mut optimizer = AdamW::new(&context, &network.tensors(), &AdamWOptions::default())?;
/// for _ in 0..3 {
///     let w = network.get("w").unwrap();
///     w.mul(w)?.sum()?.backward()?;
///     optimizer.step(0.1)?;
/// }
/// drop((optimizer, context));
/// let closed = network.close().expect("no other handle on its tensors is left");
/// let value = std::thread::spawn(move || closed.open().get("w").unwrap().item()).join().unwrap()?;
/// assert!(value < 5.0);
/// # Ok(())
/// # }
/// ```
pub struct Parameters {
    // Freed before the context.
    tensors: Vec<(String, Tensor)>,
    context: Context,
}

/// The result of [`Parameters::load`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// Parameters that the file has not: they are as before.
    pub missing: Vec<String>,
    /// Tensors of the file that are no parameters.
    pub unexpected: Vec<String>,
}

/// [`Parameters`] on their way to another thread, with their context.
pub struct ClosedParameters {
    // Freed before the context.
    tensors: Vec<(String, RawTensor)>,
    context: Arc<RawContext>,
}

// SAFETY: nothing outside this struct uses the context or the tensors in it: close() has seen that no other handle is left.
unsafe impl Send for ClosedParameters {}

/// The names of the tensors in a safetensors file, in ascending order.
pub fn tensor_names(path: impl AsRef<Path>) -> Result<Vec<String>> {
    let (data, length) = path_view(path.as_ref());
    let mut names = OutString::new();
    // SAFETY: the path is valid during the call, and so are the outputs.
    check(unsafe { sys::trafo_tensors_list(data, length, &mut names.data, &mut names.length) })?;
    Ok(names.to_text().split_terminator('\0').map(str::to_owned).collect())
}

impl Parameters {
    /// None yet, of the context.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Parameters { tensors: Vec::new(), context: context.clone() }
    }
    /// Their context.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }
    /// Adds a tensor. `InvalidArgument`: the name is taken, or the tensor is of another context.
    pub fn insert(&mut self, name: impl Into<String>, tensor: Tensor) -> Result<()> {
        let name = name.into();
        let refuse = |why| {
            let message = format!("name: '{name}' {why}");
            Err(Error::new(ErrorCode::InvalidArgument, "Parameters::insert", message))
        };
        if self.get(&name).is_some() {
            return refuse("is taken");
        }
        if !Rc::ptr_eq(&self.context.0, &tensor.context().0) {
            return refuse("is a tensor of another context");
        }
        self.tensors.push((name, tensor));
        Ok(())
    }
    /// The tensor of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        self.iter().find(|(each, _)| *each == name).map(|(_, tensor)| tensor)
    }
    /// Names and tensors.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Tensor)> {
        self.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor))
    }
    /// The tensors, as optimizers take them.
    #[must_use]
    pub fn tensors(&self) -> Vec<&Tensor> {
        self.tensors.iter().map(|(_, tensor)| tensor).collect()
    }
    /// Writes them to a safetensors file with checksums, which appears whole or not at all.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.context.save_tensors(path, &self.iter().collect::<Vec<_>>())
    }
    /// Copies the tensors of a safetensors file into the parameters of their names. `ShapeMismatch`: one has another shape
    /// or element type; nothing has changed then.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Loaded> {
        let path = path.as_ref();
        let in_file = tensor_names(path)?;
        let (found, missing): (Vec<_>, Vec<_>) =
            self.iter().partition(|(name, _)| in_file.iter().any(|each| each == name));
        let names: Vec<&str> = found.iter().map(|(name, _)| *name).collect();
        let raw: Vec<_> = found.iter().map(|(_, tensor)| tensor.as_ptr()).collect();
        let (data, length) = path_view(path);
        let views = views(&names);
        // SAFETY: the handles are live, the arrays and the path are valid during the call.
        check(unsafe {
            sys::trafo_tensors_read(
                self.context.as_ptr(),
                data,
                length,
                views.as_ptr(),
                raw.as_ptr(),
                raw.len(),
            )
        })?;
        Ok(Loaded {
            missing: missing.into_iter().map(|(name, _)| name.to_owned()).collect(),
            unexpected: in_file.into_iter().filter(|name| self.get(name).is_none()).collect(),
        })
    }
    /// The parameters as something that moves between threads. While a clone of the context, or another handle on a tensor
    /// of it, such as an optimizer's, lives, they cannot leave the thread: the error gives them back.
    pub fn close(self) -> std::result::Result<ClosedParameters, Parameters> {
        let Parameters { tensors, context } = self;
        // Each tensor has a handle on the context.
        let is_alone = Rc::strong_count(&context.0) == tensors.len() + 1
            && Rc::weak_count(&context.0) == 0
            && tensors.iter().all(|(_, tensor)| tensor.is_alone());
        if !is_alone {
            return Err(Parameters { tensors, context });
        }
        let tensors = tensors.into_iter().map(|(name, tensor)| (name, tensor.into_owned()));
        let tensors = tensors.collect();
        let inner = Rc::into_inner(context.0).expect("no other handle on the context");
        Ok(ClosedParameters { tensors, context: inner.raw })
    }
}

impl ClosedParameters {
    /// The parameters on this thread.
    #[must_use]
    pub fn open(self) -> Parameters {
        let inner = ContextInner { raw: self.context, interruption: RefCell::new(None) };
        let context = Context(Rc::new(inner));
        let open = |(name, raw)| (name, Tensor::of_owned(&context, raw));
        Parameters { tensors: self.tensors.into_iter().map(open).collect(), context }
    }
}

impl fmt::Debug for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl fmt::Debug for ClosedParameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.tensors.iter().map(|(name, _)| name)).finish()
    }
}
