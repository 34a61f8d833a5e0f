#!/usr/bin/env python3
"""How far is virtual time off that was fitted to one row of a published table?

Fits each table of golden/data/published by `lockstep calibrate --table`, as docs/simulation.md says, and prints every
other row's error and, at the end, means over all of them. Tables are split in two halves by the SHA-256 of their
names, so that a number may be chosen on one half and judged on the other.

usage: python3 bench/published.py --lockstep build/test/bin/lockstep [--half a|b] [--only NAME]
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import math
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "golden" / "data" / "published"
SCENARIO = ROOT / "scenarios" / "stragglers" / "emulated_resnet50.json"
FP16 = ["/comm_hook=" + json.dumps({"kind": "fp16"})]
LAMBDA_MACHINES = {"h100": "dgx_h100", "v100": "dgx_v100", "a100": "dgx_a100", "ada": "machine_ada_pcie4",
                   "b200": "machine_b200", "h100_pcie": "machine_h100_pcie5"}
NAMED_MACHINES = ("p2", "p100", "k80", "rtx3090", "dgx2", "pcie_roce")
VISION = ("alexnet", "vgg16", "inception_v3", "resnet50", "resnet101", "resnet152")
RESNEXT = {"resnext50": "resnext50_32x4d", "resnext101": "resnext101_32x8d"}
LARGE_IMAGES = ["/data/height=299", "/data/width=299"]
# Layers and width; the vocabulary is 50,368 and the context 2,048.
MPT = {"760m": (24, 1536), "1b": (24, 2048), "3b": (32, 2560), "7b": (32, 4096), "13b": (40, 5120),
       "30b": (48, 7168), "70b": (64, 8192)}


def model(kind, **sizes):
    return ["/model=" + json.dumps({"kind": kind, **sizes})]


def tokens(kind, vocabulary, length, **sizes):
    data = {"kind": "tokens", "samples": 64, "vocabulary": vocabulary, "length": length}
    return model(kind, vocabulary=vocabulary, **sizes) + ["/data=" + json.dumps(data)]


def bert(name):
    if name.startswith("bart"):
        return tokens("bert", 50265, 512 if "_512_" in name else 128, width=1024, layers=28)
    if "bert_base" in name:
        return tokens("bert", 30522, 384 if name.startswith("lambda") else 128, width=768, layers=12)
    if name.startswith("lambda"):
        return tokens("bert", 30522, 384, width=1024, layers=24)
    return tokens("bert", 30528, 512 if "_512_" in name else 128, width=1024, layers=24)


def fsdp(name):
    if name.startswith("llama"):
        vocabulary, length, (layers, width) = 128256, 8192, (32, 4096)
    else:
        vocabulary, length, (layers, width) = 50368, 2048, MPT[name.split("_")[1]]
    reducer = {"kind": "fsdp", "gather_dtype": "bfloat16", "reduce_dtype": "float32"}
    if name in ("mpt_3b_large_h100", "mpt_1b_large_h100"):
        reducer["reshard_after_forward"] = False
    sets = tokens("gpt", vocabulary, length, heads=8, context=length, layers=layers, width=width)
    return sets + ["/reducer=" + json.dumps(reducer)]


def parameters(name):
    path = TABLES / f"{name}_parameters.json"
    data = {"kind": "randn", "samples": 4096, "features": 1, "targets": 1}
    return model("parameters", file=str(path)) + ["/data=" + json.dumps(data), "/loss=" + json.dumps({"kind": "mse"})]


def model_of(name):
    bare = re.sub("^(lambda|mxnet|oneflow|paddle|tf)_", "", name)
    if name.startswith(("llama", "mpt")):
        return fsdp(name)
    if "bert" in name or "bart" in name:
        return bert(name)
    for known in VISION:
        if bare.startswith(known.replace("_v3", "")):
            return model(known) + (LARGE_IMAGES if known == "inception_v3" else [])
    for known, kind in RESNEXT.items():
        if bare.startswith(known):
            return model(kind)
    for known in ("transformer_xl", "transformer", "jasper", "quartznet", "ssd", "ncf"):
        if bare.startswith(known):
            return parameters("transformer_big" if known == "transformer" else known)
    raise SystemExit(f"{name}: no model is known for it")


def sends_half(name):
    """Frameworks that all-reduce what they computed in half precision; Apex and NVIDIA's Transformer-XL do not."""
    if name.startswith(("tf_", "llama", "mpt")):
        return False
    return bool(re.match("(inception_v3|resnet50|vgg16)_amp_rtx3090|resnet50_mxnet_amp|transformer_amp"
                         "|bert_base_mxnet_amp|(mxnet|oneflow)_.*_amp", name))


