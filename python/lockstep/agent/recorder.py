"""Where the facts are kept until they are written: one file for each rank."""
import json
import os

from . import stale
from .batch_sizes import BatchSizes
from .by_hand import ByHand
from .deals import Deals
from .items import Items

MOST_BYTES = 256 << 20  # of a rank's file; beyond, it has no end and cannot be judged


def of_forwards():
    """What belongs to one step, and to its forwards."""
    return {
        "targets": [],  # of each mean of losses, how many it is of
        "samples": [], "ddp_forwards": 0, "forwards": 0, "unsynced": False,
        "dropouts": 0,  # that would have drawn, of forwards with gradients
        "gathered": False,  # results of a forward were gathered of all ranks, before backward
        "gathered_inside": False,  # or in the forward of a Function, whose backward should add up what comes back
        "called": {},  # modules that no other surrounds, by id
        "computed": {},  # and those of them whose results have gradients
        "drawn": [],  # of forwards that were handed others instead, rows as they were
        "loaded": [], "loaded_standardized": False,  # of inputs.py: what loaders gave, by rows
        "loaded_drawn": [],  # the same, all of it, where loaders drew random numbers for it
        "drew": False, "standardized": False,  # between a loader's batch and a forward; what forwards were given
        "loss_draws": "",  # of inputs.py: a hash of where random numbers stood at backwards, where any were drawn outside forwards
        "exchanges": 0,  # collectives that the script called within forwards
        "dealt_out": 0}  # and those of them that give each rank a part of its own


def of_backwards():
    """What belongs to one step, and to what follows its forwards."""
    return {
        "within_step": 0,  # collectives that the script called within an optimizer's step
        "backwards": 0, "clipped": False, "backward_after_clip": False,
        "sum_scale": 0.0,  # of losses.py, of the last backward
        "carried": False,  # there was a gradient before the first backward
        "in_backward": False, "summed_back": False,  # the script called all_reduce within backward
        "reduced": {}, "reduced_late": set(), "elements_late": set(),  # addresses of tensors; how many elements
        "hooked": {},  # of hooked.py: by a parameter's id
        "untouched": [], "changed": set(), "reduces": False,  # of untouched.py: gradients; ids of parameters
        "early": set(),  # addresses of gradients that a backward found summed over ranks
        "partly": set(),  # addresses of what some of the ranks alone have summed
        "groups": {}, "again": set(),  # by address: over which groups it was summed; of what holds sums that are added again
        "no_sums": set(),  # addresses of what was reduced by a maximum or the like
        "norms": [],  # that clip_grad_norm_ found, in its order
        "written_in_flight": False,  # the script wrote to what an asynchronous sum was still to read
        "by_grad": set(),  # ids of parameters that torch.autograd.grad() was asked for
        "written_unsynced": set(), "written_synced": set(),  # ids of parameters whose gradients a backward wrote, by no_sync()
        "written_past": set(),  # of a forward past DistributedDataParallel
        "written_late": set(),  # and that DistributedDataParallel did not sum, since no forward of its came before
        "left_by_sums": {}}  # of untouched.py: hashes of gradients, by a parameter's id


def joined(before, since):
    """Of a step that has no backward of its own, so that a clipping since then is of no earlier sum."""
    if isinstance(before, (dict, set)):
        return before | since
    if isinstance(before, list):
        return before + since
    return before or since


def open_own(folder, name, mode):
    """One of a rank's files. Who finds it there has another process's rank: that is told, not the error."""
    try:
        return open(f"{folder}/{name}", mode, encoding=None if "b" in mode else "utf-8")
    except FileExistsError:
        open(f"{folder}/same_rank", "a").close()
        raise


