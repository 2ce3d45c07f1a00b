//! Reads the section `[overhead]`.

use super::{Reader, Section};
use crate::{Overhead, Seconds};

impl<'t> Reader<'t> {
    /// What is left out is as by default.
    pub(super) fn overhead(&mut self, top: &Section<'_, 't>) -> Overhead {
        let mut out = Overhead::default();
        let Some(value) = top.table.get("overhead") else { return out };
        let Some(table) = value.get_ref().as_table() else {
            self.error(value.span(), "overhead", "is not a table".to_string(), None);
            return out;
        };
        let at = Section { table, name: "overhead".to_string(), span: value.span() };
        self.keys(&at, &["kernel", "operation", "run", "masked", "inner_shows"]);
        let times = [("kernel", &mut out.kernel), ("operation", &mut out.operation), ("run", &mut out.run)];
        for (key, time) in times {
            *time = self.quantity::<Seconds>(&at, key).unwrap_or(*time);
        }
        out.masked = if table.contains_key("masked") { self.count(&at, "masked") } else { None };
        if table.contains_key("inner_shows") {
            out.inner_shows = self.fraction(&at, "inner_shows").unwrap_or(out.inner_shows);
        }
        out
    }
}
