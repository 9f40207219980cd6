// The overview, the other tables, and the list of runs.

const TABLES_WITH_A_PLACE = ["summary", "accuracy", "domains", "convergence", "personal", "privacy", "who-learns-what"];
let order = { column: null, down: true };

function drawOverview() {
  const table = data.tables.summary, header = [...table.header, "settings"];
  const words = $("filter").value.toLowerCase().split(/[\s,]+/).filter(Boolean);
  const opened = [...$("table").querySelectorAll("details[open]")].map((one) => one.dataset.row);
  const all = table.rows.map((row, i) => [...row, { number: null, ...data.row_settings[i], row: i, open: opened.includes(String(i)) }]);
  let rows = all.filter((row) => {
    const text = row.map((cell) => cell.text).join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  if (order.column !== null) {
    const sign = order.down ? -1 : 1;
    rows = rows.toSorted((a, b) => sign * compareCells(a[order.column], b[order.column]));
  }
  const head = header.map((name, i) => {
    const sort = () => {
      order = { column: i, down: order.column === i ? !order.down : i > 1 };
      drawOverview();
      $("table").querySelectorAll("th button")[i].focus();
    };
    const direction = order.column !== i ? "none" : order.down ? "descending" : "ascending";
    return element("th", { scope: "col", "aria-sort": direction },
      element("button", { type: "button", onclick: sort }, name));
  });
  $("table").csv = table.csv;
  fillTable($("table"), head, rows);
  fillPlainTable("accuracy-table", data.tables.accuracy);
  $("domains").hidden = !data.tables.domains;
  if (data.tables.domains) fillPlainTable("domain-table", data.tables.domains);
  fillNotes("notes", table.notes);
  drawMoreTables(table.notes);
}

/** By numbers; a missing number is less than any other; texts by the alphabet. */
function compareCells(a, b) {
  if (a.number !== null && b.number !== null) return a.number - b.number;
  if (a.number !== null || b.number !== null) return a.number === null ? -1 : 1;
  return (a.text > b.text) - (a.text < b.text);
}

function fillTable(table, head, rows) {
  const cell = ({ text, best, paper, more, row, open }) => element("td", {},
    more ? element("details", { "data-row": row, ...(open ? { open: "" } : {}) }, element("summary", {}, text), element("pre", { tabindex: "0" }, more))
      : best ? element("strong", {}, text) : text,
    ...(paper ? [element("small", {}, `paper ${paper}`)] : []));
  table.replaceChildren(
    element("thead", {}, element("tr", {}, ...head)),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map(cell)))));
  hintScroll(table.parentElement);
  offerCsv(table);
}

const columnHead = (name) => element("th", { scope: "col" }, name);

function fillPlainTable(id, table) {
  $(id).csv = table.csv;
  fillTable($(id), table.header.map(columnHead), table.rows);
}

function fillNotes(id, notes) {
  $(id).replaceChildren(...notes.map((note) => element("li", {}, note)));
}

/** Add a hint below a table that does not fit its box. */
function hintScroll(box) {
  const table = box.firstElementChild;
  if (!table) return;
  const cut = [[table.scrollWidth > box.clientWidth, "columns"], [table.scrollHeight > box.clientHeight, "rows"]];
  const more = cut.filter(([is]) => is).map(([, what]) => what).join(" and ");
  if (more) box.dataset.more = `Scroll for more ${more}.`;
  else delete box.dataset.more;
}

/** The tables that no section shows, below the overview. */
function drawMoreTables(shownNotes) {
  const more = Object.values(data.tables).filter(({ name }) => !TABLES_WITH_A_PLACE.includes(name));
  const ids = more.map(({ name }) => `table-${name}`);
  [...$("more-tables").children].filter((box) => !ids.includes(box.dataset.table)).forEach((box) => box.remove());
  more.forEach(({ title, notes, ...table }, i) => {
    if (!$(ids[i])) {  // or else keep it: a reader may have scrolled it
      $("more-tables").append(element("div", { "data-table": ids[i] }, element("h3", {}, title),
        element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
          element("table", { id: ids[i] })),
        element("ul", { id: `${ids[i]}-notes`, class: "notes" })));
    }
    fillPlainTable(ids[i], table);
    fillNotes(`${ids[i]}-notes`, notes.filter((note) => !shownNotes.includes(note)));
  });
}

/** Who learns what, and before it the promises of private runs, if there are any. */
function drawPrivacy() {
  const { privacy: promises, "who-learns-what": told } = data.tables;
  $("promise").hidden = !promises;
  if (promises) {
    fillPlainTable("privacy-table", promises);
    fillNotes("privacy-notes", promises.notes);
  }
  $("disclosure-title").textContent = told.title;
  fillPlainTable("disclosure-table", told);
  fillNotes("disclosure-notes", told.notes);
}

function drawRuns() {
  const open = new Set([...document.querySelectorAll("#run-list details[open]")].map((one) => one.dataset.run));
  $("run-list").replaceChildren(...data.runs.map((run) => {
    const made = element("details", { "data-run": run.directory },
      element("summary", {}, `${runLabel(run)}: ${run.done} of ${run.total} rounds (${run.directory})`),
      element("pre", { tabindex: "0" }, run.experiment), element("pre", { tabindex: "0" }, run.environment));
    made.open = open.has(run.directory);
    return made;
  }));
}
