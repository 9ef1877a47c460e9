"""The state that a build begins in, so that the same job gives the same plan.

TensorRT puts memory that it never wrote into plans, and orders some things by address. Addresses, hashes,
fresh memory and stacks are the same in every process here, as far as the system lets it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress

_PARENT_DEATH_SIGNAL = 1  # of prctl
_NO_RANDOM_ADDRESSES = 0x0040000
_ASK = 0xFFFFFFFF
_SETTLED = {"PYTHONHASHSEED": "0", "GLIBC_TUNABLES": "glibc.malloc.perturb=165"}
_STACK_BYTES = 8 << 20  # of threads, TensorRT's among them; the usual limit


def end_with_parent() -> None:
    """From now on this process is killed when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, ctypes.c_ulong(signal.SIGKILL))


def settle(module: str) -> None:
    """Start `module` again in the state, with the same arguments, unless this process has it."""
    if all(os.environ.get(name) == value for name, value in _SETTLED.items()):
        return
    libc = ctypes.CDLL(None)
    personality = libc.personality(ctypes.c_ulong(_ASK))
    libc.personality(ctypes.c_ulong(personality | _NO_RANDOM_ADDRESSES))  # may be refused
    _, most = resource.getrlimit(resource.RLIMIT_STACK)
    with suppress(ValueError):  # less is allowed here
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK_BYTES, most))
    command = [sys.executable, "-P", "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, command, {**os.environ, **_SETTLED})
