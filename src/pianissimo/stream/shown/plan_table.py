"""A plan as a person reads it: the promise, then a few lines a query, in words.

Explained, a paragraph for each query follows: mechanism, noise, theorem, and what did not win.
"""

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import TYPE_CHECKING, Any

from pianissimo.loss.losses import Unit
from pianissimo.queries import Query
from pianissimo.queries.mean import MEAN_OF
from pianissimo.queries.shared.expected import OPEN_HORIZON, Candidate, mebibytes, number_text
from pianissimo.queries.shared.label_query import WHEN_FIRST_HELD
from pianissimo.queries.shared.query import SHOWN_FOR_TOTALS
from pianissimo.stream.calendar import as_utc, moment_text

if TYPE_CHECKING:
    # Whoever makes a stream prints nothing yet: rich is a tenth of what making one takes.
    from rich.console import RenderableType
    from rich.text import Text

LEGEND_FACTS = ("kind", "error_about", "rounding", "words", "threshold", "range")
"""What of a query's part of a plan its tables are shown by, with the line below; see `told_rows` and `legends`."""

_FEW_CAPS = 3
"""Of how many further caps the error is told, beside that of the last."""

_TOLD_BYTES = 2**26
"""From how many bytes on a plan tells in words what is kept for windows."""

_AT_THE_CAP = "users who reach the cap"
_LESS_NOISE = (
    "Fewer users than that? There is less noise with people counted in place of events (kind users), fewer queries, a "
    "smaller cap (max_events_per_user), {more}a larger epsilon; see docs/how_to.md."
)
"""What is said below a plan that tells how many users it takes."""

OF_USE = 10
"""A number that is so many times its error is of use."""

_A_TENTH = "more than a tenth"
_LARGER_NUMBERS = (
    "Are your numbers smaller than that? They grow with a longer tick or window (per). There is less noise with fewer "
    "queries, listed labels (domain), a larger epsilon; see docs/how_to.md."
)
"""What is said below a plan about events that tells which numbers the error is too large for."""

_WEAK_DELTA = 1e-3
"""From which delta on a promise is said to be little."""

_IF_SO_MANY = re.compile(", if it is one of [0-9,]+ events")
"""Of means: for how many events a plan tells the error. The bars of a release are those of its own."""

_CUT_TO = re.compile(r"of values cut to (?P<low>\S+) \.\. (?P<high>\S*\d)")
_OF_ANY_SIGN = ("mean", "quantiles")
"""Kinds of queries whose answer near zero is an answer like any other."""

WATCHED = ("alarm", "trending")
"""Kinds of queries that report."""

FIRST_SEEN = ("distinct", "users")
"""Kinds of queries of which a window has what is first seen in it, and not all that is there."""

_USERS_OF_LABELS = "number of users of each "
_OF_LAST_TICKS = re.compile(
    f"( first seen)? in (each tick|the last [0-9]+ ticks)({WHEN_FIRST_HELD})?(, or since the period began)?"
)

_UP_TO_THE_CAP = re.compile(r"(up to the cap of )[0-9,.]+ a user")


