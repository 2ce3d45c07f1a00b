//! Columns of text.

/// Rows under a head, numbers to the right. A column is one of numbers if its first cell starts with a digit.
#[derive(Debug, Default)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column names.
    pub fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(|h| h.to_string()).collect()] }
    }

    /// Adds a row; it may be shorter than the head.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The table, every line indented by two spaces.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let cell = |row: &Vec<String>, c: usize| row.get(c).cloned().unwrap_or_default();
        let width = |c: usize| self.rows.iter().map(|r| cell(r, c).chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let numeric = |c: usize| {
            let first = self.rows.iter().skip(1).map(|r| cell(r, c)).find(|t| !t.is_empty());
            first.is_some_and(|t| t.starts_with(|ch: char| ch.is_ascii_digit() || ch == '-'))
        };
        let numeric: Vec<bool> = (0..columns).map(numeric).collect();
        let mut out = String::new();
        for row in &self.rows {
            let mut line = String::from(" ");
            for (c, &width) in widths.iter().enumerate() {
                let text = cell(row, c);
                line += &if numeric[c] { format!(" {text:>width$} ") } else { format!(" {text:<width$} ") };
            }
            out += line.trim_end();
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_to_the_right() {
        let mut table = Table::new(&["tensor", "written", "footprint"]);
        table.row(["Q".into(), "1".into(), "tile".into()]);
        table.row(["K".into(), "12".into()]);
        let expected = "  tensor  written  footprint
  Q             1  tile
  K            12
";
        assert_eq!(table.text(), expected);
    }
}
