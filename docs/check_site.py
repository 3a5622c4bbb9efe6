"""Checks the site that was built: every link leads somewhere, and no page loads anything from elsewhere."""

import pathlib
import urllib.parse
from html.parser import HTMLParser

LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}


class Page(HTMLParser):
    """What a page loads, what it links to, and the anchors that it has."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attributes}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.linked.append(found["href"])
        elif (attribute := LOADED.get(tag)) in found and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(found[attribute])


def problems(site: pathlib.Path) -> list[str]:
    """What is wrong, one sentence each."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html"))}
    wrong = []
    for path, page in pages.items():
        if path.name == "404.html":  # for servers, with absolute addresses
            continue
        here = path.relative_to(site)
        wrong += [f"{here} loads {url} from elsewhere." for url in page.loaded if urllib.parse.urlsplit(url).netloc]
        for url in (*page.linked, *page.loaded):
            parts = urllib.parse.urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            found = (path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else path
            if not found.is_file():
                wrong.append(f"{here} links to {url}, which does not exist.")
            elif parts.fragment and found in pages and parts.fragment not in pages[found].anchors:
                wrong.append(f"{here} links to {url}, but that page has no such anchor.")
    return wrong
