"""Commands that look at a durable stream, bring it back and give out its keys, such as `status` and `recover`."""

from dataclasses import asdict
from pathlib import Path

import click

from pianissimo.cli import (
    PATH,
    echo_json,
    json_option,
    ledger_key_option,
    ledger_option,
    secret_option,
    show_refused_option,
    state_argument,
    witness_option,
)

_MEANING = {
    "incarnation": "(the random name of this life of the stream; its noise is bound to it)",
    "incarnations": "(lives so far; `recover` begins a new one)",
    "sealed_tick": "(events up to here are stored for good)",
    "visible_tick": "(readers and sinks may have seen releases up to here)",
    "witnessed_tick": "(the witness file has seen this one)",
    "last_tick": "(the end of the horizon)",
    "snapshot_tick": "(a start counts what came after it again)",
    "removed_tick": "(retention removed ticks up to here)",
    "key_epoch": "(how often the secret was rotated)",
    "key_id": "(tells secrets apart; it says nothing of the secret)",
    "lease_epoch": "(how often a process took the stream, to write it alone)",
    "lease_owner": "(the last process that did)",
    "finished": "(whether the last run released all that its file asks for)",
    "lag": "(ticks that are over by the clock and not released; none where no clock cuts them)",
}
"""What `status` says of its fields."""


def _word(value: object) -> object:
    return "none" if value is None else ("yes" if value else "no") if isinstance(value, bool) else value


@click.command()
@state_argument
@witness_option
@show_refused_option
@json_option
def status(*, state: str, witness: Path | None, show_refused: bool, as_json: bool) -> None:
    """Show where the stream in DIR stands: ticks, sinks, and the process that runs it.

    No data are shown, unless the owner asks for refused rows.
    """
    from pianissimo.cli.render import console, facts, silence
    from pianissimo.io.inspect import read_status

    found = asdict(read_status(state, witness=witness, show_refused=show_refused))
    if as_json:
        echo_json(found, indent=2)
        return
    sinks, exhausted, refused = found.pop("sinks"), found.pop("exhausted"), found.pop("refused") or {}
    lines = {name: f"{_word(value)}  {_MEANING[name]}" if name in _MEANING else value for name, value in found.items()}
    lines |= {
        f"sink {name}": f"has ticks up to {each['last_tick']}, lacks {each['undelivered']}"
        for name, each in sinks.items()
    }
    lines |= {f"silence of {name}": f"means {silence(most)}" for name, most in exhausted.items()}
    lines |= {f"refused {place}": f"{count:,} rows: {why}" for place, (why, count) in enumerate(refused.items(), 1)}
    console().print(facts(lines))


@click.command()
@state_argument
@secret_option
@witness_option
@click.option("--out", type=PATH, help="A folder of releases that is compared with what is stored.")
@json_option
def verify(*, state: str, secret: str | None, witness: Path | None, out: Path | None, as_json: bool) -> None:
    """Check the stream in DIR: every record, its ledger and its witness. Its last releases are made again.

    Nothing is written. The exit code is 3 if something is not as it was written; the message says what it is.
    """
    from pianissimo.cli.render import progress_bar
    from pianissimo.io import inspect

    with progress_bar("seals", hidden=as_json) as progress:
        asked = inspect.stored_request(state)
        found = inspect.verify(asked, state, secret=secret, witness=witness, progress=progress)
    if out is not None:
        inspect.verify_folder(state, out)
    if as_json:
        echo_json({"verified": True, **asdict(found)})
        return
    same = "computed again from what is sealed, with the same result"
    again = {
        0: "the last state was just stored, so no release had to be computed again",
        1: f"the last release was {same}",
    }.get(found.derived, f"the last {found.derived} releases were {same}")
    click.echo(f"verified: {found.seals} seals and {found.releases} releases are as they were written; {again}")
    if found.windows_from is not None:
        click.echo(
            f"note: there are no checkpoints before tick {found.windows_from}, so no window begins there: an earlier "
            "version began the stream, or they are gone"
        )
    if found.removed:
        click.echo(
            f"retention removed {found.removed} ticks before: their digests are whole and in order; what they released "
            "can no longer be checked"
        )


