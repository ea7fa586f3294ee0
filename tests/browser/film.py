"""The README's film: `make film` plays the tour in the real app and writes docs/images/tour.webp.

It is what a newcomer sees, from the empty page on, at the speed of the tour. A still picture is kept once, for as long
as it stood.
"""

import io
import sys
import time

from PIL import Image
from playwright.sync_api import Page, ViewportSize, sync_playwright

from pages.components.tour.drive import STOPS
from tests.browser.find_chromium import ABSENT, FLAGS, find_chromium
from tests.browser.serving import IMAGES, app_for_pictures

FILE = IMAGES / "tour.webp"
SIZE = ViewportSize(width=1280, height=720)
SHOWN = (960, 540)
PICTURE_MS = 250
QUALITY = 60
SETTLED_MS = 3000  # until the first picture, so that it is of a page that is all there
BEFORE_S, AFTER_S = 2.0, 6.0
MOST_S = 240
MOST_BYTES = 2_000_000


class Film:
    """Pictures, each with the time in ms for which it stood."""

    def __init__(self) -> None:
        self.pictures: list[Image.Image] = []
        self.stood_ms: list[int] = []
        self._last = b""

    def take(self, page: Page) -> None:
        """Takes one picture, and waits until the next is due."""
        begun = time.monotonic()
        taken = page.screenshot(type="png")
        page.wait_for_timeout(max(0, PICTURE_MS - (time.monotonic() - begun) * 1000))
        took_ms = round((time.monotonic() - begun) * 1000)
        if taken == self._last:
            self.stood_ms[-1] += took_ms
            return
        self._last = taken
        self.pictures.append(Image.open(io.BytesIO(taken)).convert("RGB").resize(SHOWN, Image.Resampling.LANCZOS))
        self.stood_ms.append(took_ms)

    def take_for(self, page: Page, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.take(page)

    def save(self) -> None:
        first, *others = self.pictures
        first.save(FILE, save_all=True, append_images=others, duration=self.stood_ms, loop=0, quality=QUALITY, method=6)


def _play(page: Page, film: Film) -> bool:
    """Takes the tour. Returns whether it came to its last stop."""
    button = page.get_by_role("button", name="Take the 60-second tour")
    button.wait_for()
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(SETTLED_MS)
    film.take_for(page, BEFORE_S)
    button.click()
    last = page.locator(f'.st-key-tour-strip .strip[data-stop="{STOPS[-1].name}"]')
    until = time.monotonic() + MOST_S
    while time.monotonic() < until:
        film.take(page)
        if last.count():
            film.take_for(page, AFTER_S)
            return True
    return False


def main() -> int:
    chromium = find_chromium()
    if chromium is None:
        print(ABSENT, file=sys.stderr)
        return 1
    IMAGES.mkdir(parents=True, exist_ok=True)
    film = Film()
    with app_for_pictures() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=list(FLAGS))
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(url)
        whole = _play(page, film)
    if not whole:
        print(f"error: the tour did not come to its end within {MOST_S} s", file=sys.stderr)
        return 1
    film.save()
    size = FILE.stat().st_size
    seconds = sum(film.stood_ms) / 1000
    print(f"wrote {FILE}: {size / 1e6:.2f} MB, {len(film.pictures)} pictures, {seconds:.0f} s")
    if size > MOST_BYTES:
        print(f"error: the film is larger than {MOST_BYTES / 1e6:.0f} MB", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
