// The ring: who stands where, whose turn it is, who chose whom in the last rounds.

import { byId, svg } from "./dom.js";

const KEPT = 5; // rounds whose choices are drawn, the older the fainter
const MOST_LABELS = 60;
const OWN = -1;
export const ABSENT = -2;

// Places of all nodes, clockwise from the top; several rings stand on a circle.
function layout(rings, count) {
  const points = new Array(count);
  const many = rings.length > 1;
  const size = many ? Math.min(0.36, 0.5 * Math.sin(Math.PI / rings.length)) : 1;
  const circles = rings.map((ring, number) => {
    const at = (2 * Math.PI * number) / rings.length - Math.PI / 2;
    const x = many ? 0.74 * Math.cos(at) : 0;
    const y = many ? 0.74 * Math.sin(at) : 0;
    ring.forEach((place, step) => {
      const angle = (2 * Math.PI * step) / ring.length - Math.PI / 2;
      points[place] = {
        x: x + size * Math.cos(angle),
        y: y + size * Math.sin(angle),
        angle,
        cx: x,
        cy: y,
        size,
      };
    });
    return { x, y, size };
  });
  return { points, circles };
}

// A curve that stays near the rim between neighbours and dips where the way is long.
function curve(a, b) {
  const middle = { x: (a.cx + b.cx) / 2, y: (a.cy + b.cy) / 2 };
  const far = Math.hypot(a.x - b.x, a.y - b.y) / 2;
  const pull = 1 - Math.min(0.85, 0.15 + 0.6 * far);
  const x = middle.x + ((a.x + b.x) / 2 - middle.x) * pull;
  const y = middle.y + ((a.y + b.y) / 2 - middle.y) * pull;
  const at = (x, y) => `${x.toFixed(3)} ${y.toFixed(3)}`;
  return `M${at(a.x, a.y)}Q${at(x, y)} ${at(b.x, b.y)}`;
}

export class Ring {
  constructor(pick) {
    this.root = byId("ring");
    this.pick = pick;
    this.drawn = "";
  }

  // Anew: another run, or the same from its beginning.
  begin(told) {
    this.told = told;
    this.drawn = "";
    this.root.replaceChildren();
    if (told.summary) return this.beginSummary(told);
    const count = told.names.length;
    const { points, circles } = layout(told.rings, count);
    this.points = points;
    this.lies = new Set(told.byzantine);
    for (const { x, y, size } of circles)
      this.root.append(svg("circle", { class: "rim", cx: x, cy: y, r: size }));
    this.edges = [];
    for (let age = KEPT - 1; age >= 0; age -= 1) {
      for (const kind of ["honest", "lie"]) {
        const path = svg("path", { class: `edge ${kind} age${age}` });
        this.root.append(path);
        this.edges.push({ path, age, kind });
      }
    }
    this.now = svg("path", { class: "edge now" });
    this.halo = svg("circle", { class: "halo", r: 0, visibility: "hidden" });
    this.root.append(this.now, this.halo);
    const r = Math.max(
      0.007,
      Math.min(
        0.062,
        ((told.rings.length > 1 ? 1.4 : 2.1) * circles[0].size) / (count / told.rings.length),
      ),
    );
    this.root.style.setProperty("--r", `${r}px`);
    this.root.style.setProperty("--w", Math.max(0.35, Math.min(1, 45 / count)));
    this.halo.setAttribute("r", (r * 1.75).toFixed(4));
    this.nodes = points.map((point, place) => this.node(point, place, r, count));
    return undefined;
  }

  node(point, place, r, count) {
    const group = svg("g", {
      class: "node",
      transform: `translate(${point.x.toFixed(4)} ${point.y.toFixed(4)})`,
    });
    const side = r * 1.7;
    const arm = r * 0.6;
    const shapes = [
      svg("circle", { class: "dot", r }),
      svg("rect", {
        class: "diamond",
        x: -side / 2,
        y: -side / 2,
        width: side,
        height: side,
        transform: "rotate(45)",
      }),
      svg("path", {
        class: "cross",
        d: `M${-arm} ${-arm}L${arm} ${arm}M${arm} ${-arm}L${-arm} ${arm}`,
      }),
    ];
    group.append(...shapes);
    if (count <= MOST_LABELS) {
      const out = r * 1.75 + 0.05; // beyond the halo
      const label = svg("text", {
        x: out * Math.cos(point.angle),
        y: out * Math.sin(point.angle),
        class: "label",
      });
      label.textContent = this.told.names[place].slice(0, 6);
      group.append(label);
    }
    group.append(svg("title"));
    group.lastChild.textContent = `node ${this.told.names[place]}`;
    group.addEventListener("click", () => this.pick(place));
    this.root.append(group);
    return group;
  }