@click.command()
@state_argument
@secret_option
@witness_option
@click.option(
    "--accept-rollback",
    is_flag=True,
    help="The store is older than its witness, or it is gone, and no newer one exists. Go on after the last tick that "
    "the witness has seen.",
)
@click.option(
    "--accept-lost-witness",
    is_flag=True,
    help="The witness is gone for good. Go on with a new one; the stream is charged once more.",
)
@click.option(
    "--old-secret",
    metavar="PATH|env:NAME|command:WORDS",
    help="The secret that the restored store had. Give it if the secret was rotated since that store was copied.",
)
@click.option("--file", type=PATH, help="The stream file. Give it if the store itself is gone.")
@click.option(
    "--out", type=PATH, help="A folder that got releases. Give it: it may hold later ticks than the store does."
)
@ledger_option
@ledger_key_option
@json_option
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
    """Accept that something is lost, if the stream in DIR refuses to start because of it.

    First try to bring back what is missing: the newest store, or the witness. Use this command only if it is gone for
    good.

    The stream then begins a new life after the last tick that anybody may have seen, and its noise is new. Earlier
    releases stay. Totals begin anew: they count the events after the last tick of which it is known where it was read
    to. Every release says which tick that is ("since").

    The new life is charged to the budget once more, because events may be shown a second time. One case is free: the
    unit is the event, and the store is older than a witness that is whole.
    """
    from pianissimo.durable import recover as recovery
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import wire
    from pianissimo.durable.start import Request
    from pianissimo.io import last_tick, read_plan
    from pianissimo.io.inspect import stored_request
    from pianissimo.stream.spec import load_spec

    if accept_rollback == accept_lost_witness:
        raise click.UsageError("one of --accept-rollback and --accept-lost-witness must be given")
    if file is None:
        request = stored_request(state)
    else:
        spec = load_spec(file)
        request = Request(spec.stream)
        ledger, ledger_key = ledger or spec.ledger.place, ledger_key or spec.ledger.key
    wiring = wire(state, secret=secret, witness=witness, ledger=ledger, ledger_key=ledger_key)
    if out is not None:
        read_plan(out)  # a folder that holds no releases would say that nothing was shown
    shown = 0 if out is None else last_tick(out)
    if accept_lost_witness:
        done = recovery.accept_lost_witness(request, wiring, shown=shown)
    else:
        earlier = None if old_secret is None else read_secret(old_secret, beside=Path(old_secret), create=False)
        done = recovery.accept_rollback(request, wiring, shown=shown, old_secret=earlier)
    if as_json:
        echo_json(asdict(done))
        return
    charge = "it was charged anew" if done.charged else "the charge that was made covers it"
    click.echo(
        f"a new life begins after tick {done.last_tick}; {done.lost} released ticks are not in this store; {charge}\n"
        f"totals begin anew: they count the events after tick {done.since}"
    )


@click.command("rotate-secret")
@state_argument
@secret_option
@witness_option
@click.option("--new", metavar="PATH", required=True, type=PATH, help="The file that is made for the new secret.")
def rotate_secret(*, state: str, secret: str | None, witness: Path | None, new: Path) -> None:
    """Give the stream in DIR a new secret, which holds from the next tick on.

    The new secret is written to a file of its own. Start the stream with it from then on. What was sealed before needs
    the old secrets: they stay in the store, encrypted under the new one.
    """
    from pianissimo.durable.durable_stream import open_stream
    from pianissimo.durable.key_ring import read_secret
    from pianissimo.durable.place import Place
    from pianissimo.io.inspect import stored_request
    from pianissimo.storage.files import check_key_path

    check_key_path("--new", new)
    if new.exists():
        raise click.UsageError(f"--new must be a file that is not there yet, got {new}")
    asked = stored_request(state)
    with open_stream(asked.stream, state, secret=secret, witness=witness) as live:
        live.rotate_secret(read_secret(new, beside=new, create=True))
        tick = live.tick_number + 1
    default = Place.of(state, witness=witness).secret
    click.echo(f"from tick {tick} on the secret is the one in {new}; start the stream with it, or move it to {default}")


@click.command("names-key")
@state_argument
@secret_option
@click.option("--out", metavar="PATH", required=True, type=PATH, help="The file that is made for the names key.")
def names_key(*, state: str, secret: str | None, out: Path) -> None:
    """Write the names key of the stream in DIR to a file of its own, for those who gather users elsewhere.

    From it users and distinct values have their names. No noise can be made of it, and the secret cannot be found from
    it; whoever has it and the data can tell who is who. It stays the same when the secret is rotated.
    """
    from pianissimo.durable.start import write_names_key

    write_names_key(state, secret, out)
    click.echo(f"the names key is in {out}; give it to those who gather, as names = 'env:NAME' or a path")


@click.command("shards-key")
@state_argument
@secret_option
@click.option("--out", metavar="PATH", required=True, type=PATH, help="The file that is made for the shards key.")
def shards_key(*, state: str, secret: str | None, out: Path) -> None:
    """Write the shards key of the stream in DIR to a file of its own, for executors that have its shards.

    It opens the keys of shards that come with what executors are asked, of the shards they are asked about. No key
    and no noise follow from it alone. Guard it as the secret: with it, what the driver sends can be opened.
    """
    from pianissimo.durable.start import write_shards_key

    write_shards_key(state, secret, out)
    click.echo(f"the shards key is in {out}; give it to those who have shards, as shards = 'env:NAME' or a path")
