// The map of the fleet. Every host is a pixel of one picture that is painted when numbers come; moving and
// zooming only draws that picture elsewhere, so it costs the same for ten hosts and for a hundred thousand.
"use strict";

(() => {
const NOTHING = 255, OVER = [208, 28, 139];
// From little to much; light grows darker in light themes as well as dark ones grow lighter.
const LIGHT = [[237, 243, 251], [168, 204, 236], [92, 156, 214], [33, 102, 172], [8, 45, 100]];
const DARK = [[27, 38, 56], [26, 72, 122], [38, 122, 178], [92, 184, 214], [222, 243, 200]];
// What is free is green.
const FREE_LIGHT = [[240, 247, 242], [168, 214, 188], [78, 158, 116], [22, 108, 64], [6, 56, 32]];
const FREE_DARK = [[27, 38, 32], [24, 78, 54], [38, 132, 88], [92, 196, 138], [222, 243, 200]];
const MOST_SCALE = 160, FRESH_SECONDS = 15, NUMBERS_FROM = 30, LARGEST_CELL = 96;
// Smaller cells are not seen; a map grows for them, up to a height that is still scrolled through.
const LEAST_CELL = 8, TALLEST = 1600;
// Above each block of a group its name, which wants some width; between blocks a gap; around all a margin.
const TITLE = 22, LEAST_BLOCK = 150, GAP = 16, MARGIN = 12;
// Of a name so many characters are shown at least, and the number of hosts only where there is width for both.
const SHORTEST_NAME = 12;
// Rows that the blocks beside each other may have.
const ROWS = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 26, 32];

const FONT = "Inter, system-ui, sans-serif";
const NAMES = { none: "in neither" };

const isDark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// A cell that offers none is seen, and does not catch the eye.
const QUIET = () => (isDark() ? "#6c7887" : "#8a94a3");

// Thousands are apart as elsewhere on the pages, whatever the language of the browser.
const grouped = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");
const counted = (count, thing) => `${grouped(count)} ${thing}${count === 1 ? "" : "s"}`;

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
      const answer = await fetch(this.around.dataset.data, BY_SCRIPT);
      if (answer.status === 401) return this.say("The session has ended: reload the page to sign in again.");
      if (!answer.ok) return this.fail(`answers ${answer.status}`);
      this.take(await answer.arrayBuffer());
    } catch { this.fail("does not answer"); }
  }

  fail(how) { this.say(`${this.head ? "These hosts are as they were" : "The hosts cannot be shown"}: the service ${how}.`); }

  take(body) {
    const size = new DataView(body).getUint32(0, true);
    const head = JSON.parse(new TextDecoder().decode(new Uint8Array(body, 4, size))), start = 4 + size;
    const column = (kind, name, count) => new kind(body, start + head.offsets[name], count);
    this.head = head;
    this.closed = new Set(head.closed);
    this.ids = column(head.id_bytes === 4 ? Uint32Array : Float64Array, "ids", head.count);
    this.levels = column(Uint8Array, "levels", head.count);
    const ends = column(Uint32Array, "groups", head.groups.length + 1);
    this.groups = head.groups.map((group, at) => ({ ...group, from: ends[at], to: ends[at + 1] })).filter((group) => group.to > group.from);
    this.known.clear();
    this.lay();
    this.paint();
    const hosts = head.groups.reduce((sum, group) => sum + group.hosts, 0), storage = head.count - hosts;
    if (!head.count) this.say("There are no hosts.");
    else if (this.cursor < 0) this.say(`${counted(hosts, "host")}${storage ? ` and ${grouped(storage)} of shared storage` : ""}.`);
    this.around.querySelector(".map-total").textContent = head.percent === null ? "" : `All together: ${head.percent} %`;
    this.around.dataset.drawn = head.count;
    this.around.dataset.cell = Math.floor(this.widest);
  }

  // A block of cells for each group, blocks beside each other on shelves: the largest cells that fit, and of
  // shapes with room for numbers the one on the fewest shelves, of these the one that leaves the least empty.
  lay() {
    // What the page allows; a few hosts need less.
    this.canvas.style.removeProperty("height");
    const width = this.canvas.clientWidth, given = Math.max(this.canvas.clientHeight, 1);
    let best = null;
    for (let size = LARGEST_CELL; size >= 1 && (size >= NUMBERS_FROM || !best); size--) {
      const made = ROWS.map((rows) => this.shelve(size, rows, width)).filter((each) => this.suits(each, given));
      for (const each of made) if (!best || (each.shelves - best.shelves || best.covered - each.covered) < 0) best = each;
    }
    best ||= this.shelve(1, 1, width);
    this.groups.forEach((group, at) => Object.assign(group, best.blocks[at]));
    const shape = `${width},${best.size},${best.height},${this.head.count},${best.columns}`;
    const sized = this.shape !== shape;
    this.shape = shape; this.widest = best.size;
    this.columns = best.columns; this.rows = best.pixels; this.high = best.height;
    this.canvas.style.setProperty("height", `${best.height}px`);
    if (sized || !this.view) this.fit();
  }

  // Cells that can be seen may take more height than is given, and titles may whatever they need.
  suits(made, given) {
    if (made.height <= given) return true;
    return made.size <= LEAST_CELL && made.cells <= TALLEST;
  }

  shelve(size, rows, width) {
    const most = Math.max(1, Math.floor((width - 2 * MARGIN) / size));
    let row = 0, shelf = 0, x = MARGIN, tall = 0, pixels = 0, columns = 1;
    const blocks = this.groups.map((group) => {
      const count = group.to - group.from;
      // A few hosts take the width that their name needs anyway.
      const wide = Math.min(most, count, Math.max(Math.ceil(count / rows), Math.floor(LEAST_BLOCK / size))), high = Math.ceil(count / wide);
      const takes = Math.max(wide * size, Math.min(LEAST_BLOCK, width - 2 * MARGIN));
      if (x > MARGIN && x + takes > width - MARGIN) { shelf += 1; row += tall; tall = 0; x = MARGIN; }
      const block = { columns: wide, rows: high, row, shelf, x: (x - MARGIN) / size, takes: takes / size, pixel: pixels };
      x += takes + GAP; tall = Math.max(tall, high); pixels += high; columns = Math.max(columns, wide);
      return block;
    });
    const shelves = shelf + 1, cells = (row + tall) * size, height = Math.ceil(cells + shelves * (TITLE + GAP) + MARGIN);
    return { size, blocks, shelves, cells, pixels, columns, height, covered: size * size / height };
  }

  fit() {
    this.view = { x: MARGIN, y: 4, scale: this.widest, least: this.widest };
    this.draw();
    this.follow();
  }

  // -- the picture ----------------------------------------------------------------------------------

  paint() {
    const stops = this.around.dataset.by === "cores" ? isDark() ? FREE_DARK : FREE_LIGHT : isDark() ? DARK : LIGHT, none = isDark() ? [27, 31, 38] : [243, 244, 246];
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
      for (let at = group.from; at < group.to; at++) {
        const cell = at - group.from, row = Math.floor(cell / group.columns);
        pixels[(group.pixel + row) * this.picture.width + cell - row * group.columns] = table[this.levels[at]];
      }
    }
    context.putImageData(image, 0, 0);
    this.hasMarks = this.closed.size > 0 || this.levels.some((level) => level > 100);
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

  // Where the cells of a block begin on the canvas: after cells above it and titles, and cells before it.
  top(group) { return this.view.y + group.row * this.view.scale + group.shelf * (TITLE + GAP) + TITLE; }
  left(group) { return this.view.x + group.x * this.view.scale; }

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
    const { scale } = this.view, text = style.color, back = style.backgroundColor;
    for (const group of this.groups) {
      const top = this.top(group), left = this.left(group);
      if (top - TITLE > height || top + group.rows * scale < 0 || left > width || left + group.takes * scale < 0) continue;
      context.drawImage(this.picture, 0, group.pixel, group.columns, group.rows, left, top, group.columns * scale, group.rows * scale);
      this.drawLines(context, group, { top, left, back, width, height });
      // The title of a block that is seen in part stays at the edge, over its cells.
      const base = Math.max(top - 7, TITLE - 7), from = Math.max(left, 4);
      if (base > top - 7) { context.fillStyle = back; context.fillRect(from - 4, base - TITLE + 7, group.takes * scale, TITLE); }
      context.fillStyle = text;
      this.drawTitle(context, group, from, base);
    }
    this.drawCursor(context, text);
  }

  // The name of a group with as much of it as fits above its block, and how many hosts it has.
  drawTitle(context, group, left, base) {
    context.font = `600 12px ${FONT}`;
    const storage = group.to - group.from - group.hosts, counts = [group.hosts && `${group.hosts < group.all ? `${grouped(group.hosts)} of ` : ""}${counted(group.all, "host")}`, storage && `${grouped(storage)} storage`];
    const count = ` · ${counts.filter(Boolean).join(", ")}`, room = group.takes * this.view.scale;
    let name = NAMES[group.kind] || group.name;
    const wide = (text) => context.measureText(text).width, both = wide(name.slice(0, SHORTEST_NAME)) + wide(count) <= room;
    const most = both ? room - wide(count) : room;
    if (wide(name) > most) {
      // Names of one place begin alike, so the middle goes.
      const shortened = (length) => `${name.slice(0, Math.ceil(length / 2))}…${name.slice(-Math.floor(length / 2) || name.length)}`;
      let length = name.length - 1;
      while (length > 2 && wide(shortened(length)) > most) length -= 1;
      name = shortened(length);
    }
    context.fillText(name, left, base);
    if (!both) return;
    const after = left + wide(name);
    context.font = `12px ${FONT}`;
    context.fillText(count, after, base);
  }

  // Gaps between cells, and percentages in them, where there is room; only of what can be seen.
  drawLines(context, group, { top, left, back, width, height }) {
    const { scale } = this.view;
    if (scale < 5) return;
    const first = Math.max(0, Math.floor(-left / scale)), last = Math.min(group.columns, Math.ceil((width - left) / scale));
    const begin = Math.max(0, Math.floor(-top / scale)), end = Math.min(group.rows, Math.ceil((height - top) / scale));
    context.fillStyle = back;
    const gap = scale > 14 ? 2 : 1;
    for (let column = first; column <= last; column++) context.fillRect(left + column * scale - gap / 2, top + begin * scale, gap, (end - begin) * scale);
    for (let row = begin; row <= end; row++) context.fillRect(left + first * scale, top + row * scale - gap / 2, (last - first) * scale, gap);
    if (this.hasMarks) this.drawMarks(context, group, { top, left, first, last, begin, end });
    if (scale < NUMBERS_FROM) return;
    context.font = `600 11px ${FONT}`;
    context.textAlign = "center";
    for (let row = begin; row < end; row++) for (let column = first; column < last; column++) {
      const at = group.from + row * group.columns + column;
      if (at >= group.to) continue;
      const level = this.levels[at], bright = isDark() ? level > 55 && level <= 100 : level < 55;
      context.fillStyle = level === NOTHING ? QUIET() : bright ? "#10151c" : "#ffffff";
      context.fillText(level === NOTHING ? "–" : level, left + (column + .5) * scale, top + (row + .5) * scale + 4);
    }
    context.textAlign = "start";
  }

  // What colour does not tell: a stroke where none is offered, a cross where there is too much, a frame where
  // a host is closed.
  drawMarks(context, group, seen) {
    const { scale } = this.view, from = scale * .35, to = scale * .65;
    const paths = { none: new Path2D(), over: new Path2D(), closed: new Path2D() };
    for (let row = seen.begin; row < seen.end; row++) for (let column = seen.first; column < seen.last; column++) {
      const at = group.from + row * group.columns + column, level = at < group.to ? this.levels[at] : 0;
      const left = seen.left + column * scale, above = seen.top + row * scale;
      if (at < group.to && this.closed.has(at)) paths.closed.rect(left + scale * .12, above + scale * .12, scale * .76, scale * .76);
      if (level <= 100) continue;
      const path = level === NOTHING ? paths.none : paths.over;
      if (level === NOTHING && scale >= NUMBERS_FROM) continue;
      path.moveTo(left + from, above + to); path.lineTo(left + to, above + from);
      if (level !== NOTHING && scale < NUMBERS_FROM) { path.moveTo(left + from, above + from); path.lineTo(left + to, above + to); }
    }
    context.lineWidth = 1;
    context.strokeStyle = QUIET(); context.stroke(paths.none);
    context.strokeStyle = "#ffffff"; context.stroke(paths.over);
    // Light and dark in turn, to be seen on any colour.
    context.lineWidth = 2;
    context.strokeStyle = "#ffffff"; context.stroke(paths.closed);
    context.setLineDash([3, 3]);
    context.strokeStyle = "#10151c"; context.stroke(paths.closed);
    context.setLineDash([]);
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
    const cell = at - group.from, { scale } = this.view;
    return { x: this.left(group) + cell % group.columns * scale, y: this.top(group) + Math.floor(cell / group.columns) * scale };
  }

  at(x, y) {
    if (!this.head || !this.view) return -1;
    for (const group of this.groups) {
      const column = Math.floor((x - this.left(group)) / this.view.scale), row = Math.floor((y - this.top(group)) / this.view.scale);
      if (column < 0 || column >= group.columns || row < 0 || row >= group.rows) continue;
      const at = group.from + row * group.columns + column;
      return at < group.to ? at : -1;
    }
    return -1;
  }

  // -- which host ------------------------------------------------------------------------------------

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
    // Neighbours come along: the next one is looked at soon.
    const ids = [], places = [];
    for (let near = Math.max(0, at - 12); near <= at + 12 && near < this.head.count; near++) { ids.push(this.ids[near]); places.push(near); }
    try {
      const address = this.around.dataset.hosts, answer = await fetch(`${address}&ids=${ids.join(",")}`, BY_SCRIPT);
      const byId = new Map((await answer.json()).hosts.map((host) => [host.id, host]));
      places.forEach((each, index) => { const host = byId.get(ids[index]); if (host) this.known.set(each, host); });
    } catch { return; }
    if (this.cursor === at) { this.show(this.place(at), at); if (spoken) this.tell(at); }
  }

  // The words about a host go where it goes.
  follow() {
    const place = this.tip.hidden ? null : this.place(this.cursor);
    if (place) this.show(place, this.cursor);
  }

  show(place, at) {
    const host = this.known.get(at), level = this.levels[at], group = this.groupOf(at);
    const lines = [host ? host.name : "…", `${level === NOTHING ? "offers none" : `${level} %`}${host && host.whole ? `, ${host.text}` : ""}`, [this.closed.has(at) ? "closed" : at >= group.from + group.hosts ? "shared storage" : "", group.kind === "none" ? "" : `${group.kind} ${group.name}`].filter(Boolean).join(" of ")];
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
    if (host) this.say(`${host.name}, ${host.group_name}${this.closed.has(at) ? ", closed" : ""}: ${host.percent === null ? "offers none" : `${host.percent} percent, ${host.text}`}`);
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

  // The chosen host stays where it is.
  zoomAtCursor(factor) {
    const place = this.place(this.cursor), half = this.view ? this.view.scale / 2 : 0;
    if (!place) { this.zoom(factor); return; }
    this.zoom(factor, place.x + half, place.y + half);
    this.reveal(this.cursor);
  }

  pan(x, y) { this.view.x += x; this.view.y += y; this.keep(); }

  // Something of the map always stays to be seen.
  keep() {
    const { view, canvas } = this, by = view.scale / view.least, wide = canvas.clientWidth * by, high = this.high * by;
    view.x = Math.min(canvas.clientWidth - 40, Math.max(40 - wide, view.x));
    view.y = Math.min(canvas.clientHeight - 40, Math.max(40 - high, view.y));
    this.draw();
    this.follow();
  }

  reveal(at) {
    const place = this.place(at), margin = this.view.scale;
    if (!place) return;
    const x = place.x < 0 ? margin - place.x : Math.min(0, this.canvas.clientWidth - place.x - 2 * margin);
    const y = place.y < TITLE ? TITLE + margin - place.y : Math.min(0, this.canvas.clientHeight - place.y - 2 * margin);
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
    const { columns } = this.groupOf(Math.max(this.cursor, 0));
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    const act = { Enter: () => this.open(this.cursor), "+": () => this.zoomAtCursor(1.6), "=": () => this.zoomAtCursor(1.6), "-": () => this.zoomAtCursor(1 / 1.6), 0: () => this.fit() }[event.key];
    if (step !== undefined) {
      const next = this.cursor < 0 ? 0 : Math.min(this.head.count - 1, Math.max(0, this.cursor + step));
      this.cursor = next; this.reveal(next); this.point(next, true);
    } else if (act) act(); else return;
    event.preventDefault();
  }
}

for (const around of document.querySelectorAll("[data-map]")) around.fleetMap = new FleetMap(around);
})();
