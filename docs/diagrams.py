"""Prepares the pages for mdBook while it builds them.

Links to files outside of docs/ become text, because the site has only docs/. Mermaid diagrams are drawn with graphviz, so
that readers need no script for them. The only one is that of the state machine, which `kalends dev states --format dot` prints too: KALENDS names the program.
"""

import json
import os
import re
import subprocess
import sys

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#]+)[^)]*\)")
MERMAID = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def states():
    dot = subprocess.run([os.environ["KALENDS"], "dev", "states", "--format", "dot"], check=True, capture_output=True)
    svg = subprocess.run(["dot", "-Tsvg"], input=dot.stdout, check=True, capture_output=True).stdout.decode()
    # Without the XML head. No line may be blank, because that ends the block of HTML.
    lines = svg[svg.index("<svg"):].splitlines()
    return '<div role="img" aria-label="The phases and the transitions between them">\n%s\n</div>' % "\n".join(filter(str.strip, lines))


def with_links_of_the_site(content, path):
    def replaced(link):
        target = os.path.normpath(os.path.join(os.path.dirname(path), link[2]))
        # mdBook writes a README as the index of its folder.
        return link[1] if target.startswith("..") else link[0].replace("README.md", "index.md")

    return LINK.sub(replaced, content)


def prepare(items):
    for chapter in (item["Chapter"] for item in items if "Chapter" in item):
        chapter["content"] = with_links_of_the_site(chapter["content"], chapter["path"] or "")
        if MERMAID.search(chapter["content"]):
            drawing = states()
            chapter["content"] = MERMAID.sub(lambda _: drawing, chapter["content"])
        prepare(chapter["sub_items"])


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
_, book = json.load(sys.stdin)
prepare(book.get("sections") or book.get("items"))
json.dump(book, sys.stdout)
