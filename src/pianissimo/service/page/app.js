// The page: which view is asked for, the head of it, and what is to be drawn when something new is published.

import { ask, keepToken, Refusal, takeToken, token } from "./api.js";
import { WINDOWS } from "./card.js";
import { cardOf } from "./cards.js";
import { choice, h, put, say } from "./dom.js";
import { ABOVE_CAP, StreamHistory } from "./history.js";
import { many, span, title } from "./numbers.js";
import { budgetPage, meaningPage, planPage } from "./pages.js";
import { promise, promiseNumbers, ticksOf } from "./words.js";

const SPANS = [24, 96, 480, 1920];
const PAGES = [["numbers", "Numbers"], ["budget", "Budget"], ["plan", "Plan"], ["meaning", "What does this mean?"]];
const MODES = ["total", "recent"];
const THEME = "pianissimo-theme";

const main = document.getElementById("main");
const head = document.getElementById("head");
const foot = document.getElementById("foot");
const embedded = new URLSearchParams(location.search);
const alone = embedded.get("card");
const isDemo = embedded.has("demo");

/** Which view the address asks for, and what the reader chose in it. */
class View {
  constructor() {
    /** How long windows are; 0 for each card as long as it needs. */
    this.window = 0;
    this.span = 96;
    this._modes = new Map();
    this.stream = null;
    this.page = "numbers";
    this.card = null;
    this.isTruthShown = false;
    this._labels = new Map();
    this._truth = null;
  }

