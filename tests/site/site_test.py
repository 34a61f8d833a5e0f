"""The built site (scripts/docs) in a real browser, opened from the disk: nothing is asked for beyond its own files, no page is
wider than a phone, light and dark, and the search finds."""
import pathlib
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/cli"))
from browser import Browser, needs_browser  # noqa: E402

SITE = ROOT / "build/site"
DESKTOP, PHONE = (1280, 900), (390, 844)


class Site(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs_browser()
        folder = tempfile.TemporaryDirectory(prefix="lockstep-site-")
        cls.addClassCleanup(folder.cleanup)
        cls.browser = Browser(folder.name)
        cls.addClassCleanup(cls.browser.close)

    def setUp(self):
        self.browser.size(*DESKTOP)

    def js(self, expression, *arguments):
        return self.browser.run(f"return {expression}", *arguments)

    def until(self, expression):
        for _ in range(200):
            if found := self.js(expression):
                return found
            time.sleep(0.1)
        return self.fail(f"{expression} never came true; console: {self.browser.console()}")

    def check(self, page, width):
        self.browser.open(page)
        self.assertLessEqual(self.js("document.documentElement.scrollWidth"), width)
        self.assertEqual(self.js("[...document.images].filter(one => !one.naturalWidth).map(one => one.src)"), [])
        if page.name != "404.html":  # made for a server's root
            self.assertEqual(self.browser.console(), [])
            self.assertEqual([url for url in self.browser.requests() if not url.startswith(SITE.as_uri())], [])

    def test_every_page_on_a_phone(self):
        self.browser.size(*PHONE)
        pages = sorted(page for page in SITE.rglob("*.html") if SITE / "api" not in page.parents)
        self.assertGreater(len(pages), 50)
        for page in pages:
            with self.subTest(page.relative_to(SITE)):
                self.check(page, PHONE[0])

    def test_pages_of_all_kinds_on_a_desktop(self):
        for name in ("index", "start", "howto/index", "howto/rank_timed_out", "own_reducer", "html", "compatibility_table",
                     "source/reducer/reducer.h"):
            with self.subTest(name):
                self.check(SITE / (name + ".html"), DESKTOP[0])

    def test_the_api(self):
        self.browser.open(SITE / "own_reducer.html")
        self.browser.click("a[href='api/annotated.html']")
        self.until("document.title.includes('Class List')")
        self.assertIn("structlockstep_1_1ReducerOptions.html", self.js("[...document.links].map(one => one.href).join()"))
        self.check(SITE / "api/structlockstep_1_1ReducerOptions.html", DESKTOP[0])
        self.assertIn("before every forward, from rank 0", self.js("document.body.textContent"))

    def test_light_and_dark(self):
        shades = []
        for scheme in ("light", "dark"):
            self.browser.scheme(scheme)
            self.browser.open(SITE / "start.html")
            shades.append(self.js("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)"))
        light, dark = shades
        self.assertGreater(min(light), 200)
        self.assertLess(max(dark), 80)

    def test_search_finds(self):
        self.browser.open(SITE / "start.html")
        self.browser.click(".md-search__input")
        self.browser.press(*"straggler")
        found = self.until("[...document.querySelectorAll('.md-search-result__link')].map(one => one.href)"
                           ".filter(one => one.includes('metrics.html'))")
        self.browser.open(SITE / found[0].removeprefix(SITE.as_uri() + "/").split("?")[0].split("#")[0])
        self.assertEqual(self.browser.console(), [])

    def test_a_link_to_a_source_file_leads_to_its_text(self):
        self.browser.open(SITE / "own_reducer.html")
        self.browser.click("a[href='source/reducer/reducer.h.html']")
        self.assertIn("class Reducer", self.until("document.querySelector('pre')?.textContent"))


if __name__ == "__main__":
    unittest.main()
