"""Records a DistributedDataParallel run for lockstep. One file, nothing but PyTorch (1.13 or newer):

    from lockstep_record import record
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters())
    recorder = record(model, optimizer, "run_dir")      # on every rank, after init_process_group
    ...                                                 # the training loop, unchanged
    recorder.close()                                    # optional: it also happens at exit

leaves run_dir/rank-R.records (events in the format of docs/records.md), rank-R.hashes (JSON, a line
for each hashed step and one for the end) and recording.json. `lockstep analyze run_dir` names
stragglers, blame, overlap and who never came; `lockstep compare run_a run_b` the first divergence of
two recorded runs. With keep_tensors=True rank 0 also keeps what it hashes (rank-0.step-N.pt), which
`lockstep compare --rtol X` needs.

What it does to the run: a comm hook that sums a bucket as DDP does by itself (multiplied by 1/W, then
all-reduced: the same bits, except that DDP divides where gradient_as_bucket_view is set), hooks of the
model, which no copy and no pickle of it has, and a wrapper around optimizer.step(). A model has one
comm hook: `comm_hook=(state, hook)` records a hook of your own, which you do not register yourself. A
model that is not wrapped in DDP is recorded without buckets. Times of one host only: clocks of several
are not brought together."""
import atexit
import contextlib
import ctypes
import functools
import hashlib
import json
import mmap
import multiprocessing.util
import os
import struct
import sys
import threading
import time
import types

import torch
import torch.distributed as dist

_EVENT = struct.Struct("<qIHHiiQ")  # time_ns sequence kind phase step subject value
_HEADER = struct.Struct("<QIiiiqqQQ")
_HEADER_BYTES = 4096
_APPENDED_AT = 48
_MAGIC = 0x31305345524B434C  # "LCKRES01"
_LOAD, _FORWARD, _BACKWARD, _WAIT, _OPTIMIZER = 3, 4, 5, 6, 7  # sim/record/recorder.h
_PHASE_BEGIN, _BUCKET_READY, _ARRIVAL, _END, _STATE_HASH = 1, 3, 4, 5, 7
_PRIMARY_DONE, _FINISHED, _ERROR, _STEP_END = 19, 20, 21, 22
_HASH = 2  # which hash _hash_of() is, for `lockstep compare`
_ALL_REDUCE, _BROADCAST = 1, 2  # reducer/probe.h
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


def _parts_of(tensor):
    """The dense tensors that a tensor consists of."""
    tensor = tensor.detach()
    if tensor.layout != torch.sparse_coo:
        return [tensor]
    tensor = tensor.coalesce()
    return [tensor.indices(), tensor.values()]


def _sums_of(body):
    """Of columns and of rows; a block at a time, which a CPU's cache holds: one read of memory."""
    columns, rows = torch.zeros_like(body[0]), []
    for block in body.split(64 if body.device.type == "cpu" else len(body)):
        columns += block.sum(0)
        rows.append(block.sum(1))
    return columns, torch.cat(rows)


def _hash_of(tensor):
    """A number that changes with the tensor's bits and, nearly always, with their places: sums of its
    bytes, as int64, over 1,024 columns and along rows, then BLAKE2. Sums have no order, so that any
    device may add. Modulo 2^64 they lose an even number of flipped top bits, as signs of doubles are:
    of those the upper halves are summed as well, which do not overflow."""
    digest = hashlib.blake2b(digest_size=8)
    for part in _parts_of(tensor):
        part = part.contiguous()
        content = (part.reshape(-1).view(torch.uint8) if part.numel() else
                   part.new_zeros(0, dtype=torch.uint8))
        whole = content.numel() // (8 * _COLUMNS) * (8 * _COLUMNS)
        digest.update(str((part.dtype, tuple(part.shape), tuple(tensor.shape))).encode())
        if whole:
            # Storage offsets that are no multiple of 8 bytes cannot be seen as int64.
            body = content[:whole]
            body = (body if body.storage_offset() % 8 == 0 else body.clone()).view(torch.int64)
            body = body.view(-1, _COLUMNS)
            sums = list(_sums_of(body))
            if part.dtype in (torch.float64, torch.complex128):
                sums.append((body >> 32).sum(0))
            for summed in sums:
                digest.update(_bytes_of(summed))
        digest.update(_bytes_of(content[whole:]))
    return digest.hexdigest()


