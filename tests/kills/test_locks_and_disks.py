"""Two runs on one folder, full disks, places that cannot be written, and what killed writers leave behind."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from harness import limited_files

from unshaken.errors import UnshakenError
from unshaken.files import locked, read_json, write_json, write_text

HOLDER = """
import sys
from unshaken.files import locked
with locked(sys.argv[1]):
    print("inside", flush=True)
    sys.stdin.read()
"""


def start_holder(folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def test_a_second_run_is_told_who_is_inside(tmp_path: Path) -> None:
    first = start_holder(tmp_path)
    assert first.stdout is not None
    assert first.stdout.readline() == "inside\n"
    with (
        pytest.raises(UnshakenError, match=rf"is in use by process {first.pid} on .*; wait for it") as caught,
        locked(tmp_path),
    ):
        pass
    assert "\n" not in str(caught.value)
    first.communicate("")
    with locked(tmp_path):
        pass


def test_a_killed_run_leaves_no_lock(tmp_path: Path) -> None:
    first = start_holder(tmp_path)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.communicate()
    with locked(tmp_path), locked(tmp_path):  # and one process may lock it twice
        pass
    with locked(tmp_path):
        pass


def test_ranks_of_one_launch_share_the_lock_that_rank_0_holds(tmp_path: Path) -> None:
    ranks = [start_holder(tmp_path, RANK=str(rank), WORLD_SIZE="2") for rank in range(2)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "inside\n"
    with pytest.raises(UnshakenError, match=f"process {ranks[0].pid} "), locked(tmp_path):
        pass
    for rank in ranks:
        rank.communicate("")


def test_a_forked_worker_does_not_keep_the_lock(tmp_path: Path) -> None:
    read, write = os.pipe()
    with locked(tmp_path):
        worker = os.fork()
        if not worker:
            os.read(read, 1)  # live until told
            os._exit(0)
    try:
        with locked(tmp_path):
            pass
    finally:
        os.write(write, b".")
        os.waitpid(worker, 0)


def test_a_file_system_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    with pytest.warns(UserWarning, match="this file system has no locks"), locked(tmp_path):
        pass


def test_a_full_disk_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = write_json(tmp_path / "result.json", {"a": 1})
    with limited_files(1_000), pytest.raises(UnshakenError, match=r"cannot write .*result\.json: File too large"):
        write_text(path, "x" * 5_000)
    assert read_json(path) == {"a": 1}
    assert [item.name for item in tmp_path.iterdir()] == ["result.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_disk_without_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error a real full device gives: the temporary file is opened on /dev/full."""
    monkeypatch.setattr("tempfile.mkstemp", lambda **_: (os.open("/dev/full", os.O_WRONLY), str(tmp_path / "none")))
    with pytest.raises(UnshakenError, match="No space left on device"):
        write_text(tmp_path / "result.json", "x")
    assert not list(tmp_path.iterdir())


def test_a_file_where_a_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UnshakenError, match=r"cannot write .*: (Not a directory|File exists)"):
        write_text(tmp_path / "file" / "result.json", "x")
    with (
        pytest.raises(UnshakenError, match=r"cannot write .*: (Not a directory|File exists)"),
        locked(tmp_path / "file"),
    ):
        pass


WRITER = """
import os, sys
from unshaken.files import atomic_writer
with atomic_writer(sys.argv[1]) as stream:
    stream.write("half")
    stream.flush()
    print("inside", flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_writer_left_is_swept_up_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    path = tmp_path / "result [1].json"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=-1, stdout=-1, text=True) for _ in range(2)
    ]
    for writer in writers:
        assert writer.stdout is not None
        writer.stdout.readline()
    assert not path.exists()
    writers[0].send_signal(signal.SIGKILL)
    writers[0].wait()
    write_text(path, "whole")
    assert path.read_text() == "whole"
    assert len(list(tmp_path.iterdir())) == 2
    writers[1].communicate("")
    writers[0].communicate()
    assert path.read_text() == "half"
    assert [item.name for item in tmp_path.iterdir()] == [path.name]
