// What all pages have: keys, the theme, marking of owners, sorting, and refreshing without a jump.
"use strict";

const $ = (selector, inside = document) => inside.querySelector(selector);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
// To such a request an ended session is a status, and no way to the page for signing in.
const BY_SCRIPT = { headers: { "X-Requested-With": "placement" } };

// -- theme ------------------------------------------------------------------------------------------

function otherTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  try { localStorage.setItem("placement-theme", root.dataset.theme); } catch { /* It counts for this page only. */ }
  dispatchEvent(new Event("themechange"));
}

// -- keys -------------------------------------------------------------------------------------------

const isField = (element) => element.matches("input, textarea, select, [contenteditable]");
let going = 0;

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const field = isField(event.target);
  if (event.key === "Escape" && field) event.target.blur();
  if (field || $("dialog[open]")) return;
  if (event.key === "g") { going = Date.now(); return; }
  const target = Date.now() - going < 1500 ? $(`[data-key="${CSS.escape(event.key)}"]`) : null;
  going = 0;
  if (target) { target.click(); return; }
  const act = { "/": () => $("#q")?.focus(), "?": () => $("#help").showModal(), d: otherTheme }[event.key];
  if (act) { event.preventDefault(); act(); }
}

// -- marking what one consumer holds ----------------------------------------------------------------

function mark(drawing, owner) {
  const around = drawing.closest("[data-keep-mark]") || document;
  drawing.classList.toggle("marking", Boolean(owner));
  for (const part of all("[data-owner]", drawing)) part.classList.toggle("on", part.dataset.owner === owner);
  for (const row of all("tr[data-owner]", around)) row.classList.toggle("on", row.dataset.owner === owner);
}

function markAll(owner) { for (const drawing of all("[data-marks]")) mark(drawing, owner); }

// What the page was opened to show stays marked while nothing else is.
const usual = () => $("[data-mark]")?.dataset.mark || new URLSearchParams(location.search).get("owner");

function onOver(event) {
  const part = event.target.closest?.("[data-owner]");
  if (part) markAll(part.dataset.owner); else if ($(".marking")) markAll(usual());
}

// -- sorting ----------------------------------------------------------------------------------------

function sortable(table) {
  all("thead th", table).forEach((head, column) => {
    if (head.querySelector("button") || !head.textContent.trim() || head.textContent === "Claim") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      all("th", table).forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const text = (row) => row.cells[column].textContent.trim();
      const compare = (a, b) => text(a).localeCompare(text(b), "en", { numeric: true });
      const rows = [...table.tBodies[0].rows].sort((a, b) => (down ? compare(b, a) : compare(a, b)));
      table.tBodies[0].append(...rows);
    });
  });
}

// -- refreshing -------------------------------------------------------------------------------------

const notify = (text) => { const place = $("#notice"); if (place.textContent !== text) place.textContent = text; };

const PATIENCE_SECONDS = 20;
let renewedAt = Date.now();
function tellAge() {
  const seconds = Math.round((Date.now() - renewedAt) / 1000);
  $("#fresh").textContent = seconds < 60 ? `${seconds} s ago` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
}

function isBusy() {
  const active = document.activeElement;
  return document.hidden || $("dialog[open]") || (active && isField(active)) || String(getSelection()) !== "";
}

// Replace what differs, and nothing else: what is open, focused or scrolled stays so.
function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.matches("[data-keep]")) return;
  if (old.matches("details[data-link]")) { if (old.dataset.link !== fresh.getAttribute("href")) old.replaceWith(fresh); return; }
  const kinds = old.tagName === fresh.tagName && old.children.length && old.children.length === fresh.children.length;
  const texts = (node) => [...node.childNodes].filter((each) => each.nodeType === 3).map((each) => each.data.trim()).join();
  if (kinds && texts(old) === texts(fresh)) {
    for (const { name, value } of fresh.attributes) {
      if (!(name === "class" && old.matches("[data-owner], [data-marks]")) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    }
    // What is taken over leaves the fresh page, so the twins are noted before.
    const twins = [...fresh.children];
    [...old.children].forEach((child, at) => renew(child, twins[at]));
    return;
  }
  const open = all("details[open][id]", old).map((each) => each.id);
  for (const each of all("details[id]", fresh)) each.open = open.includes(each.id);
  for (const box of all("details[data-link]", old)) linkTo(box.dataset.link, fresh)?.replaceWith(box);
  old.replaceWith(fresh);
}

// -- what is asked for once it comes into view -------------------------------------------------------

