"""The gallery's long forms, real data folders, and the published losses."""
import json
import unittest

from harness import ROOT, ProgramTest

SAMPLER = "scenarios/gallery/mnist_distributed_sampler.json"
CIFAR = "scenarios/gallery/cifar_cnn.json"
PUBLISHED = "scenarios/gallery/cifar_cnn_published.json"


class Gallery(ProgramTest):
    def plans(self, *args):
        result = self.run_program("scenario", "explain", *args)
        self.assertEqual(result.code, 0, result.text)
        plans = json.loads(result.out)
        return plans if isinstance(plans, list) else [plans]

    def test_the_long_form_is_the_published_one(self):
        short, full = self.plans(SAMPLER), self.plans(SAMPLER, "--full")
        self.assertEqual([plan["scenario"]["steps"] for plan in short], [2, 2])
        self.assertEqual([plan["scenario"]["steps"] for plan in full], [469])
        cifar = self.plans(CIFAR, "--full")
        self.assertEqual([plan["scenario"]["steps"] for plan in cifar], [6250])
        sets = self.plans(SAMPLER, "--full", "--set", "/epochs=2")
        self.assertEqual(sets[0]["scenario"]["steps"], 938)

    def test_every_long_form_is_good(self):
        result = self.run_program("scenario", "check", "scenarios", "--full")
        self.assertEqual(result.code, 0, result.text)

    def test_a_data_folder_replaces_made_up_images(self):
        folder = self.tmp / "cifar"
        made = self.run_program("data", "cifar10", folder, "--samples", 60, "--seed", 9)
        self.assertEqual(made.code, 0, made.text)
        pins = ("--set", "/reducer/kind=c10d", "--set", "/reducer/bucket_cap_mb=25")
        result = self.run_program("verify", CIFAR, *pins, "--data", folder)
        self.assertEqual(result.code, 0, result.text)
        self.assertIn("published: one device", result.out)
        row = next(line.split() for line in result.out.splitlines()
                   if line.split()[:2] == ["1", "1"])
        self.assertEqual(row[-2:], ["2.320", "2.284"])
        without = self.run_program("verify", CIFAR, *pins)
        self.assertNotIn("published:", without.out)

    def test_a_folder_without_files_that_are_read_is_bad_input(self):
        for scenario in (CIFAR, "scenarios/equivalence/toy_model.json"):
            result = self.run_program("verify", scenario, "--data", self.tmp)
            self.assertEqual(result.code, 2, result.text)
            self.assertIn("holds no files that a selected scenario reads", result.text)

    def test_again_names_the_form_and_the_folder(self):
        folder = self.tmp / "mnist"
        self.run_program("data", "mnist", folder, "--samples", 240)
        sets = ("--set", "/reducer/kind=bucketed", "--set", '/expect={"verdict":"fail"}', "--set",
                "/data/samples=40")
        document = self.verify_json(SAMPLER, "--full", "--data", folder, *sets, code=1)
        again = document["runs"][0]["again"]
        self.assertIn(f"--full --data {folder}", again)

    def test_what_rank_0_prints_is_not_the_batchs_loss(self):
        document = self.verify_json(PUBLISHED, "--set", "/loss/report_of=rank_0", "--set", "/mutants=[]")
        run = document["runs"][0]
        self.assertEqual(run["checks"]["losses"], "fail")
        self.assertEqual({lane["verdict"] for lane in run["lanes"].values()}, {"pass"})
        self.assertEqual([row["step"] for row in run["losses"]], [1, 2, 3, 4, 5, 6])
        self.assertEqual([row["epoch"] for row in run["losses"]], [1, 1, 1, 2, 2, 2])
        self.assertTrue(all(1 < row["all_ranks"] < 4 for row in run["losses"]), run["losses"])

    def test_unreadable_published_losses_are_bad_input(self):
        bad = self.tmp / "losses.json"
        bad.write_text("{}")
        result = self.run_program("verify", PUBLISHED, "--set", f"/loss/published={bad}")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("losses.json", result.text)
        self.assertTrue((ROOT / "golden/data/cifar10_losses.json").is_file())


if __name__ == "__main__":
    unittest.main()
