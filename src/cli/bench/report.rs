//! The figures, as a table and as a list.

use std::path::Path;

use serde::Serialize;

/// One figure beside its floor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Figure {
    pub(super) group: &'static str,
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
    /// What was measured beside it in the same run.
    pub(super) floor: Option<String>,
    pub(super) floor_value: Option<f64>,
    /// value over `floor_value`.
    pub(super) ratio: Option<f64>,
    pub(super) target: Option<String>,
}

impl Figure {
    pub(super) fn floor(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            group: "settlement",
            name: name.into(),
            value,
            unit,
            floor: None,
            floor_value: None,
            ratio: None,
            target: None,
        }
    }

    /// In another group.
    pub(super) const fn of(mut self, group: &'static str) -> Self {
        self.group = group;
        self
    }

    /// With what it should be.
    pub(super) fn aiming(mut self, target: &str) -> Self {
        self.target = Some(target.to_owned());
        self
    }

    pub(super) fn beside(mut self, floor: &Self, target: &str) -> Self {
        self.floor = Some(floor.name.clone());
        self.floor_value = Some(floor.value);
        self.ratio = (floor.value > 0.0).then(|| self.value / floor.value);
        self.target = (!target.is_empty()).then(|| target.to_owned());
        self
    }
}

pub(super) fn print(figures: &[Figure]) {
    println!(
        "{:<44} {:>10} {:<6} {:>7}  {:<34} target",
        "figure", "value", "unit", "ratio", "floor"
    );
    for figure in figures {
        let ratio = figure
            .ratio
            .map_or_else(String::new, |ratio| format!("{ratio:.2}"));
        let floor = match (&figure.floor, figure.floor_value) {
            (Some(name), Some(value)) => format!("{name} ({value:.1})"),
            _ => String::new(),
        };
        println!(
            "{:<44} {:>10.1} {:<6} {:>7}  {:<34} {}",
            figure.name,
            figure.value,
            figure.unit,
            ratio,
            floor,
            figure.target.as_deref().unwrap_or("")
        );
    }
}

pub(super) fn write(figures: &[Figure], file: &Path) -> anyhow::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, serde_json::to_vec_pretty(figures)?)?;
    Ok(())
}
