//! A report drawn: latency over time, the line over time, devices. Plain SVG, readable in a browser.

use std::fmt::Write;

use super::report::{Moment, Report};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 70.0;
const PLOT_WIDTH: f64 = 690.0;
const PLOT_HEIGHT: f64 = 170.0;
const GAP: f64 = 75.0;
const ROW: f64 = 18.0;

/// A line of a plot.
struct Curve<'a> {
    name: &'a str,
    colour: &'a str,
    at: &'a dyn Fn(&Moment) -> Option<f64>,
}

/// The report as an SVG document.
pub fn draw(report: &Report) -> String {
    let bars = report.devices.len() + 1;
    let height = 50.0 + 3.0 * (PLOT_HEIGHT + GAP) + ROW * bars as f64 + 40.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    let tally = &report.tally;
    text(
        &mut svg,
        (LEFT, 24.0),
        "start",
        &format!(
            "offered {:.0}/s, in time {:.0}/s, p50 {:.1} ms, p99 {:.1} ms, seed {}",
            tally.offered_per_s,
            tally.goodput_per_s,
            report.latency.p50_ms,
            report.latency.p99_ms,
            report.seed
        ),
    );
    let plots: [(&str, &[Curve<'_>]); 3] = [
        (
            "latency, ms",
            &[
                Curve {
                    name: "p99",
                    colour: "#c0392b",
                    at: &|moment| moment.p99_ms,
                },
                Curve {
                    name: "p50",
                    colour: "#2471a3",
                    at: &|moment| moment.p50_ms,
                },
            ],
        ),
        (
            "requests a second",
            &[
                Curve {
                    name: "offered",
                    colour: "#999999",
                    at: &|moment| Some(moment.offered_per_s),
                },
                Curve {
                    name: "answered",
                    colour: "#2471a3",
                    at: &|moment| Some(moment.answered_per_s),
                },
                Curve {
                    name: "in time",
                    colour: "#1e8449",
                    at: &|moment| Some(moment.in_time_per_s),
                },
            ],
        ),
        (
            "in the line, requests",
            &[Curve {
                name: "waiting",
                colour: "#7d3c98",
                at: &|moment| Some(moment.in_line),
            }],
        ),
    ];
    for (index, (title, curves)) in plots.into_iter().enumerate() {
        let top = 60.0 + index as f64 * (PLOT_HEIGHT + GAP);
        plot(&mut svg, top, report, title, curves);
    }
    bars_of(&mut svg, 60.0 + 3.0 * (PLOT_HEIGHT + GAP), report);
    svg.push_str("</svg>\n");
    svg
}

fn plot(svg: &mut String, top: f64, report: &Report, title: &str, curves: &[Curve<'_>]) {
    let values = || {
        let all = curves
            .iter()
            .flat_map(|curve| report.course.iter().filter_map(curve.at));
        all.fold(0.0, f64::max)
    };
    let most = round_up(values());
    let end = report.duration_s;
    let bottom = top + PLOT_HEIGHT;
    text(svg, (LEFT, top - 8.0), "start", title);
    for tick in 0..=4 {
        let part = f64::from(tick) / 4.0;
        let (x, y) = (LEFT + part * PLOT_WIDTH, bottom - part * PLOT_HEIGHT);
        line(svg, (LEFT, y), (LEFT + PLOT_WIDTH, y), "#e5e5e5");
        text(svg, (LEFT - 6.0, y + 4.0), "end", &number(part * most));
        text(svg, (x, bottom + 16.0), "middle", &number(part * end));
    }
    text(
        svg,
        (LEFT + PLOT_WIDTH / 2.0, bottom + 32.0),
        "middle",
        "time, s",
    );
    if report.warm_up_s > 0.0 {
        let x = LEFT + PLOT_WIDTH * report.warm_up_s / end;
        line(svg, (x, top), (x, bottom), "#f0b27a");
        text(svg, (x + 3.0, top + 11.0), "start", "warm");
    }
    for (index, curve) in curves.iter().enumerate() {
        let mut path = String::new();
        let mut pen_down = false;
        for moment in &report.course {
            let Some(value) = (curve.at)(moment) else {
                pen_down = false;
                continue;
            };
            let x = LEFT + PLOT_WIDTH * moment.at_s / end;
            let y = bottom - PLOT_HEIGHT * value / most;
            push(
                &mut path,
                format_args!("{}{x:.1} {y:.1}", if pen_down { 'L' } else { 'M' }),
            );
            pen_down = true;
        }
        let colour = curve.colour;
        push(
            svg,
            format_args!(
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n"
            ),
        );
        let y = top + 12.0 + 18.0 * index as f64;
        line(
            svg,
            (LEFT + PLOT_WIDTH + 10.0, y - 4.0),
            (LEFT + PLOT_WIDTH + 30.0, y - 4.0),
            colour,
        );
        text(svg, (LEFT + PLOT_WIDTH + 36.0, y), "start", curve.name);
    }
}

fn bars_of(svg: &mut String, top: f64, report: &Report) {
    text(svg, (LEFT, top - 8.0), "start", "busy, % of the time");
    let devices = report
        .devices
        .iter()
        .map(|device| (device.name.as_str(), device.utilisation));
    let all = [("workers", report.workers_utilisation)]
        .into_iter()
        .chain(devices);
    for (index, (name, part)) in all.enumerate() {
        let y = top + ROW * index as f64;
        let width = PLOT_WIDTH * part.clamp(0.0, 1.0);
        push(
            svg,
            format_args!(
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#7fb3d5\"/>\n",
                LEFT,
                y,
                ROW - 4.0
            ),
        );
        let label = format!("{} {:.1}", escape(name), 100.0 * part);
        text(svg, (LEFT + 6.0, y + ROW - 7.0), "start", &label);
    }
}

fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    push(
        svg,
        format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{colour}\"/>\n"
        ),
    );
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, what: &str) {
    push(
        svg,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333333\">{what}</text>\n"
        ),
    );
}

fn push(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what)
        .expect("a string takes all that is written to it");
}

fn escape(name: &str) -> String {
    name.replace('&', "&amp;").replace('<', "&lt;")
}

/// 1, 2, 4 or 8 times a power of ten, at least `value`.
fn round_up(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 8.0, 10.0];
    let step = steps.into_iter().find(|step| step * power >= value);
    step.unwrap_or(10.0) * power
}

fn number(value: f64) -> String {
    match value {
        _ if value == value.trunc() => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_ends_at_a_round_number_that_holds_everything() {
        assert_eq!(round_up(0.0), 1.0);
        assert_eq!(round_up(73.0), 80.0);
        assert_eq!(round_up(80.0), 80.0);
        assert_eq!(round_up(90.0), 100.0);
        assert_eq!(round_up(0.3), 0.4);
    }
}
