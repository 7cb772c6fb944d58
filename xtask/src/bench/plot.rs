//! Plots of sheets, as SVG by plotters.

use std::path::Path;

use anyhow::{Context as _, anyhow};
use plotters::{
    coord::Shift,
    prelude::{
        ChartBuilder, Circle, DrawingArea, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, Rectangle,
        SVGBackend, SeriesLabelPosition,
    },
    style::{BLACK, Color, RGBColor, ShapeStyle, WHITE},
};

use super::sheet::{Cell, Row, Shape, Sheet, number};

/// In pixels.
const SIZE: (u32, u32) = (860, 440);
/// Told apart by people who do not see all colours alike.
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Draws a sheet into a file; nothing for one that is a table only.
pub fn draw(sheet: &Sheet, path: &Path) -> anyhow::Result<()> {
    if sheet.shape == Shape::Table || sheet.rows.is_empty() {
        return Ok(());
    }
    let area = SVGBackend::new(path, SIZE).into_drawing_area();
    let drawn = match &sheet.shape {
        Shape::Bars => bars(sheet, &area),
        Shape::Lines { x, log } => lines(sheet, x, *log, &area),
        Shape::Table => Ok(()),
    };
    drawn
        .and_then(|()| area.present().map_err(|error| anyhow!("{error}")))
        .with_context(|| format!("drawing {}", path.display()))
}

