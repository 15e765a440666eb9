"""The links of the built site, checked without a network."""

from __future__ import annotations

import posixpath
from html.parser import HTMLParser
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser fetches on its own when it opens a page."""
NAMED = {"canonical", "prev", "next", "alternate"}
"""Relations of <link> that are not fetched."""


class Page(HTMLParser):
    """What one page links to, what it loads, and which places in it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """One element."""
        given = {name: value or "" for name, value in attrs}
        self.places.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        address = given.get(LOADED.get(tag, ""))
        if address is not None and given.get("rel") not in NAMED:
            self.loads.append(address)


def broken(site: Path) -> Iterator[str]:
    """One line for each link that leads nowhere, and each file that comes over the network."""
    pages = {
        path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
    }
    for name, page in pages.items():
        for address in page.loads:
            if urlsplit(address).netloc:
                yield f"{name} loads {address} over the network"
        for address in (*page.links, *page.loads):
            reason = _reason(site, pages, name, address)
            if reason:
                yield f"{name} links to {address}: {reason}"


def _reason(site: Path, pages: dict[str, Page], name: str, address: str) -> str | None:
    """Why a link leads nowhere; None if it is right, or leads to another site."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    path = unquote(parts.path)
    # The page that a server shows for any missing address has links from the root.
    folder = "" if path.startswith("/") else posixpath.dirname(name)
    target = posixpath.normpath(posixpath.join(folder, path.lstrip("/"))) if path else name
    if (site / target).is_dir():
        target = posixpath.normpath(posixpath.join(target, "index.html"))
    if not (site / target).is_file():
        return "there is no such file"
    place = unquote(parts.fragment)
    if place and target in pages and place not in pages[target].places:
        return "there is no such place in the page"
    return None
