"use strict";

const $ = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)];
// 97.5 % points of Student's t by degrees of freedom.
const T_975 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262];

let data = JSON.parse($("data").textContent);
const hidden = { methods: new Set(), seeds: new Set() };
let order = { column: null, down: true };

// elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Fill a select, and keep what was chosen if it is still there. */
function options(select, values) {
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => element("option", { value }, String(value))));
  if (values.map(String).includes(chosen)) select.value = chosen;
}

const colour = (method) => data.colours[method];
const runsOf = (setting) => data.runs.filter((run) => run.setting === setting);
const seedsOf = (runs) => unique(runs.map((run) => run.seed)).sort((a, b) => a - b);

// plots

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** The library is compiled when something is drawn first, so that the page opens without waiting for it. */
function loadPlotly() {
  if (!window.Plotly) document.head.append(element("script", {}, $("plotly").textContent));
}

function draw(id, traces, layout) {
  loadPlotly();
  const axis = { gridcolor: theme("--line"), zerolinecolor: theme("--line"), automargin: true };
  Plotly.react(id, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: theme("--ink") },
    modebar: { bgcolor: "rgba(0,0,0,0)" },
    margin: { l: 50, r: 10, t: layout.title ? 40 : 15, b: 45 }, showlegend: false, ...layout,
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  }, { responsive: true, displaylogo: false, displayModeBar: innerWidth > 600 ? "hover" : false });
}

function meanAndInterval(curves) {
  const n = curves.length, mean = [], half = [];
  for (let i = 0; i < Math.min(...curves.map((curve) => curve.length)); i++) {
    const at = curves.map((curve) => curve[i]);
    if (at.includes(null)) {  // a loss that was not finite
      mean.push(null);
      half.push(null);
      continue;
    }
    const m = at.reduce((a, b) => a + b, 0) / n;
    mean.push(m);
    const t = T_975[n - 2] ?? 1.96, squares = at.reduce((sum, v) => sum + (v - m) ** 2, 0);
    half.push(n > 1 ? t * Math.sqrt(squares / (n - 1) / n) : 0);
  }
  return { mean, half };
}

// sections

function drawState() {
  const done = data.runs.filter((run) => run.done === run.total).length;
  const rounds = data.runs.reduce((sum, run) => sum + run.done, 0);
  const live = document.body.hasAttribute("data-live") ? " It follows the runs as they go on." : "";
  document.title = `${data.title} · fedadb`;
  $("title").textContent = data.title;
  const trouble = data.trouble ? ` Trouble: ${data.trouble}` : "";
  $("state").textContent = `${data.runs.length} runs, ${done} finished, ${rounds} rounds.${live}${trouble}`;
}

function rank(text) {
  const number = parseFloat(text);
  return Number.isNaN(number) ? text : number;
}

