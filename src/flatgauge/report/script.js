"use strict";
(function () {
  const style = () => getComputedStyle(document.documentElement);
  const role = (name) => style().getPropertyValue("--" + name).trim();
  const source = document.getElementById("figures");
  const figures = source ? JSON.parse(source.textContent) : {};

  // "@accent" stands for the reader's own light or dark colour.
  function coloured(value, key) {
    if (value === "@scale") return [[0, role("paper")], [0.35, role("accent-soft")], [1, role("accent")]];
    if (typeof value === "string" && value[0] === "@" && /color$/i.test(key)) return role(value.slice(1));
    if (Array.isArray(value)) return value.map((item) => coloured(item, key));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, item]) => [k, coloured(item, k)]));
    }
    return value;
  }

  function layout(given, narrow) {
    const axis = { gridcolor: role("line"), linecolor: role("line"), zerolinecolor: role("line"), automargin: true, nticks: narrow ? 5 : 9, tickfont: { size: 12 } };
    const titled = (own) => ({ ...axis, ...own, title: { ...(own || {}).title, standoff: 10, font: { size: 13, color: role("muted") } } });
    const own = coloured(given, "");
    return {
      ...own,
      font: { family: role("sans"), size: 13, color: role("ink") },
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: 56, r: 12, t: 34, b: 58, ...own.margin },
      legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", xanchor: "left", bgcolor: "rgba(0,0,0,0)" },
      hoverlabel: { bgcolor: role("panel"), bordercolor: role("line"), font: { family: role("sans"), color: role("ink") } },
      hovermode: "closest",
      dragmode: false,
      xaxis: titled(own.xaxis),
      yaxis: titled(own.yaxis),
    };
  }

  function draw() {
    for (const place of document.querySelectorAll("[data-figure]")) {
      const figure = figures[place.dataset.figure];
      if (!figure) continue;
      Plotly.react(place, coloured(figure.data, ""), layout(figure.layout, place.clientWidth < 500), {
        responsive: true,
        displaylogo: false,
        displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
        modeBarButtons: [["toImage"]],
        toImageButtonOptions: { format: "svg", filename: "flatgauge-" + place.dataset.figure },
      });
    }
  }

  if (source) {
    draw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
    matchMedia("print").addEventListener("change", draw);
  }

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(text.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        button.textContent = document.execCommand("copy") ? "Copied" : "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 2000);
    });
  }
})();
