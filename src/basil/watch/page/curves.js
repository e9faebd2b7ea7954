// Curves that grow: one card each, with its latest value.

import { amount, byId, html, percent, say, seconds, svg } from "./dom.js";

const WIDTH = 340;
const HEIGHT = 130;
const LEFT = 44;
const BOTTOM = 20;
const TOP = 8;

const short = (text) => text.replace(/\.0+(?= )/, ""); // 50.0 s -> 50 s
const size = (value) => (value ? short(amount(value)) : "0");
const time = (value) => (value ? short(seconds(value)) : "0");
const number = (value) => Number(value.toPrecision(3)).toString();

// Which curves a run has, from what was measured.
function kinds(points, metrics) {
  const last = points[points.length - 1];
  const pair = (name) => [
    { name: "worst", of: (p) => p[name]?.worst },
    { name: "mean", of: (p) => p[name]?.mean, faint: true },
  ];
  const found = [];
  if (points.some((p) => typeof p.accuracy?.worst === "number")) {
    found.push({
      title: "Test accuracy",
      lines: pair("accuracy"),
      show: percent,
      tick: (v) => `${Math.round(100 * v)} %`,
      share: true,
    });
  }
  found.push({ title: "Test loss", lines: pair("loss"), show: number, tick: number });
  for (const name of Object.keys(metrics))
    found.push({ title: name, lines: pair(name), show: number, tick: number });
  if (last.attack_success) {
    const lines = [{ name: "worst", of: (p) => p.attack_success?.worst, lie: true }];
    found.push({
      title: "Attack success",
      lines,
      show: percent,
      tick: (v) => `${Math.round(100 * v)} %`,
      share: true,
    });
  }
  found.push({
    title: "Sent",
    lines: [{ name: "so far", of: (p) => p.bytes }],
    show: amount,
    tick: size,
    zero: true,
  });
  const times = [{ name: "real", of: (p) => p.seconds }];
  if (last.virtual_seconds > 0)
    times.push({ name: "virtual", of: (p) => p.virtual_seconds, faint: true });
  found.push({ title: "Time", lines: times, show: seconds, tick: time, zero: true });
  return found;
}

function ticks(low, high, most) {
  const raw = (high - low) / most || 1;
  const ten = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].map((f) => f * ten).find((s) => s >= raw * 0.999);
  if (Math.floor(high / step) - Math.ceil(low / step) < 1) step /= 2; // one alone says little
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step)
    found.push(v);
  return found;
}

// A line through points, with a gap where one has no finite value.
function joined(points, y) {
  let d = "";
  let pen = "M";
  for (const [x, value] of points) {
    if (typeof value === "number") d += `${pen}${x.toFixed(1)} ${y(value).toFixed(1)}`;
    pen = typeof value === "number" ? "L" : "M";
  }
  return d;
}

export class Curves {
  constructor() {
    this.root = byId("curves");
    this.begin({ metrics: {} });
  }

  begin(told) {
    this.metrics = told.metrics || {};
    this.rounds = told.rounds || 0;
    this.points = [];
    this.cards = new Map();
    this.root.replaceChildren();
  }

  add(points) {
    this.points.push(...points);
  }

  draw(k) {
    if (!this.points.length) return;
    const shown = kinds(this.points, this.metrics);
    for (const kind of shown) {
      if (!this.cards.has(kind.title)) this.cards.set(kind.title, this.card(kind));
      this.drawCard(kind, this.cards.get(kind.title), k);
    }
    const order = shown.map((kind) => this.cards.get(kind.title).root);
    order.forEach((card, place) => {
      if (this.root.children[place] !== card)
        this.root.insertBefore(card, this.root.children[place] || null);
    });
  }

  card(kind) {
    const id = `curve-${this.cards.size}`;
    const title = html("h2", { id }, kind.title);
    const value = html("p", { class: "value" });
    const more = html("p", { class: "more faint" });
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" });
    const root = html(
      "article",
      { class: "card curve", "aria-labelledby": id },
      html("div", { class: "row" }, title, value),
      more,
      picture,
    );
    return { root, value, more, picture };
  }

  // The newest measurement up to round k.
  at(k) {
    let low = 0;
    let high = this.points.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (this.points[middle].round <= k) low = middle;
      else high = middle;
    }
    return this.points[low];
  }

  drawCard(kind, card, k) {
    const point = this.at(k);
    const values = kind.lines.map((line) => line.of(point));
    const text = (value) => (typeof value === "number" ? kind.show(value) : "–");
    say(card.value, text(values[0]));
    say(card.more, kind.lines.map((line, i) => `${line.name} ${text(values[i])}`).join(" · "));
    const key = `${this.points.length} ${point.round} ${this.rounds}`;
    if (card.drawn === key) return;
    card.drawn = key;
    card.picture.setAttribute(
      "aria-label",
      `${kind.title} up to round ${point.round}: ${card.more.textContent}`,
    );
    this.picture(kind, card.picture, point, values);
  }

  picture(kind, root, point, values) {
    const all = kind.lines
      .flatMap((line) => this.points.map(line.of))
      .filter((v) => typeof v === "number");
    let [low, high] = kind.share
      ? [0, 1]
      : [
          all.reduce((a, b) => Math.min(a, b), Infinity),
          all.reduce((a, b) => Math.max(a, b), -Infinity),
        ];
    if (kind.zero) low = 0;
    if (!(high > low)) [low, high] = Number.isFinite(low) ? [low - 0.5, low + 0.5] : [0, 1];
    const last = Math.max(1, this.points[this.points.length - 1].round);
    const x = (round) => LEFT + ((WIDTH - LEFT - 10) * round) / last;
    const y = (value) => TOP + ((HEIGHT - TOP - BOTTOM) * (high - value)) / (high - low);
    const parts = [];
    for (const tick of ticks(low, high, 3)) {
      parts.push(
        svg("line", { class: "tick", x1: LEFT, x2: WIDTH - 10, y1: y(tick), y2: y(tick) }),
      );
      parts.push(
        svg(
          "text",
          { class: "tick", x: LEFT - 6, y: y(tick) + 3.5, "text-anchor": "end" },
          kind.tick(tick),
        ),
      );
    }
    for (const tick of ticks(0, last, 4)) {
      if (Number.isInteger(tick))
        parts.push(
          svg(
            "text",
            { class: "tick", x: x(tick), y: HEIGHT - 4, "text-anchor": "middle" },
            String(tick),
          ),
        );
    }
    for (const line of [...kind.lines].reverse()) {
      const name = `line${line.faint ? " faint" : ""}${line.lie ? " lie" : ""}`;
      const path = (some) =>
        joined(
          some.map((p) => [x(p.round), line.of(p)]),
          y,
        );
      // What comes after the round that is looked at is only hinted at.
      parts.push(
        svg("path", {
          class: `${name} later`,
          d: path(this.points.filter((p) => p.round >= point.round)),
        }),
      );
      parts.push(
        svg("path", { class: name, d: path(this.points.filter((p) => p.round <= point.round)) }),
      );
    }
    if (point.round < last)
      parts.push(
        svg("line", {
          class: "cursor",
          x1: x(point.round),
          x2: x(point.round),
          y1: TOP,
          y2: HEIGHT - BOTTOM,
        }),
      );
    kind.lines.forEach((line, i) => {
      if (typeof values[i] !== "number") return;
      parts.push(
        svg("circle", {
          class: `end${line.faint ? " faint" : ""}${line.lie ? " lie" : ""}`,
          cx: x(point.round),
          cy: y(values[i]),
          r: 3,
        }),
      );
    });
    root.replaceChildren(...parts);
  }
}
