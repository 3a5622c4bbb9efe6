"use strict";
// The curves of a task: means over seeds, bands, names at the ends. Only functions, which page.js calls.

// The running mean over the last k evaluations; nothing where one of them is missing.
function smoothed(values, k) {
  return values.map((_, i) => {
    const last = values.slice(Math.max(0, i - k + 1), i + 1);
    return last.includes(null) ? null : last.reduce((a, b) => a + b) / last.length;
  });
}

// A method's seeds, smoothed, and in each round the mean of those that got there, the lowest, the highest, and half of
// the 95% interval of the mean. A seed that stopped early has fewer values than the others.
function combined(seeds, k) {
  const curves = seeds.map((values) => smoothed(values, k));
  const found = { curves, mean: [], low: [], high: [], half: [] };
  for (let i = 0; i < Math.max(...curves.map((values) => values.length)); i++) {
    const values = curves.filter((one) => one.length > i).map((one) => one[i]), n = values.length;
    const known = !values.includes(null);
    const mean = known ? values.reduce((a, b) => a + b) / n : null;
    const squares = known ? values.reduce((sum, v) => sum + (v - mean) ** 2, 0) : null;
    found.mean.push(mean);
    found.low.push(known ? Math.min(...values) : null);
    found.high.push(known ? Math.max(...values) : null);
    found.half.push(known && n > 1 ? data.quantiles[n] * Math.sqrt(squares / (n - 1) / n) : null);
  }
  return found;
}

// Places as near to the wanted ones as possible, at least a gap apart, and between 0 and the end if there is room.
function spread(wanted, gap, end) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]), places = [...wanted];
  let last = -gap;
  for (const i of order) last = places[i] = Math.max(wanted[i], last + gap);
  last = end + gap;
  for (const i of order.reverse()) last = places[i] = Math.min(places[i], last - gap);
  return places;
}

const LINE = 16; // pixels of a label's line
function textWidth(words) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  return pen.measureText(words).width;
}

