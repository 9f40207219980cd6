// Draws the sections, reacts to controls, and asks a live page's server for new data.

const sections = {
  overview: drawOverview, curves: drawCurves, sweeps: drawSweeps, convergence: drawConvergence,
  classes: drawClassControls, measured: drawMeasured, partition: drawPartition, personal: drawPersonal,
  privacy: drawPrivacy, anchors: drawAnchors, analysis: drawAnalyses, runs: drawRuns,
};
const WITHOUT_PLOTS = ["overview", "privacy", "anchors", "runs"];
const drawn = new Set();  // a section is drawn when it first comes near the window

async function drawSection(id) {
  if (!WITHOUT_PLOTS.includes(id) && !window.Plotly) await loadPlotly();
  drawn.add(id);
  sections[id]();
}

/** Draw again what is drawn, and keep the focus, whose button is replaced. */
function redraw() {
  const focus = document.activeElement, group = focus?.closest("[id]");
  const buttons = group ? [...group.querySelectorAll("button")] : [], index = buttons.indexOf(focus);
  drawState();
  drawn.forEach((id) => sections[id]());
  if (index >= 0) group.querySelectorAll("button")[index]?.focus();
}

const observer = new IntersectionObserver((entries) => {
  const near = entries.filter((entry) => entry.isIntersecting && !drawn.has(entry.target.id));
  near.forEach(({ target }) => setTimeout(() => drawSection(target.id)));  // each is shown before the next is drawn
}, { rootMargin: "300px" });

function onEvent(event, redrawSection, ...ids) {
  for (const id of ids) $(id).addEventListener(event, redrawSection);
}

onEvent("input", drawOverview, "filter");
onEvent("change", drawCurves, "curve-setting", "curve-metric", "smooth", "each");
onEvent("change", drawSweeps, "sweep-key", "sweep-setting", "sweep-score");
onEvent("change", drawConvergence, "convergence-setting");
onEvent("change", drawClassControls, "class-setting", "class-seed");
onEvent("change", drawClasses, "class-method");
onEvent("input", drawClasses, "round");
onEvent("change", drawMeasured, "measured-setting", "measured-key");
onEvent("change", drawPartition, "partition-setting", "partition-seed");
onEvent("change", drawPersonal, "personal-setting", "personal-kind");
onEvent("change", drawAnchors, "anchor-run");
onEvent("change", drawAnalyses, "analysis-run", "analysis-model");
addEventListener("resize", () => document.querySelectorAll(".scroll").forEach(hintScroll));
addEventListener("beforeprint", () => Object.keys(sections).forEach(drawSection));
for (const query of ["(prefers-color-scheme: dark)", "(max-width: 600px)"]) matchMedia(query).addEventListener("change", redraw);
/** Show what the address asks for. */
function followAddress() {
  const section = readView();
  redraw();
  $(section)?.scrollIntoView();
}

const start = readView();
drawState();
Object.keys(sections).forEach((id) => observer.observe($(id)));
if (location.hash.includes("?")) $(start)?.scrollIntoView();
addEventListener("hashchange", () => location.hash.includes("?") && followAddress());
Object.keys(sections).forEach(offerLink);

async function fetchData(version) {
  try {
    return await fetch("data.json", version ? { headers: { "If-None-Match": version } } : {});
  } catch {
    $("state").textContent = "The server of this page has stopped; these are its last data.";
    return null;
  }
}

if (document.body.hasAttribute("data-live")) {
  let version = null;
  setInterval(async () => {
    const answer = await fetchData(version);
    if (!answer) return;
    if (answer.status === 200) {
      version = answer.headers.get("ETag");
      data = await answer.json();
      redraw();
    } else drawState();
  }, 2000);
}
