//! Custom ops, named parameters, and schedules outside a trainer.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use trafo::{
    AdamW, AdamWOptions, Context, Error, ErrorCode, GradcheckOptions, Loaded, Parameters, Result,
    Schedule, Tensor, TrainerOptions, tensor_names,
};

/// x^3 and 2 x on the host, times each other.
fn cubes(context: &Context, x: &Tensor) -> Result<Tensor> {
    let [cube, twice] = context.custom_op(
        [x],
        |context, [x]| {
            let values = x.to_vec::<f64>()?;
            let cubes: Vec<f64> = values.iter().map(|x| x * x * x).collect();
            let twice: Vec<f64> = values.iter().map(|x| 2.0 * x).collect();
            Ok([context.tensor(&cubes, x.shape())?, context.tensor(&twice, x.shape())?])
        },
        |context, given| {
            let [x] = given.inputs.map(|t| t.to_vec::<f64>());
            let [dy, dz] = given.gradients.map(|t| t.to_vec::<f64>());
            let (x, dy, dz) = (x?, dy?, dz?);
            assert_eq!(given.outputs[1].to_vec::<f64>()?[0], 2.0 * x[0]);
            let dx: Vec<f64> =
                (0..x.len()).map(|i| 3.0 * x[i] * x[i] * dy[i] + 2.0 * dz[i]).collect();
            Ok([Some(context.tensor(&dx, given.inputs[0].shape())?)])
        },
    )?;
    cube.mul(&twice)
}

#[test]
fn custom_ops_have_gradients() -> Result<()> {
    let context = Context::new()?;
    let x = context.tensor(&[0.5f64, -1.25, 2.0], &[3])?;
    let options = GradcheckOptions::new().eps(1e-5);
    let result = context.gradcheck([&x], options, |context, [x]| Ok([cubes(context, x)?]))?;
    assert!(result.ok && result.checked == 3, "{result:?}");

    x.set_requires_grad(true)?;
    let expected: Vec<f64> = x.to_vec::<f64>()?.iter().map(|x| 8.0 * x * x * x).collect();
    for checkpointed in [false, true] {
        let product = if checkpointed {
            let [product] = context.checkpoint([&x], |context, [x]| Ok([cubes(context, x)?]))?;
            product
        } else {
            cubes(&context, &x)?
        };
        product.sum()?.backward()?;
        let gradient = x.grad()?.unwrap().to_vec::<f64>()?;
        assert!(gradient.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12));
        x.zero_grad()?;
    }
    Ok(())
}

/// An error that no tensor gives by itself.
fn not_found() -> Error {
    tensor_names("/nonexistent/file").unwrap_err()
}

