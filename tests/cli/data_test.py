"""Data files from outside: made, read by ranks, and refused where they are damaged."""
import unittest

from harness import ProgramTest


class Data(ProgramTest):
    def make(self, kind, *args):
        folder = self.tmp / kind
        result = self.run_program("data", kind, folder, *args)
        self.assertEqual(result.code, 0, result.text)
        for path in result.out.split():
            self.assertTrue((folder / path).is_file(), path)
        return folder

    def test_files_give_what_the_made_up_set_gives(self):
        for kind, seed in (("mnist", 5), ("cifar10", 6)):
            folder = self.make(kind, "--samples", 29, "--seed", seed)
            sets = ["--set", "/epochs=1"]
            made = self.verify_json(f"scenarios/data/{kind}.json", *sets,
                                    "--set", f"/data/seed={seed}")
            read = self.verify_json(f"scenarios/data/{kind}.json", *sets,
                                    "--set", f"/data/path={folder}")
            hashes = [run["final_hash"] for result in (made, read) for run in result["runs"]]
            self.assertEqual(len(hashes), 2)
            self.assertEqual(hashes[0], hashes[1])

    def test_loader_threads_give_the_same_bits(self):
        for communicator in ("gloo", "local"):
            document = self.verify_json("scenarios/data/loader_workers.json", "--set",
                                        "/reducer/kind=c10d", "--set",
                                        f"/communicator/kind={communicator}")
            self.assertEqual([run["set"]["/data/workers"] for run in document["runs"]], [0, 1, 4])
            self.assertEqual(len({run["final_hash"] for run in document["runs"]}), 1)

    def test_damaged_files_are_bad_input(self):
        folder = self.make("cifar10", "--samples", 30)
        batch = folder / "data_batch_3.bin"
        batch.write_bytes(batch.read_bytes()[:-1])
        result = self.run_program("verify", "scenarios/data/cifar10.json",
                                  "--set", f"/data/path={folder}")
        self.assertEqual(result.code, 2, result.text)
        self.assertIn("data_batch_3.bin: has 18437 bytes; expected a multiple of 3073",
                      result.text)

    def test_nothing_is_written_over(self):
        folder = self.make("mnist", "--samples", 3)
        again = self.run_program("data", "mnist", folder)
        self.assertEqual(again.code, 2, again.text)
        self.assertIn("is there already", again.text)
        self.assertEqual(self.run_program("data", "svhn", self.tmp / "x").code, 2)


if __name__ == "__main__":
    unittest.main()
