"""One picture of every report in the gallery: ``.venv-docs/bin/python website/gallery_pictures.py``.

Chromium without a window draws the reports (Debian: chromium and chromium-driver).
"""

from __future__ import annotations

import base64

import gallery_page
from serve_pictures import browser

IMAGES = gallery_page.SHELF.parent / "images" / "gallery"
WIDTH, MOST_HEIGHT, MARGIN = 1000, 620, 12
# The report of each picture, below docs/, and the section that says most about its run.
SECTIONS = {
    "pictures": ("examples/digit_scenes", "worst"),
    "emotions": ("gallery/emotions", "labels"),
    "newswire": ("gallery/newswire", "curves"),
    "codes": ("gallery/codes", "explanations"),
    "entities": ("gallery/entities", "worst"),
    "library": ("gallery/library", "worst"),
    "partial": ("gallery/partial", "mistakes"),
    "distillation": ("gallery/distillation", "thresholds"),
}
PLACE = "const box = document.getElementById(arguments[0]).getBoundingClientRect(); return [box.top + scrollY, box.height]"


def main() -> None:
    """Write the pictures into docs/images/gallery."""
    page = browser()
    try:
        IMAGES.mkdir(parents=True, exist_ok=True)
        size = {"width": WIDTH, "height": MOST_HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for name, (folder, section) in SECTIONS.items():
            page.get((gallery_page.SHELF.parent / folder / "report.html").as_uri())
            top, height = page.execute_script(PLACE, section)
            shown = {"x": 0, "y": top - MARGIN, "width": WIDTH, "height": min(height + 2 * MARGIN, MOST_HEIGHT), "scale": 1}
            found = page.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": shown})
            (IMAGES / f"{name}.png").write_bytes(base64.b64decode(found["data"]))
    finally:
        page.quit()


if __name__ == "__main__":
    main()
