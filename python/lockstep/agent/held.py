"""What a script asks for with async_op=True is handed over when it waits for it, and not before: a missing wait() then
shows in the numbers, whoever would have won the race. A barrier waits for all that came before it. Streams of NCCL keep the
order of calls: who waits there for a later call of a group, or makes a blocking one, has the earlier ones as well."""
import functools
import inspect
import os
import sys
import threading

from .imports import replace

OUTPUTS = {"all_reduce": "tensor", "broadcast": "tensor", "reduce": "tensor", "reduce_scatter": "output",
           "reduce_scatter_tensor": "output", "all_gather": "tensor_list", "all_gather_into_tensor": "output_tensor",
           "all_to_all_single": "output", "all_to_all": "output_tensor_list", "irecv": "tensor"}

MOST_GIVEN = 1 << 22  # elements; of more none are kept beside the copy that is summed


class Result:
    """Of one call: the copies that it writes, and the script's own tensors."""

    def __init__(self, work, group, pairs, given):
        self.work, self.group, self.pairs = work, id(group), pairs  # whose groups end when the script says so
        self.given = given or [None] * len(pairs)  # what a sum was given, where it is no large one


class Held:
    def __init__(self, recorder):
        self.recorder, self.results, self.lock = recorder, [], threading.Lock()

    def has(self, gradients):
        """Are some of these, or as much as the largest of them, asked for and not waited for?"""
        own = [gradient for gradient in gradients if gradient is not None and is_plain(gradient)]
        targets = [target for result in self.results for target, _ in result.pairs]
        places = {target.data_ptr() for target in targets}
        largest = max((gradient.numel() for gradient in own), default=0)
        return (any(gradient.data_ptr() in places for gradient in own)
                or 0 < largest <= sum(target.numel() for target in targets))

    def hand_over(self, wanted):
        with self.lock:
            taken = [result for result in self.results if wanted(result)]
            self.results = [result for result in self.results if not wanted(result)]
        for result in taken:
            for (target, copy), given in zip(result.pairs, result.given):
                self.recorder.written_in_flight |= given is not None and not given.equal(target.detach())
                target.data.copy_(copy)

    def waited(self, result):
        if self.recorder.end["on_cpu"]:
            self.complete(self.earlier(result.group, until=result))
        self.hand_over(lambda one: one is result)

    def earlier(self, group, until=None):
        """Calls of one stream, before that one."""
        with self.lock:
            found = [one for one in self.results if one.group == group]
        return found[:found.index(until)] if until in found else found

    def complete(self, results=None):
        """All, if none are named."""
        results = list(self.results) if results is None else results
        for result in results:
            result.work.wait()
        self.hand_over(lambda one: one in results)

    def keep(self, work, group, pairs, given=()):
        """What the script gets instead of `work`."""
        result = Result(work, group, pairs, given)
        with self.lock:
            self.results.append(result)
        return work_class()(self, result)

    def called(self, name, call, given):
        """One of torch.distributed's functions, with its arguments."""
        import torch.distributed as dist
        if name == "barrier":
            answer = call()
            self.complete()
            return answer
        group = given.get("group") or dist.group.WORLD
        if name == "irecv" and given.get("src") is None and given.get("group_src") is None:
            return call()  # who sent it, its own work alone can tell
        if name != "irecv" and not given.get("async_op"):
            answer = call()
            if self.recorder.end["on_cpu"]:
                self.complete(self.earlier(id(group)))
            return answer
        outputs = tensors_of(given[OUTPUTS[name]])
        if not outputs or not all(is_plain(tensor) for tensor in outputs):
            return call()
        copies = [tensor.detach().clone() for tensor in outputs]
        given_to_it = [copy.clone() if name == "all_reduce" and copy.numel() <= MOST_GIVEN else None for copy in copies]
        work = call(**{OUTPUTS[name]: copies if isinstance(given[OUTPUTS[name]], list) else copies[0]})
        return work if work is None else self.keep(work, group, list(zip(outputs, copies)), given_to_it)  # None: of no member


def tensors_of(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def is_plain(tensor):
    import torch
    return isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and tensor.device.type == "cpu"


@functools.lru_cache(maxsize=None)
def work_class():
    import torch.distributed as dist

    class HeldWork(dist.distributed_c10d.Work):
        """Of one call of the script."""

        def __init__(self, held, result):
            super().__init__()
            self.held, self.one = held, result

        def wait(self, *args, **kwargs):
            answer = self.one.work.wait(*args, **kwargs)
            self.held.waited(self.one)
            return answer

        def is_completed(self):
            complete = self.one.work.is_completed()
            if complete:
                self.held.waited(self.one)
            return complete

        def get_future(self):
            def hand_over(future):
                value = future.value()
                self.held.waited(self.one)
                return self.of_script(value)
            return self.one.work.get_future().then(hand_over)

        def result(self):
            self.wait()
            return self.of_script(self.one.work.result())

        def of_script(self, value):
            if isinstance(value, (list, tuple)):
                return [self.of_script(part) for part in value]
            own = [target for target, copy in self.one.pairs if copy.data_ptr() == value.data_ptr()]
            return own[0] if own else value

        def synchronize(self):
            self.wait()

        def is_success(self):
            return self.one.work.is_success()

        def exception(self):
            return self.one.work.exception()
    return HeldWork


def is_script():
    """Does neither torch nor the agent call?"""
    import torch
    own, frame = os.path.dirname(__file__), sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return frame is not None and not frame.f_code.co_filename.startswith(os.path.dirname(torch.__file__))


def is_coalescing():
    """Calls within are made later, with the tensors that they were given."""
    import torch.distributed as dist
    state = getattr(getattr(dist.distributed_c10d, "_world", None), "pg_coalesce_state", None)
    return bool(state)


def holding(held, name, function):
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises what a caller expects
        if held.recorder.quiet or is_coalescing() or not is_script():
            return function(*args, **kwargs)
        given.apply_defaults()
        arguments = dict(given.arguments)
        return held.called(name, lambda **others: function(**{**arguments, **others}), arguments)
    return call


def watch(recorder):
    """Around torch's own functions, within all that note what the script gives them."""
    import torch.distributed as dist
    if recorder.world < 2 or recorder.scale > 1 or not dist.is_available():
        return
    recorder.held = Held(recorder)
    for name in (*OUTPUTS, "barrier"):
        function = getattr(dist, name, None)
        if function is not None:
            replace(name, function, holding(recorder.held, name, function))
