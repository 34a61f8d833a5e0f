"""Weights whose bits do not depend on the number of ranks.

    from lockstep.invariant import VirtualShards

    shards = VirtualShards(model, count=8)        # model: a DistributedDataParallel, or a module on one device
    for step in range(steps):
        for shard in shards:                      # the numbers, of 0 to 7, that are this rank's
            inputs, targets = batch_of(step, shard)   # of the shard's number alone, never of the rank's
            with shards.compute(shard):
                loss_of(model(inputs), targets).backward()
        optimizer.step()                          # .grad is the average over all 8 shards

Every shard's gradient is computed by itself, all are added in one fixed binary tree over their numbers, and the sum is
divided once. Which rank adds what changes, the additions do not: 1, 2, 3 or 8 ranks give the same bits, as long as each
computes a shard as one device does (the same device type, threads and libraries).

* A shard's loss is the mean over its own samples. Shards of different sizes count alike, whatever the number of ranks.
* `compute` begins each shard with .grad None, with the buffers of the step's beginning, and with a random stream of the
  shard's own (`seed`), so that dropout, too, draws the same everywhere. The step leaves the buffers that shard 0 made.
* Of a rank only those sums travel that it cannot add further, while backward goes on; from 3 ranks on the second half
  of the exchange comes after backward.
* With `audit_every` ranks check each other for silent corruption: lockstep.audit. With `step` a training goes on from
  a checkpoint.
* Not for SyncBatchNorm (shards are computed one after the other), sparse gradients, static_graph, a comm hook of your
  own, or an optimizer that is fused into backward: refused where it can be seen.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .audit import Audit, SilentCorruption

__all__ = ["ShardTree", "SilentCorruption", "VirtualShards", "roots_of", "shards_of_rank"]


def shards_of_rank(count, world_size, rank):
    """The consecutive shards that a rank computes."""
    return range(rank * count // world_size, (rank + 1) * count // world_size)


def _top(count):
    return ((count - 1).bit_length(), 0)


def roots_of(shards, count):
    """The largest nodes (level, index) of the tree that lie in a range of shards as a whole."""

    def collect(level, index):
        begin, end = index << level, min((index + 1) << level, count)
        if begin >= shards.stop or end <= shards.start:
            return []
        if begin >= shards.start and end <= shards.stop:
            return [(level, index)]
        return collect(level - 1, 2 * index) + collect(level - 1, 2 * index + 1)

    return collect(*_top(count))


class ShardTree:
    """Adds as soon as both halves of a node are there, left + right: in which order they come decides nothing."""

    def __init__(self, count, add):
        self.count, self.add, self.nodes = count, add, {}

    def put(self, node, value):
        while node != _top(self.count):
            level, index = node
            other = (level, index ^ 1)
            if other[1] << level < self.count:
                if other not in self.nodes:
                    break
                sibling = self.nodes.pop(other)
                value = self.add(value, sibling) if node < other else self.add(sibling, value)
            node = (level + 1, index // 2)
        if node in self.nodes:
            raise ValueError(f"node {node} of the tree twice")
        self.nodes[node] = value

    def take(self):
        nodes, self.nodes = self.nodes, {}
        return sorted(nodes.items(), key=lambda item: item[0][1] << item[0][0])


def _add(left, right):
    return left.add_(right)


class _Exchange:
    """The roots of one bucket on their way, and what becomes of them. `sums`: (node, flat tensor) of this rank."""

    def __init__(self, owner, parameters, sums, length):
        self.owner, self.parameters, self.length = owner, parameters, length
        world_size, roots = owner.world_size, owner.roots
        # Two ranks with one root each: that moves what an all-reduce does. Before an audit every rank adds by itself, so
        # that a sum that one of them gets wrong is a difference.
        self.gathers = world_size == 2 and max(len(nodes) for nodes in roots) == 1 or owner.audits()
        self.work, self.average = None, None
        if world_size == 1:
            self.received = [[sums[0][1]]]
        elif self.gathers:
            self._gather(sums, roots)
        else:
            self._scatter(sums, roots, world_size)

    def _gather(self, sums, roots):
        """All roots to all, as many of each rank as of the one that has most."""
        most = max(len(nodes) for nodes in roots)
        rows = [one for _, one in sums] + [sums[0][1]] * (most - len(sums))
        self.sent = rows[0].unsqueeze(0) if most == 1 else torch.stack(rows)
        self.received = [torch.empty_like(self.sent) for _ in roots]
        self.work = dist.all_gather(self.received, self.sent, group=self.owner.group, async_op=True)

    def _scatter(self, sums, roots, world_size):
        """Part r of every root to rank r."""
        self.part = -(-self.length // world_size)
        padded = [torch.nn.functional.pad(one, (0, self.part * world_size - self.length)) for _, one in sums]
        self.sent = torch.stack([one.view(world_size, self.part) for one in padded], 1).reshape(-1)
        counts = [len(nodes) for nodes in roots]
        flat = self.sent.new_empty(sum(counts) * self.part)
        self.received = [one.view(-1, self.part) for one in flat.split([count * self.part for count in counts])]
        self.work = dist.all_to_all_single(flat, self.sent, [count * self.part for count in counts],
                                           [len(sums) * self.part] * world_size, group=self.owner.group, async_op=True)

    def add(self):
        """Waits for what has been sent, adds it in the tree, and divides."""
        if self.work is not None:
            self.work.wait()
        tree = ShardTree(self.owner.count, _add)
        for nodes, values in zip(self.owner.roots, self.received):
            for node, value in zip(nodes, values):
                tree.put(node, value)
        ((node, total),) = tree.take()
        assert node == _top(self.owner.count), "the sum of some shards only"
        self.average = total.div_(self.owner.count)
        if self.owner.world_size == 1 or self.gathers:
            self.work = None
            return
        self.parts = [torch.empty_like(self.average) for _ in self.owner.roots]
        self.work = dist.all_gather(self.parts, self.average, group=self.owner.group, async_op=True)

    def write_back(self, used):
        if self.work is not None:
            self.work.wait()
            self.average = torch.cat(self.parts)
        offset = 0
        for parameter in self.parameters:
            values = self.average[offset:offset + parameter.numel()].view_as(parameter)
            offset += parameter.numel()
            if not used[self.owner.places[parameter]]:
                parameter.grad = None
            elif parameter.grad is None:
                parameter.grad = values.clone()
            else:
                parameter.grad.copy_(values)


class VirtualShards:
    """See the module. Iterating gives this rank's shards; every step computes each of them once, in this order.

    step:           the number of the first step, of a training that goes on from a checkpoint
    audit_every:    every so many steps the ranks check each other (lockstep.audit), for which the iterator gives further
                    shards after the rank's own. They change nothing; a loop that adds up losses skips them: `auditing`.
    audit:          "one" shard of every rank, another one each time, or "all" of them
    optimizer:      the one whose state is checked, too, or a list of several; audits need it
    on_corruption:  called with the SilentCorruption, on every rank; by default it is raised
    """

    def __init__(self, model, count, seed=0, step=0, audit_every=None, audit="one", optimizer=None, on_corruption=None):
        self.model, self.count, self.seed = model, count, seed
        self.ddp = isinstance(model, DistributedDataParallel)
        if not self.ddp and dist.is_initialized() and dist.get_world_size() > 1:
            raise ValueError("on several ranks the model must be a DistributedDataParallel")
        self.group = model.process_group if self.ddp else None
        self.world_size = dist.get_world_size(self.group) if self.ddp else 1
        self.rank = dist.get_rank(self.group) if self.ddp else 0
        if not self.world_size <= count:
            raise ValueError(f"{count} virtual shards leave none for some of {self.world_size} ranks")
        self.ranges = [shards_of_rank(count, self.world_size, rank) for rank in range(self.world_size)]
        self.own = self.ranges[self.rank]
        self.roots = [roots_of(own, count) for own in self.ranges]
        inner = model.module if self.ddp else model
        self._refuse(inner)
        self._list_tensors(inner)
        self.finds_unused = self.ddp and getattr(model, "find_unused_parameters", False)
        self._step, self.next = step, self.own.start
        self.audit = self._audit(audit_every, optimizer, audit, on_corruption)
        self._begin_step()
        inner.register_forward_pre_hook(self._note_buffers)
        if self.ddp:
            model.register_comm_hook(self, VirtualShards._hook)

    def _list_tensors(self, inner):
        self.named_parameters, self.named_buffers = list(inner.named_parameters()), list(inner.named_buffers())
        self.named_trained = [(name, p) for name, p in self.named_parameters if p.requires_grad]
        self.parameters = [p for _, p in self.named_trained]
        self.places = {p: place for place, p in enumerate(self.parameters)}
        self.buffers = [buffer for _, buffer in self.named_buffers]

    def _audit(self, every, optimizer, scope, on_corruption):
        if every is None:
            if optimizer is not None or scope != "one" or on_corruption is not None:
                raise ValueError("audit, optimizer and on_corruption have no effect without audit_every")
            return None
        if self.finds_unused:
            for place, parameter in enumerate(self.parameters):
                parameter.register_hook(lambda gradient, place=place: self._note_use(place, gradient))
        return Audit(self, every, optimizer, scope, on_corruption, lambda: ShardTree(self.count, _add))

    def _refuse(self, inner):
        if any(isinstance(layer, torch.nn.SyncBatchNorm) for layer in inner.modules()):
            raise ValueError("SyncBatchNorm normalizes over all shards at once, which are computed one after the other")
        if any(getattr(layer, "sparse", False) for layer in inner.modules()):
            raise ValueError("virtual shards add dense gradients, and the model has a sparse one")
        if self.ddp and getattr(self.model, "static_graph", False):
            raise ValueError("virtual shards of a static_graph")
        if self.ddp and list(inner.buffers()) and not self.model.broadcast_buffers:
            raise ValueError("every rank gets the buffers of shard 0: broadcast_buffers must be True")

    def __iter__(self):
        return self._own_and_audited() if self.audits() else iter(self.own)

    def _own_and_audited(self):
        yield from self.own
        yield from self.audit.rounds()

    def __len__(self):
        """Of this rank's own."""
        return len(self.own)

    @property
    def step(self):
        """The number of this step; the first is the constructor's `step`."""
        return self._step

    def audits(self):
        """Whether this step is one that ends with an audit."""
        return self.audit is not None and self.audit.due(self.step)

    @property
    def auditing(self):
        """Whether the shard that the iterator has just given is computed for an audit, not for the gradient."""
        return self.audit is not None and self.audit.turn is not None

    def _begin_step(self):
        self.trees = [ShardTree(self.count, _add) for _ in self.parameters]
        self.used, self.touched = [False] * len(self.parameters), set()
        self.exchanges, self.start_buffers, self.first_buffers = [], None, None
        if self.audit is not None:
            self.audit.begin_step(self.step)

    def _note_buffers(self, *_):
        """Of the step's first forward, when DDP has given all ranks those of rank 0."""
        if self.start_buffers is None and not self.auditing:
            self.start_buffers = [buffer.detach().clone() for buffer in self.buffers]

    def _note_use(self, place, gradient):
        if gradient is not None:
            self.touched.add(place)

    def restore(self, values):
        with torch.no_grad():
            for buffer, value in zip(self.buffers, values):
                buffer.copy_(value)

    @contextlib.contextmanager
    def compute(self, shard):
        """Around the forward and backward of one shard. It may be several micro-batches, whose gradients add up; all but
        the last one in the model's no_sync(), as DDP wants it."""
        if self.audit is not None and self.audit.open:
            with self.audit.compute(shard):
                yield
            return
        if shard != self.next:
            raise ValueError(f"shard {shard}, where {self.next} is next: each once a step, in their order")
        last = shard + 1 == self.own.stop
        if shard > self.own.start:
            if self.first_buffers is None:
                self.first_buffers = [buffer.detach().clone() for buffer in self.buffers]
            self.restore(self.start_buffers)
        self._begin_gradients(last)
        with self.random_stream(self.step, shard):
            with self.model.no_sync() if self.ddp and not last else contextlib.nullcontext():
                yield
        self._end_shard(shard, last)

    def _begin_gradients(self, last):
        for place, parameter in enumerate(self.parameters):
            # DDP wants a gradient of what any shard, also an audited one, has used since the last exchange.
            starts = last and self.finds_unused and (self.used[place] or self.audit is not None)
            parameter.grad = torch.zeros_like(parameter) if starts else None
        self.touched.clear()

    def _end_shard(self, shard, last):
        if not last or not self.ddp:
            self._keep(shard)
        if self.audit is not None:
            self.audit.note_buffers(shard)
        if not last:
            self.next += 1
            return
        if not self.ddp:
            self._send_all()
        self._finish()
        self.next = self.own.start

    @contextlib.contextmanager
    def random_stream(self, step, shard):
        state = torch.get_rng_state()
        torch.manual_seed((self.seed * 1_000_003 + step) * 1_000_003 + shard & 0x7FFF_FFFF_FFFF_FFFF)
        try:
            yield
        finally:
            torch.set_rng_state(state)

    @staticmethod
    def leaf(parameter, gradient):
        """What a shard adds to the tree, flat: a copy in which -0 is 0, as where it has been added to zeros; zeros where
        it has not used the parameter."""
        return torch.zeros_like(parameter).reshape(-1) if gradient is None else gradient.detach().reshape(-1) + 0

    def _put(self, place, shard, gradient):
        leaf = self.leaf(self.parameters[place], gradient)
        if self.audit is not None:
            self.audit.note_gradient(shard, place, leaf)
        self.trees[place].put((0, shard), leaf)

    def _take(self, place):
        taken = self.trees[place].take()
        if self.audit is not None:
            for node, value in taken:
                self.audit.note_root(place, node, value)
        return taken

    def _keep(self, shard):
        for place, parameter in enumerate(self.parameters):
            gradient, parameter.grad = parameter.grad, None
            self.used[place] |= gradient is not None
            if gradient is None and self.ddp and not self.finds_unused:
                raise RuntimeError("a parameter has no gradient in a shard: DDP needs find_unused_parameters")
            self._put(place, shard, gradient)

    def _send_all(self):
        """On one device: nothing travels."""
        for place, parameter in enumerate(self.parameters):
            self.exchanges.append(_Exchange(self, [parameter], self._take(place), parameter.numel()))

    def _hook(self, bucket):
        """DDP's, when the last shard's backward has filled a bucket. What DDP does with it then is written over."""
        parameters, shard = list(bucket.parameters()), self.own.stop - 1
        for parameter, gradient in zip(parameters, bucket.gradients()):
            place = self.places[parameter]
            # DDP's bucket holds zeros where the last shard has not used a parameter; see _finish for `used`.
            self._put(place, shard, gradient)
        taken = [self._take(self.places[parameter]) for parameter in parameters]
        sums = [(node, torch.cat([of[i][1] for of in taken])) for i, (node, _) in enumerate(taken[0])]
        self.exchanges.append(_Exchange(self, parameters, sums, sums[0][1].numel()))
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _used_anywhere(self):
        # After an audit DDP takes what it has used for used in this step; so we look ourselves.
        used = [mine or (place in self.touched if self.finds_unused and self.audit else parameter.grad is not None)
                for place, (mine, parameter) in enumerate(zip(self.used, self.parameters))]
        if not self.finds_unused:
            return used
        flags = torch.tensor(used, dtype=torch.uint8, device=self.parameters[0].device)
        dist.all_reduce(flags, dist.ReduceOp.MAX, group=self.group)
        return [bool(flag) for flag in flags.tolist()]

    def _finish(self):
        if sum(len(exchange.parameters) for exchange in self.exchanges) != len(self.parameters):
            raise RuntimeError("the last shard's backward has not come to all parameters")
        with torch.no_grad():
            for exchange in self.exchanges:
                exchange.add()
            used = self._used_anywhere()
            for exchange in self.exchanges:
                exchange.write_back(used)
        if self.own.start == 0 and self.first_buffers is not None:
            self.restore(self.first_buffers)
        if self.audit is not None:
            self.audit.end_step(self.step, self.start_buffers)
        self._step += 1
        self._begin_step()
