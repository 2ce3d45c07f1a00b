//! Arrays that the caller brings for results.

use crate::dlpack::{Arrays, Found, described};
use crate::failure::Failure;
use crate::kernel::Output;
use crate::numbers::framework_name;
use crate::signature::{self, Signature};
use einloom_cascade::{Cascade, TensorId};
use einloom_tile::Layout;

/// Their layouts.
///
/// # Errors
/// What cannot be written, or is elsewhere than the inputs.
pub(crate) fn layouts(
    cascade: &Cascade,
    signature: &Signature,
    found: &[Found],
) -> Result<Vec<Option<Layout>>, Failure> {
    let one = |(&tensor, array): (&TensorId, &Found)| {
        let t = &cascade[tensor];
        let failure = |class, code, message: String| Err(Failure::new(class, code, message).at(Some(t.span)));
        if array.read_only {
            return Err(read_only(cascade, tensor));
        }
        let place = signature::place(cascade, tensor, array)?;
        if place != signature.place {
            let (is, others) = (place.name(), signature.place.name());
            return failure(
                "DeviceError",
                "wrong-device",
                format!("`out` for {} is on {is}, the inputs are on {others}", t.name),
            );
        }
        let shape: Vec<usize> = array.shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
        let layout = signature::layout(cascade, tensor, array, &shape, 1)?;
        if !layout.keeps_apart(&shape) {
            return failure("LayoutError", "overlap", format!("elements of `out` for {} share memory", t.name));
        }
        Ok(Some(layout))
    };
    cascade.outputs.iter().zip(found).map(one).collect()
}

/// An array that must not be written.
pub(crate) fn read_only(cascade: &Cascade, tensor: TensorId) -> Failure {
    let t = &cascade[tensor];
    Failure::new("LayoutError", "read-only", format!("`out` for {} must not be written", t.name)).at(Some(t.span))
}

/// An array whose gradient is recorded, which a result that is written into it would change unseen.
pub(crate) fn wants_gradient(cascade: &Cascade, tensor: TensorId) -> Failure {
    let t = &cascade[tensor];
    let message = format!("`out` for {} requires a gradient, and gradients are recorded", t.name);
    Failure::new("GradientError", "out-requires-gradient", message)
        .at(Some(t.span))
        .hint("call it under torch.no_grad()")
}

/// Refuses arrays of another shape or number type than the results have.
pub(crate) fn fit(cascade: &Cascade, outputs: &[Output], found: &[Found]) -> Result<(), Failure> {
    for ((&tensor, array), output) in cascade.outputs.iter().zip(found).zip(outputs) {
        let t = &cascade[tensor];
        if array.shape != output.shape {
            let message =
                format!("`out` for {} has shape {:?}, the result has {:?}", t.name, array.shape, output.shape);
            return Err(Failure::new("ShapeError", "wrong-dimensions", message).at(Some(t.span)));
        }
        if array.dtype != output.dtype {
            let (is, wanted) = (framework_name(array.dtype), framework_name(output.dtype));
            let message = format!("`out` for {} is {is}, the result is {wanted}", t.name);
            return Err(Failure::new("DtypeError", "wrong-dtype", message).at(Some(t.span)));
        }
    }
    Ok(())
}

/// Refuses results that share memory with inputs or each other: kernels read while they write.
pub(crate) fn apart(cascade: &Cascade, inputs: &[TensorId], arrays: &Arrays, count: usize) -> Result<(), Failure> {
    let found = described(&arrays.words);
    let spans: Vec<(u64, u64)> = found.iter().zip(&arrays.addresses).map(|(f, &a)| span(f, a)).collect();
    let names: Vec<TensorId> = inputs.iter().chain(&cascade.outputs).copied().collect();
    for k in count..spans.len() {
        for other in 0..k {
            if spans[k].0 < spans[other].1 && spans[other].0 < spans[k].1 {
                let (t, with) = (&cascade[names[k]], &cascade[names[other]]);
                let message = format!("`out` for {} lies in the same memory as {}", t.name, with.name);
                return Err(Failure::new("LayoutError", "overlap", message)
                    .at(Some(t.span))
                    .hint("give memory of its own"));
            }
        }
    }
    Ok(())
}

/// From the first byte to behind the last.
fn span(array: &Found, address: u64) -> (u64, u64) {
    if array.shape.contains(&0) {
        return (address, address);
    }
    let last: i64 = array.shape.iter().zip(&array.strides).map(|(n, s)| (n - 1).saturating_mul(*s)).sum();
    let bytes = (last + 1).unsigned_abs() * u64::from(array.dtype.bits / 8);
    (address, address.saturating_add(bytes))
}
