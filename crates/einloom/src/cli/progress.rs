//! Progress of long work, for a person who watches.

use super::ui::Ui;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A bar on the terminal's standard error; nothing anywhere else. It disappears when dropped.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

const STEPS: u64 = 1000;

impl Progress {
    /// Starts showing progress of the work called `what`.
    pub fn start(ui: &Ui, what: &'static str) -> Self {
        if !ui.shows_progress() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::new(STEPS).with_message(what);
        if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {percent}% {elapsed} (about {eta} left)") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(250));
        Self(bar)
    }

    /// How much is done, from 0 to 1.
    pub fn at(&self, part: f64) {
        self.0.set_position((part * STEPS as f64) as u64);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
