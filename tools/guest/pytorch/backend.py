"""backend.py: builds the wheel (PEP 517) with Python's standard library only. If TIDE_LIBRARY names a libtide.so,
the wheel contains it."""

import base64
import hashlib
import os
import pathlib
import platform
import re
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def _value(key):
    return re.search(rf'^{key} = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.MULTILINE)[1]


def _files(library):
    """Returns the name of the wheel and its files, {name: content}."""
    version, tag = _value("version"), f"py3-none-linux_{platform.machine()}" if library else "py3-none-any"
    info = f"tide-{version}.dist-info"
    files = {f"tide/{path.name}": path.read_bytes() for path in sorted(HERE.glob("tide/*.py"))}
    if library:
        files["tide/libtide.so"] = pathlib.Path(library).read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: tide\nVersion: {version}\nSummary: {_value('description')}\n"
        f"Requires-Python: {_value('requires-python')}\nRequires-Dist: torch>=2.1\n"
        f"Requires-Dist: numpy\n").encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: tide\n"
                              f"Root-Is-Purelib: {'false' if library else 'true'}\nTag: {tag}\n").encode()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    return f"tide-{version}-{tag}.whl", files


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name, files = _files(os.environ.get("TIDE_LIBRARY"))
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            wheel.writestr(entry, data)
    return name
