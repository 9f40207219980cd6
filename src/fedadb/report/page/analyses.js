// The results of `fedadb analyse`.

/** The single numbers of an analysis, as [name, value]; lists are for its figures. */
function singleNumbers(results, path) {
  return Object.entries(results).flatMap(([key, value]) => {
    if (typeof value === "number") return [[`${path} ${key}`.replaceAll("_", " "), value]];
    return value !== null && typeof value === "object" && !Array.isArray(value) ? singleNumbers(value, `${path} ${key}`) : [];
  });
}

// How each analysis is drawn, and where; those of anchors need a run that has some.
const ANALYSIS_PLOTS = {
  hessian: { box: "spectrum", draw: (run, model) => drawSpectrum(run, model) },
  landscape: { box: "landscape", draw: (run, model) => drawLandscape(run, model) },
  tsne: { box: "embedding", draw: (run, model) => drawEmbedding(run, model), ofAnchors: true },
  pca: { box: "correlations", draw: (run, model) => drawCorrelations(run, model), ofAnchors: true },
  psnr: { box: "similarity", draw: (run, model) => drawSimilarity(run, model), ofAnchors: true },
};

function drawAnalyses() {
  const count = (run) => Object.keys(run.analysis).length;
  const runs = data.runs.filter(count).toSorted((a, b) => count(b) - count(a));
  $("analysis-none").hidden = runs.length > 0;
  $("analysis-missing").hidden = true;
  $("analysis-table").parentElement.hidden = !runs.length;
  for (const { box } of Object.values(ANALYSIS_PLOTS)) $(box).hidden = true;
  fillSelect($("analysis-run"), runs.map((run) => [run.directory, `${runLabel(run)} (${run.directory})`]));
  const run = runs.find((one) => one.directory === $("analysis-run").value);
  fillSelect($("analysis-model"), run ? unique(Object.values(run.analysis).flatMap((results) => Object.keys(results))) : []);
  if (!run) return;
  const model = $("analysis-model").value;
  const rows = Object.entries(run.analysis).flatMap(([name, results]) => singleNumbers(results[model] ?? {}, name));
  fillTable($("analysis-table"), [columnHead(model), columnHead("")],
    rows.map(([name, value]) => [{ text: name }, { text: Number.isInteger(value) ? String(value) : value.toPrecision(4) }]));
  drawMissing(run);
  for (const [name, { box, draw: drawPlot }] of Object.entries(ANALYSIS_PLOTS)) {
    if (!run.analysis[name]?.[model]) continue;
    $(box).hidden = false;
    drawPlot(run, model);
  }
}

/** Name the command that computes what is not there. */
function drawMissing(run) {
  const missing = Object.keys(ANALYSIS_PLOTS)
    .filter((name) => !run.analysis[name] && (run.anchors.length || !ANALYSIS_PLOTS[name].ofAnchors));
  $("analysis-missing").hidden = !missing.length;
  $("analysis-missing").replaceChildren(`This run has no ${missing.join(", ")}: `,
    element("code", {}, `fedadb analyse ${run.directory} ${missing.join(" ")}`), " does that.");
}

function drawLandscape(run, model) {
  const { steps, loss } = run.analysis.landscape[model];
  const all = Object.values(run.analysis.landscape).flatMap((one) => one.loss.flat());
  const range = [Math.min(...all), Math.max(...all)];
  const axis = (text) => ({ title: { text }, gridcolor: theme("--line") });
  draw("landscape-plot", [{
    type: "surface", x: steps, y: steps, z: loss, cmin: range[0], cmax: range[1], colorscale: "Viridis",
    colorbar: colourbar("loss"),
  }], { ...plotTitle("Training loss around the model"), height: 480,
    scene: { xaxis: axis("b·v₂"), yaxis: axis("a·v₁"), zaxis: { ...axis("loss"), range } } });
}

function drawEmbedding(run, model) {
  const rounds = run.analysis.tsne[model];
  const points = (when, xaxis) => [["real", "class", 4, "circle"], ["anchors", "anchor_class", 14, "star"]].map(
    ([key, classKey, size, symbol]) => ({
      type: "scatter", mode: "markers", xaxis, x: rounds[when][key].map((p) => p[0]), y: rounds[when][key].map((p) => p[1]),
      text: rounds[when][classKey].map((c) => `${classNames(run)[c]}${key === "real" ? "" : " (anchor)"}`), hoverinfo: "text",
      marker: { size, symbol, color: rounds[when][classKey], colorscale: "Rainbow", line: { width: key === "real" ? 0 : 1 } },
    }));
  const bare = { showticklabels: false, showgrid: false, zeroline: false };
  draw("tsne-plot", [...points("early", "x"), ...points("late", "x2")], {
    ...plotTitle(`t-SNE of features in rounds ${rounds.early.round} (left) and ${rounds.late.round} (right)`), height: 460,
    xaxis: { ...bare, domain: [0, 0.49] }, xaxis2: { ...bare, domain: [0.51, 1] }, yaxis: bare });
}
