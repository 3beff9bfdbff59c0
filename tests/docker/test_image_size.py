"""The size of an image: added up from what pip reports, and of what servers and disks say."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools import image_size

ROOT = Path(__file__).parents[2]


class Server(BaseHTTPRequestHandler):
    """Says how large a file is, and sends nothing of it."""

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3000000")
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    found = HTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{found.server_port}"
    found.shutdown()
    found.server_close()


def package(name: str, url: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "version": "1"}, "download_info": {"url": url}}


def test_sizes_of_servers_disks_and_folders(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    file = tmp_path / "a wheel.whl"
    file.write_bytes(bytes(1_500_000))
    report = [package("local", file.as_uri()), package("far", f"{server}/x.whl"), package("own", tmp_path.as_uri())]
    found = image_size.sizes(report)
    assert found == {"far 1": 3_000_000, "local 1": 1_500_000, "own 1": 0}
    monkeypatch.setattr(image_size, "resolved", lambda wanted: report)
    assert image_size.main(["docker/Dockerfile.cpu"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("docker/Dockerfile.cpu [demo]:\n      3.0 MB  far 1\n      1.5 MB  local 1\n")
    assert "      4.5 MB  in 2 packages" in shown
    monkeypatch.setattr(image_size, "LIMIT", 4e6)
    assert image_size.main([]) == 1
    assert "docker/Dockerfile.cpu, docker/Dockerfile.cuda" in capsys.readouterr().out


def test_extras_are_read_from_the_dockerfiles() -> None:
    found = [image_size.extras((ROOT / name).read_text(encoding="utf-8")) for name in image_size.DOCKERFILES]
    assert found == ["demo", "demo,cu13"]
    with pytest.raises(ValueError, match="installs no wheel with extras"):
        image_size.extras("FROM x\nRUN pip install numpy\n")


def test_what_cannot_be_resolved_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="pip cannot resolve"):
        image_size.resolved(str(tmp_path / "absent"))
