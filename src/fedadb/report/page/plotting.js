// What all plots share: the library, colours, axes and line styles.

const colour = (method) => readable(data.colours[method]);

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const LEAST_CONTRAST = 3;  // of lines and markers with the page, in WCAG 2.2
const channels = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

function luminance(rgb) {
  const linear = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}

function contrast(one, other) {
  const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}

/** The colour, mixed with the text's colour as far as it has to be to stand out from the page. */
function readable(hex) {
  const paper = channels(theme("--paper")), ink = channels(theme("--ink")), rgb = channels(hex);
  for (let share = 0; share < 1; share += 0.05) {
    const mixed = rgb.map((v, i) => Math.round(v + share * (ink[i] - v)));
    if (contrast(mixed, paper) >= LEAST_CONTRAST) return `#${mixed.map((v) => v.toString(16).padStart(2, "0")).join("")}`;
  }
  return theme("--ink");
}

let loading = null;  // the library, which is unpacked once

/** Unpack and compile the library when the first plot is near, so that the page opens without waiting for it. */
function loadPlotly() {
  loading ??= (async () => {
    const packed = await fetch(`data:application/gzip;base64,${$("plotly").textContent}`);
    const unpacked = packed.body.pipeThrough(new DecompressionStream("gzip"));
    document.head.append(element("script", {}, await new Response(unpacked).text()));
  })();
  return loading;
}

const narrow = () => innerWidth <= 600;

/** What a plot shows, in words. */
function plotName(plot, layout) {
  const heading = (plot.closest(".analysis") ?? plot.closest("section")).querySelector("h3, h2");
  const [x, y] = [layout.xaxis, layout.yaxis].map((axis) => axis?.title?.text);
  return `${layout.title?.text ?? heading.textContent}${x && y ? `: ${y} by ${x}` : ""}`;
}

/** Draw a plot. An axis with `whole: true` has ticks at whole numbers only. */
function draw(id, traces, layout) {
  if (!window.Plotly) return;  // its section is drawn as soon as the library is there
  const plot = $(id), name = plotName(plot, layout);
  plot.setAttribute("role", "figure");
  plot.setAttribute("aria-label", name);
  plot.hidden = false;
  if (layout.height) plot.style.height = `${layout.height}px`;  // Plotly forgets its own when the window changes
  const { whole, ...xaxis } = layout.xaxis ?? {};
  const axis = { gridcolor: theme("--line"), zerolinecolor: theme("--line"), automargin: true, ticklabelstandoff: 5 };
  const yaxis = { ...layout.yaxis };
  if (yaxis.title) yaxis.title.standoff = 10;  // or it overlaps long tick labels
  if (whole) Object.assign(xaxis, { tick0: 0, dtick: wholeStep(plot, xRange(traces)) });
  Plotly.react(plot, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: theme("--ink") },
    modebar: { bgcolor: "rgba(0,0,0,0)" },
    hoverlabel: { bgcolor: theme("--panel"), bordercolor: theme("--line"), font: { color: theme("--ink") } },
    margin: { l: 50, r: 10, t: layout.title ? 40 : 15, b: 50 }, showlegend: false, ...layout,
    xaxis: { ...axis, ...xaxis }, yaxis: { ...axis, ...yaxis },
  }, { responsive: true, displaylogo: false, displayModeBar: narrow() ? false : "hover" });
  offerSvg(plot, name);
  if (whole && !plot.dataset.whole) {
    plot.dataset.whole = "yes";
    plot.on("plotly_relayout", () => {  // after a zoom, or if the window has another width
      const step = wholeStep(plot, plot.layout.xaxis.range ?? xRange(plot.data));
      if (step !== plot.layout.xaxis.dtick) Plotly.relayout(plot, { "xaxis.dtick": step });
    });
  }
}

function xRange(traces) {
  const x = traces.flatMap((trace) => trace.x ?? trace.z[0].map((_, i) => i));
  return x.reduce(([low, high], v) => [Math.min(low, v), Math.max(high, v)], [Infinity, -Infinity]);
}

/** The distance of ticks: 1, 2, 5, 10, …, with room for each label. */
function wholeStep(plot, [low, high]) {
  const ticks = Math.max(2, (plot.clientWidth - 60) / 60);
  for (let power = 1; ; power *= 10) {
    for (const step of [power, 2 * power, 5 * power]) if ((high - low) / step <= ticks) return step;
  }
}

// A line that lies on n others has the n-th style: its gaps show the lines below.
const DASHES = ["solid", "14px,14px", "7px,21px", "3px,25px"];
const BORDERS = ["solid", "dashed", "dotted", "dotted"];

/** The style of each line, [{ method, y }], by the number of other methods' lines below it. */
function lineStyles(lines) {
  const values = lines.flatMap((line) => line.y.filter((v) => v !== null));
  const tolerance = 0.005 * values.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
  const coincide = (a, b) => a.every((v, i) => i >= b.length || v === b[i] || Math.abs(v - b[i]) <= tolerance);
  return lines.map((line, i) => {
    const below = lines.slice(0, i).filter((one) => one.method !== line.method && coincide(line.y, one.y));
    return Math.min(unique(below.map((one) => one.method)).length, DASHES.length - 1);
  });
}

/** A sample of a line for legends. */
const sample = (method, style) => sampleOf(colour(method), style);
const sampleOf = (lineColour, style) => element("i", { style: `border-top: 3px ${BORDERS[style]} ${lineColour}` });

// Lines of one method have its colour; their markers distinguish them.
const MARKERS = [["circle", "●"], ["square", "■"], ["diamond", "◆"], ["triangle-up", "▲"], ["triangle-down", "▼"], ["star", "★"]];

/** The marker of each line, [{ method }], by the number of the same method's lines before it. */
function markersOf(lines) {
  return lines.map((line, i) => MARKERS[lines.slice(0, i).filter((one) => one.method === line.method).length % MARKERS.length]);
}

/** A legend's entry for a line with markers. */
function markerEntry(lineColour, style, character, text) {
  return element("li", {}, sampleOf(lineColour, style), element("span", { style: `color: ${lineColour}` }, `${character} `), text);
}

/** The scale of colours beside a heat map; above it where there is little room. */
function colourbar(title, more = {}) {
  const text = { title: { text: title, side: narrow() ? "top" : "right" }, thickness: 12, ...more };
  return narrow() ? { ...text, orientation: "h", x: 0.5, y: 1.02, yanchor: "bottom", len: 0.9 } : text;
}

/** A title; where the scale of colours is above the plot, it is above that. */
function plotTitle(text) {
  return { title: { text, font: { size: narrow() ? 14 : 17 } } };
}
