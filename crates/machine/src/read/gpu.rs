//! Reads the sections `[lanes]`, `[calibration]` and `[[matrix]]`.

use super::{Reader, Section};
use crate::{Bytes, Calibration, Lanes, Machine, MatrixUnit, Seconds};
use einloom_cascade::DType;

/// Threads that issue together.
const WARP: usize = 32;

impl<'t> Reader<'t> {
    pub(super) fn lanes(&mut self, top: &Section<'_, 't>) -> Option<Lanes> {
        let value = top.table.get("lanes")?;
        let Some(table) = value.get_ref().as_table() else {
            self.error(value.span(), "lanes", "is not a table".to_string(), None);
            return None;
        };
        let at = Section { table, name: "lanes".to_string(), span: value.span() };
        self.keys(&at, &["arithmetic", "special", "threads", "block_threads", "registers", "latency"]);
        let mut count = |key: &str| self.count(&at, key).or_else(|| self.missing(&at, key));
        let [arithmetic, special, threads] = ["arithmetic", "special", "threads"].map(&mut count);
        let [block_threads, registers] = ["block_threads", "registers"].map(&mut count);
        let latency = self.quantity::<Seconds>(&at, "latency").or_else(|| self.missing(&at, "latency"));
        Some(Lanes {
            arithmetic: arithmetic?,
            special: special?,
            threads: threads?,
            block_threads: block_threads?,
            registers: registers?,
            latency: latency?,
            calibration: self.calibration(top),
        })
    }

    /// What is left out is as by default.
    fn calibration(&mut self, top: &Section<'_, 't>) -> Calibration {
        let mut out = Calibration::default();
        let Some(value) = top.table.get("calibration") else { return out };
        let Some(table) = value.get_ref().as_table() else {
            self.error(value.span(), "calibration", "is not a table".to_string(), None);
            return out;
        };
        let at = Section { table, name: "calibration".to_string(), span: value.span() };
        let mut waits: [(&str, &mut f64); 8] = [
            ("product", &mut out.product),
            ("shuffles", &mut out.shuffles),
            ("across_warps", &mut out.across_warps),
            ("stage", &mut out.stage),
            ("own_stage", &mut out.own_stage),
            ("load", &mut out.load),
            ("task", &mut out.task),
            ("start", &mut out.start),
        ];
        let known: Vec<&str> =
            waits.iter().map(|w| w.0).chain(["shows", "kept", "apart", "reads_show", "reads_joined"]).collect();
        self.keys(&at, &known);
        for (key, cycles) in &mut waits {
            if let Some(given) = self.count(&at, key) {
                **cycles = given as f64;
            }
        }
        let shares = [
            ("shows", &mut out.shows),
            ("kept", &mut out.kept),
            ("apart", &mut out.apart),
            ("reads_show", &mut out.reads_show),
            ("reads_joined", &mut out.reads_joined),
        ];
        for (key, share) in shares {
            if table.contains_key(key) {
                *share = self.fraction(&at, key).unwrap_or(*share);
            }
        }
        out
    }

    pub(super) fn matrix(&mut self, top: &Section<'_, 't>) -> Vec<MatrixUnit> {
        let Some(value) = top.table.get("matrix") else { return vec![] };
        let Some(array) = value.get_ref().as_array() else {
            let hint = Some("start each matrix unit with `[[matrix]]`".to_string());
            self.error(value.span(), "matrix", "is not a list of matrix units".to_string(), hint);
            return vec![];
        };
        if !top.table.contains_key("lanes") {
            self.error(value.span(), "lanes", "is missing: a machine with a matrix unit has it".to_string(), None);
        }
        let mut units: Vec<MatrixUnit> = vec![];
        for (k, item) in array.iter().enumerate() {
            let name = format!("matrix unit {}", k + 1);
            let Some(table) = item.get_ref().as_table() else {
                self.error(item.span(), &name, "is not a table".to_string(), None);
                continue;
            };
            let at = Section { table, name, span: item.span() };
            if let Some(unit) = self.unit(&at) {
                if units.iter().any(|u| u.name == unit.name) {
                    self.at(&at, "name", format!("there is another matrix unit `{}`", unit.name));
                }
                units.push(unit);
            }
        }
        units
    }

    fn unit(&mut self, at: &Section<'_, 't>) -> Option<MatrixUnit> {
        let known = [
            "name",
            "operands",
            "sustained",
            "rows",
            "columns",
            "column_step",
            "depth",
            "group_threads",
            "groups",
            "row_blocks",
            "feeder_threads",
            "feeder_registers",
            "reserve",
            "asynchronous",
            "shared_right",
        ];
        self.keys(at, &known);
        let name = self.name(at);
        let operands = self.operands(at);
        let sustained = self.fraction(at, "sustained");
        let mut count = |key: &str| self.count(at, key).or_else(|| self.missing(at, key));
        let [rows, columns, column_step] = ["rows", "columns", "column_step"].map(&mut count);
        let [group_threads, row_blocks, reserve] = ["group_threads", "row_blocks", "reserve"].map(&mut count);
        let depth = self.quantity::<Bytes>(at, "depth").or_else(|| self.missing(at, "depth"));
        if let (Some(columns), Some(step)) = (columns, column_step)
            && !columns.is_multiple_of(step)
        {
            self.at(at, "columns", format!("{columns} is no multiple of the column_step of {step}"));
        }
        if let (Some(depth), Some(operands)) = (depth, &operands)
            && let Some(long) = operands.iter().find(|d| depth.0 < d.bytes() as u64)
        {
            self.at(at, "depth", format!("{depth} hold no element of {long}"));
        }
        if let Some(threads) = group_threads
            && !threads.is_multiple_of(WARP)
        {
            self.at(at, "group_threads", format!("{threads} threads are not whole warps of {WARP}"));
        }
        let groups = self.counts(at, "groups");
        // Without a feeder both are left out.
        let feeder_threads = self.count(at, "feeder_threads").unwrap_or(0);
        let feeder_registers = self.count(at, "feeder_registers").unwrap_or(0);
        if (feeder_threads > 0) != (feeder_registers > 0) {
            self.at(at, "feeder_threads", "feeder_threads and feeder_registers belong together".to_string());
        }
        let asynchronous = self.flag(at, "asynchronous");
        let shared_right = self.flag(at, "shared_right");
        Some(MatrixUnit {
            name: name?,
            operands: operands?,
            sustained: sustained?,
            rows: rows?,
            columns: columns?,
            column_step: column_step?,
            depth: depth?,
            group_threads: group_threads?,
            groups: groups?,
            row_blocks: row_blocks?,
            feeder_threads,
            feeder_registers,
            reserve: reserve?,
            asynchronous,
            shared_right,
        })
    }

