"""The software bill of materials of the service, CycloneDX in JSON: `make sbom`.

Promises: every package that runtime.lock pins, which the image installs in addition to Python, with version, hashes
and what needs it; the same text for the same lock file and version of ours. It is valid by the schema of CycloneDX, or
it is not written. Packages for one platform only are in it for all.

Left out is what the lock file does not say: licenses of others, and what Python and the system around it are, which the
digest of the base image names.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from dra_extender.version import VERSION

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements" / "runtime.lock"
NAME = "dra-extender"
_PIN = re.compile(r"([a-z0-9][a-z0-9._-]*)==([^\s;]+)")
_HASH = re.compile(r" +--hash=sha256:([0-9a-f]{64})")
_NEEDED_BY = re.compile(r" +# (?: |via) +([a-z0-9][a-z0-9._-]*)")


class Pin(NamedTuple):
    """A package of the lock file, and the packages that need it."""

    name: str
    version: str
    hashes: list[str]
    needed_by: list[str]


def main(arguments: list[str]) -> int:
    """The exit status. The one argument is the file to write."""
    # Here: the import compiles grammars for seconds, and every worker of the tests imports this module.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    (target,) = arguments
    text = document(pins(LOCK.read_text().splitlines()), VERSION)
    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if problem is not None:
        sys.stderr.write(f"sbom: {problem}\n")
        return 1
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(text + "\n")
    sys.stdout.write(f"{target}\n")
    return 0


def pins(lines: Iterable[str]) -> Iterator[Pin]:
    """The packages of a lock file as uv writes it. Raises ValueError for any other line."""
    pin: Pin | None = None
    for line in lines:
        found = _PIN.match(line)
        if found:
            if pin is not None:
                yield pin
            pin = Pin(found[1], found[2], [], [])
        elif pin is None:
            raise ValueError(f"not a lock file: {line!r}")
        elif hashed := _HASH.match(line):
            pin.hashes.append(hashed[1])
        elif needing := _NEEDED_BY.match(line):
            pin.needed_by.append(needing[1])
        elif line.strip() not in ("# via", "#   -c requirements/dev.lock"):
            raise ValueError(f"not a line of a lock file: {line!r}")
    if pin is not None:
        yield pin


def document(found: Iterable[Pin], our_version: str) -> str:
    """The JSON text."""
    listed = list(found)
    purl = PackageURL("pypi", name=NAME, version=our_version)
    licenses = [DisjunctiveLicense(id="Apache-2.0")]
    ours = Component(
        name=NAME, version=our_version, type=ComponentType.APPLICATION, bom_ref=NAME, licenses=licenses, purl=purl
    )
    components = {pin.name: _component(pin) for pin in listed}
    # A name that stands for the content, and no time: the same content gives the same text.
    bom = Bom(components=components.values(), serial_number=uuid5(NAMESPACE_URL, f"{purl} {listed}"))
    bom.metadata.component = ours
    bom.metadata.timestamp = None  # type: ignore[assignment] # the library's own way to leave it out
    for needing in (NAME, *components):
        needed = [components[pin.name] for pin in listed if needing in pin.needed_by]
        bom.register_dependency(ours if needing == NAME else components[needing], needed)
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(pin: Pin) -> Component:
    url = XsUri(f"https://pypi.org/project/{pin.name}/{pin.version}/")
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=content) for content in pin.hashes]
    # One for each file that may be installed, so they are those of the distribution and not of the component.
    files = ExternalReference(type=ExternalReferenceType.DISTRIBUTION, url=url, hashes=hashes)
    purl = PackageURL("pypi", name=pin.name, version=pin.version)
    return Component(name=pin.name, version=pin.version, bom_ref=str(purl), purl=purl, external_references=[files])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
