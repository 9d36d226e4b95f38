#!/usr/bin/env python3
"""test_wheel.py: tests the wheel."""

import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile

import guest


def wheel(folder):
    """The README's program runs with the wheel, whose RECORD is correct."""
    built = subprocess.run([guest.PACKAGE / "build_wheel.sh", os.environ["TIDE_LIBRARY"], folder / "dist"],
                           capture_output=True, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(built) as files:
        files.extractall(folder / "site")
        record = next(name for name in files.namelist() if name.endswith("/RECORD"))
        for row in files.read(record).decode().splitlines():
            name, digest, size = row.split(",")
            data = files.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert name == record or (digest, size) == (f"sha256={found}", str(len(data))), row
        assert sorted(files.namelist()) == sorted(r.split(",")[0] for r in files.read(record).decode().splitlines())
    program = re.search(r"```python\n(.*?)```", (guest.PACKAGE / "README.md").read_text(), re.DOTALL)[1]
    (folder / "nvme").mkdir()
    program = program.replace("/nvme", str(folder / "nvme")).replace("10GiB", "256MiB").replace('"1GiB")', '"64MiB")')
    settings = {**os.environ, "PYTHONPATH": str(folder / "site")}
    del settings["TIDE_LIBRARY"]
    program += "\nassert tide.__file__.startswith(" + repr(str(folder)) + ")\n"
    ran = subprocess.run([sys.executable, "-c", program], env=settings, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert (folder / "nvme/checkpoints/checkpoint-10").exists()


def no_library(folder):
    """Without the library, the script fails and makes no folder."""
    built = subprocess.run([guest.PACKAGE / "build_wheel.sh", folder / "none.so", folder / "dist"],
                           capture_output=True, text=True)
    assert built.returncode == 2 and "none.so does not exist; build libtide.so first" in built.stderr, built
    assert not (folder / "dist").exists()


sys.exit(guest.main([wheel, no_library]))
