// What a reader can take along: a table as CSV, a figure as SVG, a link to the view.

/** Put a text on the clipboard; a page from a file may have to select it first. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = element("textarea", { "aria-hidden": "true", style: "position: fixed; opacity: 0" });
    box.value = text;
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}

/** A button that carries out an action, says for two seconds that it is done, and tells screen readers. */
function actionButton(label, name, done, action) {
  const button = element("button", { type: "button", class: "action", "aria-label": `${label}: ${name}`, onclick: async () => {
    await action();
    button.textContent = done;
    $("announcement").textContent = `${name}: ${done}`;
    setTimeout(() => { button.textContent = label; }, 2000);
  } }, label);
  return button;
}

/** A field of a CSV file, quoted if it has to be. */
const field = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** The table as it is shown; what the paper states is in brackets. */
function shownTable(table) {
  const text = (cell) => [...cell.childNodes].map((node) => (node.nodeName === "SMALL" ? ` (${node.textContent})` : node.textContent)).join("");
  return [...table.rows].map((row) => [...row.cells].map((cell) => field(text(cell))).join(",")).join("\n") + "\n";
}

/** Add a button below a table: the CSV of the report's file, or of a table without one what is shown. */
function offerCsv(table) {
  const box = table.parentElement, name = box.getAttribute("aria-label");
  if (box.nextElementSibling?.classList.contains("actions")) return;
  box.after(element("p", { class: "actions" }, actionButton("Copy as CSV", name, "Copied",
    () => copyText(table.csv ?? shownTable(table)))));
}

/** Add a button below a plot that saves it as it is, on the page's background. */
function offerSvg(plot, name) {
  if (plot.nextElementSibling?.classList.contains("actions")) return;
  plot.after(element("p", { class: "actions" }, actionButton("Save as SVG", name, "Saved", () => {
    const { clientWidth: width, clientHeight: height } = plot;
    const layout = { ...plot.layout, paper_bgcolor: theme("--paper"), width, height };
    return Plotly.downloadImage({ data: plot.data, layout }, { format: "svg", width, height, filename: plot.id });
  })));
}
