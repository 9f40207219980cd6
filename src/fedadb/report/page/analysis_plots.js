// Plots of the analyses hessian, pca and psnr.

/** The colour of a model, whose title begins with its method; if that has none, another one. */
function modelColour(title, i) {
  const others = Object.values(data.colours);
  return readable(data.colours[title.split(", seed ")[0]] ?? others[i % others.length]);
}

/** Eigenvalues of all models that were analysed together; the chosen one is thicker. */
function drawSpectrum(run, model) {
  const lines = Object.entries(run.analysis.hessian)
    .map(([name, { eigenvalues }], i) => ({ name, y: eigenvalues, method: name.split(", seed ")[0], color: modelColour(name, i) }));
  const styles = lineStyles(lines), markers = markersOf(lines);
  $("spectrum-legend").replaceChildren(...lines.map(({ name, color }, i) => {
    const { lambda1, anisotropy } = run.analysis.hessian[name];
    return markerEntry(color, styles[i], markers[i][1], `${name}: λ₁ ${shortNumber(lambda1)}, λ₁/λ₅ ${shortNumber(anisotropy)}`);
  }));
  draw("spectrum-plot", lines.map(({ name, y, color }, i) => ({
    name, x: y.map((_, k) => k + 1), y, mode: "lines+markers", marker: { size: 9, color, symbol: markers[i][0] },
    line: { color, width: name === model ? 3 : 1.5, dash: DASHES[styles[i]] },
    hovertemplate: "%{fullData.name}<br>λ<sub>%{x}</sub> = %{y:.4g}<extra></extra>",
  })), {
    height: 340, xaxis: { title: { text: "eigenvalue, by absolute value" }, whole: true },
    yaxis: { title: { text: "curvature" }, rangemode: "tozero", zeroline: true },
  });
}

const shortNumber = (value) => (value == null ? "--" : Number(value.toPrecision(3)).toString());

/** The early round beside the late one, or above it where there is little room. */
const EARLY_AND_LATE = ["early", "late"];
const halves = (gap) => (narrow() ? [[0, 1], [0, 1]] : [[0, 0.5 - gap], [0.5 + gap, 1]]);
const storeys = (gap) => (narrow() ? [[0.5 + gap, 1], [0, 0.5 - gap]] : [[0, 1], [0, 1]]);

function drawCorrelations(run, model) {
  const rounds = run.analysis.pca[model], names = classNames(run);
  drawPearson(rounds, names);
  drawComponents(rounds, names);
}

/** Pearson's correlation of each anchor with each centre. */
function drawPearson(rounds, names) {
  const maps = EARLY_AND_LATE.map((when, i) => {
    const { pearson_3: z, anchor_class: of } = rounds[when];
    const several = of.length > unique(of).length;
    return {
      type: "heatmap", xaxis: `x${i ? 2 : ""}`, yaxis: `y${i ? 2 : ""}`, z, zmin: -1, zmax: 1,
      colorscale: "RdBu", showscale: i === 0, colorbar: colourbar("correlation"),
      x: names.map((_, c) => c), y: of.map((_, a) => a),
      customdata: z.map((row, a) => row.map((_, c) => `anchor of ${names[of[a]]}${several ? ` (number ${a + 1})` : ""}<br>centre of ${names[c]}`)),
      hovertemplate: "%{customdata}<br>correlation %{z:.2f}<extra></extra>",
    };
  });
  const ticks = (classes) => {  // one per class; of many, some
    const first = classes.map((c, i) => [c, i]).filter(([c], i) => classes.indexOf(c) === i);
    const shown = first.filter((_, i) => i % Math.ceil(first.length / 20) === 0);
    return { tickvals: shown.map(([, i]) => i), ticktext: shown.map(([c]) => names[c]) };
  };
  const [wide, high] = [halves(0.02), storeys(0.11)];
  const bare = { showgrid: false, zeroline: false, automargin: true };
  const xaxis = (i) => ({ ...bare, ...ticks(names.map((_, c) => c)), domain: wide[i], anchor: `y${i ? 2 : ""}`, title: { text: "centre of class" } });
  const yaxis = (i) => ({ ...bare, ...ticks(rounds[EARLY_AND_LATE[i]].anchor_class), domain: high[i], anchor: `x${i ? 2 : ""}`,
    autorange: "reversed", title: { text: narrow() || !i ? "anchor" : "" }, showticklabels: narrow() || !i });
  draw("pearson-plot", maps, {
    height: narrow() ? 860 : 480, margin: { l: 50, r: 10, t: narrow() ? 110 : 40, b: 50 }, xaxis: xaxis(0), xaxis2: xaxis(1), yaxis: yaxis(0), yaxis2: yaxis(1),
    annotations: roundTitles(rounds, wide, high),
  });
  $("pearson-means").textContent = EARLY_AND_LATE.map((when) => {
    const { round, diagonal_3: own, off_diagonal_3: others } = rounds[when];
    return `Round ${round}: mean correlation with the own class ${shortNumber(own)}, with others ${shortNumber(others)}.`;
  }).join(" ");
}

