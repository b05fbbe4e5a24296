"""Links from pages to files beside `docs/`: on the site they lead to the pages that include these files."""

from __future__ import annotations

import re
from typing import Any

#: Where a file of the repository is shown on the site, from the root of the pages.
SHOWN = {
    "CONTRIBUTING.md": "/project/contributing.md",
    "CHANGELOG.md": "/project/changes.md",
    "benchmarks/README.md": "/project/benchmarks.md",
}


def mend(app: Any, page: str, source: list[str]) -> None:
    """Point links to included files at the including page; anything else outside is shown as code."""
    up = "../" * (page.count("/") + 1)

    def mended(link: re.Match[str]) -> str:
        text, target = link.groups()
        if target in SHOWN:
            return f"[{text}]({SHOWN[target]})"
        return f"`{target}`" if target.endswith(text) else f"{text} (`{target}`)"

    source[0] = re.sub(rf"\[([^\]]*)\]\({re.escape(up)}([^)]*)\)", mended, source[0])


def setup(app: Any) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("source-read", mend)
    return {"parallel_read_safe": True}
