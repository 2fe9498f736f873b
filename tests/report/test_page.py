"""The page in a real browser, without network: everything is drawn, controls work, and the console stays empty."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from fedcmoo.report.chart import Chart, Line, Panel
from fedcmoo.report.page import Section, write_page
from fedcmoo.report.table import Table

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--enable-logging=stderr"),
    *("--virtual-time-budget=20000", "--host-resolver-rules=MAP * ~NOTFOUND"),
)

CLICKS = """
<script>
setTimeout(() => {
  const figure = document.querySelector("figure.chart"), plot = figure.querySelector(".panel");
  const look = () => ({ x: plot.data.map(trace => trace.x), axis: plot.layout.xaxis.title.text, n: plot.data.length });
  const before = look();
  const [first, second] = figure.querySelectorAll(".axis button");
  second.click();
  const uploaded = look();
  figure.querySelector(".controls > button").click();
  document.body.dataset.result = JSON.stringify({ before, uploaded, hidden: look() });
}, 5000);
</script>
"""


def open_page(page: Path, profile: Path) -> tuple[str, list[str]]:
    """The page's DOM after its scripts ran, and what the browser's console said. No host can be reached."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("no Chromium found: apt-get install chromium")
    command = [browser, *FLAGS, f"--user-data-dir={profile}", "--dump-dom"]
    done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def page_with_everything(folder: Path) -> Path:
    rounds = {"round": [1.0, 2.0, 3.0], "megabytes": [10.0, 20.0, 30.0]}
    band = Line("FedCMOO", rounds, [1, 2, 3], [0, 1, 2], [2, 3, 4])
    lines = [band, Line("FSMGDA", rounds, [3.0, 2.0, 1.0])]
    ray = Line("2:1", {"left": [0.0, 1.0]}, [0.0, 1.0], style="ray", colour="#123456")
    front = [ray, Line("2:1", {"left": [0.5]}, [0.4], style="hollow", colour="#123456")]
    charts = [
        Chart("curves", "Curves", "See this.", [Panel("loss", "loss", lines), Panel("log", "y", lines, y_log=True)]),
        Chart("ring", "Ring", "See that.", [Panel("ring", "loss", [Line("a", {}, [1, 2, 3])], spokes=["x", "y", "z"])]),
        Chart(
            "front",
            "Front",
            "And that.",
            [Panel("front", "right", front, infeasible=[0.1, 0.2], x_range=[0, 1], y_range=[0, 1])],
        ),
    ]
    table = Table("t", "Claims", ["claim", "verdict"], [["<b>bold</b>", "holds"], ["x", "does not hold"]])
    sections = [
        Section("one", "One & only", "Text.", [table], charts, ["went wrong"], [("a run", "rounds = 3 </script>")])
    ]
    path = folder / "page.html"
    write_page(path, "A </script> title", "lead", sections)
    return path


def test_everything_is_drawn_and_the_console_is_empty(tmp_path: Path) -> None:
    page = page_with_everything(tmp_path)
    page.write_text(page.read_text().replace("</body>", CLICKS + "</body>"))
    dom, console = open_page(page, tmp_path / "profile")
    assert console == []
    assert 'data-drawn="all"' in dom
    assert len(re.findall(r'class="panel[^"]*js-plotly-plot"', dom)) == 4
    assert '<span class="verdict holds">holds</span>' in dom
    assert "&lt;b&gt;bold&lt;/b&gt;" in dom

    match = re.search(r'data-result="([^"]*)"', dom)
    assert match is not None
    result: dict[str, Any] = json.loads(unescape(match.group(1)))
    assert (result["before"]["axis"], result["uploaded"]["axis"]) == ("round", "megabytes")
    assert result["before"]["x"][-1] == [1, 2, 3]
    assert result["uploaded"]["x"][-1] == [10, 20, 30]
    assert (result["before"]["n"], result["hidden"]["n"]) == (3, 1)  # the first label has a line and a band


def test_an_error_in_the_page_would_be_noticed(tmp_path: Path) -> None:
    page = tmp_path / "broken.html"
    page.write_text("<script src='http://example.org/a.js'></script><script>undefinedFunction()</script>")
    _, console = open_page(page, tmp_path / "profile")
    assert any("undefinedFunction is not defined" in line for line in console)


def test_nothing_is_loaded_from_elsewhere(tmp_path: Path) -> None:
    text = page_with_everything(tmp_path).read_text()
    without_scripts = re.sub(r"<script[^>]*>.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', without_scripts) == []
    assert "url(" not in without_scripts
    assert 'name="viewport"' in text
