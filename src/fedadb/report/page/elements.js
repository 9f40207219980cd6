"use strict";

// The page's data, and functions that make and fill elements.

let data = JSON.parse(document.getElementById("data").textContent);

const $ = (id) => document.getElementById(id);
const unique = (values) => [...new Set(values)];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Fill a select with values, or [value, label] pairs; keep the choice if it is still there. */
function fillSelect(select, choices) {
  const pairs = choices.map((choice) => (Array.isArray(choice) ? choice : [choice, choice]));
  const chosen = takeWanted(select) ?? select.value;
  select.replaceChildren(...pairs.map(([value, label]) => element("option", { value }, String(label))));
  if (pairs.some(([value]) => String(value) === chosen)) select.value = chosen;
  select.closest("label").hidden = !pairs.length;
}

const runsIn = (setting) => data.runs.filter((run) => run.setting === setting);
const seedsOf = (runs) => unique(runs.map((run) => run.seed)).sort((a, b) => a - b);
const methodsOf = (runs) => data.methods.filter((method) => runs.some((run) => run.method === method));
const classNames = (run) => run.partition.classes ?? run.class_accuracy[0].map((_, c) => String(c));
const runLabel = (run) => `${run.method}, ${run.setting}, seed ${run.seed}`;
