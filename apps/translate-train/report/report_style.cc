// What the page looks like, and the script that reads values off its curves. Everything but those
// values works without the script: runs and axes are switched by CSS.
#include "report/report_page.h"

namespace translate_train {

// Colours c0 to c7 are told apart by people with the usual kinds of colour blindness (after Okabe
// and Ito) and have a contrast of at least 3:1 with the card they are drawn on, light or dark.
const char* const kReportStyle = R"css(
:root{color-scheme:light dark;--page:#f5f5f2;--card:#fff;--text:#1a1e23;--soft:#59626d;
--line:#dfe1e5;--grid:#ebecef;--accent:#0062a6;--good:#00734f;--warm:#8f5200;--top:#e9f3ee;
--c0:#0068b0;--c1:#c64a00;--c2:#00825d;--c3:#a8478e;--c4:#8a6d00;--c5:#2b8cbe;--c6:#5f6670;
--c7:#7a4fd0}
@media(prefers-color-scheme:dark){:root{--page:#121519;--card:#1b1f25;--text:#e7e9ec;--soft:#a2abb6;
--line:#323942;--grid:#292f37;--accent:#7cc0f4;--good:#5fd6ab;--warm:#f0b35a;--top:#1d3029;
--c0:#5fb2f2;--c1:#ff9352;--c2:#45d0a4;--c3:#e79bcd;--c4:#e3c04a;--c5:#a5dcf7;--c6:#b4bcc6;
--c7:#b59cff}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:84rem;padding:clamp(1rem,4vw,2.5rem);background:var(--page);
color:var(--text);font:1rem/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;
-webkit-text-size-adjust:100%}
h1,h2,h3,p,dl,dd,figure,fieldset{margin:0;padding:0}
h1{font-size:clamp(1.6rem,4vw,2.2rem);line-height:1.2;font-weight:650;letter-spacing:-.015em;
overflow-wrap:anywhere}
h2{font-size:1.2rem;font-weight:650;margin:2.75rem 0 .75rem}
h3{font-size:1rem;font-weight:600}
small{font-size:.8125rem;color:var(--soft)}
.kind{font-size:.8125rem;font-weight:600;color:var(--accent);margin-bottom:.15rem}
.facts{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin-top:.5rem;color:var(--soft);
font-size:.9375rem}
.note{color:var(--soft);font-size:.9375rem;margin-bottom:.9rem;max-width:46rem}
main>section:first-child{margin-top:1.5rem}
.state{color:var(--text);font-weight:600;white-space:nowrap}
.state::before{content:"";display:inline-block;width:.6em;height:.6em;border-radius:50%;
margin-right:.45em;background:var(--soft)}
.state.done::before{background:var(--good)}
.state.running::before{background:var(--accent)}
.state.failed::before{background:none;border:.14em solid var(--c1);border-radius:0;rotate:45deg}
.state.paused::before{background:none;border:2px solid var(--warm)}
.tiles{display:grid;grid-template-columns:repeat(5,1fr);gap:1px;
background:var(--line);border:1px solid var(--line);border-radius:.75rem;overflow:hidden}
.tiles>div{background:var(--card);padding:.85rem 1.1rem 1rem}
.tiles dt{color:var(--soft);font-size:.8125rem}
.tiles b{display:block;font-size:1.45rem;font-weight:600;line-height:1.25;letter-spacing:-.01em;
font-variant-numeric:tabular-nums}
.tiles small{display:block;min-height:1.5em}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:.75rem}
table{border-collapse:collapse;width:100%}
.figures td,.figures th,.differences td,.differences th{padding:.5rem 1.1rem;text-align:left;
vertical-align:baseline;border-top:1px solid var(--grid)}
.figures thead>tr>*,.differences thead>tr>*{border-top:0;padding-top:.8rem}
.figures th[scope=row],.differences th[scope=row]{font-weight:400;color:var(--soft);
font-size:.9375rem;position:sticky;left:0;background:var(--card)}
.figures th small{margin-left:.35rem}
@media(min-width:48rem){.figures th[scope=row]{white-space:nowrap}}
.figures td{min-width:12rem}
.figures .state{white-space:normal}
.figures b{font-weight:600;font-variant-numeric:tabular-nums}
.figures b+small{margin-left:.35rem}
.top{background:var(--top)}
.top b::after{content:" \2605";color:var(--good);font-size:.75em;vertical-align:.1em}
.differences td{min-width:8rem;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
.changed{font-weight:600;background:var(--top)}
.none{color:var(--soft)}
.run{display:inline-flex;align-items:baseline;gap:.45rem;font-weight:600;overflow-wrap:anywhere}
.spot{flex:none;display:inline-block;width:.7em;height:.7em;border-radius:.2em;
background:var(--c,var(--soft))}
.controls{position:sticky;top:0;z-index:2;display:flex;flex-wrap:wrap;gap:.35rem 2rem;
padding:.6rem 0;margin-bottom:.4rem;background:var(--page)}
fieldset{border:0;display:flex;flex-wrap:wrap;align-items:center;gap:.25rem 1rem;min-width:0}
legend{float:left;padding:0;margin-right:1rem;color:var(--soft);font-size:.875rem}
label{display:inline-flex;align-items:center;gap:.4rem;font-size:.875rem;min-height:1.75rem;
cursor:pointer}
label .run{font-weight:400}
input{accent-color:var(--accent);margin:0;width:1rem;height:1rem}
.charts{display:grid;gap:1rem;grid-template-columns:repeat(12,1fr)}
figure{grid-column:span 3;min-width:0;background:var(--card);border:1px solid var(--line);
border-radius:.75rem;padding:.85rem 1rem .5rem;container-type:inline-size}
figure[data-chart=loss],figure[data-chart=bleu],figure[data-chart=chrf]{grid-column:span 4}
@media(max-width:56rem){.tiles{grid-template-columns:1fr 1fr}}
@media(max-width:68rem){figure[data-chart]{grid-column:span 6}figure[data-chart=loss]{
grid-column:span 12}}
@media(max-width:44rem){figure[data-chart]{grid-column:span 12}}
figcaption{display:flex;flex-wrap:wrap;align-items:baseline;gap:0 .6rem;min-height:3.1rem;
align-content:flex-start}
.unit{color:var(--soft);font-size:.8125rem}
.key{display:flex;gap:1rem;flex-basis:100%;font-size:.8125rem;color:var(--soft)}
.key>span{display:inline-flex;align-items:center;gap:.4rem}
.key svg{width:26px;height:8px}
figure>svg{display:none;width:100%;height:auto;overflow:visible;touch-action:pan-y}
body:has(#axis-u:checked) .axis-u,body:has(#axis-t:checked) .axis-t,
body:has(#axis-s:checked) .axis-s{display:block}
svg:focus-visible,.scroll:focus-visible,input:focus-visible,summary:focus-visible{
outline:2px solid var(--accent);outline-offset:3px;border-radius:4px}
svg text{fill:var(--soft);font-size:12px;font-variant-numeric:tabular-nums}
@container(max-width:26rem){svg text{font-size:14.5px}}
@container(max-width:20rem){svg text{font-size:18px}}
@container(min-width:38rem){svg text{font-size:9.5px}}
svg .value{fill:var(--text);font-weight:600}
.grid{stroke:var(--grid);fill:none;vector-effect:non-scaling-stroke}
.base{stroke:var(--soft);fill:none;vector-effect:non-scaling-stroke;opacity:.6}
.mark{stroke:var(--soft);stroke-dasharray:2 4;fill:none;vector-effect:non-scaling-stroke}
.line,.sample path{fill:none;stroke:var(--c);stroke-width:1.9;stroke-linejoin:round;
stroke-linecap:round;vector-effect:non-scaling-stroke}
.second .line,.sample.second path{stroke-dasharray:5 4}
.band{fill:var(--c);opacity:.18}
.dots>*{fill:var(--c);stroke:var(--card);stroke-width:1;vector-effect:non-scaling-stroke}
.best{fill:none;stroke:var(--c);stroke-width:1.6;vector-effect:non-scaling-stroke}
.cursor path{stroke:var(--soft);fill:none;vector-effect:non-scaling-stroke}
.cursor circle{fill:var(--c);stroke:var(--card);stroke-width:1.5;vector-effect:non-scaling-stroke}
.c0{--c:var(--c0)}.c1{--c:var(--c1)}.c2{--c:var(--c2)}.c3{--c:var(--c3)}.c4{--c:var(--c4)}
.c5{--c:var(--c5)}.c6{--c:var(--c6)}.c7{--c:var(--c7)}.c-any{--c:var(--soft)}
#tip{position:fixed;z-index:3;pointer-events:none;background:var(--card);color:var(--text);
border:1px solid var(--line);border-radius:.5rem;padding:.45rem .7rem;font-size:.8125rem;
box-shadow:0 4px 16px rgb(0 0 0/.16);max-width:19rem;font-variant-numeric:tabular-nums}
#tip div{display:flex;align-items:baseline;gap:.45rem}
#tip div b{margin-left:auto;padding-left:1rem;font-weight:600}
#tip .at{color:var(--soft)}
#tip bdi{overflow-wrap:anywhere}
.samples{display:grid;gap:1rem;align-items:start;grid-template-columns:repeat(auto-fill,minmax(min(100%,34rem),1fr))}
article{background:var(--card);border:1px solid var(--line);border-radius:.75rem;overflow:hidden}
article dl{padding:.85rem 1.1rem .8rem;display:grid;grid-template-columns:auto 1fr;gap:.15rem .9rem}
article dt{color:var(--soft);font-size:.8125rem;line-height:1.5rem}
article dd{overflow-wrap:anywhere}
article td,article th{padding:.4rem 1.1rem;border-top:1px solid var(--grid);text-align:left;
vertical-align:baseline;font-weight:400;overflow-wrap:anywhere}
article th{width:10.5rem;padding-right:0;font-size:.8125rem;color:var(--soft);
font-variant-numeric:tabular-nums}
article th[scope=rowgroup]{width:auto;color:var(--text);font-size:.875rem;padding-top:.6rem}
article [scope=rowgroup] .run{font-weight:600}
article tr:has([scope=rowgroup])+tr>*{border-top:0}
article th small{display:block;font-size:.75rem}
.other{color:var(--soft);text-decoration:underline dotted;text-underline-offset:.22em;
text-decoration-thickness:1.5px}
.badge{display:inline-block;margin-left:.5rem;padding:0 .45rem;border:1px solid currentColor;
border-radius:1rem;font-size:.6875rem;line-height:1.35;color:var(--accent);white-space:nowrap;
vertical-align:.08em}
.badge.exact{color:var(--good)}
.settings{background:var(--card);border:1px solid var(--line);border-radius:.75rem;
padding:.6rem 1.1rem;columns:22rem;column-gap:2.5rem;column-rule:1px solid var(--grid)}
.settings>div{display:flex;justify-content:space-between;gap:1.25rem;padding:.28rem 0;
break-inside:avoid;font-size:.9375rem}
.settings dt{color:var(--soft);white-space:nowrap}
.settings dd{text-align:right;overflow-wrap:anywhere;font-variant-numeric:tabular-nums}
#settings~h3{margin:0 0 .5rem;font-size:.9375rem;font-weight:400;color:var(--soft)}
details{margin-top:1rem}
summary{cursor:pointer;padding:.4rem 0;color:var(--accent);font-size:.9375rem}
details dl{margin-top:.4rem}
footer{margin-top:3rem;color:var(--soft);font-size:.8125rem}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
@media(max-width:36rem){.tiles>div{padding:.7rem .85rem}
.tiles b{font-size:1.2rem}.figures td,.figures th,.differences td,.differences th{
padding:.45rem .7rem}.figures td{min-width:8.5rem}.figures b+small,.figures th small{display:block;margin:0}.state{white-space:normal}
.figures th[scope=row]{white-space:normal;max-width:6.5rem}
article tr{display:block;border-top:1px solid var(--grid);padding:.45rem 0}
article td,article th{display:block;width:auto;border:0;padding:0 1.1rem}
article th small{display:inline;margin-left:.5rem}.controls{position:static}
figcaption{min-height:0}}
@media print{body{background:none;padding:0}.controls{display:none}figure,article{break-inside:avoid}}
)css";

const char* const kReportScript = R"js(
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
)js";

}  // namespace translate_train
