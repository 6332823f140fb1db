#!/usr/bin/env python3
"""Draws docs/measurements/bench.svg from bench.json: what each operation costs beside the floor.

usage: plot.py [--check]

--check writes nothing, and fails if the plot is not that of the figures.
"""

import json
import sys
from pathlib import Path

DIR = Path(__file__).resolve().parents[3] / "docs/measurements"
WIDTH, ROW, LEFT, RIGHT, TOP = 890, 30, 330, 70, 64
# The figures of bench.json, by what they are compared with.
NAMES = {
    "direct_vapid": "direct push with VAPID, CPU",
    "direct": "direct push, CPU",
    "stored": "stored push, CPU",
    "drain": "drain of a stored message, CPU",
    "connect": "connect and hello, CPU",
    "connect_register": "connect, hello and register, CPU",
    "idle": "idle connection, memory",
    "feed_update": "update of a feed, CPU for each follower",
    "idle_follower": "idle follower of a feed, memory",
}
TITLE = "Cost of operations as a ratio to the floor"
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; } .title { font-size: 16px; font-weight: 600; }
.page { fill: #ffffff; } .muted { fill: #59636e; } .bar { fill: #0b62c4; } .floor { stroke: #b35900; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } text { fill: #e6edf3; } .muted { fill: #9198a1; } .bar { fill: #58a6ff; }
  .floor { stroke: #f0883e; }
}"""


def plot(ratios):
    height = TOP + ROW * len(ratios) + 16
    scale = (WIDTH - LEFT - RIGHT) / max(1, *ratios.values())
    floor = LEFT + scale
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{TITLE}</title>',
        f'<style>{STYLE}</style><rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="24">{TITLE}</text>',
        '<text class="muted" x="16" y="44">shorter is better</text>',
        f'<text class="muted" x="{floor:.1f}" y="{TOP - 6}" text-anchor="middle">floor</text>',
    ]
    for number, (name, ratio) in enumerate(ratios.items()):
        y = TOP + ROW * number
        parts.append(f'<text x="{LEFT - 12}" y="{y + 19}" text-anchor="end">{NAMES[name]}</text>')
        parts.append(f'<rect class="bar" x="{LEFT}" y="{y + 5}" width="{ratio * scale:.1f}" height="{ROW - 10}" rx="3"/>')
        end = max(LEFT + ratio * scale, floor if abs(ratio - 1) < 0.25 else 0)
        parts.append(f'<text x="{end + 8:.1f}" y="{y + 19}">{ratio:.2f}</text>')
    parts.append(f'<path class="floor" d="M{floor:.1f} {TOP}V{height - 12}"/>')
    return "\n".join(parts + ["</svg>\n"])


drawn = plot(json.loads((DIR / "bench.json").read_text())["ratios"])
file = DIR / "bench.svg"
if sys.argv[1:] == ["--check"]:
    if not file.exists() or file.read_text() != drawn:
        sys.exit(f"{file} is not the plot of bench.json: run {sys.argv[0]}")
else:
    file.write_text(drawn)
