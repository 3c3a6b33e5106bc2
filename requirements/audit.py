"""Are there known vulnerabilities in what the lock files pin? `make check` asks.

Promises: exit status 1 for a vulnerability that is not accepted below, and for lock files that cannot be audited. A
service that cannot be reached is reported in one line and is not a failure: without a network the other checks count.
Silence is never taken for health: pip-audit passes over packages the service does not know, and a mirror that has no
vulnerability data knows none of them.

The service is asked about one package first, so that one that does not answer costs one question. An answer without
findings counts for a day. Options are passed on to pip-audit: `-s osv --osv-url URL` asks another service.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LOCKS = tuple(sorted(HERE.glob("*.lock")))
"""All lock files: developers and CI also run the tools of the site and of the build."""
MEMORY = HERE / ".audit"
"""What earlier answers were."""

ACCEPTED: Mapping[str, str] = {}
"""Identifiers of vulnerabilities that do not fail the audit, each with the reason why it cannot hurt here."""

ANSWER_COUNTS = 24 * 3600.0
"""Seconds."""
LONGEST = 45.0
"""Seconds for all questions together."""


class NotAskedError(Exception):
    """The service gave no answer; the text says why."""


class NotAuditableError(Exception):
    """What pip-audit says of lock files that it cannot read."""


def main(options: Sequence[str]) -> int:
    """The exit status."""
    question = _digest(options)
    if _answered(question):
        _say("nothing known, as of less than a day ago")
        return 0
    try:
        _audit(LOCKS, ["--dry-run"], NotAuditableError)
        with tempfile.TemporaryDirectory() as folder:
            _ask([_first(LOCKS[0], Path(folder))], options)
        found = _ask(LOCKS, options)
    except NotAskedError as error:
        _say(f"THE VULNERABILITY SERVICE COULD NOT BE ASKED: {error}")
        return 0
    except NotAuditableError as error:
        _say(f"the lock files cannot be audited: {error}")
        return 1
    findings = sorted(set(_findings(found)))
    for finding in findings:
        _say(finding)
    unknown = sorted({each["name"] for each in found if "skip_reason" in each})
    if unknown:
        _say(f"the service does not know {len(unknown)} of {len(found)} packages: {', '.join(unknown)}")
    if findings:
        return 1
    _say(f"nothing known of {len(found) - len(unknown)} packages")
    if not unknown:
        MEMORY.mkdir(exist_ok=True)
        (MEMORY / "answered").write_text(question)
    return 0


def _ask(locks: Sequence[Path], options: Sequence[str]) -> list[dict[str, Any]]:
    """What the service says of each package. Raises NotAskedError also when it knows none of them."""
    accepted = [word for identifier in ACCEPTED for word in ("--ignore-vuln", identifier)]
    answer: list[dict[str, Any]] = json.loads(_audit(locks, [*accepted, *options], NotAskedError))["dependencies"]
    if all("skip_reason" in each for each in answer):
        raise NotAskedError(answer[0]["skip_reason"] if answer else "there was no question")
    return answer


def _audit(locks: Sequence[Path], options: Sequence[str], error: type[Exception]) -> str:
    """The JSON that pip-audit prints; raises the error when it prints none."""
    command = [
        sys.executable,
        "-m",
        "pip_audit",
        "--require-hashes",
        "--disable-pip",
        "--format",
        "json",
        "--desc",
        "off",
    ]
    command += ["--progress-spinner", "off", "--timeout", "5", "--cache-dir", str(MEMORY)]
    command += [word for lock in locks for word in ("--requirement", str(lock))]
    try:
        run = subprocess.run([*command, *options], capture_output=True, text=True, timeout=LONGEST, check=False)
    except subprocess.TimeoutExpired as late:
        raise error(f"no answer within {LONGEST:.0f} s") from late
    if "--dry-run" in options and run.returncode == 0:
        return ""
    if not run.stdout.startswith("{"):
        raise error((run.stderr.strip().splitlines() or ["pip-audit printed nothing"])[-1])
    return run.stdout


def _first(lock: Path, folder: Path) -> Path:
    """A lock file with nothing but the first package of this one."""
    lines: list[str] = []
    for line in lock.read_text().splitlines():
        if lines and not line.startswith(" "):
            break
        lines.append(line)
    first = folder / lock.name
    first.write_text("\n".join(lines) + "\n")
    return first


def _findings(packages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for package in packages:
        for found in package.get("vulns", ()):
            names = ", ".join([found["id"], *found["aliases"]])
            fixed = " or ".join(found["fix_versions"]) or "no version yet"
            yield f"{package['name']} {package['version']} is vulnerable: {names}; fixed in {fixed}"


def _digest(options: Sequence[str]) -> str:
    words = [*(lock.read_text() for lock in LOCKS), *sorted(ACCEPTED), *options]
    return hashlib.sha256("\n".join(words).encode()).hexdigest()


def _answered(question: str) -> bool:
    """Whether the same question had an answer without findings less than a day ago."""
    answered = MEMORY / "answered"
    try:
        return answered.read_text() == question and time.time() - answered.stat().st_mtime < ANSWER_COUNTS
    except OSError:
        return False


def _say(text: str) -> None:
    sys.stdout.write(f"dependency audit: {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