  // states: of each place a word; k, t: the round, and how many have taken their turn in it.
  draw(choices, k, t, states, picked, turn) {
    if (this.told.summary) return this.drawSummary(choices, k);
    const row = choices.get(k);
    for (const { path, age, kind } of this.edges) {
      const then = choices.get(k - age);
      const until = age === 0 ? t : this.points.length;
      const key = `${k - age} ${then ? 1 : 0} ${until} ${picked}`;
      if (path.drawn !== key) {
        path.drawn = key;
        path.setAttribute("d", then ? this.lines(then, kind, until, picked) : "");
      }
    }
    this.nodes.forEach((node, place) => {
      const lies = this.lies.has(place) ? " lies" : "";
      const name = `node ${states[place]}${lies}${picked === place ? " picked" : ""}`;
      if (node.getAttribute("class") !== name) node.setAttribute("class", name);
    });
    const at = turn >= 0 ? turn : row && t < this.points.length ? t : -1;
    this.halo.setAttribute("visibility", at < 0 ? "hidden" : "visible");
    if (at >= 0) {
      this.halo.setAttribute("cx", this.points[at].x.toFixed(4));
      this.halo.setAttribute("cy", this.points[at].y.toFixed(4));
    }
    const last = row && t > 0 && t < this.points.length && !this.lies.has(t - 1) ? row[t - 1] : OWN;
    this.now.setAttribute("d", last >= 0 ? curve(this.points[last], this.points[t - 1]) : "");
    this.now.classList.toggle("lie", last >= 0 && this.lies.has(last));
    return undefined;
  }

  // The choices of benign nodes: those of Byzantine nodes say nothing.
  lines(row, kind, until, picked) {
    let d = "";
    for (let place = 0; place < until; place += 1) {
      const chosen = row[place];
      if (chosen < 0 || this.lies.has(place)) continue;
      if (picked >= 0 && picked !== place && picked !== chosen) continue;
      if (this.lies.has(chosen) === (kind === "lie"))
        d += curve(this.points[chosen], this.points[place]);
    }
    return d;
  }

  // Thousands of nodes: arcs of many each, and how often one arc chose from another.
  beginSummary(told) {
    const count = told.arcs.length;
    this.arcs = told.arcs.map((share, number) => {
      const from = (2 * Math.PI * (number + 0.06)) / count - Math.PI / 2;
      const to = (2 * Math.PI * (number + 0.94)) / count - Math.PI / 2;
      const at = (angle, r) =>
        `${(r * Math.cos(angle)).toFixed(3)} ${(r * Math.sin(angle)).toFixed(3)}`;
      const d = (r0, r1) =>
        `M${at(from, r0)}A${r0} ${r0} 0 0 1 ${at(to, r0)}` +
        `L${at(to, r1)}A${r1} ${r1} 0 0 0 ${at(from, r1)}Z`;
      const cut = 1.12 - 0.12 * share;
      this.root.append(svg("path", { class: "arc honest", d: d(1, cut) }));
      if (share > 0) this.root.append(svg("path", { class: "arc lie", d: d(cut, 1.12) }));
      const angle = (from + to) / 2;
      return { x: 0.98 * Math.cos(angle), y: 0.98 * Math.sin(angle), angle, cx: 0, cy: 0 };
    });
    this.chords = svg("g");
    this.root.append(
      this.chords,
      svg("text", { class: "middle", y: -0.04 }, `${told.nodes.toLocaleString("en")} nodes`),
    );
    this.said = svg("text", { class: "middle small", y: 0.08 });
    this.root.append(this.said);
  }

  drawSummary(choices, k) {
    const found = choices.get(k);
    const key = `${k} ${found ? 1 : 0}`;
    if (this.drawn === key) return;
    this.drawn = key;
    const edges = (found ? found.edges : []).filter(([from, to]) => from !== to);
    this.said.textContent = found
      ? `${found.believed} of ${found.chose} chose a Byzantine model`
      : "";
    const most = Math.max(1, ...edges.map((edge) => edge[3]));
    const paths = edges.map(([from, to, lie, count]) =>
      svg("path", {
        class: `chord ${lie ? "lie" : "honest"}`,
        d: curve(this.arcs[from], this.arcs[to]),
        "stroke-width": (0.004 + (0.024 * count) / most).toFixed(4),
        "stroke-opacity": 0.35 + (0.5 * count) / most,
      }),
    );
    this.chords.replaceChildren(...paths);
  }
}