def _tensors_within(name, value):
    """The tensors of an optimizer's state, those in lists too (LBFGS)."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _tensors_within(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _tensors_within(f"{name}.{index}", item)


def _exception_under_way():
    """The one that ends this process, where that is known: at exit, or as a child of multiprocessing."""
    error = sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):
        return error if error.code not in (None, 0) else None
    return error


class _Hook:
    """A hook of one module alone: copies and pickles of it hold one that does nothing, and
    need no lockstep_record to be loaded."""

    def __init__(self, module, call):
        self._module, self._call = module, call

    def __call__(self, module, *args):
        if module is self._module:
            self._call(*args)

    def __reduce__(self):
        return getattr, (contextlib.nullcontext(), "__exit__")


class Recorder:
    """What record() gives back."""

    def __init__(self, model, optimizer, folder, hash_every, capacity, comm_hook, keep_tensors):
        self._distributed = dist.is_available() and dist.is_initialized()
        self._rank = dist.get_rank() if self._distributed else 0
        self._world = dist.get_world_size() if self._distributed else 1
        self._model, self._optimizer, self._folder = model, optimizer, str(folder)
        self._hash_every, self._comm_hook = hash_every, comm_hook
        self._keep_tensors = keep_tensors
        self._step, self._phase, self._sequence, self._open = 1, 0, 0, True
        if self._distributed and hasattr(model, "register_comm_hook"):
            self._register_comm_hook(model)  # first: nothing is left behind where it is refused
        os.makedirs(self._folder, exist_ok=True)
        self._forget_earlier()
        self._records = _Records(f"{self._folder}/rank-{self._rank}.records", self._rank,
                                 self._world, capacity)
        self._hashes = open(f"{self._folder}/rank-{self._rank}.hashes", "w", encoding="utf-8")
        inner = model.module if hasattr(model, "register_comm_hook") else model
        self._parameters = list(inner.named_parameters())
        self._inner = inner
        self._names = {id(parameter): name for name, parameter in self._parameters}
        try:
            self._schedstat = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        except OSError:
            self._schedstat = -1
        self._since = self._moment()  # the begin of the step under way, until its forward
        self._backward_end = None
        self._buffers_sequence = None  # of the broadcast under way
        self._chains = {kind: b"" for kind in _KINDS}
        if self._rank == 0:
            self._describe(model)
        model.register_forward_pre_hook(_Hook(model, self._before_forward))
        model.register_forward_hook(_Hook(model, self._after_forward))
        if hasattr(model, "will_sync_module_buffers") and self._distributed:
            inner.register_forward_pre_hook(_Hook(inner, self._after_buffers))
        self._wrap_step()
        # Children of multiprocessing run no atexit; this runs in them and at exit.
        multiprocessing.util.Finalize(None, self._at_exit, exitpriority=100)
        atexit.register(self._at_exit)

    def close(self):
        """Says that the run came to its end; nothing is recorded after it."""
        self._end(None)

    def _at_exit(self):
        self._end(_exception_under_way())

    def _end(self, error):
        if not self._open:
            return
        self._open = False
        if error is None:
            self._write_hashes({"end": True}, self._state(gradients=False), "end")
            for kind in (_PRIMARY_DONE, _FINISHED):
                self._records.append(kind, self._phase, self._step - 1)
        else:
            self._records.append(_ERROR, self._phase, self._step)
        self._hashes.close()

    def __deepcopy__(self, memo):
        return self

    def _register_comm_hook(self, model):
        try:
            model.register_comm_hook(self, Recorder._reduce)
        except RuntimeError as error:
            raise RuntimeError(
                "lockstep_record: the model has a comm hook already, and DistributedDataParallel takes one: "
                "do not register it, and give it to record(..., comm_hook=(state, hook))") from error

    def _forget_earlier(self):
        """Tensors of an earlier recording in this folder are not this one's."""
        for name in os.listdir(self._folder) if self._rank == 0 else ():
            if name == "rank-0.end.pt" or name.startswith("rank-0.step-") and name.endswith(".pt"):
                os.remove(os.path.join(self._folder, name))

    def _describe(self, model):
        text = json.dumps({
            "format": "lockstep_recording", "version": 1, "world_size": self._world,
            "name": type(model).__name__, "torch": torch.__version__,
            "hash_every": self._hash_every, "hash": _HASH, "tensors": self._keep_tensors,
            "optimizer": type(self._optimizer).__name__,
            "parameters": [name for name, _ in self._parameters],
            "buffers": [name for name, _ in self._inner.named_buffers()]}, indent=2)
        path = f"{self._folder}/recording.json"
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(path + ".new", path)

    def _wrap_step(self):
        """A method of the optimizer, as schedulers and GradScaler expect it to be."""
        step = self._optimizer.step
        original = getattr(step, "__func__", None)  # none: a scheduler has wrapped it already

        @functools.wraps(original or step)
        def recorded(optimizer, *args, **kwargs):
            if optimizer is not self._optimizer:  # a copy of it
                return (original.__get__(optimizer) if original else step)(*args, **kwargs)
            if not self._open:
                return step(*args, **kwargs)
            self._begin_step()  # with a closure, forward comes within
            self._enter(_OPTIMIZER, self._backward_end)  # clipping and the like included
            result = step(*args, **kwargs)
            self._end_step()
            return result
        self._optimizer.step = types.MethodType(recorded, self._optimizer)

    def _begin_step(self):
        if self._since is not None:  # what the loop did until now is part of the step
            self._begin(_LOAD, self._since)
            self._since = None

    def _moment(self):
        """Now, and how long this rank's main thread has been ready and without a core, both in ns."""
        try:
            return time.monotonic_ns(), int(os.pread(self._schedstat, 96, 0).split()[1])
        except (OSError, IndexError, ValueError):  # a kernel that does not tell
            return time.monotonic_ns(), 0

    def _enter(self, phase, at=None):
        if self._open and self._phase != phase:
            self._phase = phase
            self._begin(phase, at or self._moment())

    def _begin(self, phase, at):
        self._records.append(_PHASE_BEGIN, phase, self._step, value=at[1], at_ns=at[0])

    def _is_training(self):
        return self._open and torch.is_grad_enabled() and self._model.training

    def _before_forward(self, inputs):
        if self._is_training():
            self._begin_step()
            self._phase = 0  # each micro-batch begins one of its own
            self._enter(_FORWARD)
        self._begin_buffers()

    def _begin_buffers(self):
        """DDP broadcasts rank 0's buffers before the module's own forward, and waits for them."""
        module = self._model
        if not self._open or not getattr(module, "will_sync_module_buffers", bool)():
            return
        size = sum(buffer.numel() * buffer.element_size() for buffer in module.modules_buffers)
        self._buffers_sequence, self._sequence = self._sequence, self._sequence + 1
        self._records.append(_ARRIVAL, self._phase, self._step, -1,
                             _BROADCAST << 56 | 255 << 48 | size, self._buffers_sequence)

    def _after_buffers(self, inputs):
        if self._open and self._buffers_sequence is not None:
            self._records.append(_END, self._phase, self._step, -1, 0, self._buffers_sequence)
            self._buffers_sequence = None

    def _begin_backward(self):
        self._enter(_BACKWARD)
        # DDP's own end of backward is queued in between: ours comes after it.
        engine = torch.autograd.Variable._execution_engine
        engine.queue_callback(lambda: engine.queue_callback(self._end_backward))

    def _end_backward(self):
        """Until the next forward the loop loads, unless an update comes first."""
        self._backward_end = self._moment()
        self._enter(_LOAD, self._backward_end)

    def _after_forward(self, inputs, output):
        """Backward begins where the gradient of an output arrives: the loss belongs to forward."""
        if not self._is_training():
            return
        stack = [output]
        while stack:
            value = stack.pop()
            if isinstance(value, torch.Tensor):
                if value.requires_grad:
                    value.register_hook(lambda gradient: self._begin_backward())
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
            value = done.value()  # raises where the collective failed: it has no end then
            if self._open:
                self._records.append(_END, self._phase, step, index, 0, sequence)
            return value
        return future.then(ended)

    def _end_step(self):
        self._records.append(_STEP_END, self._phase, self._step, value=self._moment()[1])
        if self._step % self._hash_every == 0:
            self._hash()
        self._step += 1
        self._phase, self._backward_end = 0, None
        self._since = self._moment()

    def _state(self, gradients=True):
        """What is hashed: tensors by name, of each kind."""
        state = {"gradient": {name: p.grad for name, p in self._parameters if p.grad is not None},
                 "buffer": dict(self._inner.named_buffers()), "parameter": dict(self._parameters),
                 "optimizer_state": {}}
        if not gradients:  # what is left of them at the end is the loop's own business
            del state["gradient"]
        strangers = 0
        for parameter, values in self._optimizer.state.items():
            name = self._names.get(id(parameter))
            if name is None:
                name, strangers = f"?{strangers}", strangers + 1
            state["optimizer_state"].update(_tensors_within(name, values))
        return state

    def _write_hashes(self, line, state, name):
        hashes = {kind: {tensor: _hash_of(value) for tensor, value in tensors.items()}
                  for kind, tensors in state.items()}
        if self._keep_tensors and self._rank == 0:
            path = f"{self._folder}/rank-0.{name}.pt"
            torch.save({kind: {tensor: value.detach().cpu() for tensor, value in tensors.items()}
                        for kind, tensors in state.items()}, path + ".new")
            os.replace(path + ".new", path)
        step = self._step - 1 if line else self._step
        self._hashes.write(json.dumps({"step": step, **line, **hashes}) + "\n")
        self._hashes.flush()
        return hashes

    def _hash(self):
        hashes = self._write_hashes({}, self._state(), f"step-{self._step}")
        for kind, word in enumerate(_KINDS):
            digest = hashlib.blake2b(self._chains[word] + json.dumps(hashes[word]).encode(),
                                     digest_size=8)
            self._chains[word] = digest.digest()
            self._records.append(_STATE_HASH, self._phase, self._step, kind,
                                 int.from_bytes(self._chains[word], "little"))


def record(ddp_model, optimizer, folder, hash_every=10, capacity=1 << 18, comm_hook=None,
           keep_tensors=False):
    """Records steps from now on into `folder` (made where there is none; the same one on all ranks).
    hash_every: gradients, parameters, buffers and optimizer state are hashed in every so many steps,
    and all but gradients at the end. capacity: newest events that a rank keeps, of 32 bytes each.
    comm_hook: (state, hook), in place of model.register_comm_hook(). keep_tensors: rank 0 writes what
    it hashes as well, so that numbers may be compared within a tolerance: with Adam four times the
    bytes of the model, in every hashed step. Call it on every rank, before the first forward."""
    if hash_every < 1:
        raise ValueError("hash_every is a number of steps, at least 1")
    return Recorder(ddp_model, optimizer, folder, hash_every, capacity, comm_hook, keep_tensors)
