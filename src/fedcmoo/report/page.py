"""A self-contained HTML page with interactive charts: scripts, styles and data are embedded."""

import json
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib import metadata, resources
from pathlib import Path

from fedcmoo.files import write_atomically
from fedcmoo.optional import require
from fedcmoo.report.chart import Chart
from fedcmoo.report.table import Table

VERDICTS = {"holds": "holds", "does not hold": "fails", "not decided at this scale": "open"}
"""The CSS class of cells that are shown as a mark."""


@dataclass(frozen=True)
class Section:
    """A section of the page.

    Attributes:
        name: the text of links to it.
        title: above it.
        text: a paragraph below the title.
        tables, charts: what it shows, in this order.
        failures: parts that could not be made, and why.
        details: configurations by title, in a collapsed block.
    """

    name: str
    title: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    failures: Sequence[str] = ()
    details: Sequence[tuple[str, str]] = ()


def write_page(path: Path, title: str, lead: str, sections: Sequence[Section]) -> None:
    """Write the page. Needs the extra `report`."""
    plotly: str = require("plotly.offline", extra="report").get_plotlyjs()
    links = "".join(f'<a href="#{escape(s.name)}">{escape(s.name)}</a>' for s in sections)
    body = "\n".join(_section(section) for section in sections)
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{escape(title)}</title>
<style>{_file("page.css")}</style>
</head>
<body>
<header><h1>{escape(title)}</h1><p class="soft">{escape(lead)}</p></header>
<nav><div>{links}</div></nav>
<main>
{body}
</main>
<footer class="soft">{escape(versions())}</footer>
<script>{plotly}</script>
<script>{_file("page.js")}</script>
</body>
</html>
"""
    write_atomically(path, page.encode())


def versions() -> str:
    """The software versions used to make a page."""
    names = ["fedcmoo", "torch", "numpy", "scipy"]
    return ", ".join([f"{name} {metadata.version(name)}" for name in names] + [f"Python {platform.python_version()}"])


def _section(section: Section) -> str:
    parts = [f'<section id="{escape(section.name)}"><h2>{escape(section.title)}</h2>']
    if section.text:
        parts.append(f"<p>{escape(section.text)}</p>")
    parts += [f'<p class="failed">{escape(failure)}</p>' for failure in section.failures]
    parts += [table.html(VERDICTS) for table in section.tables]
    parts += [_chart(chart) for chart in section.charts]
    if section.details:
        texts = "".join(f"<h4>{escape(name)}</h4><pre>{escape(text)}</pre>" for name, text in section.details)
        parts.append(f"<details><summary>configurations</summary>{texts}</details>")
    return "\n".join([*parts, "</section>"])


def _chart(chart: Chart) -> str:
    panels = [asdict(panel) | {"axes": panel.axes} for panel in chart.panels]
    axes = next((panel.axes for panel in chart.panels if len(panel.axes) > 1), [])
    text = json.dumps({"panels": panels, "axes": axes, "colours": chart.colours})
    data = json.dumps(json.loads(text, parse_constant=lambda name: None))  # JSON has no NaN
    data = data.replace("</", "<\\/")  # "</" could end the script element early
    places = "".join(f'<div class="panel{" radial" if panel.spokes else ""}"></div>' for panel in chart.panels)
    size = {1: " one", 2: " two"}.get(len(chart.panels), "")
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    return (
        f'<figure class="chart" id="{escape(chart.name)}" style="margin:0"><h3>{escape(chart.title)}</h3>'
        f'<p>{escape(chart.see)}</p><div class="controls"></div><div class="panels{size}">{places}</div>'
        f'{note}<script type="application/json">{data}</script></figure>'
    )


def _file(name: str) -> str:
    return (resources.files("fedcmoo.report") / name).read_text()
