"""Downloads from a real HTTP server that cuts connections, knows no ranges, or sends the wrong thing."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fedcmoo.data import catalogue
from fedcmoo.data.catalogue import DATA_SETS, NEEDED_BY, DataSet, RemoteFile
from fedcmoo.data.download import DownloadError, ManualDownloadError, download, fetch
from fedcmoo.experiments import PROBLEMS

CONTENT = bytes(range(256)) * 4000
MD5 = hashlib.md5(CONTENT).hexdigest()


@dataclass
class Behaviour:
    """What the server does, and what it was asked."""

    content: bytes = CONTENT
    ranges: bool = True
    cut_after: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            wanted = self.headers.get("Range")
            behaviour.asked.append(wanted)
            if behaviour.statuses:
                self.send_error(behaviour.statuses.pop(0))
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and behaviour.ranges else 0
            if start >= len(behaviour.content):
                self.send_error(416)
                return
            body = behaviour.content[start:]
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # The connection closes early, after the length of the whole was announced.
            self.wfile.write(body[: behaviour.cut_after.pop(0)] if behaviour.cut_after else body)

        def log_message(self, format: str, *arguments: object) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/file"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def get(folder: Path, *urls: str, md5: str = MD5) -> list[tuple[str, int, int | None]]:
    told: list[tuple[str, int, int | None]] = []
    fetch(RemoteFile("sub/file", urls, md5), folder, lambda *news: told.append(news), pause=0.001)
    return told


def test_whole(tmp_path: Path) -> None:
    with serving(Behaviour()) as url:
        told = get(tmp_path, url)
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT
    assert told[-1] == ("sub/file", len(CONTENT), len(CONTENT))
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["file"]


def test_cut_connections_are_resumed(tmp_path: Path) -> None:
    behaviour = Behaviour(cut_after=[300_000, 0, 0, 500_000])
    with serving(behaviour) as url:
        told = get(tmp_path, url)
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT
    assert behaviour.asked == [None, *["bytes=300000-"] * 3, "bytes=800000-"]
    assert told[-1][1:] == (len(CONTENT), len(CONTENT))


def test_resumed_by_a_later_call(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.part").write_bytes(CONTENT[:1000])
    behaviour = Behaviour()
    with serving(behaviour) as url:
        get(tmp_path, url)
    assert behaviour.asked == ["bytes=1000-"]
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT


def test_complete_part_needs_only_its_sum(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.part").write_bytes(CONTENT)
    with serving(Behaviour()) as url:
        get(tmp_path, url)
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT


def test_bad_part_is_thrown_away(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.part").write_bytes(b"something else")
    behaviour = Behaviour()
    with serving(behaviour) as url:
        get(tmp_path, url)
    assert behaviour.asked == ["bytes=14-", None]
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT


def test_server_without_ranges_starts_over(tmp_path: Path) -> None:
    behaviour = Behaviour(ranges=False, cut_after=[300_000])
    with serving(behaviour) as url:
        get(tmp_path, url)
    assert behaviour.asked == [None, "bytes=300000-"]
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT


def test_busy_server_is_asked_again(tmp_path: Path) -> None:
    behaviour = Behaviour(statuses=[503, 429, 500])
    with serving(behaviour) as url:
        get(tmp_path, url)
    assert len(behaviour.asked) == 4


def test_gives_up_without_progress(tmp_path: Path) -> None:
    behaviour = Behaviour(statuses=[503] * 50)
    with serving(behaviour) as url, pytest.raises(DownloadError, match="gave up after 5 tries"):
        get(tmp_path, url)
    assert len(behaviour.asked) == 5
    assert not (tmp_path / "sub" / "file").exists()


def test_wrong_sum_is_refused_and_removed(tmp_path: Path) -> None:
    with serving(Behaviour(content=CONTENT[:-1] + b"x")) as url, pytest.raises(DownloadError) as caught:
        get(tmp_path, url)
    assert f"must be {MD5}, but is " in str(caught.value)
    assert not list((tmp_path / "sub").iterdir())


def test_next_place_after_a_bad_one(tmp_path: Path) -> None:
    bad, gone, good = Behaviour(content=b"other"), Behaviour(statuses=[404]), Behaviour()
    with serving(bad) as first, serving(gone) as second, serving(good) as third:
        get(tmp_path, first, second, third)
    assert len(gone.asked) == 1
    assert (tmp_path / "sub" / "file").read_bytes() == CONTENT


def test_unreachable_place(tmp_path: Path) -> None:
    with serving(Behaviour()) as url:
        pass
    with pytest.raises(DownloadError, match="refused"):
        get(tmp_path, url)


def test_data_set_leaves_alone_what_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    behaviour = Behaviour()
    with serving(behaviour) as url:
        files = tuple(RemoteFile(f"toy/{name}.gz", (url,), MD5) for name in ("a", "b", "c"))
        toy = DataSet("toy", tuple((f"toy/{name}", f"toy/{name}.gz") for name in ("a", "b", "c")), files)
        monkeypatch.setitem(catalogue.DATA_SETS, "toy", toy)
        (tmp_path / "toy").mkdir()
        (tmp_path / "toy" / "a").write_bytes(b"unpacked")
        assert toy.missing(tmp_path) == ["toy/b or toy/b.gz", "toy/c or toy/c.gz"]
        assert download("toy", tmp_path) == [tmp_path / "toy" / "b.gz", tmp_path / "toy" / "c.gz"]
        assert toy.missing(tmp_path) == []
        assert download("toy", tmp_path) == []
    assert len(behaviour.asked) == 2


def test_unpacked_cifar10_is_enough(tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    assert download("cifar10", tmp_path) == []


def test_random_cuts_without_ranges_come_to_an_end(tmp_path: Path) -> None:
    behaviour = Behaviour(ranges=False, cut_after=[300_000, 200_000, 250_000] * 20)
    with serving(behaviour) as url, pytest.raises(DownloadError, match="gave up after 5 tries"):
        get(tmp_path, url)
    assert len(behaviour.asked) < 10


def test_celeba_says_how(tmp_path: Path) -> None:
    with pytest.raises(ManualDownloadError, match=r"put img_align_celeba\.zip") as caught:
        download("celeba5", tmp_path)
    assert str(tmp_path / "celeba") in str(caught.value)


def test_unknown_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'imagenet' is neither a data set nor a problem; known are celeba, "):
        download("imagenet", tmp_path)


def test_catalogue_is_sound() -> None:
    assert set(NEEDED_BY) == set(PROBLEMS) - {"own"}  # of which nothing is known
    assert all(name in DATA_SETS for names in NEEDED_BY.values() for name in names)
    for data_set in DATA_SETS.values():
        assert data_set.files or data_set.instructions
        for file in data_set.files:
            assert len(bytes.fromhex(file.md5)) == 16
            assert all(url.rsplit("/", 1)[1] == Path(file.path).name for url in file.urls)
            assert any(file.path in paths for paths in data_set.needs)
