// A permanent link: the part of the address behind # holds the section and every control that was changed.

const wanted = new Map();  // what the address asks for, until the control has such a choice
const CONTROLS = "main select, main input";
const initial = new Map([...document.querySelectorAll(CONTROLS)].map((control) => [control.id, valueOf(control)]));

/** What the address asks of a control that now has choices; undefined if it asks for nothing. */
function takeWanted(control) {
  const value = wanted.get(control.id);
  wanted.delete(control.id);
  return value;
}

function valueOf(control) {
  return control.type === "checkbox" ? String(control.checked) : control.value;
}

/** Take the view from the address. */
function readView() {
  const [section, query] = location.hash.slice(1).split("?");
  const values = new URLSearchParams(query ?? "");
  for (const set of Object.values(hidden)) set.clear();
  values.getAll("hide-method").forEach((method) => hidden.methods.add(method));
  values.getAll("hide-seed").forEach((seed) => hidden.seeds.add(Number(seed)));
  if (values.has("sort")) order = { column: Number(values.get("sort")), down: values.get("down") === "true" };
  for (const control of document.querySelectorAll(CONTROLS)) {
    if (!values.has(control.id)) continue;
    if (control.type === "checkbox") control.checked = values.get(control.id) === "true";
    else if (control.type === "search") control.value = values.get(control.id);
    else wanted.set(control.id, values.get(control.id));
  }
  return section;
}

/** The address of a section with all controls as they are now. */
function viewAddress(section) {
  const values = new URLSearchParams();
  for (const control of document.querySelectorAll(CONTROLS)) {
    const value = wanted.get(control.id) ?? valueOf(control);
    const first = control.tagName === "SELECT" ? control.options[0]?.value ?? "" : initial.get(control.id);
    const last = control.type === "range" && control.value === control.max;  // where it is by itself
    if (value !== first && !last) values.set(control.id, value);
  }
  hidden.methods.forEach((method) => values.append("hide-method", method));
  hidden.seeds.forEach((seed) => values.append("hide-seed", seed));
  if (order.column !== null) {
    values.set("sort", order.column);
    values.set("down", order.down);
  }
  return `#${section}?${values}`;
}

/** Add a button beside a section's heading that copies a link to what the page shows now, and opens at this section. */
function offerLink(section) {
  const heading = $(section).querySelector("h2");
  heading.after(actionButton("Copy link", heading.textContent, "Copied", () => {
    history.replaceState(null, "", viewAddress(section));
    return copyText(location.href);
  }));
}
