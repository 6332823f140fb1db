#!/usr/bin/env python3
"""Draws docs/measurements/bench.svg from bench.json and peers.json: what each operation costs beside the floor, here and
with another server of the protocol.

usage: plot.py [--check]

--check writes nothing, and fails if the plot is not that of the figures.
"""

import json
import math
import sys
from pathlib import Path

DIR = Path(__file__).resolve().parents[3] / "docs/measurements"
WIDTH, ROW, LEFT, RIGHT, TOP = 890, 40, 330, 70, 84
# Ratios at both ends of the scale, which is logarithmic.
LEAST, MOST = 0.1, 32
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
.page { fill: #ffffff; } .muted { fill: #59636e; } .bar { fill: #0b62c4; } .peer { fill: #8c959f; } .floor { stroke: #b35900; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } text { fill: #e6edf3; } .muted { fill: #9198a1; } .bar { fill: #58a6ff; } .peer { fill: #656c76; }
  .floor { stroke: #f0883e; }
}"""


def place(ratio):
    return LEFT + (WIDTH - LEFT - RIGHT) * math.log(ratio / LEAST) / math.log(MOST / LEAST)


def bar(kind, ratio, y):
    text = f'<text class="muted" x="{max(place(ratio), place(1) if abs(ratio - 1) < 0.3 else 0) + 8:.1f}" y="{y + 11}">{ratio:.2f}</text>'
    return f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{place(ratio) - LEFT:.1f}" height="13" rx="3"/>{text}'


def plot(ratios, peer):
    height = TOP + ROW * len(ratios) + 16
    floor = place(1)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"><title>{TITLE}</title>',
        f'<style>{STYLE}</style><rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="title" x="16" y="24">{TITLE}</text>',
        '<text class="muted" x="16" y="44">shorter is better, the scale is logarithmic</text>',
        '<rect class="bar" x="16" y="55" width="13" height="13" rx="3"/><text x="36" y="66">Kalends</text>',
        f'<rect class="peer" x="106" y="55" width="13" height="13" rx="3"/><text x="126" y="66">{peer["program"]}</text>',
        f'<text class="muted" x="{floor:.1f}" y="{TOP - 4}" text-anchor="middle">floor</text>',
    ]
    for number, (name, ratio) in enumerate(ratios.items()):
        y = TOP + ROW * number
        parts.append(f'<text x="{LEFT - 12}" y="{y + 24}" text-anchor="end">{NAMES[name]}</text>')
        both = name in peer["ratios"]
        parts.append(bar("bar", ratio, y + (5 if both else 13)))
        if both:
            parts.append(bar("peer", peer["ratios"][name], y + 21))
    parts.append(f'<path class="floor" d="M{floor:.1f} {TOP}V{height - 12}"/>')
    return "\n".join(parts + ["</svg>\n"])


ours, peers = (json.loads((DIR / name).read_text()) for name in ("bench.json", "peers.json"))
drawn = plot(ours["ratios"], peers["autopush-rs"])
file = DIR / "bench.svg"
if sys.argv[1:] == ["--check"]:
    if not file.exists() or file.read_text() != drawn:
        sys.exit(f"{file} is not the plot of bench.json and peers.json: run {sys.argv[0]}")
else:
    file.write_text(drawn)
