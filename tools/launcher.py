"""Waits for mpirun, which can hang after a host is lost."""
import os
import pathlib
import signal
import subprocess
import time

LOGIN = {"ssh", "rsh"}  # mpirun's connections to other hosts


def started_by(pid):
    """The running processes that process `pid` has started on this machine, without connections to other hosts."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text(errors="replace")
        except OSError:  # the process has ended
            continue
        name, (state, parent, *_) = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 1 :].split()
        if int(parent) == pid and state != "Z" and name not in LOGIN:
            found.append(int(path.parent.name))
    return found


def wait(process, say, patience, meanwhile=lambda: None):
    """Returns the exit code of `process`, as a shell reports it. Kills the session of `process` `patience` seconds after
    the end of the last process that it started on this host. Calls `meanwhile` twice a second."""
    started, ended = False, None  # ended: the time since which no started process exists
    while True:
        try:
            code = process.wait(timeout=0.5)
            return 128 - code if code < 0 else code
        except subprocess.TimeoutExpired:
            meanwhile()
        if started_by(process.pid):
            started, ended = True, None
        elif ended is None:
            ended = time.monotonic()
        elif started and time.monotonic() - ended > patience:
            say(f"{process.args[0]} still runs {patience:g} s after its processes on this host have ended; killing it")
            os.killpg(process.pid, signal.SIGKILL)
