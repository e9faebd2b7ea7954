// Many runs: a cell for each, by attack; it fills while its run goes on, and opens it.

import { byId, html, percent, say, svg } from "./dom.js";

const WORDS = {
  waiting: "waiting",
  running: "running",
  silent: "no news",
  stopped: "stopped",
  failed: "failed",
  finished: "finished",
};

export class Grid {
  constructor() {
    this.root = byId("grid");
  }

  begin() {
    this.cells = new Map();
    this.sections = new Map();
    this.root.replaceChildren();
  }

  draw(told) {
    for (const cell of told) {
      const before = this.cells.get(cell.name);
      if (before && before.attack !== cell.attack) before.parts.root.remove();
      const parts = before && before.attack === cell.attack ? before.parts : this.made(cell);
      this.cells.set(cell.name, { ...cell, parts });
      this.fill(cell, parts);
    }
    const all = [...this.cells.values()];
    const finished = all.filter((cell) => cell.state === "finished").length;
    return { finished, all: all.length, running: all.some((cell) => cell.state === "running") };
  }

  section(attack) {
    if (!this.sections.has(attack)) {
      const cells = html("ul", { class: "cells" });
      this.root.append(html("section", {}, html("h2", {}, attack), cells));
      this.sections.set(attack, cells);
    }
    return this.sections.get(attack);
  }

  made(cell) {
    const parts = {
      scheme: html("span", { class: "scheme" }),
      seed: html("span", { class: "faint" }),
      value: html("span", { class: "value" }),
      word: html("span", { class: "faint" }),
      line: svg("path", { class: "line" }),
      bar: html("progress", { max: "1", "aria-hidden": "true" }),
    };
    const picture = svg(
      "svg",
      { viewBox: "0 0 100 30", preserveAspectRatio: "none", "aria-hidden": "true" },
      parts.line,
    );
    const link = html(
      "a",
      { class: "cell" },
      html("span", { class: "row" }, parts.scheme, parts.value),
      picture,
      parts.bar,
      html("span", { class: "row" }, parts.word, parts.seed),
    );
    parts.link = link;
    parts.root = html("li", {}, link);
    this.section(cell.attack).append(parts.root);
    return parts;
  }

  fill(cell, parts) {
    say(parts.scheme, cell.scheme || cell.name);
    say(parts.seed, cell.seed === null || cell.seed === undefined ? "" : `seed ${cell.seed}`);
    const worst = typeof cell.worst === "number" ? percent(cell.worst) : null;
    const loss = typeof cell.loss === "number" ? `loss ${cell.loss.toPrecision(3)}` : "";
    say(parts.value, worst || loss || "");
    say(
      parts.word,
      cell.rounds ? `${WORDS[cell.state]}, ${cell.round} of ${cell.rounds}` : WORDS[cell.state],
    );
    parts.bar.value = cell.rounds ? cell.round / cell.rounds : 0;
    parts.link.className = `cell state-${cell.state}`;
    if (cell.state === "waiting") parts.link.removeAttribute("href");
    else parts.link.setAttribute("href", `#run=${encodeURIComponent(cell.name)}`);
    const curve = (cell.curve || []).filter((v) => typeof v === "number");
    const step = 100 / Math.max(1, curve.length - 1);
    const share = cell.rounds ? cell.round / cell.rounds : 1;
    const d = curve
      .map((v, i) => `${i ? "L" : "M"}${(i * step * share).toFixed(1)} ${(29 - 28 * v).toFixed(1)}`)
      .join("");
    parts.line.setAttribute("d", d);
  }
}
