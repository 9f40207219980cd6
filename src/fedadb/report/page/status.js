// Where the runs stand and what they cost, at the top of the page.

const MOST_SHOWN = 12;  // unfinished runs that are listed by name

const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const sumOf = (runs, value) => runs.reduce((sum, run) => sum + value(run), 0);
const secondsLeft = (run) => (run.total - run.done) * run.pace;
const isTimed = (run) => run.pace !== null;  // or else its times are secret

/** 45 s, 12 min, 3 h 20 min, 2 d 4 h. */
function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** 12 kB, 3.4 MB, 1.2 GB. */
function bytes(n) {
  const [unit, name] = n < 1e6 ? [1e3, "kB"] : n < 1e9 ? [1e6, "MB"] : [1e9, "GB"];
  return `${(n / unit).toFixed(n / unit < 10 ? 1 : 0)} ${name}`;
}

function drawState() {
  document.title = `${data.title} · fedadb`;
  $("title").textContent = data.title;
  const unfinished = data.runs.filter((run) => run.done < run.total);
  const done = sumOf(data.runs, (run) => run.done), sent = sumOf(data.runs, (run) => run.bytes);
  const timed = data.runs.filter(isTimed), toCome = unfinished.filter(isTimed);
  const parts = [
    `${count(data.runs.length, "run")}, ${data.runs.length - unfinished.length} finished, ${count(done, "round")}`
      + (unfinished.length ? ` of ${sumOf(data.runs, (run) => run.total)}.` : "."),
    ...(timed.length ? [`Training took ${duration(sumOf(timed, (run) => run.seconds))}`
      + (sent ? `, and ${bytes(sent)} went to and from clients.` : ".")] : []),
    ...(toCome.length ? [`About ${duration(sumOf(toCome, secondsLeft))} left, one run after the other.`] : []),
    ...(document.body.hasAttribute("data-live") ? ["The page follows the runs while they continue."] : []),
    ...(data.errors?.length ? [`Error: ${data.errors.join("; ")}`] : []),
  ];
  $("state").textContent = parts.join(" ");
  drawUnfinished(unfinished);
}

function drawUnfinished(runs) {
  const entries = runs.slice(0, MOST_SHOWN).map((run) => {
    const rounds = `${run.done} of ${count(run.total, "round")}`, accuracy = run.accuracy.at(-1).toFixed(1);
    return element("li", {}, element("span", {}, runLabel(run)),
      element("progress", { max: run.total, value: run.done, "aria-label": runLabel(run) }, rounds),
      element("span", {}, `${rounds}, ${isTimed(run) ? `about ${duration(secondsLeft(run))} left, ` : ""}accuracy ${accuracy} %`));
  });
  const more = runs.length - entries.length;
  $("unfinished").replaceChildren(...entries, ...(more > 0 ? [element("li", {}, `and ${count(more, "more run")}`)] : []));
  $("unfinished").hidden = !runs.length;
}
