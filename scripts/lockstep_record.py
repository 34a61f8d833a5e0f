"""Records a DistributedDataParallel run for lockstep. One file, nothing but PyTorch (1.13 or newer):

    from lockstep_record import record
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    recorder = record(model, optimizer, "run_dir")      # on every rank, after init_process_group
    ...                                                 # the training loop, unchanged
    recorder.close()                                    # optional: it also happens at exit

leaves run_dir/rank-R.records (events in the format of docs/records.md), rank-R.hashes (JSON, a line
for each hashed step) and recording.json. `lockstep analyze run_dir` names stragglers, blame and
overlap; `lockstep compare run_a run_b` the first divergence of two recorded runs.

What it does to the run: a comm hook that sums a bucket as DDP does by itself (multiplied by 1/W, then
all-reduced: the same bits, except that DDP divides where gradient_as_bucket_view is set), and a wrapper
around optimizer.step(). `comm_hook=(state, hook)` records a hook of your own instead. A model that is
not wrapped in DDP is recorded without buckets. Times of one host only: clocks of several are not
brought together."""
import atexit
import ctypes
import hashlib
import json
import mmap
import os
import struct
import threading
import time

import torch
import torch.distributed as dist

_EVENT = struct.Struct("<qIHHiiQ")  # time_ns sequence kind phase step subject value
_HEADER = struct.Struct("<QIiiiqqQQ")
_HEADER_BYTES = 4096
_APPENDED_AT = 48
_MAGIC = 0x31305345524B434C  # "LCKRES01"
_LOAD, _FORWARD, _BACKWARD, _WAIT, _OPTIMIZER = 3, 4, 5, 6, 7  # sim/record/event.h
_PHASE_BEGIN, _BUCKET_READY, _ARRIVAL, _END, _STATE_HASH = 1, 3, 4, 5, 7
_PRIMARY_DONE, _FINISHED, _STEP_END = 19, 20, 22
_ALL_REDUCE = 1
_KINDS = ("gradient", "buffer", "parameter", "optimizer_state")
_DTYPES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4,
           torch.float16: 5, torch.float32: 6, torch.float64: 7, torch.bool: 11, torch.bfloat16: 15}
_COLUMNS = 1024


class _Records:
    """A rank's event file: a mapped ring, so that events survive the death of the process."""

    def __init__(self, path, rank, world_size, capacity):
        with open(path, "w+b") as file:
            size = _HEADER_BYTES + capacity * _EVENT.size
            os.posix_fallocate(file.fileno(), 0, size)
            self._map = mmap.mmap(file.fileno(), size)
        self._capacity, self._appended, self._lock = capacity, 0, threading.Lock()
        _HEADER.pack_into(self._map, 0, _MAGIC, 1, rank, world_size, 0, 0, 0, capacity, 0)

    def append(self, kind, phase, step, subject=-1, value=0, sequence=0, at_ns=None):
        now = time.monotonic_ns() if at_ns is None else at_ns
        with self._lock:
            at = _HEADER_BYTES + self._appended % self._capacity * _EVENT.size
            _EVENT.pack_into(self._map, at, now, sequence, kind, phase, step, subject, value)
            self._appended += 1
            struct.pack_into("<Q", self._map, _APPENDED_AT, self._appended)


def _bytes_of(tensor):
    """Of a contiguous tensor, without NumPy."""
    tensor = tensor.cpu()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _hash_of(tensor):
    """A number that changes with the tensor's bits and, nearly always, with their places: sums of its
    bytes as int64 over 1,024 columns, then BLAKE2. Sums have no order, so that any device may add."""
    tensor = tensor.detach()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    if not tensor.is_contiguous():
        tensor = tensor.contiguous()
    content = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else tensor.new_zeros(
        0, dtype=torch.uint8)
    whole = content.numel() // (8 * _COLUMNS) * (8 * _COLUMNS)
    digest = hashlib.blake2b(str((tensor.dtype, tuple(tensor.shape))).encode(), digest_size=8)
    if whole:
        # Storage offsets that are no multiple of 8 bytes cannot be seen as int64.
        body = content[:whole]
        body = body.view(torch.int64) if body.storage_offset() % 8 == 0 else body.clone().view(
            torch.int64)
        digest.update(_bytes_of(body.view(-1, _COLUMNS).sum(0)))
    digest.update(_bytes_of(content[whole:]))
    return digest.hexdigest()


