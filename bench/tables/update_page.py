#!/usr/bin/env python3
"""Writes the output of bench/tables/NAME.py --print between the lines <!-- NAME --> and <!-- end --> of
docs/convergence.md and docs/ablations.md, and draws the plots (needs matplotlib).

  update_page.py [--no-plots]        writes the pages, and the plots
  update_page.py --check PROGRAMS    writes and trains nothing. Ends with an error unless:
                                     - the pages have exactly these tables, each table names its script, and a page
                                       names each script;
                                     - rows have the commands of the scripts, which the programs in PROGRAMS accept;
                                     - all files that docs/papers.md names exist, and it names all folders of configs.
  --only NAME                        only this table
"""
import argparse
import csv
import pathlib
import re
import subprocess
import sys

from series import refusals, root

scripts = root / "bench" / "tables"
PAGES = ("convergence.md", "ablations.md")
BLOCK = re.compile(r"<!-- (\w+) -->\n((?:(?!<!-- ).*\n)*)<!-- end -->")
NO_TABLES = {"series", "methods", "update_page"}


def run(name, *flags):
    return subprocess.run([sys.executable, "-B", scripts / f"{name}.py", *flags], capture_output=True, text=True)


def printed(name):
    result = run(name, "--print")
    if result.returncode:
        sys.exit(f"bench/tables/{name}.py --print: {result.stderr}")
    return result.stdout.strip() + "\n"


def block(match):
    if arguments.only not in (None, match[1]):
        return match[0]
    result = None if arguments.no_plots else run(match[1], "--plot")
    if result and result.returncode:
        sys.exit(f"bench/tables/{match[1]}.py --plot: {result.stderr}")
    return f"<!-- {match[1]} -->\n{printed(match[1])}<!-- end -->"


def problems(pages, programs):
    """The problems of the pages and rows, one sentence each."""
    text = {page: page.read_text() for page in pages}
    names = sorted(path.stem for path in scripts.glob("*.py") if path.stem not in NO_TABLES)
    wanted = [arguments.only] if arguments.only else names
    for name in wanted:
        if not any(f"{name}.py" in content for content in text.values()):
            yield f"bench/tables/{name}.py: no page names it"
        result = run(name, "--check", "--programs", programs) if name != "time_to_accuracy" else None
        if result and result.returncode:
            yield f"bench/tables/{name}.py --check: {result.stderr.strip()}"
    for page, content in text.items():
        blocks = list(BLOCK.finditer(content))
        if len(blocks) != content.count("<!-- end -->"):
            yield f"{page}: a line <!-- NAME --> or <!-- end --> is missing"
        for match in blocks:
            if match[1] not in names:
                yield f"{page}: {match[1]}: there is no bench/tables/{match[1]}.py"
            elif match[1] not in wanted:
                continue
            elif match[2] != printed(match[1]):
                yield f"{page}: the table {match[1]} is not what bench/tables/{match[1]}.py --print prints; run bench/tables/update_page.py"
            elif f"`bench/tables/{match[1]}.py" not in match[2]:
                yield f"{page}: the table {match[1]} does not name its script"
    if arguments.only:
        return
    papers = (root / "docs" / "papers.md").read_text()
    scripts_by_name = {path.name for folder in ("bench", "bench/tables", "configs", "docs/plots") for path in (root / folder).glob("*.py")}
    for name in re.findall(r"configs/[\w/]+(?:\.json|\.py)?|\b\w+\.py\b", papers):
        if not (root / name).exists() and name not in scripts_by_name:
            yield f"docs/papers.md: {name}: no such file or folder"
    for folder in sorted({path.parent.relative_to(root).as_posix() for path in (root / "configs").rglob("*.json")} - {"configs"}):
        if f"{folder}`" not in papers and f"{folder}/" not in papers:
            yield f"docs/papers.md: {folder}: the page does not name this folder"
    # A row of scaling.csv describes a run on one host or on the hosts of netlab.
    with open(root / "docs" / "tables" / "scaling.csv", newline="") as file:
        for refused in refusals([row["command"].split(" -- ")[-1] for row in csv.DictReader(file)], programs):
            yield f"docs/tables/scaling.csv: {refused.strip()}"


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--check", metavar="PROGRAMS", type=lambda path: pathlib.Path(path).resolve(), help="folder of built programs; only check")
parser.add_argument("--no-plots", action="store_true", help="write only the pages")
parser.add_argument("--only", metavar="NAME", help="only this table")
parser.add_argument("--docs", type=pathlib.Path, default=root / "docs", help="folder of the pages [docs]")
arguments = parser.parse_args()
pages = [arguments.docs / name for name in PAGES]
names = sorted(path.stem for path in scripts.glob("*.py") if path.stem not in NO_TABLES)
if arguments.only and arguments.only not in names:
    parser.error(f"--only {arguments.only}: no such table; available: {', '.join(names)}")
if arguments.check:
    found = list(problems(pages, arguments.check))
    sys.exit("\n".join(found) if found else 0)
for page in pages:
    page.write_text(BLOCK.sub(block, page.read_text()))
