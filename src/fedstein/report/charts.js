// Draws the charts of a report as SVG, from the JSON in the page: no library, no network.
"use strict";
(() => {
  const element = (name, attributes = {}, children = []) => {
    const svg = "svg g path rect line circle text polygon title".split(" ").includes(name);
    const made = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    for (const child of [children].flat()) made.append(child);
    return made;
  };

  // 0.8731, 1,386, 2.3M: at most four digits that say something.
  const format = (value) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e5, "k"]])
      if (size >= limit) return +(value / (limit === 1e5 ? 1e3 : limit)).toPrecision(4) + unit;
    if (Number.isInteger(value) || size >= 1000) return Math.round(value).toLocaleString("en");
    return size >= 1 || size === 0 ? String(+value.toPrecision(4)) : String(+value.toFixed(4));
  };

  const ticks = (low, high, count) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough * 0.999);
    const marks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) marks.push(+(i * step).toPrecision(12));
    return marks;
  };

  const range = (values, given) => {
    const all = values.filter((v) => v !== null && Number.isFinite(v));
    let low = given[0] ?? Math.min(...all), high = given[1] ?? Math.max(...all);
    if (!(high > low)) [low, high] = [low - (Math.abs(low) * 0.05 || 0.5), high + (Math.abs(high) * 0.05 || 0.5)];
    const room = (high - low) * 0.06;
    return [given[0] ?? low - room, given[1] ?? high + room];
  };

  // One shape for each series, so that colour is never the only difference.
  const mark = (shape, x, y, r, attributes) => {
    const s = r * 0.9, d = r * 1.3;
    const points = [
      null,
      [[-s, -s], [s, -s], [s, s], [-s, s]],
      [[0, -d], [d, r], [-d, r]],
      [[0, -d], [d, 0], [0, d], [-d, 0]],
      [[0, d], [d, -r], [-d, -r]],
    ][shape % 5];
    if (!points) return element("circle", { cx: x, cy: y, r, ...attributes });
    return element("polygon", { points: points.map(([a, b]) => `${x + a},${y + b}`).join(" "), ...attributes });
  };

  const xs = (s) => s.bars ? s.bars.flatMap((b) => [b[0], b[1]]) : [...s.x, ...(s.left || []), ...(s.right || [])];
  const ys = (s) => s.bars ? s.bars.flatMap((b) => [b[2], b[3]]) : [...s.y, ...(s.low || []), ...(s.high || [])];

  function draw(chart, plot) {
    const width = Math.max(240, plot.clientWidth), parts = !!chart.parts;
    const height = parts ? 96 : Math.round(Math.min(330, Math.max(230, width * 0.64)));
    const edge = { left: 58, right: 16, top: 12, bottom: parts ? 24 : 44 };
    const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", tabindex: "0",
      "aria-label": `${chart.title}. ${chart.alt}` });
    plot.replaceChildren(svg);
    const tip = element("div", { class: "tip", hidden: "" });
    plot.append(tip);
    const say = (x, y, lines) => {  // above the point, or below it where there is no room
      tip.replaceChildren(...lines.map((line) => element("div", {}, line)));
      tip.hidden = false;
      const above = y - tip.offsetHeight - 14;
      tip.style.left = `${Math.max(0, Math.min(x + 12, width - tip.offsetWidth - 4))}px`;
      tip.style.top = `${above >= 0 ? above : Math.min(y + 18, height - tip.offsetHeight)}px`;
    };

    if (parts) {
      const all = chart.parts.reduce((sum, part) => sum + part.value, 0);
      const scale = (width - 4) / all;
      let at = 2;
      chart.parts.forEach((part, i) => {
        const wide = part.value * scale;
        const box = element("rect", { x: at, y: 14, width: Math.max(1, wide - 1.5), height: 46, rx: 3, class: `fill s${i}${part.empty ? " empty" : ""}` });
        svg.append(box);
        if (wide > 64) svg.append(element("text", { x: at + wide / 2, y: 78, class: "middle" }, `${(100 * part.value / all).toFixed(1)} %`));
        const middle = at + wide / 2;
        box.addEventListener("pointermove", () => say(middle, 20, [part.name, `${format(part.value)} bits, ${(100 * part.value / all).toFixed(1)} %`]));
        at += wide;
      });
      svg.addEventListener("pointerleave", () => { tip.hidden = true; });
      return;
    }

    const drawn = chart.series.filter((s) => !s.told), scale = chart.x.log ? Math.log10 : (x) => x;
    const X = range(drawn.flatMap(xs).filter((x) => x > 0 || !chart.x.log).map(scale), chart.x.range);
    const Y = range([...drawn.flatMap(ys), ...chart.guides.map((g) => g.y)], chart.y.range);
    const px = (x) => edge.left + (scale(x) - X[0]) / (X[1] - X[0]) * (width - edge.left - edge.right);
    const py = (y) => height - edge.bottom - (y - Y[0]) / (Y[1] - Y[0]) * (height - edge.top - edge.bottom);
    const right = width - edge.right, bottom = height - edge.bottom;
    for (const y of ticks(...Y, 5)) {
      svg.append(element("line", { x1: edge.left, x2: right, y1: py(y), y2: py(y), class: "grid" }));
      svg.append(element("text", { x: edge.left - 8, y: py(y) + 4, class: "end" }, format(y)));
    }
    const marks = chart.x.log ? [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12].flatMap((p) => [1, 3].map((m) => m * 10 ** p)) : ticks(...X, Math.max(3, width / 110));
    for (const x of marks) {
      if (px(x) > right + 1 || px(x) < edge.left - 1) continue;
      svg.append(element("line", { x1: px(x), x2: px(x), y1: bottom, y2: bottom + 5, class: "axis" }));
      svg.append(element("text", { x: px(x), y: bottom + 19, class: "middle" }, format(x)));
    }
    svg.append(element("line", { x1: edge.left, x2: right, y1: bottom, y2: bottom, class: "axis" }));
    svg.append(element("text", { x: (edge.left + right) / 2, y: height - 6, class: "middle label" }, chart.x.label));
    for (const guide of chart.guides) {
      svg.append(element("line", { x1: edge.left, x2: right, y1: py(guide.y), y2: py(guide.y), class: "guide" }));
      svg.append(element("text", { x: right - 4, y: py(guide.y) - 5, class: "end" }, guide.name));
    }
    chart.series.forEach((s, i) => {
      const colour = (s.colour ?? i) % 7;
      if (s.told) return;
      if (s.bars) {
        for (const [x0, x1, y0, y1] of s.bars)
          svg.append(element("rect", { x: px(x0) + 1, width: Math.max(1, px(x1) - px(x0) - 2), y: py(y1), height: Math.max(0, py(y0) - py(y1)), class: `fill s${colour}` }));
        return;
      }
      if (s.low && s.line) {
        const up = s.x.map((x, j) => `${px(x)},${py(s.high[j])}`), down = s.x.map((x, j) => `${px(x)},${py(s.low[j])}`).reverse();
        svg.append(element("polygon", { points: [...up, ...down].join(" "), class: `band s${colour}` }));
      }
      if (s.line) {
        let pen = false;
        const path = s.x.map((x, j) => { if (s.y[j] === null) { pen = false; return ""; } const to = pen ? "L" : "M"; pen = true; return `${to}${px(x).toFixed(1)},${py(s.y[j]).toFixed(1)}`; });
        svg.append(element("path", { d: path.join(""), class: `line s${colour} dash${i % 4}` }));
      }
      if (!s.line || s.x.length <= 40)
        s.x.forEach((x, j) => {
          if (s.y[j] === null) return;
          if (s.low && !s.line) svg.append(element("line", { x1: px(x), x2: px(x), y1: py(s.low[j]), y2: py(s.high[j]), class: `line s${colour}` }));
          if (s.left && !s.line) svg.append(element("line", { x1: px(s.left[j]), x2: px(s.right[j]), y1: py(s.y[j]), y2: py(s.y[j]), class: `line s${colour}` }));
          svg.append(mark(i, px(x), py(s.y[j]), s.line ? 3 : chart.diagonal ? 4 : 5.5, { class: `fill s${colour}` }));
        });
    });
    if (chart.diagonal) svg.append(element("line", { x1: px(X[0]), y1: py(Y[0]), x2: px(X[1]), y2: py(Y[1]), class: "guide over" }));

    const cross = element("line", { y1: edge.top, y2: bottom, class: "cross", visibility: "hidden" });
    const dots = element("g", {});
    svg.append(cross, dots);
    const stops = [];  // where the mouse can rest: x, y and what is said there
    if (chart.hover === "nearest")
      drawn.forEach((s) => s.x.forEach((x, j) => s.y[j] !== null && stops.push({ x: px(x), y: py(s.y[j]), lines: [s.name, `${chart.x.label}: ${format(x)}`, `${chart.y.label}: ${format(s.y[j])}`] })));
    else {
      const at = new Map(), heights = new Map();
      for (const s of chart.series)
        if (s.bars) for (const [x0, x1, y0, y1] of s.bars) {
          const key = (x0 + x1) / 2, lines = at.get(key) ?? [`${chart.x.label}: ${format(x0)} to ${format(x1)}`];
          at.set(key, [...lines, `${s.name}: ${format(y1 - y0)}`]);
        }
      const binned = at.size > 0;
      for (const s of chart.series)
        if (!s.bars) s.x.forEach((x, j) => {
          if (s.y[j] === null) return;
          let key = x;
          if (binned) { for (const k of at.keys()) if (Math.abs(k - x) <= Math.abs(key - x) || key === x) key = k; }
          const lines = at.get(key) ?? [`${chart.x.label}: ${format(x)}`];
          at.set(key, [...lines, `${s.name}: ${format(s.y[j])}` + (s.low && s.low[j] !== s.high[j] ? ` (${format(s.low[j])} to ${format(s.high[j])})` : "")]);
          heights.set(key, [...(heights.get(key) ?? []), [py(s.y[j]), (s.colour ?? chart.series.indexOf(s)) % 7]]);
        });
      for (const [x, lines] of [...at].sort((a, b) => a[0] - b[0])) stops.push({ x: px(x), y: null, lines, dots: binned ? [] : heights.get(x) ?? [] });
    }
    let now = -1;
    const rest = (i) => {
      now = Math.max(0, Math.min(stops.length - 1, i));
      const stop = stops[now];
      if (!stop) return;
      cross.setAttribute("x1", stop.x); cross.setAttribute("x2", stop.x); cross.setAttribute("visibility", "visible");
      dots.replaceChildren(...(stop.dots ?? []).map(([y, colour]) => element("circle", { cx: stop.x, cy: y, r: 5, class: `fill s${colour}` })));
      const tops = (stop.dots ?? []).map(([y]) => y);
      if (stop.y === null && tops.length && Math.min(...tops) < height / 2) say(stop.x, bottom + 8, stop.lines);  // under the lines
      else say(stop.x, stop.y ?? (tops.length ? Math.min(...tops) : edge.top + 60), stop.lines);
    };
    const leave = () => { now = -1; tip.hidden = true; dots.replaceChildren(); cross.setAttribute("visibility", "hidden"); };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const x = (event.clientX - box.left) * width / box.width, y = (event.clientY - box.top) * height / box.height;
      let best = 0, least = Infinity;
      stops.forEach((s, i) => { const far = s.y === null ? Math.abs(s.x - x) : Math.hypot(s.x - x, s.y - y); if (far < least) [best, least] = [i, far]; });
      rest(best);
    });
    svg.addEventListener("pointerleave", leave);
    svg.addEventListener("blur", leave);
    svg.addEventListener("keydown", (event) => {
      if (event.key === "ArrowRight" || event.key === "ArrowLeft") { rest(now + (event.key === "ArrowRight" ? 1 : -1)); event.preventDefault(); }
      if (event.key === "Escape") leave();
    });
  }

  function legend(chart) {
    const names = chart.parts ? chart.parts.map((p, i) => [`${p.name} (${format(Math.round(p.value))})`, `s${i}${p.empty ? " empty" : ""}`, -1])
      : chart.series.filter((s) => !s.told).map((s) => [s.name, `s${(s.colour ?? chart.series.indexOf(s)) % 7}`, s.bars ? -1 : chart.series.indexOf(s)]);
    if (names.length < 2 && !chart.parts) return [];
    return [element("ul", { class: "legend" }, names.map(([name, colour, shape]) => {
      const key = element("svg", { width: 14, height: 14, "aria-hidden": "true" });
      key.append(shape < 0 ? element("rect", { x: 1, y: 1, width: 12, height: 12, rx: 2, class: `fill ${colour}` }) : mark(shape, 7, 7, 5, { class: `fill ${colour}` }));
      return element("li", {}, [key, name]);
    }))];
  }

  // The numbers behind a chart, for those who cannot or do not want to see it.
  function table(chart) {
    const rows = chart.parts ? chart.parts.map((p) => [p.name, format(p.value)])
      : chart.series.flatMap((s) => s.bars ? s.bars.map(([x0, x1, y0, y1]) => [s.name, `${format(x0)} to ${format(x1)}`, format(y1 - y0)])
        : s.x.map((x, j) => [s.name, format(x), format(s.y[j])]));
    const head = chart.parts ? ["part", "bits"] : ["series", chart.x.label, chart.y.label];
    const step = Math.max(1, Math.ceil(rows.length / 60));
    return element("div", { class: "scroll" }, element("table", {}, [
      element("thead", {}, element("tr", {}, head.map((h) => element("th", { scope: "col" }, h)))),
      element("tbody", {}, rows.filter((_, i) => i % step === 0 || i === rows.length - 1).map((row) => element("tr", {}, row.map((cell) => element("td", {}, cell))))),
    ]));
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const places = charts.map((chart) => [chart, document.getElementById(chart.id)]);
  for (const [chart, figure] of places) {
    const plot = element("div", { class: "plot" });
    const details = element("details", { class: "numbers" }, element("summary", {}, "Numbers"));
    details.addEventListener("toggle", () => { if (details.open && details.children.length === 1) details.append(table(chart)); });
    figure.append(plot, ...legend(chart), details);
  }
  const redraw = () => { for (const [chart, figure] of places) draw(chart, figure.querySelector(".plot")); };
  redraw();
  let width = innerWidth, waiting;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; clearTimeout(waiting); waiting = setTimeout(redraw, 80); } });
  const opened = [];
  addEventListener("beforeprint", () => { for (const d of document.querySelectorAll("details:not(.numbers):not([open])")) { d.open = true; opened.push(d); } redraw(); });
  addEventListener("afterprint", () => { for (const d of opened.splice(0)) d.open = false; redraw(); });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
})();
