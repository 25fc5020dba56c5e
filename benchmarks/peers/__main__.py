"""Make an environment for each library, run the work in it, and write results.json and docs/peers.md.

    python -m benchmarks.peers FOLDER [NAME ..]

Environments that are there are used again, and results of libraries that are not named are kept.
"""

import datetime as dt
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "peers.md"
PACKAGES = {
    "opendp": ["opendp[polars]==0.16.0"],
    "diffprivlib": ["diffprivlib", "scikit-learn<1.6", "numpy<2.3"],
    "pipelinedp": ["pipeline-dp", "pandas"],
    "smartnoise": ["smartnoise-sql"],
    "tumult": ["tmlt.analytics", "setuptools"],
    "jax": ["jax", "jax-privacy"],
    "datasketches": ["datasketches", "numpy"],
}
TITLES = {
    "ours": "Pianissimo",
    "opendp": "OpenDP",
    "diffprivlib": "diffprivlib",
    "pipelinedp": "PipelineDP",
    "smartnoise": "SmartNoise SQL",
    "tumult": "Tumult Analytics",
    "jax": "jax-privacy",
    "datasketches": "datasketches",
}
_LONGEST = 1800


def measured(folder: Path, name: str) -> dict[str, Any]:
    """What the library does of the work, or why it is not there."""
    if name == "ours":
        return _run(Path(sys.executable), name)
    home = folder / name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES[name]]
    done = subprocess.run(install, capture_output=True, text=True, timeout=_LONGEST, check=False)
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["pip failed"])[-1][:200]}
    return _run(python, name)


def _run(python: Path, name: str) -> dict[str, Any]:
    top = HERE.parents[1]
    environment = {**os.environ, "PYTHONPATH": str(top / "src")} if name == "ours" else dict(os.environ)
    settings: dict[str, Any] = {"cwd": top, "env": environment, "timeout": _LONGEST}
    work = [str(python), "-m", "benchmarks.peers.work", name]
    done = subprocess.run(work, capture_output=True, text=True, check=False, **settings)
    lines = [line for line in done.stdout.splitlines() if line.startswith("@@")]
    if not lines:
        return {"missing": (done.stderr.strip().splitlines() or ["it said nothing"])[-1][:200]}
    return {"date": dt.datetime.now(dt.UTC).date().isoformat(), **json.loads(lines[-1].removeprefix("@@"))}


_HEAD = """# Beside other libraries

The same work by libraries that one can install, each in an environment of its own, at one promise for all: epsilon 1,
delta 1e-6, one event hidden. `python -m benchmarks.peers FOLDER` makes this page from what it measures. Others answer
once. What it would take them to answer again is measured here.

- **Running total for a year:** the standard error of a total that is fresh at each of 8,760 hours. Others can add up
  hours that share no event, each at the whole budget (*added up*: after the last hour), or ask for the total anew each
  hour at a share of the budget (*asked anew*: each time). Ours is the root mean square over all hours of ten runs.
- **One hour:** the standard error of one hour's count. Whoever needs single hours alone, and no totals, is better off
  with one count an hour, by any library.
- **Labels nobody listed, once,** and **each hour of a month:** 2,000 pages, 100,000 visits, a few pages with most of
  them: how many labels are shown, the share of visits that they hold, the standard error of their counts, CPU seconds
  (Spark's are not in it). Each hour of a month: others at the 720th part of the budget, by the best composition that
  they offer, once, over all visits; ours after 720 releases. Whoever asks once is better off with Laplace noise and a
  threshold, as OpenDP has them.
- **Heavy keys:** a million events of 100,000 keys, a list in Python, in a table of 384 counters: what is shown, as
  above. datasketches has no privacy, so nothing but the sketch is off; our bars hold the noise and the sketch.
- **Draws:** exact integer Gaussian noise, sigma about 20, a second of one core.

"""
_COLUMNS = (
    "library",
    "running total for a year",
    "one hour",
    "labels, once",
    "labels, each hour of a month",
    "heavy keys",
    "draws a second",
)
_HOW = """
## What each can hide, and how its row is made

Each needs its own environment, which the command makes where there is none. FOLDER is any folder.

| library | hides | installed with | measured by | measured on |
| --- | --- | --- | --- | --- |
"""


def page(results: dict[str, Any]) -> str:
    """The results as a page."""
    rows, made = [list(_COLUMNS), ["---"] * len(_COLUMNS)], ""
    for name, title in TITLES.items():
        found = results.get(name)
        if found is None:
            continue
        if "missing" in found:
            rows.append([title, f"*not measured: {found['missing']}*", "", "", "", "", ""])
            continue
        labels = [_labels(found.get(key)) for key in ("labels_once", "labels_hourly", "heavy")]
        hour, draws = (_number(found.get(key)) for key in ("hour", "draws_a_second"))
        rows.append([f"{title} {found['version']}", _running(found), hour, *labels, draws])
        packages = " ".join(f'"{each}"' if "<" in each or "[" in each else each for each in PACKAGES.get(name, ()))
        install, command = (
            f"pip install {packages}" if packages else "make build",
            f"python -m benchmarks.peers FOLDER {name}",
        )
        made += f"| {title} {found['version']} | {found['privacy']} | `{install}` | `{command}` | {found['date']} |\n"
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{_HEAD}{table}\n\nMeasured on virtual cores with other work on them: CPU seconds are sizes.\n{_HOW}{made}"


def _running(row: dict[str, Any]) -> str:
    parts = [
        f"{_number(row[key])} {words}".strip()
        for key, words in (("running", ""), ("added_up", "added up"), ("asked_anew", "asked anew"))
        if key in row
    ]
    return "; ".join(parts) or "-"


def _labels(row: dict[str, Any] | None) -> str:
    if row is None:
        return "-"
    if not row["shown"]:
        return f"none ({row['cpu']:.2g} s)"
    return f"{row['shown']:,}, {row['share']:.0%}, error {_number(row['error'])} ({row['cpu']:.2g} s)"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main(arguments: list[str]) -> int:
    folder, names = Path(arguments[0]), arguments[1:] or list(TITLES)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names:
        results[name] = measured(folder, name)
        print(name, results[name])
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
