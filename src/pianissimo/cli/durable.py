"""Commands for whoever looks after a durable stream: where it stands, whether it is sound, what to do if it stops."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pianissimo.durable.keys import read_secret
from pianissimo.durable.opening import config_of, open_stream
from pianissimo.durable.place import Place, wire
from pianissimo.durable.recover import accept_lost_witness, accept_rollback
from pianissimo.durable.shared_ledger import ledger_elsewhere
from pianissimo.io.inspect import read_status, stored_stream, verify, verify_folder
from pianissimo.ledger import check_key_path
from pianissimo.stream import Stream
from pianissimo.stream.spec import load_spec

_CHARGED = "it was charged anew"
_json_option = click.option("--json", "as_json", is_flag=True, help="JSON alone on standard output.")
_state = click.argument("state", metavar="DIR")
_secret = click.option(
    "--secret", metavar="PATH|env:NAME|command:WORDS", help="Where the secret is.  [default: DIR.secret]"
)
_witness = click.option("--witness", type=click.Path(path_type=Path), help="The witness.  [default: DIR.witness]")


@click.command()
@_state
@_witness
@_json_option
def status(*, state: str, witness: Path | None, as_json: bool) -> None:
    """Show where the stream in DIR stands: ticks, lease and key, no data."""
    found = read_status(state, witness=witness).to_dict()
    if as_json:
        click.echo(json.dumps(found, indent=2).encode())
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    sinks = found.pop("sinks")
    found |= {f"sink {name}": f"lacks {each['undelivered']}, has {each['last_tick']}" for name, each in sinks.items()}
    for name, value in found.items():
        table.add_row(Text(name.replace("_", " "), style="dim"), Text("none" if value is None else str(value)))
    Console().print(table)


@click.command("verify")
@_state
@_secret
@_witness
@click.option("--out", type=click.Path(path_type=Path), help="A folder of releases, to be compared with the stored.")
@_json_option
def verify_command(*, state: str, secret: str | None, witness: Path | None, out: Path | None, as_json: bool) -> None:
    """Check every digest of the stream in DIR, its ledger and its witness, and derive its last releases again.

    Exit code 3 if something is not as it was written.
    """
    stream, origin = stored_stream(state)
    found = verify(stream.plan(), config_of(stream, origin), state, secret=secret, witness=witness)
    if out is not None:
        verify_folder(state, out)
    if as_json:
        click.echo(json.dumps({"verified": True, **found.to_dict()}).encode())
    else:
        click.echo(
            f"verified: {found.seals} seals and {found.releases} releases are as they were written, "
            f"and the last {found.derived} releases follow from what is sealed"
        )


@click.command()
@_state
@_secret
@_witness
@click.option("--accept-rollback", is_flag=True, help="Begin a new life after the last tick that the witness has seen.")
@click.option("--accept-lost-witness", is_flag=True, help="Begin a new life, charged anew, with a new witness.")
@click.option(
    "--old-secret",
    metavar="PATH|env:NAME|command:WORDS",
    help="The secret that the store had, where it was rolled back to before a rotation.",
)
@click.option("--file", type=click.Path(path_type=Path), help="The stream file, where the store itself is gone.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="A folder that got releases: it may have later ones than the store."
)
@click.option("--ledger", metavar="PLACE", help="The ledger that the stream is charged to, if it is elsewhere.")
@click.option("--ledger-key", metavar="PATH", help="The file with that ledger's key, or the secret of its stream.")
@_json_option
def recover(
    *,
    state: str,
    file: Path | None,
    out: Path | None,
    ledger: str | None,
    ledger_key: str | None,
    secret: str | None,
    old_secret: str | None,
    witness: Path | None,
    accept_rollback: bool,
    accept_lost_witness: bool,
    as_json: bool,
) -> None:
    """Accept a loss, where the stream in DIR refuses to start because of one.

    After a rollback the stream goes on in a new life: it skips all that was ever released, and its noise is new.
    Counts, sums and histograms go on from the last released values that are known; other queries begin anew. Earlier
    releases stay.

    It is charged anew where events may be shown a second time: where the unit is not the event; where the witness is
    lost, so that nobody knows what was shown after the last tick of this store; where a sink has later ticks than store
    and witness; and where the two have seen other events for one tick.
    """
    if accept_rollback == accept_lost_witness:
        raise click.UsageError("one of --accept-rollback and --accept-lost-witness must be given")
    elsewhere = ledger_elsewhere(state, ledger, ledger_key)
    wiring = wire(state, secret=secret, witness=witness, ledger=elsewhere)
    stream, origin = stored_stream(state) if file is None else _in_file(file)
    plan, config = stream.plan(), config_of(stream, origin)
    if accept_lost_witness:
        done = _accept_lost_witness(plan, config, wiring, folder=out)
    else:
        earlier = None if old_secret is None else read_secret(old_secret, beside=Path(old_secret), create=False)
        done = _accept_rollback(plan, config, wiring, folder=out, old_secret=earlier)
    told: dict[str, Any] = {
        "incarnation": done.incarnation,
        "last_tick": done.last_tick,
        "lost": done.lost,
        "charged": done.charged,
        "totals_from_tick": dict(done.totals),
        "begun_anew": list(done.anew),
    }
    text = (
        f"a new life begins after tick {done.last_tick}; {done.lost} released ticks are not in this store; "
        f"{_CHARGED if done.charged else 'the charge that was made covers it'}"
    )
    if done.same_life:
        text = (
            f"the stream goes on after tick {done.last_tick} as it was; in its ledger all that was left is booked, "
            "since nobody knows what others were charged and is lost"
        )
    if accept_lost_witness:
        text += f"\na new witness stands at tick {done.last_tick}; events after it may be shown a second time"
    for name, tick in done.totals.items():
        text += f"\n{name}: the total goes on from what was released at tick {tick}"
    for name in done.anew:
        text += f"\n{name}: begins anew"
    click.echo(json.dumps(told).encode() if as_json else text)


@click.command("rotate-secret")
@_state
@_secret
@_witness
@click.option("--new", metavar="PATH", required=True, type=click.Path(path_type=Path), help="A file to be made.")
def rotate_secret(*, state: str, secret: str | None, witness: Path | None, new: Path) -> None:
    """Begin a new secret with the next tick of the stream in DIR.

    The new one is written to a file of its own; from then on it is the stream's. What was sealed and drawn before needs
    the old ones: they stay in the store, closed under the new one.
    """
    check_key_path("--new", new)
    if new.exists():
        raise click.UsageError(f"--new must be a file that is not there yet, got {new}")
    stream, origin = stored_stream(state)
    with open_stream(stream, state, secret=secret, witness=witness, origin=origin) as live:
        live.rotate_secret(read_secret(new, beside=new, create=True))
        tick = live.tick_number + 1
    default = Place.of(state, witness=witness).secret
    click.echo(f"from tick {tick} on the secret is the one in {new}; start the stream with it, or move it to {default}")


def _in_file(file: Path) -> tuple[Stream, datetime | None]:
    spec = load_spec(file)
    return spec.stream, spec.origin


_accept_rollback, _accept_lost_witness = accept_rollback, accept_lost_witness

COMMANDS = (status, verify_command, recover, rotate_secret)
