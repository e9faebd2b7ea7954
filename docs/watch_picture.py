"""Make docs/figures/watch.webp: the page of a ring under attack, round by round.

    python docs/watch_picture.py        (or: make watch-picture)

Needs a Chromium on this machine.  The browser's clock is stopped and moved on from frame to frame,
so that the picture does not depend on how fast this machine is.
"""

import shutil
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import basil
from basil.watch.start import RUN, beside

OUT = Path(__file__).parent / "figures" / "watch.webp"
ROUNDS, FRAMES, MILLISECONDS = 30, 3, 230  # of a round; of a frame, as it is shown
PLAYED = 900  # milliseconds that the page takes for a round
WIDTH, BELOW = 1120, 20


def frames(url: str) -> list[Image.Image]:
    """The page while it plays the run."""
    program = shutil.which("chromium") or sys.exit("no Chromium: apt-get install chromium")
    found = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 900})
        page.goto(url)
        page.wait_for_function("document.getElementById('state').textContent === 'finished'")
        box = page.locator(".ring").bounding_box()
        assert box is not None
        height = round(box["y"] + box["height"]) + BELOW
        page.set_viewport_size({"width": WIDTH, "height": height})
        page.clock.install()
        page.clock.pause_at(page.evaluate("Date.now()") + 1000)
        page.click("#play")
        for _ in range(ROUNDS * FRAMES):
            page.clock.run_for(PLAYED / FRAMES)
            found.append(Image.open(BytesIO(page.screenshot())).convert("RGB"))
        browser.close()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "demo"
        basil.run("demo", out=run, set={"scheme.rounds": ROUNDS, "record.every": 1})
        with beside(run, RUN) as page:
            assert page.stdout is not None
            first, *others = frames(page.stdout.readline().strip())
    settings = {
        "duration": MILLISECONDS,
        "loop": 0,
        "quality": 60,
        "method": 4,
        "minimize_size": True,
    }
    first.save(OUT, save_all=True, append_images=others, **settings)
    print(f"{OUT}  {OUT.stat().st_size / 1e6:.2f} MB, {1 + len(others)} frames")


if __name__ == "__main__":
    main()
