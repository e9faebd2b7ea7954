// The page: listens to the server, and draws what it says.  It only ever reads.

import { byId, html, say, still } from "./dom.js";
import { Curves } from "./curves.js";
import { Grid } from "./grid.js";
import { ABSENT, Ring } from "./ring.js";
import { addToLog, drawLegend, memberRow, Nodes, RING_COLUMNS, WORDS } from "./tables.js";

const WINDOW = 10; // rounds that the table and the states look back
const PLAY = 900; // milliseconds of a round that is played
const STATES = {
  waiting: "waiting",
  running: "live",
  silent: "no news for a minute",
  stopped: "stopped",
  failed: "failed",
  finished: "finished",
};
const RUN_COLUMNS = ["Node", "Kind", "Round", "Lag", "Chose", "Chosen by", "Evidence"];

const ring = new Ring(pick);
const curves = new Curves();
const nodes = new Nodes(pick);
const grid = new Grid();
const at = { k: 0, t: 0, follows: true, plays: false, since: 0, arrived: 0, pace: PLAY };
let told = null; // what was told at first, with what has changed since
let choices = new Map(); // round -> who chose whom
let asked = new Set(); // rounds that were asked for
let picked = -1;
let source = null;

const runName = () => new URLSearchParams(location.hash.slice(1)).get("run") || "";
const query = (more = {}) => {
  const words = new URLSearchParams({
    ...(runName() ? { run: runName() } : {}),
    ...more,
  }).toString();
  return words ? `?${words}` : "";
};

// -- listening ---------------------------------------------------------------------------------

function connect() {
  if (source) source.close();
  source = new EventSource(`events${query()}`);
  source.onmessage = (event) => {
    byId("lost").hidden = true;
    hear(JSON.parse(event.data));
  };
  source.onerror = () => {
    const closed = source.readyState === EventSource.CLOSED;
    say(
      byId("lost"),
      closed
        ? "The server does not know this address any more: basil watch prints the new one."
        : "The server cannot be reached. This page tries again, and shows what it knew last.",
    );
    byId("lost").hidden = false;
    if (closed) setTimeout(connect, 5000);
  };
}

function hear(news) {
  if (news.reset) begin(news);
  if (!told) return;
  Object.assign(told, news);
  if (told.kind === "collection") {
    hearCells(news.cells);
    return;
  }
  for (const [k, row] of Object.entries(news.choices)) choices.set(Number(k), row);
  curves.add(news.points);
  addToLog(news.log);
  if (news.round > at.newest) {
    const now = performance.now();
    at.pace = Math.max(
      250,
      Math.min(2500, (now - at.arrived) / Math.max(1, news.round - at.newest)),
    );
    at.arrived = now;
  }
  at.newest = news.round;
  byId("slider").max = String(at.newest);
  if (at.k > at.newest || (at.follows && (!at.k || news.reset))) show(at.newest, true);
  else if (news.reset) show(at.k, true);
  say(byId("state"), STATES[told.state] || "");
  byId("state").className = `state state-${told.state}`;
  byId("live").textContent = told.state === "running" ? "Live" : "Latest";
  const empty = !told.nodes;
  byId("empty").hidden = !empty;
  byId("run").hidden = empty;
  say(
    byId("empty"),
    empty ? "Nothing has begun here yet. This page shows it as soon as it does." : "",
  );
  wake();
}

function begin(news) {
  const same = told && told.kind === news.kind && told.name === news.name;
  const kept = same && !at.follows && at.k <= news.round ? at.k : 0; // where somebody was looking
  told = { ...news };
  choices = new Map();
  asked = new Set();
  picked = -1;
  Object.assign(at, {
    k: kept,
    t: 0,
    follows: !kept,
    plays: false,
    newest: 0,
    arrived: performance.now(),
  });
  const many = told.kind === "collection";
  byId("run").hidden = many;
  byId("grid").hidden = !many;
  byId("empty").hidden = true;
  byId("back").hidden = !runName();
  byId("log").replaceChildren();
  say(byId("name"), told.name);
  if (many) {
    grid.begin();
    byId("settings").replaceChildren();
    document.title = `${told.name} · Basil`;
    return;
  }
  say(byId("title"), told.title || told.name);
  document.title = `${told.title || told.name} · Basil`;
  byId("settings").replaceChildren(
    ...told.settings.map(([name, value]) =>
      html("div", {}, html("dt", {}, name), html("dd", {}, value)),
    ),
  );
  curves.begin(told);
  if (told.nodes) ring.begin(told);
  nodes.begin(told.kind === "ring" ? RING_COLUMNS : RUN_COLUMNS);
  document.querySelector(".nodes").hidden = Boolean(told.summary);
}

