"""What the site adds to MkDocs: notebooks as pages, links to files of the repository outside of docs, a check."""

from __future__ import annotations

import base64
import logging
import posixpath
import re
from pathlib import Path

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
OUTSIDE = "repository/"
"""Where the site has the files of the repository that are not in docs."""
PATTERNS = ("*.md", "benchmarks/*.*", "examples/**/*.py", "examples/**/*.md", "examples/**/*.toml")
FETCHED = re.compile(r'<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)="((?:https?:)?//[^"]+)')
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)]*)?\))")
NAMED = re.compile(r'<span title="fedcmoo\.settings\.Named">Named</span>\[(.*?)\]</code>', re.DOTALL)
REGISTERED = re.compile(
    r'<span title="fedcmoo\.settings\.registered">registered</span>\((.*?), <span[^>]*>\w+</span>\)</code>', re.DOTALL
)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each notebook, and what pages link to outside of docs."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        for name, content in rendered(file).items():
            files.append(File.generated(config, name, content=content))
    for path in sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern)):
        if path != ROOT / "README.md":
            files.append(File.generated(config, OUTSIDE + path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links between docs and the rest of the repository become links within the site."""
    here = in_repository(page.file.src_uri)

    def follow(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2]))
        if (ROOT / target).is_dir():
            target += "/README.md"
        target = re.sub(r"\.ipynb$", ".md", target)
        place = place_on_site("docs/index.md" if target == "README.md" else target)
        return match[1] + posixpath.relpath(place, posixpath.dirname(page.file.src_uri) or ".") + match[3]

    return LINK.sub(follow, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Fields that take names show their types and defaults. A page that fetches something would not open offline."""
    output = REGISTERED.sub(r"\1</code>", NAMED.sub(r"\1 | str</code>", output))
    for url in FETCHED.findall(output):
        logging.getLogger("mkdocs.hooks").warning(f"{page.file.src_uri} must open offline, but it fetches {url}")
    return output


def in_repository(uri: str) -> str:
    """The path in the repository of a file of the site."""
    return uri.removeprefix(OUTSIDE) if uri.startswith(OUTSIDE) else f"docs/{uri}"


def place_on_site(path: str) -> str:
    """The inverse of `in_repository`."""
    return path.removeprefix("docs/") if path.startswith("docs/") else OUTSIDE + path


def rendered(file: File) -> dict[str, str | bytes]:
    """The page of a notebook and the pictures in it, by their names on the site."""
    notebook = nbformat.read(file.abs_src_path, as_version=4)
    stem = file.src_uri.removesuffix(".ipynb")
    made: dict[str, str | bytes] = {}
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        printed = ""
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"{stem}-{len(made)}.png"
                made[name] = base64.b64decode(data["image/png"])
                parts.append(f"![Output of the cell above]({posixpath.basename(name)})")
            elif "text/html" in data:
                parts.append(f'<div class="output" markdown="0">\n{data["text/html"]}\n</div>')
            else:
                printed += ANSI.sub("", data.get("text/plain") or output.text).replace("\r", "")
        if printed:
            parts.append(f"```text\n{printed.rstrip()}\n```")
    parts.append(f'<a href="{posixpath.basename(file.src_uri)}" download>Download this page as a notebook</a>')
    return {**made, f"{stem}.md": "\n\n".join(parts)}
