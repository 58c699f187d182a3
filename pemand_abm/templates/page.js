// What the pages need beside the drawing library: choosing a measure, telling of a zone, printing.
document.addEventListener("DOMContentLoaded", () => {
  for (const list of document.querySelectorAll("select[data-figure]")) {
    const figure = document.getElementById(list.dataset.figure);
    list.addEventListener("change", () => Plotly.restyle(figure, figure.layout.meta.looks[list.value]));
  }
  for (const box of document.querySelectorAll(".zones")) {
    const facts = JSON.parse(box.querySelector("script").textContent);
    const list = box.querySelector("select");
    const place = box.querySelector(".told");
    const tell = () => {
      const zone = facts.zones[list.selectedIndex - 1];
      place.replaceChildren();
      if (!zone) return;
      const heading = place.appendChild(document.createElement("b"));
      heading.textContent = "Zone " + zone.zone + ", " + zone.district;
      const rows = place.appendChild(document.createElement("dl"));
      facts.titles.forEach((title, i) => {
        rows.appendChild(document.createElement("dt")).textContent = title;
        rows.appendChild(document.createElement("dd")).textContent = zone.values[i];
      });
    };
    list.addEventListener("change", tell);
    const map = document.getElementById(box.dataset.map);
    if (map && map.on) {
      // The traces are the zones, in the order of the list.
      map.on("plotly_click", (event) => {
        const trace = event.points.length ? event.points[0].curveNumber : -1;
        if (trace >= 0 && trace < facts.zones.length) { list.selectedIndex = trace + 1; tell(); }
      });
    }
  }
  // Paper shows what is folded away, and figures in the paper's width.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const part of opened) part.open = true;
    for (const figure of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(figure, { width: 680 });
  });
  window.addEventListener("afterprint", () => {
    for (const part of opened) part.open = false;
    for (const figure of document.querySelectorAll(".js-plotly-plot")) Plotly.relayout(figure, { width: null, autosize: true });
  });
});