function hearCells(cells) {
  const { finished, all, running } = grid.draw(cells);
  say(byId("title"), all ? `${finished} of ${all} runs finished` : "No run yet");
  const state = all && finished === all ? "finished" : running ? "running" : "waiting";
  say(byId("state"), STATES[state]);
  byId("state").className = `state state-${state}`;
  byId("empty").hidden = all > 0;
  say(
    byId("empty"),
    all ? "" : "No run has begun here yet. This page shows them as soon as they do.",
  );
}

// Rounds that this page was not told of, because it opened later or thinned them out.
async function want(k) {
  if (choices.has(k) || asked.has(k) || k < 1) return;
  const first = Math.max(1, k - 30);
  for (let each = first; each <= k + 30; each += 1) asked.add(each);
  try {
    const answer = await fetch(`rounds${query({ first, last: k + 30 })}`);
    if (!answer.ok) return;
    for (const [round, row] of Object.entries((await answer.json()).choices))
      choices.set(Number(round), row);
    wake();
  } catch {
    asked.clear(); // once the server is back
  }
}

// -- time --------------------------------------------------------------------------------------

const size = () => (told.names ? told.names.length : 1);

function show(k, whole) {
  at.k = Math.max(0, Math.min(k, at.newest));
  at.t = whole || still() ? size() : 0;
  at.since = performance.now();
  byId("slider").value = String(at.k);
  want(at.k);
}

let waking = 0;
function wake() {
  if (!waking) waking = requestAnimationFrame(step);
}

function step(now) {
  waking = 0;
  if (!told || told.kind === "collection" || !told.nodes) return;
  const moves = at.plays || (at.follows && (told.state === "running" || at.k < at.newest));
  if (moves) {
    const pace = at.plays ? PLAY : at.pace;
    const part = Math.min(1, (now - at.since) / pace);
    at.t = still() ? size() : Math.floor(part * size());
    if (part >= 1 && at.k < at.newest) {
      const behind = at.follows && !at.plays && at.newest - at.k > 2;
      show(behind ? at.newest : at.k + 1, false);
    } else if (part >= 1 && at.plays) {
      at.plays = false;
      at.follows = true;
    }
  }
  draw();
  if (at.plays || (at.follows && at.k < at.newest) || at.t < size()) wake();
}

function pick(place) {
  picked = picked === place ? -1 : place;
  draw();
}

// -- drawing -----------------------------------------------------------------------------------

// Of each place a word: is it heard, is it chosen?
function judged() {
  if (told.kind === "ring") return (told.members || []).map((member) => member.state);
  const rows = [];
  for (let k = at.k; k > at.k - WINDOW && k > 0; k -= 1) rows.push(choices.get(k));
  const chosen = new Set();
  const lies = new Set(told.byzantine); // whose choices say nothing
  for (const row of rows) (row || []).forEach((one, place) => !lies.has(place) && chosen.add(one));
  const known = rows.length === WINDOW && rows.every(Boolean);
  return told.names.map((_, place) => {
    if (rows[0] && rows[0][place] === ABSENT) {
      const live = told.state === "running" && at.k === at.newest;
      return live && rows[1] && rows[1][place] !== ABSENT ? "late" : "gone";
    }
    return known && !chosen.has(place) ? "passed" : "ok";
  });
}

function runRows(states) {
  const rows = [];
  for (let k = at.k; k > at.k - WINDOW && k > 0; k -= 1) rows.push([k, choices.get(k)]);
  const lies = new Set(told.byzantine);
  const times = new Array(told.names.length).fill(0);
  const fooled = new Array(told.names.length).fill(0);
  for (const [, row] of rows) {
    (row || []).forEach((one, place) => {
      if (one < 0 || lies.has(place)) return;
      times[one] += 1;
      if (lies.has(one)) fooled[place] += 1;
    });
  }
  return told.names.map((name, place) => {
    const seen = rows.find(([, row]) => row && row[place] !== ABSENT);
    const chose = seen ? seen[1][place] : null;
    const evidence = [];
    if (states[place] === "passed") evidence.push(WORDS.passed);
    if (fooled[place]) evidence.push(`chose a Byzantine model ${fooled[place]}×`);
    if (states[place] === "gone" || states[place] === "late") evidence.push(WORDS[states[place]]);
    const kind = lies.has(place) ? "Byzantine" : "benign";
    const choice = chose === null ? null : chose < 0 ? "its own" : told.names[chose];
    return [
      name,
      kind,
      seen ? seen[0] : null,
      seen ? at.k - seen[0] : null,
      choice,
      choices.size ? times[place] : null,
      evidence.join(", "),
    ];
  });
}

