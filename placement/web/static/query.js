// The query as a form: rows of resources above the text, each kept in step with the other.
"use strict";

const builder = $(".builder");
const text = $("textarea[name=query]");
const part = (name, inside = builder) => $(`[data-field=${name}]`, inside);
const NUMA_GROUP = "_numa", NUMA_TRAIT = "HW_NUMA_ROOT";
let classes = [];

// -- text to rows and back ----------------------------------------------------------------------------

// What the rows cannot say stays in `rest`; null if a part of the text makes no row.
function read(query) {
  const groups = new Map(), rest = [];
  let policy = "", subtree = "";
  for (const pair of query.trim().replace(/^\?/, "").split("&").filter(Boolean)) {
    const [key, ...values] = pair.split("=");
    const value = decodeURIComponent(values.join("=").replaceAll("+", " "));
    const [, name, suffix] = key.match(/^(resources|required|split)(?!_rule)(.*)$/) || [];
    if (key === "group_policy") policy = value;
    else if (key === "same_subtree" && !subtree) subtree = value;
    else if (!name) rest.push(pair);
    else if (groups.get(suffix)?.[name] !== undefined) return null;
    else groups.set(suffix, { ...groups.get(suffix), [name]: value });
  }
  const numa = groups.get(NUMA_GROUP)?.required === NUMA_TRAIT && !groups.get(NUMA_GROUP).resources;
  if (numa) groups.delete(NUMA_GROUP);
  // Rows number their groups, so no other parameter may name one.
  const others = rest.map((pair) => pair.split("=")[0]);
  if ([...groups.keys()].some((suffix) => suffix && others.some((name) => name.endsWith(suffix)))) return null;
  const rows = [];
  for (const [suffix, { resources = "", required = "", split = "" }] of groups) {
    const amounts = resources.split(",").map((each) => each.split(":"));
    if (!amounts.every(([name, amount, more]) => name && amount && more === undefined)) return null;
    if (suffix ? amounts.length > 1 : required || split || numa) return null;
    if (/[!,:]/.test(required) || (split && split !== amounts[0][0])) return null;
    for (const [name, amount] of amounts) rows.push({ name, amount, trait: required, several: Boolean(split) });
  }
  const found = { rows, numa, rest };
  const suffixes = (each) => new URLSearchParams(each).getAll("same_subtree").join().split(",").length;
  const same = !subtree || (numa && suffixes(query) === suffixes(write(found)));
  return same && (!policy || policy === "none") ? found : null;
}

function write({ rows, numa, rest }) {
  const filled = rows.filter((row) => row.name && row.amount);
  // In one group a class stands once.
  const isTwice = (row) => filled.some((other) => other !== row && other.name === row.name);
  const plain = filled.filter((row) => !numa && !row.trait && !row.several && !isTwice(row));
  const apart = filled.filter((row) => !plain.includes(row));
  const parameters = plain.length ? [`resources=${plain.map((row) => `${row.name}:${row.amount}`).join()}`] : [];
  apart.forEach((row, at) => {
    parameters.push(`resources_${at + 1}=${row.name}:${row.amount}`);
    if (row.several) parameters.push(`split_${at + 1}=${row.name}`);
    if (row.trait) parameters.push(`required_${at + 1}=${row.trait}`);
  });
  if (apart.length + numa > 1) parameters.push("group_policy=none");
  if (numa && apart.length) {
    parameters.push(`required${NUMA_GROUP}=${NUMA_TRAIT}`, `same_subtree=${[NUMA_GROUP, ...apart.map((_, at) => `_${at + 1}`)]}`);
  }
  return [...parameters, ...rest].join("&");
}

// -- the form -----------------------------------------------------------------------------------------

let rest = [];

// To begin with a class that no row has yet, memory before others.
function newRow() {
  const used = all("[data-field=class]", builder).map((select) => select.value);
  const left = classes.filter(({ name }) => !used.includes(name));
  const { name, divisor } = (used.length && left.find((each) => each.name === "MEMORY_MB")) || left[0] || classes[0];
  return rowOf({ name, amount: String(divisor) });
}

function rowOf({ name, amount, trait = "", several = false }) {
  const row = $("template", builder).content.firstElementChild.cloneNode(true);
  const select = part("class", row);
  for (const each of classes) select.add(new Option(each.name.replace(/^CUSTOM_/, ""), each.name));
  if (!classes.some((each) => each.name === name)) select.add(new Option(name, name));
  select.value = name;
  part("amount", row).value = amount;
  part("trait", row).value = trait;
  part("several", row).checked = several;
  part("remove", row).addEventListener("click", () => { row.remove(); toText(); });
  measure(row);
  return row;
}

// The amount in the unit that people read, where the class counts in another one.
function measure(row) {
  const unit = classes.find((each) => each.name === part("class", row).value);
  const amount = Number(part("amount", row).value);
  part("unit", row).value = unit && amount ? `${+(amount / unit.divisor).toFixed(2)} ${unit.unit}` : "";
}

function toText() {
  const rows = all(".builder-row", builder);
  rows.forEach(measure);
  text.value = write({
    rest,
    numa: part("numa").checked,
    rows: rows.map((row) => ({
      name: part("class", row).value,
      amount: part("amount", row).value.trim(),
      trait: part("trait", row).value.trim(),
      several: part("several", row).checked,
    })),
  });
}

function toRows() {
  let found = null;
  try { found = read(text.value); } catch { /* A percent sign that begins no byte: not for rows. */ }
  rest = found ? found.rest : [];
  const rows = found ? found.rows.map(rowOf) : [];
  $(".builder-rows", builder).replaceChildren(...rows);
  part("add").disabled = part("numa").disabled = !found;
  part("numa").checked = Boolean(found && found.numa);
  const kept = rest.length ? `Beside the rows: ${rest.join("&")}` : "";
  part("state").textContent = found ? kept : "This query says more than rows can: edit the text.";
}

async function begin() {
  const answer = await fetch(builder.dataset.names, BY_SCRIPT);
  if (!answer.ok) return;
  const names = await answer.json();
  classes = names.classes.map(({ name, unit, divisor }) => ({ name, unit, divisor }));
  if (!classes.length) return;
  $("#builder-traits").append(...names.traits.map((name) => new Option(name, name)));
  toRows();
  if (!text.value) { $(".builder-rows", builder).append(newRow()); toText(); }
  builder.hidden = false;
  builder.addEventListener("input", toText);
  text.addEventListener("input", toRows);
  part("add").addEventListener("click", () => { $(".builder-rows", builder).append(newRow()); toText(); });
}

if (builder) begin().catch(() => { /* The text alone does as well. */ });
