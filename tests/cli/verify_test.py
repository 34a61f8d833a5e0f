"""`lockstep verify` on shipped scenarios: verdicts, exit codes, the result file."""
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import unittest

from harness import PATIENCE_S, LINEAR, PROGRAM, ROOT, TOY, ProgramTest, read_json


class Verify(ProgramTest):
    def test_linear_gives_published_weights_on_all_lanes(self):
        document = self.verify_json(LINEAR)
        run = document["runs"][0]
        for lane in ("replica", "replay", "float64"):
            self.assertEqual(run["lanes"][lane]["verdict"], "pass", lane)
            self.assertEqual(run["lanes"][lane]["control"], "detected", lane)
        golden = run["golden"]
        self.assertEqual(golden["verdict"], "pass", golden)
        self.assertEqual(golden["run_equal"], 110)
        self.assertEqual(golden["one_device_equal"], 110)
        self.assertEqual([p["equal"] for p in golden["published"]], [88, 71])
        # How many differ from one device depends on the libraries; with 1.13.1 and OpenBLAS 42.
        weight = golden["differing_from_one_device"][0]
        self.assertEqual((weight["name"], weight["total"]), ("weight", 100))
        self.assertGreater(weight["differing"], 0)

    def test_stored_golden_counts_only_for_its_settings(self):
        run = self.verify_json(LINEAR, "--set", "/optimizer/lr=0.5")["runs"][0]
        self.assertEqual(run["golden"]["verdict"], "not_applicable")
        self.assertEqual(run["verdict"], "pass")

    def test_edited_golden_is_bad_input(self):
        text = (ROOT / "golden/data/linear_20x10.json").read_text()
        (self.tmp / "edited.json").write_text(text.replace("0.0944", "0.0945", 1))
        result = self.run_program("verify", LINEAR, "--set", f"/golden={self.tmp}/edited.json")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("edited.json", result.text)
        self.assertIn("checksum", result.text)

    def test_result_has_what_readers_rely_on(self):
        document = self.verify_json(LINEAR)
        for key in ("schema_version lockstep_version commit seed machine libraries verdict runs"
                    ).split():
            self.assertIn(key, document)
        self.assertNotEqual(document["commit"], "")
        self.assertIn("torch_cpu_capability", document["libraries"])
        run = document["runs"][0]
        for key in ("name set world_size reducer communicator steps verdict expected met "
                    "duration_ms lanes first_divergence failure checks golden final_hash").split():
            self.assertIn(key, run)
        self.assertRegex(run["final_hash"], "^[0-9a-f]{32}$")
        self.assertEqual(run["checks"]["collective_log"], "pass")
        self.assertEqual(run["checks"]["manifest"], "pass")

    def optimizer_bytes(self, *more):
        sets = ("/world_size=3", '/optimizer={"kind": "adam", "lr": 0.01}', *more)
        args = [word for value in sets for word in ("--set", value)]
        return self.verify_json(TOY, *args)["runs"][0]["optimizer_bytes"]

    def test_each_rank_of_a_shared_optimizer_holds_a_part(self):
        whole = self.optimizer_bytes()
        self.assertEqual(whole, [whole[0]] * 3)
        zero = self.optimizer_bytes('/optimizer_sharding={"kind": "zero"}')
        self.assertEqual(sum(zero), whole[0])
        self.assertLess(max(zero), whole[0] * 2 / 3)  # one weight has most of the elements
        sharded = self.optimizer_bytes("/reducer/kind=sharded")
        self.assertLess(max(sharded), whole[0] / 3 + 64)  # counters are one for each piece

    def reducer_data(self, *more):
        sets = ("/world_size=3", "/reducer/bucket_cap_mb=0.001", "/reducer/first_bucket_mb=0.0002",
                *more)
        args = [word for value in sets for word in ("--set", value)]
        return self.verify_json(TOY, *args)["runs"][0]["reducer_data"]

    def test_reducers_say_of_themselves_what_ddp_logs(self):
        self.assertIsNone(self.reducer_data("/reducer/kind=manual"))
        for more in ((), ("/reducer/find_unused_parameters=true",),
                     ("/model=" + '{"kind": "branches", "in_features": 10, "out_features": 5, '
                      '"unused": "always"}', "/reducer/static_graph=true")):
            ours, theirs = (self.reducer_data(f"/reducer/kind={kind}", *more)
                            for kind in ("bucketed", "c10d"))
            times = [name for name in ours if name.endswith("_ms")]
            self.assertEqual(len(times), 4)
            for name in ours:
                if name in times:
                    self.assertGreaterEqual(ours[name], 0, name)
                    self.assertLess(abs(ours[name] - theirs[name]), 1000, name)
                elif name == "unused_parameter_bytes" and "/reducer/static_graph=true" in more:
                    self.assertIn(theirs[name], (ours[name], 0))  # LibTorch 2.14 no longer logs them
                else:
                    self.assertEqual(ours[name], theirs[name], (name, more))
            self.assertEqual(sum(ours["bucket_bytes"]), ours["parameter_bytes"])
        self.assertGreater(ours["unused_parameter_bytes"], 0)
        self.assertGreater(len(ours["rebuilt_bucket_bytes"]), 1)

    def final_hash(self, *sets):
        args = [word for value in sets for word in ("--set", value)]
        return self.verify_json(LINEAR, *args)["runs"][0]["final_hash"]

    def test_final_hash_follows_what_is_trained_and_nothing_else(self):
        first = self.final_hash()
        self.assertEqual(first, self.final_hash())
        self.assertEqual(self.final_hash("/reducer/kind=c10d"), first)
        self.assertNotEqual(self.final_hash("/optimizer/lr=0.5"), first)
        self.assertNotEqual(self.final_hash("/seed=124"), first)

    def test_seed_option_is_the_seed(self):
        document = self.verify_json(LINEAR, "--seed", "7")
        self.assertEqual(document["seed"], 7)

    def test_wrong_run_expected_to_pass_fails(self):
        result = self.run_program("verify", "scenarios/negative/wrong_divisor.json", "--set",
                                  '/expect={"verdict":"pass"}')
        self.assertEqual(result.code, 1, result.text)
        self.assertIn("wrong_divisor", result.out)
        self.assertIn("again", result.out)

    def test_again_command_reproduces_the_failure(self):
        document = self.verify_json("scenarios/negative/wrong_divisor.json", "--set",
                                    '/expect={"verdict":"pass"}', code=1)
        run = document["runs"][0]
        self.assertEqual(run["verdict"], "fail")
        self.assertEqual(run["first_divergence"]["cause"], "wrong_divisor")
        self.assertEqual(run["first_divergence"]["step"], 1)

    def test_nothing_selected(self):
        result = self.run_program("verify", LINEAR, "--filter", "no_such_scenario")
        self.assertEqual(result.code, 4, result.text)

    def test_list_runs_nothing(self):
        result = self.run_program("verify", "scenarios/equivalence", "--list")
        self.assertEqual(result.code, 0, result.text)
        for name in ("linear_manual_split", "toy_model", "mlp_matrix", "mlp_product", "exact"):
            self.assertIn(name, result.out)

    def test_from_another_folder_with_a_bare_environment(self):
        elsewhere = self.tmp / "elsewhere"
        elsewhere.mkdir()
        env = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "COLUMNS": "20", "HOME": str(self.tmp)}
        result = self.run_program("verify", ROOT / LINEAR, cwd=elsewhere, env=env)
        self.assertEqual(result.code, 0, result.text)
        self.assertEqual(os.listdir(elsewhere), [])

    def test_two_at_once(self):
        runs = [subprocess.Popen([PROGRAM, "verify", LINEAR], cwd=ROOT, env=self.env,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                for _ in range(2)]
        self.assertEqual([run.wait(timeout=PATIENCE_S) for run in runs], [0, 0])

    def test_fresh_processes_give_the_same_bits(self):
        zygote = self.verify_json(TOY)["runs"][0]["final_hash"]
        fresh = self.verify_json(TOY, "--fresh-processes")["runs"][0]["final_hash"]
        self.assertEqual(zygote, fresh)

    def test_full_disk_on_standard_output_is_an_error(self):
        code = subprocess.run(["bash", "-c", f'"{PROGRAM}" verify {LINEAR} >/dev/full'], cwd=ROOT,
                              env=self.env, capture_output=True, timeout=PATIENCE_S).returncode
        self.assertTrue(0 < code < 128, code)

    def test_a_reader_that_has_read_enough_is_no_error(self):
        """As of `| head -1`, here of nothing at all: not a word, and the exit code of the answer."""
        for code, *words in ((0, "schema"), (0, "man"), (0, "scenario", "list", "scenarios"),
                             (0, "verify", LINEAR, "-q"), (1, "verify", LINEAR, "-q", "--set", '/expect={"verdict": "fail"}')):
            read, write = os.pipe()
            os.close(read)
            done = subprocess.run([PROGRAM, *words], cwd=ROOT, env=self.env, stdout=write,
                                  stderr=subprocess.PIPE, timeout=PATIENCE_S, check=False)
            os.close(write)
            self.assertEqual((done.returncode, done.stderr), (code, b""), words)

    def on_terminal(self, columns, **variables):
        """What standard error gets as a terminal of that width, while a run takes its time."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        env = {**self.env, "TERM": "xterm", **variables}
        if "COLUMNS" not in variables:
            env.pop("COLUMNS", None)
        process = subprocess.Popen([PROGRAM, "verify", LINEAR], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=theirs)
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError), open(ours, "rb", buffering=0) as terminal:
            while piece := terminal.read(4096):
                text += piece
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)
        return text.decode()

    def test_progress_is_one_line_without_escapes_that_fits(self):
        for columns, variables in ((80, {}), (20, {}), (80, {"COLUMNS": "20"}), (80, {"NO_COLOR": "1"})):
            text = self.on_terminal(columns, **variables)
            lines = text.split("\r")
            self.assertTrue(lines[1].startswith("linear_manual_split"), text)
            width = int(variables.get("COLUMNS", columns))
            self.assertEqual(max(map(len, lines)), min(width - 1, len(lines[1])), text)
            self.assertEqual(lines[2].strip(), "", text)  # taken away
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\n", text)

    def test_a_dumb_terminal_gets_no_moving_line(self):
        self.assertNotRegex(self.on_terminal(80, TERM="dumb"), r"\r[^\n]|\x1b")

    def test_results_go_to_stdout_and_progress_does_not(self):
        result = self.run_program("verify", LINEAR)
        self.assertTrue(result.out.strip().splitlines()[-1].startswith("pass"), result.out)

    def test_run_directory_holds_the_evidence_of_a_failure(self):
        out = self.tmp / "kept"
        path = self.tmp / "r.json"
        words = ["verify", "scenarios/negative/dropped_bucket.json", "--out", out, "--json", path,
                 "--set", '/expect={"verdict":"pass"}']
        result = self.run_program(*words)
        self.assertEqual(result.code, 1, result.text)
        self.assertNotIn("replaced", result.err)
        kept = [p.name for p in out.rglob("*")]
        self.assertIn("plan.json", kept)
        self.assertTrue(any(name.endswith(".records") for name in kept), kept)
        self.assertTrue(any(name.endswith(".evidence.json") for name in kept), kept)
        read_json(path)
        (out / "notes.txt").write_text("mine")
        self.assertRegex(self.run_program(*words).err, r"warning: --out \S+: \d+ runs? of an earlier invocation replaced")
        self.assertEqual((out / "notes.txt").read_text(), "mine")


class ScenarioFiles(ProgramTest):
    def test_the_example_scenario_works_as_it_stands(self):
        text = (ROOT / "docs/scenario_files.md").read_text()
        start = text.index("```jsonc") + len("```jsonc")
        path = self.tmp / "mine.json"
        path.write_text(text[start:text.index("```", start)])
        document = self.verify_json(path)
        self.assertEqual(document["verdict"], "pass")
        self.assertEqual(len(document["runs"]), 8)


class Communicators(ProgramTest):
    def test_every_pair_gives_the_same_bits_of_its_order(self):
        ring = {}
        for kind in ("gloo", "c10d", "shm", "local"):
            document = self.verify_json(TOY, "--set", f"/communicator/kind={kind}", "--set",
                                        "/world_size=3")
            ring[kind] = document["runs"][0]["final_hash"]
        self.assertEqual(len(set(ring.values())), 1, ring)

    def test_buckets_as_small_as_a_tensor_change_bits_and_no_verdict(self):
        hashes = set()
        for cap in ("25", "0.0001"):
            document = self.verify_json(
                TOY, "--set", "/world_size=3", "--set", f"/reducer/bucket_cap_mb={cap}", "--set",
                f"/reducer/first_bucket_mb={cap}", "--set", "/optimizer/lr=0.5")
            hashes.add(document["runs"][0]["final_hash"])
        self.assertEqual(len(hashes), 2)  # another layout, another order of addition

    def test_unsafe_algorithms_are_refused_with_the_reason(self):
        result = self.run_program("verify", TOY, "--set", "/communicator/algorithm=old_ring")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("replicas", result.text)


if __name__ == "__main__":
    unittest.main()
