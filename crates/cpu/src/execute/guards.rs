//! What tensors tell guards: the extremes that they hold for a chunk.

use super::worker::Job;
use einloom_cascade::DType;
use einloom_tile::{Coord, Extremes, Interval, TensorId, Window, first_position};

impl Job<'_> {
    /// The extremes over the windows; anything where there is no such element.
    pub(super) fn extremes(&self, e: &Extremes, windows: &[Window]) -> Interval {
        let read = |tensor| self.whole_number(tensor, &e.places, windows);
        match (read(e.low), read(e.high)) {
            (Some(low), Some(high)) => Interval { low, high },
            _ => Interval::ANY,
        }
    }

    fn whole_number(&self, tensor: TensorId, places: &[Coord], windows: &[Window]) -> Option<f64> {
        let decl = self.program.tensor(tensor);
        let mut at = 0;
        for ((coord, &size), stride) in places.iter().zip(&decl.dims).zip(decl.strides()) {
            at += usize::try_from(first_position(coord, windows)?).ok().filter(|&x| x < size)? * stride;
        }
        let elements = &self.tensors[tensor.at()];
        Some(match decl.dtype {
            DType::I32 => f64::from(*elements.elements::<i32>().get(at)?),
            DType::I16 => f64::from(*elements.elements::<i16>().get(at)?),
            DType::I8 => f64::from(*elements.elements::<i8>().get(at)?),
            DType::U8 => f64::from(*elements.elements::<u8>().get(at)?),
            _ => return None,
        })
    }
}