    /// A block has threads for all groups that a unit may have, which plans do not count, and registers for the tiles of
    /// the fewest.
    pub(super) fn units_fit(&mut self, top: &Section<'_, 't>, machine: &Machine) {
        let Some(lanes) = &machine.lanes else { return };
        let written = top.table.get("matrix").and_then(|v| v.get_ref().as_array());
        // Where one could not be read, which is which is not known, and that is reported already.
        let Some(written) = written.filter(|w| w.len() == machine.matrix.len()) else { return };
        let held = machine.registers().map_or(usize::MAX, |b| (b.0 / 4) as usize);
        for (k, (unit, item)) in machine.matrix.iter().zip(written.iter()).enumerate() {
            let Some(table) = item.get_ref().as_table() else { continue };
            let at = Section { table, name: format!("matrix unit {}", k + 1), span: item.span() };
            let threads = |groups: usize| unit.group_threads.saturating_mul(groups);
            let all = |groups: usize| threads(groups).saturating_add(unit.feeder_threads);
            let limit = lanes.block_threads;
            if unit.group_threads > limit {
                self.at(
                    &at,
                    "group_threads",
                    format!("{} threads are more than a block has, {limit}", unit.group_threads),
                );
            } else if let Some(&groups) = unit.groups.iter().find(|&&g| all(g) > limit) {
                let feeder = if unit.feeder_threads > 0 { " with the feeder" } else { "" };
                let text =
                    format!("{groups} groups{feeder} have {} threads, more than a block has, {limit}", all(groups));
                self.at(&at, "groups", text);
            }
            // The fewer groups, the more registers for each thread.
            let fewest = threads(unit.groups.iter().min().copied().unwrap_or(1)).max(1);
            let feeder = unit.feeder_threads.saturating_mul(unit.feeder_registers);
            let own = lanes.registers.min(held.saturating_sub(feeder) / fewest);
            if unit.reserve >= own {
                let text =
                    format!("{} registers leave none for tiles of the {own} that a thread may have", unit.reserve);
                self.at(&at, "reserve", text);
            }
        }
    }

    fn operands(&mut self, at: &Section<'_, 't>) -> Option<Vec<DType>> {
        let value = at.table.get("operands").or_else(|| self.missing(at, "operands"))?;
        let names: Option<Vec<&str>> =
            value.get_ref().as_array().and_then(|a| a.iter().map(|v| v.get_ref().as_str()).collect());
        let Some(names) = names else { return self.wrong_type(at, "operands", value, "a list of number types") };
        if names.is_empty() {
            self.at(at, "operands", "is empty".to_string());
            return None;
        }
        let named = |name: &str| DType::ALL.into_iter().find(|d| d.name() == name);
        if let Some(unknown) = names.iter().find(|n| named(n).is_none()) {
            let known: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
            self.at(at, "operands", format!("`{unknown}` is no number type; they are {}", known.join(", ")));
            return None;
        }
        Some(names.into_iter().filter_map(named).collect())
    }

    fn counts(&mut self, at: &Section<'_, 't>, key: &str) -> Option<Vec<usize>> {
        let value = at.table.get(key).or_else(|| self.missing(at, key))?;
        let list = value.get_ref().as_array();
        if list.is_some_and(|a| a.is_empty()) {
            self.at(at, key, "is empty".to_string());
            return None;
        }
        let one = |v: &toml::Spanned<toml::de::DeValue<'_>>| {
            let number = v.get_ref().as_integer()?;
            usize::from_str_radix(number.as_str(), number.radix()).ok().filter(|n| *n > 0)
        };
        let found: Option<Vec<usize>> = list.and_then(|a| a.iter().map(one).collect());
        found.or_else(|| self.wrong_type(at, key, value, "a list of whole numbers"))
    }

    pub(super) fn fraction(&mut self, at: &Section<'_, 't>, key: &str) -> Option<f64> {
        let value = at.table.get(key).or_else(|| self.missing(at, key))?;
        let number = value.get_ref().as_float().and_then(|f| f.as_str().parse::<f64>().ok());
        let number = number.filter(|f| *f > 0.0 && *f <= 1.0);
        number.or_else(|| self.wrong_type(at, key, value, "a fraction such as 0.8"))
    }

    /// Left out: false.
    fn flag(&mut self, at: &Section<'_, 't>, key: &str) -> bool {
        let Some(value) = at.table.get(key) else { return false };
        match value.get_ref().as_bool() {
            Some(flag) => flag,
            None => self.wrong_type(at, key, value, "true or false").unwrap_or(false),
        }
    }
}
