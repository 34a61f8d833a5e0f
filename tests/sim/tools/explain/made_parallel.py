#!/usr/bin/env python3
"""Makes up incidents of jobs that are parallel in several ways (tensor, data, pipeline and expert parallel ranks), and dumps
as the recorders of PyTorch 2.15 and of torchcomms write them, and compares what `lockstep explain` says of the pickles
with who is guilty. No torch is needed.

usage: made_parallel.py PROGRAM FOLDER
Exit status 1 if an innocent rank was accused, a failure overlooked, or what must be exact is not.
"""
from made_incidents import WAITS, Job, main

SCHEDULED = {"state": "scheduled"}


class Mesh(Job):
    """tensor x data x pipeline, the first fastest, with a group of each kind for each rank."""

    def __init__(self, tensor, data, pipeline, **how):
        super().__init__(tensor * data * pipeline, **how)
        at = {rank: (rank % tensor, rank // tensor % data, rank // tensor // data) for rank in self.ranks}
        self.kinds = {}
        for kind, own in (("tensor", 0), ("data", 1), ("pipeline", 2)):
            lines = {}
            for rank in self.ranks:
                lines.setdefault(tuple(n for axis, n in enumerate(at[rank]) if axis != own), []).append(rank)
            self.kinds[kind] = [self.group(f"{kind}{number}", ranks) for number, ranks in enumerate(lines.values())]

    def line_of(self, kind, rank):
        return next(name for name in self.kinds[kind] if rank in self.groups[name][1])

    def all_in(self, kind, operation="all_reduce", **how):
        for name in self.kinds[kind]:
            self.call(self.groups[name][1], operation, name, **how)

    def forward(self, **how):
        for name in self.kinds["pipeline"]:
            ranks = self.groups[name][1]
            for source, destination in zip(ranks, ranks[1:]):
                self.send(source, destination, name, **how)

    def step(self):
        self.all_in("tensor")
        self.forward()
        self.all_in("data", "_reduce_scatter_base")
        self.call(self.ranks)

    def steps(self, count):
        for _ in range(count):
            self.step()
        return self


def stuck_before_tensor(**how):
    """Rank 5 never comes to the all-reduce of its tensor-parallel group; its peer waits there, the others behind it."""
    job = Mesh(2, 2, 2, **how).steps(4)
    for name in job.kinds["tensor"]:
        ranks = job.groups[name][1]
        if 5 in ranks:
            job.call([rank for rank in ranks if rank != 5], group=name, **WAITS)
        else:
            job.call(ranks, group=name)
    for name in job.kinds["data"]:
        here = [rank for rank in job.groups[name][1] if rank not in (4, 5)]
        job.call(here, "_reduce_scatter_base", name, **WAITS)
    return job


def lost_stage(**how):
    """Stage 1's ranks of one pipeline: rank 4 does not send on what it got."""
    job = Mesh(2, 1, 4, **how).steps(3)
    job.all_in("tensor")
    for name in job.kinds["pipeline"]:
        ranks = job.groups[name][1]
        job.send(ranks[0], ranks[1], name)
        job.send(ranks[1], ranks[2], name)
        if 4 in ranks:
            job.send(ranks[2], ranks[3], name, sent=False, **WAITS)
        else:
            job.send(ranks[2], ranks[3], name)
    job.call([rank for rank in job.ranks if rank not in (4, 6)], **WAITS)
    return job


def receives(count, **how):
    """Each rank waits for what the one before it did not send; the first one sends nothing."""
    job = Job(count, **how).steps(2)
    for rank in range(1, count):
        job.send(rank - 1, rank, sent=False, **WAITS)
    return job


def batched(count=4):
    """Sends and receives of a ring in one batch; rank 2 never calls its."""
    job = Job(count).steps(2)
    for rank in range(count):
        if rank != 2:
            own = len(job.calls[rank])
            job.call(rank, f"send {rank}->{(rank + 1) % count}", **SCHEDULED)
            job.call(rank, f"recv {rank}<-{(rank - 1) % count}", **SCHEDULED)
            for call in job.calls[rank][own:]:
                call["p2p_seq_id"] = 1
            job.call(rank, "coalesced", **WAITS)
            job.calls[rank][-1].update(is_p2p=False, collective_seq_id=2, p2p_seq_id=1)
    return job


def both_called():
    """Ranks 0 and 1 both called their sides of a transfer that does not end."""
    job = Job(4).steps(2)
    job.send(0, 1, **WAITS)
    job.call([2, 3], **WAITS)
    return job


def sent_and_lost(**how):
    """What rank 0 sent is done there and not at rank 1, which is not its fault, as far as is known."""
    job = Job(2, **how).steps(2)
    job.send(0, 1, received=False)
    job.send(0, 1, sent=False, **WAITS)
    return job


def behind_a_collective():
    """Rank 2 waits, in a pair, for rank 3, which hangs; rank 1 waits for what rank 2 will send."""
    job = Job(4).steps(2)
    pair = job.group("pair", [2, 3])
    job.call(2, group=pair, **WAITS)
    job.send(2, 1, sent=False, **WAITS)
    job.call(0, **WAITS)
    return job


def sends_nobody_receives():
    job = Job(3).steps(2)
    job.send(0, 2, received=False, **SCHEDULED)
    job.call([0, 1], **WAITS)
    return job


def in_a_subgroup(**how):
    """Numbers within a group are not the job's: of [4, 5, 6, 7], 1<-0 is rank 5 of rank 4."""
    job = Job(8, **how).steps(2)
    line = job.group("stages", [4, 5, 6, 7])
    for first, second in ((4, 5), (5, 6), (6, 7)):
        job.send(first, second, line)
    job.send(4, 5, line)
    job.send(5, 6, line, sent=False, **WAITS)
    job.send(6, 7, line, sent=False, **WAITS)
    job.call([0, 1, 2, 3, 4], **WAITS)
    return job


def experts():
    """Expert parallel: uneven sizes are none's fault; rank 6 leaves one all_to_all out."""
    job = Job(8).steps(2)
    group = job.group("experts", list(range(8)))
    for step in range(6):
        for rank in job.ranks:
            job.call(rank, "all_to_all", group, size=100 + 7 * rank + step)
    job.call(job.others(6), "all_to_all", group, size=50, **WAITS)
    return job


def two_streams():
    """FSDP2: gathers of the next layer run beside reductions of the last; rank 1 hangs in between."""
    job = Job(4).steps(1)
    for _ in range(4):
        job.call(job.ranks, "_all_gather_base", size=100)
        job.call(job.ranks, "_reduce_scatter_base", size=100)
    job.call(job.others(1), "_all_gather_base", size=100, **WAITS)
    job.call(job.others(1), "_reduce_scatter_base", size=100, **SCHEDULED)
    return job


def in_a_kernel():
    """All called it; rank 2's GPU never began, kept by a kernel of its own."""
    job = Job(4).steps(3)
    job.call(job.others(2), **WAITS)
    job.call(2, **SCHEDULED)
    return job


def two_guilty():
    job = Job(8).steps(2)
    one, other = job.group("one", [0, 1, 2, 3]), job.group("other", [4, 5, 6, 7])
    job.call([0, 1, 2], group=one, **WAITS)
    job.call([4, 6, 7], group=other, **WAITS)
    return job


def writes_a_checkpoint():
    """Rank 0 is in no collective, for it writes to the disk; all others are in the next step's."""
    job = Job(8).steps(9)
    job.call(job.others(0), "barrier", size=1, **WAITS)
    return job


def hooked(job, library="nccl2", completes=True):
    """As c10d's hook writes it (PyTorch 2.15): its status counts all calls from 0, also those of other libraries."""
    status, calls = job.status, job.call

    def call(ranks, *words, **how):
        calls(ranks, *words, **how)
        for rank in job.ranks:
            for entry in job.calls[rank]:
                entry["profiling_name"] = f"{library}:" + entry["profiling_name"].partition(":")[2]
                if not completes:
                    entry.update(state="scheduled", retired=True, time_discovered_started_ns=None,
                                 time_discovered_completed_ns=None)

    def counted(rank, group):
        return {key: value + job.of_others if value > 0 else value for key, value in status(rank, group).items()}
    job.of_others, job.call, job.status = -1, call, counted
    return job


def hooked_hang(of_others=-1, **how):
    job = hooked(Job(4), **how)
    job.of_others = of_others
    job.steps(9)
    job.call(job.others(2), **WAITS)
    return job


def rare_group():
    """Rank 0 went on after its last call of a group that is used seldom, of which its ring holds none."""
    job = hooked(Job(3, ring=6))
    rare = job.group("rare", [0, 1, 2])
    job.call(job.ranks, group=rare)
    job.call(0, group=rare)
    job.steps(8)
    job.call([1, 2], group=rare, **WAITS)
    job.call([0], "broadcast", **WAITS)
    return job


def torchcomms(job, library="ncclx"):
    """Its recorder counts the calls of all groups in one, names the library as the description, and retires what is over."""
    for rank in job.ranks:
        for entry in job.calls[rank]:
            entry.update(process_group=(entry["process_group"][0], library), collective_seq_id=entry["record_id"],
                         p2p_seq_id=0, is_p2p=False, retired=entry["state"] == "completed", state="started",
                         profiling_name=f"{library}:" + entry["profiling_name"].partition(":")[2])
    job.groups = {name: (library, ranks) for name, (_, ranks) in job.groups.items()}
    job.status = lambda rank, group: {f"last_{what}_collective": -1 for what in ("enqueued", "started", "completed")}
    return job


def comms_hang(guilty=3, **how):
    """Rank 3 is in a group more than the others, so that its numbers are ahead."""
    job = Job(4, **how).steps(2)
    pair = job.group("pair", [0, 3])
    for _ in range(3):
        job.call([0, 3], group=pair)
        job.call(job.ranks)
    job.call(job.others(guilty), **WAITS)
    return torchcomms(job)


def comms_clean():
    job = Job(4).steps(2)
    pair = job.group("pair", [0, 3])
    for _ in range(6):
        job.call([0, 3], group=pair, size=3)
        job.call(job.ranks)
    return torchcomms(job)


def only_active(job, *ranks):
    job.only_active = set(ranks)
    return job


def without_status(job):
    dump = job.dump

    def changed(rank):
        made = dump(rank)
        del made["pg_status"]
        return made
    job.dump = changed
    return job


def mixed_versions(job):
    dump = job.dump

    def changed(rank):
        made = dump(rank)
        made["version"] = ("2.4", "2.9", "2.10", "2.11")[rank % 4]
        for entry in made["entries"]:
            entry["timeout_ms"] = 600000 + 1000 * (rank % 4)
            if rank % 4 == 0:
                entry.update(time_discovered_started_ns=None, time_discovered_completed_ns=None)
        return made
    job.dump = changed
    return job


def gone(job, *ranks):
    job.missing = set(ranks)
    return job


INCIDENTS = {
    "3D: one before its tensor group": (stuck_before_tensor(), {5}, True),
    "3D, rings of 12": (stuck_before_tensor(ring=12), {5}, False),
    "3D, clocks apart": (stuck_before_tensor(clocks={1: 900, 5: -80, 6: 3600}), {5}, True),
    "3D, no status": (without_status(stuck_before_tensor()), {5}, True),
    "3D, versions mixed": (mixed_versions(stuck_before_tensor()), {5}, True),
    "3D, guilty left no dump": (gone(stuck_before_tensor(), 5), {5}, False),
    "3D, innocent left no dump": (gone(stuck_before_tensor(), 0), {5}, False),
    "3D, one asked for what is active": (only_active(stuck_before_tensor(), 5), {5}, False),
    "pipeline: a stage sends nothing on": (lost_stage(), {4}, True),
    "pipeline, rings of 9": (lost_stage(ring=9), {4}, False),
    "a chain of receives": (receives(7), {0}, True),
    "a chain of receives, short rings": (receives(7, ring=2), {0}, False),
    "a batch of sends and receives": (batched(), {2}, True),
    "a transfer that both called": (both_called(), set(), True),
    "sent, not received": (sent_and_lost(), set(), True),
    "sent, not received, short rings": (sent_and_lost(ring=2), set(), False),
    "a receive behind a collective": (behind_a_collective(), {3}, True),
    "a send that nobody receives": (sends_nobody_receives(), {2}, True),
    "numbers within a subgroup": (in_a_subgroup(), {5}, True),
    "experts, uneven": (experts(), {6}, True),
    "FSDP2 on two streams": (two_streams(), {1}, True),
    "a kernel of its own": (in_a_kernel(), {2}, True),
    "two, in two groups": (two_guilty(), {3, 5}, True),
    "a checkpoint": (writes_a_checkpoint(), {0}, True),
    "nccl2": (hooked_hang(), {2}, True),
    "nccl2 beside gloo": (hooked_hang(40), {2}, True),
    "nccl2, a rare group": (rare_group(), set(), False),
    "nccl2, clean": (hooked(Job(4)).steps(20), set(), True),
    "ucc by the hook": (hooked_hang(library="ucc", completes=False), {2}, False),
    "torchcomms": (comms_hang(), {3}, True),
    "torchcomms, the other": (comms_hang(1), {1}, True),
    "torchcomms, rings of 7": (comms_hang(ring=7), {3}, False),
    "torchcomms, clean": (comms_clean(), set(), True),
}


if __name__ == "__main__":
    raise SystemExit(main(INCIDENTS))
