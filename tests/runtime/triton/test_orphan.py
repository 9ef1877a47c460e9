"""A stub whose server was killed ends."""

import os
import subprocess
import sys
import time

CHILD = """
import time
from threading import Lock
from dsv4_trt.runtime.triton.orphan import end_with_parent
end_with_parent()
print("ready", flush=True)
Lock().acquire() and time.sleep(600)
"""
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}])
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_process_ends_after_its_parent():
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        parent.kill()
        for _ in range(200):
            if not runs(child):
                return
            time.sleep(0.1)
    os.kill(child, 9)
    raise AssertionError("the child goes on without its parent")


def runs(pid):
    """Whether a process is there and no zombie that nobody has waited for."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
