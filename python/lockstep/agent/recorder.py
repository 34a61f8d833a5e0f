"""Where the facts are kept until they are written: one file for each rank."""
import json
import os

from .deals import Deals

MOST_SAMPLES = 65536  # of a step; beyond, the step has none
MOST_BYTES = 256 << 20  # of a rank's file; beyond, it has no end and cannot be judged


class Recorder:
    def __init__(self):
        self.folder = os.environ["LOCKSTEP_PROGRAM_DIR"]
        self.world = int(os.environ["LOCKSTEP_PROGRAM_WORLD"])
        self.scale = int(os.environ["LOCKSTEP_PROGRAM_SCALE"])
        # How many times larger loaders make their batches.
        self.larger = 1 if os.environ.get("LOCKSTEP_PROGRAM_OWN_BATCHES") else self.scale
        self.in_double = not os.environ.get("LOCKSTEP_PROGRAM_OWN_DTYPES")
        self.file, self.bytes, self.steps, self.optimizers, self.rank = None, 0, 0, 0, 0
        self.names, self.models = {}, []
        self.seen = set()  # numbers of models that were noted
        self.left = {}  # by the number of an optimizer: a hash of the parameters that it left
        self.made = []  # optimizers, as weak references
        self.depth = 0  # of modules' calls under way
        self.quiet = False  # the agent itself calls a collective
        self.drill = None  # of drill.py, where a step is recorded operator by operator
        self.held = None  # of held.py, where results of collectives wait for the script
        self.lossy = None  # of comm_hooks.py, where a hook may lose a part of a gradient
        self.hands = None  # of handed.py, where the data of ranks is kept or handed on
        self.end = {"summed": False, "batch_norms": 0, "backwards": 0, "stale_epochs": 0, "dropout": False,
                    "draws": False, "flat_shards": False, "refused": False, "padded": 0,
                    "on_cpu": False, "compile_off": False, "handed": False, "why_not_handed": "",
                    "scale_known": True, "broadcasts": 0, "constants": "", "comm_hook": "",
                    "replicas": 0, "replicas_dealt": [], "shuffles": []}
        self.deals, self.calls = Deals(self), 0  # calls: of modules that no other surrounds
        self.loads, self.position, self.batches, self.stepping = {"model": 0, "optimizer": 0}, 0, 0, False
        self.forget()

    def forget(self):
        """What belongs to one step."""
        self.targets = []  # of each mean of losses, how many it is of
        self.samples, self.ddp_forwards, self.forwards, self.unsynced = [], 0, 0, False
        self.backwards, self.clipped, self.backward_after_clip = 0, False, False
        self.carried = False  # there was a gradient before the first backward
        self.dropouts = 0  # that would have drawn, of forwards with gradients
        self.gathered = False  # results of a forward were gathered of all ranks, before backward
        self.reduced, self.reduced_late, self.elements_late = {}, set(), set()  # addresses of tensors; how many elements
        self.gathered_inside = False  # or in the forward of a Function, whose backward should add up what comes back:
        self.summed_back = self.in_backward = False  # the script called all_reduce within backward
        self.hooked = {}  # of hooked.py: by a parameter's id
        self.untouched, self.changed, self.reduces = [], set(), False  # of untouched.py: gradients; ids of parameters
        self.called = {}  # modules that no other surrounds, by id
        self.computed = {}  # and those of them whose results have gradients
        self.early = set()  # addresses of gradients that a backward found summed over ranks
        self.exchanges = 0  # collectives that the script called within forwards
        self.partly = set()  # addresses of what some of the ranks alone have summed
        self.no_sums = set()  # addresses of what was reduced by a maximum or the like

    def write(self, line):
        import torch.distributed as dist
        if self.file is None:
            ready = dist.is_available() and dist.is_initialized()
            self.rank = dist.get_rank() if ready else int(os.environ.get("RANK", 0))
            ranks = dist.get_world_size() if ready else 1
            self.file = open(f"{self.folder}/rank-{self.rank}.jsonl", "x", encoding="utf-8")
            self.pid = os.getpid()
            self.write({"kind": "head", "rank": self.rank, "world": ranks})
        text = json.dumps(line) + "\n"
        self.bytes += len(text)
        if self.bytes <= MOST_BYTES and self.pid == os.getpid():
            self.file.write(text)

    def is_forked(self):
        """Is this another process than the rank that is recorded: a worker of a loader, say?"""
        return self.file is not None and self.pid != os.getpid()

    def close(self):
        if self.is_forked():  # what is buffered is the rank's to write
            return
        if self.file is None and not self.end["backwards"]:
            return
        if self.file is None:
            self.write({"kind": "begin"})  # which rank this is
        if self.hands is not None:
            self.hands.close()
        self.write({"kind": "end", "steps": self.steps, **self.end})
        self.file.close()