class Recorder:
    """What record() gives back."""

    def __init__(self, model, optimizer, folder, hash_every, capacity, comm_hook):
        self._distributed = dist.is_available() and dist.is_initialized()
        self._rank = dist.get_rank() if self._distributed else 0
        self._world = dist.get_world_size() if self._distributed else 1
        self._model, self._optimizer, self._folder = model, optimizer, str(folder)
        self._hash_every, self._comm_hook = hash_every, comm_hook
        os.makedirs(self._folder, exist_ok=True)
        self._records = _Records(f"{self._folder}/rank-{self._rank}.records", self._rank,
                                 self._world, capacity)
        self._hashes = open(f"{self._folder}/rank-{self._rank}.hashes", "w", encoding="utf-8")
        inner = model.module if hasattr(model, "register_comm_hook") else model
        self._parameters = list(inner.named_parameters())
        self._buffers = list(inner.named_buffers())
        self._names = {id(parameter): name for name, parameter in self._parameters}
        self._step, self._phase, self._sequence, self._open = 1, 0, 0, True
        self._since_ns = time.monotonic_ns()  # the begin of the step under way, until its forward
        self._chains = {kind: b"" for kind in _KINDS}
        if self._rank == 0:
            self._describe()
        self._attach()
        atexit.register(self.close)

    def close(self):
        """Says that the run came to its end; nothing is recorded after it."""
        if self._open:
            self._open = False
            for kind in (_PRIMARY_DONE, _FINISHED):
                self._records.append(kind, self._phase, self._step - 1)
            self._hashes.close()

    def _describe(self):
        text = json.dumps({
            "format": "lockstep_recording", "version": 1, "world_size": self._world,
            "name": type(self._model).__name__, "torch": torch.__version__,
            "hash_every": self._hash_every,
            "optimizer": type(self._optimizer).__name__,
            "parameters": [name for name, _ in self._parameters],
            "buffers": [name for name, _ in self._buffers]}, indent=2)
        path = f"{self._folder}/recording.json"
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(path + ".new", path)

    def _attach(self):
        self._model.register_forward_pre_hook(self._before_forward)
        self._model.register_forward_hook(self._after_forward)
        if hasattr(self._model, "register_comm_hook") and self._distributed:
            self._model.register_comm_hook(self, Recorder._reduce)
        step = self._optimizer.step

        def recorded(*args, **kwargs):
            if not self._open:
                return step(*args, **kwargs)
            self._enter(_OPTIMIZER)
            result = step(*args, **kwargs)
            self._end_step()
            return result
        self._optimizer.step = recorded

    def _enter(self, phase):
        if self._open and self._phase != phase:
            self._phase = phase
            self._records.append(_PHASE_BEGIN, phase, self._step)

    def _before_forward(self, module, inputs):
        if torch.is_grad_enabled() and module.training:
            if self._since_ns is not None:  # what the loop did until now is part of the step
                self._records.append(_PHASE_BEGIN, _LOAD, self._step, at_ns=self._since_ns)
                self._since_ns = None
            self._phase = 0  # each micro-batch begins one of its own
            self._enter(_FORWARD)

    def _after_forward(self, module, inputs, output):
        """Backward begins where the gradient of an output arrives: the loss belongs to forward."""
        if not (torch.is_grad_enabled() and module.training):
            return
        stack = [output]
        while stack:
            value = stack.pop()
            if isinstance(value, torch.Tensor):
                if value.requires_grad:
                    value.register_hook(lambda gradient: self._enter(_BACKWARD))
                    return
            elif isinstance(value, dict):
                stack.extend(value.values())
            elif isinstance(value, (list, tuple)):
                stack.extend(value)

    @staticmethod
    def _reduce(self, bucket):  # DDP's signature: a state, which is the recorder, and a bucket
        index, tensor = bucket.index(), bucket.buffer()
        sequence, step = self._sequence, self._step
        self._sequence += 1
        value = (_ALL_REDUCE << 56 | _DTYPES.get(tensor.dtype, 255) << 48
                 | tensor.numel() * tensor.element_size())
        if self._open:
            self._records.append(_BUCKET_READY, self._phase, step, index)
            self._records.append(_ARRIVAL, self._phase, step, index, value, sequence)
        if self._comm_hook:
            future = self._comm_hook[1](self._comm_hook[0], bucket)
        else:
            future = dist.all_reduce(tensor.mul_(1.0 / self._world), async_op=True).get_future()
            future = future.then(lambda done: done.value()[0])
        if bucket.is_last():
            self._enter(_WAIT)  # all gradients are there

        def ended(done):
            if self._open:
                self._records.append(_END, self._phase, step, index, 0, sequence)
            return done.value()
        return future.then(ended)

    def _end_step(self):
        self._records.append(_STEP_END, self._phase, self._step)
        if self._step % self._hash_every == 0:
            self._hash()
        self._step += 1
        self._phase = 0
        self._since_ns = time.monotonic_ns()

    def _hash(self):
        line = {"gradient": {name: _hash_of(p.grad) for name, p in self._parameters
                             if p.grad is not None},
                "buffer": {name: _hash_of(buffer) for name, buffer in self._buffers},
                "parameter": {name: _hash_of(p) for name, p in self._parameters},
                "optimizer_state": {}}
        for parameter, state in self._optimizer.state.items():
            name = self._names.get(id(parameter), "?")
            for word, value in state.items():
                if isinstance(value, torch.Tensor):
                    line["optimizer_state"][f"{name}.{word}"] = _hash_of(value)
        for kind, word in enumerate(_KINDS):
            digest = hashlib.blake2b(self._chains[word] + json.dumps(line[word]).encode(),
                                     digest_size=8)
            self._chains[word] = digest.digest()
            self._records.append(_STATE_HASH, self._phase, self._step, kind,
                                 int.from_bytes(self._chains[word], "little"))
        self._hashes.write(json.dumps({"step": self._step, **line}) + "\n")
        self._hashes.flush()


def record(ddp_model, optimizer, folder, hash_every=10, capacity=1 << 18, comm_hook=None):
    """Records steps from now on into `folder` (made where there is none; the same one on all ranks).
    hash_every: gradients, parameters, buffers and optimizer state are hashed in every so many steps.
    capacity: newest events that a rank keeps, of 32 bytes each. Call it on every rank, before the
    first forward."""
    if hash_every < 1:
        raise ValueError("hash_every is a number of steps, at least 1")
    return Recorder(ddp_model, optimizer, folder, hash_every, capacity, comm_hook)
