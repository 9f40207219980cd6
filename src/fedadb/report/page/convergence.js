// Rounds to the target accuracies: the table, and bars per setting.

function drawConvergence() {
  fillPlainTable("convergence-table", data.tables.convergence);
  fillNotes("convergence-notes", data.tables.convergence.notes);
  fillSelect($("convergence-setting"), data.settings);
  const { targets, rounds, running } = data.convergence[$("convergence-setting").value];
  $("convergence-none").hidden = targets.length > 0;
  $("convergence-plot").parentElement.hidden = !targets.length;
  if (!targets.length) return;
  const methods = data.methods.filter((method) => method in rounds), width = Math.min(0.8 / methods.length, 0.2);
  const most = Math.max(1, ...methods.flatMap((method) => rounds[method]));
  const bars = methods.map((method, j) => ({
    type: "bar", name: method, width, y: rounds[method], marker: { color: colour(method) },
    x: targets.map((_, k) => k + (j - (methods.length - 1) / 2) * width),
    text: targets.map((target) => `to ${target} %`), textposition: "none",
    hovertemplate: "%{fullData.name}<br>%{text}: %{y} rounds<extra></extra>",
  }));
  const missed = bars.flatMap(({ name, x, y }) => x.filter((_, k) => y[k] === null).map((at) => ({ name, at })));
  const marks = {
    mode: "text", name: "not reached", x: missed.map(({ at }) => at), y: missed.map(() => 1.07 * most),
    text: missed.map(({ name }) => (running.includes(name) ? "…" : "×")),
    textfont: { size: 20, color: missed.map(({ name }) => colour(name)) },
    customdata: missed.map(({ name }) => `${name}: not reached${running.includes(name) ? " yet" : ""}`),
    hovertemplate: "%{customdata}<extra></extra>",
  };
  $("convergence-legend").replaceChildren(...methods.map((method) => element("li", {}, sample(method, 0), method)));
  draw("convergence-plot", [...bars, marks], {
    height: 340, hovermode: "closest",
    xaxis: { tickvals: targets.map((_, k) => k), ticktext: targets.map((target) => `to ${target} %`), range: [-0.5, targets.length - 0.5], showgrid: false, zeroline: false },
    yaxis: { title: { text: "rounds" }, range: [0, 1.15 * most], ...(most <= 10 ? { dtick: 1 } : {}) },
  });
}
