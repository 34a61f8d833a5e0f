// The page: the timeline, evidence of what failed, what repeats it, then every table and fact of the
// result. One renderer for all verbs: it goes by what the result holds.

function section(title, ...children) {
  const id = "section-" + title.toLowerCase().replace(/[^a-z]+/g, "-");
  return element("section", {"aria-labelledby": id}, element("h2", {id}, title), children);
}

// Every command that runs a part of the result again, those of what failed first.
function commands_of(result) {
  const found = new Map();
  const walk = (value, depth) => {
    if (value === null || typeof value !== "object" || depth > 4) return;
    if (typeof value.again === "string" && value.again !== "")
      found.set(value.again, {name: [value.name, value.label].filter(Boolean).join(": "), bad: value.met === false});
    for (const inner of Object.values(value)) walk(inner, depth + 1);
  };
  walk(result, 0);
  return [...found].map(([command, of]) => ({command, ...of})).sort((a, b) => b.bad - a.bad);
}

function command_list(lines) {
  const line = ({command, name}) => element("li", {}, `${name}: `, element("code", {tabindex: 0}, command));
  return element("ul", {class: "commands"}, lines.map(line));
}

const COMMANDS_AT_ONCE = 5;

function again_section(result, own) {
  const lines = commands_of(result), bad = lines.filter(line => line.bad).slice(0, COMMANDS_AT_ONCE);
  const first = lines.length <= COMMANDS_AT_ONCE ? lines : bad;
  const others = lines.filter(line => !first.includes(line)).slice(0, 1000);
  if (own !== "") first.unshift({command: own, name: "this report"});
  const more = others.length > 0 ? folded("Other runs", () => command_list(others)) : null;
  return first.length + others.length > 0 ? section("Run it again", command_list(first), more) : null;
}

const RANK_KEYS = ["rank", "step_ms", "compute_ms", "comm_ms", "wait_ms", "transfer_ms", "exposed_ms", "overlap",
                   "blame_ms", "work_ms", "slowdown", "relative_score"];

function measured_tables(data) {
  const key = name => ({key: name, label: words(name), of: row => row[name]});
  const measured = data.metrics.ranks.length + data.steps.length > 0;
  const made = element("div", {}, measured ? element("h3", {}, "Skew and overlap") : null);
  if (data.metrics.ranks.length > 0)
    made.append(new SortableTable("Ranks, means over the steps", RANK_KEYS.map(key), data.metrics.ranks).node);
  if (data.steps.length > 0) {
    const column = (label, of) => ({key: label, label, of});
    const lowest = row => d3.min(row[5], one => one ?? undefined) ?? null;
    made.append(new SortableTable("Steps: skew and overlap", [
      column("step", row => row[0]), column("skew ms", row => row[1]), column("step ms", row => row[2]),
      column("step without lateness ms", row => row[3]),
      column("longest wait of a rank ms", row => d3.max(row[4])),
      {...column("least overlap of a rank", lowest), key: "overlap"},
    ], data.steps).node);
  }
  return made;
}

function timeline_section(timelines, first) {
  if (timelines.length === 0) return null;
  const place = element("div");
  const show = number => {
    const data = timelines[number], view = new TimelineView(data);
    place.replaceChildren(view.node, measured_tables(data));
    view.resize();
  };
  const option = (one, number) => element("option", {value: number}, `${number + 1}: ${one.name}`);
  const choice = element("select", {"aria-label": "run"}, timelines.map(option));
  choice.value = String(first);
  choice.addEventListener("change", () => show(Number(choice.value)));
  const keys = element("p", {class: "keys", id: "timeline-keys"},
    "Zoom: + and −, Ctrl and wheel, or the wheel once the timeline has the focus. Move: drag, ← and →. " +
    "Steps: n, p. Ranks: ↑, ↓. Collectives of a rank: comma and full stop; Enter or a double click zooms to " +
    "one. 0: the whole run" + (timelines.some(one => one.focus.step > 0) ? "; g: the step to look at." : "."));
  const made = section("Timeline", timelines.length > 1 ? element("p", {}, "Run ", choice) : null, keys, place);
  return {node: made, begin: () => show(first)};
}

