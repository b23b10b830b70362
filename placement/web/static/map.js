// The map of the fleet. Every host is a pixel of one picture that is painted when numbers come; moving and
// zooming only draws that picture elsewhere, so it costs the same for ten hosts and for a hundred thousand.
"use strict";

(() => {
const NOTHING = 255, OVER = [208, 28, 139];
// From little to much; light grows darker in light themes as well as dark ones grow lighter.
const LIGHT = [[237, 243, 251], [168, 204, 236], [92, 156, 214], [33, 102, 172], [8, 45, 100]];
const DARK = [[27, 38, 56], [26, 72, 122], [38, 122, 178], [92, 184, 214], [222, 243, 200]];
const MOST_SCALE = 96, FRESH_SECONDS = 15, NUMBERS_FROM = 30, LARGEST_CELL = 60;
// Smaller cells are not seen; a map grows for them, up to a height that is still scrolled through.
const LEAST_CELL = 8, TALLEST = 1600, TITLE = 20;

const isDark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Thousands are apart as elsewhere on the pages, whatever the language of the browser.
const grouped = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");

function colour(stops, level) {
  const at = Math.min(level, 100) / 100 * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
  return stops[low].map((part, index) => Math.round(part + (stops[low + 1][index] - part) * (at - low)));
}

class FleetMap {
  constructor(around) {
    this.around = around;
    this.canvas = around.querySelector("canvas");
    this.tip = around.querySelector(".map-tip");
    this.state = around.querySelector(".map-state");
    this.view = null;
    this.cursor = -1;
    this.known = new Map();
    this.asked = 0;
    this.listen();
    this.load();
    setInterval(() => document.hidden || this.load(), 1000 * FRESH_SECONDS);
  }

  // -- numbers --------------------------------------------------------------------------------------

  async load() {
    try {
      const answer = await fetch(this.around.dataset.data);
      if (answer.status === 401) return this.say("The session has ended: reload the page to sign in again.");
      if (!answer.ok) return this.say(`The hosts cannot be shown: the service answers ${answer.status}.`);
      this.take(await answer.arrayBuffer());
    } catch { this.say("The hosts cannot be shown: the service does not answer."); }
  }

  take(body) {
    const size = new DataView(body).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, size))), start = 4 + size;
    const column = (kind, name, count) => new kind(body, start + head.offsets[name], count);
    this.head = head;
    this.ids = column(head.id_bytes === 4 ? Uint32Array : Float64Array, "ids", head.count);
    this.levels = column(Uint8Array, "levels", head.count);
    const ends = column(Uint32Array, "groups", head.groups.length + 1);
    this.groups = head.groups.map((group, at) => ({ ...group, from: ends[at], to: ends[at + 1] })).filter((group) => group.to > group.from);
    this.known.clear();
    this.lay();
    this.paint();
    if (!head.count) this.say("There are no hosts.");
    else if (this.cursor < 0) this.say(`${grouped(head.count)} hosts.`);
    const percent = head.whole ? Math.round(100 * head.part / head.whole) : 0;
    this.around.querySelector(".map-total").textContent = head.whole ? `All together: ${percent} %` : "";
    this.around.dataset.drawn = head.count;
    this.around.dataset.cell = Math.floor(this.widest);
  }

  // Rows of cells, a band for each group, in the shape of the canvas; above each band its name.
  lay() {
    // What the page allows; a few hosts need less.
    this.canvas.style.removeProperty("height");
    const width = this.canvas.clientWidth, given = this.canvas.clientHeight;
    const shape = Math.max(width / Math.max(given, 1), .2);
    const fits = (columns) => this.groups.reduce((rows, group) => rows + Math.ceil((group.to - group.from) / columns), 0);
    const titles = this.groups.length, most = Math.max(1, Math.floor(width / LEAST_CELL));
    // Each of many groups has its title and a row, however many there are.
    const tallest = Math.max(given, TALLEST, titles * (TITLE + LEAST_CELL) + 10);
    const height = Math.min(Math.max(given, titles * TITLE + fits(most) * LEAST_CELL + 10), tallest);
    let columns = Math.max(1, Math.ceil(Math.sqrt(this.head.count * shape)));
    const scale = (count) => Math.min(width / count, (height - titles * TITLE - 10) / Math.max(fits(count), 1));
    for (let more = columns; more < columns * 3; more = Math.ceil(more * 1.08)) if (scale(more) > scale(columns)) columns = more;
    if (scale(most) > scale(columns)) columns = most;
    columns = Math.min(columns, Math.max(1, ...this.groups.map((group) => group.to - group.from)));
    let row = 0;
    for (const group of this.groups) { group.row = row; row += Math.ceil((group.to - group.from) / columns); }
    const sized = this.columns !== columns || this.rows !== row || this.size !== `${width},${height}`;
    this.columns = columns; this.rows = row; this.size = `${width},${height}`;
    this.widest = Math.min(width / Math.max(columns, 1), Math.max(height - titles * TITLE - 10, TITLE) / Math.max(row, 1), LARGEST_CELL);
    this.canvas.style.setProperty("height", `${Math.min(height, Math.ceil(row * this.widest + titles * TITLE + 10))}px`);
    if (sized || !this.view) this.fit();
  }

  fit() {
    this.view = { x: this.widest < LARGEST_CELL ? (this.canvas.clientWidth - this.widest * this.columns) / 2 : 6, y: 4, scale: this.widest, least: this.widest };
    this.draw();
  }

  // -- the picture ----------------------------------------------------------------------------------

  paint() {
    const stops = isDark() ? DARK : LIGHT, none = isDark() ? [58, 56, 54] : [222, 220, 215];
    const table = new Uint32Array(256);
    for (let level = 0; level < 256; level++) {
      const [r, g, b] = level === NOTHING ? none : level > 100 ? OVER : colour(stops, level);
      table[level] = 0xff000000 | b << 16 | g << 8 | r;
    }
    this.picture = this.picture || document.createElement("canvas");
    this.picture.width = Math.max(this.columns, 1); this.picture.height = Math.max(this.rows, 1);
    const context = this.picture.getContext("2d");
    const image = context.createImageData(this.picture.width, this.picture.height), pixels = new Uint32Array(image.data.buffer);
    for (const group of this.groups) {
      const begin = group.row * this.columns - group.from;
      for (let at = group.from; at < group.to; at++) pixels[begin + at] = table[this.levels[at]];
    }
    context.putImageData(image, 0, 0);
    this.hasMarks = this.levels.some((level) => level > 100);
    this.drawScale(stops);
    this.draw();
  }

  drawScale(stops) {
    const bar = this.around.querySelector(".scale-bar"), context = bar.getContext("2d");
    for (let x = 0; x < bar.width; x++) {
      context.fillStyle = `rgb(${colour(stops, 100 * x / (bar.width - 1))})`;
      context.fillRect(x, 0, 1, bar.height);
    }
  }

  draw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.drawNow(); });
  }

  // Where a band begins on the canvas: cells above it, and the titles.
  top(group) { return this.view.y + group.row * this.view.scale + (this.groups.indexOf(group) + 1) * 20; }

  drawNow() {
    const ratio = devicePixelRatio || 1, canvas = this.canvas;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d"), style = getComputedStyle(canvas);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    if (!this.picture || !this.head?.count) return;
    context.imageSmoothingEnabled = false;
    const { x, scale } = this.view, text = style.color, back = style.backgroundColor;
    this.groups.forEach((group) => {
      const top = this.top(group), rows = Math.ceil((group.to - group.from) / this.columns);
      if (top - 20 > height || top + rows * scale < 0) return;
      context.drawImage(this.picture, 0, group.row, this.columns, rows, x, top, this.columns * scale, rows * scale);
      this.drawLines(context, group, top, rows, back, width, height);
      context.fillStyle = text;
      context.font = "600 12px system-ui, sans-serif";
      const name = group.kind === "none" ? "in neither cluster nor aggregate" : group.name;
      context.fillText(`${name} · ${grouped(group.to - group.from)} hosts`, Math.max(x, 4), top - 6);
    });
    this.drawCursor(context, text);
  }

  // Gaps between cells, and percentages in them, where there is room; only of what can be seen.
  drawLines(context, group, top, rows, back, width, height) {
    const { x, scale } = this.view;
    if (scale < 5) return;
    const first = Math.max(0, Math.floor(-x / scale)), last = Math.min(this.columns, Math.ceil((width - x) / scale));
    const begin = Math.max(0, Math.floor(-top / scale)), end = Math.min(rows, Math.ceil((height - top) / scale));
    context.fillStyle = back;
    const gap = scale > 14 ? 2 : 1;
    for (let column = first; column <= last; column++) context.fillRect(x + column * scale - gap / 2, top + begin * scale, gap, (end - begin) * scale);
    for (let row = begin; row <= end; row++) context.fillRect(x + first * scale, top + row * scale - gap / 2, (last - first) * scale, gap);
    if (this.hasMarks) this.drawMarks(context, group, top, { first, last, begin, end });
    if (scale < NUMBERS_FROM) return;
    context.font = "600 11px system-ui, sans-serif";
    context.textAlign = "center";
    for (let row = begin; row < end; row++) for (let column = first; column < last; column++) {
      const at = group.from + row * this.columns + column;
      if (at >= group.to) continue;
      const level = this.levels[at], bright = level === NOTHING ? !isDark() : isDark() ? level > 55 && level <= 100 : level < 55;
      context.fillStyle = bright ? "#10151c" : "#ffffff";
      context.fillText(level === NOTHING ? "–" : level, x + (column + .5) * scale, top + (row + .5) * scale + 4);
    }
    context.textAlign = "start";
  }

  // What colour alone would tell: a stroke where there is none of it, a cross where there is too much.
  drawMarks(context, group, top, seen) {
    const { x, scale } = this.view, from = scale * .3, to = scale * .7;
    const paths = { none: new Path2D(), over: new Path2D() };
    for (let row = seen.begin; row < seen.end; row++) for (let column = seen.first; column < seen.last; column++) {
      const at = group.from + row * this.columns + column, level = at < group.to ? this.levels[at] : 0;
      if (level <= 100) continue;
      const left = x + column * scale, above = top + row * scale, path = level === NOTHING ? paths.none : paths.over;
      if (level === NOTHING && scale >= NUMBERS_FROM) continue;
      path.moveTo(left + from, above + to); path.lineTo(left + to, above + from);
      if (level !== NOTHING && scale < NUMBERS_FROM) { path.moveTo(left + from, above + from); path.lineTo(left + to, above + to); }
    }
    context.lineWidth = 1;
    context.strokeStyle = isDark() ? "#a7b2c1" : "#546070"; context.stroke(paths.none);
    context.strokeStyle = "#ffffff"; context.stroke(paths.over);
  }

  drawCursor(context, text) {
    const place = this.place(this.cursor);
    if (!place) return;
    const size = Math.max(this.view.scale, 5);
    context.strokeStyle = text; context.lineWidth = 2.5;
    context.strokeRect(place.x - 1, place.y - 1, size + 2, size + 2);
  }

  // -- where is what --------------------------------------------------------------------------------

  groupOf(at) { return this.groups.find((group) => at >= group.from && at < group.to); }

  place(at) {
    const group = at >= 0 && this.head ? this.groupOf(at) : null;
    if (!group) return null;
    const cell = at - group.from, { x, scale } = this.view;
    return { x: x + cell % this.columns * scale, y: this.top(group) + Math.floor(cell / this.columns) * scale };
  }

  at(x, y) {
    if (!this.head || !this.view) return -1;
    const column = Math.floor((x - this.view.x) / this.view.scale);
    if (column < 0 || column >= this.columns) return -1;
    for (const group of this.groups) {
      const row = Math.floor((y - this.top(group)) / this.view.scale), at = group.from + row * this.columns + column;
      if (row >= 0 && at < group.to) { if (y < this.top(group)) return -1; if (at >= group.from) return at; }
    }
    return -1;
  }

  // -- who is it ------------------------------------------------------------------------------------

  say(text) { if (this.state.textContent !== text) this.state.textContent = text; }

  async point(at, spoken) {
    this.cursor = at;
    this.draw();
    const place = this.place(at);
    if (!place) { this.tip.hidden = true; return; }
    this.show(place, at);
    if (this.known.has(at)) { if (spoken) this.tell(at); return; }
    const turn = ++this.asked;
    await new Promise((done) => setTimeout(done, 70));
    if (turn !== this.asked) return;
    // Neighbours come along: whoever looks at one looks at the next.
    const ids = [], places = [];
    for (let near = Math.max(0, at - 12); near <= at + 12 && near < this.head.count; near++) { ids.push(this.ids[near]); places.push(near); }
    try {
      const address = this.around.dataset.who, answer = await fetch(`${address}&ids=${ids.join(",")}`);
      const byId = new Map((await answer.json()).hosts.map((host) => [host.id, host]));
      places.forEach((each, index) => { const host = byId.get(ids[index]); if (host) this.known.set(each, host); });
    } catch { return; }
    if (this.cursor === at) { this.show(this.place(at), at); if (spoken) this.tell(at); }
  }

  show(place, at) {
    const host = this.known.get(at), level = this.levels[at], group = this.groupOf(at);
    const lines = [host ? host.name : "…", `${level === NOTHING ? "none of it" : `${level} %`}${host && host.whole ? `, ${host.text}` : ""}`, group.kind === "none" ? "" : `${group.kind} ${group.name}`];
    const name = document.createElement("strong");
    name.textContent = lines[0];
    this.tip.replaceChildren(name, document.createTextNode(lines[1]), document.createElement("br"), document.createTextNode(lines[2]));
    this.tip.hidden = false;
    const right = place.x > this.canvas.clientWidth - 240, size = Math.max(this.view.scale, 5);
    const left = Math.max(0, right ? place.x - this.tip.offsetWidth - 8 : place.x + size + 8);
    this.tip.style.setProperty("left", `${left}px`);
    this.tip.style.setProperty("top", `${Math.max(0, Math.min(place.y, this.canvas.clientHeight - this.tip.offsetHeight))}px`);
  }

  tell(at) {
    const host = this.known.get(at);
    if (host) this.say(`${host.name}, ${host.group}: ${host.percent === null ? "none of it" : `${host.percent} percent, ${host.text}`}`);
  }

  open(at) { if (at >= 0) location.href = `${this.around.dataset.go}/${this.ids[at]}`; }

  // -- hands ----------------------------------------------------------------------------------------

  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const view = this.view;
    if (!view) return;
    const scale = Math.min(MOST_SCALE, Math.max(view.least, view.scale * factor)), by = scale / view.scale;
    if (scale === view.least) { this.fit(); return; }
    view.x = x - (x - view.x) * by; view.y = y - (y - view.y) * by; view.scale = scale;
    this.keep();
  }

  pan(x, y) { this.view.x += x; this.view.y += y; this.keep(); }

  // Something of the map always stays to be seen.
  keep() {
    const { view, canvas } = this, wide = this.columns * view.scale, high = this.rows * view.scale + this.groups.length * 20;
    view.x = Math.min(canvas.clientWidth - 40, Math.max(40 - wide, view.x));
    view.y = Math.min(canvas.clientHeight - 40, Math.max(40 - high, view.y));
    this.draw();
  }

  reveal(at) {
    const place = this.place(at), margin = this.view.scale;
    if (!place) return;
    const x = place.x < 0 ? margin - place.x : Math.min(0, this.canvas.clientWidth - place.x - 2 * margin);
    const y = place.y < 20 ? 20 + margin - place.y : Math.min(0, this.canvas.clientHeight - place.y - 2 * margin);
    if (x || y) this.pan(x, y);
  }

  listen() {
    const canvas = this.canvas;
    let from = null, moved = false, fingers = new Map(), apart = 0;
    canvas.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event); canvas.setPointerCapture(event.pointerId);
      from = event; moved = false;
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.view) return;
      if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        const [one, other] = [...fingers.values()], far = Math.hypot(one.offsetX - other.offsetX, one.offsetY - other.offsetY);
        if (apart) this.zoom(far / apart, (one.offsetX + other.offsetX) / 2, (one.offsetY + other.offsetY) / 2);
        apart = far; moved = true;
      } else if (from) {
        if (moved || Math.hypot(event.offsetX - from.offsetX, event.offsetY - from.offsetY) > 4) {
          if (moved) this.pan(event.offsetX - this.last.offsetX, event.offsetY - this.last.offsetY);
          moved = true; this.tip.hidden = true;
        }
      } else this.point(this.at(event.offsetX, event.offsetY));
      this.last = event;
    });
    const up = (event) => {
      fingers.delete(event.pointerId); apart = 0;
      if (from && !moved && event.type === "pointerup") this.open(this.at(event.offsetX, event.offsetY));
      from = null;
    };
    canvas.addEventListener("pointerup", up);
    canvas.addEventListener("pointercancel", up);
    canvas.addEventListener("pointerleave", () => { if (!from && document.activeElement !== canvas) this.point(-1); });
    canvas.addEventListener("wheel", (event) => {
      if (!this.view || !(event.ctrlKey || document.activeElement === canvas || canvas.classList.contains("tall"))) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("blur", () => { this.tip.hidden = true; });
    const buttons = { in: () => this.zoom(1.6), out: () => this.zoom(1 / 1.6), all: () => this.fit() };
    for (const button of this.around.querySelectorAll("[data-zoom]")) button.addEventListener("click", buttons[button.dataset.zoom]);
    addEventListener("resize", () => { if (this.head) { this.lay(); this.paint(); } });
    addEventListener("themechange", () => this.head && this.paint());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.head && this.paint());
  }

  onKey(event) {
    if (!this.head?.count || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    const act = { Enter: () => this.open(this.cursor), "+": () => this.zoom(1.6), "=": () => this.zoom(1.6), "-": () => this.zoom(1 / 1.6), 0: () => this.fit() }[event.key];
    if (step !== undefined) {
      const next = this.cursor < 0 ? 0 : Math.min(this.head.count - 1, Math.max(0, this.cursor + step));
      this.cursor = next; this.reveal(next); this.point(next, true);
    } else if (act) act(); else return;
    event.preventDefault();
  }
}

for (const around of document.querySelectorAll("[data-map]")) around.fleetMap = new FleetMap(around);
})();
