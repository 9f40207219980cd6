// The clients' personal models: their accuracies in order, one line per run.

function drawPersonal() {
  const table = data.tables.personal;
  $("personal-none").hidden = Boolean(table);
  for (const id of ["personal-table", "personal-plot"]) $(id).parentElement.hidden = !table;
  const evaluated = data.runs.filter((run) => Object.keys(run.personal).length);
  fillSelect($("personal-setting"), data.settings.filter((setting) => evaluated.some((run) => run.setting === setting)));
  const runs = evaluated.filter((run) => run.setting === $("personal-setting").value);
  fillSelect($("personal-kind"), data.personal_kinds.filter(([kind]) => runs.some((run) => kind in run.personal)));
  if (!table) return;
  fillPlainTable("personal-table", table);
  fillNotes("personal-notes", table.notes);
  const kind = $("personal-kind").value, shown = runs.filter((run) => kind in run.personal);
  $("personal-plot").parentElement.hidden = !shown.length;
  if (!shown.length) return;
  const lines = methodsOf(shown).flatMap((method) => shown.filter((run) => run.method === method)
    .map((run) => ({ method, ...run.personal[kind], name: `${method}, seed ${run.seed}` })));
  const styles = lineStyles(lines);
  $("personal-legend").replaceChildren(...methodsOf(shown).map((method) =>
    element("li", {}, sample(method, styles[lines.findIndex((line) => line.method === method)]), method)));
  draw("personal-plot", lineTraces(lines, styles, 1.5), {
    height: 340, xaxis: { title: { text: "clients, from the worst (%)" }, range: [0, 100] },
    yaxis: { title: { text: "accuracy of the client (%)" }, range: [-2, 102] },
  });
}
