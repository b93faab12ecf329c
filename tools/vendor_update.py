"""Fetches what the slides carry inside them: `python -m tools.vendor_update`.

Writes `tools/vendor/` and its list `vendor.json` anew from npm. To change a version,
change it here, run this, and bring THIRD_PARTY.md into line (a test compares them).
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.files import BuildError, write_text

VENDOR = Path(__file__).resolve().parent / "vendor"
LIST = "vendor.json"


@dataclass(frozen=True)
class Package:
    """What is taken from one npm package."""

    name: str
    version: str
    licence: str
    """As package.json says, joined with the licence of what the files embed."""
    files: dict[str, str]
    """Where each file goes, by its place in the package."""


PACKAGES = (
    Package(
        "reveal.js",
        "6.0.2",
        "MIT AND OFL-1.1",  # white.css embeds the font Source Sans Pro
        {
            "dist/reveal.css": "reveal.js/reveal.css",
            "dist/reveal.js": "reveal.js/reveal.js",
            "dist/plugin/notes.js": "reveal.js/notes.js",
            "dist/theme/white.css": "reveal.js/white.css",
            "LICENSE": "reveal.js/LICENSE",
            "css/theme/fonts/source-sans-pro/LICENSE": "reveal.js/LICENSE-fonts",
        },
    ),
    Package(
        "mathjax",
        "3.2.2",
        "Apache-2.0",
        {
            # The full build: the smaller one fetches \boldsymbol, \color and others
            # from a server when a formula uses them.
            "es5/tex-svg-full.js": "mathjax/tex-svg-full.js",
            "LICENSE": "mathjax/LICENSE",
        },
    ),
)


def fetch(package: Package, into: Path) -> dict[str, Any]:
    """Fetch one package, write its files below `into` and return its entry."""
    npm = shutil.which("npm")
    if npm is None:
        raise BuildError("npm is needed to fetch these files; install Node.js")
    with tempfile.TemporaryDirectory() as scratch:
        wanted = f"{package.name}@{package.version}"
        subprocess.run(
            [npm, "pack", "--silent", wanted],
            cwd=scratch,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as packed:
            contents = {place: _read(packed, place) for place in package.files}
            about = json.loads(_read(packed, "package.json"))
    if not package.licence.startswith(about["license"]):
        raise BuildError(f"{wanted}: its licence is {about['license']} now")
    files = []
    for place, name in package.files.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(contents[place])
        checksum = hashlib.sha256(contents[place]).hexdigest()
        files.append({"file": name, "from": place, "sha256": checksum})
    return {
        "files": files,
        "licence": package.licence,
        "npm": package.name,
        "version": package.version,
    }


def _read(packed: tarfile.TarFile, place: str) -> bytes:
    file = packed.extractfile(f"package/{place}")
    if file is None:
        raise BuildError(f"{place} is not a file of the package")
    return file.read()


def update(vendor: Path = VENDOR) -> list[str]:
    """Fetch every package and return the files that changed."""
    before = {path: path.read_bytes() for path in vendor.rglob("*") if path.is_file()}
    entries = [fetch(package, vendor) for package in PACKAGES]
    write_text(vendor / LIST, json.dumps(entries, indent=2) + "\n")
    keep = {vendor / file["file"] for entry in entries for file in entry["files"]}
    for path in before:
        if path not in keep and path.name != LIST:
            path.unlink()
    after = [*sorted(keep), vendor / LIST]
    return [str(path) for path in after if before.get(path) != path.read_bytes()]


if __name__ == "__main__":
    try:
        print("\n".join(update()) or "nothing has changed")
    except (BuildError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
