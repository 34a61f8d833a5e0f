"""Loads of state, counted on each rank; and whether one device loads a file that the ranks' run had saved
(LOCKSTEP_PROGRAM_RANKS: that run's folder)."""
import functools
import os

SAVED, RESUMED = "saved", "resumed"  # files of a run's folder


def watch(recorder):
    import torch
    for kind, what in ((torch.nn.Module, "model"), (torch.optim.Optimizer, "optimizer")):
        kind.load_state_dict = counting(recorder, kind.load_state_dict, what)
    if recorder.scale == 1:
        torch.save = noting_saves(recorder, torch.save)
    else:
        torch.load = noting_loads(recorder, torch.load)


def counting(recorder, load, what):
    @functools.wraps(load)
    def loaded(self, *args, **kwargs):
        recorder.loads[what] += 1
        return load(self, *args, **kwargs)
    return loaded


def path_of(file):
    """Of a path or an open file; empty: of what is no file."""
    name = file if isinstance(file, (str, os.PathLike)) else getattr(file, "name", "")
    return os.path.realpath(name) if isinstance(name, (str, os.PathLike)) and name != "" else ""


def noting_saves(recorder, save):
    @functools.wraps(save)
    def saved(obj, f, *args, **kwargs):
        path = path_of(f)
        if path and not recorder.is_forked():
            with open(f"{recorder.folder}/{SAVED}", "a", encoding="utf-8", errors="surrogateescape") as file:
                file.write(path + "\n")
        return save(obj, f, *args, **kwargs)
    return saved


def noting_loads(recorder, load):
    @functools.wraps(load)
    def loaded(f, *args, **kwargs):
        if path_of(f) in saved_by_ranks():
            open(f"{recorder.folder}/{RESUMED}", "a", encoding="utf-8").close()
        return load(f, *args, **kwargs)
    return loaded


def saved_by_ranks():
    try:
        with open(f"{os.environ['LOCKSTEP_PROGRAM_RANKS']}/{SAVED}", encoding="utf-8", errors="surrogateescape") as file:
            return file.read().splitlines()
    except (KeyError, OSError):
        return []
