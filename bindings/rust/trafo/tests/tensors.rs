//! Tensors, ops, gradients, checkpoints.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use trafo::{
    Activation, AdamW, AdamWOptions, AttentionOptions, Comparison, Context, ContextOptions,
    CrossEntropyOptions, DType, Device, Distribution, Dropout, EmbeddingOptions, Error, ErrorCode,
    GradcheckOptions, Reduction, Result, Sgd, SoftmaxOptions, Tensor,
};

fn context() -> Context {
    Context::with_options(&ContextOptions::new().threads(2)).unwrap()
}

/// Distinct, unremarkable values.
fn values(count: usize, salt: u32) -> Vec<f64> {
    (0..count).map(|i| ((i as f64 + 1.0) * 0.7371 + f64::from(salt) * 0.311).sin()).collect()
}

fn f64_tensor(context: &Context, shape: &[usize], salt: u32) -> Tensor {
    context.tensor(&values(shape.iter().product(), salt), shape).unwrap()
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() < 1e-9, "{actual:?} is not {expected:?}");
    }
}

// Tensors that backward needs must not change before it runs; the error names the op.
#[test]
fn a_write_before_backward_is_an_error() -> Result<()> {
    let context = context();
    let x = context.tensor(&[1.0f32, 2.0], &[2])?;
    let w = context.tensor(&[3.0f32, 4.0], &[2])?;
    w.set_requires_grad(true)?;
    let loss = || (&w * &x)?.sum();
    let refused = |loss: &Tensor| {
        let error = loss.backward().unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains("multiply needs "), "{error}");
    };
    let last = loss()?;
    x.write(&[5.0f32, 6.0])?;
    refused(&last);
    let last = loss()?;
    x.detach()?.write(&[5.0f32, 6.0])?;
    refused(&last);
    let last = loss()?;
    x.mark_written()?;
    refused(&last);
    let last = loss()?;
    w.write(&[7.0f32, 8.0])?; // x is a constant: the values of w are not needed
    last.backward()?;
    assert_eq!(w.grad()?.unwrap().to_vec::<f32>()?, [5.0, 6.0]);

    x.set_requires_grad(true)?;
    let mut optimizer = AdamW::new(&context, &[&w], &AdamWOptions::default())?;
    loss()?.backward()?;
    let last = loss()?;
    optimizer.step(0.1)?;
    refused(&last);
    loss()?.backward()
}

#[test]
fn values_go_in_and_out() -> Result<()> {
    let context = context();
    let x = context.tensor(&[1.5f32, -2.0, 0.25], &[3])?;
    assert_eq!((x.shape(), x.dtype(), x.len()), (&[3usize][..], DType::F32, 3));
    assert_eq!(x.to_vec::<f32>()?, [1.5, -2.0, 0.25]);
    x.write(&[4.0f32, 5.0, 6.0])?;
    let copy = x.copy()?;
    x.write(&[0.0f32; 3])?;
    assert_eq!(copy.to_vec::<f32>()?, [4.0, 5.0, 6.0]);
    assert_eq!(context.tensor(&[7, -8], &[1, 2])?.to_vec::<i32>()?, [7, -8]);
    assert_eq!(context.zeros(&[2, 2], DType::F64)?.to_vec::<f64>()?, [0.0; 4]);
    assert_eq!(context.tensor(&[3.5f64], &[])?.item()?, 3.5);
    let none = context.tensor::<f32>(&[], &[0, 4])?;
    assert!(none.is_empty() && none.to_vec::<f32>()?.is_empty());
    let stored = context.tensor(&[1.0f32, 1.0 / 3.0], &[2])?.cast(DType::BF16)?;
    let back = stored.cast(DType::F32)?.to_vec::<f32>()?;
    assert!(back[0] == 1.0 && back[1] != 1.0 / 3.0 && (back[1] - 1.0 / 3.0).abs() < 2e-3);
    Ok(())
}

