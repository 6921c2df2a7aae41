#!/usr/bin/env python3
"""Writes what bench/tables/NAME.py --print prints between the lines <!-- NAME --> and <!-- end --> of docs/convergence.md
and docs/ablations.md, and draws the plots (needs matplotlib)."""
import argparse
import re
import subprocess
import sys

from series import root

pages = [root / "docs" / f"{name}.md" for name in ("convergence", "ablations")]


def output(name, flag):
    command = [sys.executable, root / "bench" / "tables" / f"{name}.py", flag]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def block(match):
    output(match[1], "--plot")
    return f"<!-- {match[1]} -->\n{output(match[1], '--print')}\n<!-- end -->"


argparse.ArgumentParser(description=__doc__).parse_args()
for page in pages:
    page.write_text(re.sub(r"<!-- (\w+) -->\n(?:(?!<!-- ).*\n)*<!-- end -->", block, page.read_text()))
