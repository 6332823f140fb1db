#!/usr/bin/env python3
"""Adds runs of `idle --json` to docs/measurements/idle.json, draws its plots and writes the table of docs/capacity.md.

usage: plot.py [RUN.json ...]

A run replaces one with the same number of agents and the same date. Plots and table have the newest run of each number.
"""

import json
import math
import sys
from datetime import datetime, timezone
from pathlib import Path

DIR = Path(__file__).resolve().parents[3] / "docs/measurements"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 890, 400, 64, 300, 56, 48
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; } .title { font-size: 16px; font-weight: 600; }
.page { fill: #ffffff; } .muted { fill: #59636e; } .grid { stroke: #d1d9e0; }
.line { fill: none; stroke-width: 2.2; } .band { opacity: .16; }
.s0 { stroke: #0b62c4; } .f0 { fill: #0b62c4; } .s1 { stroke: #b35900; } .f1 { fill: #b35900; }
.s2 { stroke: #1a7f37; } .f2 { fill: #1a7f37; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; } text { fill: #e6edf3; }
  .muted { fill: #9198a1; } .grid { stroke: #3d444d; } .band { opacity: .28; }
  .s0 { stroke: #58a6ff; } .f0 { fill: #58a6ff; } .s1 { stroke: #f0883e; } .f1 { fill: #f0883e; }
  .s2 { stroke: #3fb950; } .f2 { fill: #3fb950; }
}"""


def main():
    file = DIR / "idle.json"
    runs = checked(file, read(file)) if file.exists() else []
    for name in sys.argv[1:]:
        runs += checked(name, [read(Path(name))])
    if not runs:
        sys.exit(f"{file} has no run: name a file of `idle --json`")
    by_key = {(run["agents"], date(run)): run for run in runs}
    runs = [by_key[key] for key in sorted(by_key)]
    DIR.mkdir(parents=True, exist_ok=True)
    file.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")
    newest = list({run["agents"]: run for run in runs}.values())
    for name, draw in [("memory", memory), ("connects", connects), ("latency", latency)]:
        (DIR / f"idle-{name}.svg").write_text(draw(newest))
    page = DIR.parent / "capacity.md"
    head, rest = page.read_text().split("<!-- figures -->\n")
    rest = rest.split("<!-- /figures -->")[1]
    page.write_text(f"{head}<!-- figures -->\n\n{table(newest)}\n<!-- /figures -->{rest}")


def read(file):
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{file} cannot be read: {error}: nothing was drawn")


def checked(file, runs):
    """The runs of a file, if each has all figures."""
    for number, run in enumerate(runs, 1):
        try:
            date(run)
            for draw in (table, memory, connects, latency):
                draw([run])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            sys.exit(f"run {number} of {file} is none of `idle --json`: {error!r}: nothing was drawn")
    return runs


def date(run):
    return datetime.fromtimestamp(run["measured_at_unix_s"], timezone.utc).date().isoformat()


def table(runs):
    def percentiles(durations):
        return " / ".join(f"{durations[name]:.1f}" for name in ("p50", "p99", "p999"))

    def after_first(name):
        """Memory for each agent after the first ones. Older runs have none, and null was not measurable."""

        def value(run):
            if "first_memory" not in run["accepting"]:
                return "-"
            return measured(run["each"][name])

        return value

    def measured(value, digits=1):
        return "not measurable" if value is None else f"{value:.{digits}f}"

    def pinged(run):
        return measured(run["each"]["pinged_cpu_ms_per_hour"], 2) if run["idle"]["ping_s"] else "-"

    rows = [
        ("agents", lambda run: f"{run['agents']:,}"),
        ("---", lambda run: "---"),
        ("all accepted, s", lambda run: f"{run['accepting']['seconds']:.1f}"),
        ("CPU of connect, hello and register, µs", lambda run: f"{run['each']['accept_cpu_us']:.0f}"),
        ("server without agents, MiB", lambda run: f"{run['before']['server_kib'] / 1024:.0f}"),
        ("server with all, MiB", lambda run: f"{run['idle']['memory']['server_kib'] / 1024:.0f}"),
        ("agents that connect first", lambda run: f"{run['accepting'].get('first_agents', 0):,}"),
        ("server, KiB each after these", after_first("server_kib")),
        ("kernel, both ends, KiB each after these", after_first("kernel_kib")),
        ("agents' process, KiB each after these", after_first("agent_kib")),
        ("CPU of an idle agent, ms an hour", lambda run: measured(run["each"]["idle_cpu_ms_per_hour"], 2)),
        ("the same with pings, ms", pinged),
        ("interval of pings, s; 0 is none", lambda run: str(run["idle"]["ping_s"])),
        ("CPU of a push, µs", lambda run: f"{run['pushes']['cpu_s'] * 1e6 / max(run['pushes']['sent'], 1):.0f}"),
        ("POST to 201, p50 / p99 / p999, ms", lambda run: percentiles(run["pushes"]["to_201_ms"])),
        ("POST to frame, p50 / p99 / p999, ms", lambda run: percentiles(run["pushes"]["to_frame_ms"])),
        ("SIGTERM to the end of the process, s", lambda run: f"{run['restart']['stop_s']:.1f}"),
        ("all back, s", lambda run: f"{run['restart']['back_s']:.1f}"),
        ("CPU of each return, µs", lambda run: f"{run['each']['back_cpu_us']:.0f}"),
    ]
    return "".join(f"| {name} | {' | '.join(map(value, runs))} |\n" for name, value in rows)


def memory(runs):
    idle = [(run["agents"], run["before"], run["idle"]["memory"]) for run in runs]

    def grown(*names):
        return [(x, sum(after[name] - before[name] for name in names) / 1024) for x, before, after in idle]

    server = [(x, after["server_kib"] / 1024) for x, _, after in idle]
    kernel, agents = grown("slab_kib", "tcp_kib"), grown("agents_kib")
    lines = [("server, all of it", server), ("kernel, both ends", kernel), ("agents' process", agents)]
    return plot("Memory by idle connections", "MiB", runs, lines)


def connects(runs):
    accepted = [(run["agents"], run["accepting"]["seconds"]) for run in runs]
    back = [(run["agents"], run["restart"]["back_s"]) for run in runs]
    stop = [(run["agents"], run["restart"]["stop_s"]) for run in runs]
    lines = [("all registered", accepted), ("all back", back), ("SIGTERM to the end", stop)]
    return plot("Time for all agents to connect, and to return after a restart", "seconds", runs, lines)


def latency(runs):
    percentiles = ("p50", "p99", "p999")
    frames = [[(run["agents"], run["pushes"]["to_frame_ms"][name]) for run in runs] for name in percentiles]
    lines = [("to frame: p50", frames[0]), ("p99", frames[1]), ("p999", frames[2])]
    title = f"Direct pushes at {runs[-1]['pushes_per_second']:,} a second: POST to frame"
    return plot(title, "ms", runs, lines, list(zip(frames, frames[1:])))


def plot(title, unit, runs, lines, bands=()):
    """Lines over the number of agents, both axes logarithmic. Values that are not above zero have no point."""
    left_out = [sum(y <= 0 for _, y in points) for _, points in lines]
    lines = [(name, [point for point in points if point[1] > 0]) for name, points in lines]
    bands = [[[point for point in points if point[1] > 0] for points in band] for band in bands]
    xs, ys = zip(*[point for _, points in lines for point in points] or [(runs[0]["agents"], 1)])
    low = math.floor(math.log10(min(ys)))
    high = max(math.ceil(math.log10(max(ys))), low + 1)
    y_of = axis(10**low, 10**high, HEIGHT - BOTTOM, TOP)
    x_of = axis(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    machines = sorted({"{cores} cores, {memory_mib} MiB, Linux {kernel}".format(**run["machine"]) for run in runs})
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"><title>{title}</title>',
        f'<style>{STYLE}</style><rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="16" y="24">{title}</text>',
        f'<text class="muted" x="16" y="44">{unit}, logarithmic; {"; ".join(machines)}</text>',
    ]
    for y in [10**power for power in range(low, high + 1)]:
        parts.append(f'<path class="grid" d="M{LEFT} {y_of(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="muted" x="{LEFT - 8}" y="{y_of(y) + 4:.1f}" text-anchor="end">{y:,g}</text>')
    for x in sorted(set(xs)):
        parts.append(f'<text class="muted" x="{x_of(x):.1f}" y="{HEIGHT - 26}" text-anchor="middle">{x:,.0f}</text>')
    x, y = (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8
    parts.append(f'<text x="{x}" y="{y}" text-anchor="middle">connections, logarithmic</text>')
    for number, (lower, upper) in enumerate(bands):
        corners = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in lower + upper[::-1])
        parts.append(f'<polygon class="band f{number + 1}" points="{corners}"/>')
    label_ys = apart([y_of(points[-1][1]) if points else TOP for _, points in lines])
    for number, ((name, points), label_y) in enumerate(zip(lines, label_ys)):
        corners = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y in points)
        parts.append(f'<polyline class="line s{number}" points="{corners}"/>')
        parts += [f'<circle class="f{number}" cx="{x_of(x):.1f}" cy="{y_of(y):.1f}" r="3.5"/>' for x, y in points]
        last = f", {points[-1][1]:,.3g}" if points else ""
        last += f" ({left_out[number]} not above 0)" if left_out[number] else ""
        parts.append(f'<text class="f{number}" x="{WIDTH - RIGHT + 12}" y="{label_y + 4:.1f}">{name}{last}</text>')
    return "\n".join(parts + ["</svg>\n"])


def axis(low, high, start, end):
    """The position of a value between two ends; the start if there is only one value."""
    span = math.log10(high / low) or 1
    return lambda value: start + (end - start) * math.log10(value / low) / span


def apart(ys, gap=18):
    """The positions of labels: near their lines, in their order, and not over each other."""
    placed, order = list(ys), sorted(range(len(ys)), key=lambda at: ys[at])
    for above, below in zip(order, order[1:]):
        placed[below] = max(placed[below], placed[above] + gap)
    return placed


main()
