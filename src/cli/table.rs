//! Rows for people.

use std::fmt::Write as _;

/// Lines of columns, each as wide as its widest cell, under a heading.
pub(super) fn table<const N: usize>(heading: [&str; N], rows: &[[String; N]]) -> String {
    let heading = heading.map(str::to_owned);
    let lines: Vec<&[String; N]> = std::iter::once(&heading).chain(rows).collect();
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            // Writing to a string can't fail.
            let _ = write!(row, "{cell:<width$}  ");
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Names with their values, one a line.
pub(super) fn facts(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in rows {
        let _ = writeln!(text, "{name:<width$}  {value}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let rows = [["1".into(), "Альфа".into()], ["100".into(), String::new()]];
        assert_eq!(table(["id", "name"], &rows), "id   name\n1    Альфа\n100\n");
        assert_eq!(
            facts(&[("id", "1".into()), ("name", "A".into())]),
            "id    1\nname  A\n"
        );
    }
}
