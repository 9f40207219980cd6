// Accuracy over the values of one setting: a line per method shows how much it depends on tuning.

function drawSweeps() {
  $("sweep-none").hidden = data.sweeps.length > 0;
  $("sweep-shown").hidden = !data.sweeps.length;
  fillSelect($("sweep-key"), data.sweeps.map(({ key, label }) => [key, label]));
  const sweep = data.sweeps.find(({ key }) => key === $("sweep-key").value);
  fillSelect($("sweep-setting"), sweep ? sweep.settings : []);
  if (!sweep) return;
  const score = $("sweep-score").value;
  const lines = sweep.lines.filter(({ setting }) => setting === $("sweep-setting").value)
    .map((line) => ({ ...line, colour: readable(line.colour), y: line.points.map((point) => point[score][0]) }));
  const styles = lineStyles(lines), markers = markersOf(lines);
  $("sweep-legend").replaceChildren(...lines.map((line, i) => markerEntry(line.colour, styles[i], markers[i][1], line.name)));
  const ring = lines.flatMap(({ points, y }) => points.map((point, i) => ({ ...point, y: y[i] })).filter((point) => point.paper));
  const rings = {
    mode: "markers", name: "paper", x: ring.map(({ value }) => value), y: ring.map(({ y }) => y), hoverinfo: "skip",
    marker: { symbol: "circle-open", size: 17, color: theme("--ink"), line: { width: 1.5 } },
  };
  draw("sweep-plot", [...lines.map((line, i) => sweepTrace(sweep, line, score, styles[i], markers[i][0])), rings], {
    height: 400, hovermode: "closest", xaxis: { title: { text: sweep.label }, ...sweepAxis(sweep, lines) },
    yaxis: { title: { text: `test accuracy (%), ${$("sweep-score").selectedOptions[0].text}` }, range: [0, 100] },
  });
  const unfinished = lines.some(({ points }) => points.some((point) => !point.finished));
  $("sweep-hint").textContent = "Points are means over seeds, bars their standard deviation."
    + " Best − worst: the points that a method loses at its worst value; the fewer, the less it depends on the setting."
    + (unfinished ? " A hollow point or … has an unfinished run." : "") + (ring.length ? " A ring marks the paper's value, or our default where it states none." : "");
  fillSweepTable(sweep, lines, score);
}

const valuesOf = (lines) => unique(lines.flatMap(({ points }) => points.map((point) => point.value))).sort((a, b) => a - b);

/** An axis with ticks at the values themselves, if all labels have room. */
function sweepAxis({ wide }, lines) {
  const values = valuesOf(lines), at = wide ? values.map(Math.log10) : values;
  const pixels = ($("sweep-plot").clientWidth - 80) / 1.12 / (at.at(-1) - at[0]);
  const label = (value) => 12 + 7 * String(value).length;  // its pixels
  if (at.every((x, i) => !i || pixels * (x - at[i - 1]) > label(values[i]))) {
    return { type: wide ? "log" : "linear", tickformat: "~g", tickmode: "array", tickvals: values };
  }
  if (!wide) return { type: "linear", tickformat: "~g", tickmode: "auto" };
  // Ticks at 1, 2, 5, 10, …, or at powers of ten only.
  return { type: "log", tickformat: "~g", tickmode: "linear", dtick: pixels * Math.log10(2) > label(0.0001) ? "D2" : 1 };
}

function sweepTrace(sweep, { name, colour: color, points, y }, score, style, symbol) {
  return {
    name, x: points.map((point) => point.value), y, mode: "lines+markers", line: { color, width: 2, dash: DASHES[style] },
    marker: { size: 9, color, symbol: points.map((point) => (point.finished ? symbol : `${symbol}-open`)) },
    error_y: { array: points.map((point) => point[score][1]), color, thickness: 1.2, width: 4 },
    customdata: points.map((point) => `${sweepText(point, score)} %<br>${point.seeds} seed${point.seeds === 1 ? "" : "s"}`
      + (point.finished ? "" : `, unfinished: ${point.done} rounds`)),
    hovertemplate: `%{fullData.name}<br>${sweep.key} = %{x}<br>%{customdata}<extra></extra>`,
  };
}

function sweepText(point, score) {
  const [mean, deviation] = point[score];
  return point.seeds > 1 ? `${mean.toFixed(2)} ± ${deviation.toFixed(2)}` : mean.toFixed(2);
}

/** One row per line, or per point if lines have few values in common. The best of a line is bold, if it is finished. */
function fillSweepTable(sweep, lines, score) {
  const values = valuesOf(lines);
  const cells = lines.flatMap(({ name, points }) => {
    const best = Math.max(...points.filter((point) => point.finished).map((point) => point[score][0]));
    return points.map((point) => ({
      name, value: point.value, text: `${sweepText(point, score)}${point.finished ? "" : " …"}`,
      best: point.finished && point[score][0] === best,
    }));
  });
  if (cells.length <= 0.5 * values.length * lines.length) {
    return fillTable($("sweep-table"), ["method", sweep.key, "accuracy (%)"].map(columnHead),
      cells.map((cell) => [{ text: cell.name }, { text: String(cell.value) }, cell]));
  }
  const range = ({ points }) => {
    const scores = points.filter((point) => point.finished).map((point) => point[score][0]);
    return { text: scores.length > 1 ? (Math.max(...scores) - Math.min(...scores)).toFixed(2) : "" };
  };
  const cellAt = (name, value) => cells.find((cell) => cell.name === name && cell.value === value) ?? { text: "" };
  fillTable($("sweep-table"), [sweep.key, ...values.map(String), "best − worst"].map(columnHead),
    lines.map((line) => [{ text: line.name }, ...values.map((value) => cellAt(line.name, value)), range(line)]));
}
