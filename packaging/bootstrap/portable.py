"""llama.cpp for any processor of one architecture: the engine of the Debian package.

It is the pinned llama-cpp-python with another library: GGML_NATIVE off, and the processor's part
as one module for each generation, of which the fastest that runs is chosen at start. Built by
cmake directly, because the package's own build makes more than is used.

    .setup/portable/<key>/source/     the sdist, unpacked
    .setup/portable/<key>/build/bin/  libllama, libmtmd, libggml and its modules
    ~/.cache/clawd/build/portable-<key>/*.whl   both together, as a wheel
    .setup/portable.log               what tar, cmake and the compiler said

A build that was interrupted goes on where it was.
"""

import base64
import hashlib
import io
import platform
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

from bootstrap.environment import ENGINE, SETUP, build_cache, build_jobs, digest, pip
from bootstrap.lock import entries, pinned
from bootstrap.peer import unpack
from bootstrap.steps import SetupError, run_step

LOG = SETUP / "portable.log"
MACHINE_OPTIONS = {
    "GGML_NATIVE": "OFF",
    "GGML_BACKEND_DL": "ON",
    "GGML_CPU_ALL_VARIANTS": "ON",
    "BUILD_SHARED_LIBS": "ON",
    "LLAMA_BUILD_MTMD": "ON",
    "MTMD_VIDEO": "OFF",
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
    "CMAKE_INSTALL_RPATH": "$ORIGIN",
}
LEFT_OUT = (
    "LLAMA_CURL", "LLAMA_OPENSSL", "LLAMA_BUILD_COMMON", "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI",
    "LLAMA_BUILD_TESTS", "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER",
    "LLAMA_BUILD_APP",
)  # fmt: skip
# The name that the binding or the loader asks for, of those that a library has on disk.
LIBRARIES = ("libllama.so", "libmtmd.so", "libggml.so.0", "libggml-base.so.0")
MODULES = "libggml-cpu-*.so"
NOT_BINDING = ("llama_cpp/server/",)
WHEEL_DATE = (2020, 1, 1, 0, 0, 0)  # zip knows no time zones, so no date of today


def portable_wheel(python: Path) -> Path:
    """Builds the wheel where it is missing, and gives its path.

    Raises:
        SetupError: a step failed.
    """
    kept = build_cache() / f"portable-{portable_key()}"
    wheels = sorted(kept.glob("*.whl"))
    if wheels:
        return wheels[-1]
    folder = SETUP / "portable" / portable_key()
    folder.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    source = fetch_source(python, folder)
    compile_library(source / "vendor" / "llama.cpp", folder / "build")
    return write_wheel(source, folder / "build" / "bin", kept)


def portable_key() -> str:
    """Names a build: this version, machine, compiler and these options."""
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    asked = [pinned()[ENGINE], platform.machine(), compiler.stdout, MACHINE_OPTIONS, LEFT_OUT]
    return digest(asked)


def fetch_source(python: Path, folder: Path) -> Path:
    """Downloads the pinned sdist where that was not done, and gives the folder of its source."""
    source = folder / "source"
    if source.is_dir():
        return source
    wanted = folder / "engine.txt"
    wanted.write_text(pinned_lines(ENGINE), encoding="utf-8")
    where = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes"]
    title = f"downloading the source of {ENGINE} {pinned()[ENGINE]}"
    pip(python, title, "download", *where, "-d", str(folder), "-r", str(wanted))
    archives = sorted(folder.glob("*.tar.gz"))
    if not archives:
        raise SetupError(f"pip left no sdist of {ENGINE} in {folder}")
    unpack(archives[-1], source)
    return source


def pinned_lines(name: str) -> str:
    """Gives what the lock says of one package."""
    return next(entry for entry in entries() if entry.startswith(f"{name}==")) + "\n"


def compile_library(source: Path, build: Path) -> None:
    """Configures and compiles libllama, libmtmd and all modules, at a low priority."""
    options = {**MACHINE_OPTIONS, **dict.fromkeys(LEFT_OUT, "OFF")}
    # No path of this machine in what is shipped, whatever folder it was built in.
    flags = f'"-ffile-prefix-map={source}=." "-ffile-prefix-map={build}=."'
    options |= {"CMAKE_C_FLAGS": flags, "CMAKE_CXX_FLAGS": flags}
    words = [f"-D{name}={value}" for name, value in options.items()]
    configure = ["cmake", "-S", str(source), "-B", str(build), "-G", "Ninja", *words]
    run_step("configuring the portable llama.cpp", configure, log=LOG)
    make = ["cmake", "--build", str(build), "--parallel", str(build_jobs())]
    make += ["--target", "llama", "mtmd"]
    title = "building llama.cpp for every processor (once, about ten minutes)"
    run_step(title, ["nice", "-n", "10", *make], log=LOG)


def write_wheel(source: Path, binaries: Path, folder: Path) -> Path:
    """Packs the binding's Python and the libraries; the same input gives the same bytes."""
    version = pinned()[ENGINE]
    tag = f"py3-none-linux_{platform.machine()}"
    info = f"llama_cpp_python-{version}.dist-info"
    files = dict(wheel_content(source, binaries))
    files[f"{info}/METADATA"] = (source / "PKG-INFO").read_bytes()
    head = f"Wheel-Version: 1.0\nGenerator: clawd\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files[f"{info}/WHEEL"] = head.encode()
    files[f"{info}/licenses/LICENSE.md"] = (source / "LICENSE.md").read_bytes()
    files[f"{info}/licenses/LICENSE.llama.cpp"] = (
        source / "vendor" / "llama.cpp" / "LICENSE"
    ).read_bytes()
    record = io.StringIO()
    for name in sorted(files):
        record.write(f"{name},sha256={record_hash(files[name])},{len(files[name])}\n")
    record.write(f"{info}/RECORD,,\n")
    files[f"{info}/RECORD"] = record.getvalue().encode()
    target = folder / f"llama_cpp_python-{version}-{tag}.whl"
    partial = target.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, WHEEL_DATE)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return partial.rename(target)


def wheel_content(source: Path, binaries: Path) -> Iterator[tuple[str, bytes]]:
    """Yields each file by its name in the wheel.

    Raises:
        SetupError: the build lacks a library.
    """
    package = source / "llama_cpp"
    for path in sorted((*package.rglob("*.py"), package / "py.typed")):
        name = f"llama_cpp/{path.relative_to(package).as_posix()}"
        if not name.startswith(NOT_BINDING):
            yield name, path.read_bytes()
    modules = sorted(binaries.glob(MODULES))
    if not modules:
        raise SetupError(f"the build left no {MODULES} in {binaries}; see {LOG}")
    for name in LIBRARIES:
        yield f"llama_cpp/lib/{name}", (binaries / name).read_bytes()
    for module in modules:
        yield f"llama_cpp/lib/{module.name}", module.read_bytes()


def record_hash(content: bytes) -> str:
    """Gives a hash in the form of RECORD (PEP 376)."""
    plain = base64.urlsafe_b64encode(hashlib.sha256(content).digest())
    return plain.rstrip(b"=").decode("ascii")
