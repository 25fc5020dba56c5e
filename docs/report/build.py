"""Build the report: a PDF, and the same text as a page.

    python docs/report/build.py [FOLDER]

It needs typst, which is among the tools for developers.
"""

import re
import sys
from pathlib import Path

import typst

HERE = Path(__file__).parent
SOURCE = HERE / "report.typ"
_STYLE = """<style>
body { max-width: 48rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.55 Georgia, serif }
body { color: #1d1d1f; background: #fff }
h1, h2, h3 { line-height: 1.25; font-family: system-ui, sans-serif } h2 { margin-top: 2.5rem }
code { font-size: .82em; overflow-wrap: anywhere } img { max-width: 100%; height: auto }
table { border-collapse: collapse; margin: 1rem auto }
td, th { padding: .25rem .6rem; vertical-align: top; border-bottom: 1px solid #e3e3e3 }
figure { margin: 1.5rem 0; overflow-x: auto } figcaption { font-size: .9em; color: #555 } math { overflow-x: auto }
math { font-family: "Cambria Math", "STIX Two Math", "Latin Modern Math", "DejaVu Math TeX Gyre", math }
@media (prefers-color-scheme: dark) {
body { color: #e8e8ea; background: #16171a } td, th { border-color: #3a3b40 }
a { color: #8ab4f8 } figcaption { color: #aaa } }
</style>"""
_IN_A_LINE = re.compile(r"<math>.*?</math>", re.DOTALL)
_BRACKET = re.compile(r"<mo>([()\[\]|⌊⌋⌈⌉])</mo>")


def build(folder: Path) -> tuple[Path, Path]:
    """Write report.pdf and report.html into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    printed, page = folder / "report.pdf", folder / "report.html"
    root = str(HERE.parents[1])
    typst.compile(str(SOURCE), output=str(printed), root=root, format="pdf")
    text = typst.compile(str(SOURCE), root=root, format="html", sys_inputs={"page": "yes"})
    styled = text.decode().replace("</head>", f"{_STYLE}</head>", 1)
    page.write_text(_IN_A_LINE.sub(_of_one_height, styled), encoding="utf-8")
    return printed, page


def _of_one_height(formula: re.Match[str]) -> str:
    """A formula within a line, whose brackets are not higher than the line."""
    return _BRACKET.sub(r'<mo stretchy="false">\1</mo>', formula[0])


if __name__ == "__main__":
    for made in build(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE.parents[1] / "target" / "report"):
        print(made)
