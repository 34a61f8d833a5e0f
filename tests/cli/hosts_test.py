"""`lockstep verify --hosts`: over a given command, over ssh, and across a network of namespaces."""
import getpass
import json
import os
import shutil
import signal
import subprocess
import unittest

from harness import PROGRAM, TOY, QuietTime, alive, descendants, rank_of, read_json
from launchers import PATH, LauncherTest, free_port, wait_until


class Hosts(LauncherTest):
    def setUp(self):
        super().setUp()
        self.path = self.tmp / "result.json"

    def verify(self, hosts, shell, *args, per_host=2, **env):
        return self.command(*self.line(hosts, shell, *args, per_host=per_host), **env)

    def line(self, hosts, shell, *args, per_host=2):
        return [PROGRAM, "verify", TOY, "--hosts", hosts, "--ranks-per-host", per_host,
                "--remote-shell", shell, "--master-port", free_port(), *args]

    def script(self, text):
        shell = self.tmp / "shell"
        shell.write_text("#!/bin/sh\n" + text)
        shell.chmod(0o700)
        return shell


class GivenCommand(Hosts):
    def test_two_hosts(self):
        code, text = self.verify("127.0.0.1,localhost", self.script('exec sh -c "$2"\n'), "--json",
                                 self.path)
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 4)

    def test_the_hosts_have_a_key_that_no_command_line_shows(self):
        shell = self.script(f'echo "$2" >>{self.tmp}/lines\nexec sh -c "$2"\n')
        code, text = self.verify("127.0.0.1,localhost", shell, per_host=1)
        self.assertEqual(code, 0, text)
        self.assertNotIn("the job has no key", text)
        lines = (self.tmp / "lines").read_text()
        self.assertEqual(lines.count("'--job-key-file' '-'"), 2, lines)
        self.assertNotRegex(lines, "[0-9a-f]{64}")

    def test_a_shell_that_does_not_pass_on_its_input(self):
        code, text = self.verify("127.0.0.1,localhost",
                                 self.script('exec sh -c "$2" </dev/null\n'))
        self.assertEqual(code, 2, text)
        self.assertIn("there is no key on standard input", text)

    def test_a_host_that_cannot_be_reached(self):
        code, text = self.verify("nowhere", self.script("exit 255\n"))
        self.assertEqual(code, 3, text)
        self.assertIn("nowhere could not be reached", text)

    def test_the_other_hosts_do_not_wait_for_one_that_cannot_be_reached(self):
        shell = self.script('[ "$1" != nowhere ] || { sleep 1; exit 255; }\nexec sh -c "$2"\n')
        clock = QuietTime()
        code, text = self.verify("127.0.0.1,nowhere", shell)
        self.assertLess(clock.passed(), 30)
        self.assertEqual(code, 3, text)
        self.assertIn("nowhere could not be reached", text)
        self.assertIn("interrupted by signal 15", text)

    def test_no_host_is_an_option_of_the_shell(self):
        for hosts in ("-oProxyCommand=x", "a b", ","):
            code, text = self.verify(hosts, self.script("exit 0\n"))
            self.assertEqual(code, 2, text)


SSHD = """
ListenAddress 127.0.0.1:{port}
HostKey {tmp}/host_key
AuthorizedKeysFile {tmp}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel VERBOSE
"""
SSH = """
HostName 127.0.0.1
Port {port}
User {user}
IdentityFile {tmp}/{key}
IdentitiesOnly yes
HostKeyAlias test
UserKnownHostsFile {tmp}/known_hosts
GlobalKnownHostsFile none
StrictHostKeyChecking yes
BatchMode yes
"""


