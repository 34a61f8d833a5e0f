"""What the site does beyond MkDocs: README.md and its neighbours are pages, a link to a file of the repository leads to a
page that shows it (or to repo_url, where one is set), headings have GitHub's anchors, lists may follow a paragraph directly."""
import pathlib
import posixpath
import re

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, InclusionLevel

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md",
         "SECURITY.md": "security.md"}
LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.M | re.S)
LANGUAGES = {".h": "cpp", ".cc": "cpp", ".py": "python", ".json": "json"}


def anchor(heading, _separator):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def outside_code(change, text):
    """Applies a function to what is no code."""
    ends = [0, *(end for found in CODE.finditer(text) for end in found.span()), len(text)]
    pieces = [text[begin:end] for begin, end in zip(ends, ends[1:])]
    return "".join(piece if number % 2 else change(piece) for number, piece in enumerate(pieces))


def stored_at(page):
    """Where in the repository a page of the site is written."""
    return next((name for name, made in PAGES.items() if made == page), "docs/" + page)


def shown_at(path):
    """The page, or the file of the site, that shows a file of the repository."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return PAGES.get(path, f"source/{path}.md")


def linked(page, target):
    return posixpath.normpath(posixpath.join(posixpath.dirname(stored_at(page)), target))


def sources(pages):
    """Files outside docs/ that pages link to."""
    found = set()
    for page in pages:
        plain = CODE.sub("", (ROOT / stored_at(page)).read_text())
        found |= {linked(page, target) for target in LINK.findall(plain)}
    return sorted(path for path in found if shown_at(path).startswith("source/"))


def on_config(config):
    config.mdx_configs["toc"]["slugify"] = anchor
    return config


def on_files(files, config):
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text()))
    for path in [] if config.repo_url else sources([file.src_uri for file in files.documentation_pages()]):
        if not (ROOT / path).is_file():
            raise PluginError(f"a page links to {path}, which is no file of the repository")
        text = (ROOT / path).read_text().rstrip()
        content = (f"---\nsearch:\n  exclude: true\n---\n\n# {path.rsplit('/', 1)[-1]}\n\n`{path}`\n\n"
                   f"```{LANGUAGES.get(pathlib.Path(path).suffix, '')}\n{text}\n```\n")
        files.append(File.generated(config, shown_at(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown, page, config, **_):
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown

    def address(match):
        path = linked(here, match[1])
        if config.repo_url and shown_at(path).startswith("source/"):
            return f"{config.repo_url.rstrip('/')}/blob/HEAD/{path}"
        return posixpath.relpath(shown_at(path), posixpath.dirname(here) or ".")

    markdown = outside_code(lambda text: LINK.sub(address, text), markdown)
    if here == "own_reducer.md":  # beside MkDocs: scripts/docs has Doxygen make it
        markdown += "\n## All public headers\n\n<a href=\"api/annotated.html\">Classes and functions</a>, as their comments describe them.\n"
    return spaced(markdown)


def spaced(markdown):
    """GitHub starts a list below a paragraph and nests by two blanks; Python's Markdown wants an empty line and four."""
    out, fenced, listed = [], False, False
    for line in markdown.split("\n"):
        item = re.match(r"( *)(?:[*-]|\d+\.) ", line)
        if not fenced and item and not listed and out and out[-1].strip():
            out.append("")
        if re.match(r" *```", line):
            fenced = not fenced
        elif not fenced:
            listed = bool(item) or (listed and (not line.strip() or line.startswith(" ")))
        inner = re.match(r" +", line) if listed else None
        out.append(inner[0] * 2 + line[inner.end():] if inner else line)
    return "\n".join(out)
