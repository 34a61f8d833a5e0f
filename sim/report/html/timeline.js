// A run's timeline: a row a rank, its phases above, its collectives below, on a canvas; only what is
// in sight is drawn. D3 zooms.

const GUTTER = 144, AXIS = 22, GAP = 6;
const FONT = "12px system-ui, sans-serif";
// Few ranks have more room each.
const heights_for = ranks => (ranks <= 8 ? {phase: 20, lane: 14} : {phase: 11, lane: 8});

const BAR_KINDS = ["load", "forward", "backward", "wait", "optimizer", "checkpoint", "other", "waiting",
                   "transfer", "open", "guilty", "guilty-row", "ink", "grid", "paper", "chosen"];

function colors_now() {
  const style = getComputedStyle(document.documentElement);
  return Object.fromEntries(BAR_KINDS.map(kind => [kind, style.getPropertyValue("--" + kind).trim()]));
}

const capital = word => word[0].toUpperCase() + word.slice(1);

function label_of({collective, kind}) {
  if (!collective) return kind;
  return collective.bucket >= 0 ? `bucket ${collective.bucket}` : words(collective.operation);
}

class TimelineView {
  constructor(data) {
    this.events = new RunEvents(data);
    this.data = data;
    this.chosen = null;
    this.chosen_rank = this.events.ranks.find(rank => this.events.guilty.has(rank)) ?? this.events.ranks[0];
    this.range = [0, this.events.end];
    this.numbers = [...this.events.steps.keys()].filter(step => step > 0).sort((a, b) => a - b);
    this.rows = [];
    this.tall = heights_for(this.events.ranks.length);
    this.height = AXIS + GAP;
    for (const row of this.events.lanes) {
      const height = this.tall.phase + this.tall.lane * Math.max(1, row.lanes.length) + GAP;
      this.rows.push({...row, top: this.height, height});
      this.height += height;
    }
    this.build();
  }

  // For who does not see it; the tables below say the rest.
  label() {
    const {focus} = this.data;
    const guilty = focus.ranks.map(rank => `; rank ${rank}: ${shown(focus.what)}, ${this.events.step_word} ${focus.step}`);
    return `Timeline of ${this.events.ranks.length} ranks${guilty.join("")}`;
  }

  build() {
    this.canvas = element("canvas", {tabindex: 0, role: "application", "aria-roledescription": "timeline",
                                     "aria-label": this.label(),
                                     "aria-describedby": "timeline-keys", class: "timeline"});
    this.said = element("p", {role: "status", class: "said"});
    this.hover = element("p", {class: "hover", "aria-hidden": "true"}, "\u00a0");
    this.buckets = element("div");
    this.step = element("input", {type: "number", min: this.numbers[0] ?? 0, max: this.numbers.at(-1) ?? 0,
                                  value: this.numbers[0] ?? 0, "aria-label": this.events.step_word});
    this.node = element("div", {class: "view"}, this.bar(), this.legend(), this.canvas, this.hover, this.said,
                        this.note(), this.buckets);
    this.listen();
  }

  bar() {
    const button = (label, press) => {
      const made = element("button", {type: "button"}, label);
      made.addEventListener("click", press);
      return made;
    };
    const word = this.events.step_word;
    const bar = element("div", {class: "bar", role: "toolbar", "aria-label": "What the timeline shows"},
                        button("Whole run", () => this.show_all()), button(`Previous ${word}`, () => this.turn(-1)),
                        element("label", {}, capital(word) + " ", this.step),
                        button(`Next ${word}`, () => this.turn(1)),
                        button("Zoom in", () => this.scale(2)), button("Zoom out", () => this.scale(0.5)));
    if (this.events.steps.has(this.data.focus.step) && this.data.focus.step > 0)
      bar.prepend(button(`${capital(word)} ${this.data.focus.step}: ${shown(this.data.focus.what)}`, () => this.show_focus()));
    this.step.addEventListener("change", () => this.show_step(Number(this.step.value)));
    return bar;
  }

