#!/usr/bin/env python3
"""Makes up incidents that invite an accusation of an innocent rank, as pickles and logs, and compares what
`lockstep explain` says with who is guilty. No torch is needed.

usage: made_incidents.py PROGRAM FOLDER
Exit status 1 if an innocent rank was accused, a failure overlooked, or what must be exact is not.
"""
import argparse
import json
import pathlib
import pickle
import subprocess

TIMED_OUT = ("[rank0]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv "
             "operation to complete\n")
ELASTIC = "W0626 torch/distributed/elastic/multiprocessing/api.py:1028] "
WAITS = {"state": "started"}


class Job:
    """Dumps of a job of NCCL's, or of Gloo's, whose ranks call what a test says."""

    def __init__(self, ranks, library="nccl", version="2.10", ring=None, clocks=()):
        self.ranks, self.library, self.version, self.ring, self.clocks = range(ranks), library, version, ring, dict(clocks)
        self.groups = {"0": ("default_pg", list(self.ranks))}
        self.calls = {rank: [] for rank in self.ranks}
        self.missing, self.logs, self.names = set(), {}, {}
        self.only_active = set()  # ranks whose dumps leave out what completed

    def group(self, name, ranks):
        self.groups[name] = ("sub", ranks)
        return name

    def others(self, *ranks):
        return [rank for rank in self.ranks if rank not in ranks]

    def send(self, source, destination, group="0", state="completed", sent=True, received=True):
        """One transfer, both sides of which are named as c10d does: by their numbers within the group."""
        own, peer = (self.groups[group][1].index(rank) for rank in (source, destination))
        if sent:
            self.call(source, f"send {own}->{peer}", group, state=state)
        if received:
            self.call(destination, f"recv {peer}<-{own}", group, state=state)

    def call(self, ranks, operation="all_reduce", group="0", size=8, state="completed", at=None):
        for rank in [ranks] if isinstance(ranks, int) else ranks:
            calls = self.calls[rank]
            point_to_point = operation[:4] in ("send", "recv")
            before = [call for call in calls if call["process_group"][0] == group]
            number = sum(not call["is_p2p"] for call in before) + (not point_to_point)
            seconds = at if at is not None else 0.01 * (len(calls) + 1)
            created = int(1.7e18 + (seconds + self.clocks.get(rank, 0)) * 1e9)
            done = state == "completed"
            calls.append({
                "record_id": len(calls), "pg_id": list(self.groups).index(group),
                "process_group": (group, self.groups[group][0]), "collective_seq_id": number,
                "p2p_seq_id": sum(call["is_p2p"] for call in before) + point_to_point, "op_id": len(before) + 1,
                "profiling_name": f"{self.library}:{operation}", "input_sizes": [[size]], "output_sizes": [[size]],
                "input_dtypes": ["Float"], "output_dtypes": ["Float"], "time_created_ns": created,
                "time_discovered_started_ns": None if state == "scheduled" else created + 1000,
                "time_discovered_completed_ns": created + 2000 if done else None,
                "state": "scheduled" if self.library == "gloo" else state, "retired": done or self.library == "gloo",
                "timeout_ms": 4000 if self.library == "gloo" else 600000, "is_p2p": point_to_point, "frames": []})

    def steps(self, count):
        for _ in range(count):
            self.call(self.ranks)
        return self

    def status(self, rank, group):
        calls = [call for call in self.calls[rank] if call["process_group"][0] == group and not call["is_p2p"]]

        def last(states):
            return max((call["collective_seq_id"] for call in calls if call["state"] in states), default=-1)
        return {"last_enqueued_collective": last(("scheduled", "started", "completed")),
                "last_started_collective": last(("started", "completed")), "last_completed_collective": last(("completed",))}

    def dump(self, rank):
        entries = self.calls[rank][-self.ring:] if self.ring else self.calls[rank]
        if rank in self.only_active:
            entries = [entry for entry in entries if entry["state"] != "completed"]
        if self.library == "gloo":
            groups, status = {"": {"name": "", "desc": "", "ranks": str(list(self.ranks))}}, {}
        else:
            mine = [name for name, (_, ranks) in self.groups.items() if rank in ranks]
            groups = {name: {"name": name, "desc": self.groups[name][0], "ranks": str(self.groups[name][1])} for name in mine}
            status = {str(list(self.groups).index(name)): self.status(rank, name) for name in mine}
        return {"version": self.version, "pg_config": groups, "pg_status": status, "entries": entries,
                "comm_lib_version": "1"}

    def write(self, folder):
        folder.mkdir(parents=True)
        for rank in self.ranks:
            if rank not in self.missing:
                (folder / self.names.get(rank, f"_dump_{rank}")).write_bytes(pickle.dumps(self.dump(rank), protocol=2))
        for name, text in self.logs.items():
            (folder / name).write_text(text)


