#!/usr/bin/env python3
"""Writes jobs of made_random.py in another form (an older or newer version, JSON, other names, archives, fields that are missing or more,
numbers as texts, groups of one name, rings that begin late, clocks apart), and compares what `lockstep explain` says of both. No
torch is needed.

usage: made_formats.py PROGRAM FOLDER [--jobs N] [--seed S]
Exit status 1 if an innocent rank was accused, or if a form that loses nothing changed an answer.
"""
import collections
import gzip
import io
import json
import pathlib
import pickle
import random
import shutil
import tarfile
import zipfile

from made_incidents import answer_of
from made_random import asked, judged, made

NAMES = ("_dump_{}", "nccl_trace_rank_{}", "comm_lib_trace_rank_{}", "rank_{}.json", "rank-{}-of-64.pkl", "dump.{}", "run3_rank{}_host_7.bin",
         "rank_{}/dump.pkl", "fr_rank{}.pickle")


def older(draw, dumps):
    """PyTorch 2.3's and 2.4's: one number for all, no status."""
    for dump in dumps.values():
        dump["version"] = draw.choice(("2.0", "2.1", "2.3", "2.4"))
        dump["nccl_version"] = dump.pop("comm_lib_version")


def newer(draw, dumps):
    for rank, dump in dumps.items():
        dump.update(version=draw.choice(("2.9", "2.10", "2.11", "2.37")), host_name=f"n{rank}", rank=rank)
        for entry in dump["entries"]:
            entry.update(thread_id="140", thread_name="pt_main", pg_uid=[1, 2], ext=None)


def texts(draw, dumps):
    """JSON of some tools has numbers as texts."""
    for dump in dumps.values():
        for status in dump.get("pg_status", {}).values():
            for key in status:
                status[key] = str(status[key])
        for entry in dump["entries"]:
            for key in ("collective_seq_id", "p2p_seq_id", "time_created_ns"):
                entry[key] = str(entry[key])


def shared_names(draw, dumps):
    """As split_group() names those that all ranks make in one call: by a counter."""
    def shared(name):
        return str(1 + int(name.partition(".")[0])) if "." in name else name
    for dump in dumps.values():
        dump["pg_config"] = {shared(name): {**group, "name": shared(name)} for name, group in dump["pg_config"].items()}
        for entry in dump["entries"]:
            entry["process_group"] = (shared(entry["process_group"][0]), entry["process_group"][1])


def shuffled(draw, dumps):
    for dump in dumps.values():
        draw.shuffle(dump["entries"])


def later(draw, dumps):
    """Calls of a library that is not in the dump leave gaps in its records."""
    for dump in dumps.values():
        if min((entry["record_id"] for entry in dump["entries"]), default=0) > 0:
            first = draw.randrange(5000)
            for entry in dump["entries"]:
                entry["record_id"] += first


def clocks(draw, dumps):
    for dump in dumps.values():
        ahead = int(draw.uniform(-2400, 2400) * 1e9)
        for entry in dump["entries"]:
            for key in ("time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"):
                entry[key] = entry[key] and entry[key] + ahead


def no_ends(draw, dumps):
    """Where the job does not time its calls."""
    for dump in dumps.values():
        for entry in dump["entries"]:
            entry.pop("time_discovered_started_ns")
            entry.pop("time_discovered_completed_ns")
            entry["state"] = "scheduled" if entry["state"] == "started" else entry["state"]
        for status in dump.get("pg_status", {}).values():
            status["last_started_collective"] = -1


def no_status(draw, dumps):
    for dump in dumps.values():
        dump.pop("pg_status")


def few_fields(draw, dumps):
    """Of each rank others, as where it runs another version."""
    for dump in dumps.values():
        gone = draw.sample(("op_id", "frames", "timeout_ms", "retired", "pg_id", "input_dtypes", "output_dtypes", "output_sizes"), 3)
        for entry in dump["entries"]:
            for key in gone:
                entry.pop(key, None)


def zero_sizes(draw, dumps):
    for dump in dumps.values():
        for entry in dump["entries"]:
            if entry["process_group"][0] == "0":
                entry.update(input_sizes=[[0]], output_sizes=[[0]])


def uneven(draw, dumps):
    """Sizes that differ by rank where they may."""
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            if entry["profiling_name"] == "nccl:_reduce_scatter_base":
                entry.update(profiling_name="nccl:all_to_all", input_sizes=[[rank, 3]], output_sizes=[[3 * rank + 1]])


def only_active(draw, dumps):
    for dump in dumps.values():
        dump["entries"] = [entry for entry in dump["entries"] if entry["state"] != "completed"]


SAME = (older, newer, texts, shared_names, shuffled, later, clocks, zero_sizes, uneven)
LESS = (no_ends, no_status, few_fields, only_active)  # an answer may become undecided


def packed(draw, files, folder):
    """Files of a job, as files, or in an archive."""
    how = draw.choice(("files", "files", "gz", "tar", "tar.gz", "zip"))
    folder.mkdir(parents=True)
    if how in ("files", "gz"):
        for name, content in files.items():
            path = folder / (name + ".gz" if how == "gz" else name)
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(content) if how == "gz" else content)
        return folder
    path = folder / f"job.{how}"
    if how == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(f"job/{name}", content)
        return path
    with tarfile.open(path, "w:gz" if how == "tar.gz" else "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(f"job/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def written(draw, dumps):
    name = draw.choice(NAMES)
    as_json = name.endswith(".json") or draw.random() < 0.3
    return {name.format(rank): json.dumps(dump).encode() if as_json else pickle.dumps(dump, protocol=draw.choice((2, 4)))
            for rank, dump in dumps.items()}


def counted(program, into, jobs, seed):
    table = collections.defaultdict(collections.Counter)
    failed = False
    for number in range(jobs):
        draw = random.Random(1000 * seed + number)
        job, guilty = made(draw)
        folder = into.absolute() / f"{number:05}"
        shutil.rmtree(folder, ignore_errors=True)
        job.write(folder / "job")
        first = answer_of(program, folder)
        dumps = {rank: job.dump(rank) for rank in job.ranks if rank not in job.missing}
        forms = draw.sample(SAME, draw.randint(0, 3)) + draw.sample(LESS, draw.choice((0, 0, 1)))
        forms.sort(key=lambda form: form is texts)  # the others add to numbers
        for form in forms:
            form(draw, dumps)
        shutil.rmtree(folder)
        where = packed(draw, written(draw, dumps), folder / "job")
        second = answer_of(program, folder, where)
        result = judged(second, guilty)
        if not set(forms) & set(LESS) and (second["verdict"], second["guilty"]) != (first["verdict"], first["guilty"]):
            result += ", changed"
        table[" ".join(form.__name__ for form in forms if form in LESS) or "nothing lost"][result] += 1
        if "innocent" in result or "changed" in result:
            failed = True
            print(folder, where.name, [form.__name__ for form in forms], result, first["guilty"], second["guilty"], "of", sorted(guilty),
                  second["missing"][:2])
        else:
            shutil.rmtree(folder)
    for forms, counts in sorted(table.items()):
        print(f"{forms}: {dict(counts)}")
    return 1 if failed else 0


def main():
    options = asked()
    return counted(options.program, options.folder, options.jobs, options.seed)


if __name__ == "__main__":
    raise SystemExit(main())
