"""What `make wheel` checks: what people install, in empty environments, without cargo.

`python -m tests.wheels FOLDER` takes a folder with one source distribution and the wheel that maturin built from it.
Both pass twine; the wheel passes abi3audit. Then, for each Python from 3.11 to 3.14 that is on this machine: an empty
environment, the wheel with its extra `plot`, an import from another folder, the Python of the README, and the demo with
its picture, without cargo on the path. In the first environment, which pip alone fills, the core is installed before
its extra: what it takes on the disk has a bar, and so have the seconds of CPU of all of it.
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.11", "3.12", "3.13", "3.14")
DEMO_TICKS = "12"
CPU_SECONDS = 60.0
"""What an install with pip, the README's lines and the demo may take together."""

CORE_MEGABYTES = 270.0
"""What `pip install pianissimo` may take, without the bytecode that pip makes of it: docs/decisions/0014."""

WITHOUT_CARGO = "/usr/bin:/bin"
_NOT_OURS = ("pip", "setuptools", "pkg_resources", "_distutils_hack", "distutils-precedence")
"""What an empty environment has by itself."""


def run(*command: str | Path, folder: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """What a command prints; its failure is ours."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env={**os.environ, **(env or {})},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{done.stdout}\n{' '.join(map(str, command))}: exit code {done.returncode}")
    return done.stdout


def interpreters() -> dict[str, str]:
    """By version, a Python that runs: on the path, or one of pyenv's."""
    found = {}
    for version in VERSIONS:
        on_path = filter(None, [shutil.which(f"python{version}")])
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        for candidate in (*on_path, *map(str, kept)):
            if subprocess.run([candidate, "-c", "import venv"], capture_output=True).returncode == 0:
                found[version] = candidate
                break
    return found


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(packages: Path) -> None:
    """Print what the core takes on the disk, and its largest parts; refuse it where it is above its bar."""
    sizes, bytecode = Counter[str](), 0
    for path in packages.rglob("*"):
        name = path.relative_to(packages).parts[0]
        if path.is_file() and not name.startswith(_NOT_OURS):
            size = path.stat().st_size
            is_compiled = path.suffix == ".pyc"
            bytecode += size * is_compiled
            sizes[name] += size * (not is_compiled)
    whole, largest = sizes.total() / 1e6, ", ".join(f"{name} {size / 1e6:.0f}" for name, size in sizes.most_common(6))
    made = f"with the bytecode that pip makes {whole + bytecode / 1e6:.0f} MB"
    print(f"pip install pianissimo: {whole:.0f} MB ({largest}); {made}", flush=True)
    if whole > CORE_MEGABYTES:
        raise SystemExit(f"the core must take at most {CORE_MEGABYTES:.0f} MB, got {whole:.0f}")


def readme_python() -> str:
    (block,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return str(block)


def use(python: Path, place: Path) -> None:
    """What a newcomer does, from another folder, without cargo."""
    elsewhere = place / "elsewhere"
    elsewhere.mkdir()
    env = {"PATH": f"{python.parent}:{WITHOUT_CARGO}", "PYTHONPATH": ""}
    imported = run(python, "-c", "import pianissimo; print(pianissimo.__file__)", folder=elsewhere, env=env)
    if str(place) not in imported:
        raise SystemExit(f"pianissimo must come from the wheel, got {imported}")
    run(python, "-W", "error", "-c", readme_python(), folder=elsewhere, env=env)
    run(python.parent / "pianissimo", "demo", "--ticks", DEMO_TICKS, "--out", "demo", folder=elsewhere, env=env)
    if not (elsewhere / "demo" / "estimates.png").read_bytes().startswith(b"\x89PNG"):
        raise SystemExit("the demo must leave a picture, got none")


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    tools = Path(sys.executable).parent
    run(tools / "twine", "check", "--strict", wheel, source)
    run(tools / "abi3audit", "--strict", wheel)
    pythons = interpreters()
    with tempfile.TemporaryDirectory() as temporary:
        for number, (version, interpreter) in enumerate(pythons.items()):
            before = cpu_of_children()
            place = Path(temporary) / version
            python = place / "venv" / "bin" / "python"
            run(interpreter, "-m", "venv", *([] if number == 0 else ["--without-pip"]), place / "venv")
            if number == 0:
                pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
                run(*pip, wheel, env={"PATH": WITHOUT_CARGO})
                measure(next(place.glob("venv/lib/python*/site-packages")))
                run(*pip, f"{wheel}[plot]", env={"PATH": WITHOUT_CARGO})
            else:
                run(tools / "uv", "pip", "install", "--quiet", "--python", python, f"{wheel}[plot]")
            use(python, place)
            seconds = cpu_of_children() - before
            print(f"Python {version}: installed, imported, README and demo run; {seconds:.0f} s of CPU", flush=True)
            if number == 0 and seconds > CPU_SECONDS:
                raise SystemExit(f"the first hour must begin within {CPU_SECONDS:.0f} s of CPU, got {seconds:.0f}")
    for version in sorted(set(VERSIONS) - set(pythons)):
        print(f"Python {version}: not on this machine, not tried")


if __name__ == "__main__":
    main()
