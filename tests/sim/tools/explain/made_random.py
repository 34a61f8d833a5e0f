#!/usr/bin/env python3
"""Makes up jobs at random (meshes of tensor, data and pipeline parallel ranks, synchronous or with calls in flight, on one stream or
one a group), runs them until nothing moves with a rank or two that hang, dumps what NCCL's recorder would hold, and counts
what `lockstep explain` says. No torch is needed.

usage: made_random.py PROGRAM FOLDER [--jobs N] [--seed S] [--untimed]
Exit status 1 if an innocent rank was accused.
"""
import argparse
import collections
import pathlib
import random
import shutil

from made_incidents import Job, answer_of


class Call:
    """Of all its ranks; a send is of two, the first of which sends."""

    def __init__(self, operation, group, ranks, size=8):
        self.operation, self.group, self.ranks, self.size = operation, group, ranks, size
        self.done = False


def programs_of(draw, job, shape):
    """What each rank calls, in order: steps of a pipeline whose stages are tensor and data parallel."""
    tensor, data, stages = shape
    at = {rank: (rank % tensor, rank // tensor % data, rank // tensor // data) for rank in job.ranks}
    lines = [collections.defaultdict(list) for _ in shape]
    for rank, place in at.items():
        for axis in range(3):
            lines[axis][tuple(n for other, n in enumerate(place) if other != axis)].append(rank)
    groups = [[(job.group(f"{axis}.{number}", ranks), ranks) for number, ranks in enumerate(line.values())]
              for axis, line in enumerate(lines)]
    program = []

    def transfers(backward):
        for name, ranks in groups[2]:
            stages = ranks[::-1] if backward else ranks
            for pair in zip(stages, stages[1:]):
                for rank in pair[:1]:
                    program.extend(Call("all_reduce", group, members) for group, members in groups[0]
                                   if rank == members[0] and len(members) > 1)
                program.append(Call("transfer", name, list(pair)))
    for _ in range(draw.randint(1, 4)):
        for _ in range(draw.randint(1, 3)):
            transfers(False)
            transfers(True)
        program += [Call("_reduce_scatter_base", name, ranks) for name, ranks in groups[1] if len(ranks) > 1]
        program.append(Call("all_reduce", "0", list(job.ranks)))
    return {rank: [call for call in program if rank in call.ranks] for rank in job.ranks}


class Run:
    """Hosts call up to `flight` ahead of what is done; what is first in its stream at all its ranks is done next."""

    def __init__(self, programs, flight, by_group, hangs):
        self.programs, self.flight, self.by_group, self.hangs = programs, flight, by_group, hangs
        self.called = {rank: [] for rank in programs}

    def open_of(self, rank):
        return [call for call in self.called[rank] if not call.done]

    def call_next(self, rank):
        at, host, _ = self.hangs.get(rank, (None, True, None))
        number = len(self.called[rank])
        if number == len(self.programs[rank]) or len(self.open_of(rank)) >= self.flight or (host and number == at):
            return False
        self.called[rank].append(self.programs[rank][number])
        return True

    def is_first(self, rank, call):
        ahead = [other for other in self.open_of(rank) if not self.by_group or other.group == call.group]
        return bool(ahead) and ahead[0] is call and not self.is_kept(rank, call)

    def is_kept(self, rank, call):
        """By a kernel of the rank's own that does not end."""
        at, host, _ = self.hangs.get(rank, (None, True, None))
        return not host and at is not None and self.programs[rank].index(call) >= at

    def go_on(self):
        moved = True
        while moved:
            moved = any([self.call_next(rank) for rank in self.programs])
            for rank in self.programs:
                for call in self.open_of(rank):
                    if all(self.is_first(other, call) for other in call.ranks):
                        call.done = moved = True

    def write_into(self, job):
        for rank, calls in self.called.items():
            for call in calls:
                state = "completed" if call.done else "started" if self.is_first(rank, call) else "scheduled"
                if call.operation == "transfer":
                    source, destination = call.ranks
                    job.send(source, destination, call.group, state, rank == source, rank == destination)
                else:
                    job.call(rank, call.operation, call.group, state=state)


def made(draw):
    shape = draw.choice(((1, 1, 4), (1, 2, 3), (2, 1, 2), (2, 2, 2), (1, 4, 1), (4, 1, 2), (1, 1, 2), (1, 3, 2)))
    job = Job(shape[0] * shape[1] * shape[2], ring=draw.choice((None, None, 60, 15)),
              clocks={rank: draw.uniform(-900, 900) for rank in range(4)})
    programs = programs_of(draw, job, shape)
    guilty = draw.sample(list(job.ranks), draw.choice((1, 1, 1, 1, 2, 0)))
    hangs = {rank: (draw.randrange(len(programs[rank])), draw.random() < 0.7, None) for rank in guilty}
    run = Run(programs, draw.choice((1, 2, 6)), draw.random() < 0.5, hangs)
    run.go_on()
    run.write_into(job)
    # Who hangs where nobody needs it any more shows in nothing.
    waited = any(not call.done for calls in run.called.values() for call in calls)
    if draw.random() < 0.15:
        job.missing = {draw.choice(list(job.ranks))}
    return job, set(guilty) if waited else set()


def judged(answer, guilty):
    named = set(answer["guilty"])
    if named - guilty:
        return "innocent"
    if answer["verdict"] == "undecided":
        return "undecided"
    return "exact" if named == guilty else "missed" if not named else "some"


def without_starts(job):
    """As where a job does not time its calls: of none it is told when it began."""
    for calls in job.calls.values():
        for call in calls:
            call["time_discovered_started_ns"] = None
            call["state"] = "completed" if call["state"] == "completed" else "scheduled"


def counted(program, into, jobs, seed, untimed=False):
    """Answers of each kind, by how many hang, whether a dump is missing, and the length of rings."""
    table = collections.defaultdict(collections.Counter)
    for number in range(jobs):
        job, guilty = made(random.Random(1000 * seed + number))
        folder = into.absolute() / f"{number:05}"
        shutil.rmtree(folder, ignore_errors=True)
        if untimed:
            without_starts(job)
        job.write(folder / "job")
        answer = answer_of(program, folder)
        result = judged(answer, guilty)
        table[len(guilty), bool(job.missing), job.ring][result] += 1
        if result in ("innocent", "missed", "some"):
            print(folder, result, answer["class"], answer["guilty"], "of", sorted(guilty), answer["evidence"][:3])
        else:
            shutil.rmtree(folder)
    return table


def asked():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--untimed", action="store_true", help="jobs that do not time their calls")
    return parser.parse_args()


def main():
    options = asked()
    table = counted(options.program, options.folder, options.jobs, options.seed, options.untimed)
    for (guilty, missing, ring), counts in sorted(table.items(), key=str):
        print(f"{guilty} hang{', a dump is missing' if missing else ''}, rings of {ring}: {dict(counts)}")
    return 1 if any(counts["innocent"] for counts in table.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
