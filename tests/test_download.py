"""Downloads, from a server on this machine: whole, resumed, damaged, missing; and archives."""

import hashlib
import http.server
import io
import os
import re
import socket
import tarfile
import threading
import zipfile

import pytest

from fedloom.data import catalogue, download, files

CONTENT = os.urandom(3_000_000)


class Server(http.server.ThreadingHTTPServer):
    """Serves `content`, and remembers which Range was asked for."""

    content = CONTENT
    ranges = True  # whether it understands Range
    cut = None  # after how many bytes it drops the line
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked, content = self.headers.get("Range"), self.server.content
        self.server.asked.append(asked)
        if self.path.startswith("/missing"):
            return self.send_error(404)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked and self.server.ranges else None
        if start is not None and start >= len(content):
            return self.send_error(416)
        self.send_response(200 if start is None else 206)
        body = content[start or 0 :]
        if start is not None:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.cut])

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def offer(server, monkeypatch):
    """Put one file of this server into the catalogue, as "it"."""

    def offer(content=CONTENT, name="file.bin", served=None, contents=(), size=None):
        server.content = content if served is None else served
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        url = f"http://127.0.0.1:{server.server_port}/{name}"
        file = catalogue.File(url, f"folder/{name.rpartition('/')[2]}", digest, size, contents)
        monkeypatch.setitem(catalogue.CATALOGUE, "it", (file,))
        return file

    return offer


def fetch(directory):
    return download.fetch("it", directory, progress=False)


def test_a_file_arrives_whole(offer, server, tmp_path):
    offer()
    assert fetch(tmp_path) == [tmp_path / "folder/file.bin"]
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "folder") == ["file.bin"]
    assert fetch(tmp_path) == [tmp_path / "folder/file.bin"]
    assert server.asked == [None]  # it was not asked again


def test_the_data_directory_is_the_default_and_md5_will_do(offer, tmp_path, monkeypatch):
    file = offer()._replace(digest="md5:" + hashlib.md5(CONTENT).hexdigest())
    monkeypatch.setitem(catalogue.CATALOGUE, "it", (file,))
    monkeypatch.setenv("FEDLOOM_DATA", str(tmp_path))
    download.fetch("it", progress=False)
    assert files.locate("folder/file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("have", [1, 1_234_567, len(CONTENT) - 1])
def test_an_interrupted_download_goes_on_where_it_was(offer, server, tmp_path, have):
    offer()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin.part").write_bytes(CONTENT[:have])
    fetch(tmp_path)
    assert server.asked == [f"bytes={have}-"]
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "folder") == ["file.bin"]


def test_a_server_that_cannot_resume_starts_over(offer, server, tmp_path):
    offer()
    server.ranges = False
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin.part").write_bytes(CONTENT[:1000])
    fetch(tmp_path)
    assert server.asked == ["bytes=1000-"]
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_a_complete_part_is_not_downloaded_again(offer, server, tmp_path, size):
    offer(size=size)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin.part").write_bytes(CONTENT)
    fetch(tmp_path)
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert server.asked == ([] if size else [f"bytes={len(CONTENT)}-"])  # the server has no more than that


def test_a_part_that_is_too_long_is_thrown_away(offer, server, tmp_path):
    offer(size=len(CONTENT))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin.part").write_bytes(CONTENT + b"more")
    with pytest.raises(ValueError, match="try again"):
        fetch(tmp_path)
    fetch(tmp_path)
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT) + 4}-", None]


def test_a_broken_connection_keeps_what_has_arrived(offer, server, tmp_path):
    file = offer()
    server.cut = 1_000_000
    with pytest.raises(
        ConnectionError, match=r"ended after 1000000 of 3000000 bytes.*what has arrived is kept"
    ) as error:
        fetch(tmp_path)
    assert file.url in str(error.value)
    assert os.listdir(tmp_path / "folder") == ["file.bin.part"]
    server.cut = None
    fetch(tmp_path)
    assert server.asked == [None, "bytes=1000000-"]
    assert (tmp_path / "folder/file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("part", [b"", b"somebody else's bytes"])
def test_a_wrong_checksum_leaves_nothing(offer, tmp_path, part):
    file = offer(served=CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]) if not part else None)
    (tmp_path / "folder").mkdir()
    if part:
        (tmp_path / "folder/file.bin.part").write_bytes(part)
    with pytest.raises(ValueError, match=f"checksum is sha256:[0-9a-f]{{64}}, but should be {file.digest}") as error:
        fetch(tmp_path)
    assert file.url in str(error.value)
    assert os.listdir(tmp_path / "folder") == []


