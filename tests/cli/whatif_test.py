"""Steps without a straggler: predicted from a run that has one, and run without it for real."""
import json
import unittest

from harness import ROOT, TOY, ProgramTest, needs_quiet_machine, read_json

SLOW = "scenarios/stragglers/named_compute.json"
# Whether the straggler is named on a busy machine is the scenario's own test.
CASE = ("--set", "/world_size=3", "--set", "/reducer/kind=bucketed", "--set", "/steps=25",
        "--set", "/compute/forward_ms=40", "--set", "/compute/backward_ms=80",
        "--set", '/expect={"verdict": "pass"}')
TRACE = "golden/data/stragglers/timeline-ST.json.gz"


class WhatIf(ProgramTest):
    def kept(self, name, *args):
        out = self.tmp / name
        result = self.run_program("verify", *args, "--keep", "--out", out)
        self.assertEqual(result.code, 0, result.text)
        return out

    def forecast(self, folder, *args):
        path = self.tmp / "whatif.json"
        result = self.run_program("whatif", folder, "--json", path, *args)
        self.assertEqual(result.code, 0, result.text)
        return result, read_json(path)["runs"][0]["forecast"]

    @needs_quiet_machine
    def test_the_prediction_is_what_the_run_without_the_fault_takes(self):
        late = self.kept("late", SLOW, *CASE)
        result, forecast = self.forecast(late)
        fixed = next(p for p in forecast["predictions"] if p["ranks"] == [1])
        self.assertEqual(fixed["parts"][0]["phase"], "backward", result.text)
        _, clean = self.forecast(self.kept("clean", SLOW, *CASE, "--set", "/faults=[]"))
        before, real = forecast["measured_ms"], clean["measured_ms"]
        # On a busy machine medians are of what it did, and least steps of what the scenario says.
        busy = max(before["median"] / before["least"], real["median"] / real["least"]) > 1.04
        if not busy:
            self.assertIn("without the lateness of rank 1 a step would take", result.out)
        number = "least" if busy else "median"
        predicted, real, before = (of[number] for of in (fixed["step_ms"], real, before))
        said = (f"{number} step: predicted {predicted:.2f} ms, without the fault {real:.2f}, "
                f"with it {before:.2f}")
        print(said)
        self.assertLess(abs(predicted - real), 0.05 * real, said)
        self.assertGreater(before, 1.2 * real, said)  # else there was nothing to predict

    def test_one_rank_or_several(self):
        out = self.kept("out", SLOW, *CASE, "--set", "/steps=6")
        _, one = self.forecast(out, "--fix-rank", 1)
        self.assertEqual([p["ranks"] for p in one["predictions"]], [[1]])
        _, two = self.forecast(out, "--fix-rank", 2, "--fix-rank", 1)
        self.assertEqual([p["ranks"] for p in two["predictions"]], [[1, 2]])
        for ranks, why in (([3], "--fix-rank 3: "), ([0, 1, 2], "has no other rank")):
            words = [word for rank in ranks for word in ("--fix-rank", rank)]
            refused = self.run_program("whatif", out, *words)
            self.assertEqual(refused.code, 2, refused.text)
            self.assertIn(why, refused.text)

    def test_nothing_to_predict_from(self):
        out = self.kept("out", TOY, "--set", "/steps=1")
        result = self.run_program("whatif", out)
        self.assertEqual(result.code, 3, result.text)
        self.assertIn("nothing to predict from", result.out)
        nowhere = self.run_program("whatif", self.tmp / "nowhere")
        self.assertEqual(nowhere.code, 2, nowhere.text)
        self.assertIn("is no folder", nowhere.text)


class TraceOfOthers(ProgramTest):
    def test_the_published_one(self):
        path = self.tmp / "trace.json"
        result = self.run_program("analyze", TRACE, "--json", path)
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("slowdown S 1.1787", result.out.split("\n")[-2])
        document = read_json(path)
        self.assertAlmostEqual(document["pipeline"]["by_last_stage"], 1.2194, places=4)
        schema = json.loads(self.run_program("schema", "--what-if").out)
        self.assertLess(document.keys(), schema["properties"].keys())

    def test_damaged_ones_are_bad_input(self):
        whole = (ROOT / TRACE).read_bytes()
        for bytes_, why in ((whole[:9000], "the gzip file is cut off"),
                            (b"step,rank\n", ":1:1: error: this is no JSON"),
                            (b'[{"ph": "X"}]', "/0/name is missing"),
                            (b"", "the JSON document is cut off")):
            path = self.tmp / "damaged.json.gz"
            path.write_bytes(bytes_)
            result = self.run_program("analyze", path)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn(str(path), result.text)
            self.assertIn(why, result.text)
        result = self.run_program("analyze", TRACE, "--trace", self.tmp / "out.json")
        self.assertEqual(result.code, 2, result.text)


if __name__ == "__main__":
    unittest.main()