class Ssh(Hosts):
    """A server on loopback with keys of its own; two names of this host are two hosts."""

    def setUp(self):
        super().setUp()
        for program, package in (("sshd", "openssh-server"), ("ssh", "openssh-client")):
            self.need(program, package)
        for key in ("host_key", "user_key", "strangers_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.tmp / key],
                           check=True)
        (self.tmp / "known_hosts").write_text("test " + (self.tmp / "host_key.pub").read_text())
        if os.geteuid() == 0:  # its compiled-in folder, which its service makes
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        self.port = free_port()
        (self.tmp / "sshd_config").write_text(SSHD.format(tmp=self.tmp, port=self.port))
        with open(self.tmp / "sshd.log", "wb") as log:
            self.server = subprocess.Popen(
                [shutil.which("sshd", path=PATH), "-D", "-e", "-f", self.tmp / "sshd_config"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.terminate)
        log = self.tmp / "sshd.log"
        self.assertTrue(wait_until(lambda: "Server listening" in log.read_text(), 20),
                        log.read_text())

    def ssh(self, key="user_key"):
        config = self.tmp / f"config-{key}"
        config.write_text(SSH.format(tmp=self.tmp, port=self.port, user=getpass.getuser(), key=key))
        return f"ssh -F {config}"

    def test_two_hosts(self):
        code, text = self.verify("127.0.0.1,localhost", self.ssh(), "--json", self.path, "--out",
                                 self.tmp / "out")
        self.assertEqual(code, 0, text + (self.tmp / "sshd.log").read_text())
        self.expect_pass(self.path, 4)

    def test_a_key_that_is_not_known(self):
        code, text = self.verify("127.0.0.1", self.ssh("strangers_key"))
        self.assertEqual(code, 3, text)
        self.assertIn("Permission denied", text)
        self.assertIn("127.0.0.1 could not be reached", text)

    def test_an_interrupted_run_leaves_nothing_behind(self):
        run = self.popen(*self.line("127.0.0.1,localhost", self.ssh(), "--set", "/steps=200000",
                                    "--out", self.tmp / "out"))

        def ranks():
            return [pid for pid in descendants(self.server.pid) if rank_of(pid) is not None]
        self.assertTrue(wait_until(lambda: len(ranks()) == 4, 60))
        started = descendants(self.server.pid)
        run.send_signal(signal.SIGTERM)
        (code,), (text,) = self.ends([run])
        self.assertEqual(code, 128 + signal.SIGTERM, text)
        self.assertTrue(wait_until(lambda: not [pid for pid in started if alive(pid)], 20),
                        [pid for pid in started if alive(pid)])


class Network(Hosts):
    """Four hosts as network namespaces, each with an address in two networks: 10.213.7.N by its
    interface ls0 and 10.213.8.N by ls1. A fifth holds the two switches."""

    @classmethod
    def ip(cls, *words):
        done = subprocess.run(["ip", *words], capture_output=True, text=True,
                              env={**os.environ, "PATH": PATH})
        if done.returncode:
            raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    @classmethod
    def name(cls, number):
        return f"lockstep-{os.getpid()}-{number}"

    @classmethod
    def make(cls):
        switch = cls.name(0)
        for number in range(5):
            cls.ip("netns", "add", cls.name(number))
            cls.addClassCleanup(cls.ip, "netns", "del", cls.name(number))
        for network in range(2):
            cls.ip("-n", switch, "link", "add", f"switch{network}", "type", "bridge")
            cls.ip("-n", switch, "link", "set", f"switch{network}", "up")
        for number in range(1, 5):
            host = cls.name(number)
            cls.ip("-n", host, "link", "set", "lo", "up")
            for network in range(2):
                own, port = f"ls{network}", f"port{number}{network}"
                cls.ip("link", "add", own, "netns", host, "type", "veth", "peer", "name", port,
                       "netns", switch)
                cls.ip("-n", switch, "link", "set", port, "master", f"switch{network}", "up")
                cls.ip("-n", host, "addr", "add", f"10.213.{7 + network}.{number}/24", "dev", own)
                cls.ip("-n", host, "link", "set", own, "up")

    @classmethod
    def setUpClass(cls):
        cls.problem = None
        try:
            if not shutil.which("ip", path=PATH):
                cls.problem = "no ip (Debian: iproute2)"
            elif os.geteuid() != 0:
                cls.problem = "network namespaces need root"
            else:
                cls.make()
        except RuntimeError as error:
            cls.problem = f"no network namespaces here: {error}"

    def setUp(self):
        super().setUp()
        if self.problem:
            self.lacking(self.problem)

    def sent(self, interface):
        """Bytes that each host has sent through it so far."""
        links = [json.loads(self.ip("-n", self.name(number), "-s", "-j", "link", "show", "dev",
                                    interface)) for number in range(1, 5)]
        return [link[0]["stats64"]["tx"]["bytes"] for link in links]

    def verify_on(self, hosts, *args, **env):
        shell = self.script(f'exec ip netns exec lockstep-{os.getpid()}-${{1##*.}} sh -c "$2"\n')
        names = ",".join(f"10.213.7.{number}" for number in hosts)
        before = [self.sent(interface) for interface in ("ls0", "ls1")]
        code, text = self.verify(names, shell, "--set", '/lanes=["replica", "replay"]', "--json",
                                 self.path, *args, per_host=1, PATH=PATH, **env)
        after = [self.sent(interface) for interface in ("ls0", "ls1")]
        sent = [[b - a for a, b in zip(*pair)] for pair in zip(before, after)]
        return code, text, sent

    def test_gloo_goes_the_way_that_leads_to_rank_0(self):
        code, text, (first, second) = self.verify_on((1, 2, 3, 4))
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 4)
        self.assertGreater(min(first), 10_000)
        self.assertLess(max(second), 10_000)

    def limit(self, number, interface, rate):
        """A token bucket on what this host sends."""
        if not shutil.which("tc", path=PATH):
            self.lacking("no tc (Debian: iproute2)")
        tc = ("netns", "exec", self.name(number), "tc", "qdisc")
        self.ip(*tc, "add", "dev", interface, "root", "tbf", "rate", rate, "burst", "16kb",
                "latency", "2s")
        self.addCleanup(self.ip, *tc, "del", "dev", interface, "root")

    def test_a_slow_link_costs_time_and_no_bit(self):
        """About 0.4 MB from each host in 10 steps: at 0.25 MB/s 1.6 s more."""
        larger = ("--set", '/model={"kind": "mlp", "in_features": 10, "hidden": [640], '
                  '"out_features": 5}')
        code, text, _ = self.verify_on((1, 2), *larger)
        self.assertEqual(code, 0, text)
        fast = read_json(self.path)["runs"][0]
        self.limit(2, "ls0", "2mbit")
        code, text, _ = self.verify_on((1, 2), *larger)
        self.assertEqual(code, 0, text)
        slow = read_json(self.path)["runs"][0]
        self.assertEqual(slow["final_hash"], fast["final_hash"])
        self.assertGreater(slow["duration_ms"], fast["duration_ms"] + 800)

    def test_an_interface_is_chosen(self):
        code, text, (_, second) = self.verify_on((1, 2, 3, 4), "--interface", "ls1")
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 4)
        self.assertGreater(min(second), 10_000)

    def test_the_environment_chooses_one(self):
        code, text, (_, second) = self.verify_on((1, 3), GLOO_SOCKET_IFNAME="ls1")
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 2)
        self.assertGreater(min(second[0], second[2]), 10_000)
        environment = read_json(self.path)["machine"]["environment"]
        self.assertEqual(environment["GLOO_SOCKET_IFNAME"], "ls1")

    def test_loopback_leads_to_no_other_host(self):
        code, text, _ = self.verify_on((1, 2), "--interface", "lo")
        self.assertEqual(code, 2, text)
        self.assertIn("has address 127.0.0.1, at which other hosts cannot reach rank 0", text)

    def test_a_host_whose_own_name_is_loopback(self):
        """As Debian's installer leaves it: 127.0.1.1 in /etc/hosts."""
        self.need("mount", "mount")
        for number in (1, 2):
            (self.tmp / f"hosts-{number}").write_text(
                "127.0.1.1 first\n" if number == 1 else "10.213.7.1 first\n")
        shell = self.script(f"""case $1 in first) number=1;; *) number=2;; esac
exec ip netns exec lockstep-{os.getpid()}-$number sh -c \
  'mount --bind {self.tmp}/hosts-'$number' /etc/hosts && exec sh -c "$0"' "$2"
""")
        code, text = self.verify("first,second", shell, "--set", '/lanes=["replica", "replay"]',
                                 "--json", self.path, PATH=PATH)
        self.assertEqual(code, 0, text)
        self.expect_pass(self.path, 4)

    def test_an_interface_that_is_not_there(self):
        code, text, _ = self.verify_on((1, 2), "--interface", "ls7")
        self.assertEqual(code, 2, text)
        self.assertIn("--interface ls7: no such interface with an address", text)
        self.assertIn("lo, ls0, ls1", text)


if __name__ == "__main__":
    unittest.main()
