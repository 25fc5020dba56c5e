"""`pianissimo` in a terminal: all commands, their exit codes, what starts the program; and `demo` and `audit`.

With `--json` standard output holds JSON and nothing else. A second SIGINT or SIGTERM ends the process by that signal.
"""

import io
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import click

import pianissimo
from pianissimo.cli import NUMBER, PATH, echo_json, json_option
from pianissimo.cli.data_commands import budget, top_k
from pianissimo.cli.durable_commands import names_key, recover, rotate_secret, shards_key, status, verify
from pianissimo.cli.init_command import init
from pianissimo.cli.releases_command import releases
from pianissimo.cli.serve_commands import serve, token
from pianissimo.cli.sketch_commands import sketch
from pianissimo.cli.stream_commands import check, plan, run
from pianissimo.errors import (
    InputError,
    LeaseError,
    ParameterError,
    PianissimoError,
    RefusalError,
    SpecError,
    StoreError,
)

_EXIT_CODES = """\b
Exit codes:
  0  it is done, or it was told to stop
  1  an error that no other code names; for audit and budget: a promise or a ledger does not hold
  2  a file or an argument must be mended first; nothing was released
  3  a durable stream refuses to go on as it is; the message says what to type
  4  another process runs this stream
  5  the store cannot be read or written now; the same command may be tried again
"""


_CODES = ((SpecError, 2), (InputError, 2), (RefusalError, 3), (LeaseError, 4), (StoreError, 5))


class _Commands(click.Group):
    """Commands whose errors end as a message on standard error, not as a traceback."""

    def invoke(self, context: click.Context) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", pianissimo.BudgetWarning)  # the plan says it
                return super().invoke(context)
        except PianissimoError as error:
            ended = click.ClickException(str(error))
            ended.exit_code = next((code for kind, code in _CODES if isinstance(error, kind)), 1)  # type: ignore[misc]
            raise ended from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXIT_CODES)
@click.version_option(pianissimo.__version__, prog_name="pianissimo")
def cli() -> None:
    """Statistics of event streams, released again and again, under one privacy promise."""


@click.command()
@click.option("--ticks", type=NUMBER, default=30, show_default=True, help="How many ticks are released.")
@click.option("--out", type=PATH, default=Path("demo-output"), show_default=True, help="The folder for the results.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Which data are generated. The noise has no seed: it is new in every demo.",
)
@click.option("--serve", "place", metavar="HOST:PORT", help="Show it live on a page instead, a tick a second.")
@json_option
def demo(*, ticks: int, out: Path, seed: int, place: str | None, as_json: bool) -> None:
    """Watch a generated stream being released.

    The demo shows a running count, the drugs that pass a threshold, a top list of shops, and what the last hours added.
    The events are made up, so their truth is shown beside the releases, as text and as a picture. After Ctrl-C, or
    after it was killed, the same command goes on where it was.

    With --serve it is a page, at this address, that shows one tick a second until Ctrl-C, and leaves no folder.
    """
    if place is not None:
        _serve_demo(ticks, seed, place)
        return
    from pianissimo.cli.render import console
    from pianissimo.demo import TRUTH_NOTE, Screen, draw_demo, summary
    from pianissimo.demo.pharmacy import WINDOW_TICKS, DemoFolder, Record, check_demo, open_demo, pharmacy_batches
    from pianissimo.io.runs import stop_on_signals
    from pianissimo.stream import plan_tables

    terminal = console(stderr=as_json)
    record = Record()
    check_demo(out)
    with open_demo(out, ticks, seed) as live, stop_on_signals() as stop:
        terminal.print(plan_tables(live.plan.to_dict()))
        click.echo(f"\n{TRUTH_NOTE}\n", err=as_json)
        begun = live.tick_number
        if begun:
            click.echo(f"A demo was stopped here after tick {begun}: it goes on.\n", err=as_json)
        folder = DemoFolder(out, live.plan)
        with Screen(terminal, ticks=ticks) as screen:
            for tick, batch in enumerate(pharmacy_batches(ticks, seed), 1):
                release = live.released(tick) if tick <= begun else live.tick(batch)
                window = live.between(max(0, tick - WINDOW_TICKS), tick)
                record.observe(batch, release, window)
                folder.write(release, window)
                if as_json:
                    click.echo(release.to_json().encode())
                elif tick >= begun:
                    screen.show(record)
                if stop.is_set() and tick >= begun:
                    break
        if live.tick_number < ticks:
            click.echo(f"\nStopped after tick {live.tick_number} of {ticks}; the same command goes on.", err=as_json)
            return
    has_picture = draw_demo(record, folder)
    click.echo(f"\n{summary(record)}\n", err=as_json)
    for path in folder.written:
        click.echo(f"  {path}", err=as_json)
    if not has_picture:
        click.echo("For a picture of it: pip install pianissimo[plot]", err=as_json)


def _serve_demo(ticks: int, seed: int, place: str) -> None:
    host, _, port = place.rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65535:
        raise click.UsageError(f"--serve must be HOST:PORT, such as 127.0.0.1:8080, got {place!r}")
    try:
        from pianissimo.demo.live_page import PAGE_NOTE, has_screen, live_page
    except ImportError:
        raise ParameterError("--serve must have fastapi and uvicorn, got none: pip install pianissimo[serve]") from None
    import webbrowser

    from pianissimo.io.runs import stop_on_signals

    with stop_on_signals() as stop, live_page(ticks, seed, host.strip("[]"), int(port)) as page:
        click.echo(f"The page is at {page.address}\n{PAGE_NOTE}\nCtrl-C ends it.")
        if has_screen():
            webbrowser.open(page.address)
        page.run(stop)
        if not stop.is_set():
            click.echo(f"All {ticks} ticks are published. The page stays until Ctrl-C.")
        stop.wait()


@click.command()
@click.argument("target", metavar="FILE|matrix|MECHANISM")
@click.option(
    "--runs",
    type=click.IntRange(min=1000),
    default=100_000,
    show_default=True,
    help="How often each of two neighboring streams is run. More runs find smaller breaches.",
)
@json_option
def audit(*, target: str, runs: int, as_json: bool) -> None:
    """Try to break what the stream in FILE, or a MECHANISM such as counter-haar, promises.

    Many runs on neighboring streams give a lower bound on the real privacy loss. Streams of every query and unit are
    also replayed with and without somebody, under one noise; "matrix" does so for all that can be asked of anybody. The
    exit code is 1 if a bound is above the claim: a violation. "Blind, or too much noise" is a bound lower than a good
    attack should reach: nothing is broken, and nothing is shown; more runs may help.
    """
    from pianissimo.cli.audited import audit_all, audit_tables, mechanisms_of, replay_all, replays_of, to_plain
    from pianissimo.cli.render import console, progress_bar

    mechanisms = mechanisms_of(target)
    with progress_bar("runs") as progress:
        reports = audit_all(mechanisms, runs=runs, progress=progress)
    reports |= replay_all(replays_of(target))
    content = to_plain(reports)
    if as_json:
        echo_json(content, indent=2)
    else:
        console().print(audit_tables(reports))
    if content["verdict"] == "violation":
        sys.exit(1)


for _command in (
    demo,
    init,
    plan,
    check,
    run,
    releases,
    status,
    verify,
    recover,
    rotate_secret,
    names_key,
    shards_key,
    budget,
    top_k,
    sketch,
    serve,
    token,
    audit,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            # It was closed when this process was started. Its number must not be taken by a file that is opened next.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows "?" for a sign it does not have
    cli()


if __name__ == "__main__":
    main()
