"""Batch sizes that a script gives its loaders. Each rank leaves its own; one device finds them in the folder
LOCKSTEP_PROGRAM_RANKS, and makes its batches as large as those of all ranks together. Of a script that divides a batch by the
number of ranks that is not W times what it gives one device."""
import json
import os

MOST_LOADERS = 4096


def file_of(folder, rank):
    return f"{folder}/batches-{rank}.json"


def of_all_ranks(folder, ranks):
    """By the number of the loader; None where they are not alike."""
    found = None
    for rank in range(ranks):
        try:
            with open(file_of(folder, rank), encoding="utf-8") as file:
                own = json.load(file)
        except (OSError, ValueError):
            return []
        found = own if found is None else [one if one == other else None for one, other in zip(found, own)]
    return found


class BatchSizes:
    def __init__(self, recorder):
        self.recorder, self.asked = recorder, []
        folder = os.environ.get("LOCKSTEP_PROGRAM_RANKS")
        self.of_ranks = of_all_ranks(folder, recorder.scale) if folder and recorder.scale > 1 else []

    def larger(self, size, dataset):
        """Of the loader that is made now, of one device: what all ranks ask for."""
        number, asked = len(self.asked), [size, length(dataset)]
        if number < MOST_LOADERS:
            self.asked.append(asked)
        if number < len(self.of_ranks) and self.of_ranks[number] and self.of_ranks[number][1] == asked[1]:
            size = self.of_ranks[number][0]
        return size * self.recorder.larger

    def close(self):
        if self.recorder.scale == 1:
            with open(file_of(self.recorder.folder, self.recorder.rank), "w", encoding="utf-8") as file:
                json.dump(self.asked, file)


def length(dataset):
    try:
        return len(dataset)
    except TypeError:  # of an iterable one nobody knows
        return 0
