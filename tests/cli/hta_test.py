"""Traces as others read them: HolisticTraceAnalysis must find the overlap that we report. It is
installed from PyPI into the build tree, once; without it the test is skipped, but not in CI."""
import json
import os
import pathlib
import subprocess
import sys
import unittest

from harness import PATIENCE_S, PROGRAM, ProgramTest, read_json

VERSION = "0.5.0"
FOLDER = pathlib.Path(PROGRAM).resolve().parent.parent / "hta"
PYTHON = FOLDER / "bin/python"
ANALYZE = """
import json, sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_dir=sys.argv[1], include_last_profiler_step=True)
table = analysis.get_comm_comp_overlap(visualize=False)
print(json.dumps(dict(zip(map(int, table["rank"]), map(float, table["comp_comm_overlap_pctg"])))))
"""
# Real compute, long enough that HTA's whole microseconds do not count.
SCENARIO = {
    "name": "overlap", "what": "Buckets that go on beside backward",
    "world_size": 4, "steps": 6, "batch_size": 64,
    "model": {"kind": "mlp", "in_features": 256, "hidden": [1024, 1024, 512], "out_features": 64},
    "data": {"kind": "randn", "samples": 64, "features": 256, "targets": 64},
    "loss": {"kind": "mse"}, "optimizer": {"kind": "sgd", "lr": 0.01},
    "reducer": {"kind": "bucketed", "bucket_cap_mb": 1, "first_bucket_mb": 1},
    "lanes": ["replica"], "expect": {"verdict": "pass"},
}


def why_no_hta():
    """Installs it if it is not there; the reason why that cannot be."""
    if (FOLDER / "done").exists():
        return None
    try:
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True, capture_output=True,
                       timeout=PATIENCE_S)
        subprocess.run([PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                        f"HolisticTraceAnalysis=={VERSION}"], check=True, capture_output=True,
                       timeout=PATIENCE_S)
    except (OSError, subprocess.SubprocessError) as error:
        lines = (getattr(error, "stderr", b"") or b"").decode(errors="replace").split("\n")
        return f"HolisticTraceAnalysis cannot be installed: {error} {' '.join(lines[-3:])}"
    (FOLDER / "done").touch()
    return None


class Hta(ProgramTest):
    def overlaps(self, folder):
        done = subprocess.run([PYTHON, "-c", ANALYZE, folder], capture_output=True, text=True,
                              timeout=PATIENCE_S, cwd=self.tmp)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return {int(rank): value for rank, value in json.loads(done.stdout.split("\n")[-2]).items()}

    def test_overlap_is_ours(self):
        why = why_no_hta()
        if why:
            self.assertNotEqual(os.environ.get("CI"), "true", why)
            self.skipTest(why)
        scenario = self.tmp / "overlap.json"
        scenario.write_text(json.dumps(SCENARIO))
        result = self.run_program("verify", scenario, "--json", self.tmp / "result.json",
                                  "--metrics", "--trace", str(self.tmp / "traces") + "/", "--trace-kind", "hta")
        self.assertEqual(result.code, 0, result.text)
        ranks = read_json(self.tmp / "result.json")["runs"][0]["metrics"]["ranks"]
        self.assertEqual(len(ranks), 4)
        theirs = self.overlaps(self.tmp / "traces")
        self.assertEqual(sorted(theirs), [0, 1, 2, 3])
        for rank in ranks:
            self.assertGreater(rank["overlap"], 0)
            self.assertLess(rank["overlap"], 1)
            self.assertAlmostEqual(100 * rank["overlap"], theirs[rank["rank"]], delta=0.1)
        self.run_program("explain", self.tmp / "traces", "--json", self.tmp / "answer.json")
        for trace in read_json(self.tmp / "answer.json")["traces"]:
            self.assertAlmostEqual(trace["overlap_percent"], theirs[trace["rank"]], delta=0.1)


if __name__ == "__main__":
    unittest.main()
