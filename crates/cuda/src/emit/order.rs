//! From a task's number to the windows of the grid's axes: see [`crate::schedule::Order`].

use super::element::Emitter;
use crate::schedule::Turn;

impl Emitter<'_> {
    /// Declares the base, and where it can be less than full the length, of every grid axis's window at place `task` of
    /// the schedule's order. `task` is a C++ expression of an integer type.
    pub fn windows(&mut self, task: &str) {
        let order = self.schedule.order.clone();
        self.w.line(format!("u32 point = {task};"));
        if order.is_plain() {
            let turns = [order.outer, order.inner].concat();
            return self.turns(&turns, "point");
        }
        let count = |turns: &[Turn]| turns.iter().map(|t| t.steps).product::<usize>();
        let (outer, inner) = (count(&order.outer), count(&order.inner));
        let n = order.section;
        self.w.line(format!("const u32 section = point / {}u;", n * inner));
        self.w.line(format!("point -= section * {}u;", n * inner));
        let size = if outer.is_multiple_of(n) {
            format!("{n}u")
        } else {
            self.w.line(format!("const u32 size = section == {}u ? {}u : {n}u;", outer / n, outer % n));
            "size".to_string()
        };
        self.w.line(format!("u32 outer = section * {n}u + point % {size};"));
        self.w.line(format!("point /= {size};"));
        self.turns(&order.outer, "outer");
        self.turns(&order.inner, "point");
    }

    /// The windows of axes whose numbers are the digits of a variable, the last axis's the lowest.
    fn turns(&mut self, turns: &[Turn], number: &str) {
        for t in turns.iter().rev() {
            let axis = self.facts.kernel.axis(t.axis);
            let (name, steps) = (self.names.axis(t.axis).to_string(), t.steps);
            let step = if t.backwards {
                format!("({}u - {number} % {steps}u)", steps - 1)
            } else {
                format!("({number} % {steps}u)")
            };
            // Blocks of a cluster take neighbouring windows.
            let step = if t.together == 1 { step } else { format!("({step} * {}u + cluster_rank)", t.together) };
            self.w.line(format!("const int {name}_base = static_cast<int>{step} * {};", axis.tile));
            self.w.line(format!("{number} /= {steps}u;"));
            if self.facts.wide(t.axis) && !self.always_full(t.axis) {
                self.w.line(format!("const int {name}_len = min_int({}, {} - {name}_base);", axis.tile, axis.extent));
            }
        }
    }
}
