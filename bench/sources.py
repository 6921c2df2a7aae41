"""The commit that rows of tables name."""
import pathlib
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
PATTERNS = ("*.h", "*.cpp", "*.cu", "*CMakeLists.txt", "*.cmake", "CMakePresets.json")


def git(*words):
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def commit():
    """The short hash of HEAD. Ends the program if the sources of programs built here differ from it."""
    if changed := git("status", "--porcelain", "--", *PATTERNS):
        sys.exit(f"The sources differ from the commit that the rows would name; commit them first:\n{changed}")
    return git("rev-parse", "--short=8", "HEAD").strip()
