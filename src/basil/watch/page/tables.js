// The table of nodes, the log of events, and the legend of the ring.

import { byId, html, percent, say, seconds } from "./dom.js";

const MOST_ROWS = 400;
export const WORDS = {
  ok: "on time",
  suspected: "suspected",
  late: "late",
  gone: "gone",
  excluded: "excluded",
  done: "finished",
  waiting: "waiting",
  unknown: "not seen from here",
  passed: "not chosen for 10 rounds",
};

const shown = (value) =>
  value === null || value === undefined || value === "" ? "–" : String(value);

export class Nodes {
  constructor(pick) {
    this.pick = pick;
    this.head = byId("columns");
    this.body = byId("nodes");
    this.begin([]);
  }

  begin(columns) {
    this.columns = columns;
    this.rows = [];
    this.head.replaceChildren(
      html("tr", {}, ...columns.map((name) => html("th", { scope: "col" }, name))),
    );
    this.body.replaceChildren();
  }

  // rows: arrays of cells; states: a word for each.
  draw(rows, states, picked) {
    rows.slice(0, MOST_ROWS).forEach((cells, place) => {
      if (!this.rows[place]) this.rows[place] = this.row(cells, place);
      const { root, slots, button } = this.rows[place];
      const name = `state-${states[place]}${picked === place ? " picked" : ""}`;
      if (root.className !== name) root.className = name;
      const pressed = String(picked === place);
      if (button.getAttribute("aria-pressed") !== pressed)
        button.setAttribute("aria-pressed", pressed);
      cells.forEach((cell, column) => say(slots[column], shown(cell)));
    });
  }

  row(cells, place) {
    const button = html(
      "button",
      { type: "button", class: "plain", "aria-pressed": "false" },
      shown(cells[0]),
    );
    button.addEventListener("click", () => this.pick(place));
    const slots = cells.map(() => html("td"));
    const first = html("th", { scope: "row" }, button);
    const root = html("tr", {}, first, ...slots.slice(1));
    this.body.append(root);
    return { root, button, slots: [button, ...slots.slice(1)] };
  }
}

export const RING_COLUMNS = [
  "Node",
  "State",
  "Round",
  "Lag",
  "Chose",
  "Accuracy",
  "Turn",
  "Address",
  "Evidence",
];

export function memberRow(node) {
  const word = node.state === "ok" && node.phase ? node.phase : WORDS[node.state];
  return [
    node.name,
    word,
    node.round,
    node.lag,
    node.chose,
    node.accuracy === null ? null : percent(node.accuracy),
    node.turn ? seconds(node.turn) : null,
    node.address,
    node.evidence,
  ];
}

export function addToLog(lines) {
  const root = byId("log");
  for (const [when, text, tone] of lines) {
    root.prepend(
      html("li", { class: tone }, html("span", { class: "when" }, when), html("span", {}, text)),
    );
  }
  while (root.children.length > 300) root.lastChild.remove();
}

export function drawLegend(entries) {
  const root = byId("legend");
  const key = JSON.stringify(entries);
  if (root.drawn === key) return;
  root.drawn = key;
  root.replaceChildren(
    ...entries.map(([kind, text]) =>
      html("li", {}, html("i", { class: kind, "aria-hidden": "true" }), text),
    ),
  );
}
