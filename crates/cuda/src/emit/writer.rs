//! Indented lines.

/// Source text under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    text: String,
    depth: usize,
}

impl Writer {
    /// One line; an empty one has no indentation.
    pub fn line(&mut self, line: impl AsRef<str>) {
        let line = line.as_ref();
        if !line.is_empty() {
            // Preprocessor lines read best at the depth of what they apply to.
            self.text.push_str(&"  ".repeat(self.depth));
            self.text.push_str(line);
        }
        self.text.push('\n');
    }

    /// `head {`.
    pub fn open(&mut self, head: impl AsRef<str>) {
        self.line(format!("{} {{", head.as_ref()).trim_start());
        self.depth += 1;
    }

    /// Indents what follows, after a line that ends in `{`.
    pub fn indent(&mut self) {
        self.depth += 1;
    }

    /// `}` and what follows it.
    pub fn close(&mut self, tail: &str) {
        self.depth = self.depth.saturating_sub(1);
        self.line(format!("}}{tail}"));
    }

    /// A loop over `0..count` that is unrolled; none if `count` is 1, for which the variable is 0.
    pub fn unrolled(&mut self, variable: &str, count: usize) {
        self.line("#pragma unroll");
        self.open(format!("for (int {variable} = 0; {variable} < {count}; ++{variable})"));
    }

    /// An empty one with this indentation.
    pub fn at_depth(depth: usize) -> Self {
        Self { text: String::new(), depth }
    }

    /// An empty one at the depth of a block inside this one.
    pub fn nested(&self) -> Self {
        Self::at_depth(self.depth + 1)
    }

    /// Lines that are indented already.
    pub fn paste(&mut self, lines: &str) {
        self.text.push_str(lines);
    }

    /// All of it.
    pub fn finish(self) -> String {
        self.text
    }
}
