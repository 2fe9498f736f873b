"use strict";
// Draws every chart of the page from the JSON beside it. A chart's controls act on all of its panels.

const narrow = window.matchMedia("(max-width: 600px)").matches;
const font = { family: "system-ui, sans-serif", size: 12, color: "#1b1f24" };

function faint(colour) {
  const n = parseInt(colour.slice(1), 16);
  return `rgba(${n >> 16}, ${(n >> 8) & 255}, ${n & 255}, 0.16)`;
}

function traces(panel, line, axis, colour) {
  if (panel.spokes.length) {
    return [{ type: "scatterpolar", name: line.label, r: [...line.y, line.y[0]],
              theta: [...panel.spokes, panel.spokes[0]], mode: "lines", line: { color: colour } }];
  }
  if (line.style === "bar") {
    const spread = { type: "data", symmetric: false, array: line.high.map((high, i) => high - line.y[i]), arrayminus: line.low.map((low, i) => line.y[i] - low) };
    return [{ type: "bar", name: line.label, x: line.x[axis], y: line.y, marker: { color: colour }, error_y: spread }];
  }
  const x = line.x[axis], points = ["points", "hollow"].includes(line.style), ray = line.style === "ray";
  const drawn = { type: "scatter", name: line.label, x, y: line.y,
    mode: points ? "markers" : line.style === "marked" ? "lines+markers" : "lines",
    line: { color: colour, width: ray ? 1 : 2, dash: line.style === "dashed" ? "dash" : "solid" },
    marker: { color: line.style === "hollow" ? "#fff" : colour, size: points ? 11 : 7, line: { color: colour, width: points ? 2 : 0 } },
    opacity: ray ? 0.55 : 1, hoverinfo: ray ? "skip" : undefined };
  if (!line.low.length) return [drawn];
  const around = { type: "scatter", x: [...x, ...[...x].reverse()], y: [...line.high, ...[...line.low].reverse()],
    fill: "toself", fillcolor: faint(colour), line: { width: 0 }, hoverinfo: "skip", mode: "lines" };
  return [around, drawn];
}

function layout(panel, axis) {
  const base = { title: { text: panel.title, font: { size: 14 } }, font, showlegend: false,
    margin: { l: 58, r: 14, t: 38, b: 46 }, hovermode: "closest", dragmode: narrow ? false : "zoom",
    paper_bgcolor: "#fff", plot_bgcolor: "#fff" };
  if (panel.spokes.length) {
    const size = panel.spokes.length > 12 ? 9 : 11;
    return { ...base, margin: { l: 70, r: 70, t: 56, b: 40 },
             polar: { angularaxis: { tickfont: { size } }, radialaxis: { rangemode: "tozero", tickfont: { size: 9 } } } };
  }
  const ticks = (log, values) => {
    const shown = values.filter(value => value > 0);
    return log && Math.max(...shown) > 30 * Math.min(...shown) ? { type: "log", dtick: 1 } : { type: log ? "log" : "linear" };
  };
  const rule = { gridcolor: "#e6eaee", zeroline: false, linecolor: "#b8c0c8", ticks: "outside", automargin: true };
  const result = { ...base,
    xaxis: { ...rule, title: { text: axis }, ...ticks(panel.x_log, panel.lines.flatMap(line => line.x[axis])) },
    yaxis: { ...rule, title: { text: panel.y }, ...ticks(panel.y_log, panel.lines.flatMap(line => line.y)) } };
  result.barmode = "stack";
  if (panel.ticks.length) Object.assign(result.xaxis, { tickvals: panel.ticks.map((_, n) => n), ticktext: panel.ticks });
  if (panel.x_range.length) result.xaxis.range = panel.x_range;
  if (panel.y_range.length) result.yaxis.range = panel.y_range;
  if (panel.infeasible.length) {
    const [x, y] = panel.infeasible, grey = { fillcolor: "#e9ecef", line: { width: 0 }, layer: "below", type: "rect" };
    const dash = { type: "line", line: { color: "#666", width: 1, dash: "dash" } };
    result.shapes = [
      { ...grey, x0: 0, x1: x, yref: "paper", y0: 0, y1: 1 }, { ...grey, xref: "paper", x0: 0, x1: 1, y0: 0, y1: y },
      { ...dash, x0: x, x1: x, yref: "paper", y0: 0, y1: 1 }, { ...dash, xref: "paper", x0: 0, x1: 1, y0: y, y1: y }];
  }
  return result;
}

function button(text, pressed, act) {
  const element = document.createElement("button");
  element.type = "button";
  element.append(text);
  element.setAttribute("aria-pressed", String(pressed));
  element.addEventListener("click", () => act(element));
  return element;
}

function start(figure) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const places = [...figure.querySelectorAll(".panel")], hidden = new Set();
  let chosen = chart.axes[0];

  function draw() {
    chart.panels.forEach((panel, n) => {
      const axis = panel.axes.includes(chosen) ? chosen : panel.axes[0];
      const data = panel.lines.filter(line => !hidden.has(line.label)).flatMap(
        line => traces(panel, line, axis, line.colour || chart.colours[line.label] || "#888888"));
      Plotly.react(places[n], data, layout(panel, axis), { responsive: true, displaylogo: false, displayModeBar: false });
    });
  }

  const controls = figure.querySelector(".controls");
  if (chart.axes.length > 1) {
    const group = document.createElement("span");
    group.className = "axis";
    for (const axis of chart.axes) {
      group.append(button(axis, axis === chosen, self => {
        chosen = axis;
        for (const other of group.children) other.setAttribute("aria-pressed", String(other === self));
        draw();
      }));
    }
    controls.append(group);
  }
  for (const label of Object.keys(chart.colours)) {
    const chip = button(label, true, self => {
      hidden.has(label) ? hidden.delete(label) : hidden.add(label);
      self.setAttribute("aria-pressed", String(!hidden.has(label)));
      draw();
    });
    const swatch = document.createElement("span");
    swatch.className = "swatch";
    swatch.style.background = chart.colours[label];
    chip.prepend(swatch);
    controls.append(chip);
  }
  draw();
}

// Charts near the screen are drawn first and the others one by one after them, so that a long page opens at once.
const waiting = new Set(document.querySelectorAll("figure.chart"));

function startOnce(figure) {
  if (waiting.delete(figure)) start(figure);
}

const watcher = new IntersectionObserver(
  entries => entries.filter(entry => entry.isIntersecting).forEach(entry => startOnce(entry.target)), { rootMargin: "600px" });
waiting.forEach(figure => watcher.observe(figure));

function startNext() {
  const [figure] = waiting;
  if (!figure) { document.body.dataset.drawn = "all"; return; }
  startOnce(figure);
  setTimeout(startNext, 30);
}
setTimeout(startNext, 300);
window.addEventListener("beforeprint", () => waiting.forEach(startOnce));
