"""What tests of other launchers share: workers started by hand, tools that a machine may lack."""
import os
import pathlib
import random
import shutil
import socket
import subprocess
import time

from harness import PROGRAM, ROOT, ProgramTest, read_json

PYTHON = "/usr/bin/python3"
NAMES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
         "GLOO_SOCKET_IFNAME", "LOCKSTEP_JOB_KEY", "LOCKSTEP_JOB_KEY_FILE")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # where daemons are, also for users


def free_port():
    """One that the kernel gives to nobody who asks for any: other programs do so until this one is taken."""
    while True:
        port = random.randrange(15000, 29000)
        with socket.socket() as taken:
            try:
                taken.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def wait_until(true, seconds):
    """Whether `true()` came true in time."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class LauncherTest(ProgramTest):
    def setUp(self):
        super().setUp()
        self.env["TMPDIR"] = str(self.tmp)
        for name in NAMES:
            self.env.pop(name, None)

    def lacking(self, reason):
        """Skips, but where everything is installed."""
        if os.environ.get("CI") == "true":
            self.fail(f"not in CI: {reason}")
        self.skipTest(reason)

    def need(self, program, package):
        if not shutil.which(program, path=PATH):
            self.lacking(f"no {program} (Debian: {package})")

    def torchrun(self, log):
        """The command, but for its options. Redirects as a map: with Python 3.11 torchrun of
        PyTorch 1.13 cannot iterate over a flag of 0."""
        probe = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if not pathlib.Path(PYTHON).exists() or subprocess.run([PYTHON, "-c", probe]).returncode:
            self.lacking("no torchrun (Debian: python3-torch)")
        return [PYTHON, "-B", ROOT / "tests/cli/torchrun.py", "--redirects", "0:1", "--tee", "0:1",
                "--log_dir", self.tmp / log, "--monitor_interval", "0.2"]

    def popen(self, *command, **env):
        process = subprocess.Popen([*map(str, command)], cwd=ROOT, env={**self.env, **env},
                                   text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(lambda: process.poll() is None and process.kill())
        return process

    def start(self, *args, **env):
        return self.popen(PROGRAM, "worker", *args, **env)

    def ends(self, processes, timeout=120):
        texts = [process.communicate(timeout=timeout)[0] for process in processes]
        return [process.returncode for process in processes], texts

    def command(self, *command, timeout=150, **env):
        (code,), (text,) = self.ends([self.popen(*command, **env)], timeout)
        return code, text

    def expect_pass(self, path, ranks):
        run = read_json(path)["runs"][0]
        self.assertEqual((run["verdict"], run["world_size"]), ("pass", ranks), run)
        self.assertEqual({lane["control"] for lane in run["lanes"].values()}, {"detected"})
        return run