/// A group of bars for each row, one bar for each column, with a line from the least to the most run.
fn bars(sheet: &Sheet, area: &Area<'_>) -> anyhow::Result<()> {
    let error = |error| anyhow!("{error}");
    area.fill(&WHITE).map_err(error)?;
    let columns = sheet.columns();
    let top = sheet.rows.iter().flat_map(|row| &row.cells).map(Cell::most).fold(0.0, f64::max) * 1.15;
    let groups = sheet.rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(format!("{} ({})", sheet.title, sheet.unit), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(84)
        .build_cartesian_2d(0.0..groups, 0.0..top.max(f64::MIN_POSITIVE))
        .map_err(|error| anyhow!("{error}"))?;
    let name = |at: &f64| {
        // Labels are asked for at whole numbers and a half.
        let row = sheet.rows.get(index(*at)).filter(|_| (at.fract() - 0.5).abs() < 0.01);
        row.map(|row| row.name.clone()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * sheet.rows.len() + 1)
        .x_label_formatter(&name)
        .y_label_formatter(&|value| number(*value))
        .light_line_style(WHITE)
        .draw()
        .map_err(|error| anyhow!("{error}"))?;
    let width = 0.8 / columns.len() as f64;
    for (at, column) in columns.iter().enumerate() {
        let color = COLORS[at % COLORS.len()];
        let cells = sheet.rows.iter().enumerate().filter_map(|(row, Row { cells, .. })| {
            let cell = cells.iter().find(|cell| cell.column == *column)?;
            Some((row as f64 + 0.1 + at as f64 * width, cell))
        });
        let cells: Vec<(f64, &Cell)> = cells.collect();
        let boxes = cells
            .iter()
            .map(|(left, cell)| Rectangle::new([(*left, 0.0), (left + 0.94 * width, cell.median())], color.filled()));
        let drawn = chart.draw_series(boxes).map_err(|error| anyhow!("{error}"))?;
        if columns.len() > 1 {
            let label = drawn.label(*column);
            label.legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
        }
        let spreads = cells.iter().map(|(left, cell)| {
            let middle = left + 0.47 * width;
            PathElement::new([(middle, cell.least()), (middle, cell.most())], ShapeStyle::from(BLACK).stroke_width(1))
        });
        chart.draw_series(spreads).map_err(|error| anyhow!("{error}"))?;
    }
    if columns.len() > 1 {
        let labels = chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .border_style(BLACK.mix(0.3))
            .background_style(WHITE.mix(0.8))
            .draw();
        labels.map_err(|error| anyhow!("{error}"))?;
    }
    Ok(())
}

/// A line for each row.
fn lines(sheet: &Sheet, x: &str, log: bool, area: &Area<'_>) -> anyhow::Result<()> {
    area.fill(&WHITE).map_err(|error| anyhow!("{error}"))?;
    let points = |row: &Row| -> Vec<(f64, f64)> {
        let points = row.cells.iter().filter_map(|cell| Some((leading(&cell.column)?, cell.median())));
        points.filter(|(x, y)| x.is_finite() && y.is_finite() && (!log || (*x > 0.0 && *y > 0.0))).collect()
    };
    let all: Vec<(f64, f64)> = sheet.rows.iter().flat_map(points).collect();
    let reach = |of: fn(&(f64, f64)) -> f64| {
        let values = all.iter().map(of);
        (values.clone().fold(f64::INFINITY, f64::min), values.fold(f64::NEG_INFINITY, f64::max))
    };
    let ((left, right), (bottom, top)) = (reach(|point| point.0), reach(|point| point.1));
    if all.is_empty() {
        return Ok(());
    }
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(format!("{} ({})", sheet.title, sheet.unit), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(84);
    // The two kinds of axes are two types.
    macro_rules! draw {
        ($x:expr, $y:expr) => {{
            let mut chart = builder.build_cartesian_2d($x, $y).map_err(|error| anyhow!("{error}"))?;
            chart
                .configure_mesh()
                .x_desc(x)
                .x_label_formatter(&|value| number(*value))
                .y_label_formatter(&|value| number(*value))
                .light_line_style(WHITE)
                .draw()
                .map_err(|error| anyhow!("{error}"))?;
            for (at, row) in sheet.rows.iter().enumerate() {
                let color = COLORS[at % COLORS.len()];
                let line = LineSeries::new(points(row), ShapeStyle::from(color).stroke_width(2));
                let drawn = chart.draw_series(line).map_err(|error| anyhow!("{error}"))?;
                drawn.label(&row.name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 14, y)], ShapeStyle::from(color).stroke_width(2))
                });
                let dots = points(row).into_iter().map(|point| Circle::new(point, 3, color.filled()));
                chart.draw_series(dots).map_err(|error| anyhow!("{error}"))?;
            }
            let labels = chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .border_style(BLACK.mix(0.3))
                .background_style(WHITE.mix(0.8))
                .draw();
            labels.map_err(|error| anyhow!("{error}"))
        }};
    }
    if log {
        draw!((left * 0.9..right * 1.1).log_scale(), (bottom * 0.7..top * 1.4).log_scale())
    } else {
        draw!(left.min(0.0)..right * 1.05, 0.0..top * 1.15)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a row")]
fn index(at: f64) -> usize {
    at.max(0.0) as usize
}

/// The number that a column's name begins with.
fn leading(column: &str) -> Option<f64> {
    let end = column.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(column.len());
    column[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_are_drawn() {
        let directory = std::env::temp_dir().join(format!("plot-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let lines = |log| Shape::Lines { x: "share of the peak".to_owned(), log };
        for (shape, mark) in [(Shape::Bars, "<rect"), (lines(false), "<polyline"), (lines(true), "<polyline")] {
            let mut sheet = Sheet::new("A sheet", "us", shape);
            for (row, factor) in [("one", 1.0), ("other", 2.5)] {
                for (column, value) in [("10 %", 10.0), ("50 %", 70.0), ("90 %", 400.0)] {
                    [0.9, 1.0, 1.2].into_iter().for_each(|run| sheet.add(row, column, run * factor * value));
                }
            }
            let path = directory.join("plot.svg");
            draw(&sheet, &path).unwrap();
            let svg = std::fs::read_to_string(&path).unwrap();
            for part in [mark, "A sheet", "other", "</svg>"] {
                assert!(svg.contains(part), "{part} in {svg}");
            }
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn columns_begin_with_their_number() {
        assert_eq!((leading("25 %"), leading("1.5x"), leading("small")), (Some(25.0), Some(1.5), None));
    }
}
