"""Ratios of times that were measured in the same rounds, and what may be concluded from them. As in
sim/sweep/statistics.h: medians, and bootstrap intervals over rounds."""
import math
import random

RESAMPLES = 1000
CONFIDENCE = 0.95
TOLERANCE = 0.05      # of a baseline: the wall clock of two runs of the same program differs by that
LEAST_ROUNDS = 5      # of either side of a baseline, as in sim/sweep/baseline.h
# Where c10d adds less than this to a step, what another adds in its place is noise over noise.
LEAST_ADDED = 0.02
FLOOR = 0.01          # of a ratio of added times, whose geometric mean is taken


def median(values):
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def pick(values, rounds):
    return [values[r] for r in rounds]


def ratio(cell, variant, against):
    """Of a list of rounds, the median of the ratios of one round; None where one was not measured."""
    times = cell["step_ms"]
    if variant not in times or against not in times:
        return None
    return lambda rounds: median([a / b for a, b in zip(pick(times[variant], rounds),
                                                        pick(times[against], rounds))])


def added(cell, variant):
    """(variant - none) / (c10d - none): what synchronization adds to a step, against c10d's. None
    where that is next to nothing."""
    times = cell["step_ms"]
    if not {variant, "none", "c10d"} <= times.keys():
        return None
    rounds_of = range(len(times["none"]))

    def more(name, rounds):
        return median([a - b for a, b in zip(pick(times[name], rounds),
                                             pick(times["none"], rounds))])
    if more("c10d", rounds_of) < LEAST_ADDED * median(times["none"]):
        return None

    def value(rounds):
        below = more("c10d", rounds)
        return max(FLOOR, more(variant, rounds) / below) if below > 0 else math.inf
    return value


def mean_of(functions):
    known = [function for function in functions if function]
    if not known:
        return None
    return lambda rounds: geometric_mean([function(rounds) for function in known])


def figures(cells):
    """Name -> function of rounds, for the cells of one world size."""
    mlp = [cell for cell in cells if cell["model"] == "mlp"]
    return {
        "bucketed_gloo/c10d": mean_of(ratio(cell, "bucketed_gloo", "c10d") for cell in cells),
        "added_shm/added_c10d": mean_of(added(cell, "bucketed_shm") for cell in cells),
        "mlp_shm/c10d": mean_of(ratio(cell, "bucketed_shm", "c10d") for cell in mlp),
        "mlp_shm/python_ddp": mean_of(ratio(cell, "bucketed_shm", "python_ddp") for cell in mlp),
    }


def percentiles(values):
    ordered, tail = sorted(values), (1 - CONFIDENCE) / 2
    last = len(ordered) - 1
    return ordered[math.floor(tail * last)], ordered[math.ceil((1 - tail) * last)]


def resampled(rounds, seed):
    """The same draws for the same seed: what is computed of several cells hangs together."""
    source = random.Random(seed)
    return [[source.randrange(rounds) for _ in range(rounds)] for _ in range(RESAMPLES)]


def estimate(function, rounds, seed):
    """{"value", "low", "high"} over the rounds from 0 to `rounds` - 1, or None."""
    if function is None or rounds == 0:
        return None
    low, high = percentiles([function(drawn) for drawn in resampled(rounds, seed)])
    return {"value": function(range(rounds)), "low": low, "high": high}


def worlds_of(document):
    return sorted({cell["world_size"] for cell in document["cells"]})


def cells_of(document, world_size):
    return [cell for cell in document["cells"] if cell["world_size"] == world_size]


def not_comparable(now, before):
    """Why nothing can be said, or None."""
    for key in ("cpu", "cores"):
        if now["machine"][key] != before["machine"][key]:
            return f"the baseline was measured with {key} {before['machine'][key]}"
    for key in ("steps", "warmup", "models", "worlds", "caps", "sets"):
        if now["settings"][key] != before["settings"][key]:
            return f"the baseline was measured with {key} {before['settings'][key]}"
    if min(now["rounds"], before["rounds"]) < LEAST_ROUNDS:
        return f"fewer than {LEAST_ROUNDS} rounds decide nothing"
    return None


def against_baseline(now, before, seed):
    """{"verdict": pass | fail | inconclusive, "lines": [...]}. fail: the whole interval of some
    figure now, over the same figure then, lies above 1 + TOLERANCE, at 95 % for all together."""
    reason = not_comparable(now, before)
    if reason:
        return {"verdict": "inconclusive", "lines": [reason]}
    pairs = []
    for world_size in worlds_of(now):
        then = figures(cells_of(before, world_size))
        for name, function in figures(cells_of(now, world_size)).items():
            if function and then[name]:
                pairs.append((f"W={world_size} {name}", function, then[name]))
    if not pairs:
        return {"verdict": "inconclusive", "lines": ["no figure is in both"]}
    tail = (1 - CONFIDENCE) / 2 / len(pairs)
    lines, worse = [], False
    for name, function, earlier in pairs:
        draws = zip(resampled(now["rounds"], seed), resampled(before["rounds"], seed + 1))
        ratios = sorted(function(a) / earlier(b) for a, b in draws)
        low = ratios[math.floor(tail * (len(ratios) - 1))]
        value = function(range(now["rounds"])) / earlier(range(before["rounds"]))
        slower = low > 1 + TOLERANCE
        worse = worse or slower
        lines.append(f"{name}: {value:.3f} of the baseline's, at least {low:.3f}"
                     + (": slower" if slower else ""))
    return {"verdict": "fail" if worse else "pass", "lines": lines}
