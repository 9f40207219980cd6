// Heat maps of classes: their accuracy, and how many rows of them clients hold.

const PERCENT_SCALE = { zmin: 0, zmax: 100, colorscale: "Viridis" };

function classRuns() {
  const runs = runsIn($("class-setting").value).filter((run) => String(run.seed) === $("class-seed").value);
  return runs.toSorted((a, b) => data.methods.indexOf(a.method) - data.methods.indexOf(b.method));
}

function drawClassControls() {
  fillSelect($("class-setting"), data.settings);
  fillSelect($("class-seed"), seedsOf(runsIn($("class-setting").value)));
  const runs = classRuns(), slider = $("round");
  fillSelect($("class-method"), runs.map((run) => run.method));
  const longest = Math.max(...runs.map((run) => run.class_t.length));
  const atEnd = slider.value === slider.max;
  slider.max = longest - 1;
  slider.value = takeWanted(slider) ?? (atEnd ? slider.max : slider.value);
  drawClasses();
}

function drawClasses() {
  const runs = classRuns(), i = Number($("round").value);
  const t = runs.find((run) => run.class_t.length > i).class_t[i];
  $("round-number").textContent = t;
  const names = classNames(runs[0]);
  const percent = (thousandths) => thousandths.map((a) => (a === null ? null : a / 10));
  const scale = () => ({ ...PERCENT_SCALE, colorbar: colourbar("accuracy (%)") });
  const height = (rows, each) => (narrow() ? 230 : 160) + each * rows;
  draw("round-plot", [{
    type: "heatmap", x: names, y: runs.map((run) => run.method), ...scale(),
    z: runs.map((run) => percent(run.class_accuracy[i] ?? names.map(() => null))),  // that run has not reached this round
    hovertemplate: "%{y}<br>%{x}: %{z:.1f} %<extra></extra>",
  }], { ...plotTitle(`All methods in round ${t}`), height: height(runs.length, 28), xaxis: { type: "category" },
    yaxis: { autorange: "reversed", type: "category" } });
  const run = runs.find((one) => one.method === $("class-method").value) ?? runs[0];
  draw("class-plot", [{
    type: "heatmap", x: run.class_t, y: names, ...scale(),
    z: names.map((_, c) => percent(run.class_accuracy.map((row) => row[c]))),
    hovertemplate: "round %{x}<br>%{y}: %{z:.1f} %<extra></extra>",
  }], { ...plotTitle(`${run.method} over rounds`), height: height(Math.min(names.length, 30), 22),
    xaxis: { title: { text: "round" }, whole: true }, yaxis: { autorange: "reversed", type: "category" },
    shapes: [{ type: "line", x0: t, x1: t, y0: 0, y1: 1, yref: "paper", line: { color: "#00c2ff", width: 2 } }] });
}

function drawPartition() {
  fillSelect($("partition-setting"), data.settings);
  const runs = runsIn($("partition-setting").value);
  fillSelect($("partition-seed"), seedsOf(runs));
  const run = runs.find((one) => String(one.seed) === $("partition-seed").value);
  const { classes: names = [], counts = [] } = run.partition;
  $("partition-none").hidden = counts.length > 0;
  $("partition-plot").hidden = !counts.length;
  if (!counts.length) return;
  // The server of a federation knows how many rows its sites have, but not of which classes.
  const classes = counts.every((client) => client.length === names.length) ? names : ["all classes"];
  draw("partition-plot", [{
    type: "heatmap", y: classes, z: classes.map((_, c) => counts.map((client) => (client[c] ? Math.log10(client[c]) : null))),
    customdata: classes.map((_, c) => counts.map((client) => client[c])), colorscale: "Viridis",
    colorbar: colourbar("rows", { tickvals: [0, 1, 2, 3, 4], ticktext: ["1", "10", "100", "1000", "10⁴"] }),
    hovertemplate: "client %{x}<br>%{y}: %{customdata} rows<extra></extra>",
  }], { height: 160 + 22 * Math.min(classes.length, 30),
    xaxis: { title: { text: `client (of ${counts.length})` }, whole: true, showgrid: false },
    yaxis: { autorange: "reversed", type: "category", showgrid: false } });
}