#[test]
fn what_a_custom_op_does_wrong_comes_out() -> Result<()> {
    let context = Context::new()?;
    let x = context.parameter(&[1.0f32, 2.0], &[2])?;
    let error = context
        .custom_op([&x], |_, [_]| Err::<[Tensor; 1], _>(not_found()), |_, _| Ok([None]))
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::NotFound);

    let dropped = Rc::new(Cell::new(0));
    struct Count(Rc<Cell<i32>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    let count = Count(Rc::clone(&dropped));
    let [y] = context.custom_op(
        [&x],
        move |_, [x]| {
            assert_eq!(count.0.get(), 0);
            Ok([x.exp()?])
        },
        |_, _| Err(not_found()),
    )?;
    assert_eq!(y.sum()?.backward().unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(dropped.get(), 1);

    let [y] = context.custom_op([&x], |_, [x]| Ok([x.exp()?]), |_, _| panic!("no gradient"))?;
    let loss = y.sum()?;
    let payload = catch_unwind(AssertUnwindSafe(|| loss.backward())).unwrap_err();
    assert_eq!(*payload.downcast::<&str>().unwrap(), "no gradient");

    let [y] = context.custom_op([&x], |_, [x]| Ok([x.exp()?]), |_, _| Ok([None]))?;
    y.sum()?.backward()?;
    assert!(x.grad()?.is_none());
    let [y] = context.custom_op(
        [&x],
        |_, [x]| Ok([x.exp()?]),
        |_, given| Ok([Some(given.gradients[0].sum()?)]),
    )?;
    assert_eq!(y.sum()?.backward().unwrap_err().code(), ErrorCode::ShapeMismatch);
    Ok(())
}

#[test]
fn parameters_have_names_and_move_between_threads() -> Result<()> {
    let directory = std::env::temp_dir().join(format!("trafo-parameters-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("network.safetensors");
    let context = Context::new()?;
    let mut network = Parameters::new(&context);
    network.insert("w", context.parameter(&[1.0f32, 2.0], &[2])?)?;
    network.insert("b", context.parameter(&[3.0f32], &[1])?)?;
    let taken = network.insert("b", context.zeros(&[1], trafo::DType::F32)?).unwrap_err();
    assert!(taken.message().contains("is taken"), "{taken}");
    let foreign = Context::new()?.zeros(&[1], trafo::DType::F32)?;
    assert!(network.insert("c", foreign).unwrap_err().message().contains("another context"));
    network.save(&file)?;
    assert_eq!(tensor_names(&file)?, ["b", "w"]);

    let other = Context::new()?;
    let mut copy = Parameters::new(&other);
    copy.insert("w", other.zeros(&[2], trafo::DType::F32)?)?;
    copy.insert("scale", other.parameter(&[7.0f32], &[1])?)?;
    let mut expected = Loaded::default();
    expected.missing.push("scale".into());
    expected.unexpected.push("b".into());
    assert_eq!(copy.load(&file)?, expected);
    assert_eq!(copy.get("w").unwrap().to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(copy.get("scale").unwrap().item()?, 7.0);
    let mut wrong = Parameters::new(&other);
    wrong.insert("b", other.zeros(&[1], trafo::DType::F32)?)?;
    wrong.insert("w", other.zeros(&[3], trafo::DType::F32)?)?;
    assert_eq!(wrong.load(&file).unwrap_err().code(), ErrorCode::ShapeMismatch);
    assert_eq!(wrong.get("b").unwrap().item()?, 0.0);
    std::fs::remove_dir_all(&directory).unwrap();

    // A handle elsewhere, a region that is recorded, or a clone of the context keeps them on the thread.
    let mut optimizer = AdamW::new(&context, &network.tensors(), &AdamWOptions::default())?;
    let network = network.close().unwrap_err();
    let [y] = context.checkpoint([network.get("w").unwrap()], |_, [w]| Ok([w.mul(w)?]))?;
    y.sum()?.backward()?;
    optimizer.step(0.1)?;
    let kept = network.get("b").unwrap().clone();
    drop(y);
    drop(context);
    let network = network.close().unwrap_err();
    drop(kept);
    let network = network.close().unwrap_err();
    let context = network.context().clone();
    drop(optimizer);
    let network = network.close().unwrap_err();
    drop(context);
    let closed = network.close().map_err(|_| ()).expect("nothing else is left");
    let (sum, closed) = std::thread::spawn(move || {
        let network = closed.open();
        let w = network.get("w").unwrap();
        w.mul(w).unwrap().sum().unwrap().backward().unwrap();
        assert!(w.grad().unwrap().is_some(), "the leaf still wants a gradient");
        let sum = w.sum().unwrap().item().unwrap();
        (sum, network.close().map_err(|_| ()).unwrap())
    })
    .join()
    .unwrap();
    assert!(sum < 3.0, "the optimizer has made it smaller: {sum}");
    assert_eq!(closed.open().iter().map(|(name, _)| name).collect::<Vec<_>>(), ["w", "b"]);
    Ok(())
}

#[test]
fn schedules_serve_own_networks() -> Result<()> {
    let options = TrainerOptions::new()
        .schedule(Schedule::Linear)
        .learning_rate(0.5)
        .warmup(10)
        .schedule_updates(50);
    assert!((options.scheduled_rate(1, 30)? - 0.25).abs() < 1e-12);
    assert_eq!(options.scheduled_rate(1, 0).unwrap_err().field(), Some("update"));
    Ok(())
}

#[test]
fn integers_of_any_width_and_bits_of_bfloat16() -> Result<()> {
    let context = Context::new()?;
    let labels = context.integers(&[3i64, -100, i64::from(i32::MAX)], &[3])?;
    assert_eq!(labels.to_vec::<i32>()?, [3, -100, i32::MAX]);
    assert_eq!(labels.to_integers::<i64>()?, [3, -100, i64::from(i32::MAX)]);
    assert_eq!(context.integers(&[1u8, 0, 255], &[3])?.to_integers::<u8>()?, [1, 0, 255]);
    for error in [
        context.integers(&[1, i64::from(i32::MAX) + 1], &[2]).unwrap_err(),
        labels.to_integers::<u8>().unwrap_err(),
    ] {
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains("element 1 is "), "{error}");
    }
    let halves = context.bf16_tensor(&[0x3f80, 0xc040], &[2])?;
    assert_eq!(halves.to_bf16_bits()?, [0x3f80, 0xc040]);
    assert_eq!(halves.cast(trafo::DType::F32)?.to_vec::<f32>()?, [1.0, -3.0]);
    assert_eq!(labels.to_bf16_bits().unwrap_err().code(), ErrorCode::DTypeMismatch);
    assert_eq!(context.bf16_tensor(&[1], &[2]).unwrap_err().code(), ErrorCode::ShapeMismatch);
    Ok(())
}