class Recorder:
    def __init__(self):
        self.folder = os.environ["LOCKSTEP_PROGRAM_DIR"]
        self.world = int(os.environ["LOCKSTEP_PROGRAM_WORLD"])
        self.scale = int(os.environ["LOCKSTEP_PROGRAM_SCALE"])
        # How many times larger loaders make their batches.
        self.larger = 1 if os.environ.get("LOCKSTEP_PROGRAM_OWN_BATCHES") else self.scale
        self.times = float(os.environ.get("LOCKSTEP_PROGRAM_TIMES", "1"))  # whatever backwards make is multiplied by it
        self.in_double = not os.environ.get("LOCKSTEP_PROGRAM_OWN_DTYPES")
        self.file, self.bytes, self.steps, self.optimizers, self.rank = None, 0, 0, 0, 0
        self.names, self.models = {}, []
        self.seen = set()  # numbers of models that were noted
        self.spare = {}  # of untouched.py: memory for copies of gradients, by a parameter's id
        self.left = {}  # by the number of an optimizer: a hash of the parameters that it left
        self.untrained = "", None  # hash and sketch of models that nothing trains, as of the last step
        self.made = []  # optimizers, as weak references
        self.had_gradients = set()  # parameters that an optimizer found with one, by id
        self.depth = 0  # of modules' calls under way
        self.states = None  # of random generators, when a loader gave its last batch
        self.states_before_loss = None  # and then, or when the last forward ended, or the last step
        self.within_ddp = False  # a forward of DistributedDataParallel is under way
        self.quiet = False  # the agent itself calls a collective
        self.drill = None  # of drill.py, where a step is recorded operator by operator
        self.held = None  # of held.py, where results of collectives wait for the script
        self.lossy = None  # of comm_hooks.py, where a hook may lose a part of a gradient
        self.hands = None  # of handed.py, where the data of ranks is kept or handed on
        self.end = {"summed": False, "batch_norms": 0, "backwards": 0, "stale_epochs": 0, "dropout": False,
                    "draws": False, "flat_shards": False, "refused": False, "padded": 0,
                    "on_cpu": False, "compile_off": False, "handed": False, "why_not_handed": "", "recomputed": False, "compared": False,
                    "scale_known": True, "part_of_model": [0, 1], "broadcasts": 0, "constants": "", "comm_hook": "",
                    "never_updated": [], "replicas": 0, "replicas_dealt": [], "shuffles": [], "splits": [],
                    "loss_scales": [], "items": []}
        self.sizes, self.by_hand = BatchSizes(self), ByHand(self)
        self.items = Items()  # of data sets that were trained on
        self.deals, self.calls = Deals(self), 0  # calls: of modules that no other surrounds
        self.loads, self.position, self.batches, self.stepping = {"model": 0, "optimizer": 0}, 0, 0, False
        self.shards_unsynced = False  # fully_shard was told last to sum no gradients
        self.counts_exchanges = False  # an optimizer's own step is under way, in code of the script
        self.found_again = None  # of optimizers.py: the optimizer that steps, and what to do once its gradients are final
        self.last = None  # the optimizer that stepped last, and what belonged to its step
        self.forget()

    def forget(self):
        vars(self).update({**of_forwards(), **of_backwards()})

    def step_ended(self, optimizer, params):
        """The gradients that it was made of are kept no longer."""
        own = {id(param) for param in params}
        facts = {name: vars(self)[name] for name in (*of_forwards(), *of_backwards())}
        facts["untouched"] = [one for one in self.untouched if one[0] not in own]
        self.last = optimizer, facts
        self.forget()

    def recall(self, optimizer):
        """Where several optimizers step after one forward, or after one backward, it belongs to the steps of all."""
        if self.last is None or self.last[0] == optimizer or self.samples or self.forwards:
            return
        facts = self.last[1]
        vars(self).update({name: facts[name] for name in of_forwards()})
        if self.backwards == 0:
            vars(self).update({name: joined(facts[name], vars(self)[name]) for name in of_backwards()})

    def optimized(self):
        """What optimizers update that are still there."""
        return [param for made in self.made if made() is not None for group in made().param_groups for param in group["params"]]

    def write(self, line):
        import torch.distributed as dist
        if self.file is None:
            ready = dist.is_available() and dist.is_initialized()
            self.rank = dist.get_rank() if ready else int(os.environ.get("RANK", 0))
            ranks = dist.get_world_size() if ready else 1
            self.file = open_own(self.folder, f"rank-{self.rank}.jsonl", "x")
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
        self.by_hand.settle()
        if self.file is None and not self.end["backwards"]:
            return
        if self.file is None:
            self.write({"kind": "begin"})  # which rank this is
        if self.hands is not None:
            self.hands.close()
        self.sizes.close()
        self.end["never_updated"], self.end["items"] = stale.names(self), self.items.lines()
        self.write({"kind": "end", "steps": self.steps, **self.end})
        self.file.close()
