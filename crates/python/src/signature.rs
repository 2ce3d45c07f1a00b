//! From a caller's arrays to what a kernel is made for: sizes, number types, layouts, the device.

use crate::dlpack::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, Device, Found};
use crate::failure::Failure;
use crate::numbers::{INT64, framework_name, holds, may_follow, of_dlpack, to_dlpack};
use crate::wide::Wide;
use einloom_cascade::{Cascade, DType, TensorId};
use einloom_tile::Layout;
use std::collections::BTreeMap;

/// Where a kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The processor.
    Cpu,
    /// The GPU with this number.
    Cuda(usize),
}

impl Place {
    /// As frameworks call it.
    pub fn name(self) -> String {
        match self {
            Self::Cpu => "cpu".to_string(),
            Self::Cuda(number) => format!("cuda:{number}"),
        }
    }

    /// As DLPack calls it.
    pub fn device(self) -> Device {
        match self {
            Self::Cpu => Device { kind: CPU, number: 0 },
            Self::Cuda(number) => Device { kind: CUDA, number: i32::try_from(number).unwrap_or(i32::MAX) },
        }
    }
}

/// What the arrays of a call ask of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub place: Place,
    /// Shapes of the inputs by name.
    pub shapes: BTreeMap<String, Vec<usize>>,
    /// Declared number types that are replaced by those of the arrays.
    pub follows: BTreeMap<DType, DType>,
    /// Layouts of the inputs, in their order.
    pub layouts: Vec<Option<Layout>>,
    /// Some array is not dense.
    pub strided: bool,
    /// The inputs of 64-bit integers.
    pub wide: Vec<Wide>,
}

/// How a tensor is declared, for messages: its name with its indices' ranks.
fn declared(cascade: &Cascade, tensor: TensorId) -> String {
    let t = &cascade[tensor];
    let ranks: Vec<&str> = t.ranks.iter().map(|&r| cascade[r].name.as_str()).collect();
    if ranks.is_empty() { t.name.clone() } else { format!("{}[{}]", t.name, ranks.join(", ")) }
}

impl Signature {
    /// Of the inputs, in the order of their declarations.
    ///
    /// # Errors
    /// What cannot be taken, in the cascade's terms.
    pub fn of(cascade: &Cascade, inputs: &[TensorId], found: &[Found], follow: bool) -> Result<Self, Failure> {
        let (shapes, follows) = (BTreeMap::new(), BTreeMap::new());
        let mut out = Self { place: Place::Cpu, shapes, follows, layouts: vec![], strided: false, wide: vec![] };
        // Which input said where to run, or what a declared type is.
        let mut first_place: Option<TensorId> = None;
        let mut first_type: BTreeMap<DType, (DType, TensorId)> = BTreeMap::new();
        for (&tensor, array) in inputs.iter().zip(found) {
            let t = &cascade[tensor];
            let place = place(cascade, tensor, array)?;
            match first_place {
                Some(first) if place != out.place => {
                    return Err(Failure::new(
                        "DeviceError",
                        "wrong-device",
                        format!(
                            "{} is on {}, but {} is on {}",
                            t.name,
                            place.name(),
                            cascade[first].name,
                            out.place.name()
                        ),
                    )
                    .at(Some(t.span))
                    .hint("all arrays of a call are on one device"));
                }
                Some(_) => {}
                None => (first_place, out.place) = (Some(tensor), place),
            }
            let (given, width) = number_type(cascade, tensor, array)?;
            let wanted = t.dtype.unwrap_or(DType::F32);
            if holds(wanted, given) {
                first_type.entry(wanted).or_insert((wanted, tensor));
            } else if !follow || !may_follow(wanted, given) {
                return Err(wrong_type(cascade, tensor, &framework_name(array.dtype), follow));
            } else {
                first_type.entry(wanted).or_insert((given, tensor));
            }
            let (expected, first) = first_type[&wanted];
            if !holds(expected, given) {
                let (name, other) = (&t.name, &cascade[first].name);
                let (is, other_is) = (framework_name(array.dtype), framework_name(to_dlpack(expected)));
                return Err(Failure::new(
                    "DtypeError",
                    "wrong-dtype",
                    format!(
                        "{other} and {name} are both declared {wanted}, but {other} is {other_is} and {name} is {is}"
                    ),
                )
                .at(Some(t.span))
                .hint("convert one of them, or declare them with different number types"));
            }
            let shape: Vec<usize> = array.shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
            let layout = layout(cascade, tensor, array, &shape, width)?;
            if width > 1 {
                let strides = layout.strides.iter().map(|s| s / width).collect();
                out.wide.push(Wide { input: out.layouts.len(), shape: shape.clone(), strides });
            }
            out.strided |= !layout.is_dense(&shape);
            out.layouts.push(Some(layout));
            out.shapes.insert(t.name.clone(), shape);
        }
        out.follows = first_type.into_iter().filter(|(d, (g, _))| d != g).map(|(d, (g, _))| (d, g)).collect();
        Ok(out)
    }
}

