"""How bench/compare measures: each time a short run of its own, of fresh processes."""
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What the reducer is, and what carries its collectives. Without any there is the same step.
VARIANTS = {
    "c10d": ("c10d", "c10d"),
    "bucketed_gloo": ("bucketed", "gloo"),
    "bucketed_shm": ("bucketed", "shm"),
    "none": ("none", "gloo"),
}
PEER = "python_ddp"
PATIENCE_S = 300


class Failed(Exception):
    """A run broke down: what it said."""


def run(command, **options):
    """Standard output of a program that has to end well, in a process group that Ctrl-C spares."""
    words = list(map(str, command))
    try:
        done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S,
                              start_new_session=True, **options)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(words)}: no end within {PATIENCE_S} s") from error
    if done.returncode:
        raise Failed(f"{' '.join(words)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Cell:
    """One model, world size and cap."""

    def __init__(self, model, world_size, cap_mb):
        self.model, self.world_size, self.cap_mb = model, world_size, cap_mb

    def text(self):
        return f"{self.model} W={self.world_size} cap={self.cap_mb:g}"

    def command(self, program, verb, variant, sets):
        reducer, communicator = VARIANTS[variant]
        # One of --set replaces the other only if it comes later.
        own = [f"/world_size={self.world_size}", f"/reducer/kind={reducer}",
               f"/communicator/kind={communicator}"]
        if verb != ["sweep"]:  # which has --caps
            own.append(f"/reducer/bucket_cap_mb={self.cap_mb:g}")
        words = [program, *verb, f"bench/scenarios/{self.model}.json"]
        return words + [word for one in [*sets, *own] for word in ("--set", one)]


class Lockstep:
    """Runs of the program itself."""

    def __init__(self, program, settings):
        self.program, self.settings = program, settings
        self.machine = self.libraries = None
        self.spins = []

    def step_ms(self, cell, variant):
        with tempfile.TemporaryDirectory(prefix="lockstep-compare-") as folder:
            path = pathlib.Path(folder) / "sweep.json"
            settings = self.settings
            run(cell.command(self.program, ["sweep"], variant, settings["sets"]) +
                ["--caps", f"{cell.cap_mb:g}", "--steps", settings["steps"], "--warmup",
                 settings["warmup"], "--rounds", 1, "--allow-busy", "--quiet", "--json", path],
                env={**os.environ, "XDG_STATE_HOME": folder})
            document = json.loads(path.read_text())
        self.machine, self.libraries = document["machine"], document["libraries"]
        measured = document["sweep"]["combinations"][0]["runs"][0]
        self.spins.append(max(measured["spin_before_ms"], measured["spin_after_ms"]))
        return measured["step_ms"]

    def scenario(self, cell):
        """With every choice made, as the peer needs it."""
        return json.loads(run(cell.command(self.program, ["scenario", "explain"], "c10d",
                                           self.settings["sets"])))["scenario"]


class Peer:
    """PyTorch's DistributedDataParallel: one process that has torch loaded, asked again and again."""

    def __init__(self, python):
        self.process = subprocess.Popen(
            [python, "-B", str(ROOT / "bench/peers/ddp_step_time.py")], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.torch = self.answer().get("torch")

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"error": "the peer has ended"}

    def step_ms(self, scenario, settings):
        request = {"scenario": scenario, "steps": settings["steps"], "warmup": settings["warmup"]}
        # Twice: its ranks have hung, once in some thousand runs, with nothing of ours in them.
        for _ in range(2):
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answer = self.answer()
            if "error" not in answer:
                return answer["step_ms"]
        raise Failed(f"{PEER}: {answer['error']}")

    def close(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)


class AllReduce:
    """One all-reduce alone, ours and Open MPI's."""

    def __init__(self, folder):
        self.ours, self.mpi = folder / "all_reduce", folder / "mpi_all_reduce"

    def missing(self):
        return [path.name for path in (self.ours, self.mpi) if not path.exists()]

    def times(self, world_size, kib, rounds):
        """{"gloo": ms, "shm": ms, "shm_copied": ms, "copy": ms, "open_mpi": ms} of one turn each."""
        lines = run([self.ours, world_size, kib, rounds])
        if self.mpi.exists():
            lines += run(["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
                          "-n", world_size, self.mpi, kib, rounds])
        words = dict(word.split("=") for word in lines.split() if "=" in word)
        return {name[:-3]: float(value) for name, value in words.items() if name.endswith("_ms")}