// The ends of an axis with a little room; null if there is nothing to show.
function ends(values, log, room) {
  if (!values.length) return null;
  const range = [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  const [low, high] = log ? range.map(Math.log10) : range;
  const more = room * (high - low) || 0.5;
  return [low - more, high + more];
}

function curves(section, task) {
  const control = (name) => section.querySelector(`[name="${name}"]`);
  const div = section.querySelector(".curves"), note = section.querySelector(".outside");
  const buttons = [...section.querySelectorAll(".names [data-name]")];
  const chosen = new Set(task.series.slice(0, data.best).map((one) => one.name)); // in colour, with a label
  let lit = null; // the name under the pointer
  let view = null; // what was drawn last

  // How a line looks: grey unless it is chosen or lit.
  function pen(name) {
    const [ink, dash] = task.styles[name], grey = !chosen.has(name) && lit !== name;
    return { color: grey ? colour("faint") : ink, dash: grey ? "solid" : dash, width: lit === name ? 3.4 : grey ? 1.2 : 2.2 };
  }

  function light(name) {
    const changed = [lit, name].filter((one) => one !== null);
    lit = name;
    for (const one of changed) {
      const i = div.data.findIndex((trace) => trace.meta === "line" && trace.legendgroup === one), now = pen(one);
      if (i >= 0) Plotly.restyle(div, { "line.color": now.color, "line.width": now.width, "line.dash": now.dash }, [i]);
    }
  }

  function toggle(name) {
    if (!chosen.delete(name)) chosen.add(name);
    draw();
  }

  function draw() {
    const metric = control("metric").value, x = control("x").value, k = Number(control("smooth").value);
    const log = control("log").checked, logx = control("logx").checked, bands = control("bands").value;
    const bandwidth = Number(control("bandwidth").value);
    control("bandwidth").closest("label").hidden = x !== "time";
    control("smoothed").value = k > 1 ? `last ${k} evaluations` : "none";
    for (const button of buttons) {
      button.setAttribute("aria-pressed", chosen.has(button.dataset.name));
      button.hidden = !task.series.some((one) => one.name === button.dataset.name); // nothing to draw yet
    }
    if (!(bandwidth > 0)) return; // half typed
    const shown = (value) => value !== null && (!log || value > 0);
    const drawn = task.series.filter((one) => one.metrics[metric] && (chosen.has(one.name) || !control("hide").checked))
      .map((one) => ({ ...one, ...combined(one.metrics[metric], k), at: places(one.axes, x, bandwidth) }));
    const target = task.target.metric === metric && shown(task.target.value) ? task.target.value : null;

    // The vertical scale: by the runs that did not diverge, as an explosion must not hide the others, without those
    // that would stretch it, and by what comes after the first fifth of the rounds, where methods still differ.
    const by = x === "clock" ? "clock" : "rounds";
    const end = Math.max(...task.series.map((one) => one.axes[by].at(-1)));
    const outside = task.outside[metric]?.[log ? "log" : "linear"] ?? [];
    const seen = target === null ? [] : [target];
    for (const one of drawn) {
      if (one.diverged.length || outside.includes(one.name)) continue;
      const late = (value, i) => shown(value) && one.axes[by][i] >= data.early * end;
      for (const edge of chosen.has(one.name) ? [one.low, one.high] : [one.mean]) seen.push(...edge.filter(late));
    }
    const range = ends(seen, log, 0.04);
    const across = drawn.flatMap((one) => one.at.filter((v) => !logx || v > 0));
    const wide = ends(logx ? across : [0, ...across], logx, 0.01);
    const [low, high] = range ? (log ? range.map((v) => 10 ** v) : range) : [-Infinity, Infinity];
    const unit = x === "time" || x === "clock" ? "s" : x === "bytes" ? "B" : "";
    const also = k > 1 ? `<br>mean of the last ${k} evaluations` : "";

    const traces = [];
    const last = (one) => chosen.has(one.name); // above the grey ones, the best on top
    for (const one of [...drawn.filter((d) => !last(d)), ...drawn.filter(last).reverse()]) {
      const whose = { type: "scatter", legendgroup: one.name, showlegend: false };
      const kept = one.at.map((_, i) => i).filter((i) => shown(one.mean[i]) && one.half[i] !== null);
      if (chosen.has(one.name) && bands === "interval" && kept.length) {
        const floor = (i) => (log && one.mean[i] <= one.half[i] ? one.mean[i] / 1000 : one.mean[i] - one.half[i]);
        const back = [...kept].reverse();
        traces.push({
          ...whose, mode: "lines", fill: "toself", fillcolor: clear(task.styles[one.name][0], 0.1), line: { width: 0 },
          x: [...kept, ...back].map((i) => one.at[i]), hoverinfo: "skip", meta: "band",
          y: [...kept.map((i) => one.mean[i] + one.half[i]), ...back.map(floor)],
        });
      }
      if (chosen.has(one.name) && bands === "seeds" && one.seeds > 1) {
        traces.push({
          ...whose, mode: "lines", line: { width: 0.8, color: task.styles[one.name][0] }, opacity: 0.6, meta: "seeds",
          x: one.curves.flatMap((values) => [...one.at.slice(0, values.length), null]), hoverinfo: "skip",
          y: one.curves.flatMap((values) => [...values, null]), connectgaps: false,
        });
      }
      traces.push({
        ...whose, mode: "lines", name: safe(one.label), x: one.at, y: one.mean, meta: "line", line: pen(one.name),
        customdata: one.at.map((_, i) => [one.axes.rounds[i], four(one.low[i]), four(one.high[i]), four(one.half[i])]),
        hovertemplate: `<b>${safe(one.label)}</b><br>round %{customdata[0]}` +
          (x === "rounds" ? "" : `, ${safe(x)} %{x:.4s}${unit}`) + `<br>${safe(metric)} <b>%{y:.4~g}</b>` +
          (one.seeds > 1 ? " ± %{customdata[3]}<br>seeds: %{customdata[1]} to %{customdata[2]}" : "") + `${also}<extra></extra>`,
      });
      const marks = one.diverged.filter((mark) => mark[metric] !== null);
      if (marks.length) {
        traces.push({
          ...whose, mode: "markers", meta: "cross", cliponaxis: false,
          x: marks.map((mark) => (x === "time" ? mark.time / (bandwidth * 1e6) : mark[x])),
          y: marks.map((mark) => Math.min(Math.max(mark[metric], low), high)),
          marker: { symbol: "x-thin", size: 11, line: { color: pen(one.name).color, width: 3 } },
          hovertemplate: `<b>${safe(one.label)}</b> diverged after this<extra></extra>`,
        });
      }
    }

    const words = (name) => cut(task.series.find((one) => one.name === name).label, div.clientWidth < 700 ? 12 : 30);
    view = { drawn: drawn.filter(last), log, logx, shown, words, target };
    const right = Math.max(0, ...view.drawn.map((one) => textWidth(words(one.name))));
    const near = log && range && range[1] - range[0] < 3; // decades: label 1, 2 and 5 of each
    const ticks = near ? { dtick: "D2", tickformat: "~g" } : { exponentformat: "power", minexponent: 4 };
    const label = data.labels[x].replace("{bandwidth}", four(bandwidth));
    const title = safe(metric) + (k > 1 ? `, mean of the last ${k} evaluations` : "");
    const line = { type: "line", xref: "paper", x0: 0, x1: 1, y0: target, y1: target, line: { color: colour("quiet"), width: 1.3, dash: "dash" } };
    const base = layout({
      xaxis: { title: { text: label, standoff: 8 }, type: logx ? "log" : "linear", range: wide, exponentformat: "SI", ticksuffix: unit === "B" ? "B" : "" },
      yaxis: { title: { text: title, standoff: 10 }, type: log ? "log" : "linear", range, ...ticks },
      shapes: target === null ? [] : [line],
      hovermode: "closest",
      height: div.clientWidth < 700 ? 400 : 480,
    });
    base.margin.r = Math.ceil(right) + 22;
    Plotly.react(div, traces, base, config());
    write();
    const far = outside.filter((name) => drawn.some((one) => one.name === name)).map((name) => task.series.find((one) => one.name === name).label);
    note.hidden = !far.length;
    note.textContent = `The vertical scale leaves out ${far.join(", ")}; double-click the plot to see everything.`;
  }

  // The target's value, and the names at the ends of the coloured curves, nudged so that they do not overlap.
  function write() {
    const { xaxis, yaxis, _size: size } = div._fullLayout, { log, logx, target } = view;
    const share = (axis, value) => (value - axis.range[0]) / (axis.range[1] - axis.range[0]);
    const labels = [];
    for (const one of view.drawn) {
      const at = one.at.map((v) => (logx ? Math.log10(v) : v));
      const i = one.mean.findLastIndex((v, j) => view.shown(v) && at[j] >= xaxis.range[0] && at[j] <= xaxis.range[1]);
      if (i < 0) continue;
      const y = log ? Math.log10(one.mean[i]) : one.mean[i], words = view.words(one.name);
      const up = Math.min(Math.max(share(yaxis, y), 0), 1);
      const left = size.w * share(xaxis, at[i]);
      labels.push({ name: one.name, words, x: at[i], up, left, right: left + textWidth(words) + 16 });
    }
    const notes = [];
    const most = Math.floor(size.h / LINE);
    labels.splice(most); // the best, if there is no room for all
    labels.sort((a, b) => a.left - b.left);
    while (labels.length) { // those side by side do not disturb each other
      const group = [labels.shift()];
      while (labels.length && labels[0].left < Math.max(...group.map((one) => one.right))) group.push(labels.shift());
      const wanted = group.map((one) => (1 - one.up) * size.h), found = spread(wanted, LINE, size.h);
      group.forEach((one, i) => notes.push({
        name: "label", x: one.x, y: yaxis.range[0] + one.up * (yaxis.range[1] - yaxis.range[0]), ax: 9, ay: found[i] - wanted[i],
        xanchor: "left", yanchor: "middle", text: safe(one.words), font: { size: 12, color: task.styles[one.name][0] },
        showarrow: true, arrowhead: 0, arrowwidth: 1, arrowcolor: task.styles[one.name][0], borderpad: 0, bgcolor: clear(colour("background"), 0.7),
      }));
    }
    if (target !== null) {
      notes.push({
        name: "target", xref: "paper", x: 0, xanchor: "left", yanchor: "bottom", y: log ? Math.log10(target) : target,
        showarrow: false, text: "target " + four(target), font: { size: 12, color: colour("quiet") },
      });
    }
    Plotly.relayout(div, { annotations: notes });
  }

  draw();
  div.on("plotly_relayout", (change) => { if (Object.keys(change).some((key) => /^[xy]axis/.test(key))) write(); });
  div.on("plotly_hover", (event) => light(event.points[0].data.legendgroup));
  div.on("plotly_unhover", () => light(null));
  div.on("plotly_click", (event) => toggle(event.points[0].data.legendgroup));
  section.querySelector(".controls").addEventListener("input", draw);
  for (const button of buttons) {
    button.addEventListener("click", () => toggle(button.dataset.name));
    for (const kind of ["pointerenter", "focus"]) button.addEventListener(kind, () => light(button.dataset.name));
    for (const kind of ["pointerleave", "blur"]) button.addEventListener(kind, () => light(null));
  }
  for (const button of section.querySelectorAll(".names [data-first]")) {
    button.addEventListener("click", () => {
      chosen.clear();
      task.series.slice(0, Number(button.dataset.first)).forEach((one) => chosen.add(one.name));
      draw();
    });
  }
  return draw;
}
