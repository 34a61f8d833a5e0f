"""What `lockstep doctor` and `version` say of the libraries that the worker is linked with."""
import json
import os
import shutil
import subprocess
import unittest

from harness import PATIENCE_S, PROGRAM, ProgramTest

SAYS = {"torch": "2.15.0", "torch_file": "/somewhere/libtorch_cpu.so", "gloo": "0.5.0",
        "gloo_linked": "own", "blas": "mkl", "torch_cpu_capability": "AVX2",
        "blas_cpu_capability": "unknown"}


class Doctor(ProgramTest):
    def doctor(self, **says):
        """Of a lockstep whose worker is a script that says this."""
        program = self.tmp / "lockstep"
        if not program.exists():
            shutil.copy(os.path.realpath(PROGRAM), program)
        worker = self.tmp / "lockstep-worker"
        worker.write_text(f"#!/bin/sh\necho '{json.dumps({**SAYS, **says})}'\n")
        worker.chmod(0o755)
        return [subprocess.run([program, verb], text=True, capture_output=True, timeout=PATIENCE_S)
                for verb in ("doctor", "version")]

    def test_a_gloo_of_our_own_beside_the_one_inside_libtorch_is_said(self):
        doctor, version = self.doctor()
        self.assertIn("Gloo 0.5.0 (our own, beside the one inside LibTorch), mkl", doctor.stdout)
        self.assertIn("/somewhere/libtorch_cpu.so", doctor.stdout)
        self.assertIn("our own, beside the one inside LibTorch", version.stdout)

    def test_two_gloos_that_would_meet_are_a_failure(self):
        doctor, _ = self.doctor(gloo_linked="mixed")
        self.assertEqual(doctor.returncode, 1)
        self.assertIn("the Gloo inside /somewhere/libtorch_cpu.so is called", doctor.stdout)
        self.assertIn("-DLOCKSTEP_GLOO=FOLDER", doctor.stdout)

    def test_of_this_very_build(self):
        done = self.run_program("doctor")
        self.assertEqual(done.code, 0, done.text)
        self.assertRegex(done.out, r"ok +libraries +LibTorch \d")
        self.assertRegex(done.out, r"ok +LibTorch +\S*libtorch_cpu.so")


if __name__ == "__main__":
    unittest.main()