def hang(ranks, guilty, **how):
    job = Job(ranks, **how).steps(20)
    job.call(job.others(*guilty), **WAITS)
    return job


def held(ranks, guilty):
    job = Job(ranks).steps(5)
    job.call(guilty, **WAITS)
    job.call(job.others(*guilty))
    job.call(job.others(*guilty), **WAITS)
    return job


def chain(ranks):
    """Each rank waits, in a pair, for the next one; the last hangs."""
    job = Job(ranks).steps(2)
    for rank in range(ranks - 1):
        pair = job.group(str(rank + 1), [rank, rank + 1])
        job.call([rank, rank + 1], group=pair)
    for rank in range(ranks - 1):
        job.call(rank, group=str(rank + 1), **WAITS)
    return job


def receives(ranks):
    job = Job(ranks).steps(2)
    job.call(range(ranks - 1), "recv", **WAITS)
    return job


def receive_beside_all():
    job = Job(6).steps(3)
    job.call(2, "recv", **WAITS)
    job.call([0, 1, 4, 5], **WAITS)
    return job


def missing(ranks, guilty, gone):
    job = hang(ranks, guilty)
    job.missing = {gone}
    return job


def branch(ranks, few, **other):
    job = Job(ranks).steps(4)
    job.call(job.others(*few), **WAITS)
    job.call(few, **{"size": 9, **other}, **WAITS)
    return job


def one_step_more():
    job = Job(3)
    for _ in range(5):
        job.call(job.ranks)
        job.call(job.ranks, size=3)
    job.call(0, **WAITS)
    job.call([1, 2], "barrier", size=1, **WAITS)
    return job


def one_batch_more():
    job = Job(16).steps(4)
    job.call(15, **WAITS)
    return job


def tensor_parallel():
    job = Job(16).steps(3)
    groups = [job.group(f"ab{first}ff", list(range(first, first + 4))) for first in range(0, 16, 4)]
    for index, name in enumerate(groups):
        job.call(range(4 * index, 4 * index + 4), group=name)
    job.call([8, 9, 10], group=groups[2], **WAITS)
    job.call(job.others(8, 9, 10, 11), **WAITS)
    return job


def asked_later():
    job = Job(6).steps(6)
    job.call(job.others(3), **WAITS)
    job.call(3)
    job.call(3, **WAITS)
    return job


def locks():
    """Two groups, entered in opposite order."""
    job = Job(6).steps(2)
    one, other = job.group("1", [0, 1, 2]), job.group("2", [0, 1, 2, 3])
    job.call([0, 2], group=one, **WAITS)
    job.call([1, 3], group=other, **WAITS)
    job.call([4, 5], **WAITS)
    return job


def all_came():
    job = Job(16).steps(6)
    job.call(job.ranks, **WAITS)
    return job


def gloo_late(ranks, guilty, steps, clocks=()):
    job = Job(ranks, "gloo", clocks=clocks).steps(steps)
    job.call(job.others(guilty), at=20)
    job.call(guilty, at=29)
    return job


def gloo_pair():
    job = Job(6, "gloo").steps(6)
    pair = job.group("1", [1, 2])
    job.call([1, 2], group=pair)
    job.call(2, group=pair)
    job.call([0, 3, 4, 5])
    return job


def gloo_two_behind():
    job = Job(7, "gloo").steps(5)
    job.call(job.others(0, 3))
    return job


def logs(text, **dumps_of):
    job = Job(3, **dumps_of)
    job.missing = set(job.ranks)
    job.logs["job.log"] = text
    return job


def table(*before):
    def part(rank, code, process):
        return f"  time      : 2024-06-26_10:00:31\n  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {process})\n"
    return logs(TIMED_OUT + "".join(ELASTIC + line + "\n" for line in before) + part(1, -9, 78) + part(2, -15, 79) +
                "Root Cause (first observed failure):\n" + part(0, 1, 77))


def named(job, names):
    job.names = names
    return job


