"use strict";
// Elements, and tables that sort. All text goes in as text: no markup is made of data.

// What a terminal would not show as itself either: control characters, and those that turn the
// direction of text, which could make a name look like another.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

function shown(text) {
  return String(text).replace(HIDDEN, c => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== null && value !== undefined && value !== false)
      made.setAttribute(name, value === true ? "" : String(value));
  for (const child of children.flat(Infinity))
    if (child !== null && child !== undefined)
      made.append(child instanceof Node ? child : document.createTextNode(shown(child)));
  return made;
}

function words(key) {
  return shown(key).replaceAll("_", " ").replaceAll(".", ": ");
}

const is_object = value => value !== null && typeof value === "object" && !Array.isArray(value);
const is_rows = value => Array.isArray(value) && value.length > 0 && value.every(is_object);
const is_plain = value => value === null || typeof value !== "object";
const is_list = value => Array.isArray(value) && value.every(is_plain);

function short_number(value) {
  if (Number.isInteger(value)) return String(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

function cell_text(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return short_number(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(cell_text).join(" ");
  return String(value);
}

// Parts of a whole.
function is_part(key) {
  return key === "overlap" || key.endsWith(".overlap") || key.endsWith("_overlap");
}

function column_text(column, value) {
  return is_part(column.key) && typeof value === "number" ? `${Math.round(value * 100)} %` : cell_text(value);
}

const VERDICTS = new Set(["pass", "fail", "inconclusive", "void", "missed", "found", "explained", "undecided"]);

// Numbers before words, and what is not there always last.
function compare_values(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : typeof b === "number" ? 1 : 0;
  return cell_text(a).localeCompare(cell_text(b), "en", {numeric: true});
}

function is_absent(value) {
  return value === null || value === undefined || value === "" ||
      (Array.isArray(value) && value.length === 0);
}

const ROWS_AT_ONCE = 300, LONG_TEXT = 200;

// `columns`: [{key, label, of: row => value, button: {label, press: row => ...}}]. `details`: row
// => element below the row, or nothing.
class SortableTable {
  constructor(caption, columns, rows, details = null) {
    this.columns = columns;
    this.rows = rows.map((row, place) => ({row, place}));
    this.details = details;
    this.most = ROWS_AT_ONCE;
    this.sorted = {column: null, up: true};
    this.said = element("p", {class: "unseen", role: "status"});
    this.heads = columns.map(column => this.head(column));
    this.body = element("tbody");
    this.more = element("button", {type: "button", class: "more"});
    this.more.addEventListener("click", () => { this.most = Infinity; this.draw(); });
    const extra = details === null ? [] : [element("td", {class: "opener"})];
    const table = element("table", {}, element("caption", {}, caption),
                          element("thead", {}, element("tr", {}, extra, this.heads)), this.body);
    const scroll = element("div", {class: "scroll", role: "region", tabindex: 0,
                                   "aria-label": caption}, table);
    this.node = element("div", {class: "table"}, scroll, this.more, this.said);
    this.draw();
  }

  head(column) {
    const button = element("button", {type: "button"}, column.label);
    const values = this.rows.slice(0, 100).map(({row}) => column.of(row)).filter(value => !is_absent(value));
    const numbers = !column.button && values.length > 0 && values.every(value => typeof value === "number");
    const head = element("th", {scope: "col", "aria-sort": "none", class: numbers ? "number" : null}, button);
    button.addEventListener("click", () => this.sort(column, head));
    return head;
  }

  sort(column, head) {
    const up = this.sorted.column === column ? !this.sorted.up : true;
    this.sorted = {column, up};
    for (const other of this.heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    this.rows.sort((a, b) => {
      const left = column.of(a.row), right = column.of(b.row);
      if (is_absent(left) !== is_absent(right)) return is_absent(left) ? 1 : -1;
      const order = is_absent(left) ? 0 : compare_values(left, right);
      return (up ? order : -order) || a.place - b.place;
    });
    this.draw();
    this.said.textContent = `sorted by ${column.label}, ${up ? "ascending" : "descending"}`;
  }

  draw() {
    this.body.replaceChildren(...this.rows.slice(0, this.most).map(({row}) => this.line(row)));
    this.more.hidden = this.rows.length <= this.most;
    this.more.textContent = `Show all ${this.rows.length} rows`;
  }

  line(row) {
    const line = element("tr", {class: row_class(row)}, this.columns.map((column, place) => {
      const value = column.of(row);
      const text = column_text(column, value);
      const content = column.button ? this.button(column, row) : element("span", {class: verdict_class(value)}, text);
      const precise = typeof value === "number" && text !== String(value);
      return element(place === 0 ? "th" : "td",
                     {scope: place === 0 ? "row" : null, title: precise ? String(value) : null,
                      class: typeof value === "number" && !column.button ? "number" : null}, content);
    }));
    if (this.details !== null) line.prepend(this.opener(row, line));
    return line;
  }

  button(column, row) {
    const made = element("button", {type: "button"}, column.button.label(row));
    made.addEventListener("click", () => column.button.press(row));
    return made;
  }

  // A row below, made when it is asked for.
  opener(row, line) {
    const name = cell_text(this.columns[0].of(row)) || "row";
    const button = element("button", {type: "button", "aria-expanded": "false",
                                      "aria-label": `details of ${shown(name)}`}, "+");
    let below = null;
    button.addEventListener("click", () => {
      const open = below === null;
      button.setAttribute("aria-expanded", String(open));
      button.textContent = open ? "−" : "+";
      if (open) {
        below = element("tr", {class: "below"},
                        element("td", {colspan: this.columns.length + 1}, this.details(row)));
        line.after(below);
      } else {
        below.remove();
        below = null;
      }
    });
    return element("td", {class: "opener"}, button);
  }
}

function verdict_class(value) {
  return VERDICTS.has(value) ? "word " + value : null;
}

function row_class(row) {
  return row.met === false ? "unmet" : null;
}

// A column of all plain members, those of objects one level below as well ("failure: rank").
function columns_of(rows) {
  const found = new Map();
  const add = (key, of, value) => {
    if (is_plain(value) || is_list(value)) {
      const column = found.get(key) || {key, label: words(key), of, values: new Set(), lists: 0};
      column.values.add(cell_text(value));
      found.set(key, column);
    }
  };
  for (const row of rows.slice(0, 2000))
    for (const [key, value] of Object.entries(row)) {
      if (!is_object(value)) { add(key, other => other[key], value); continue; }
      for (const [below, inner] of Object.entries(value))
        if (is_plain(inner))
          add(`${key}.${below}`, other => (is_object(other[key]) ? other[key][below] : null), inner);
    }
  return [...found.values()];
}

// Columns that say the same in every row stand above the table, those that say nothing nowhere.
function split_columns(rows) {
  const all = columns_of(rows);
  const same = all.filter(column => rows.length > 1 && column.values.size === 1);
  const differing = all.filter(column => !same.includes(column) &&
                                         [...column.values].some(text => text !== "" && text.length < LONG_TEXT));
  return {same: same.filter(column => !column.values.has("")), differing};
}

// Than its columns show.
function has_more(row) {
  return Object.values(row).some(value => typeof value === "string" ? value.length >= LONG_TEXT
                                                                    : !is_plain(value) && !is_list(value));
}

// Of an array of objects: what all have in common, then a table of the rest.
function table_of(caption, rows, details) {
  if (rows.length === 1) return all_of(rows[0]);
  const {same, differing} = split_columns(rows);
  const parts = [];
  if (same.length > 0)
    parts.push(folded(`The same in all rows of “${caption}”`,
                      () => facts_of(Object.fromEntries(same.map(c => [c.key, c.of(rows[0])])))));
  if (differing.length > 0)
    parts.unshift(new SortableTable(caption, differing, rows, rows.some(has_more) ? details : null).node);
  return element("div", {}, parts);
}

// Made when it is opened.
function folded(title, make, open = false) {
  const made = element("details", {open}, element("summary", {}, title));
  const fill = () => { if (made.childElementCount === 1) made.append(make()); };
  if (open) fill();
  made.addEventListener("toggle", () => { if (made.open) fill(); });
  return made;
}

// Plain members of an object as a list of definitions; numbers to their last digit.
function facts_of(object) {
  const list = element("dl");
  for (const [key, value] of Object.entries(object)) {
    if (!(is_plain(value) || is_list(value)) || is_absent(value)) continue;
    const text = typeof value === "number" ? String(value) : cell_text(value);
    list.append(element("div", {}, element("dt", {}, words(key)),
                        element("dd", {class: verdict_class(value)}, text)));
  }
  return list;
}

// Whatever an object holds: its facts, then what is nested in it.
function all_of(object) {
  const made = element("div", {class: "nested"}, facts_of(object));
  for (const [key, value] of Object.entries(object)) {
    if (is_plain(value) || is_list(value) || value.length === 0) continue;
    made.append(nested(key, value));
  }
  return made;
}

// An object of objects that are alike is a table, too.
function rows_by_name(value) {
  const flat = one => is_object(one) && Object.values(one).every(is_plain);
  if (!is_object(value) || Object.keys(value).length < 2 || !Object.values(value).every(flat)) return null;
  return Object.entries(value).map(([name, one]) => ({name, ...one}));
}

function nested(key, value) {
  const by_name = rows_by_name(value);
  if (by_name !== null) return table_of(words(key), by_name, null);
  if (is_rows(value) && value.length > 1) return table_of(words(key), value, details_of);
  if (is_rows(value)) return folded(words(key), () => all_of(value[0]), true);
  const make = () => Array.isArray(value)
      ? element("ol", {}, value.slice(0, 1000).map(item))
      : all_of(value);
  return folded(words(key), make, is_object(value) && JSON.stringify(value).length < 1000);
}

function item(one) {
  return element("li", {}, is_object(one) ? all_of(one) : cell_text(one));
}

function details_of(row) {
  return all_of(row);
}