#[test]
fn ops_compute_what_they_say() -> Result<()> {
    let context = context();
    let a = context.tensor(&[1.0f64, 2.0, 3.0, 4.0], &[2, 2])?;
    let row = context.tensor(&[10.0f64, 20.0], &[2])?;
    assert_close(&(&a + &row)?.to_vec::<f64>()?, &[11.0, 22.0, 13.0, 24.0]);
    assert_close(&(&a - &row)?.to_vec::<f64>()?, &[-9.0, -18.0, -7.0, -16.0]);
    assert_close(&(&a * &row)?.to_vec::<f64>()?, &[10.0, 40.0, 30.0, 80.0]);
    assert_close(&(&a / &row)?.to_vec::<f64>()?, &[0.1, 0.1, 0.3, 0.2]);
    assert_close(&(&a * 0.5)?.to_vec::<f64>()?, &[0.5, 1.0, 1.5, 2.0]);
    assert_close(&a.matmul(&a)?.to_vec::<f64>()?, &[7.0, 10.0, 15.0, 22.0]);
    assert_close(&a.matmul_with(&a, true, false)?.to_vec::<f64>()?, &[10.0, 14.0, 14.0, 20.0]);
    assert_close(&a.linear(&a, Some(&row))?.to_vec::<f64>()?, &[15.0, 31.0, 21.0, 45.0]);
    assert_close(&a.transpose(0, 1)?.to_vec::<f64>()?, &[1.0, 3.0, 2.0, 4.0]);
    assert_close(&a.slice(1, 1..2)?.to_vec::<f64>()?, &[2.0, 4.0]);
    assert_eq!(a.reshape(&[-1])?.shape(), [4]);
    assert_eq!(context.concat(&[&a, &a, &a], 1)?.shape(), [2, 6]);
    assert_close(&a.sum_dim(0, false)?.to_vec::<f64>()?, &[4.0, 6.0]);
    assert_close(&a.mean_dim(-1, true)?.to_vec::<f64>()?, &[1.5, 3.5]);
    assert_close(&a.max_dim(0, false)?.to_vec::<f64>()?, &[3.0, 4.0]);
    assert_close(&[a.mean()?.item()?, a.sum()?.item()?], &[2.5, 10.0]);
    assert_close(&a.exp()?.log()?.sqrt()?.to_vec::<f64>()?, &[1.0, 2f64.sqrt(), 3f64.sqrt(), 2.0]);
    assert_close(&a.tanh()?.to_vec::<f64>()?, &[1f64, 2.0, 3.0, 4.0].map(f64::tanh));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    assert_close(&a.sigmoid()?.to_vec::<f64>()?, &[1f64, 2.0, 3.0, 4.0].map(sigmoid));
    assert_close(&row.scale(-1.0)?.relu()?.to_vec::<f64>()?, &[0.0, 0.0]);
    let sums = a.softmax()?.sum_dim(1, false)?;
    assert_close(&sums.to_vec::<f64>()?, &[1.0, 1.0]);
    let causal = a.softmax_with(&SoftmaxOptions::new().causal(true))?.to_vec::<f64>()?;
    assert_close(&causal[..2], &[1.0, 0.0]);
    let table = context.sinusoidal_positions(4, 6, DType::F64)?;
    assert_eq!(table.shape(), [4, 6]);
    assert_close(&table.to_vec::<f64>()?[..6], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    Ok(())
}

#[test]
fn dropout_depends_on_its_address_alone() -> Result<()> {
    let context = context();
    let x = context.tensor(&[1.0f32; 1000], &[10, 100])?;
    let mask = |dropout: Dropout| x.dropout(dropout)?.to_vec::<f32>();
    let first = mask(Dropout::new(0.5, 9).at(3, 1))?;
    let zeros = first.iter().filter(|v| **v == 0.0).count();
    assert!((400..600).contains(&zeros), "{zeros} of 1000 dropped");
    assert!(first.iter().all(|v| *v == 0.0 || *v == 2.0));
    assert_eq!(first, mask(Dropout::new(0.5, 9).at(3, 1))?);
    assert_ne!(first, mask(Dropout::new(0.5, 9).at(4, 1))?);
    assert_ne!(first, mask(Dropout::new(0.5, 9).at(3, 2))?);
    assert_ne!(first, mask(Dropout::new(0.5, 8).at(3, 1))?);
    Ok(())
}

#[test]
fn gradients_are_right() -> Result<()> {
    let context = context();
    let options = GradcheckOptions::default();
    let x = f64_tensor(&context, &[5, 6], 0);
    let w = f64_tensor(&context, &[6, 6], 1);
    let b = f64_tensor(&context, &[6], 2);
    let g = f64_tensor(&context, &[6], 3);
    let labels = context.tensor(&[0, 5, -100, 2, 1], &[5])?;
    let cu = context.tensor(&[0, 2, 5], &[3])?;
    let ids = context.tensor(&[1, 4, 1], &[3])?;

    let norm =
        context.gradcheck([&x, &g, &b], options, |_, [x, g, b]| Ok([x.layer_norm(g, b, 1e-5)?]))?;
    assert!(norm.ok, "{}", norm.message);
    assert_eq!(norm.checked, 30 + 6 + 6);

    let at = context.tensor(&[0, 1, 2, 0, 1], &[5])?;
    let llama = context.gradcheck([&x, &g], options, move |_, [x, g]| {
        let (sum, normed) = x.rms_norm(g, 1e-6)?.residual_rms_norm(x, g, 1e-6, None)?;
        Ok([normed.rotary(&at, 1, 1, 2, 1e4)?, sum.swiglu()?])
    })?;
    assert!(llama.ok, "{}", llama.message);

    let drop = Dropout::new(0.3, 5);
    let norms = context.gradcheck([&x, &w, &b, &g], options, move |_, [x, w, b, g]| {
        let h = x.linear(w, None)?.bias_act_dropout(Some(b), Activation::Gelu, Some(drop))?;
        let (sum, normed) =
            h.bias_dropout_residual_norm(Some(b), x, g, b, 1e-5, Some(drop.at(0, 1)))?;
        Ok([sum, normed.bias_dropout_residual(None, x, None)?])
    })?;
    assert!(norms.ok, "{}", norms.message);

    let attention = context.gradcheck([&x], options, |_, [x]| {
        let options = AttentionOptions::new(1, 2).columns(0, 2, 4).causal(true);
        Ok([x.attention(x, x, &cu, &cu, &options)?])
    })?;
    assert!(attention.ok, "{}", attention.message);
    let grouped = context.gradcheck([&x], options, |_, [x]| {
        let options = AttentionOptions::new(2, 1).kv_heads(1).columns(0, 2, 3);
        Ok([x.attention(x, x, &cu, &cu, &options)?])
    })?;
    assert!(grouped.ok, "{}", grouped.message);

    let mask = context.parameter(&[0.0f64, 1.0, -0.5], &[1, 1, 1, 3])?;
    let masked = context.gradcheck([&x, &mask], options, |_, [x, mask]| {
        let options = AttentionOptions::new(1, 2).columns(0, 2, 4).mask(mask);
        Ok([x.attention(x, x, &cu, &cu, &options)?])
    })?;
    assert!(masked.ok, "{}", masked.message);

    let losses = context.gradcheck([&x, &w, &b], options, |_, [x, w, b]| {
        let ce = CrossEntropyOptions::new().label_smoothing(0.1);
        let (full, _) = x.linear(w, Some(b))?.cross_entropy(&labels, &ce)?;
        let (chunked, _) = x.linear_cross_entropy(w, Some(b), &labels, &ce, 0)?;
        let targets = x.linear(w, None)?.softmax()?;
        Ok([full, chunked, x.linear(w, Some(b))?.soft_cross_entropy(&targets, &ce)?])
    })?;
    assert!(losses.ok, "{}", losses.message);

    let embedding = context.gradcheck([&x], options, |_, [table]| {
        let options = EmbeddingOptions::new().scale(2.0).dropout(drop);
        Ok([table.embedding(&ids, &options)?.silu()?])
    })?;
    assert!(embedding.ok, "{}", embedding.message);

    // A check that cannot fail would be worth nothing: detach hides half of the derivative.
    let wrong = context.gradcheck([&x], options, |_, [x]| Ok([x.detach()?.mul(x)?]))?;
    assert!(!wrong.ok && !wrong.message.is_empty());
    Ok(())
}

#[test]
fn backward_accumulates_and_zeroes() -> Result<()> {
    let context = context();
    let x = context.parameter(&[2.0f64, 3.0], &[2])?;
    assert!(x.grad()?.is_none());
    for _ in 0..2 {
        x.mul(&x)?.sum()?.backward()?;
    }
    assert_close(&x.grad()?.unwrap().to_vec::<f64>()?, &[8.0, 12.0]);
    x.zero_grad()?;
    assert!(x.grad()?.is_none());
    let upstream = context.tensor(&[1.0f64, 10.0], &[2])?;
    x.mul(&x)?.backward_with(&upstream)?;
    assert_close(&x.grad()?.unwrap().to_vec::<f64>()?, &[4.0, 60.0]);
    x.zero_grad()?;
    let hidden = context.no_grad(|| x.mul(&x))?;
    let _ = hidden.sum()?.backward();
    assert!(x.grad()?.is_none());
    x.mul(&x)?.sum()?.backward()?;
    assert!(x.grad()?.is_some(), "recording is on again");
    Ok(())
}

#[test]
fn losses_come_with_and_without_smoothing() -> Result<()> {
    let context = context();
    let logits = context.tensor(&[2.0f32, 0.0, 0.0, 2.0, 1.0, 1.0], &[3, 2])?;
    let labels = context.tensor(&[0, 0, -100], &[3])?;
    let options = CrossEntropyOptions::new().reduction(Reduction::None);
    let (loss, nll) = logits.cross_entropy(&labels, &options)?;
    let expected = [(1.0 + (-2f32).exp()).ln(), (1.0 + 2f32.exp()).ln(), 0.0];
    for (a, e) in loss.to_vec::<f32>()?.iter().zip(expected) {
        assert!((a - e).abs() < 1e-6);
    }
    assert_eq!(loss.to_vec::<f32>()?, nll.to_vec::<f32>()?);
    let weights = context.tensor(&[1.0f32, 3.0, 1.0], &[3])?;
    let (weighted, _) =
        logits.cross_entropy(&labels, &CrossEntropyOptions::new().weights(&weights))?;
    let mean = f64::from(expected[0] + 3.0 * expected[1]) / 4.0;
    assert!((weighted.item()? - mean).abs() < 1e-6);
    Ok(())
}

#[test]
fn a_checkpointed_region_has_the_same_gradients() -> Result<()> {
    let context = context();
    let x = context.parameter(&values(12, 0), &[3, 4])?;
    let w = context.parameter(&values(16, 1), &[4, 4])?;
    let block = |x: &Tensor, w: &Tensor| {
        x.linear(w, None)?.gelu()?.dropout(Dropout::new(0.2, 1))?.linear(w, None)
    };
    block(&x, &w)?.sum()?.backward()?;
    let plain = (x.grad()?.unwrap().to_vec::<f64>()?, w.grad()?.unwrap().to_vec::<f64>()?);
    x.zero_grad()?;
    w.zero_grad()?;

    let runs = Rc::new(Cell::new(0));
    let (counter, captured) = (runs.clone(), w.clone());
    let [y] = context.checkpoint([&x], move |_, [x]| {
        counter.set(counter.get() + 1);
        Ok([block(x, &captured)?])
    })?;
    assert_eq!(runs.get(), 1);
    y.sum()?.backward()?;
    assert_eq!(runs.get(), 2);
    let again = (x.grad()?.unwrap().to_vec::<f64>()?, w.grad()?.unwrap().to_vec::<f64>()?);
    assert_eq!(plain, again);
    drop(y);
    assert_eq!(Rc::strong_count(&runs), 1, "the region is freed with the graph");
    Ok(())
}

#[test]
fn regions_may_return_their_inputs_and_shared_tensors() -> Result<()> {
    let context = context();
    let x = context.parameter(&[1.0f64, 2.0], &[2])?;
    let kept = Rc::new(RefCell::new(Vec::new()));
    let keep = kept.clone();
    let [same, square] = context.checkpoint([&x], move |_, [x]| {
        let square = x.mul(x)?;
        keep.borrow_mut().push(square.clone());
        keep.borrow_mut().push(x.clone());
        Ok([x.clone(), square])
    })?;
    assert_close(&same.to_vec::<f64>()?, &[1.0, 2.0]);
    assert_close(&square.to_vec::<f64>()?, &[1.0, 4.0]);
    // The result that was kept is the caller's; the borrowed input that was kept is refused.
    let kept = kept.take();
    assert_close(&kept[0].to_vec::<f64>()?, &[1.0, 4.0]);
    assert_eq!(kept[1].to_vec::<f64>().unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(kept[1].exp().unwrap_err().code(), ErrorCode::InvalidArgument);
    same.add(&square)?.sum()?.backward()?;
    assert_close(&x.grad()?.unwrap().to_vec::<f64>()?, &[3.0, 5.0]);
    Ok(())
}

#[test]
fn errors_of_regions_come_out_as_they_were() -> Result<()> {
    let context = context();
    let x = context.parameter(&[1.0f64, 2.0], &[2])?;
    let own = Error::new(ErrorCode::Unsupported, "my_region", "not today");
    let expected = own.clone();
    let failed =
        context.checkpoint([&x], move |_, [_]| -> Result<[Tensor; 1]> { Err(own.clone()) });
    assert_eq!(failed.unwrap_err(), expected);

    // In recomputation, so out of backward.
    let calls = Cell::new(0);
    let [y] = context.checkpoint([&x], move |context, [x]| {
        calls.set(calls.get() + 1);
        if calls.get() > 1 { x.matmul(&context.zeros(&[7, 7], DType::F64)?) } else { x.exp() }
            .map(|y| [y])
    })?;
    let error = y.sum()?.backward().unwrap_err();
    assert_eq!(error.origin(), "matmul");
    // The context goes on.
    x.zero_grad()?;
    x.mul(&x)?.sum()?.backward()?;
    assert_close(&x.grad()?.unwrap().to_vec::<f64>()?, &[2.0, 4.0]);
    Ok(())
}

#[test]
fn panics_of_regions_go_on_in_the_caller() -> Result<()> {
    let context = context();
    let x = context.parameter(&[1.0f64, 2.0], &[2])?;
    let message =
        |result: std::thread::Result<()>| *result.unwrap_err().downcast::<&str>().unwrap();
    let first = catch_unwind(AssertUnwindSafe(|| {
        let _ = context.checkpoint([&x], |_, [_]| -> Result<[Tensor; 1]> { panic!("in forward") });
    }));
    assert_eq!(message(first), "in forward");

    let calls = Cell::new(0);
    let [y] = context.checkpoint([&x], move |_, [x]| {
        calls.set(calls.get() + 1);
        assert!(calls.get() < 2, "in backward");
        Ok([x.exp()?])
    })?;
    let loss = y.sum()?;
    let second = catch_unwind(AssertUnwindSafe(|| {
        let _ = loss.backward();
    }));
    assert_eq!(message(second), "in backward");

    let third = catch_unwind(AssertUnwindSafe(|| {
        let _ =
            context.gradcheck([&x], GradcheckOptions::default(), |_, [_]| -> Result<[Tensor; 1]> {
                panic!("in gradcheck")
            });
    }));
    assert_eq!(message(third), "in gradcheck");
    x.mul(&x)?.sum()?.backward()?;
    Ok(())
}

#[test]
fn adamw_trains_and_refuses() -> Result<()> {
    let context = context();
    let target = context.tensor(&[3.0f32, -1.0], &[2])?;
    let w = context.parameter(&[0.0f32, 0.0], &[2])?;
    let mut optimizer = AdamW::new(&context, &[&w], &AdamWOptions::new().clip_norm(1.0))?;
    let loss = || -> Result<Tensor> {
        let d = w.sub(&target)?;
        d.mul(&d)?.sum()
    };
    let before = loss()?.item()?;
    for _ in 0..300 {
        loss()?.backward()?;
        assert!(optimizer.step(0.05)? >= 0.0);
    }
    assert!(loss()?.item()? < before * 1e-3);

    let kept = w.to_vec::<f32>()?;
    let infinite = context.tensor(&[f32::INFINITY, 1.0], &[2])?;
    w.mul(&infinite)?.sum()?.backward()?;
    assert_eq!(optimizer.step(0.05).unwrap_err().code(), ErrorCode::NonFinite);
    assert_eq!(w.to_vec::<f32>()?, kept);

    let constant = context.tensor(&[1.0f32], &[1])?;
    let error = AdamW::new(&context, &[&constant], &AdamWOptions::default()).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument);
    Ok(())
}

/// Masks, class weights, padding: what each changes, by numbers.
#[test]
fn options_of_ops_change_what_they_say() -> Result<()> {
    let context = context();
    let near = |x: Tensor, expected: &[f32]| -> Result<()> {
        let values = x.to_vec::<f32>()?;
        assert_eq!(values.len(), expected.len());
        for (value, wanted) in values.iter().zip(expected) {
            assert!((value - wanted).abs() < 1e-6, "{values:?} {expected:?}");
        }
        Ok(())
    };
    // Two sequences, of one row and of two; every key is alike, so that values are averaged.
    let q = context.tensor(&[1.0f32; 3], &[3, 1])?;
    let v = context.tensor(&[5.0f32, 1.0, 3.0], &[3, 1])?;
    let rows = context.tensor(&[0, 1, 3], &[3])?;
    let hidden = context.tensor(&[1, 0, 0, 1], &[2, 1, 1, 2])?;
    let heads = AttentionOptions::new(1, 1);
    near(q.attention(&q, &v, &rows, &rows, &heads.mask(&hidden))?, &[0.0, 1.0, 1.0])?;
    let window = heads.causal(true).window(1);
    near(q.attention(&q, &v, &rows, &rows, &window)?, &[5.0, 1.0, 3.0])?;
    let wrong = q.attention(&q, &v, &rows, &rows, &heads.mask(&v));
    assert_eq!(wrong.unwrap_err().code(), ErrorCode::ShapeMismatch);

    let (quarter, rest) = (4f32.ln(), (4.0f32 / 3.0).ln()); // losses of softmax (1/4, 3/4)
    let logits = context.tensor(&[0.0, 3f32.ln(), 0.0, 3f32.ln()], &[2, 2])?;
    let labels = context.tensor(&[0, 1], &[2])?;
    let by_class = context.tensor(&[3.0f32, 1.0], &[2])?;
    let options = CrossEntropyOptions::new().class_weights(&by_class);
    near(logits.cross_entropy(&labels, &options)?.0, &[(3.0 * quarter + rest) / 4.0])?;
    let targets = context.tensor(&[0.5f32, 0.5, 1.0, 0.0], &[2, 2])?;
    let apart = options.reduction(Reduction::None);
    let expected = [(3.0 * quarter + rest) / 2.0, 3.0 * quarter];
    near(logits.soft_cross_entropy(&targets, &apart)?, &expected)?;

    let table = context.parameter(&[1.0f32, 2.0, 3.0], &[3, 1])?;
    let ids = context.tensor(&[2, 0, 2], &[3])?;
    table.embedding(&ids, &EmbeddingOptions::new().padding_id(2))?.sum()?.backward()?;
    near(table.grad()?.expect("the table wants a gradient"), &[1.0, 0.0, 0.0])
}

/// Saved, continued in another optimizer: the same bits as without the pause.
#[test]
fn adamw_continues_from_its_file() -> Result<()> {
    let path = std::env::temp_dir().join(format!("trafo-rust-adamw-{}", std::process::id()));
    let context = context();
    let start = || context.parameter(&[1.0f32, -2.0, 0.5], &[3]);
    let update = |optimizer: &mut AdamW, w: &Tensor| -> Result<()> {
        w.mul(w)?.mul(w)?.sum()?.backward()?;
        optimizer.step(0.01).map(drop)
    };
    let w = start()?;
    let mut optimizer = AdamW::new(&context, &[&w], &AdamWOptions::default())?;
    for _ in 0..3 {
        update(&mut optimizer, &w)?;
    }
    optimizer.save(&path)?;
    let other = start()?;
    let mut later = AdamW::new(&context, &[&other], &AdamWOptions::default())?;
    later.load(&path)?;
    for _ in 0..3 {
        update(&mut optimizer, &w)?;
        update(&mut later, &other)?;
    }
    assert_eq!(w.to_vec::<f32>()?, other.to_vec::<f32>()?);
    let wide = context.parameter(&[0.0f32; 4], &[4])?;
    let mut unlike = AdamW::new(&context, &[&wide], &AdamWOptions::default())?;
    assert_eq!(unlike.load(&path).unwrap_err().code(), ErrorCode::ShapeMismatch);
    std::fs::remove_file(&path).expect("it was written");
    assert_eq!(unlike.load(&path).unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(wide.to_vec::<f32>()?, [0.0; 4]);
    Ok(())
}

#[test]
fn bad_arguments_are_errors() -> Result<()> {
    let context = context();
    let a = context.tensor(&[0.0f32; 6], &[2, 3])?;
    let code = |result: Result<Tensor>| result.unwrap_err().code();
    assert_eq!(code(a.matmul(&a)), ErrorCode::ShapeMismatch);
    assert_eq!(code(context.tensor(&[0.0f32; 5], &[2, 3])), ErrorCode::ShapeMismatch);
    assert_eq!(code(a.add(&context.zeros(&[2, 3], DType::F64)?)), ErrorCode::DTypeMismatch);
    assert_eq!(code(a.reshape(&[4, -1])), ErrorCode::ShapeMismatch);
    for impossible in [
        context.zeros(&[usize::MAX], DType::F32),
        context.zeros(&[1 << 40, 1 << 40], DType::F32),
        context.zeros(&[1; 20], DType::F32),
        a.transpose(0, 2),
        a.slice(1, 2..9),
        a.sum_dim(5, false),
        context.concat(&[], 0),
        a.dropout(Dropout::new(1.0, 0)),
        a.dropout(Dropout::new(f32::NAN, 0)),
    ] {
        let error = impossible.unwrap_err();
        assert!(
            matches!(error.code(), ErrorCode::InvalidArgument | ErrorCode::ShapeMismatch),
            "{error}"
        );
        assert!(!error.message().is_empty() && !error.origin().is_empty());
    }
    let ids = context.tensor(&[0, 2], &[2])?;
    assert_eq!(code(a.embedding(&ids, &EmbeddingOptions::new())), ErrorCode::InvalidArgument);
    assert_eq!(a.to_vec::<f64>().unwrap_err().code(), ErrorCode::DTypeMismatch);
    assert_eq!(a.item().unwrap_err().code(), ErrorCode::ShapeMismatch);
    assert_eq!(a.write(&[0.0f32]).unwrap_err().code(), ErrorCode::ShapeMismatch);
    let elsewhere = Context::with_options(&ContextOptions::new().threads(1))?;
    assert_eq!(code(a.add(&elsewhere.zeros(&[2, 3], DType::F32)?)), ErrorCode::InvalidArgument);
    let threads = Context::with_options(&ContextOptions::new().threads(1000)).unwrap_err();
    assert!(threads.to_string().contains("threads"), "{threads}");
    let cuda = ContextOptions::new().device(Device::Cuda(99));
    assert!(Context::with_options(&cuda).is_err());
    assert_eq!(ErrorCode::from(999), ErrorCode::Unknown(999));
    assert_eq!(ErrorCode::ShapeMismatch.to_string(), "SHAPE_MISMATCH");
    Ok(())
}

#[test]
fn devices() -> Result<()> {
    for (text, device) in
        [("cpu", Device::Cpu), ("cuda:3", Device::Cuda(3)), ("auto", Device::Auto)]
    {
        assert_eq!(text.parse(), Ok(device));
        assert_eq!(device.to_string(), text);
    }
    assert_eq!("cuda".parse(), Ok(Device::Cuda(0)));
    for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU"] {
        assert_eq!(text.parse::<Device>().unwrap_err().code(), ErrorCode::InvalidArgument);
    }
    assert_eq!(Device::Cpu.info()?.name(), "CPU");
    assert!(Device::Cpu.info()?.memory_bytes() > 0);
    let kernels = ["avx512-vnni", "avx-vnni", "avx2", "neon-dot", "neon", "portable"];
    assert!(kernels.contains(&Device::Cpu.info()?.int8_kernel()));
    assert_eq!(Device::Auto.info().unwrap_err().code(), ErrorCode::InvalidArgument);
    assert_eq!(context().device(), Device::Cpu);
    let auto = Context::with_options(&ContextOptions::new().device(Device::Auto).threads(1))?;
    match Device::cuda_devices() {
        Ok(devices) => {
            assert_eq!(auto.device(), Device::Cuda(0));
            assert!(devices[0].memory_bytes() > 0 && devices[0].compute_capability() > (0, 0));
        }
        Err(error) => {
            assert_eq!(auto.device(), Device::Cpu);
            assert_eq!(error.code(), ErrorCode::Unsupported);
            assert!(!error.message().is_empty());
            assert_eq!(Device::Cuda(0).info().unwrap_err().code(), ErrorCode::Unsupported);
        }
    }
    Ok(())
}

#[test]
fn memory_comes_back() -> Result<()> {
    let context = context();
    let before = context.memory_stats()?;
    let x = context.zeros(&[1000, 1000], DType::F32)?;
    let clone = x.clone();
    drop(x);
    assert!(context.memory_stats()?.allocated >= before.allocated + 4_000_000);
    drop(clone);
    assert_eq!(context.memory_stats()?.allocated, before.allocated);
    context.trim_memory()?;
    assert!(context.memory_stats()?.peak < 4_000_000);
    // Tensors keep their context alive.
    let y = context.tensor(&[1.0f32], &[1])?;
    drop(context);
    assert_eq!(y.exp()?.item()?, f64::from(1f32.exp()));
    Ok(())
}

#[test]
fn profiles_show_ops_and_are_kept_until_the_next() -> Result<()> {
    let context = context();
    assert_eq!(context.write_profile(None).unwrap_err().code(), ErrorCode::InvalidArgument);
    let x = context.parameter(&[1.0f32, 2.0], &[2])?;
    context.start_profile(false)?;
    x.exp()?.mean()?.backward()?;
    let nowhere = std::path::Path::new("/no/such/folder/trace.json");
    assert_eq!(context.write_profile(Some(nowhere)).unwrap_err().code(), ErrorCode::Io);
    let path = std::env::temp_dir().join(format!("trafo-profile-{}.json", std::process::id()));
    let table = context.write_profile(Some(&path))?;
    let trace = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for op in ["exp", "mean"] {
        assert_eq!(trace.matches(&format!("\"name\":\"{op}\"")).count(), 2, "{trace}");
        assert_eq!(table.lines().filter(|line| line.starts_with(op)).count(), 2, "{table}");
    }
    assert_eq!(context.write_profile(None)?, table);
    context.start_profile(true)?;
    assert!(!context.write_profile(None)?.contains("exp"));
    Ok(())
}

#[test]
fn contexts_of_several_threads_do_not_meet() {
    let work = || {
        let context = context();
        let w = context.parameter(&values(64 * 64, 7), &[64, 64]).unwrap();
        let x = context.tensor(&values(64 * 64, 8), &[64, 64]).unwrap();
        let mut optimizer = AdamW::new(&context, &[&w], &AdamWOptions::default()).unwrap();
        for _ in 0..20 {
            x.linear(&w, None).unwrap().gelu().unwrap().mean().unwrap().backward().unwrap();
            optimizer.step(0.01).unwrap();
        }
        w.to_vec::<f64>().unwrap()
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(work)).collect();
    let here = work();
    for thread in threads {
        assert_eq!(thread.join().unwrap(), here);
    }
}

#[test]
fn comparisons_and_choices() -> Result<()> {
    let context = context();
    let x = context.tensor(&[-1.0f64, 0.0, 2.0], &[3])?;
    let y = context.tensor(&[1.0f64, -1.0, 2.0], &[3])?;
    let mask = x.compare(&y, Comparison::GreaterEqual)?;
    assert_eq!(mask.to_vec::<i32>()?, [0, 1, 1]);
    assert_eq!(x.compare_number(0.0, Comparison::NotEqual)?.to_vec::<i32>()?, [1, 0, 1]);
    assert_eq!(mask.choose(&x, &y)?.to_vec::<f64>()?, [1.0, 0.0, 2.0]);
    assert_eq!(x.masked_fill(&mask, 9.0)?.to_vec::<f64>()?, [-1.0, 9.0, 9.0]);
    assert_eq!(x.maximum(&y)?.to_vec::<f64>()?, [1.0, 0.0, 2.0]);
    assert_eq!(x.minimum(&y)?.to_vec::<f64>()?, [-1.0, -1.0, 2.0]);
    assert_eq!(y.pow(&x)?.to_vec::<f64>()?, [1.0, 1.0, 4.0]);
    assert_eq!(x.powf(2.0)?.to_vec::<f64>()?, [1.0, 0.0, 4.0]);
    assert_eq!(x.clamp(-0.5, 1.0)?.to_vec::<f64>()?, [-0.5, 0.0, 1.0]);
    assert_eq!(mask.cast(DType::F64)?.to_vec::<f64>()?, [0.0, 1.0, 1.0]);
    assert_close(&x.sin()?.to_vec()?, &[-(1.0f64.sin()), 0.0, 2.0f64.sin()]);
    assert_close(&x.cos()?.to_vec()?, &[1.0f64.cos(), 1.0, 2.0f64.cos()]);
    assert_close(&x.erf()?.to_vec()?, &[-0.842_700_792_95, 0.0, 0.995_322_265_02]);
    assert_close(&x.gelu_erf()?.to_vec()?, &[-0.158_655_253_93, 0.0, 1.954_499_736_10]);
    let square = context.tensor(&[1.0f64, 2.0, 3.0, 4.0], &[2, 2])?;
    assert_eq!(square.tril(0)?.to_vec::<f64>()?, [1.0, 0.0, 3.0, 4.0]);
    assert_eq!(square.triu(1)?.to_vec::<f64>()?, [0.0, 2.0, 0.0, 0.0]);
    let error = mask.choose(&x, &square).unwrap_err();
    assert_eq!(error.code(), ErrorCode::ShapeMismatch);
    Ok(())
}

#[test]
fn ops_along_dimensions() -> Result<()> {
    let context = context();
    let x = context.tensor(&[1.0f64, 5.0, 3.0, 4.0, 2.0, 6.0], &[2, 3])?;
    assert_eq!(x.sum_dims(&[1, 0], true)?.shape(), [1, 1]);
    assert_eq!(x.mean_dims(&[-1], false)?.to_vec::<f64>()?, [3.0, 4.0]);
    assert_eq!(x.max_dims(&[], false)?.to_vec::<f64>()?, [6.0]);
    assert_eq!(x.min_dims(&[0], false)?.to_vec::<f64>()?, [1.0, 2.0, 3.0]);
    assert_eq!(x.argmax(1, false)?.to_vec::<i32>()?, [1, 2]);
    assert_eq!(x.argmin(0, true)?.shape(), [1, 3]);
    let (values, ids) = x.top_k(2, -1)?;
    assert_eq!(values.to_vec::<f64>()?, [5.0, 3.0, 6.0, 4.0]);
    assert_eq!(x.gather(1, &ids)?.to_vec::<f64>()?, values.to_vec::<f64>()?);
    assert_eq!(x.cumsum(1)?.to_vec::<f64>()?, [1.0, 6.0, 9.0, 4.0, 6.0, 12.0]);
    assert_eq!(x.permute(&[1, 0])?.to_vec::<f64>()?, [1.0, 4.0, 5.0, 2.0, 3.0, 6.0]);
    assert_eq!(x.expand(&[4, -1, 3])?.shape(), [4, 2, 3]);
    let index = context.tensor(&[0, 2, 1, 1], &[2, 2])?;
    let src = context.tensor(&[10.0f64, 20.0, 30.0, 40.0], &[2, 2])?;
    let added = x.scatter_add(1, &index, &src)?.to_vec::<f64>()?;
    assert_eq!(added, [11.0, 5.0, 23.0, 4.0, 72.0, 6.0]);
    let put = x.scatter(1, &index, &src)?.to_vec::<f64>()?;
    assert_eq!(put, [10.0, 5.0, 20.0, 4.0, 40.0, 6.0]);
    let product = x.expand(&[3, 1, 2, 3])?.matmul(&x.transpose(0, 1)?)?;
    assert_eq!(product.shape(), [3, 1, 2, 2]);
    Ok(())
}

#[test]
fn a_chain_keeps_its_first_error() -> Result<()> {
    let context = context();
    let x = context.tensor(&[1.0f64, -2.0], &[2])?;
    let w = context.tensor(&[3.0f64, 4.0], &[2])?;
    w.set_requires_grad(true)?;
    let loss = (-(x.chain() * &w - 1.0) / 2.0 + &x + w.chain().abs()).sum().end()?;
    assert_close(&[loss.item()?], &[-1.0 + 4.5 - 1.0 + 7.0]);
    loss.backward()?;
    assert_close(&w.grad()?.unwrap().to_vec()?, &[0.5, 2.0]);
    assert_eq!((&x + 1.0)?.to_vec::<f64>()?, [2.0, -1.0]);
    assert_eq!((-&x)?.to_vec::<f64>()?, [-1.0, 2.0]);
    assert_eq!((&x - (x.chain() * 2.0)).end()?.to_vec::<f64>()?, [-1.0, 2.0]);

    let three = context.tensor(&[1.0f64; 3], &[3])?;
    let error = (x.chain() + &three).clamp(1.0, 0.0).exp().end().unwrap_err();
    assert_eq!(error.code(), ErrorCode::ShapeMismatch);
    Ok(())
}

#[test]
fn own_tensors_are_drawn_saved_and_updated() -> Result<()> {
    let context = context();
    let even = Distribution::Uniform { low: 2.0, high: 3.0 };
    let u = context.random(&[100], DType::F64, even, 7)?;
    assert_eq!(u.to_vec::<f64>()?, context.random(&[100], DType::F64, even, 7)?.to_vec::<f64>()?);
    assert!(u.to_vec::<f64>()?.iter().all(|x| (2.0..3.0).contains(x)));
    let n = Distribution::Normal { mean: 5.0, deviation: 0.0 };
    let n = context.random(&[2], DType::F32, n, 7)?;
    assert_eq!(n.to_vec::<f32>()?, [5.0, 5.0]);

    let folder = std::env::temp_dir().join(format!("trafo-own-tensors-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("own.safetensors");
    context.save_tensors(&path, &[("u", &u), ("n", &n)])?;
    let loaded = context.load_tensors(&path, &["n", "u"])?;
    assert_eq!(loaded[1].to_vec::<f64>()?, u.to_vec::<f64>()?);
    assert_eq!(loaded[0].shape(), [2]);
    let error = context.load_tensors(&path, &["w"]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);
    std::fs::remove_dir_all(&folder).unwrap();

    let (w, b) = (context.parameter(&[3.0f64], &[1])?, context.parameter(&[4.0f64], &[1])?);
    let mut sgd = Sgd::new(&context, &[&w, &b], 0.5, 0.0)?;
    for _ in 0..2 {
        (w.chain() * 3.0 + b.chain() * 4.0).sum().end()?.backward()?;
        assert_close(&[context.clip_grad_norm(&[&w, &b], 1.0)?], &[5.0]);
        sgd.step(1.0)?;
    }
    assert_close(&w.to_vec()?, &[3.0 - 0.6 - 0.9]);
    assert_close(&b.to_vec()?, &[4.0 - 0.8 - 1.2]);
    assert_close(&sgd.velocities()[0].to_vec()?, &[0.9]);
    Ok(())
}

#[test]
fn gemms_multiply_bfloat16_where_the_processor_does() -> Result<()> {
    let refused = |precision| {
        Context::with_options(&ContextOptions::new().matmul_precision(precision)).unwrap_err()
    };
    assert_eq!(refused(DType::F64).code(), ErrorCode::InvalidArgument);
    let context = match Context::with_options(&ContextOptions::new().matmul_precision(DType::BF16))
    {
        Ok(context) => context,
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Unsupported);
            assert!(error.to_string().contains("AVX512-BF16"), "{error}");
            return Ok(());
        }
    };
    // 1 + 2^-9 is 1 in bfloat16, and 30 rows are not few.
    let x = context.tensor(&[1.0f32 + 1.0 / 512.0; 120], &[30, 4])?;
    assert_eq!(x.linear(&x, None)?.to_vec::<f32>()?, [4.0; 900]);
    Ok(())
}