def with_log(job, name, text):
    job.logs[name] = text
    return job


# By name: the job, who is guilty, and whether that must be said (else `undecided` will do, too).
INCIDENTS = {
    "hang of 3": (hang(3, [2]), {2}, True),
    "two hang of 16": (hang(16, [3, 12]), {3, 12}, True),
    "short rings of 16": (hang(16, [9], ring=4), {9}, True),
    "xccl, newer dumps": (hang(3, [2], library="xccl", version="2.11"), {2}, True),
    "ranks of 3 in names": (named(hang(3, [1]), {rank: f"rank-{rank}-of-3.pkl" for rank in range(3)}), {1}, True),
    "held by one of 6": (held(6, [4]), {4}, True),
    "held by two of 7": (held(7, [1, 5]), {1, 5}, True),
    "chain of pairs of 7": (chain(7), {6}, True),
    "chain of receives of 7": (receives(7), {6}, False),
    "a receive beside all": (receive_beside_all(), {3}, False),
    "the guilty left no dump": (missing(6, [5], 5), {5}, False),
    "an innocent left no dump": (missing(6, [2], 5), {2}, False),
    "two of 7 in another branch": (branch(7, [2, 5]), {2, 5}, True),
    "half of 6 in another branch": (branch(6, [3, 4, 5], operation="broadcast"), set(), True),
    "one step more": (one_step_more(), {0}, False),
    "one batch more of 16": (one_batch_more(), set(), True),
    "one of a group of 16": (tensor_parallel(), {11}, True),
    "a dump taken later": (asked_later(), set(), True),
    "opposite order of groups": (locks(), set(), True),
    "all came, none ends": (all_came(), set(), True),
    "gloo, clocks apart": (hang(6, [1], library="gloo", clocks={0: 3600, 2: -7200, 4: 86400}), {1}, True),
    "gloo, late of 7": (gloo_late(7, 4, 12), {4}, True),
    "gloo, late, clocks unknown": (gloo_late(6, 2, 2, {0: 30, 1: -30, 5: 100}), {2}, False),
    "gloo, waits in a pair": (gloo_pair(), {1}, True),
    "gloo, two behind": (gloo_two_behind(), {0}, False),
    "gloo, healthy, clocks apart": (Job(7, "gloo", clocks={1: 999, 5: -400}).steps(12), set(), True),
    "torchrun's table alone": (table(), {2}, False),
    "killed by torchrun": (table("Sending process 78 closing signal SIGTERM", "Unable to shutdown process 78 via SIGTERM, "
                                 "forcefully exiting via SIGKILL"), {2}, False),
    "killed, then torchrun": (table("Sending process 79 closing signal SIGTERM"), {1}, True),
    "a stuck watchdog": (logs("[rank1]:[E626 x] [PG ID 0 PG GUID 0(default_pg) Rank 1] ProcessGroupNCCL's watchdog got stuck "
                              "for 480 seconds without making progress\n" + TIMED_OUT), {2}, False),
    "an old Xid": (with_log(hang(3, [1]), "dmesg.log", "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python\n"), {1}, True),
}


def answer_of(program, folder, job=None):
    path = folder / "answer.json"
    path.unlink(missing_ok=True)
    said = subprocess.run([program, "explain", job or folder / "job", "--json", path], capture_output=True, timeout=60, check=False)
    if not path.exists():
        raise RuntimeError(f"{job or folder}: {said.stderr.decode()}")
    return json.loads(path.read_text())


def judge_all(incidents, program, into):
    """Those answered wrong, by name."""
    wrong = []
    for name, (job, guilty, exact) in incidents.items():
        folder = into.absolute() / "".join(letter if letter.isalnum() else "_" for letter in name)
        job.write(folder / "job")
        answer = answer_of(program, folder)
        accused = set(answer["guilty"])
        undecided = answer["verdict"] == "undecided"
        right = accused == guilty if exact else accused == guilty or (undecided and not accused)
        wrong += [] if right else [name]
        print(f"{name:34} {'' if right else 'WRONG '}{answer['class']} {sorted(accused)} of {sorted(guilty)}, candidates "
              f"{answer['candidates']}")
    print(f"{len(wrong)} wrong of {len(incidents)}")
    return wrong


def main(incidents):
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    return 1 if judge_all(incidents, options.program, options.folder) else 0


if __name__ == "__main__":
    raise SystemExit(main(INCIDENTS))
