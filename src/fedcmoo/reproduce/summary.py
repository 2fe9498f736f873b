"""The summary of a reproduction's folder: an index, the claims, and one interactive page."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedcmoo.files import write_atomically
from fedcmoo.report.page import Section, versions, write_page
from fedcmoo.report.table import Table
from fedcmoo.reproduce.claims import ABSENT, FAILS, HOLDS, OPEN, OURS, all_claims, claims_table
from fedcmoo.reproduce.outcome import Outcome
from fedcmoo.reproduce.paper import CELEBA
from fedcmoo.reproduce.targets import TARGETS

TITLE = "FedCMOO, reproduced"
ABOUT = (
    "The tables and figures of Federated Communication-Efficient Multi-Objective Optimization (AISTATS 2025), "
    "with the paper's own numbers beside ours."
)
PAGE = "report.html"


def outcomes_in(folder: Path) -> list[Outcome]:
    """All targets that were made in a folder, in the order of `TARGETS`."""
    files = [Outcome.place(folder, name) for name in TARGETS]
    return [Outcome.load(file) for file in files if file.exists()]


def write_summary(folder: Path) -> None:
    """Write README.md, claims.md and claims.csv for the whole folder."""
    outcomes = outcomes_in(folder)
    table = _claims(outcomes)
    write_atomically(folder / "claims.md", table.markdown().encode())
    write_atomically(folder / "claims.csv", replace(table, note="").csv().encode())
    write_atomically(folder / "README.md", _index(outcomes).encode())


def write_interactive(folder: Path) -> None:
    """Write report.html for the whole folder."""
    outcomes = outcomes_in(folder)
    claims = _claims(outcomes)
    short = replace(claims, title="", header=claims.header[:4], rows=[row[:4] for row in claims.rows])
    sections = [
        Section("claims", "The paper's claims", tables=[short]),  # claim, verdict, ours, the paper's
        *(_section(outcome) for outcome in outcomes),
    ]
    lead = f"{ABOUT} {count_verdicts(outcomes)}"
    write_page(folder / PAGE, TITLE, lead, sections)


def _claims(outcomes: Sequence[Outcome]) -> Table:
    return claims_table([verdict for outcome in outcomes for verdict in outcome.verdicts])


def count_verdicts(outcomes: Sequence[Outcome]) -> str:
    """How many claims hold, and how many do not."""
    every = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    count = Counter(verdict.verdict for verdict in every)
    count[ABSENT] += len(all_claims()) - len(every)
    verdicts = ", ".join(f"{verdict}: {count[verdict]}" for verdict in (HOLDS, FAILS, OPEN, ABSENT))
    made = {outcome.target for outcome in outcomes}
    missing = ", ".join(name for name in TARGETS if name not in made)
    own = sum(claim.where == OURS for claim in all_claims())
    text = f"The verdicts on {count.total() - own} claims of the paper and {own} of our own: {verdicts}."
    text = f"{text} {count_decided(outcomes)}"
    return f"{text} Targets without results: {missing}." if missing else text


def count_decided(outcomes: Sequence[Outcome]) -> str:
    """A sentence on how many of the paper's claims that do not need CelebA were decided."""
    parts = {claim.id: (claim.part,) if claim.part else TARGETS[claim.target].parts for claim in all_claims()}
    free = {c.id for c in all_claims() if c.where != OURS and not set(parts[c.id]) & set(CELEBA)}
    every = [verdict for outcome in outcomes for verdict in outcome.verdicts]
    decided = sum(verdict.verdict in (HOLDS, FAILS) for verdict in every if verdict.claim.id in free)
    verb, share = "is" if decided == 1 else "are", f"{decided / len(free):.0%}"
    return f"Of the {len(free)} claims of the paper that do not need CelebA, {decided} {verb} decided ({share})."


def _section(outcome: Outcome) -> Section:
    return Section(
        outcome.target,
        outcome.title,
        tables=outcome.tables,
        charts=outcome.charts,
        failures=[f"no results for {part}: {why}" for part, why in outcome.failures.items()],
        details=[(name, text) for name, text in outcome.configurations.items()],
    )


def _index(outcomes: Sequence[Outcome]) -> str:
    """The folder's README, with every table and picture."""
    parts = [
        f"# {TITLE}\n\n{ABOUT} Written by `fedcmoo reproduce`. {count_verdicts(outcomes)} [All claims](claims.md), "
        f"and [one interactive page]({PAGE}) to download and open.\n\n{versions()}\n"
    ]
    for outcome in outcomes:
        parts.append(f"## {outcome.title}\n")
        parts += [] if outcome.tables else [f"{outcome.scale}\n"]  # tables have it below them
        parts += [f"No results for {part}: {why}\n" for part, why in outcome.failures.items()]
        parts += [f"{table.markdown()}\n[CSV]({table.name}.csv)\n" for table in outcome.tables]
        parts += [f"{chart.see}\n\n![{chart.title}]({chart.name}.svg)\n" for chart in outcome.charts]
        parts += [f"- {v.claim.text}: **{v.verdict}**" for v in outcome.verdicts]
        parts.append("")
    return "\n".join(parts)
