"""What MkDocs asks while it builds the site: parts of pages that are made from the code, and checks of what was built.

A line such as `[[command line]]` of a page is replaced by what `MADE` makes of it: the commands that the code has now,
tables of numbers. A link to a file outside docs/ becomes its name: the site is read without a clone. A built page that
would load anything from another server fails the build.
"""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from mkdocs.exceptions import PluginError

from pianissimo.cli.main import cli
from pianissimo.queries.shared.expected import number_text

OUTSIDE = re.compile(r"(!?)\[([^\]]*)\]\(((?:\.\./)+[^)\s]*)\)")
LOADED = re.compile(
    r"<(?:script|img|iframe|source|embed|video|audio)\b[^>]*?\ssrc=[\"']?(?:https?:)?//[^\s\"'>]+", re.I
)
LINKED = re.compile(r"<link\b[^>]*?\bhref=[\"']?(?:https?:)?//[^\s\"'>]+[^>]*>", re.I)
STYLED = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//", re.I)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """A page with what is made from the code, and without links that lead out of the site."""
    for name, make in MADE.items():
        markdown = markdown.replace(f"[[{name}]]", "\n".join(make()) if f"[[{name}]]" in markdown else "")
    docs, folder = Path(config["docs_dir"]), Path(page.file.abs_src_path).parent

    def inside(link: re.Match[str]) -> str:
        is_inside = (folder / link[3].partition("#")[0]).resolve().is_relative_to(docs.resolve())
        return link[0] if is_inside else f"{link[2]}"

    return OUTSIDE.sub(inside, markdown)


def on_post_build(*, config: Any, **_: Any) -> None:
    """Refuse a site that asks something of another server."""
    site = Path(config["site_dir"])
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        found = [*LOADED.findall(text), *(each for each in LINKED.findall(text) if "canonical" not in each)]
        if found:
            raise PluginError(f"{path.relative_to(site)} must load nothing from another server, got {found[0]}")
    for path in site.rglob("*.css"):
        if STYLED.search(path.read_text(encoding="utf-8")):
            raise PluginError(f"{path.relative_to(site)} must load nothing from another server, got an address")


def command_line() -> Iterator[str]:
    """Every command with its help, its arguments and its options."""
    yield from _command(cli, "pianissimo")


def _command(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name)
    yield from ("#" * min(4, 1 + len(name.split())) + f" `{name}`", "")
    yield from (_prose(command.help or ""), "")
    usage = " ".join(command.collect_usage_pieces(context))
    yield from ("```text", f"{name} {usage}", "```", "")
    options = [each for each in command.get_params(context) if isinstance(each, click.Option) and not each.hidden]
    if options:
        yield from ("| option | meaning |", "| --- | --- |")
        for option in options:
            about, text = option.get_help_record(context) or ("", "")
            # What stands in brackets is no link.
            yield f"| `{_cell(about)}` | {_cell(text).replace('[', '&#91;')} |"
        yield ""
    if isinstance(command, click.Group):
        for each in sorted(command.commands):
            yield from _command(command.commands[each], f"{name} {each}")
    if command.epilog:
        yield from ("```text", command.epilog.replace("\b\n", "").strip(), "```", "")


def _prose(text: str) -> str:
    return inspect.cleandoc(text).replace("\b", "").replace("<", "&lt;").strip()


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def odds() -> Iterator[str]:
    """What a guess may become, by epsilon: p e^epsilon / (1 - p + p e^epsilon)."""
    yield f"| the guess before | {' | '.join(f'epsilon {each:g}' for each in TOLD_EPSILONS)} |"
    yield "| --- " * (1 + len(TOLD_EPSILONS)) + "|"
    for one_in in (2, 10, 100, 10_000):
        before = 1 / one_in
        after = [before * math.exp(each) / (1 - before + before * math.exp(each)) for each in TOLD_EPSILONS]
        yield f"| 1 in {one_in:,} | {' | '.join(_percent(each) for each in after)} |"


def errors() -> Iterator[str]:
    """The error of one count, by horizon and epsilon, of the planner's numbers."""
    content = json.loads(PLANNER.read_text(encoding="utf-8"))
    places = [content["epsilons"].index(each) for each in TOLD_EPSILONS]
    yield f"| hidden is, released | {' | '.join(f'epsilon {each:g}' for each in TOLD_EPSILONS)} |"
    yield "| --- " * (1 + len(TOLD_EPSILONS)) + "|"
    for name, told in TOLD_CELLS.items():
        cells = content["cells"][name]
        yield f"| {told} | {' | '.join(number_text(cells[place]['error']) for place in places)} |"


def planner() -> Iterator[str]:
    """The planner's numbers, where the calculator finds them, so that the page works from a folder too."""
    yield f'<script type="application/json" id="planner">{PLANNER.read_text(encoding="utf-8").strip()}</script>'


def planner_made() -> Iterator[str]:
    """When these were computed."""
    content = json.loads(PLANNER.read_text(encoding="utf-8"))
    yield f"version {content['version']}, {content['made']}, by `docs/site/export_planner.py`"


def _percent(share: float) -> str:
    """In two digits, rounded up: it is what a guess becomes at most."""
    if share >= MOST_TOLD:
        return "99 % or more"
    step = 10.0 ** (math.floor(math.log10(100 * share)) - 1)
    return f"{math.ceil(100 * share / step - 1e-9) * step:.2g} %"


PLANNER = Path(__file__).parent / "planner.json"
MOST_TOLD = 0.985
TOLD_EPSILONS = (0.1, 0.5, 1, 2, 4, 8)
TOLD_CELLS = {
    "event/24/1": "one event, a day of hours",
    "event/720/1": "one event, a month of hours",
    "event/8760/1": "one event, a year of hours",
    "event/none/1": "one event, without an end",
    "user-10/720/1": "one user (10 events of her count), a month of hours",
    "user-10/8760/1": "the same, a year of hours",
    "user-day/none/1": "one user's day (10 events of it count), for ever",
}
MADE: dict[str, Callable[[], Iterator[str]]] = {
    "command line": command_line,
    "errors": errors,
    "odds": odds,
    "planner": planner,
    "planner made": planner_made,
}
"""By marker, what makes the part."""
