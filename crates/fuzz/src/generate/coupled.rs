//! Recurrences of two states that know each other: running maxima beside sums, running statistics, filters, corrections of
//! what is recalled. Few of them compose; the others are to be refused, not mis-derived.

use super::Writer;
use super::scope::TIME;

impl Writer {
    pub(super) fn coupled(&mut self) {
        let (x, y, k) = (self.moving(false), self.moving(false), self.moving(true));
        let id = self.tensors.len();
        let (h, g) = (format!("H{id}"), format!("G{id}"));
        let mut lines = vec![];
        let mut own = |line: String| lines.push(line);
        let near = self.random.pick(&["", "", "", " + 0.1 * abs(@)", " * (1 + 0.1 * @)"]);
        let read = match self.roll(10) {
            0 => {
                // Exponential gates that a running maximum keeps in range.
                own(format!("{g}[0] = 0"));
                own(format!("{g}[t+1] = max({y}[t] + {g}[t], {x}[t])"));
                own(format!("{h}[0,b] = 0"));
                own(format!(
                    "{h}[t+1,b] = exp({y}[t] + {g}[t] - {g}[t+1]) * {h}[t,b] + exp({x}[t] - {g}[t+1]) * {k}[t,b]"
                ));
                format!("sum(b) {k}[t,b] * {h}[t+1,b]")
            }
            1 => {
                // A running mean, and squares about it.
                own(format!("{g}[0] = 0"));
                own(format!("{g}[t+1] = {g}[t] + ({x}[t] - {g}[t]) / (t + 1)"));
                own(format!("{h}[0] = 0"));
                own(format!("{h}[t+1] = {h}[t] + ({x}[t] - {g}[t]) * ({x}[t] - {g}[t+1])"));
                format!("{h}[t+1] / (t + 1)")
            }
            2 => {
                // Position and velocity with constant gains.
                own(format!("{g}[0] = 0"));
                own(format!("{h}[0] = 0"));
                own(format!("{g}[t+1] = {g}[t] + 0.1 * ({x}[t] - {h}[t] - {g}[t])"));
                own(format!("{h}[t+1] = {h}[t] + {g}[t] + 0.5 * ({x}[t] - {h}[t] - {g}[t])"));
                format!("{h}[t+1] + {g}[t]")
            }
            3 => {
                // The gain of a scalar filter is a quotient of states.
                own(format!("{g}[0] = 1"));
                own(format!("{g}[t+1] = ({g}[t] + 0.1) / ({g}[t] + 1.1 + abs({y}[t]))"));
                own(format!("{h}[0] = 0"));
                own(format!("{h}[t+1] = (1 - {g}[t+1]) * {h}[t] + {g}[t+1] * {x}[t]"));
                format!("{h}[t+1]")
            }
            4 => {
                // What is recalled is corrected.
                own(format!("{h}[0,b] = 0"));
                own(format!("{g}[t] = sum(b) {k}[t,b] * {h}[t,b]"));
                own(format!("{h}[t+1,b] = sigmoid({y}[t]) * {h}[t,b] + {k}[t,b] * ({x}[t] - {g}[t])"));
                format!("sum(b) {k}[t,b] * {h}[t+1,b]")
            }
            5 => {
                // One sum decays by another.
                own(format!("{g}[0] = 0"));
                own(format!("{g}[t+1] = {g}[t] + abs({y}[t])"));
                own(format!("{h}[0,b] = 0"));
                own(format!("{h}[t+1,b] = exp({g}[t] - {g}[t+1]) * {h}[t,b] + {k}[t,b] * {x}[t]"));
                format!("sum(b) {k}[t,b] * {h}[t+1,b]")
            }
            6 => {
                // A normaliser beside what it normalises, under one gate.
                own(format!("{g}[0] = 0"));
                own(format!("{g}[t+1] = sigmoid({y}[t]) * {g}[t] + exp({x}[t])"));
                own(format!("{h}[0,b] = 0"));
                own(format!("{h}[t+1,b] = sigmoid({y}[t]) * {h}[t,b] + exp({x}[t]) * {k}[t,b]"));
                format!("(sum(b) {k}[t,b] * {h}[t+1,b]) / {g}[t+1]")
            }
            7 => {
                // A gate with a floor, and what it lets in.
                own(format!("{h}[0,b] = 0"));
                own(format!(
                    "{h}[t+1,b] = (0.9 + 0.1 * sigmoid({y}[t])) * {h}[t,b] + 0.1 * (1 - sigmoid({y}[t])) * {k}[t,b]"
                ));
                format!("sum(b) {k}[t,b] * {h}[t+1,b] * {x}[t]")
            }
            8 => {
                // The slice before the one before.
                own(format!("{g}[0] = 0"));
                own(format!("{h}[0] = 1"));
                own(format!("{g}[t+1] = {h}[t]"));
                own(format!("{h}[t+1] = 0.5 * {h}[t] - 0.25 * {g}[t] + {x}[t]"));
                format!("{h}[t+1]")
            }
            _ => {
                // A decay that the state itself moves: never a scan.
                own(format!("{h}[0,b] = 0"));
                own(format!("{h}[t+1,b] = exp(-abs({y}[t] * {h}[t,b])) * {h}[t,b] + {k}[t,b]"));
                format!("sum(b) {k}[t,b] * {h}[t+1,b]")
            }
        };
        self.statements.extend(lines);
        let read = match near {
            "" => read,
            near => format!("({read}){}", near.replace('@', &format!("{y}[t]"))),
        };
        self.define_at("[t]", &[TIME], &read);
    }
}