/** A title above each of the two rounds. */
function roundTitles(rounds, wide, high) {
  return EARLY_AND_LATE.map((when, i) => ({
    text: `round ${rounds[when].round}`, showarrow: false, xref: "paper", yref: "paper", xanchor: "center", yanchor: "bottom",
    x: (wide[i][0] + wide[i][1]) / 2, y: high[i][1], font: { size: 14 },
  }));
}

/** Anchors and centres in space, in the first three principal components. */
function drawComponents(rounds, names) {
  const traces = EARLY_AND_LATE.flatMap((when, i) => {
    const { centres, anchors, anchor_class: of } = rounds[when];
    const points = (at, classes, symbol, size, what) => ({
      type: "scatter3d", mode: "markers", scene: `scene${i ? 2 : ""}`, name: what, hoverinfo: "text",
      x: at.map((p) => p[0]), y: at.map((p) => p[1]), z: at.map((p) => p[2]), text: classes.map((c) => `${what} of ${names[c]}`),
      marker: { size, symbol, color: classes, cmin: 0, cmax: names.length - 1, colorscale: "Rainbow", line: { width: 1, color: theme("--ink") } },
    });
    return [points(centres, centres.map((_, c) => c), "circle", 5, "centre"), points(anchors, of, "diamond", 7, "anchor")];
  });
  const [wide, high] = [halves(0.01), storeys(0.03)];
  const axis = (text) => ({ title: { text }, gridcolor: theme("--line"), zerolinecolor: theme("--line"), showticklabels: false });
  const scene = (i) => ({ domain: { x: wide[i], y: high[i] }, xaxis: axis("1"), yaxis: axis("2"), zaxis: axis("3") });
  draw("components-plot", traces, {
    height: narrow() ? 760 : 460, margin: { l: 0, r: 0, t: 30, b: 0 }, scene: scene(0), scene2: scene(1),
    annotations: roundTitles(rounds, wide, high),
  });
}

// [key, name, marker, colour] of what is compared with the training images of a class.
const SIMILARITIES = [
  ["nearest", "anchor to its nearest image", 0, "#d62728"], ["mean", "anchor to all images, mean", 1, "#4e79a7"],
  ["class_mean", "anchor to the mean image", 2, "#59a14f"], ["real_nearest", "real image to its nearest one, median", 3, "#f28e2b"],
  ["noise", "the noise it starts from to its nearest image", 4, "#9c755f"],
];

/** The peak signal-to-noise ratio of each anchor, and the picture that the analysis drew. */
function drawSimilarity(run, model) {
  const { by_anchor: anchors, anchor_class: of, round } = run.analysis.psnr[model], names = classNames(run);
  const label = (i) => (of.length > unique(of).length ? `${names[of[i]]} (${of.slice(0, i + 1).filter((c) => c === of[i]).length})` : names[of[i]]);
  $("psnr-legend").replaceChildren(...SIMILARITIES.map(([, name, marker, color]) =>
    element("li", {}, element("span", { style: `color: ${color}` }, `${MARKERS[marker][1]} `), name)));
  draw("psnr-plot", SIMILARITIES.map(([key, name, marker, color]) => ({
    name, mode: "markers", x: anchors.map((_, i) => label(i)), y: anchors.map((one) => one[key]),
    marker: { size: 10, color, symbol: MARKERS[marker][0] }, hovertemplate: "%{x}<br>%{fullData.name}: %{y:.1f} dB<extra></extra>",
  })).reverse(), {  // the first one is the most important, and above all others
    height: 380, xaxis: { type: "category", title: { text: `anchor of round ${round}` } },
    yaxis: { title: { text: "PSNR (dB)" }, rangemode: "tozero" },
  });
  const copies = anchors.flatMap((one, i) => (one.nearest === null ? [label(i)] : []));  // JSON has no infinity
  $("psnr-copies").textContent = copies.length ? `Equal to a training image, at infinite PSNR: ${copies.join(", ")}.` : "";
  const picture = run.pictures.psnr;
  $("psnr-picture").hidden = !picture;
  $("psnr-picture").replaceChildren(...(picture ? [element("img", { src: picture, alt: `Each anchor of round ${round} above its nearest training image` })] : []));
  $("psnr-caption").textContent = picture ? "Each anchor above its nearest training image."
    : `Each anchor above its nearest training image: ${run.directory}/analysis/psnr.png, which is missing or too large for this page.`;
}
