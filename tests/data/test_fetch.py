"""Fetching, against a server of our own that breaks off, ignores ranges and serves wrong bytes."""

import gzip
import hashlib
import io
import tarfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from basil.data import fetch, present, where
from basil.data.fetch import get
from basil.data.sources import SOURCES, Download, Source
from basil.errors import UserError

CONTENT = bytes(i * i % 251 for i in range(200_000))
CUT = 65_536  # where a broken answer ends: a whole chunk, since a piece of one may be lost


class Server(ThreadingHTTPServer):
    """Serves `files`; the first `failures` answers break off after CUT bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {}
        self.failures = 0
        self.ranges = True
        self.asked = []  # (path, Range header) of each request
        self.look = lambda: None  # called before each answer

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}/{path}"


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        wanted = self.headers.get("Range")
        self.server.asked.append((self.path[1:], wanted))
        self.server.look()
        if self.path[1:] not in self.server.files:
            self.send_error(404)
            return
        content = self.server.files[self.path[1:]]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if wanted and self.server.ranges:
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
            content = content[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.server.failures:
            self.server.failures -= 1
            content = content[:CUT]
        self.wfile.write(content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(fetch, "PAUSE", 0.0)
    with Server() as it:
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield it
        it.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path, monkeypatch, server):
    """The folder of a one-file "mnist" that the server has."""
    monkeypatch.setenv("BASIL_DATA", str(tmp_path))
    server.files["file.gz"] = CONTENT
    checksum = "sha256:" + hashlib.sha256(CONTENT).hexdigest()
    monkeypatch.setitem(
        SOURCES,
        "mnist",
        Source(("mnist",), {"file.gz": None}, (Download(server.url("file.gz"), checksum),)),
    )
    return tmp_path / "mnist"


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_fetched_once(server, folder):
    assert not present("mnist")
    assert get("mnist", progress=False) == [folder / "file.gz"]
    assert get("mnist", progress=False) == [folder / "file.gz"]
    assert present("mnist")
    assert (folder / "file.gz").read_bytes() == CONTENT
    assert server.asked == [("file.gz", None)]
    assert listing(folder) == ["file.gz"]


def test_a_chosen_folder_stands_for_the_root(folder, tmp_path):
    other = tmp_path / "elsewhere"
    assert get("mnist", other, progress=False) == [other / "mnist" / "file.gz"]
    assert not folder.exists()


def test_progress_is_shown_on_stderr(folder, capsys):
    get("mnist")
    out, err = capsys.readouterr()
    assert out == ""
    assert "file.gz" in err
    assert "200.0/200.0 kB" in err


def test_a_broken_download_continues_within_one_call(server, folder):
    server.failures = 2
    get("mnist", progress=False)
    assert (folder / "file.gz").read_bytes() == CONTENT
    assert [wanted for _, wanted in server.asked] == [None, "bytes=65536-", "bytes=131072-"]
    assert listing(folder) == ["file.gz"]


def test_a_broken_download_continues_in_the_next_call(server, folder, monkeypatch):
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    server.failures = 1
    with pytest.raises(UserError, match=r"basil data get mnist.*continue after the 65536") as error:
        get("mnist", progress=False)
    assert server.url("file.gz") in str(error.value)
    assert listing(folder) == ["file.gz.part"]
    assert (folder / "file.gz.part").read_bytes() == CONTENT[:CUT]

    get("mnist", progress=False)
    assert server.asked[-1] == ("file.gz", "bytes=65536-")
    assert (folder / "file.gz").read_bytes() == CONTENT
    assert listing(folder) == ["file.gz"]


def test_whoever_is_killed_meanwhile_leaves_nothing_but_the_piece_to_go_on_from(server, folder):
    seen = []
    server.look = lambda: seen.append(listing(folder))
    server.failures = 1
    get("mnist", progress=False)
    assert seen == [[], ["file.gz.part"]]


def test_a_server_without_ranges_sends_it_all_again(server, folder):
    server.failures, server.ranges = 1, False
    get("mnist", progress=False)
    assert server.asked[-1] == ("file.gz", "bytes=65536-")
    assert (folder / "file.gz").read_bytes() == CONTENT


def test_a_whole_part_needs_only_its_name(server, folder):
    folder.mkdir()
    (folder / "file.gz.part").write_bytes(CONTENT)
    get("mnist", progress=False)
    assert server.asked == [("file.gz", "bytes=200000-")]
    assert listing(folder) == ["file.gz"]


@pytest.mark.parametrize("stale", [b"of another version", CONTENT + b"and more"])
def test_a_stale_part_is_thrown_away(server, folder, stale):
    folder.mkdir()
    (folder / "file.gz.part").write_bytes(stale)
    get("mnist", progress=False)
    assert server.asked[-1] == ("file.gz", None)
    assert (folder / "file.gz").read_bytes() == CONTENT
    assert listing(folder) == ["file.gz"]


def test_wrong_bytes_are_not_kept(server, folder):
    server.files["file.gz"] = b"<html>log in to this network</html>"
    with pytest.raises(UserError, match="does not have the checksum sha256:") as error:
        get("mnist", progress=False)
    assert server.url("file.gz") in str(error.value)
    assert str(folder / "file.gz") in str(error.value)
    assert listing(folder) == []
    assert len(server.asked) == 1


def test_a_wrong_file_from_earlier_is_replaced_or_at_least_set_aside(server, folder):
    folder.mkdir()
    (folder / "file.gz").write_bytes(b"wrong")
    get("mnist", progress=False)
    assert listing(folder) == ["file.gz"]
    assert (folder / "file.gz").read_bytes() == CONTENT

    (folder / "file.gz").write_bytes(b"wrong")
    del server.files["file.gz"]
    with pytest.raises(UserError, match="404"):
        get("mnist", progress=False)
    assert listing(folder) == ["file.gz.wrong"]
    assert (folder / "file.gz.wrong").read_bytes() == b"wrong"


def test_what_the_server_refuses_is_not_asked_for_again(server, folder):
    server.files.clear()
    with pytest.raises(UserError, match=r"could not be fetched.*404"):
        get("mnist", progress=False)
    assert len(server.asked) == 1


def test_no_server_at_all(folder, monkeypatch):
    monkeypatch.setitem(
        SOURCES,
        "mnist",
        Source(("mnist",), {"f": None}, (Download("http://127.0.0.1:1/f", "md5:" + "0" * 32),)),
    )
    with pytest.raises(UserError, match=r"127.0.0.1:1/f.*basil data get mnist"):
        get("mnist", progress=False)


def test_a_folder_that_cannot_be_made(folder, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot be made.*BASIL_DATA"):
        get("mnist", tmp_path / "file", progress=False)


def archive(members):
    """A .tar.gz of (TarInfo or name, content)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


