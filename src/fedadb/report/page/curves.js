// Curves over rounds: accuracy, loss, and whatever else algorithms measure.

const hidden = { methods: new Set(), seeds: new Set() };

/** The mean over seeds at each round, and half the width of its 95 % interval: t · s / √n. */
function meanAndInterval(curves) {
  const n = curves.length, mean = [], half = [];
  for (let i = 0; i < Math.min(...curves.map((curve) => curve.length)); i++) {
    const values = curves.map((curve) => curve[i]);
    if (values.includes(null)) {  // a loss that was not finite
      mean.push(null);
      half.push(null);
      continue;
    }
    const m = values.reduce((a, b) => a + b, 0) / n;
    const squares = values.reduce((sum, v) => sum + (v - m) ** 2, 0);
    mean.push(m);
    half.push(n > 1 ? data.t_quantiles[n] * Math.sqrt(squares / (n - 1) / n) : 0);
  }
  return { mean, half };
}

/** Buttons that hide and show methods or seeds. */
function fillToggles(group, values, off, content) {
  group.replaceChildren(...values.map((value) => element("button", {
    type: "button", "aria-pressed": String(!off.has(value)),
    onclick: () => {
      off.has(value) ? off.delete(value) : off.add(value);
      drawCurves();
      [...group.children][values.indexOf(value)].focus();
    },
  }, ...content(value))));
}

function drawCurves() {
  fillSelect($("curve-setting"), data.settings);
  const runs = runsIn($("curve-setting").value), metric = $("curve-metric").value;
  const key = $("smooth").checked ? `smooth ${metric}` : metric;
  const lines = methodsOf(runs).filter((method) => !hidden.methods.has(method)).flatMap((method) => {
    const seeds = runs.filter((run) => run.method === method && !hidden.seeds.has(run.seed));
    if (!seeds.length) return [];
    if ($("each").checked) {
      return seeds.map((run) => ({ method, x: run.t, y: run[key], name: `${method}, seed ${run.seed}` }));
    }
    const { mean, half } = meanAndInterval(seeds.map((run) => run[key]));
    const band = seeds.length > 1 ? half : null;
    return [{ method, x: seeds[0].t.slice(0, mean.length), y: mean, band, name: method }];
  });
  const styles = lineStyles(lines);
  const bands = lines.filter((line) => line.band).map(({ method, x, y, band }) => ({
    x: [...x, ...x.toReversed()],
    y: [...y.map((m, i) => m + band[i]), ...y.map((m, i) => m - band[i]).reverse()],
    fill: "toself", mode: "lines", hoverinfo: "skip", line: { width: 0 }, fillcolor: `${colour(method)}26`,
  }));
  const style = (method) => Math.max(0, ...lines.map((line, i) => (line.method === method ? styles[i] : 0)));
  fillToggles($("methods"), methodsOf(runs), hidden.methods, (method) => [sample(method, style(method)), method]);
  fillToggles($("seeds"), seedsOf(runs), hidden.seeds, (seed) => [`seed ${seed}`]);
  const percent = metric === "accuracy" ? { range: [0, 100] } : {};
  draw("curve-plot", [...bands, ...lineTraces(lines, styles, 2)], {
    height: 440, hovermode: "x unified", xaxis: { title: { text: "round" }, whole: true },
    yaxis: { title: { text: metric === "accuracy" ? "test accuracy (%)" : "test loss" }, ...percent },
  });
}

function lineTraces(lines, styles, width) {
  return lines.map(({ method, x, y, name }, i) => (
    { x, y, name, mode: "lines", line: { color: colour(method), width, dash: DASHES[styles[i]] } }));
}

function drawMeasured() {
  fillSelect($("measured-setting"), data.settings);
  const runs = runsIn($("measured-setting").value);
  const quantities = data.quantities.filter(({ key }) => runs.some((run) => key in run.measured));
  fillSelect($("measured-key"), quantities.map(({ key, label }) => [key, label]));
  $("measured-none").hidden = quantities.length > 0;
  for (const id of ["measured-legend", "measured-plot", "measured-hint"]) $(id).hidden = !quantities.length;
  if (!quantities.length) return;
  const { key, label } = quantities.find((quantity) => quantity.key === $("measured-key").value);
  const measuring = runs.filter((run) => key in run.measured);
  const lines = methodsOf(measuring).flatMap((method) => measuring.filter((run) => run.method === method)
    .map((run) => ({ method, x: run.t, y: run.measured[key], name: `${method}, seed ${run.seed}` })));
  const styles = lineStyles(lines);
  $("measured-legend").replaceChildren(...methodsOf(measuring).map((method) =>
    element("li", {}, sample(method, styles[lines.findIndex((line) => line.method === method)]), method)));
  const constant = unique(lines.flatMap((line) => line.y).filter((v) => v !== null)).length === 1;
  const sparse = { mode: "lines+markers", connectgaps: true };  // what only some rounds have
  const traces = lineTraces(lines, styles, 1.5).map((trace) => (trace.y.includes(null) ? { ...trace, ...sparse } : trace));
  draw("measured-plot", traces, {
    height: 340, xaxis: { title: { text: "round" }, whole: true },
    yaxis: { title: { text: label }, rangemode: constant ? "tozero" : "normal" },
  });
}
