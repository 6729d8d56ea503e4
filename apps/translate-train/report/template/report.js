/* Reads values off the curves. Everything else works without it: runs and axes are switched by CSS. */
(() => {
  const store = document.getElementById("data");
  if (!store) return;
  const data = JSON.parse(store.textContent);
  const tip = document.getElementById("tip"), said = document.getElementById("said");
  const left = 54, right = 468, top = 14, bottom = 226, width = 480;
  const names = ["update", "target tokens", "time"];
  const number = v => v !== 0 && Math.abs(v) < 1e-3 ? v.toExponential(2)
      : v.toLocaleString("en", {maximumSignificantDigits: Math.abs(v) < 1e4 ? 4 : 6});
  const clock = s => s < 60 ? s.toFixed(0) + " s" : s < 3600
      ? Math.floor(s / 60) + " min " + String(Math.floor(s % 60)).padStart(2, "0") + " s"
      : Math.floor(s / 3600) + " h " + String(Math.floor(s / 60 % 60)).padStart(2, "0") + " min";
  const where = (axis, x) => names[axis] + " " + (axis === 2 ? clock(x) : number(Math.round(x)));
  const make = (name, parent, text) => {
    const element = document.createElement(name);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const shown = run => {
    const box = document.getElementById("run-" + run);
    return !box || box.checked;
  };
  /* The point nearest to x that has a value. */
  const nearest = (series, axis, x) => {
    const xs = series.x[axis];
    let best = -1;
    for (let i = 0; i < xs.length; ++i)
      if (xs[i] !== null && series.y[i] !== null &&
          (best < 0 || Math.abs(xs[i] - x) < Math.abs(xs[best] - x))) best = i;
    return best;
  };
  for (const figure of document.querySelectorAll("figure[data-chart]")) {
    const chart = data.charts[figure.dataset.chart];
    for (const svg of figure.querySelectorAll("svg[data-axis]")) {
      const axis = +svg.dataset.axis, end = +svg.dataset.end, log = svg.dataset.log === "1";
      const place = v => log ? Math.log(v) : v;
      const low = place(+svg.dataset.low), high = place(+svg.dataset.high);
      const px = x => left + x / end * (right - left);
      const py = y => bottom + (place(y) - low) / (high - low) * (top - bottom);
      const cursor = svg.querySelector(".cursor");
      let current = null;
      const hide = () => { tip.hidden = true; cursor.replaceChildren(); };
      const show = wanted => {
        const found = chart.filter(s => shown(s.run)).map(s => [s, nearest(s, axis, wanted)])
            .filter(([, i]) => i >= 0);
        if (!found.length) return hide();
        const xs = found.map(([s, i]) => s.x[axis][i]);
        const x = xs.reduce((a, b) => Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a);
        current = x;
        const shape = (name, attributes) => {
          const element = document.createElementNS("http://www.w3.org/2000/svg", name);
          for (const key in attributes) element.setAttribute(key, attributes[key]);
          cursor.append(element);
        };
        cursor.replaceChildren();
        tip.replaceChildren();
        shape("path", {d: `M${px(x)} ${top}V${bottom}`});
        make("div", tip, where(axis, x)).className = "at";
        let text = where(axis, x);
        for (const [series, i] of found) {
          /* A run that ended long before has no value here. */
          if (Math.abs(series.x[axis][i] - x) > end / 25) continue;
          shape("circle", {cx: px(series.x[axis][i]), cy: py(series.y[i]), r: 4,
                           class: "c" + series.color});
          const row = make("div", tip);
          row.className = "c" + series.color;
          make("span", row).className = "spot";
          make("bdi", row, series.label);
          make("b", row, number(series.y[i]));
          text += ", " + series.label + " " + number(series.y[i]);
        }
        tip.hidden = false;
        const box = svg.getBoundingClientRect(), at = box.left + px(x) / width * box.width;
        const after = at + 16 + tip.offsetWidth < innerWidth;
        tip.style.left = Math.max(8, after ? at + 14 : at - 14 - tip.offsetWidth) + "px";
        tip.style.top = Math.max(8, box.top + box.height * .12) + "px";
        return text;
      };
      svg.addEventListener("pointermove", event => {
        const box = svg.getBoundingClientRect();
        show(((event.clientX - box.left) / box.width * width - left) / (right - left) * end);
      });
      svg.addEventListener("pointerleave", hide);
      svg.addEventListener("blur", hide);
      svg.addEventListener("keydown", event => {
        if (event.key === "Escape") return hide();
        const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
        if (!way) return;
        event.preventDefault();
        const all = [...new Set(chart.filter(s => shown(s.run)).flatMap(
            s => s.x[axis].filter((x, i) => x !== null && s.y[i] !== null)))].sort((a, b) => a - b);
        if (!all.length) return;
        const at = current === null ? -1 : all.findIndex(x => x >= current);
        said.textContent = show(all[Math.min(all.length - 1, Math.max(0, at + way))]);
      });
    }
  }
})();
