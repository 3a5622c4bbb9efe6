"use strict";
// Draws the curves, heat maps and tables of a report from the data in the page. Nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const config = () => ({
  responsive: true, displaylogo: false, displayModeBar: innerWidth < 700 ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // by name: one of Plotly's others uploads the data
});
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
// Plotly reads some HTML in labels: names are shown as they are.
const safe = (words) => String(words).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const clear = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
const four = (value) => (value === null ? "none" : String(Number(value.toPrecision(4))));

function layout(more) {
  const axis = { gridcolor: colour("grid"), zeroline: false, linecolor: colour("line"), automargin: true };
  const { xaxis, yaxis, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("text"), size: 13 },
    hoverlabel: { bgcolor: colour("background"), bordercolor: colour("line"), font: { color: colour("text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("line"), activecolor: colour("quiet") },
    margin: { l: 60, r: 16, t: innerWidth < 700 ? 12 : 32, b: 50 },
    ...rest,
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
  };
}

// The place of a series on the horizontal axis. Clients send side by side, so time is one client's bytes / bandwidth.
const places = (axes, x, bandwidth) => (x === "time" ? axes.time.map((v) => v / (bandwidth * 1e6)) : axes[x]);

function curves(section, task) {
  const control = (name) => section.querySelector(`[name="${name}"]`);
  const div = section.querySelector(".curves");
  // Names switched off in the legend, kept when the axes change; at first all that cannot be told apart.
  let hidden = new Set(task.series.slice(data.most).map((one) => one.name));

  function draw() {
    const metric = control("metric").value, x = control("x").value, log = control("log").checked;
    const bandwidth = Number(control("bandwidth").value);
    control("bandwidth").closest("label").hidden = x !== "time";
    if (!(bandwidth > 0)) return; // half typed
    const shown = (value) => value !== null && (!log || value > 0);
    const target = task.target.metric === metric && shown(task.target.value) ? task.target.value : null;
    // The scale: by the runs that did not diverge, as an explosion must not hide the others, and by what comes after
    // the first fifth of the rounds, where methods still differ.
    const by = x === "clock" ? "clock" : "rounds";
    const end = Math.max(...task.series.map((one) => one.axes[by].at(-1)));
    const seen = target === null ? [] : [target];
    for (const one of task.series) {
      const band = one.metrics[metric];
      if (!band || one.diverged.length) continue;
      const late = (value, i) => shown(value) && one.axes[by][i] >= data.early * end;
      seen.push(...band.low.filter(late), ...band.high.filter(late));
    }
    let range = null;
    if (seen.length) {
      const ends = [seen.reduce((a, b) => Math.min(a, b)), seen.reduce((a, b) => Math.max(a, b))];
      range = log ? ends.map(Math.log10) : ends;
      const room = 0.04 * (range[1] - range[0]) || 0.5;
      range = [range[0] - room, range[1] + room];
    }
    const inside = (value) => {
      if (!range) return value;
      const [low, high] = log ? range.map((v) => 10 ** v) : range;
      return Math.min(Math.max(value, low), high);
    };
    const unit = x === "time" || x === "clock" ? "s" : x === "bytes" ? "B" : "";
    const traces = [];
    for (const one of task.series) {
      const band = one.metrics[metric];
      if (!band) continue;
      const at = places(one.axes, x, bandwidth), style = task.styles[one.name];
      const group = { legendgroup: one.name, visible: hidden.has(one.name) ? "legendonly" : true };
      const kept = at.map((_, i) => i).filter((i) => shown(band.low[i]) && shown(band.high[i]));
      if (one.seeds > 1) {
        const back = [...kept].reverse();
        traces.push({
          ...group, type: "scatter", mode: "lines", fill: "toself", fillcolor: clear(style[0], 0.16), line: { width: 0 },
          x: [...kept, ...back].map((i) => at[i]),
          y: [...kept.map((i) => band.high[i]), ...back.map((i) => band.low[i])],
          showlegend: false, hoverinfo: "skip", meta: "band",
        });
      }
      traces.push({
        ...group, type: "scatter", mode: "lines", name: safe(one.name), x: at, y: band.mean, meta: "line",
        line: { color: style[0], dash: style[1], width: 2.2 },
        customdata: at.map((_, i) => [one.axes.rounds[i], four(band.low[i]), four(band.high[i])]),
        hovertemplate: `<b>${safe(one.name)}</b><br>round %{customdata[0]}` +
          (x === "rounds" ? "" : `, ${safe(x)} %{x:.4s}${unit}`) + `<br>${safe(metric)} <b>%{y:.4~g}</b>` +
          (one.seeds > 1 ? "<br>seeds: %{customdata[1]} to %{customdata[2]}" : "") + "<extra></extra>",
      });
      const marks = one.diverged.filter((mark) => mark[metric] !== null);
      if (marks.length) {
        traces.push({
          ...group, type: "scatter", mode: "markers", showlegend: false, meta: "cross", cliponaxis: false,
          x: marks.map((mark) => (x === "time" ? mark.time / (bandwidth * 1e6) : mark[x])),
          y: marks.map((mark) => inside(mark[metric])),
          marker: { symbol: "x-thin", size: 11, line: { color: style[0], width: 3 } },
          hovertemplate: `<b>${safe(one.name)}</b> diverged after this<extra></extra>`,
        });
      }
    }
    const near = log && range && range[1] - range[0] < 3; // decades: label 1, 2 and 5 of each
    const ticks = near ? { dtick: "D2", tickformat: "~g" } : { exponentformat: "power", minexponent: 4 };
    const narrow = div.clientWidth < 700;
    const label = data.labels[x].replace("{bandwidth}", four(bandwidth));
    const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: colour("quiet"), width: 1.3, dash: "dash" } };
    const note = {
      xref: "paper", x: 0, xanchor: "left", yanchor: "bottom", y: log ? Math.log10(target) : target, showarrow: false,
      text: "target " + four(target), font: { size: 12, color: colour("quiet") },
    };
    Plotly.react(div, traces, layout({
      xaxis: { title: { text: label, standoff: 8 }, rangemode: "tozero", exponentformat: "SI", ticksuffix: unit === "B" ? "B" : "" },
      yaxis: { title: { text: safe(metric), standoff: 10 }, type: log ? "log" : "linear", range, ...ticks },
      shapes: target === null ? [] : [line],
      annotations: target === null ? [] : [note],
      hovermode: "closest",
      legend: narrow ? { orientation: "h", y: -0.22, yanchor: "top", x: 0 } : { x: 1.01, y: 1, xanchor: "left" },
      height: narrow ? 380 + 13 * task.series.length : 480,
    }), config());
  }

  draw();
  div.on("plotly_restyle", () => {
    hidden = new Set(div.data.filter((trace) => trace.visible === "legendonly").map((trace) => trace.legendgroup));
  });
  section.querySelector(".controls").addEventListener("input", draw);
  return draw;
}