  /** Read the address. */
  read() {
    const [path, values] = location.hash.replace(/^#\/?/, "").split("?");
    const [stream, page, card] = path.split("/").map(decodeURIComponent);
    const told = new URLSearchParams(values ?? "");
    const whole = (name, otherwise) => { const value = Number(told.get(name)); return Number.isInteger(value) && value > 0 ? Math.min(value, 100_000) : otherwise; };
    this.stream = stream || embedded.get("stream");
    this.page = alone ? "card" : page || "numbers";
    this.card = alone ?? card ?? null;
    this.window = whole("window", 0);
    this.span = whole("ticks", 96);
    this._modes = new Map(MODES.flatMap((mode) => (told.get(mode) ?? "").split(",").filter(Boolean).map((name) => [decodeURIComponent(name), mode])));
    this._labels = new Map([...told.entries()].filter(([name]) => name.startsWith("label.")).map(([name, value]) => [name.slice(6), value]));
    this.isTruthShown = told.get("truth") === "1";
  }

  /** The address of a view, with what was chosen. */
  link({ stream = this.stream, page = this.page, card = null } = {}) {
    const told = new URLSearchParams();
    if (this.window) told.set("window", this.window);
    if (this.span !== 96) told.set("ticks", this.span);
    for (const mode of MODES) {
      const named = [...this._modes].filter(([, each]) => each === mode).map(([name]) => encodeURIComponent(name));
      if (named.length) told.set(mode, named.join(","));
    }
    for (const [name, value] of this._labels) told.set(`label.${name}`, value);
    if (this.isTruthShown) told.set("truth", "1");
    const path = [stream, ...(page === "numbers" ? [] : [page]), ...(card ? [card] : [])].map(encodeURIComponent).join("/");
    return `#/${path}${told.size ? `?${told}` : ""}`;
  }

  _changed() {
    history.replaceState(null, "", location.pathname + location.search + this.link({ card: this.page === "card" ? this.card : null }));
    refresh();
    drawLinks();
  }

  /** Whether the reader asked for windows of a card ("recent"), for all that came so far ("total"), or for neither. */
  mode(name) { return this._modes.get(name); }

  setMode(name, mode) { this._modes.set(name, mode); this._changed(); }

  setWindow(length) { this.window = length; this._changed(); drawTools(); }

  setSpan(ticks) { this.span = ticks; this._changed(); drawTools(); }

  setTruth(isShown) { this.isTruthShown = isShown; this._changed(); drawTools(); }

  label(name) { return this._labels.get(name) ?? null; }

  setLabel(name, label) {
    if (label === null) this._labels.delete(name);
    else this._labels.set(name, label);
    this._changed();
  }

  /** In a demo alone: what its generator made up for ticks after `from`, or from the first on. */
  truth(name, label, from, to) {
    if (!this._truth || !this.isTruthShown) return undefined;
    const counts = label === null ? this._truth.counts[name] : this._truth.labels[name]?.[label];
    return counts?.slice(from ?? 0, to).reduce((sum, each) => sum + each, 0);
  }

  async askTruth() {
    this._truth = await ask("demo/truth").catch(() => null);
  }

  get truthNote() { return this._truth?.note ?? null; }
}

const view = new View();
let streams = [];
let followed = null;
let cards = [];
let drawn = null;
const NARROWEST = 420;
const columns = h("div", { class: "cards" });
const tools = h("div", { class: "tools" });
const parts = { tick: h("strong"), time: h("span"), next: h("span"), link: h("span", { class: "link-state", role: "status" }), nav: h("nav", { "aria-label": "Views" }) };

function refresh() {
  for (const card of cards) card.refresh();
}

/** The head: the promise, the unit, the tick, the time, the next publication, and the link. */
function drawHead() {
  const { plan, info } = followed;
  const chooser = streams.length > 1
    ? h("select", { "aria-label": "Stream", onchange: (event) => { location.hash = view.link({ stream: event.target.value, page: "numbers" }); } }, ...streams.map((each) => h("option", { value: each.name, selected: each.name === followed.name }, each.name)))
    : h("span", { class: "stream-name" }, followed.name);
  const theme = h("div", { class: "theme" });
  drawTheme(theme);
  put(head,
    h("div", { class: "bar" }, h("a", { class: "brand", href: view.link({ page: "numbers" }) }, h("b", { "aria-hidden": "true" }, "pp"), h("span", {}, "Pianissimo")), chooser, parts.nav, theme),
    h("div", { class: "strip" },
      h("div", { class: "promise" }, h("p", {}, promise(plan)), h("p", { class: "quiet" }, `${promiseNumbers(plan)}, ${ticksOf(info)}`)),
      h("dl", { class: "status" },
        h("div", {}, h("dt", {}, "Tick"), h("dd", {}, parts.tick)),
        h("div", {}, h("dt", {}, "Time"), h("dd", {}, parts.time)),
        h("div", {}, h("dt", {}, "Next publication"), h("dd", { class: "next" }, parts.next)),
        h("div", {}, h("dt", {}, "Link"), h("dd", {}, parts.link)))));
  drawLinks();
  drawState();
}

function drawLinks() {
  put(parts.nav, ...PAGES.map(([page, text]) => h("a", { href: view.link({ page }), "aria-current": page === view.page ? "page" : null }, text)));
}

function drawState() {
  if (!followed?.info) return;
  const { info, link, last } = followed;
  say(parts.tick, info.last_tick === null ? followed.tick.toLocaleString("en-US") : `${followed.tick.toLocaleString("en-US")} of ${info.last_tick.toLocaleString("en-US")}`);
  say(parts.time, last?.end && followed.times ? followed.times.span(last.start, last.end) : last ? "ticks are numbered" : "nothing published yet");
  const isOver = info.last_tick !== null && followed.tick >= info.last_tick;
  say(parts.next, isOver ? "all ticks are published" : nextWords(info));
  const [state, words] = isOver && link.state === "live" ? ["live", "complete"] : linkWords(link);
  say(parts.link, words);
  parts.link.className = `link-state ${state}`;
  document.body.classList.toggle("stale", ["waiting", "refused"].includes(link.state));
}

function nextWords(info) {
  if (!info.next_publication) return "with the next tick";
  const due = (Date.parse(info.next_publication) - Date.now()) / 1000;
  const isNew = followed.tick < info.tick;
  if (due > 0.5) return `in ${span(due)}`;
  return due > -3 || isNew ? "now" : `was due ${span(due)} ago`;
}

function linkWords(link) {
  if (link.state === "live") return ["live", "live"];
  if (link.state === "refused") return ["broken", link.fault.status === 404 ? "the stream is gone" : "access ended"];
  if (link.state === "waiting") return ["broken", `interrupted, again in ${span(Math.max(0, link.until - Date.now()) / 1000)}`];
  return ["opening", "connecting"];
}

function drawTheme(box) {
  const chosen = keptTheme() ?? "auto";
  put(box, choice("Colors", [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], chosen, (value) => {
    keepTheme(value);
    applyTheme();
    drawTheme(box);
  }));
}

/** The colors that were chosen; none where a browser keeps nothing, as for some pages within others. */
function keptTheme() {
  try {
    return localStorage.getItem(THEME);
  } catch {
    return null;
  }
}

function keepTheme(value) {
  try {
    if (value === "auto") localStorage.removeItem(THEME);
    else localStorage.setItem(THEME, value);
  } catch {
    // It holds until the page is left.
    document.documentElement.dataset.theme = value;
  }
}

function applyTheme() {
  const chosen = keptTheme();
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  else delete document.documentElement.dataset.theme;
}

/** What applies to all cards: the length of windows, how far charts reach back, the truth of a demo. */
function drawTools() {
  if (!followed?.info) return;
  const length = followed.info.tick_length;
  const offered = (list, own) => [...new Set([...list, own])].sort((a, b) => a - b);
  const name = (ticks) => (ticks ? many(ticks, "tick") : "as many ticks as needed");
  const pick = (label, list, own, take) => h("label", {}, `${label} `, h("select", { onchange: (event) => take(Number(event.target.value)) }, ...offered(list, own).map((ticks) => h("option", { value: ticks, selected: ticks === own }, name(ticks)))));
  put(tools, pick("Windows of", [0, ...WINDOWS], view.window, (value) => view.setWindow(value)), pick("Charts reach back", SPANS, view.span, (value) => view.setSpan(value)),
    length ? h("span", { class: "quiet" }, `a tick is ${length} long`) : null,
    view.truthNote ? h("label", { class: "truth-switch" }, h("input", { type: "checkbox", checked: view.isTruthShown, onchange: (event) => view.setTruth(event.target.checked) }), " Lay the generator's truth over") : null,
    view.truthNote && view.isTruthShown ? h("p", { class: "truth-note" }, view.truthNote) : null);
}

/** Cards in the order of the plan; at the end how many users are above the cap. */
function names() {
  const found = followed.plan.queries.map((each) => each.name);
  return followed.last?.releases[ABOVE_CAP] ? [...found, ABOVE_CAP] : found;
}

async function drawMain() {
  const key = JSON.stringify([view.stream, view.page, view.card]);
  cards = [];
  drawn = key;
  document.title = `${view.page === "card" && view.card ? title(view.card) : PAGES.find(([page]) => page === view.page)?.[1] ?? "Numbers"} · ${followed.name} · Pianissimo`;
  if (view.page === "budget" || view.page === "plan" || view.page === "meaning") {
    const page = view.page === "budget" ? await budgetPage(followed) : view.page === "plan" ? planPage(followed) : meaningPage(followed);
    if (drawn === key) put(main, page);
    return;
  }
  drawTools();
  if (view.page === "card") {
    if (!names().includes(view.card)) {
      put(main, h("section", { class: "page" }, h("h1", {}, "There is no such card"), h("p", {}, `This stream has no query of the name “${view.card ?? ""}”. `, h("a", { href: view.link({ page: "numbers" }) }, "All cards"))));
      return;
    }
    cards = [cardOf(followed, view.card, view, { isLarge: true, isAlone: Boolean(alone) })];
    put(main, alone ? null : h("p", { class: "back" }, h("a", { href: view.link({ page: "numbers" }) }, "← All cards")), alone ? null : tools, cards[0].element);
  } else {
    cards = names().map((name) => cardOf(followed, name, view));
    const empty = followed.tick ? null : h("section", { class: "page first" }, h("h2", {}, "Nothing has been published yet"), h("p", {}, followed.info.next_publication ? `The first tick is due at ${followed.times.full(followed.info.next_publication)}. This page will show it by itself.` : "The first tick will appear here by itself."));
    put(main, h("h1", { class: "unseen" }, `${followed.name}: numbers`), tools, empty, columns);
    arrange();
  }
  refresh();
}

/** Cards side by side, in as many columns as there is room for: a card that grows moves those beneath it alone. */
function arrange() {
  const number = Math.max(1, Math.min(4, Math.floor((columns.clientWidth || main.clientWidth) / NARROWEST)));
  if (arrange.of === cards && columns.childElementCount === number) return;
  arrange.of = cards;
  put(columns, ...Array.from({ length: number }, (_, place) => h("div", { class: "column" }, ...cards.filter((_each, at) => at % number === place).map((card) => card.element))));
}

/** Show what the address asks for. */
async function show() {
  takeToken();
  view.read();
  try {
    if (!streams.length) streams = (await ask("v1/streams")).streams;
    if (!view.stream && streams.length === 1) view.stream = streams[0].name;
    if (!view.stream) { drawStreams(); return; }
    if (followed?.name !== view.stream) await follow(view.stream);
    drawHead();
    await drawMain();
  } catch (fault) {
    drawFault(fault);
  }
}

async function follow(name) {
  followed?.close();
  followed = null;
  const next = new StreamHistory(name);
  await next.load();
  followed = next;
  if (isDemo) await view.askTruth();
  next.listen((kind) => {
    if (followed !== next) return;
    drawState();
    if (kind !== "release") return;
    if (next.isFirst || (view.page === "numbers" && cards.length !== names().length)) drawMain();
    else refresh();
  });
}

function drawStreams() {
  document.title = "Streams · Pianissimo";
  put(head, h("div", { class: "bar" }, h("span", { class: "brand" }, h("b", { "aria-hidden": "true" }, "pp"), h("span", {}, "Pianissimo"))));
  put(main, h("section", { class: "page" }, h("h1", {}, "Streams"), streams.length
    ? h("ul", { class: "streams" }, ...streams.map((each) => h("li", {}, h("a", { href: `#/${encodeURIComponent(each.name)}` }, each.name), h("p", { class: "quiet" }, `It hides ${each.hides}. Tick ${each.tick.toLocaleString("en-US")}${each.last_tick === null ? "" : ` of ${each.last_tick.toLocaleString("en-US")}`}. ${each.queries.map((query) => title(query.name)).join(", ")}.`))))
    : h("p", { class: "empty" }, "This service shows no stream that you may see.")));
}

function drawFault(fault) {
  const status = fault instanceof Refusal ? fault.status : -1;
  document.title = "Pianissimo";
  if (status === 401 || status === 403) { drawDoor(status); return; }
  const heading = status === 404 ? "There is no such stream" : status === 0 || status === 503 ? "The service cannot be reached" : "Something went wrong";
  put(main, h("section", { class: "page" }, h("h1", {}, heading), h("p", {}, status === 404 ? "It may be gone, or the link was meant for another service." : `${fault.message}.`),
    h("p", {}, h("button", { type: "button", onclick: () => { streams = []; followed?.close(); followed = null; location.hash = status === 404 ? "#/" : location.hash; show(); } }, status === 404 ? "All streams" : "Try again"))));
  if (status === 0 || status === 503) setTimeout(() => { if (!followed) show(); }, 3000);
}

function drawDoor(status) {
  const box = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", required: true });
  const told = status === 403 ? "The token that you have is for something else than looking." : token() ? "The token that you have is not valid, or not any more." : "Whoever runs this service gives them out, often as a link.";
  const form = h("form", { class: "door", onsubmit: (event) => { event.preventDefault(); keepToken(box.value.trim()); streams = []; show(); } }, h("label", { for: "token" }, "Token"), box, h("button", { type: "submit" }, "Open"));
  put(main, h("section", { class: "page" }, h("h1", {}, "This service asks for a token"), h("p", {}, told), form, h("p", { class: "quiet" }, "It is kept for this tab alone, and sent to this service alone.")));
}

applyTheme();
new ResizeObserver(() => { if (columns.isConnected) arrange(); }).observe(columns);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
if (alone) document.documentElement.classList.add("alone");
put(foot, h("p", {}, isDemo ? "Released under differential privacy, of events that a generator made up." : "Released under differential privacy. Nothing on this page holds a truth, an event or a person."));
addEventListener("hashchange", show);
addEventListener("online", () => followed?.hurry());
document.addEventListener("visibilitychange", () => { if (!document.hidden) followed?.hurry(); });
setInterval(drawState, 1000);
show();