def test_a_file_of_that_name_is_never_touched(offer, server, tmp_path):
    offer()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file.bin").write_bytes(b"precious")
    with pytest.raises(ValueError, match=r"file\.bin already exists.*left as it is"):
        fetch(tmp_path)
    assert (tmp_path / "folder/file.bin").read_bytes() == b"precious"
    assert server.asked == []


def test_a_missing_file(offer, tmp_path):
    file = offer(name="missing/file.bin")
    with pytest.raises(ConnectionError, match="404") as error:
        fetch(tmp_path)
    assert file.url in str(error.value)
    assert str(tmp_path / "folder/file.bin") in str(error.value)


def test_no_network(offer, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    file = offer()._replace(url=f"http://127.0.0.1:{port}/file.bin")
    monkeypatch.setitem(catalogue.CATALOGUE, "it", (file,))
    with pytest.raises(ConnectionError, match="refused") as error:
        fetch(tmp_path)
    assert file.url in str(error.value)
    assert str(tmp_path / "folder/file.bin") in str(error.value)


def test_an_unknown_name():
    with pytest.raises(ValueError, match=r"no download 'mnits'; choose one of .*mnist"):
        download.fetch("mnits")


# Archives.


def tar(compression, *members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=f"w:{compression}") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
            else:
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
    return out.getvalue()


def zipped(*members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


MEMBERS = [("a.h5", b"A" * 100_000), ("sub/b.h5", b"B"), ("../evil", b"E"), ("not wanted", b"N")]


@pytest.mark.parametrize(
    ("name", "archive"),
    [("it.tar.bz2", tar("bz2", *MEMBERS)), ("it.tar.gz", tar("gz", *MEMBERS)), ("it.zip", zipped(*MEMBERS))],
)
def test_an_archive_gives_the_files_we_want_and_no_other(offer, server, tmp_path, name, archive):
    offer(archive, name, contents=("a.h5", "sub/b.h5"))
    folder = tmp_path / "folder"
    assert fetch(tmp_path) == [folder / "a.h5", folder / "sub/b.h5"]
    assert (folder / "a.h5").read_bytes() == b"A" * 100_000
    assert (folder / "sub/b.h5").read_bytes() == b"B"
    assert sorted(os.listdir(folder)) == sorted(["a.h5", "sub", name])
    assert not (tmp_path / "evil").exists()

    (folder / "sub/b.h5").unlink()  # unpacked again from the archive; what is there is left alone
    (folder / "a.h5").write_bytes(b"mine")
    fetch(tmp_path)
    assert (folder / "sub/b.h5").read_bytes() == b"B"
    assert (folder / "a.h5").read_bytes() == b"mine"

    (folder / name).unlink()  # the archive may be deleted when it is unpacked
    fetch(tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    ("archive", "says"),
    [
        (tar("bz2", ("other.h5", b"")), "has no file a.h5"),
        (tar("bz2", ("a.h5", "/etc/passwd")), "has no file a.h5"),  # a link is not a file
        (tar("bz2", *MEMBERS)[:60], "cannot be unpacked"),
        (b"not an archive", "cannot be unpacked"),
    ],
)
def test_an_archive_without_the_file(offer, tmp_path, archive, says):
    offer(archive, "it.tar.bz2", contents=("a.h5",))
    with pytest.raises(ValueError, match=says):
        fetch(tmp_path)
    assert not (tmp_path / "folder/a.h5").exists()


# What is said meanwhile.


def test_lines_at_the_start_and_at_the_end(offer, tmp_path, capsys):
    file = offer()
    download.fetch("it", tmp_path)
    assert capsys.readouterr().err.splitlines() == [
        f"{file.url}: 0.0 of 3.0 MB, 0% ...",
        f"{file.url}: 3.0 of 3.0 MB, 100%",
    ]


def test_a_line_that_counts_on_a_terminal(offer, tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    offer()
    monkeypatch.setattr("sys.stderr", Terminal())
    download.fetch("it", tmp_path)
    said = download.sys.stderr.getvalue()
    assert said.count("\n") == 1
    assert said.endswith("3.0 of 3.0 MB, 100%\n")
    assert said.count("\r") >= 2
