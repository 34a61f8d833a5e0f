"""Runs of several nodes on loopback, with a stranger at each of their ports: at rank 0's, where the
nodes meet, and at Gloo's, where the ranks do. Ports of other programs are let alone."""
import os
import pathlib
import random
import socket
import struct
import threading
import time

from harness import PROGRAM, TOY, descendants, read_json
from launchers import free_port

KINDS = ("silent", "random", "wrong_join", "flood", "reset", "replay", "slow", "guess")
KEY = "what members know and strangers do not"
# Its ranks keep their ports open for a while.
SCENARIO = (TOY, "--set", '/lanes=["replica"]', "--set", "/steps=5", "--set",
            '/faults=[{"kind": "slow_store", "rank": 0, "duration_ms": 10}]')


def message(*fields):
    body = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    return struct.pack("<I", len(body)) + body


def member(ranks):
    return (f'{{"nonce":"","about":"lockstep","identity":"","ranks":[[{ranks}]],"host":"h",'
            '"where":"a stranger"}').encode()


class Ports:
    """At which of them these processes and their children listen now, on IPv4."""

    def __init__(self, processes):
        self.processes, self.known = processes, {}  # whether a socket is one of theirs

    def now(self):
        rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
        listening = {row[9]: int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A"}
        new = listening.keys() - self.known.keys()
        if new:
            own = self.sockets()
            self.known.update({inode: inode in own for inode in new})
        return [port for inode, port in listening.items() if self.known[inode]]

    def sockets(self):
        found = set()
        for pid in (pid for one in self.processes for pid in (one.pid, *descendants(one.pid))):
            try:
                for name in os.listdir(f"/proc/{pid}/fd"):
                    link = os.readlink(f"/proc/{pid}/fd/{name}")
                    if link.startswith("socket:["):
                        found.add(link[8:-1])
            except OSError:
                continue  # it has closed it, or is gone
        return found


class Recorder:
    """Passes on what a node and rank 0 say to each other, and keeps the node's part."""

    def __init__(self, port):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.target = port
        self.recorded = b""
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                node, _ = self.listener.accept()
            except OSError:
                return
            try:
                rank_0 = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                node.close()
                continue
            for ends in ((node, rank_0, True), (rank_0, node, False)):
                threading.Thread(target=self.pass_on, args=ends, daemon=True).start()

    def pass_on(self, source, sink, keep):
        try:
            while data := source.recv(65536):
                if keep:
                    self.recorded += data
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()


class Stranger(threading.Thread):
    def __init__(self, kind, nodes, seed, recorder):
        super().__init__(daemon=True)
        self.kind, self.ports, self.recorder = kind, Ports(nodes), recorder
        self.random = random.Random(seed)
        self.held, self.reached, self.over = [], set(), False

    def run(self):
        while not self.over:
            for port in self.ports.now():
                self.visit(port)
            time.sleep(0.001)
        for connection in self.held:
            connection.close()

    def visit(self, port):
        for _ in range(20 if self.kind == "flood" else 1):
            try:
                connection = socket.create_connection(("127.0.0.1", port), timeout=0.2)
            except OSError:
                return
            self.reached.add(port)
            try:
                self.say(connection)
            except OSError:
                connection.close()

    def say(self, connection):
        if self.kind in ("silent", "slow", "flood", "guess"):
            self.held.append(connection)
            if self.kind == "guess":  # the numbers that a Gloo of one port gives its pairs by itself
                connection.sendall(struct.pack("<q", self.random.randrange(4)))
            if len(self.held) > 400:
                self.held.pop(0).close()
            if self.kind == "slow":
                for one in self.held[-20:]:
                    one.send(b"\x01")
            return
        if self.kind == "random":
            connection.sendall(self.random.randbytes(self.random.randrange(1, 5000)))
        elif self.kind == "wrong_join":
            connection.sendall(self.random.choice((
                message(b"join", b"n" * 32, member("0,0"), b"p" * 32),
                message(b"join", b"n" * 32, member(""), b"p" * 32),
                message(b"join", b"m1", member("1,1")),
                message(b"set", b"m1", b"hosts", b"[]"),
                message(b"join", b"x" * 60_000))))
        elif self.kind == "replay":
            connection.sendall(self.recorder.recorded[:1 << 20] or b"\0")
        elif self.kind == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


class StrangersRun:
    """One run of `nodes` nodes, one rank on each; `kind` may be None."""

    def __init__(self, test, kind, nodes, seed):
        self.path = test.tmp / "strangers.json"
        self.path.unlink(missing_ok=True)
        port = free_port()
        recorder = Recorder(port)
        begin = time.monotonic()
        members = [test.popen(PROGRAM, "worker", *SCENARIO, "--nodes", nodes, "--node-rank", rank,
                              "--master-addr", "127.0.0.1", "--master-port",
                              recorder.port if rank == nodes - 1 else port,
                              *(("--json", self.path) if rank == 0 else ()),
                              LOCKSTEP_JOB_KEY=KEY) for rank in range(nodes)]
        stranger = Stranger(kind, members, seed, recorder) if kind else None
        if stranger:
            stranger.start()
        self.codes, self.texts = test.ends(members)
        self.seconds = time.monotonic() - begin
        if stranger:
            stranger.over = True
            stranger.join()
        recorder.close()
        self.reached = len(stranger.reached) if stranger else 0
        self.good = self.codes == [0] * nodes and self.verdict() == "pass"

    def verdict(self):
        try:
            return read_json(self.path)["runs"][0]["verdict"]
        except (OSError, ValueError, LookupError) as error:
            return str(error)
