"""Draw docs/images/page.png: the page of the demo's pharmacies in a browser, as `make dashboard` shows it.

    python docs/figures/draw_page.py [FILE]

It needs playwright and chromium, which the tests need too. The events are made up; the noise is new in every picture.
"""

import sys
import threading
from pathlib import Path

from playwright.sync_api import sync_playwright

from pianissimo.demo.live_page import live_page

_CHROMIUM = "/usr/bin/chromium"
_FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
_TICKS, _BEGUN, _SHOWN = 240, 150, 168
_IS_DRAWN = f"() => parseInt(document.querySelector('.status strong')?.textContent) >= {_SHOWN}"
_ALL_ALIKE = """() => {
  const tick = parseInt(document.querySelector('.status strong').textContent);
  return document.body.innerText.split(`ticks ${tick - 5} to ${tick}`).length > 2;
}"""
_PATIENCE = 120_000
_WIDTH, _HEIGHT = 1360, 760


def main(picture: Path) -> None:
    """Release some days of the pharmacies, the last of them by the clock, and look at them while it runs."""
    stop = threading.Event()
    with live_page(_TICKS, 1, "127.0.0.1", 0, over=_BEGUN) as demo, sync_playwright() as play:
        ticking = threading.Thread(target=demo.run, args=(stop,), daemon=True)
        ticking.start()
        browser = play.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        page = browser.new_page(viewport={"width": _WIDTH, "height": _HEIGHT}, color_scheme="light")
        page.goto(f"{demo.address}#/pharmacy?window=6&ticks=168&label.drugs=oseltamivir")
        page.wait_for_function(_IS_DRAWN, timeout=_PATIENCE)
        stop.set()  # so that all cards come to show the same tick
        page.wait_for_function(_ALL_ALIKE, timeout=_PATIENCE)
        page.wait_for_selector(".picked .chart .band, .picked .chart .dot")
        page.wait_for_selector(".link-state.live")
        page.screenshot(path=picture)
        browser.close()
        ticking.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1] / "images" / "page.png")
