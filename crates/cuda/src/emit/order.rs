//! From a task's number to the windows of the grid's axes: see [`crate::schedule::Order`].

use super::element::Emitter;
use crate::schedule::Turn;

impl Emitter<'_> {
    /// Declares the base, and where it can be less than full the length, of every grid axis's window at place `task` of
    /// the schedule's order. `task` is a C++ expression of an integer type.
    pub fn windows(&mut self, task: &str) {
        let order = self.schedule.order.clone();
        self.w.line(format!("u32 point = {task};"));
        if !self.facts.kernel.blocks.is_empty() {
            return self.by_blocks(&order.turns);
        }
        for t in order.turns.iter().rev() {
            self.window(t, format!("point % {}u", t.steps));
            self.w.line(format!("point /= {}u;", t.steps));
        }
    }

    /// The same by blocks of the cache. Whatever the sizes, the text differs in numbers alone.
    fn by_blocks(&mut self, turns: &[Turn]) {
        // Windows of the block along the axes so far, as factors.
        let mut inside = String::new();
        for (k, t) in turns.iter().enumerate() {
            let name = self.names.axis(t.axis).to_string();
            let after: usize = turns[k + 1..].iter().map(|t| t.steps).product();
            self.w.line(format!("const u32 {name}_first = point / ({after}u{inside} * {}u) * {}u;", t.side, t.side));
            self.w.line(format!("point -= {name}_first * ({after}u{inside});"));
            self.w.line(format!("const u32 {name}_many = min_u32({}u, {}u - {name}_first);", t.side, t.steps));
            inside += &format!(" * {name}_many");
        }
        for t in turns.iter().rev() {
            let name = self.names.axis(t.axis).to_string();
            // It is less: the remainder tells the compiler so, which has other code for products by lanes without (4 % slower on an H200).
            self.window(t, format!("({name}_first + point % {name}_many) % {}u", t.steps));
            self.w.line(format!("point /= {name}_many;"));
        }
    }

    /// The window of an axis whose step is a C++ expression of type `u32`.
    fn window(&mut self, t: &Turn, step: String) {
        let axis = self.facts.kernel.axis(t.axis);
        let name = self.names.axis(t.axis).to_string();
        let step = if t.backwards { format!("({}u - ({step}))", t.steps - 1) } else { format!("({step})") };
        // Blocks of a cluster take neighbouring windows.
        let step = if t.together == 1 { step } else { format!("({step} * {}u + cluster_rank)", t.together) };
        self.w.line(format!("const int {name}_base = static_cast<int>{step} * {};", axis.tile));
        if self.facts.wide(t.axis) && !self.always_full(t.axis) {
            self.w.line(format!("const int {name}_len = min_int({}, {} - {name}_base);", axis.tile, axis.extent));
        }
    }
}