@pytest.fixture
def cifar(tmp_path, monkeypatch, server):
    """Publishes an archive as "cifar100" with files of 4 and 2 bytes; returns its folder."""
    monkeypatch.setenv("BASIL_DATA", str(tmp_path / "root"))

    def publish(content):
        server.files["c.tar.gz"] = content
        source = Source(
            folders=("cifar-100",),
            files={"train.bin": 4, "test.bin": 2},
            downloads=(
                Download(server.url("c.tar.gz"), "md5:" + hashlib.md5(content).hexdigest()),
            ),
            names=("names.txt",),
            archive="cifar-100-binary",
        )
        monkeypatch.setitem(SOURCES, "cifar100", source)
        return where("cifar100")

    return publish


GOOD = [
    ("cifar-100-binary/train.bin", b"abcd"),
    ("cifar-100-binary/test.bin", b"ef"),
    ("cifar-100-binary/names.txt", b"apple\n"),
]


def link(name, to):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, to
    return info


def test_an_archive_is_unpacked_and_removed(server, cifar):
    folder = cifar(archive(GOOD))
    assert get("cifar100", progress=False) == [folder / "train.bin", folder / "test.bin"]
    assert listing(folder) == ["names.txt", "test.bin", "train.bin"]
    assert (folder / "train.bin").read_bytes() == b"abcd"
    get("cifar100", progress=False)
    assert len(server.asked) == 1
    (folder / "test.bin").write_bytes(b"e")  # cut off: fetched again
    get("cifar100", progress=False)
    assert (folder / "test.bin").read_bytes() == b"ef"


def test_nothing_but_the_expected_files_leaves_an_archive(cifar, tmp_path):
    folder = cifar(
        archive(
            [
                ("../escaped", b"x"),
                (str(tmp_path / "absolute"), b"x"),
                ("cifar-100-binary/../../escaped", b"x"),
                ("cifar-100-binary/readme.html", b"x"),
                ("elsewhere/train.bin", b"wxyz"),
                *GOOD,
            ]
        )
    )
    get("cifar100", progress=False)
    assert listing(folder) == ["names.txt", "test.bin", "train.bin"]
    assert (folder / "train.bin").read_bytes() == b"abcd"
    assert listing(tmp_path) == ["root"]
    assert listing(tmp_path / "root") == ["cifar-100"]


@pytest.mark.parametrize(
    "member",
    [
        (link("cifar-100-binary/train.bin", "/etc/hostname"), b""),
        ("cifar-100-binary/train.bin", b"abc"),
    ],
    ids=["link", "size"],
)
def test_a_link_or_a_file_of_another_size_is_no_file(cifar, member):
    folder = cifar(archive([member, GOOD[1]]))
    with pytest.raises(UserError, match=r"lacks train.bin"):
        get("cifar100", progress=False)
    assert not (folder / "train.bin").exists()


@pytest.mark.parametrize(
    "content",
    [b"not an archive", gzip.compress(b"not a tar"), archive(GOOD)[:60]],
    ids=["no gzip", "no tar", "cut off"],
)
def test_an_archive_that_cannot_be_read(cifar, content):
    cifar(content)
    with pytest.raises(UserError, match=r"c\.tar\.gz"):
        get("cifar100", progress=False)


@pytest.mark.parametrize("name", [name for name in SOURCES if SOURCES[name] is None])
def test_embedded_sets_have_nothing_to_fetch(name, capsys):
    assert get(name) == []
    assert "nothing to fetch" in capsys.readouterr().err


def test_unknown_set():
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        get("minst")


def test_checksums_are_well_formed():
    digits = {"md5": 32, "sha256": 64}
    for source in filter(None, SOURCES.values()):
        for download in source.downloads:
            algorithm, _, value = download.checksum.partition(":")
            assert len(bytes.fromhex(value)) * 2 == digits[algorithm]
            assert download.file in source.files or source.archive
