"""What `cmake --install` leaves works where it lies, apart from source and build folder."""
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest

from harness import PATIENCE_S, PROGRAM, ROOT, ProgramTest, read_json

BUILD = pathlib.Path(os.path.realpath(PROGRAM)).parents[1]
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


class Install(ProgramTest):
    def test_program_scenarios_docs_man_page_and_completions(self):
        prefix = self.tmp / "prefix"
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", prefix], text=True,
                              capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        share = prefix / "share"
        scenario = share / "lockstep/scenarios/equivalence/linear_manual_split.json"
        result = self.tmp / "result.json"
        done = subprocess.run([prefix / "bin/lockstep", "verify", scenario, "--json", result],
                              cwd=self.tmp, env=self.env, text=True, capture_output=True,
                              timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(read_json(result)["runs"][0]["golden"]["verdict"], "pass")
        done = subprocess.run([prefix / "bin/lockstep", "scenario", "check",
                               share / "lockstep/scenarios"], cwd=self.tmp, env=self.env,
                              text=True, capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for path in ("man/man1/lockstep.1", "bash-completion/completions/lockstep",
                     "zsh/site-functions/_lockstep", "fish/vendor_completions.d/lockstep.fish",
                     "doc/lockstep/docs/ci.md", "doc/lockstep/README.md",
                     "lockstep/lockstep_record.py"):
            self.assertGreater((share / path).stat().st_size, 100, path)

    def test_links_of_installed_pages_lead_somewhere(self):
        done = subprocess.run(["cmake", "--install", BUILD, "--prefix", self.tmp, "--component", "docs"], text=True,
                              capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        pages = [*(self.tmp / "share/doc/lockstep").rglob("*.md")]
        self.assertGreater(len(pages), 40)
        links = [(page, link) for page in pages for link in LINK.findall(CODE.sub("", page.read_text()))]
        self.assertGreater(len(links), 200)
        self.assertEqual([f"{page.name}: {link}" for page, link in links if not (page.parent / link).is_file()], [])

    def test_the_wheel_s_description_has_no_links_into_the_repository(self):
        readme = re.search(r'^readme = "(.*?)"', (ROOT / "pyproject.toml").read_text(), re.M)[1]
        self.assertEqual(LINK.findall(CODE.sub("", (ROOT / readme).read_text())), [])

    def test_a_bill_of_materials(self):
        done = subprocess.run([sys.executable, "-B", ROOT / "scripts/bill_of_materials.py"], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        bill = json.loads(done.stdout)
        self.assertEqual(bill["spdxVersion"], "SPDX-2.3")
        names = {one["SPDXID"]: one["name"] for one in bill["packages"]}
        self.assertLess({"lockstep-verify", "lockstep", "libfmt-dev", "d3"}, set(names.values()))
        related = {(one["spdxElementId"], one["relatedSpdxElement"]): one["relationshipType"] for one in bill["relationships"]}
        self.assertEqual({to for _, to in related}, set(names))
        self.assertEqual(related["SPDXRef-lockstep", "SPDXRef-libxxhash-dev"], "DYNAMIC_LINK")
        self.assertEqual(related["SPDXRef-lockstep-verify", "SPDXRef-libxxhash-dev"], "STATIC_LINK")

    def test_a_debian_package(self):
        done = subprocess.run(["cpack", "-G", "DEB", "-B", self.tmp / "deb"], cwd=BUILD, text=True,
                              capture_output=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        package, = (self.tmp / "deb").glob("lockstep_*.deb")
        listed = subprocess.run(["dpkg-deb", "-c", package], text=True, capture_output=True).stdout
        for path in ("./usr/bin/lockstep", "./usr/bin/lockstep-worker", "lockstep-config.cmake",
                     "include/lockstep/reducer/registry.h", "liblockstep_main.a"):
            self.assertIn(path, listed)
        fields = subprocess.run(["dpkg-deb", "-f", package], text=True, capture_output=True).stdout
        # Another LibTorch than the system's is in no package.
        if re.search(r"LibTorch +/(usr/)?lib/", self.run_program("doctor").out):
            self.assertRegex(fields, "Depends: .*libtorch")


if __name__ == "__main__":
    unittest.main()
