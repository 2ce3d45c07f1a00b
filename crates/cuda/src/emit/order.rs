//! From a task's number to the windows of the grid's axes: see [`crate::schedule::Order`].

use super::element::Emitter;
use crate::schedule::Turn;

impl Emitter<'_> {
    /// Declares the base, and where it can be less than full the length, of every grid axis's window at place `task` of
    /// the schedule's order. `task` is a C++ expression of an integer type.
    pub fn windows(&mut self, task: &str) {
        let order = self.schedule.order.clone();
        self.w.line(format!("u32 point = {task};"));
        match order.digits() {
            Some(turns) => {
                for t in turns.iter().rev() {
                    self.window(t, format!("point % {}u", t.steps));
                    self.w.line(format!("point /= {}u;", t.steps));
                }
            }
            None => self.by_blocks(&order.turns),
        }
    }

    /// The same by blocks of the cache of which some have a part of an axis.
    fn by_blocks(&mut self, turns: &[Turn]) {
        // Of the axes so far: the block's first window, and how many it has.
        let mut firsts: Vec<Option<String>> = vec![];
        let mut sizes: Vec<String> = vec![];
        for (k, t) in turns.iter().enumerate() {
            if t.side >= t.steps {
                firsts.push(None);
                sizes.push(format!("{}u", t.steps));
                continue;
            }
            let after: usize = turns[k + 1..].iter().map(|t| t.steps).product();
            let unit = self.product([format!("{after}u")].iter().chain(&sizes));
            let first = format!("{}_first", self.names.axis(t.axis));
            let slab = self.product([unit.clone(), format!("{}u", t.side)].iter());
            self.w.line(format!("const u32 {first} = point / ({slab}) * {}u;", t.side));
            self.w.line(format!("point -= {first} * ({unit});"));
            sizes.push(match t.steps % t.side {
                0 => format!("{}u", t.side),
                left => {
                    let size = format!("{}_many", self.names.axis(t.axis));
                    self.w.line(format!("const u32 {size} = {first} == {}u ? {left}u : {}u;", t.steps - left, t.side));
                    size
                }
            });
            firsts.push(Some(first));
        }
        for ((t, first), size) in turns.iter().zip(firsts).zip(sizes).rev() {
            let within = if size == "1u" { None } else { Some(format!("point % {size}")) };
            let parts: Vec<String> = first.into_iter().chain(within.clone()).collect();
            self.window(t, if parts.is_empty() { "0u".to_string() } else { parts.join(" + ") });
            if within.is_some() {
                self.w.line(format!("point /= {size};"));
            }
        }
    }

    /// A product of C++ expressions, numbers among them multiplied.
    fn product<'e>(&self, of: impl Iterator<Item = &'e String>) -> String {
        let (mut number, mut names) = (1usize, vec![]);
        for factor in of.flat_map(|e| e.split(" * ")) {
            match factor.strip_suffix('u').and_then(|n| n.parse::<usize>().ok()) {
                Some(n) => number *= n,
                None => names.push(factor.to_string()),
            }
        }
        if number != 1 || names.is_empty() {
            names.push(format!("{number}u"));
        }
        names.join(" * ")
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