  legend() {
    const kinds = [["load", "load"], ["forward", "forward"], ["backward", "backward"], ["wait", "wait"],
                   ["optimizer", "optimizer"], ["waiting", "in a collective, waiting for others"],
                   ["transfer", "in a collective, all ranks in it"], ["open", "in a collective that never ended"]];
    return element("ul", {class: "legend", "aria-label": "Legend"},
                   kinds.map(([kind, text]) => element("li", {}, element("span", {class: "swatch " + kind}), text)));
  }

  note() {
    const notes = [];
    if (this.data.world_size > this.events.ranks.length)
      notes.push(`${this.events.ranks.length} of ${this.data.world_size} ranks are drawn.`);
    if (this.data.last_drawn < this.data.last_step || this.data.first_drawn > 1)
      notes.push(`Steps ${this.data.first_drawn} to ${this.data.last_drawn} of ${this.data.last_step} are drawn; ` +
                 "lockstep analyze --trace leaves them all.");
    if (this.data.note) notes.push(shown(this.data.note));
    return element("p", {class: "note"}, notes.join(" "));
  }

  listen() {
    // The wheel belongs to the page, unless the timeline was clicked, or a key says so.
    this.zoom = d3.zoom().filter(event => event.type !== "wheel" || event.ctrlKey || event.metaKey ||
                                          document.activeElement === this.canvas)
        .on("zoom", event => this.zoomed(event.transform));
    d3.select(this.canvas).call(this.zoom).on("dblclick.zoom", null);
    this.canvas.addEventListener("pointermove", event => this.point(event));
    this.canvas.addEventListener("dblclick", event => {
      const bar = this.bar_at(event);
      if (bar) this.choose(bar, true);
    });
    this.canvas.addEventListener("keydown", event => this.key(event));
    new ResizeObserver(() => this.resize()).observe(this.node);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colors = colors_now();
      this.draw();
    });
  }

  resize() {
    const width = Math.max(320, this.node.clientWidth), dots = devicePixelRatio || 1;
    if (width === this.width && dots === this.dots) return;
    [this.width, this.dots] = [width, dots];
    this.colors ??= colors_now();
    this.canvas.width = Math.round(width * dots);
    this.canvas.height = Math.round(this.height * dots);
    this.canvas.style.width = width + "px";
    this.canvas.style.height = this.height + "px";
    this.base = d3.scaleLinear([0, this.events.end], [GUTTER, width - 4]);
    const box = [[GUTTER, 0], [width - 4, this.height]];
    this.zoom.extent(box).translateExtent(box).scaleExtent([1, Math.max(1, this.events.end / 1e-3)]);
    if (this.begun) this.show(...this.range, false);
    else this.show_focus();
    this.begun = true;
  }

  // Moves the view; what follows comes through zoomed().
  show(begin, end, padded = true) {
    const slack = padded ? (end - begin) * 0.03 + 1e-4 : 0;
    const [from, to] = [Math.max(0, begin - slack), Math.min(this.events.end, end + slack)];
    const [left, right] = this.base.range();
    const scale = (right - left) / Math.max(1e-9, this.base(to) - this.base(from));
    d3.select(this.canvas).call(
        this.zoom.transform, d3.zoomIdentity.translate(left - scale * this.base(from), 0).scale(scale));
  }

  zoomed(transform) {
    this.x = transform.rescaleX(this.base);
    this.range = this.x.domain();
    this.canvas.dataset.beginMs = this.range[0];
    this.canvas.dataset.endMs = this.range[1];
    cancelAnimationFrame(this.waiting);
    if (this.drawn) this.waiting = requestAnimationFrame(() => this.draw());
    else this.draw();
  }

  show_all() {
    this.show(0, this.events.end, false);
    this.say("the whole run");
  }

  show_focus() {
    const {focus} = this.data;
    if (this.events.steps.has(focus.step) && focus.step > 0) this.show_step(focus.step);
    else {
      this.show_all();
      this.fill_buckets(this.numbers[0] ?? 0);
    }
  }

  show_step(step) {
    const found = this.events.steps.get(step);
    if (!found) return this.say(`${this.events.step_word} ${step} is not drawn`);
    this.show(found.begin, found.end);
    this.fill_buckets(step);
    const count = found.collectives.length;
    return this.say(`${this.events.step_word} ${step}, ${(found.end - found.begin).toFixed(2)} ms, ` +
                    `${count} ${count === 1 ? "collective" : "collectives"}`);
  }

  turn(by) {
    const place = d3.bisectLeft(this.numbers, Number(this.step.value)) + by;
    if (this.numbers[place] !== undefined) this.show_step(this.numbers[place]);
  }

  scale(by) {
    d3.select(this.canvas).call(this.zoom.scaleBy, by);
    this.say(`${this.range[0].toFixed(2)} to ${this.range[1].toFixed(2)} ms`);
  }

  pan(part) {
    const [begin, end] = this.range, by = (end - begin) * part;
    const from = Math.min(Math.max(0, begin + by), this.events.end - (end - begin));
    this.show(from, from + (end - begin), false);
  }

  say(text) { this.said.textContent = text; }

  key(event) {
    const keys = {"+": () => this.scale(2), "=": () => this.scale(2), "-": () => this.scale(0.5),
                  ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2),
                  ArrowUp: () => this.next_rank(-1), ArrowDown: () => this.next_rank(1),
                  n: () => this.turn(1), p: () => this.turn(-1), 0: () => this.show_all(),
                  g: () => this.show_focus(), ",": () => this.next_bar(-1), ".": () => this.next_bar(1),
                  Enter: () => this.chosen && this.choose(this.chosen, true)};
    if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  }

  next_rank(by) {
    const ranks = this.events.ranks, place = ranks.indexOf(this.chosen_rank) + by;
    this.chosen_rank = ranks[Math.min(ranks.length - 1, Math.max(0, place))];
    this.chosen = null;
    const guilty = this.events.guilty.has(this.chosen_rank);
    this.say(`rank ${this.chosen_rank}` + (guilty ? `, ${this.data.focus.what}` : ""));
    this.draw();
  }

  // The next collective of the chosen rank; the first that is in sight.
  next_bar(by) {
    const row = this.rows.find(one => one.rank === this.chosen_rank);
    const bars = row.lanes.flatMap(lane => lane.bars).sort((a, b) => a.begin - b.begin);
    const now = bars.indexOf(this.chosen);
    const next = now >= 0 ? now + by : bars.findIndex(bar => bar.end >= this.range[0]);
    if (bars[next]) this.choose(bars[next], false);
  }

  choose(bar, zoom) {
    this.chosen = bar;
    this.say(this.events.describe(bar));
    if (zoom && bar.collective) this.show_collective(bar.collective);
    else if (zoom) this.show(bar.begin, bar.end);
    else if (bar.begin < this.range[0] || bar.begin > this.range[1]) this.pan_to(bar.begin);
    this.draw();
  }

  pan_to(time) {
    const half = (this.range[1] - this.range[0]) / 2, from = Math.max(0, time - half);
    this.show(from, from + 2 * half, false);
  }

  show_collective(collective) {
    const ready = d3.min(collective.passages, one => one && (one.ready ?? one.arrival));
    this.show(Math.min(ready, collective.first), Math.max(collective.end, collective.last));
    const bar = this.rows.flatMap(row => row.lanes.flatMap(lane => lane.bars))
        .find(one => one.collective === collective && one.rank === collective.last_rank);
    this.chosen = bar ?? this.chosen;
    this.say(`${name_of(collective)}: ${(collective.last - collective.first).toFixed(3)} ms between the first ` +
             `rank and the last, rank ${collective.last_rank}`);
    this.draw();
  }

  // The collectives of a step as a table: what the drawing shows, for those who do not see it.
  fill_buckets(step) {
    this.step.value = step;
    const rows = this.events.steps.get(step)?.collectives ?? [];
    const column = (label, of) => ({key: label, label, of});
    const wait = (one, rank) => {
      const own = one.passages[rank];
      return own && one.missing.length === 0 ? one.last - own.arrival : null;
    };
    const waits = this.data.world_size <= 16
        ? d3.range(this.data.world_size).map(rank => column(`rank ${rank} waits ms`, one => wait(one, rank))) : [];
    const zoom = {...column("collective", one => one.sequence),
                  button: {label: name_of, press: one => { this.show_collective(one); this.canvas.focus(); }}};
    const ranks = one => (one.group ? one.group.ranks.join(" ") : "all");
    const groups = this.events.groups.length > 0 ? [column("of ranks", ranks)] : [];
    const table = new SortableTable(`Collectives of ${this.events.step_word} ${step}`, [
      zoom, ...groups, column("bytes", one => (one.bytes >= 0 ? one.bytes : null)), column("skew ms", one => one.last - one.first),
      column("last rank", one => (one.missing.length > 0 ? null : one.last_rank)),
      column("never entered by", one => one.missing), ...waits], rows);
    this.buckets.replaceChildren(table.node);
  }

  row_at(event) {
    const y = event.offsetY;
    return this.rows.find(row => y >= row.top && y < row.top + row.height);
  }

  bar_at(event) {
    const row = this.row_at(event);
    if (!row || event.offsetX < GUTTER) return null;
    const time = this.x.invert(event.offsetX), slack = (this.range[1] - this.range[0]) / this.width * 2;
    const down = event.offsetY - row.top - this.tall.phase;
    const lane = down < 0 ? row.phases : row.lanes[Math.floor(down / this.tall.lane)];
    return lane?.at(time, slack) ?? null;
  }

  point(event) {
    const bar = this.bar_at(event);
    this.hover.textContent = bar ? this.events.describe(bar) : "\u00a0";
  }

  draw() {
    const pen = this.canvas.getContext("2d"), {colors} = this;
    pen.setTransform(this.dots, 0, 0, this.dots, 0, 0);
    pen.fillStyle = colors.paper;
    pen.fillRect(0, 0, this.width, this.height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    this.draw_axis(pen);
    for (const row of this.rows) this.draw_row(pen, row);
    this.draw_marks(pen);
    this.draw_labels(pen);
    if (!this.drawn) performance.mark("timeline drawn");
    this.drawn = true;
    this.canvas.dataset.drawn = "true";
  }

  draw_axis(pen) {
    const ticks = this.x.ticks(Math.max(2, this.width / 110)), format = this.x.tickFormat(ticks.length);
    pen.textAlign = "center";
    for (const tick of ticks) {
      const x = this.x(tick);
      pen.fillStyle = this.colors.grid;
      pen.fillRect(x, AXIS - 4, 1, this.height);
      pen.fillStyle = this.colors.ink;
      if (x > GUTTER + 20) pen.fillText(format(tick) + " ms", x, AXIS / 2);
    }
  }

  draw_row(pen, row) {
    if (this.events.guilty.has(row.rank)) {
      pen.fillStyle = this.colors["guilty-row"];
      pen.fillRect(0, row.top - GAP / 2, this.width, row.height);
    }
    pen.save();
    pen.beginPath();
    pen.rect(GUTTER, row.top, this.width - GUTTER, row.height);
    pen.clip();
    const {phase, lane: tall} = this.tall;
    this.draw_lane(pen, row.phases, row.top, phase - 1);
    row.lanes.forEach((lane, place) => this.draw_lane(pen, lane, row.top + phase + place * tall, tall - 1));
    pen.restore();
  }

  // Bars narrower than a pixel are drawn once a pixel.
  draw_lane(pen, lane, top, height) {
    const [begin, end] = this.range, per_ms = this.x(1) - this.x(0), left = this.x(0);
    let last = -1;
    for (let i = lane.first_after(begin); i < lane.bars.length; ++i) {
      const bar = lane.bars[i];
      if (bar.begin > end) break;
      const x = left + bar.begin * per_ms, width = (bar.end - bar.begin) * per_ms;
      if (width < 1 && Math.floor(x) === last && bar !== this.chosen) continue;
      last = Math.floor(x + Math.max(0, width - 1));
      this.draw_bar(pen, bar, x, top, width, height, per_ms);
    }
  }

  draw_bar(pen, bar, x, top, width, height, per_ms) {
    const kind = !bar.collective ? bar.kind : bar.open ? "open" : "transfer";
    pen.fillStyle = this.colors[kind] || this.colors.other;
    pen.fillRect(x, top, Math.max(1, width), height);
    const waits = bar.collective && !bar.open ? (bar.waits_until - bar.begin) * per_ms : 0;
    if (waits > 0.5) {
      pen.fillStyle = this.colors.waiting;
      pen.fillRect(x, top, waits, height);
    }
    if (bar === this.chosen) {
      pen.strokeStyle = this.colors.chosen;
      pen.lineWidth = 2;
      pen.strokeRect(x - 1, top - 1, Math.max(3, width + 2), height + 2);
    }
    if (height > 9) this.label_bar(pen, label_of(bar), x, x + width, top + height / 2 + 0.5);
  }

  // Where there is room for it.
  label_bar(pen, text, left, right, middle) {
    const [from, to] = [Math.max(left, GUTTER) + 4, Math.min(right, this.width) - 4];
    if (to - from < text.length * 6) return;
    pen.fillStyle = this.colors.paper;
    pen.textAlign = "left";
    pen.font = "11px system-ui, sans-serif";
    pen.fillText(text, from, middle);
    pen.font = FONT;
  }

  draw_marks(pen) {
    const ends = new Map();  // of the last label of each row
    for (const [rank, tick, text] of this.data.marks) {
      const row = this.rows.find(one => one.rank === rank), x = this.x(tick * this.events.ms);
      if (!row || x < GUTTER || x > this.width) continue;
      pen.fillStyle = this.colors.guilty;
      pen.fillRect(x - 1, row.top - 2, 2, row.height);
      if (x >= (ends.get(row) ?? 0)) ends.set(row, this.label_mark(pen, shown(text), x, row));
    }
  }

  label_mark(pen, text, x, row) {
    const wide = pen.measureText(text).width + 6, left = x + wide > this.width ? x - wide - 2 : x + 2;
    const middle = row.top + this.tall.phase + this.tall.lane / 2;
    pen.fillStyle = this.colors[this.events.guilty.has(row.rank) ? "guilty-row" : "paper"];
    pen.fillRect(left, middle - 7, wide, 14);
    pen.fillStyle = this.colors.guilty;
    pen.textAlign = "left";
    pen.fillText(text, left + 3, middle);
    return left + wide;
  }

  draw_labels(pen) {
    pen.textAlign = "left";
    for (const row of this.rows) {
      const guilty = this.events.guilty.has(row.rank);
      pen.fillStyle = guilty ? this.colors["guilty-row"] : this.colors.paper;
      pen.fillRect(0, row.top - GAP / 2, GUTTER - 2, row.height);
      pen.fillStyle = guilty ? this.colors.guilty : this.colors.ink;
      pen.font = guilty ? "bold " + FONT : FONT;
      const chosen = row.rank === this.chosen_rank && document.activeElement === this.canvas;
      const what = guilty ? ": " + shown(this.data.focus.what) : "";
      pen.fillText(`${chosen ? "▸ " : ""}rank ${row.rank}${what}`, 4, row.top + (row.height - GAP) / 2, GUTTER - 8);
    }
  }
}
