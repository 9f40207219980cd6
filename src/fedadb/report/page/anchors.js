// FedADB's class anchors: what the server sent to clients in some rounds, as pictures.

function drawAnchors() {
  const runs = data.runs.filter((run) => run.anchors.length);
  fillSelect($("anchor-run"), runs.map((run) => [run.directory, runLabel(run)]));
  const run = runs.find((one) => one.directory === $("anchor-run").value);
  $("anchor-none").hidden = runs.length > 0;
  $("anchor-rounds").replaceChildren(...(run ? run.anchors : []).flatMap(({ round, pictures }) => [
    element("h3", {}, `Round ${round}`),
    element("div", { class: "anchors" }, ...pictures.map((picture) => {
      const name = classNames(run)[picture.class];
      return element("figure", {}, element("img", { src: picture.image, alt: `Anchor of ${name}` }),
        element("figcaption", {}, `${name}, confidence ${(100 * picture.confidence).toFixed(1)} %`));
    })),
  ]));
}
