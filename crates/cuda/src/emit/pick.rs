//! Elements picked from a tile: by way of its copy in shared memory, as any thread may hold them.

use super::element::Emitter;
use super::load::zero;
use super::type_name;
use einloom_tile::{AxisId, Coord, ValueId};

impl Emitter<'_> {
    /// `dst = src` at the positions `at` along `axis`, `fill` where there are none.
    pub fn pick(&mut self, dst: ValueId, src: ValueId, axis: AxisId, at: &Coord, fill: f64) {
        self.arrived(src);
        let frame = self.frame_of(dst);
        self.declare(dst, frame);
        let extent = self.facts.kernel.axis(axis).extent;
        let fill = self.constant(self.facts.dtype(dst), fill);
        let loops = self.each_element(dst, frame);
        let element = self.element(dst, frame);
        self.w.line(format!("{element} = {};", zero(self.facts.carrier(dst))));
        let exists = frame.and_then(|f| self.element_exists(dst, f)).unwrap_or_else(|| "true".to_string());
        self.w.open(format!("if ({exists})"));
        let position = self.coordinate(at, &|axis| self.absolute(axis, frame), &|v| self.element(v, frame));
        self.w.line(format!("const i64 y = {position};"));
        let source = match self.shared_tile(src) {
            Some(tile) => {
                let along = |a: AxisId| match frame {
                    _ if a == axis => "static_cast<int>(y)".to_string(),
                    Some(f) => self.in_window(f, a),
                    None => "0".to_string(),
                };
                format!("{}::decode({})", type_name(tile.element), self.shared_element(src, &tile, &along))
            }
            // One element, which every thread holds.
            None => self.element(src, None),
        };
        self.w.line(format!("{element} = y >= 0 && y < {extent} ? {source} : {fill};"));
        self.w.close("");
        self.close(loops);
    }
}
