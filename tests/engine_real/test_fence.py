"""The engine worker's fence: models still work behind it, and nothing else does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clawd.engine.gguf import files_of
from clawd.engine.protocol import LoadFailed, LoraAdapter, ModelConfig, Sampling
from tests.engine_real.conftest import TEMPLATE, StartWorker
from tests.support.engine_worker import WorkerClient
from tests.support.fence_attempts import ALLOWED, FORBIDDEN
from tests.support.gguf_models import EMBEDDED, write_random_gguf, write_random_lora

pytestmark = [pytest.mark.landlock, pytest.mark.real_model]

GREEDY = Sampling(temperature=0, max_tokens=16)
LONG = "the river runs under the green bridge at seven " * 20


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text("utf-8").splitlines()
    return dict(line.split(":\t", 1) for line in lines)


def test_a_worker_answers_behind_the_whole_fence() -> None:
    with WorkerClient() as worker:
        loaded = worker.load(ModelConfig(path=str(EMBEDDED)))
        assert not isinstance(loaded, LoadFailed)
        assert loaded.info.fence == "landlock+seccomp"
        assert worker.ask("what files are in this project?", GREEDY).text
        status = status_of(worker.process.pid)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        # Threads that are there before a fence would stay outside it.
        for task in Path(f"/proc/{worker.process.pid}/task").iterdir():
            assert "NoNewPrivs:\t1" in (task / "status").read_text()


def test_the_fence_can_be_left_out() -> None:
    with WorkerClient() as worker:
        loaded = worker.load(ModelConfig(path=str(EMBEDDED), fence="off"))
        assert not isinstance(loaded, LoadFailed)
        assert loaded.info.fence == "off"
        assert status_of(worker.process.pid)["Seccomp"] == "0"


def test_a_split_model_with_an_adapter_is_kept_on_disk_over_a_restart(
    start_worker: StartWorker, tmp_path: Path
) -> None:
    made = write_random_gguf(
        tmp_path / "split.gguf", chat_template=TEMPLATE, chain=False, tensors_per_file=6
    )
    whole = write_random_gguf(tmp_path / "whole.gguf", chat_template=TEMPLATE, chain=False)
    assert len(files_of(made)) > 2
    write_random_lora(tmp_path / "lora.gguf", whole)
    (tmp_path / "link.gguf").symlink_to(tmp_path / "lora.gguf")
    config = ModelConfig(
        path=str(made),
        lora=(LoraAdapter(path=str(tmp_path / "link.gguf")),),
        prefix_cache_disk_mb=64,
        prefix_cache_folder=str(tmp_path / "cache" / "prefix"),
    )
    with WorkerClient() as before:
        assert not isinstance(before.load(config), LoadFailed)
        first = before.ask(LONG, GREEDY)
        before.quit()
    assert list((tmp_path / "cache" / "prefix").glob("*.kv"))
    again = start_worker(config).ask(LONG, GREEDY)
    assert again.text == first.text
    assert again.done.cached_tokens > 0


def test_a_part_that_is_missing_is_an_error_and_no_death(tmp_path: Path) -> None:
    made = write_random_gguf(tmp_path / "m.gguf", chain=False, tensors_per_file=6)
    files_of(made)[-1].unlink()
    with WorkerClient() as worker:
        failed = worker.load(ModelConfig(path=str(made)))
        assert isinstance(failed, LoadFailed)
        assert failed.code == "model_load"


class Place:
    """What a hostile model would go for: secrets, a daemon's sockets, other models."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "home"
        (self.home / ".ssh").mkdir(parents=True)
        for name in ("config.toml", "memory.sqlite", ".ssh/id_ed25519", "other.gguf"):
            (self.home / name).write_text("secret")
        self.model = base / "model.gguf"
        self.model.write_bytes(b"GGUF")
        self.cache = base / "prefix"
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.home / "clawd.sock"))
        self.listener.listen()
        self.tcp = socket.create_server(("127.0.0.1", 0))

    def try_all(self, fence: str, **options: Any) -> dict[str, str]:
        """Run every attempt in a process with this fence; say how each ended, "" for well."""
        config = {
            "path": str(self.model),
            "fence": fence,
            "prefix_cache_disk_mb": 1,
            "prefix_cache_folder": str(self.cache),
            **options,
        }
        ran = subprocess.run(
            [sys.executable, "-m", "tests.support.fence_attempts"],
            input=json.dumps(config),
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(Path(__file__).parents[2]),
                "PYTHONDONTWRITEBYTECODE": "1",
                "BASE": str(self.base),
                "PORT": str(self.tcp.getsockname()[1]),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        return dict(json.loads(ran.stdout))


@pytest.fixture
def place(tmp_path: Path) -> Any:
    made = Place(tmp_path)
    yield made
    made.listener.close()
    made.tcp.close()


def test_what_no_model_needs_fails_behind_the_fence_and_works_without(place: Place) -> None:
    bare = place.try_all("off")
    assert {name: said for name, said in bare.items() if said} == {}
    fenced = place.try_all("auto")
    assert {name for name in FORBIDDEN if not fenced[name]} == set()
    assert {name: fenced[name] for name in ALLOWED if fenced[name]} == {}
    assert (place.home / "config.toml").read_text() == "secret"


def test_with_rpc_servers_their_ports_alone_are_reached(place: Place) -> None:
    port = place.tcp.getsockname()[1]
    fenced = place.try_all("auto", rpc_servers=[f"127.0.0.1:{port}"])
    assert fenced["connect_tcp"] == ""
    for name in set(FORBIDDEN) - {"connect_tcp", "send_udp"}:
        assert fenced[name], name
    other = place.try_all("auto", rpc_servers=["127.0.0.1:1"])
    assert other["connect_tcp"]