def plan_tables(plan: dict[str, Any], *, explain: bool = False) -> "RenderableType":
    """The promise and the words of each query, of a plan given as plain data; with all the rest if it is to explain."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    parts: list[RenderableType] = [_promise(plan)]
    for query in plan["queries"]:
        first, *others = query["words"]
        parts += [Text(), Text(query["name"], "bold").append(f": {first}", "not bold")]
        parts += [Padding(Text(line), (0, 0, 0, 2)) for line in others]
    lines = [line for query in plan["queries"] for line in query["words"]]
    if any(_AT_THE_CAP in line for line in lines):
        more = "" if "period" in plan else 'a user\'s day (within = "1d"), '
        if plan["horizon"] >= OPEN_HORIZON and any(query["kind"] in WATCHED for query in plan["queries"]):
            more += "for alarms an end (horizon), "
        parts += [Text(), Text(_LESS_NOISE.format(more=more))]
    elif any(_A_TENTH in line for line in lines):
        parts += [Text(), Text(_LARGER_NUMBERS)]
    if explain:
        given = "epsilon {epsilon:g} and delta {delta:g}".format_map(plan["budget"])
        whose = f"neighbors: {hidden_unit(plan)} added or removed"
        parts += [Text(), Text(f"Of a budget of {given}; {whose}; by {plan['promise']['method']}.")]
        for query in plan["queries"]:
            parts += [Text(), *_details(query)]
    return Group(*parts)


def render_plan(plan: dict[str, Any], width: int = 120, *, explain: bool = False) -> str:
    """The same as text."""
    from rich.console import Console

    output = io.StringIO()
    Console(file=output, width=width, color_system=None).print(plan_tables(plan, explain=explain))
    return "\n".join(line.rstrip() for line in output.getvalue().splitlines()).rstrip()


def promise_text(plan: dict[str, Any]) -> str:
    """What is promised, of whom, for how long, and what is doubtful about it, as lines of text."""
    return _promise(plan).plain


def words_of(query: Query, chosen: Candidate, cap: dict[str, Any], weighed: Sequence[str] = ()) -> list[str]:
    """The error and what it is about; what is cut or hidden; what caps do; where it is much, what windows take."""
    error, about = chosen.expected_error, f"{query.about_in(chosen.mechanism)}{cap.get('counted', '')}"
    first = f"within {number_text(error.typical)}{query.error_unit} of the true {about}, {error.often}"
    threshold = query.thresholds(chosen.in_period)
    if threshold is not None:
        least, largest = (f"{each:,}" for each in threshold)
        some = "" if least == largest else f" ({largest} at some ticks)"
        of_users = query.watched and chosen.mechanism.guarantee.unit is not Unit.EVENT
        what = query.counted_unit if of_users or not query.watched else "events"
        in_all = "" if query.per is None else " in all"
        first += f"; {query.shown.format(query)} from about {least} {what}{in_all} on{some}"
    if query.every != 1:
        first += f"; published every {query.every} ticks"
    left_out = [*query.left_out(chosen), *([] if cap or not chosen.note else [chosen.note])]
    past = query.past_told(chosen)
    is_told = past is not None and (query.history is not None or (past["bytes"] or 0) >= _TOLD_BYTES)
    kept = _past_words(past) if past is not None and is_told else ""
    needed = _users_needed(query, error.typical, cap, threshold)
    capped = [_cap_words(cap), needed, *weighed]
    of_use = "" if needed else _of_use(query, error.typical)
    others = filter(None, ("; ".join(left_out), of_use, ". ".join(filter(None, capped)), kept))
    return [f"{first}.", *(f"{line[0].upper()}{line[1:]}." for line in others)]


def about_told(query: Mapping[str, Any], cap: float | None = None) -> str:
    """What the numbers of a query of a plan are about, at the cap of a release, where something is cut or rounded.

    >>> about_told({"error_about": "number of events, of events up to the cap of 16 a user"}, cap=64)
    'number of events, of events up to the cap of 64 a user'
    >>> about_told({"error_about": "sum of price, of values cut to 0 .. 600"})
    'sum of price, of values cut to 0 .. 600 (above 600 counts as 600, below 0 as 0)'
    """
    about, is_cut = about_numbers(query, cap)
    is_of_window = WHEN_FIRST_HELD in about or (query.get("kind") in FIRST_SEEN and "first seen in" in about)
    return about if is_cut or query.get("rounding") or SHOWN_FOR_TOTALS in about or is_of_window else ""


def in_window(query: Mapping[str, Any], when: str) -> dict[str, Any]:
    """The same part of a plan, about what some ticks added and not about a total.

    >>> in_window({"kind": "users", "error_about": "number of users"}, "in the last 7d")["error_about"]
    'number of users, first seen in the last 7d'
    """
    seen = "first seen " if query.get("kind") in FIRST_SEEN else ""
    about = _OF_LAST_TICKS.sub("", query["error_about"], count=1)
    held = WHEN_FIRST_HELD if about.startswith(_USERS_OF_LABELS) else ""
    return {**query, "error_about": f"{about}, {seen}{when}{held}"}


def about_numbers(query: Mapping[str, Any], cap: float | None = None) -> tuple[str, bool]:
    """The same whether anything is cut or not; and whether values or events are cut off.

    >>> about_numbers({"error_about": "number of events"})
    ('number of events', False)
    """
    about, rounding = _IF_SO_MANY.sub("", query["error_about"]), query.get("rounding", "").partition(";")[0]
    is_cut = bool(_CUT_TO.search(about) or _UP_TO_THE_CAP.search(about))
    about = _CUT_TO.sub(r"\g<0> (above \g<high> counts as \g<high>, below \g<low> as \g<low>)", about)
    if cap is not None:
        about = _UP_TO_THE_CAP.sub(rf"\g<1>{cap:,.15g} a user", about)
    return (f"{about}; values are rounded, {rounding}" if rounding else about), is_cut


def never_below_zero(query: Mapping[str, Any]) -> bool:
    """Whether what a query of a plan answers cannot be below zero: counts, and sums of values without a sign.

    >>> never_below_zero({"kind": "count"}), never_below_zero({"kind": "sum", "range": [-5, 5]})
    (True, False)
    """
    return query["kind"] not in _OF_ANY_SIGN and query.get("range", (0,))[0] >= 0


def _cap_words(cap: dict[str, Any]) -> str:
    if not cap:
        return ""
    errors = cap["errors"]
    later = [each for each in errors if each["cap"] > cap["at"]]
    told = _few(f"{number_text(each['typical'])} at {each['cap']:,.15g}" for each in later)
    shown = _few(f"{each['threshold']['least']:,} at {each['cap']:,.15g}" for each in later if "threshold" in each)
    raised = f"when the cap is raised the error is about {told}; " if told else ""
    raised += f"labels appear then from about {shown} on; " if shown else ""
    fewer = f"of the {cap['asked_for']} caps asked for, noise can be drawn for {len(errors)}; "
    return f"{raised}{fewer if len(errors) < cap['asked_for'] else ''}{cap['beyond']}"


def _users_needed(query: Query, error: float, cap: dict[str, Any], threshold: tuple[int, int] | None) -> str:
    """How many users at the cap there must be for an error of a tenth, and for a label to be shown."""
    most = query.most_added(cap["at"]) if cap else None
    if most is None:
        return ""
    shown = ""
    if threshold is not None:
        # A label appears by its number of events, whatever they sum to.
        fewest = math.ceil(threshold[0] / (cap["at"] if query.kind == "sum" else most))
        shown = f"; a label that fewer than {fewest:,} have stays hidden"
    needed = f"{math.ceil(OF_USE * error / most):,} {_AT_THE_CAP}, or more with less each"
    return f"For an error below a tenth it takes {needed}{shown}"


def _of_use(query: Query, error: float) -> str:
    """For which numbers, or how few events, an error is large: without it, nobody sees that an answer is of no use."""
    if query.watched:
        return ""
    if query.kind == "quantiles":
        return f"the error is {_A_TENTH} of all ranks for fewer than {number_text(OF_USE * error)} events"
    if query.kind == "mean":
        low, high = map(float, query.range)  # type: ignore[attr-defined]
        events = number_text(OF_USE * MEAN_OF * error / (high - low))
        return f"the error is {_A_TENTH} of the range for a mean of fewer than {events} events"
    return f"the error is {_A_TENTH} of any number below {number_text(OF_USE * error)}"


def _few(told: Iterable[str]) -> str:
    """The first of what is told of further caps, and the last."""
    every = list(told)
    if len(every) > _FEW_CAPS + 1:
        every[_FEW_CAPS:] = [f".. {every[-1]}"]
    return ", ".join(every)


def _past_words(past: dict[str, Any]) -> str:
    """How far back windows reach, and what is kept for them."""
    if not past["ticks"]:
        return "there are no windows of the past"
    before = f", and at {past['checkpoints']:,} checkpoints before" if past["checkpoints"] else ""
    size = f"{past['bytes_per_series']:,} bytes a label" if past["bytes"] is None else _size(past["bytes"])
    return f"windows begin at any of the last {past['ticks']:,} ticks{before}, which takes up to about {size}"


def _promise(plan: dict[str, Any]) -> "Text":
    from rich.text import Text

    promise = plan["promise"]
    epsilon, delta = f"{promise['epsilon']:.4g}", f"{promise['delta']:.2g}"
    if promise["method"] == "pure" and not any(query["guarantee"]["bad"] for query in plan["queries"]):
        what = f"pure differential privacy with epsilon {epsilon}"
        delta = f" (drawn noise is off its law, which adds a delta of {delta})"
    else:
        what, delta = f"differential privacy with epsilon {epsilon} and delta {delta}", ""
    whole = plan["budget"]["epsilon"]
    what += f" (of a budget of epsilon {whole:g})" if promise["epsilon"] < 0.99 * whole else ""
    text = Text(f"Stream {plan['stream']}: {what}, for all queries and ticks together{delta}.", "bold")
    is_open = plan["horizon"] >= OPEN_HORIZON
    ticks = "There is no end to its ticks" if is_open else f"It has {plan['horizon']:,} ticks"
    length = f", each of {plan['tick']}" if "tick" in plan else ""
    begin = f", from {_origin(plan)} on, by the clocks of {plan['time_zone']}" if "origin" in plan else ""
    booked = "; they are booked as 2^32" if is_open and not plan.get("reset") else ""
    text.append(f"\nIt hides {hidden_unit(plan)}.\n{ticks}{length}{begin}{booked}.", "not bold")
    text.append(_many_periods(plan.get("many_periods", ())), "not bold")
    for warning in plan["warnings"]:
        text.append(f"\nWarning: {warning}.", "bold")
    return text


def _origin(plan: Mapping[str, Any]) -> str:
    """When the first tick begins, by the clocks that cut ticks."""
    zone = plan["time_zone"]
    return f"{plan['origin']} (UTC)" if zone == "UTC" else moment_text(as_utc(plan["origin"]), zone)


def hidden_unit(plan: Mapping[str, Any]) -> str:
    """What a plan hides, in words."""
    if "period" in plan:
        length = f"of {plan['period']} ticks" if "starts" not in plan else f"of at most {plan['period']} ticks"
        return f"one user's events of one period {length}{_starts(plan)}"
    return "one user with all her events" if "user" in plan else "one event"


def _starts(plan: Mapping[str, Any]) -> str:
    """When periods begin, and what begins with them, in words."""
    starts = plan.get("starts")
    when = f" that begins at {starts}" if isinstance(starts, str) else f" (one begins with tick {starts})"
    return f"{'' if starts is None else when}{'; its statistics begin anew with each' if plan['reset'] else ''}"


def _many_periods(told: Sequence[dict[str, Any]]) -> str:
    """What who comes in several periods gets, in one line."""
    known = [each for each in told if each["epsilon"] is not None]
    from_on = (
        f"\nWho comes in {told[-1]['periods']} periods or more is promised nothing." if known != list(told) else ""
    )
    if not known:
        return from_on
    first, *others = (f"{each['periods']} periods with {_price(each)}" for each in known)
    more = "".join(f"; in {each.replace(' periods', '', 1)}" for each in others)
    weak = [each["periods"] for each in known if each["delta"] >= _WEAK_DELTA]
    little = f" From {weak[0]} on that is little: the delta is a chance that nothing holds." if weak else ""
    return f"\nWho comes in several periods is hidden: in {first}{more}.{little}{from_on}"


def _price(told: dict[str, Any]) -> str:
    """An epsilon in two decimals and a delta of two digits, both rounded up."""
    delta = Context(prec=2, rounding=ROUND_CEILING).create_decimal(repr(told["delta"]))
    return f"epsilon {math.ceil(told['epsilon'] * 100 - 1e-9) / 100:.2f}{f' and delta {delta:.2g}' if delta else ''}"


def _details(query: dict[str, Any]) -> "Iterator[RenderableType]":
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    yield Text(query["name"], "bold").append(f", {query['called']}: {query['mechanism']}", "not bold")
    lines = {
        "share": f"{query['share_of_budget']:.0%} of the budget",
        "noise": query["noise"] if query["noise"] != query["note"] else "",
        "memory": _memory(query),
        "windows": _past_words(query["history"]) if query.get("history") else "",
        "promise": _loss(query["guarantee"]),
        "by": query["guarantee"]["theorem"],
        "reason": query["reason"],
        "others": "; ".join(_other(other, query["mechanism"], query["note"]) for other in query["alternatives"]),
    }
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=8, style="dim")
    grid.add_column(overflow="fold")
    for name, text in lines.items():
        if text:
            grid.add_row(name, Text(text))
    yield Padding(grid, (0, 0, 0, 2))


def _other(other: dict[str, Any], chosen: str, own_note: str) -> str:
    """A mechanism that was not chosen; where it differs in its noise plan alone, by this."""
    kind, noise_plan = _split(other["mechanism"])
    name = noise_plan if kind == _split(chosen)[0] else other["mechanism"]
    error = other["expected_error"]
    words = [
        other["note"] if other["note"] != own_note else "",
        _size(other["memory"]) if "memory" in other else "",
    ]
    note = f" ({'; '.join(filter(None, words))})" if any(words) else ""
    return f"{name} ±{number_text(error['typical'])}, worst {number_text(error['largest'])}{note}"


def _loss(guarantee: dict[str, Any]) -> str:
    """What answering one query loses, in words: a pure epsilon, or a rho with the chance of showing a rare label."""
    if "charges" in guarantee:
        rare = f", and a chance of {guarantee['bad']:.2g} to show a key of one user" if guarantee["bad"] else ""
        return f"a race of scale {guarantee['scale']:.4g} with {guarantee['charges']} clocks a user{rare}"
    if "pure" in guarantee:
        parts = f"{guarantee['pure']:.4g} pure for the cap, and rho = {guarantee['rho']:.4g} at whole orders"
        return f"{parts}, once for all queries that share the cap"
    if "epsilon" in guarantee:
        told = f"{guarantee['epsilon']:.4g}-differential privacy"
        if guarantee["bad"]:
            return f"{told}, and a chance of {guarantee['bad']:.2g} to show a key of one event"
        return f"{told}, pure up to the distance of the drawn noise"
    rare = f", and a chance of {guarantee['bad']:.2g} to show a label of one event" if guarantee["bad"] else ""
    return f"approximate, rho = {guarantee['rho']:.4g} at whole orders{rare}"


def _size(size: int) -> str:
    """A size that may be a few bytes."""
    return f"{size:,} bytes" if size < 10_000 else mebibytes(size)


def _memory(query: dict[str, Any]) -> str:
    if query.get("memory") is None:
        return ""
    return f"about {mebibytes(query['memory'])} of the {mebibytes(query['allowed_memory'])} allowed"


def _split(mechanism: str) -> tuple[str, str]:
    """What a mechanism is and the noise plan it stands over, or twice its name."""
    kind, _, noise_plan = mechanism.rpartition(" over ")
    return kind or noise_plan, noise_plan
