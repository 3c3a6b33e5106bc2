"""The audit of the lock files: real pip-audit, a service on this machine that knows of one vulnerability."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

pytestmark = pytest.mark.slow

AUDIT = Path(__file__).parents[1] / "requirements" / "audit.py"
OLD = "idna==3.6 --hash=sha256:c05567e9c24a6b9faaa835c4821bad0590fbb9d5779e7caa6e1cc4978e7eb24f\n"
NEW = "idna==3.7 --hash=sha256:82fee1fc78add43492d3a1898bfa6d8a904cc97d8427f683ed8e798d07761aa0\n"
OTHER = "editables==0.6 --hash=sha256:1163834902381c4613787951c5914800fdf155ae08848a373b8ea5006780977c\n"
KNOWN = {
    "id": "PYSEC-2024-60",
    "aliases": ["CVE-2024-3651"],
    "summary": "encoding a long name takes quadratic time",
    "affected": [
        {
            "package": {"name": "idna", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "3.7"}]}],
        }
    ],
}


class Service:
    """Answers as OSV does."""

    def __init__(self) -> None:
        self.asked = 0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.asked += 1
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps({"vulns": [KNOWN]} if question["version"] == "3.6" else {}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1/query"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    thread = Thread(target=made.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


LOCKS = sorted(path.name for path in AUDIT.parent.glob("*.lock"))


def audit(folder: Path, lock: str, *options: str, of: str = "") -> subprocess.CompletedProcess[str]:
    """The audit of a folder in which all lock files pin this; or `of` does, and the others what is well."""
    shutil.copy(AUDIT, folder)
    for name in LOCKS:
        (folder / name).write_text(lock if of in ("", name) else OTHER)
    command = [sys.executable, "audit.py", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_known_vulnerability_fails_the_audit(tmp_path: Path, service: Service) -> None:
    run = audit(tmp_path, OLD, "-s", "osv", "--osv-url", service.url)
    assert run.returncode == 1
    found = "dependency audit: idna 3.6 is vulnerable: PYSEC-2024-60, CVE-2024-3651; fixed in 3.7\n"
    assert run.stdout == found


@pytest.mark.parametrize("lock", LOCKS)
def test_a_known_vulnerability_is_found_whichever_lock_file_has_it(tmp_path: Path, service: Service, lock: str) -> None:
    run = audit(tmp_path, OLD, "-s", "osv", "--osv-url", service.url, of=lock)
    assert run.returncode == 1
    assert run.stdout.startswith("dependency audit: idna 3.6 is vulnerable: ")


def test_an_answer_without_findings_is_not_asked_for_again(tmp_path: Path, service: Service) -> None:
    first = audit(tmp_path, NEW, "-s", "osv", "--osv-url", service.url)
    assert (first.returncode, first.stdout) == (0, "dependency audit: nothing known of 1 packages\n")
    asked = service.asked
    assert asked
    again = audit(tmp_path, NEW, "-s", "osv", "--osv-url", service.url)
    assert (again.returncode, again.stdout) == (0, "dependency audit: nothing known, as of less than a day ago\n")
    assert service.asked == asked
    changed = audit(tmp_path, OLD, "-s", "osv", "--osv-url", service.url)
    assert changed.returncode == 1


def test_a_service_out_of_reach_is_said_and_is_no_failure(tmp_path: Path) -> None:
    run = audit(tmp_path, OLD, "-s", "osv", "--osv-url", "http://127.0.0.1:9/")
    assert run.returncode == 0
    assert run.stdout.startswith("dependency audit: THE VULNERABILITY SERVICE COULD NOT BE ASKED: ")


def test_an_index_without_vulnerability_data_is_not_taken_for_health(tmp_path: Path) -> None:
    reason = "Dependency not found on PyPI and could not be audited: idna (3.6)"
    answer = json.dumps({"dependencies": [{"name": "idna", "skip_reason": reason}], "fixes": []})
    # The words of pip-audit 2.10, which ends with status 0 here. Python looks into the working directory first.
    (tmp_path / "pip_audit.py").write_text(f"print({answer!r})\n")
    run = audit(tmp_path, OLD)
    assert run.returncode == 0
    assert run.stdout == f"dependency audit: THE VULNERABILITY SERVICE COULD NOT BE ASKED: {reason}\n"
    assert not (tmp_path / ".audit").exists()


def test_lock_files_that_cannot_be_audited_fail(tmp_path: Path, service: Service) -> None:
    run = audit(tmp_path, "idna==3.6\n", "-s", "osv", "--osv-url", service.url)
    assert run.returncode == 1
    assert run.stdout.startswith("dependency audit: the lock files cannot be audited: ")
    assert not service.asked
