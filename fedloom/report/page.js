// Draws the curves, heat maps and tables of a report from the data in the page. Nothing is fetched.
const data = JSON.parse(document.getElementById("data").textContent);
const PAPER = 680; // pixels of a printed page's width
let onPaper = false;
const config = () => ({
  responsive: true, displaylogo: false, displayModeBar: innerWidth < 700 ? false : "hover",
  modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]], // by name: one of Plotly's others uploads the data
});
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
// Plotly reads some HTML in labels: names are shown as they are.
const safe = (words) => String(words).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
const unsafe = (words) => words.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");
const clear = (hex, alpha) => hex + Math.round(alpha * 255).toString(16).padStart(2, "0");
const cut = (words, length) => (words.length > length ? words.slice(0, length - 1) + "…" : words);
const four = (value) => (value === null ? "none" : String(Number(value.toPrecision(4))));

// Labels in lines of at most so many characters. Tags of Plotly's HTML have no width.
function lines(text, length) {
  const pieces = text.split(/(<[^>]*>| )/);
  let line = 0;
  return pieces.map((piece, i) => {
    if (piece.startsWith("<")) {
      if (piece === "<br>") line = 0;
      return piece;
    }
    const broken = piece === " " && line + 1 + pieces[i + 1].length > length;
    line = broken ? 0 : line + piece.length;
    return broken ? "<br>" : piece;
  }).join("");
}

function layout(more) {
  const axis = { gridcolor: colour("grid"), zeroline: false, linecolor: colour("line"), automargin: true };
  const { xaxis, yaxis, title, margin, ...rest } = more;
  const room = Math.floor(((onPaper ? PAPER : Math.min(innerWidth, 1240)) - 120) / 8.5); // characters beside the margins
  const broken = (one, length) => (one?.title ? { ...one, title: { standoff: 10, ...one.title, text: lines(one.title.text, length) } } : one);
  const narrow = innerWidth < 700 && !onPaper;
  const names = narrow && yaxis?.ticktext?.map((words) => safe(cut(unsafe(words), 16))); // leave room for the plot
  const heading = broken({ title }, room + 4)?.title;
  const added = heading ? heading.text.split("<br>").length - title.text.split("<br>").length : 0;
  const margins = { l: 60, r: 16, t: narrow ? 12 : 32, b: 50, ...margin };
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, color: colour("text"), size: 13 },
    hoverlabel: { bgcolor: colour("background"), bordercolor: colour("line"), font: { color: colour("text") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("line"), activecolor: colour("quiet") },
    margin: { ...margins, t: margins.t + 23 * added },
    title: heading,
    ...(onPaper ? { width: PAPER, autosize: false } : { autosize: true }),
    ...rest,
    xaxis: { ...axis, ...broken(xaxis, room) },
    yaxis: { ...axis, ...broken(yaxis, narrow ? 38 : 50), ...(names ? { ticktext: names } : {}) },
  };
}

// The place of a series on the horizontal axis. Clients send side by side, so time is one client's bytes / bandwidth.
const places = (axes, x, bandwidth) => (x === "time" ? axes.time.map((v) => v / (bandwidth * 1e6)) : axes[x]);

function split(div, task) {
  const { sizes, counts, labels, names } = task.split;
  const clients = sizes.map((_, k) => k), called = names ? names.map(String) : clients.map((k) => `client ${k}`);
  const who = called.map(safe);
  const traces = [{
    type: "bar", x: clients, y: sizes, marker: { color: colour("accent") }, xaxis: "x", yaxis: counts ? "y2" : "y",
    customdata: who, hovertemplate: "%{customdata}: %{y} examples<extra></extra>", showlegend: false,
  }];
  if (counts) {
    traces.push({
      type: "heatmap", x: clients, y: labels.map(String), z: counts, customdata: counts.map(() => who),
      xgap: sizes.length > 60 ? 0 : 1, ygap: labels.length > 40 ? 0 : 1, colorscale: [[0, colour("empty")], [1, colour("accent")]],
      colorbar: { title: { text: "examples", side: "right" }, thickness: 10, outlinewidth: 0, len: 0.7, y: 0, yanchor: "bottom" },
      hovertemplate: "%{customdata}, label %{y}: %{z} examples<extra></extra>",
    });
  }
  const more = counts ? {
    yaxis: { domain: [0, 0.7], title: { text: "label" }, type: "category", showgrid: false },
    yaxis2: { domain: [0.76, 1], title: { text: "examples" }, gridcolor: colour("grid"), zeroline: false, automargin: true, nticks: 3, rangemode: "tozero" },
    height: 190 + Math.min(labels.length, 20) * 16,
  } : { yaxis: { title: { text: "examples" }, rangemode: "tozero" }, height: 240 };
  const every = Math.ceil(sizes.length / (div.clientWidth / 22)); // names that there is room for
  const some = clients.filter((k) => k % every === 0);
  const ticks = names ? { tickvals: some, ticktext: some.map((k) => safe(cut(called[k], 18))), tickangle: -60 } : {};
  if (names) more.height += 60;
  Plotly.react(div, traces, layout({ xaxis: { title: { text: "client" }, showgrid: false, range: [-0.5, sizes.length - 0.5], ...ticks }, ...more, bargap: 0.15 }), config());
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

// A figure that the report has laid out.
function ready(div, figure) {
  const margin = { t: 40, b: 54, ...figure.layout.margin };
  Plotly.react(div, structuredClone(figure.data), layout({ ...figure.layout, margin }), config());
}

const drawings = [];
data.tasks.forEach((task, i) => {
  const section = document.getElementById("task-" + i);
  if (task.series.length) drawings.push(curves(section, task));
  const forest = section.querySelector(".forest");
  if (forest) drawings.push(() => ready(forest, task.forest));
  const picture = section.querySelector(".split");
  if (picture) drawings.push(() => split(picture, task));
});
data.extra.forEach((figure, i) => {
  const div = document.getElementById("extra-" + i);
  if (figure) drawings.push(() => ready(div, figure));
});
// A table that is wider than the page says so, and can be moved with the keys, too.
function hint(box) {
  const wider = box.scrollWidth > box.clientWidth + 1 && !onPaper;
  if (!box.previousElementSibling?.matches(".hint")) {
    const words = document.createElement("p");
    words.className = "hint quiet";
    words.textContent = "There are more columns: scroll the table sideways →";
    box.before(words);
  }
  box.previousElementSibling.hidden = !wider;
  if (wider) box.tabIndex = 0; else box.removeAttribute("tabindex");
}

const drawAll = () => {
  drawings.forEach((draw) => draw());
  document.querySelectorAll(".scroll").forEach(hint);
};
drawAll();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = innerWidth;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; drawAll(); } });
document.querySelectorAll("details").forEach((one) => one.addEventListener("toggle", () => one.querySelectorAll(".scroll").forEach(hint)));

// On paper all is open, light, and as wide as a page.
let opened = [];
function paper(on) {
  if (on === onPaper) return;
  onPaper = on;
  document.documentElement.classList.toggle("paper", on);
  if (on) opened = [...document.querySelectorAll("details:not([open])")];
  opened.forEach((one) => { one.open = on; });
  drawAll();
}
addEventListener("beforeprint", () => paper(true));
addEventListener("afterprint", () => paper(false));
matchMedia("print").addEventListener("change", (event) => paper(event.matches));
document.querySelectorAll("table.sortable").forEach(sortable);
document.querySelectorAll(".copy").forEach((button) => button.addEventListener("click", async () => {
  await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
  button.textContent = "copied";
  setTimeout(() => { button.textContent = "copy"; }, 1500);
}));
