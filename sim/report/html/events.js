// What happened in a run, in milliseconds and by rank: what timeline.js draws.

const RANKS_AT_ONCE = 64, LANES_MOST = 4;

// Stretches of one lane, ascending; `latest[i]`: the latest end of the first i + 1 of them.
class Lane {
  constructor() {
    this.bars = [];
    this.latest = [];
  }
  add(bar) {
    this.bars.push(bar);
    this.latest.push(Math.max(bar.end, this.latest.at(-1) ?? -Infinity));
  }
  free_at() { return this.latest.at(-1) ?? -Infinity; }
  first_after(time) { return d3.bisectLeft(this.latest, time); }
  at(time, slack) {
    for (let i = this.first_after(time - slack); i < this.bars.length && this.bars[i].begin <= time + slack; ++i)
      if (this.bars[i].end >= time - slack) return this.bars[i];
    return null;
  }
}

// Of what the page was given.
class RunEvents {
  constructor(data) {
    this.data = data;
    this.ms = data.tick_ns / 1e6;
    this.steps = new Map();
    this.step_word = data.step_word ?? "step";
    this.end = 1e-6;
    this.guilty = new Set(data.focus.ranks);
    const others = d3.range(data.world_size).filter(rank => !this.guilty.has(rank));
    this.ranks = [...this.guilty].concat(others).slice(0, RANKS_AT_ONCE).sort((a, b) => a - b);
    this.phases = data.phases.map(row => this.phases_of(row));
    this.groups = (data.groups ?? []).map(([name, ranks]) => ({name, ranks}));
    this.collectives = data.collectives.map(row => this.collective(row));
    for (const [group, ...row] of data.group_collectives ?? [])
      this.collectives.push(this.collective(row, this.groups[group]));
    if (this.groups.length > 0)
      for (const step of this.steps.values()) step.collectives.sort((a, b) => a.first - b.first);
    this.make_room_for_open();
    this.lanes = this.ranks.map(rank => this.lanes_of(rank));
  }

  note(step, begin, end) {
    this.end = Math.max(this.end, end);
    const known = this.steps.get(step) || {step, begin, end, collectives: []};
    known.begin = Math.min(known.begin, begin);
    known.end = Math.max(known.end, end);
    this.steps.set(step, known);
    return known;
  }

  phases_of(row) {
    const lane = new Lane();
    for (let i = 0; i < row.length; i += 4) {
      const bar = {kind: this.data.phase_words[row[i]] ?? "other", step: row[i + 1], begin: row[i + 2] * this.ms,
                   end: row[i + 3] * this.ms};
      lane.add(bar);
      if (bar.step > 0) this.note(bar.step, bar.begin, bar.end);
    }
    return lane;
  }

  // Of a rank null: it never came; 0: it is not asked for, or nobody knows. `group`: of some ranks.
  collective([sequence, operation, bucket, bytes, step, ...passages], group = null) {
    const time = value => (value === null ? null : value * this.ms);
    const made = {sequence, operation, bucket, bytes, step, group, missing: []};
    made.passages = passages.map(one => (one || null) && {ready: time(one[0]), arrival: time(one[1]),
                                                launched: time(one[2]), end: time(one[3])});
    passages.forEach((one, rank) => { if (one === null) made.missing.push(rank); });
    const there = made.passages.filter(one => one !== null);
    made.first = d3.min(there, one => one.arrival);
    made.last = d3.max(there, one => one.arrival);
    made.end = d3.max(there, one => one.end ?? one.arrival);
    made.last_rank = made.passages.findIndex(one => one !== null && one.arrival === made.last);
    if (there.length > 0) this.note(step, made.first, made.end).collectives.push(made);
    return made;
  }

  // What never ended may be the last that is known of a step: it is not to be a sliver at the edge.
  make_room_for_open() {
    const open = this.collectives.filter(one => one.passages.some(own => own !== null && own.end === null));
    for (const number of new Set(open.map(one => one.step))) {
      const step = this.steps.get(number);
      step.room = Math.max(0.01, (step.end - step.begin) * 0.1);
      const latest = d3.max(open.filter(one => one.step === number), one => one.last);
      this.note(number, step.begin, latest + step.room);
    }
  }

  // Collectives of a rank that overlap stand below each other.
  lanes_of(rank) {
    const lanes = [];
    const phases = this.phases[rank] || new Lane();
    const entered = this.collectives.filter(one => one.passages[rank]);
    if (this.groups.length > 0) entered.sort((a, b) => a.passages[rank].arrival - b.passages[rank].arrival);
    for (const collective of entered) {
      const own = collective.passages[rank];
      const end = own.end ?? this.last_of(collective, own, phases);
      const bar = {collective, rank, begin: own.arrival, end, open: own.end === null, step: collective.step,
                   waits_until: collective.missing.length > 0 ? end : Math.min(end, collective.last)};
      let lane = lanes.findIndex(one => one.free_at() <= bar.begin);
      if (lane < 0) lane = Math.min(lanes.length, LANES_MOST - 1);
      (lanes[lane] ??= new Lane()).add(bar);
    }
    return {rank, phases, lanes};
  }

  // What never ended is drawn to the rank's last sign of life; of a dump, which was taken while it
  // waited, to the end.
  last_of(collective, own, phases) {
    if (this.data.waits_to_end) return this.end;
    return Math.max(phases.free_at(), own.arrival + this.steps.get(collective.step).room);
  }

  describe(bar) {
    const ms = value => value.toFixed(value < 10 ? 3 : 1) + " ms";
    if (!bar.collective)
      return `${this.step_word} ${bar.step}, ${bar.kind}: ${ms(bar.begin)} to ${ms(bar.end)}, ${ms(bar.end - bar.begin)}`;
    const {collective} = bar, waited = bar.waits_until - bar.begin;
    const size = collective.bytes >= 0 ? `, ${size_of(collective.bytes)}` : "";
    const members = collective.group ? ` (ranks ${collective.group.ranks.join(" ")})` : "";
    return `rank ${bar.rank}, ${this.step_word} ${bar.step}, ${name_of(collective)}${members}${size}: ` +
        `arrives at ${ms(bar.begin)}, waits ${ms(Math.max(0, waited))}` +
        (collective.missing.length > 0 ? `, never entered by rank ${collective.missing.join(" ")}`
                                       : `, last comes rank ${collective.last_rank}`) +
        (bar.open ? ", never ends" : `, ends at ${ms(bar.end)}`);
  }
}

function name_of(collective) {
  const bucket = collective.bucket >= 0 ? `, bucket ${collective.bucket}` : "";
  const group = collective.group ? ` of group ${shown(collective.group.name)}` : "";
  return `${words(collective.operation)} ${collective.sequence}${bucket}${group}`;
}

function size_of(bytes) {
  if (bytes >= 1e6) return (bytes / 1e6).toFixed(2) + " MB";
  return bytes >= 1e3 ? (bytes / 1e3).toFixed(1) + " kB" : bytes + " B";
}
