"""The folder a conversion is built in, beside its final place: `.NAME.partial`.

    .NAME.partial/journal.jsonl   which tensors are finished, for --resume; locked while a run is alive
    .NAME.partial/checkpoint/     becomes NAME by one rename, once everything in it is on the disk

So NAME either does not exist or is complete. The partial folder stays behind only when finished tensors are
worth resuming from: after a kill, an interrupt or a failing disk, never after bad input.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

from dsv4_trt.errors import ConfigError

JOURNAL_FILE = "journal.jsonl"
CHECKPOINT_DIR = "checkpoint"
Finished = dict[tuple[int, str], str]  # (rank, tensor) -> sha256


def partial_dir(output_dir: Path) -> Path:
    """Where the conversion to `output_dir` is built."""
    whole = output_dir.absolute()
    return whole.with_name(f".{whole.name}.partial")


def check_output(output_dir: Path) -> None:
    """Raise `ConfigError` unless `output_dir` does not exist or is an empty folder to take the place of."""
    if output_dir.is_symlink() or os.path.ismount(output_dir.absolute()):
        kind = "a link" if output_dir.is_symlink() else "a mount point"
        raise ConfigError(
            f"output_dir {output_dir} is {kind}, which a finished folder can not replace; "
            "name a new folder, for instance one inside it"
        )
    if output_dir.exists() and not (output_dir.is_dir() and not any(output_dir.iterdir())):
        raise ConfigError(f"output_dir {output_dir} already exists; remove it or name another")


@dataclass(slots=True)
class Staging:
    """An open partial folder; `record` may be called by many threads."""

    output_dir: Path
    finished: Finished = field(default_factory=dict)
    _descriptor: int = -1
    _parents: tuple[Path, ...] = ()  # folders that were made for this one, nearest first
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def partial(self) -> Path:
        """The folder that goes away when all is done."""
        return partial_dir(self.output_dir)

    @property
    def checkpoint(self) -> Path:
        """The folder that becomes `output_dir`."""
        return self.partial / CHECKPOINT_DIR

    def record(self, rank: int, tensor: str, sha256: str) -> None:
        """Note that a tensor is written; a resumed run trusts it only if the bytes still hash to this."""
        line = json.dumps({"rank": rank, "tensor": tensor, "sha256": sha256}) + "\n"
        with self._lock:
            self.finished[rank, tensor] = sha256
            os.write(self._descriptor, line.encode())

    def publish(self) -> None:
        """Make the checkpoint appear as `output_dir`, whole, and remove the rest."""
        for path in [*self.checkpoint.iterdir(), self.checkpoint]:
            _sync(path)
        self.checkpoint.rename(self.output_dir)  # replaces an empty folder
        _sync(self.output_dir.parent)
        self.discard()

    def close(self) -> None:
        """Let go of the folder, which stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Remove the folder with all in it, and parents that were made for it and hold nothing else."""
        shutil.rmtree(self.partial, ignore_errors=True)
        self.close()
        for parent in self._parents:
            with contextlib.suppress(OSError):
                parent.rmdir()


def open_staging(output_dir: Path, plan_digest: str, *, resume: bool) -> Staging:
    """Make the partial folder, or with `resume` take up the one that is there.

    Raises `ConfigError` if another run is writing there, or if what is there to resume comes from other
    options or another source.
    """
    staging = Staging(output_dir.absolute())
    staging._parents = tuple(each for each in staging.partial.parents if not each.exists())
    journal = staging.partial / JOURNAL_FILE
    try:
        staging.partial.mkdir(parents=True, exist_ok=True)
        staging._descriptor = os.open(journal, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError as error:
        raise ConfigError(f"output_dir {output_dir} can not be made: {error}") from error
    try:
        _lock_journal(staging, journal)
        text = journal.read_text(encoding="utf-8", errors="replace")
        if resume and text:
            staging.finished.update(_read_journal(text, plan_digest, staging.partial))
            if not text.endswith("\n"):  # the last line was cut off by a crash
                os.write(staging._descriptor, b"\n")
        else:
            shutil.rmtree(staging.checkpoint, ignore_errors=True)
            os.ftruncate(staging._descriptor, 0)
            os.write(staging._descriptor, json.dumps({"plan": plan_digest}).encode() + b"\n")
        staging.checkpoint.mkdir(exist_ok=True)
    except BaseException:
        staging.close()
        raise
    return staging


def _lock_journal(staging: Staging, journal: Path) -> None:
    try:
        fcntl.flock(staging._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # a run that ended in between has removed the file that is locked here
        ours = os.path.samestat(os.fstat(staging._descriptor), journal.stat())
    except (BlockingIOError, FileNotFoundError):
        ours = False
    if not ours:
        raise ConfigError(
            f"another conversion is writing to {staging.partial}; wait for it or name another output_dir"
        )


def _read_journal(text: str, plan_digest: str, partial: Path) -> Finished:
    head, *lines = text.split("\n")
    found = _entry(head).get("plan")
    if found != plan_digest:
        raise ConfigError(
            f"{partial} was begun with other options or from another checkpoint (plan "
            f"{str(found)[:12]}, this one is {plan_digest[:12]}); run without --resume to start over"
        )
    finished: Finished = {}
    for line in lines:
        entry = _entry(line)
        rank, tensor, sha256 = (entry.get(key) for key in ("rank", "tensor", "sha256"))
        if isinstance(rank, int) and isinstance(tensor, str) and isinstance(sha256, str):
            finished[rank, tensor] = sha256
    return finished


def _entry(line: str) -> dict[str, object]:
    """One line of a journal; empty for a line that a crash cut off or damaged, which counts for nothing."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return entry if isinstance(entry, dict) else {}


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