function split(div, task) {
  const { sizes, labels, names } = task.split;
  const clients = sizes.map((_, k) => k);
  const traces = [{
    type: "bar", x: clients, y: sizes, marker: { color: colour("accent") }, xaxis: "x", yaxis: labels ? "y2" : "y",
    hovertemplate: "client %{x}: %{y} examples<extra></extra>", showlegend: false,
  }];
  if (labels) {
    traces.push({
      type: "heatmap", x: clients, y: names.map(String), z: labels, xgap: sizes.length > 60 ? 0 : 1, ygap: names.length > 40 ? 0 : 1,
      colorscale: [[0, colour("empty")], [1, colour("accent")]], colorbar: { title: { text: "examples", side: "right" }, thickness: 10, outlinewidth: 0, len: 0.7, y: 0, yanchor: "bottom" },
      hovertemplate: "client %{x}, label %{y}: %{z} examples<extra></extra>",
    });
  }
  const more = labels ? {
    yaxis: { domain: [0, 0.7], title: { text: "label" }, type: "category", showgrid: false },
    yaxis2: { domain: [0.76, 1], title: { text: "examples" }, gridcolor: colour("grid"), zeroline: false, automargin: true, nticks: 3, rangemode: "tozero" },
    height: 190 + Math.min(names.length, 20) * 16,
  } : { yaxis: { title: { text: "examples" }, rangemode: "tozero" }, height: 240 };
  Plotly.react(div, traces, layout({ xaxis: { title: { text: "client" }, showgrid: false, range: [-0.5, sizes.length - 0.5] }, ...more, bargap: 0.15 }), config());
}

function sortable(table) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    heads.forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[column].dataset.value;
    const order = (a, b) => {
      if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === ""); // nothing to compare: last
      const difference = column ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b));
      return down ? -difference : difference;
    };
    body.append(...[...body.rows].sort(order));
  }));
}

const drawings = [];
data.tasks.forEach((task, i) => {
  const section = document.getElementById("task-" + i);
  if (task.series.length) drawings.push(curves(section, task));
  const picture = section.querySelector(".split");
  if (picture) drawings.push(() => split(picture, task));
});
data.extra.forEach((figure, i) => {
  const div = document.getElementById("extra-" + i);
  if (figure) drawings.push(() => Plotly.react(div, structuredClone(figure.data), layout({ margin: { l: 60, r: 16, t: 40, b: 54 }, ...figure.layout }), config()));
});
const drawAll = () => drawings.forEach((draw) => draw());
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}));