async function pageAt(address) {
  const answer = await fetch(address, BY_SCRIPT);
  if (!answer.ok) throw new Error(answer.status === 401 ? "the session has ended" : `the service answers ${answer.status}`);
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// The list of another page in place of the link to it; again whenever this page is renewed.
async function fill(place) {
  try {
    const page = await pageAt(place.dataset.part), list = $("[data-list]", page) || $(".empty", page);
    const fresh = document.createElement("div");
    fresh.append(list || "There is nothing.");
    if (!place.dataset.filled) place.replaceChildren(...fresh.childNodes);
    else if (list) { carry(place, fresh); renew(place.firstElementChild, list); }
    place.dataset.filled = "yes";
    all("table[data-sort]", place).forEach(sortable);
    if ($("[data-marks]", place)) markAll(usual());
  } catch (error) { notify(`A part of this page could not be loaded: ${error.message}.`); }
}

const inView = new Set();
const watch = new IntersectionObserver((entries) => entries.forEach(({ target, isIntersecting }) => {
  if (!isIntersecting) { inView.delete(target); return; }
  inView.add(target);
  if (!target.dataset.filled) fill(target);
}), { rootMargin: "200px" });
const watchParts = () => all("[data-part]").forEach((place) => watch.observe(place));

// Choices beside the one that is made, from the moment on that the pointer comes near.
async function offer(select) {
  const address = select.dataset.options;
  if (!address) return;
  delete select.dataset.options;
  try {
    const { names } = await (await fetch(address, BY_SCRIPT)).json();
    const known = [...select.options].map((each) => each.text);
    for (const name of names) if (!known.includes(name)) select.add(new Option(name));
  } catch { select.dataset.options = address; }
}
const onNear = (event) => all("select[data-options]", event.target.closest?.("form") || document.createElement("p")).forEach(offer);

// What a link of a table leads to is a row of its own, below the row of the link.
function below(link, content) {
  const row = document.createElement("tr"), cell = row.insertCell(), above = link.closest("tr");
  row.dataset.link = link.getAttribute("href");
  cell.colSpan = above.cells.length;
  cell.append(content);
  above.after(row);
  link.setAttribute("aria-expanded", "true");
}

const linkTo = (address, inside) => $(`a[data-more][href="${CSS.escape(address)}"]`, inside);

// Rows that were unfolded are there in the fresh page, too.
function carry(old, fresh) {
  for (const row of all("tr[data-link]", old)) {
    const link = linkTo(row.dataset.link, fresh);
    if (link) below(link, row.cells[0].firstElementChild.cloneNode(true));
  }
}

// What a link leads to, below it; a second click takes it away.
async function unfold(link) {
  if (link.ariaExpanded === "true") {
    link.closest("tr").nextElementSibling.remove();
    link.ariaExpanded = "false";
    return;
  }
  if (link.ariaBusy === "true") return;
  link.ariaBusy = "true";
  try {
    const found = $(link.dataset.more, await pageAt(link.href));
    if (!found) throw new Error("it is not there");
    found.removeAttribute("id");
    if (link.matches(".records a")) { below(link, found); link.ariaBusy = "false"; return; }
    const box = document.createElement("details");
    box.open = true;
    const name = document.createElement("summary");
    name.textContent = link.textContent;
    box.append(name, found);
    box.dataset.link = link.getAttribute("href");
    link.replaceWith(box);
  } catch { location.href = link.href; }
}

// -- copying ------------------------------------------------------------------------------------------

// Browsers let pages copy over TLS and on this machine only.
function offerCopies() { if (navigator.clipboard) for (const button of all("[data-copy]")) button.hidden = false; }

async function copy(button) {
  await navigator.clipboard.writeText($("pre", button.parentElement).textContent);
  notify("Copied.");
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
}

// Say above the page that it cannot be renewed, and why; nothing if it can.
function tellOld(why) {
  const bar = $("#old"), since = new Date(renewedAt).toISOString().slice(11, 16);
  const text = why && `${why} since ${since} UTC; what is shown is old.`;
  if (bar.textContent !== text) bar.textContent = text;
  bar.hidden = !why;
  document.body.classList.toggle("old", Boolean(why));
}

async function refresh(main) {
  if (isBusy()) return;
  try {
    const answer = await fetch(location.href, { ...BY_SCRIPT, signal: AbortSignal.timeout(1000 * PATIENCE_SECONDS) });
    if (answer.status === 401) { tellOld("The session has ended, so reload the page to sign in again. No answer"); return; }
    if (!answer.ok) { tellOld(`The service answers ${answer.status}. Nothing new`); return; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = $("#main", page);
    if (!fresh || isBusy()) return;
    for (const each of all("details[id]", main)) { const twin = fresh.querySelector(`#${CSS.escape(each.id)}`); if (twin) twin.open = each.open; }
    carry(main, fresh);
    if (main.children.length === fresh.children.length) renew(main, fresh); else main.replaceChildren(...fresh.childNodes);
    watchParts();
    for (const place of inView) if (place.isConnected && place.dataset.filled) fill(place); else if (!place.isConnected) inView.delete(place);
    dispatchEvent(new Event("refreshed"));
    renewedAt = Date.now();
    tellAge();
    notify("");
    tellOld("");
    markAll(usual());
  } catch { tellOld("No answer"); }
}

// -- beginning --------------------------------------------------------------------------------------

tellAge();
setInterval(tellAge, 1000);
// In a narrow window the pages are one row that scrolls.
$(".pages [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
document.addEventListener("keydown", onKey);
document.addEventListener("mouseover", onOver);
document.addEventListener("focusin", onOver);
$("#theme").addEventListener("click", otherTheme);
$("#help-open").addEventListener("click", () => $("#help").showModal());
all("table[data-sort]").forEach(sortable);
document.addEventListener("change", (event) => { if (event.target.matches("form[data-auto] select")) event.target.form.requestSubmit(); });
if ($("[data-marks]")) markAll(usual());
document.addEventListener("pointerover", onNear);
document.addEventListener("focusin", onNear);
document.addEventListener("click", (event) => {
  const button = event.target.closest?.("[data-copy]");
  if (button) { copy(button); return; }
  const link = event.target.closest?.("a[data-more]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  unfold(link);
});
offerCopies();
watchParts();
const main = $("#main");
if (main.dataset.live) {
  setInterval(() => refresh(main), 1000 * main.dataset.live);
  // A page that is looked at again is renewed at once.
  document.addEventListener("visibilitychange", () => refresh(main));
}