def machine_of(name):
    for word in ("dgx_a100", "dgx_h100"):
        if name.endswith(word):
            return word
    if name.startswith("lambda"):
        return LAMBDA_MACHINES[re.search("_(h100_pcie|[a-z0-9]+)$", name).group(1)]
    if name.endswith(("_h100", "_h200")):
        return "dgx_h100"
    if name.endswith("p3"):
        return "machine_p3"
    if name.endswith("dgx_v100"):
        return "dgx_v100"
    if name.startswith("transformer_xl") and name.endswith("v100"):
        return "machine_v100_mesh"
    if name.startswith(("ssd", "jasper", "transformer")) and name.endswith("v100"):
        return "dgx_v100"
    if name.endswith("v100"):
        return "machine_v100_edr"
    for known in NAMED_MACHINES:
        if name.endswith(known):
            return f"machine_{known}"
    if name.endswith("k80_hosts"):
        return "machine_k80"
    raise SystemExit(f"{name}: no machine is known for it")


def sets_of(name):
    sets = model_of(name) + (FP16 if sends_half(name) else [])
    if name.startswith("bert_base_") and "mxnet" not in name:
        sets.append("/reducer=" + json.dumps({"kind": "flat"}))
    return sets


def names():
    return sorted(p.stem for p in TABLES.glob("*.json")
                  if not p.stem.startswith("machine_") and not p.stem.endswith(("_parameters", "_fsdp")))


def half_of(name):
    return "ab"[hashlib.sha256(name.encode()).digest()[0] & 1]


Row = collections.namedtuple("Row", "ranks cap published predicted low high fitted")


def rows_of(text):
    pattern = re.compile(r"^ *([\d,]+) +(\S+) +([\d.]+) +([\d.]+) +(-?[\d.]+) \.\. ([\d.]+) +[+-][\d.]+ %(.*)$", re.M)
    return [Row(int(m[1].replace(",", "")), m[2], *(float(m[i]) for i in range(3, 7)), "fitted" in m[7])
            for m in pattern.finditer(text)]


def fitted(name, a):
    machine = machine_of(name)
    if machine.startswith("machine_"):
        machine = str(TABLES / f"{machine}.json")
    command = [a.lockstep, "calibrate", str(SCENARIO), "--table", str(TABLES / f"{name}.json"), "--machine",
               machine]
    for one in sets_of(name):
        command += ["--set", one]
    ended = subprocess.run(command, capture_output=True, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"{name}: {ended.stdout}{ended.stderr}")
    return name, rows_of(ended.stdout)


def error(row):
    return row.predicted / row.published - 1


def shown(name, rows):
    others = [r for r in rows if not r.fitted]
    first = next(r for r in rows if r.fitted)
    mean = statistics.mean(abs(error(r)) for r in others) if others else 0
    cells = "; ".join(f"{r.ranks}{'' if r.cap == '-' else '@' + r.cap}: {r.predicted:.2f}, {r.published:.2f} "
                      f"({error(r):+.1%}){'' if r.low <= r.published <= r.high else '!'}" for r in others)
    return f"{name} | {first.ranks}: {first.predicted:.2f} | {mean:.1%} | {cells}"


def summary(what, tables):
    rows = [(next(f for f in rows if f.fitted), r) for rows in tables for r in rows if not r.fitted]
    errors = [abs(error(r)) for _, r in rows]
    outside = sum(not r.low <= r.published <= r.high for _, r in rows)
    up = [(error(r) / math.log2(r.ranks / f.ranks)) for f, r in rows if r.ranks > f.ranks]
    print(f"{what}: {len(tables)} tables, {len(rows)} rows: mean {statistics.mean(errors):.2%}, median "
          f"{statistics.median(errors):.2%}, {outside} outside their intervals; {len(up)} of more ranks than the fitted "
          f"row: median error {statistics.median(up):+.2%} per doubling")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(ROOT / "build" / "test" / "bin" / "lockstep"))
    parser.add_argument("--half", choices=["a", "b"])
    parser.add_argument("--only", default="")
    parser.add_argument("--json", help="a file for all rows")
    parser.add_argument("--quiet", action="store_true", help="only means")
    a = parser.parse_args()
    chosen = [n for n in names() if a.only in n and (a.half is None or half_of(n) == a.half)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        tables = dict(pool.map(lambda name: fitted(name, a), chosen))
    if not a.quiet:
        for name, rows in tables.items():
            print(shown(name, rows))
    if a.json:
        pathlib.Path(a.json).write_text(json.dumps({n: [r._asdict() for r in rows] for n, rows in tables.items()}))
    for half in "ab":
        of_half = [rows for name, rows in tables.items() if half_of(name) == half]
        if of_half:
            summary(f"half {half}", of_half)
    summary("all", list(tables.values()))


if __name__ == "__main__":
    main()