function drawTable() {
  const table = data.tables.summary, wanted = $("filter").value.toLowerCase();
  const words = wanted.split(/[\s,]+/).filter(Boolean);
  let rows = table.rows.filter((row) => {
    const text = row.map((entry) => entry.text).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (order.column !== null) {
    const sign = order.down ? -1 : 1;
    rows = rows.toSorted((a, b) => {
      const [x, y] = [rank(a[order.column].text), rank(b[order.column].text)];
      return sign * (typeof x === typeof y ? (x > y) - (x < y) : typeof x === "number" ? 1 : -1);
    });
  }
  const head = table.header.map((name, i) => {
    const sort = () => {
      order = { column: i, down: order.column === i ? !order.down : i > 1 };
      drawTable();
      $("table").querySelectorAll("th button")[i].focus();
    };
    const way = order.column !== i ? "none" : order.down ? "descending" : "ascending";
    return element("th", { scope: "col", "aria-sort": way },
      element("button", { type: "button", onclick: sort }, name));
  });
  fillTable($("table"), head, rows);
  plainTable("accuracy-table", data.tables.accuracy);
  $("domains").hidden = !data.tables.domains;
  if (data.tables.domains) plainTable("domain-table", data.tables.domains);
  $("notes").replaceChildren(...table.notes.map((note) => element("li", {}, note)));
}

function fillTable(table, head, rows) {
  const cell = (entry) => element("td", {}, entry.best ? element("strong", {}, entry.text) : entry.text,
    ...(entry.paper ? [element("small", {}, `paper ${entry.paper}`)] : []));
  table.replaceChildren(
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
}

function plainTable(id, table) {
  fillTable($(id), table.header.map((name) => element("th", { scope: "col" }, name)), table.rows);
}

function drawConvergence() {
  plainTable("convergence-table", data.tables.convergence);
  $("convergence-notes").replaceChildren(...data.tables.convergence.notes.map((note) => element("li", {}, note)));
}

function toggles(place, values, off, mark, name) {
  place.replaceChildren(...values.map((value) => element("button", {
    type: "button", "aria-pressed": String(!off.has(value)),
    onclick: () => {
      off.has(value) ? off.delete(value) : off.add(value);
      drawCurves();
      [...place.children][values.indexOf(value)].focus();
    },
  }, ...mark(value), name(value))));
}

function drawCurves() {
  options($("curve-setting"), data.columns);
  const runs = runsOf($("curve-setting").value), what = $("curve-what").value;
  const dot = (method) => [element("i", { style: `background:${colour(method)}` })];
  toggles($("methods"), data.rows.filter((m) => runs.some((r) => r.method === m)), hidden.methods, dot, (m) => m);
  toggles($("seeds"), seedsOf(runs), hidden.seeds, () => [], (seed) => `seed ${seed}`);
  const key = $("smooth").checked ? `smooth ${what}` : what;
  const traces = [];
  for (const method of data.rows.filter((name) => !hidden.methods.has(name))) {
    const shown = runs.filter((run) => run.method === method && !hidden.seeds.has(run.seed));
    if (!shown.length) continue;
    const line = { mode: "lines", line: { color: colour(method), width: 2 } };
    if ($("each").checked) {
      shown.forEach((run) => traces.push({ ...line, x: run.t, y: run[key], name: `${method}, seed ${run.seed}` }));
      continue;
    }
    const { mean, half } = meanAndInterval(shown.map((run) => run[key]));
    const x = shown[0].t.slice(0, mean.length);
    if (shown.length > 1) {
      const edges = [...mean.map((m, i) => m + half[i]), ...mean.map((m, i) => m - half[i]).reverse()];
      traces.push({ x: [...x, ...x.toReversed()], y: edges, fill: "toself", mode: "lines", hoverinfo: "skip",
        line: { width: 0 }, fillcolor: `${colour(method)}26` });
    }
    traces.push({ ...line, x, y: mean, name: method });
  }
  const range = what === "accuracy" ? { range: [0, 1] } : {};
  draw("curve-plot", traces, { height: 440, hovermode: "x unified", xaxis: { title: { text: "round" } },
    yaxis: { title: { text: `test ${what}` }, ...range } });
}

function classNames(run) {
  return run.partition.classes ?? run.class_accuracy[0].map((_, c) => String(c));
}

function classRuns() {
  const runs = runsOf($("class-setting").value).filter((run) => String(run.seed) === $("class-seed").value);
  return runs.toSorted((a, b) => data.rows.indexOf(a.method) - data.rows.indexOf(b.method));
}

function drawClassControls() {
  options($("class-setting"), data.columns);
  options($("class-seed"), seedsOf(runsOf($("class-setting").value)));
  const runs = classRuns(), slider = $("round");
  options($("class-method"), runs.map((run) => run.method));
  const longest = Math.max(...runs.map((run) => run.class_t.length));
  const atEnd = slider.value === slider.max;
  slider.max = longest - 1;
  if (atEnd) slider.value = slider.max;
  drawClasses();
}

function drawClasses() {
  const runs = classRuns(), i = Number($("round").value);
  const t = runs.find((run) => run.class_t.length > i).class_t[i];
  $("round-number").textContent = t;
  const names = classNames(runs[0]), scale = { zmin: 0, zmax: 1, colorscale: "Viridis" };
  const share = (row) => row.map((a) => (a === null ? null : a / 1000));
  draw("round-plot", [{
    type: "heatmap", x: names, y: runs.map((run) => run.method), ...scale,
    z: runs.map((run) => share(run.class_accuracy[i] ?? names.map(() => null))),  // not that far yet
    hovertemplate: "%{y}<br>%{x}: %{z:.3f}<extra></extra>",
  }], { title: { text: `All methods at round ${t}` }, height: 150 + 28 * runs.length, xaxis: { type: "category" },
    yaxis: { autorange: "reversed", type: "category" } });
  const run = runs.find((one) => one.method === $("class-method").value) ?? runs[0];
  draw("class-plot", [{
    type: "heatmap", x: run.class_t, y: names, ...scale,
    z: names.map((_, c) => share(run.class_accuracy.map((row) => row[c]))),
    hovertemplate: "round %{x}<br>%{y}: %{z:.3f}<extra></extra>",
  }], { title: { text: `${run.method} over rounds` }, height: 160 + 22 * Math.min(names.length, 30),
    xaxis: { title: { text: "round" } }, yaxis: { autorange: "reversed", type: "category" },
    shapes: [{ type: "line", x0: t, x1: t, y0: 0, y1: 1, yref: "paper", line: { color: "#00c2ff", width: 2 } }] });
}

function drawMeasured() {
  options($("measured-setting"), data.columns);
  const runs = runsOf($("measured-setting").value);
  options($("measured-key"), unique(runs.flatMap((run) => Object.keys(run.measured))));
  const key = $("measured-key").value;
  const traces = runs.filter((run) => key in run.measured).map((run) => ({
    x: run.t, y: run.measured[key], mode: "lines", name: `${run.method}, seed ${run.seed}`,
    line: { color: colour(run.method), width: 1.5, dash: ["solid", "dash", "dot"][seedsOf(runs).indexOf(run.seed) % 3] },
  }));
  draw("measured-plot", traces, { height: 340, showlegend: traces.length > 1, legend: { orientation: "h", y: -0.25 },
    xaxis: { title: { text: "round" } }, yaxis: { title: { text: key } } });
}

function drawPartition() {
  options($("partition-setting"), data.columns);
  const runs = runsOf($("partition-setting").value);
  options($("partition-seed"), seedsOf(runs));
  const run = runs.find((one) => String(one.seed) === $("partition-seed").value);
  const { classes: names = [], counts = [] } = run.partition;
  // A server knows how many rows its sites have, not of which classes.
  const classes = counts.every((held) => held.length === names.length) ? names : ["all classes"];
  draw("partition-plot", [{
    type: "heatmap", y: classes, z: classes.map((_, c) => counts.map((held) => (held[c] ? Math.log10(held[c]) : null))),
    customdata: classes.map((_, c) => counts.map((held) => held[c])), colorscale: "Viridis",
    colorbar: { title: { text: "rows" }, tickvals: [0, 1, 2, 3, 4], ticktext: ["1", "10", "100", "1000", "10⁴"] },
    hovertemplate: "client %{x}<br>%{y}: %{customdata} rows<extra></extra>",
  }], { height: 160 + 22 * Math.min(classes.length, 30), xaxis: { title: { text: `client (of ${counts.length})` } },
    yaxis: { autorange: "reversed", type: "category" } });
}

function drawAnchors() {
  const runs = data.runs.filter((run) => run.anchors.length);
  options($("anchor-run"), runs.map((run) => `${run.method}, ${run.setting}, seed ${run.seed}`));
  const run = runs[Math.max(0, $("anchor-run").selectedIndex)];
  const none = "No run here kept its anchors; algorithm.keep_anchors says in which rounds they are.";
  $("anchor-rounds").replaceChildren(...(run ? run.anchors : []).flatMap(({ round, pictures }) => [
    element("h3", {}, `Round ${round}`),
    element("div", { class: "anchors" }, ...pictures.map((picture) => {
      const name = classNames(run)[picture.class];
      return element("figure", {}, element("img", { src: picture.image, alt: `Anchor of ${name}` }),
        element("figcaption", {}, `${name}, taken for it with ${picture.confidence}`));
    })),
  ]), ...(run ? [] : [element("p", { class: "empty" }, none)]));
}

/** The numbers of an analysis that stand for themselves, as [name, value]. */
function numbersOf(found, path) {
  return Object.entries(found).flatMap(([key, value]) => {
    if (typeof value === "number") return [[`${path} ${key}`.replaceAll("_", " "), value]];
    return value !== null && typeof value === "object" && !Array.isArray(value) ? numbersOf(value, `${path} ${key}`) : [];
  });
}

function drawAnalysis() {
  const runs = data.runs.filter((run) => Object.keys(run.analysis).length);
  $("analysis-none").hidden = runs.length > 0;
  for (const id of ["landscape-plot", "tsne-plot"]) $(id).hidden = true;
  options($("analysis-run"), runs.map((run) => run.directory));
  const run = runs.find((one) => one.directory === $("analysis-run").value);
  if (!run) return;
  options($("analysis-model"), unique(Object.values(run.analysis).flatMap((found) => Object.keys(found))));
  const model = $("analysis-model").value;
  const rows = Object.entries(run.analysis).flatMap(([name, found]) => numbersOf(found[model] ?? {}, name));
  fillTable($("analysis-table"), [element("th", { scope: "col" }, model), element("th", { scope: "col" }, "")],
    rows.map(([name, value]) => [{ text: name }, { text: value.toPrecision(4) }]));
  const plane = run.analysis.landscape?.[model], dots = run.analysis.tsne?.[model];
  if (plane) {
    $("landscape-plot").hidden = false;
    const all = Object.values(run.analysis.landscape).flatMap((one) => one.loss.flat());
    const range = [Math.min(...all), Math.max(...all)];
    const axis = (text) => ({ title: { text }, gridcolor: theme("--line") });
    draw("landscape-plot", [{ type: "surface", x: plane.steps, y: plane.steps, z: plane.loss, cmin: range[0], cmax: range[1],
      colorscale: "Viridis" }], { title: { text: "Training loss around the model" }, height: 480,
      scene: { xaxis: axis("b·v₂"), yaxis: axis("a·v₁"), zaxis: { ...axis("loss"), range } } });
  }
  if (dots) {
    $("tsne-plot").hidden = false;
    const part = (when, x) => [["real", "class", 4, "circle"], ["anchors", "anchor_class", 14, "star"]].map(([key, of, size, symbol]) => ({
      type: "scatter", mode: "markers", x: dots[when][key].map((p) => p[0]), y: dots[when][key].map((p) => p[1]), xaxis: x,
      text: dots[when][of].map((c) => `${classNames(run)[c]}${key === "real" ? "" : " (anchor)"}`), hoverinfo: "text",
      marker: { size, symbol, color: dots[when][of], colorscale: "Rainbow", line: { width: key === "real" ? 0 : 1 } },
    }));
    const bare = { showticklabels: false, zeroline: false };
    draw("tsne-plot", [...part("early", "x"), ...part("late", "x2")], {
      title: { text: `t-SNE of features: round ${dots.early.round}, and round ${dots.late.round}` }, height: 460,
      xaxis: { ...bare, domain: [0, 0.49] }, xaxis2: { ...bare, domain: [0.51, 1] }, yaxis: bare });
  }
}

function drawRuns() {
  const open = new Set([...document.querySelectorAll("#run-list details[open]")].map((one) => one.dataset.run));
  $("run-list").replaceChildren(...data.runs.map((run) => {
    const made = element("details", { "data-run": run.directory },
      element("summary", {}, `${run.method}, ${run.setting}, seed ${run.seed}: ${run.done} of ${run.total} rounds (${run.directory})`),
      element("pre", { tabindex: "0" }, run.experiment), element("pre", { tabindex: "0" }, run.environment));
    made.open = open.has(run.directory);
    return made;
  }));
}

// Sections are drawn when they first come near the window, and again when there are new data.
const sections = {
  overview: drawTable, curves: drawCurves, convergence: drawConvergence, classes: drawClassControls,
  measured: drawMeasured, partition: drawPartition, anchors: drawAnchors, analysis: drawAnalysis,
  runs: drawRuns,
};
const seen = new Set();

function drawAll() {
  const focus = document.activeElement, place = focus?.closest("[id]");
  const buttons = place ? [...place.querySelectorAll("button")] : [], which = buttons.indexOf(focus);
  drawState();
  seen.forEach((id) => sections[id]());
  if (which >= 0) place.querySelectorAll("button")[which]?.focus();  // it was made anew
}

const observer = new IntersectionObserver((entries) => {
  const near = entries.filter((entry) => entry.isIntersecting && !seen.has(entry.target.id));
  near.forEach(({ target }) => setTimeout(() => {  // one by one, each shown before the next is drawn
    seen.add(target.id);
    sections[target.id]();
  }));
}, { rootMargin: "300px" });

$("filter").addEventListener("input", drawTable);
for (const id of ["curve-setting", "curve-what", "smooth", "each"]) $(id).addEventListener("change", drawCurves);
for (const id of ["class-setting", "class-seed"]) $(id).addEventListener("change", drawClassControls);
$("class-method").addEventListener("change", drawClasses);
$("round").addEventListener("input", drawClasses);
for (const id of ["measured-setting", "measured-key"]) $(id).addEventListener("change", drawMeasured);
for (const id of ["partition-setting", "partition-seed"]) $(id).addEventListener("change", drawPartition);
$("anchor-run").addEventListener("change", drawAnchors);
for (const id of ["analysis-run", "analysis-model"]) $(id).addEventListener("change", drawAnalysis);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
addEventListener("beforeprint", () => Object.keys(sections).forEach((id) => {
  seen.add(id);
  sections[id]();
}));
drawState();
Object.keys(sections).forEach((id) => observer.observe($(id)));

// Where a server stands behind the page, it asks for what is new.
async function fetchNew(version) {
  try {
    return await fetch("data.json", version ? { headers: { "If-None-Match": version } } : {});
  } catch {
    $("state").textContent = "The server that follows the runs has stopped; this is what it last showed.";
    return null;
  }
}

if (document.body.hasAttribute("data-live")) {
  let version = null;
  setInterval(async () => {
    const answer = await fetchNew(version);
    if (!answer) return;
    if (answer.status === 200) {
      version = answer.headers.get("ETag");
      data = await answer.json();
      drawAll();
    } else drawState();
  }, 2000);
}
