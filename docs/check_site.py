#!/usr/bin/env python3
"""Checks the site in target/site after mdBook has built it: each link leads to a file, and nothing is loaded from elsewhere.

usage: check_site.py DIR
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# Elements whose addresses a browser loads by itself. Links (`a`) may lead elsewhere.
LOADED = {"script", "link", "img", "iframe", "source", "object", "image", "use"}
STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found, self.ids = [], set()

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name"):
                self.ids.add(value)
            if name in ("href", "src", "data", "xlink:href") and value and (tag in LOADED or tag == "a"):
                self.found.append((tag, value))


def check(site):
    pages = {}
    for page in site.rglob("*.html"):
        pages[page] = Links()
        pages[page].feed(page.read_text())
    for page, links in pages.items():
        # The page for unknown addresses is served at any depth, and print.html repeats the others.
        if page.name in ("404.html", "print.html"):
            continue
        for tag, link in links.found:
            yield from (f"{page}: {fault}" for fault in faults(site, pages, page, tag, link))
    for style in site.rglob("*.css"):
        for found in STYLE_URL.finditer(style.read_text()):
            yield from (f"{style}: {fault}" for fault in faults(site, pages, style, "link", found[1] or found[2]))


def faults(site, pages, page, tag, link):
    parts = urlsplit(link)
    if parts.scheme in ("data", "mailto", "javascript"):
        return
    if parts.scheme or parts.netloc:
        if tag in LOADED:
            yield f"{link} is loaded from elsewhere"
        return
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page.resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(site) or not target.exists():
        yield f"{link} does not exist"
    elif tag == "a" and parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        yield f"{link} has no such heading"


site = Path(sys.argv[1]).resolve()
found = list(check(site))
print("\n".join(found), file=sys.stderr, end="\n" if found else "")
sys.exit(1 if found else 0)
