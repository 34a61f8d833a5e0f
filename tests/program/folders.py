"""Where the tests of programs work: a folder of each test's own, with one for what must not be left behind."""
import os
import pathlib
import tempfile
import unittest


def variables_of(folder):
    """PyTorch 2 makes its compiler's cache folder by itself; it is no file of ours."""
    return {**os.environ, "TMPDIR": str(folder / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}


class FolderTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.left = self.folder / "tmp"
        self.left.mkdir()
        self.environment = variables_of(self.folder)
