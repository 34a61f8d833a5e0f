"""Where the tests of programs work: a folder of each test's own, with one for what must not be left behind."""
import os
import pathlib
import tempfile
import unittest


class FolderTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.left = self.folder / "tmp"
        self.left.mkdir()
        # PyTorch 2 makes its compiler's cache folder by itself; it is no file of ours.
        self.environment = {**os.environ, "TMPDIR": str(self.left),
                            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor")}