/// Where an array is.
pub(crate) fn place(cascade: &Cascade, tensor: TensorId, array: &Found) -> Result<Place, Failure> {
    match array.device.kind {
        CPU | CUDA_HOST => Ok(Place::Cpu),
        CUDA | CUDA_MANAGED => Ok(Place::Cuda(usize::try_from(array.device.number).unwrap_or(0))),
        kind => {
            let t = &cascade[tensor];
            let message =
                format!("{} is on a device of DLPack's kind {kind}; there is code for CPUs and NVIDIA GPUs", t.name);
            Err(Failure::new("DeviceError", "wrong-device", message).at(Some(t.span)))
        }
    }
}

/// The array's type in the language, and how many of its elements an element of the array takes: 64-bit integers are
/// read where they are as the lower of two 32-bit ones.
fn number_type(cascade: &Cascade, tensor: TensorId, array: &Found) -> Result<(DType, usize), Failure> {
    let t = &cascade[tensor];
    if array.dtype == INT64 && t.dtype == Some(DType::I32) && cfg!(target_endian = "little") {
        return Ok((DType::I32, 2));
    }
    match of_dlpack(array.dtype) {
        Some(dtype) => Ok((dtype, 1)),
        None => Err(wrong_type(cascade, tensor, &framework_name(array.dtype), true)),
    }
}

/// An array of a type that is not the tensor's.
pub(crate) fn wrong_type(cascade: &Cascade, tensor: TensorId, given: &str, follow: bool) -> Failure {
    let t = &cascade[tensor];
    let wanted = t.dtype.unwrap_or(DType::F32);
    let message = format!("{} is declared {wanted}, but the array is {given}", declared(cascade, tensor));
    let failure = Failure::new("DtypeError", "wrong-dtype", message).at(Some(t.span));
    match wanted {
        _ if !follow => failure.hint("the program was compiled with dtypes=\"declared\""),
        DType::I32 => failure.hint("integers of 32 or 64 bits are taken"),
        d if d.is_float() => failure.hint("any floating-point type is taken, and the program computes in it"),
        d => failure.hint(format!("arrays of {} are taken", framework_name(to_dlpack(d)))),
    }
}

/// The layout of an input or output whose elements are `width` of the language's apart.
pub(crate) fn layout(
    cascade: &Cascade,
    tensor: TensorId,
    array: &Found,
    shape: &[usize],
    width: usize,
) -> Result<Layout, Failure> {
    let t = &cascade[tensor];
    let element = usize::from(array.dtype.bits) / 8;
    if array.alignment < element.min(einloom_tile::ALIGNMENT) && !shape.contains(&0) {
        let message = format!("{} begins in the middle of an element", t.name);
        return Err(Failure::new("LayoutError", "misaligned", message).at(Some(t.span)).hint("copy it"));
    }
    let stride = |(&stride, &dim): (&i64, &usize)| match usize::try_from(stride) {
        Ok(s) => Ok(s.saturating_mul(width)),
        Err(_) if dim <= 1 => Ok(0),
        Err(_) => Err(Failure::new("LayoutError", "negative-stride", format!("{} runs backwards in memory", t.name))
            .at(Some(t.span))
            .hint("copy it: numpy.ascontiguousarray")),
    };
    let strides = array.strides.iter().zip(shape).map(stride).collect::<Result<Vec<_>, _>>()?;
    let alignment = array.alignment.clamp(element.clamp(1, einloom_tile::ALIGNMENT), einloom_tile::ALIGNMENT);
    Ok(Layout { strides, alignment })
}
