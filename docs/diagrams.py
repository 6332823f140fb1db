"""Draws the mermaid diagrams of a book while mdBook builds it, with graphviz: readers need no script for them.

The only one is that of the state machine, which `kalends dev states --format dot` prints too: KALENDS names the program.
"""

import json
import os
import re
import subprocess
import sys

MERMAID = re.compile(r"```mermaid\n.*?```", re.DOTALL)


def states():
    dot = subprocess.run([os.environ["KALENDS"], "dev", "states", "--format", "dot"], check=True, capture_output=True)
    svg = subprocess.run(["dot", "-Tsvg"], input=dot.stdout, check=True, capture_output=True).stdout.decode()
    # Without the XML head. No line may be blank, because that ends the block of HTML.
    lines = svg[svg.index("<svg"):].splitlines()
    return '<div role="img" aria-label="The phases and the transitions between them">\n%s\n</div>' % "\n".join(filter(str.strip, lines))


def draw(items):
    for chapter in (item["Chapter"] for item in items if "Chapter" in item):
        if MERMAID.search(chapter["content"]):
            drawing = states()
            chapter["content"] = MERMAID.sub(lambda _: drawing, chapter["content"])
        draw(chapter["sub_items"])


if sys.argv[1:2] == ["supports"]:
    sys.exit(0)
_, book = json.load(sys.stdin)
draw(book.get("sections") or book.get("items"))
json.dump(book, sys.stdout)
