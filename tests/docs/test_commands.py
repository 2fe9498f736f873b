"""Every `fedcmoo` command in README and docs exists, with its options and settings. None is run."""

from __future__ import annotations

import re
import shlex

import click
import pytest
import typer.main

from fedcmoo.cli import app
from fedcmoo.cli.resolving import resolve
from tests.docs.pages import INLINE, PAGES, blocks

COMMAND = re.compile(r"^(?:\$ )?(fedcmoo .*)", re.MULTILINE)
SHOWN = [
    (page, line)
    for page in PAGES
    for block in blocks(page)
    if block.language in {"", "console", "sh"}
    for line in COMMAND.findall(block.text)
]
PROGRAM: click.Command = typer.main.get_command(app)
NAMED = [(page, text) for page in PAGES for text in INLINE.findall(PAGES[page])]


def entered(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the words after them."""
    command = PROGRAM
    while isinstance(command, click.Group) and words and words[0] in command.commands:
        command, words = command.commands[words[0]], words[1:]
    return command, words


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_a_command_in_a_block_is_accepted(page: str, line: str) -> None:
    _, *words = shlex.split(line.split(" | ")[0], comments=True)
    command, arguments = entered(words)
    given = command.make_context("fedcmoo", arguments).params  # raises for an unknown option or a missing argument
    assert not isinstance(command, click.Group), f"no such command: {line}"
    if "problem" in given and given.get("config") is None:
        sets = [text for text in given["sets"] or () if text.startswith(("problem.", "method."))]
        resolve(given["problem"], given.get("method"), small=given["small"], sets=sets)


@pytest.mark.parametrize(("page", "text"), NAMED)
def test_a_command_in_a_sentence_exists(page: str, text: str) -> None:
    command, words = entered(text.split()[1:])
    assert not isinstance(command, click.Group) or not words or words[0].startswith("-"), f"no such command: {text}"
    options = {option for parameter in command.params for option in parameter.opts + parameter.secondary_opts}
    assert {word.split("=")[0] for word in words if word.startswith("-")} <= options | {"--help"}