function draw() {
  const over = told.rounds ? `of ${told.rounds}` : "";
  say(byId("round"), `Round ${at.k}`);
  say(byId("rounds"), over);
  byId("slider").setAttribute("aria-valuetext", `round ${at.k} ${over}`);
  byId("play").textContent = at.plays ? "Pause" : "Play";
  byId("live").setAttribute("aria-pressed", String(at.follows && !at.plays));
  curves.draw(at.k);
  if (told.summary) {
    drawSummary();
    return;
  }
  const states = judged();
  if (states.length < size()) return;
  const onTurn = told.kind === "ring" && at.follows && told.state === "running" ? told.turn : -1;
  ring.lies = new Set(
    told.kind === "ring"
      ? told.members.flatMap((m, place) => (m.lies ? [place] : []))
      : told.byzantine,
  );
  ring.draw(choices, at.k, at.t, states, picked, onTurn);
  const rows = told.kind === "ring" ? told.members.map(memberRow) : runRows(states);
  nodes.draw(rows, states, picked);
  legend(states);
}

function legend(states) {
  const count = new Map();
  states.forEach((state, place) => {
    const kind = !ring.lies.has(place) ? state : state === "passed" ? "shunned" : "lies";
    count.set(kind, (count.get(kind) || 0) + 1);
  });
  const names = {
    ...WORDS,
    ok: told.kind === "ring" ? "on time" : "benign",
    lies: told.kind === "ring" ? "lies, for a drill" : "Byzantine",
    shunned: `Byzantine, ${WORDS.passed}`,
  };
  const entries = Object.keys(names)
    .filter((kind) => count.has(kind))
    .map((kind) => [kind, `${names[kind]} (${count.get(kind)})`]);
  const row = choices.get(at.k) || [];
  const took = row.filter((one, place) => one >= 0 && !ring.lies.has(place));
  const believed = took.filter((one) => ring.lies.has(one)).length;
  if (took.length) entries.push(["chose", "chosen in the last rounds"]);
  if (believed) entries.push(["believed", `chose a Byzantine model (${believed} in this round)`]);
  drawLegend(entries);
  const averages = !choices.size && at.newest > 0 ? " Nobody chooses in this scheme." : "";
  say(
    byId("ring-said"),
    `Round ${at.k}. ${entries.map(([, text]) => text).join(", ")}.${averages}`,
  );
}

function drawSummary() {
  ring.draw(choices, at.k, size(), [], -1, -1);
  const found = choices.get(at.k);
  const entries = [
    ["ok", `benign (${told.nodes - told.lying})`],
    ["lies", `Byzantine (${told.lying})`],
  ];
  if (found)
    entries.push(["believed", `${found.believed} of ${found.chose} chose a Byzantine model`]);
  if (found && found.away) entries.push(["gone", `gone (${found.away})`]);
  drawLegend(entries);
  say(
    byId("ring-said"),
    `${told.nodes} nodes as a summary. ${entries.map(([, text]) => text).join(", ")}.`,
  );
}

// -- what somebody does ------------------------------------------------------------------------

byId("slider").addEventListener("input", (event) => {
  at.plays = false;
  at.follows = Number(event.target.value) === at.newest;
  show(Number(event.target.value), true);
  draw();
});
byId("play").addEventListener("click", () => {
  at.plays = !at.plays;
  at.follows = false;
  if (at.plays) show(at.k >= at.newest ? 1 : at.k, false);
  draw();
  wake();
});
byId("live").addEventListener("click", () => {
  at.plays = false;
  at.follows = true;
  show(at.newest, true);
  draw();
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the part after # says which run is open
  byId("main").focus();
});
// A browser has few connections to one server: a page that nobody sees needs none.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) source.close();
  else connect();
});
addEventListener("hashchange", () => {
  told = null;
  connect();
});

connect();