// The run that is looked at first: one that is not as expected, with a timeline.
function first_timeline(timelines, result) {
  const bad = timelines.findIndex(one => is_rows(result.runs) && result.runs[one.run]?.met === false);
  if (bad >= 0) return bad;
  const focus = timelines.findIndex(one => one.focus.ranks.length > 0);
  return Math.max(0, focus);
}

const EVIDENCE_AT_ONCE = 20;

const has_evidence = row =>
    row.first_divergence || row.failure || !is_absent(row.straggler?.rank) || row.met === false;

// Of each run that failed: the first element that differs, who failed, which lanes say so. What was
// expected to fail stands behind.
function evidence_section(result) {
  const rows = [result, ...Object.values(result).filter(is_rows).flat()].filter(has_evidence);
  const bad = [...rows.filter(row => row.met === false), ...rows.filter(row => row.met !== false)];
  if (bad.length === 0) return null;
  const one = row => {
    const names = [row.name ?? row.scenario, row.label, row.verdict].filter(Boolean).join(", ");
    const title = row === result || names === "" ? "What was found" : names;
    const parts = ["first_divergence", "failure", "straggler"].filter(key => is_object(row[key]))
        .map(key => element("div", {}, element("h4", {}, words(key)), all_of(row[key])));
    if (is_rows(row.lanes)) parts.push(table_of("Lanes", row.lanes, null));
    if (Array.isArray(row.unmet) && row.unmet.length > 0)
      parts.unshift(element("ul", {class: "unmet-list"}, row.unmet.map(text => element("li", {}, text))));
    return folded(title, () => element("div", {}, parts), bad.length <= 3 || bad.indexOf(row) === 0);
  };
  const list = bad.slice(0, EVIDENCE_AT_ONCE).map(one);
  if (bad.length > EVIDENCE_AT_ONCE)
    list.push(element("p", {}, `${bad.length - EVIDENCE_AT_ONCE} more, in the tables below`));
  return section("Evidence", list);
}

// Where the numbers come from stands last.
const OF_THE_MACHINE = new Set(["machine", "libraries"]);

function result_sections(result) {
  const made = [];
  const last = element("div");
  for (const [key, value] of Object.entries(result)) {
    if (is_plain(value) || is_list(value) || value.length === 0) continue;
    if (OF_THE_MACHINE.has(key)) last.append(folded(words(key), () => all_of(value)));
    else if (is_rows(value)) made.push(section(title_of(key), rows_of(key, value)));
    else if (["first_divergence", "failure", "straggler"].includes(key)) continue;
    else made.push(section(title_of(key), is_object(value) ? all_of(value) : nested(key, value)));
  }
  const own = facts_of(result);
  made.push(section("Facts", own, last));
  return made;
}

const title_of = key => words(key).replace(/^./, c => c.toUpperCase());

const RUN_KEYS = ["name", "label", "verdict", "expected", "met", "baseline", "outcome", "first_divergence.cause",
                  "failure.kind", "failure.rank", "straggler.late_class", "straggler.rank", "kill.caught",
                  "kill.cause_right", "kill.place_right", "world_size", "reducer", "communicator", "duration_ms"];
const RUN_GROUPS = ["common_checks."];  // all members

// Runs have more members than a table has room for; the others stand below each row.
function rows_of(key, rows) {
  if (key !== "runs" || !rows.some(row => "lanes" in row)) return table_of(title_of(key), rows, details_of);
  const all = new Map(columns_of(rows).map(column => [column.key, column]));
  const grouped = [...all.keys()].filter(name => RUN_GROUPS.some(group => name.startsWith(group)));
  const says_something = column => column && !(column.values.size === 1 && column.values.has(""));
  const columns = [...RUN_KEYS, ...grouped].map(name => all.get(name)).filter(says_something);
  return new SortableTable("Runs", columns, rows, details_of).node;
}

function json_of(id) {
  return JSON.parse(document.getElementById(id).textContent);
}

function start() {
  const result = json_of("result"), timelines = json_of("timelines");
  const report = document.getElementById("report");
  const timeline = timeline_section(timelines, first_timeline(timelines, result));
  const parts = [timeline?.node, evidence_section(result), again_section(result, report.dataset.command ?? ""),
                 ...result_sections(result)];
  report.append(...parts.filter(part => part));
  timeline?.begin();
  performance.mark("report ready");
}

start();
