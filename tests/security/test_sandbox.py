"""What a command in the sandbox can see, reach and change: real runs of bubblewrap."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clawd
from clawd.errors import InvalidRequestError, SandboxUnavailableError
from clawd.security.sandbox.limits import can_bind_numbers
from clawd.security.sandbox.plan import ChildCommand, ResourceLimits
from clawd.security.sandbox.process import ChildResult
from clawd.security.sandbox.run import Sandbox, SandboxSettings

pytestmark = pytest.mark.sandbox

_PYTHON = "/usr/bin/python3"
needs_python = pytest.mark.skipif(not Path(_PYTHON).exists(), reason="no python under /usr")


class Place:
    """A workspace beside a secret, in a home that has both."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.home = base / "clawd-home"
        self.workspace = base / "work space"
        self.home.mkdir()
        self.workspace.mkdir()
        self.secret = self.home / "receipts.key"
        self.secret.write_text("top-secret")
        self.outside = base / "outside.txt"
        self.outside.write_text("untouched")
        self.sandbox = Sandbox(SandboxSettings(home=self.home))

    async def sh(self, script: str, **options: object) -> ChildResult:
        command = ChildCommand(argv=("sh", "-c", script), workspace=self.workspace)
        for name, value in options.items():
            command = _with(command, name, value)
        return await self.sandbox.run(command)


def _with(command: ChildCommand, name: str, value: object) -> ChildCommand:
    fields = {key: getattr(command, key) for key in command.__struct_fields__}
    return ChildCommand(**{**fields, name: value})


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_the_probe_says_bwrap_and_by_which_program() -> None:
    status = await Sandbox(SandboxSettings()).probe()
    assert (status.level, Path(status.program).name, status.reason) == ("bwrap", "bwrap", "")
    assert status.layers == ("namespaces", "landlock", "seccomp", "rlimits", "disk watch")
    assert status.unbounded[0] == "memory of all processes together"


async def test_the_workspace_can_be_written_under_a_path_with_blanks(place: Place) -> None:
    result = await place.sh("pwd; echo hello > note.txt; cat note.txt")
    assert result.output == f"{place.workspace}\nhello\n"
    assert (place.workspace / "note.txt").read_text() == "hello\n"
    assert (result.exit_code, result.level, result.ended_by) == (0, "bwrap", "exit")


async def test_nothing_outside_the_workspace_can_be_read(place: Place) -> None:
    for path in (place.secret, place.outside, "/etc/shadow", "/etc/hostname", "/root", "/home"):
        result = await place.sh(f"cat '{path}' || ls '{path}'")
        assert "No such file" in result.output, path
        assert "top-secret" not in result.output


async def test_every_way_around_the_workspace_to_a_file_outside_fails(place: Place) -> None:
    (place.workspace / "link").symlink_to(place.outside)
    for script in (
        f"echo broken > '{place.outside}'",
        "echo broken > ../outside.txt",
        "echo broken > link",
        f"echo broken > '/proc/self/root{place.outside}'",
        f"echo broken > '/proc/1/root{place.outside}'",
        f"ln '{place.outside}' here",
        f"rm -f '{place.outside}' && false",
        f"find '{place.base}' -name outside.txt -delete; false",
    ):
        # Some succeed, on the sandbox's own /tmp; what is really there stays as it is.
        await place.sh(script)
        assert place.outside.read_text() == "untouched", script


async def test_the_system_and_the_sandbox_itself_cannot_be_written(place: Place) -> None:
    for target in ("/usr/x", "/x", "/etc/passwd", "/etc/x", "/dev/x", "/proc/sys/kernel/x"):
        result = await place.sh(f"echo x > {target}")
        assert result.exit_code != 0, target


async def test_the_users_of_the_sandbox_are_made_up(place: Place) -> None:
    result = await place.sh("cat /etc/passwd; id -un; whoami")
    assert result.output.count("\n") <= 5
    assert result.output.endswith("sandbox\nsandbox\n")


async def test_the_environment_is_the_allowed_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    result = await place.sh(
        "env; cat /proc/1/environ /proc/self/environ 2>/dev/null | tr '\\0' '\\n'",
        env={"EXTRA": "given"},
    )
    assert "sk-very-secret" not in result.output
    names = {line.split("=")[0] for line in result.output.splitlines()}
    fixed = {"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "PWD", "EXTRA"}
    # bubblewrap's own, by which the next daemon finds what was left behind; it tells nothing.
    assert names <= fixed | {"_", "SHLVL", "OLDPWD", "CLAWD_SANDBOX"}
    assert str(place.base) not in result.output.replace(str(place.workspace), "")
    assert "EXTRA=given" in result.output


async def test_p9_files_of_commands_get_what_the_owners_umask_leaves(place: Place) -> None:
    """Rows: every level that there is here."""
    before, found = os.umask(0o077), {}  # the daemon's own, which keeps its home private
    try:
        for level in ("bwrap", "landlock", "none"):
            place.sandbox = Sandbox(
                SandboxSettings(
                    home=place.home,
                    mode="off" if level == "none" else "preferred",
                    levels=() if level == "none" else (level,),
                    umask=0o027,
                )
            )
            used = (await place.sandbox.probe()).level
            await place.sh(f"touch {used}.txt; mkdir {used}")
            for name in (f"{used}.txt", used):
                found[name] = oct((place.workspace / name).stat().st_mode & 0o777)
    finally:
        os.umask(before)
    assert found == {name: "0o640" if "." in name else "0o750" for name in found}
    assert {"bwrap.txt", "none.txt"} <= set(found)


async def test_no_descriptor_of_ours_is_inherited(place: Place) -> None:
    with place.secret.open() as held:
        os.set_inheritable(held.fileno(), True)
        result = await place.sh("ls -l /proc/self/fd")
    numbers = [line.split(" -> ")[0].split()[-1] for line in result.output.splitlines()[1:]]
    assert numbers == ["0", "1", "2", "3"]  # 3 is the listing itself
    assert "receipts.key" not in result.output


async def test_no_process_outside_can_be_seen(place: Place) -> None:
    result = await place.sh("ls /proc | grep -c '^[0-9]'; cat /proc/1/cmdline | tr '\\0' ' '")
    count, first = result.output.split("\n", 1)
    assert int(count) <= 5
    assert str(place.home) not in first  # the options are not on the command line


@needs_python
async def test_there_is_no_network(place: Place) -> None:
    script = (
        "import socket\n"
        "for family, address in ((socket.AF_INET, ('127.0.0.1', 22)), "
        "(socket.AF_INET, ('1.1.1.1', 53))):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n"
        "        s = socket.socket(family, kind)\n"
        "        s.settimeout(2)\n"
        "        try:\n"
        "            s.connect(address); s.send(b'x'); print('reached', address, kind)\n"
        "        except OSError: pass\n"
        "print(sorted(n for _, n in socket.if_nameindex()))\n"
    )
    command = ChildCommand(argv=(_PYTHON, "-c", script), workspace=place.workspace)
    result = await place.sandbox.run(command)
    assert "reached" not in result.output.replace("reached ('127.0.0.1', 22) 2", "")
    assert result.output.endswith("['lo']\n")


@needs_python
async def test_namespaces_cannot_be_nested(place: Place) -> None:
    result = await place.sh("unshare -U true; unshare -m true; mount -t tmpfs x /tmp")
    assert result.exit_code != 0
    assert result.output.count("\n") >= 3


async def test_tmp_and_shared_memory_are_bounded(tmp_path: Path) -> None:
    limits = ResourceLimits(tmp_bytes=1 << 20, shm_bytes=1 << 20)
    sandbox = Sandbox(SandboxSettings(limits=limits))
    for folder in ("/tmp", "/dev/shm"):
        script = f"head -c 2000000 /dev/zero > {folder}/x"
        command = ChildCommand(argv=("sh", "-c", script), workspace=_made(tmp_path / "w"))
        result = await sandbox.run(command)
        assert "No space left" in result.output, folder


async def test_limits_of_files_and_memory_and_processor_hold(tmp_path: Path) -> None:
    limits = ResourceLimits(
        file_bytes=1 << 20, open_files=20, memory_bytes=64 << 20, cpu_s=1, processes=40
    )
    sandbox = Sandbox(SandboxSettings(limits=limits))

    async def run(script: str) -> ChildResult:
        argv = ("bash", "-c", script)
        return await sandbox.run(ChildCommand(argv=argv, workspace=tmp_path, timeout_s=90))

    assert (await run("head -c 2000000 /dev/zero > big")).exit_code != 0
    assert (tmp_path / "big").stat().st_size == 1 << 20
    assert (await run("exec 19</dev/null")).exit_code == 0
    assert (await run("exec 25</dev/null")).exit_code != 0
    hungry = await run("head -c 200000000 /dev/zero | tail -n 1 | wc -c")
    assert "200000000" not in hungry.output
    busy = await run("while :; do :; done")
    assert (busy.exit_code, busy.timed_out) == (137, False)
    assert (await run("ulimit -c; ulimit -u")).output == "0\n40\n"


@pytest.mark.skipif(not can_bind_numbers(), reason="not root, or Linux before 6.14")
async def test_forks_stop_for_root_as_well(tmp_path: Path) -> None:
    everyone = Path("/proc/sys/kernel/pid_max").read_bytes()
    sandbox = Sandbox(SandboxSettings(limits=ResourceLimits(processes=20)))
    bomb = (
        "import os, time\n"
        "while int(open('/proc/sys/kernel/pid_max').read()) > 400: time.sleep(0.05)\n"
        "try:\n"
        "    for made in range(500):\n"
        "        if not os.fork(): time.sleep(60)\n"
        "except OSError as error: print('stopped', made < 400)\n"
    )
    result = await sandbox.run(
        ChildCommand(argv=(_PYTHON, "-c", bomb), workspace=tmp_path, timeout_s=90)
    )
    assert result.output == "stopped True\n"
    assert Path("/proc/sys/kernel/pid_max").read_bytes() == everyone


@pytest.mark.skipif(not can_bind_numbers(), reason="not root, or Linux before 6.14")
async def test_very_many_processes_one_after_the_other_are_no_matter(place: Place) -> None:
    wait = "while [ $(cat /proc/sys/kernel/pid_max) -gt 1000 ]; do sleep 0.05; done\n"
    many = "i=0; while [ $i -lt 700 ]; do /bin/true | /bin/true || exit 1; i=$((i + 1)); done\n"
    result = await place.sh(wait + many + "echo all of them", timeout_s=110.0)
    assert (result.output, result.exit_code) == ("all of them\n", 0)


async def test_forks_stop_at_the_limit_for_an_ordinary_user(tmp_path: Path) -> None:
    script = (
        "import asyncio, json, sys\n"
        "from pathlib import Path\n"
        "from clawd.security.sandbox.run import *\n"
        "from clawd.security.sandbox.plan import *\n"
        "async def main():\n"
        "    sandbox = Sandbox(SandboxSettings(limits=ResourceLimits(processes=20)))\n"
        "    bomb = 'for i in $(seq 60); do sleep 300 & done; echo all'\n"
        "    said = []\n"
        "    def heard(text):\n"
        "        said.append(text)\n"
        "        if 'unavailable' in ''.join(said) or 'all' in ''.join(said): task.cancel()\n"
        "    task = asyncio.create_task(sandbox.run(ChildCommand(argv=('bash', '-c', bomb),"
        " workspace=Path(sys.argv[1]), timeout_s=90), on_output=heard))\n"
        "    await asyncio.wait([task])\n"
        "    if not task.cancelled(): task.result()\n"
        "    print(json.dumps(''.join(said)))\n"
        "asyncio.run(main())\n"
    )
    tmp_path.chmod(0o777)
    for folder in list(tmp_path.parents)[:3]:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o711)
    # The kernel counts all processes of a user: this one has none beside the test's.
    user = 100_000 + os.getpid() % 100_000
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
    start = [*(become if os.getuid() == 0 else []), sys.executable, "-c"]
    env = {"PYTHONPATH": str(Path(clawd.__file__).parent.parent), "PATH": os.environ["PATH"]}
    if subprocess.run([*start, "import msgspec"], env=env, capture_output=True).returncode:
        pytest.skip("another user cannot start this interpreter")
    ran = subprocess.run(
        [*start, script, str(tmp_path)], env=env, capture_output=True, text=True, timeout=110
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    output = json.loads(ran.stdout)
    assert "Resource temporarily unavailable" in output
    assert "all" not in output


async def test_exit_codes_and_signals_are_told(place: Place) -> None:
    assert (await place.sh("exit 3")).exit_code == 3
    killed = await place.sh("kill -9 $$")
    assert (killed.exit_code, killed.signal) == (137, 9)
    missing = await place.sandbox.run(
        ChildCommand(argv=("no-such-program",), workspace=place.workspace)
    )
    assert missing.exit_code == 127


async def test_input_is_given_and_otherwise_empty(place: Place) -> None:
    assert (await place.sh("cat", stdin=b"x" * 300_000)).output_bytes == 300_000
    assert (await place.sh("cat")).output == ""


async def test_forbidden_paths_and_the_home_are_masked_inside_a_workspace(tmp_path: Path) -> None:
    workspace = _made(tmp_path / "w")
    home, keys = _made(workspace / "deep" / ".clawd"), _made(workspace / ".ssh")
    (home / "memory.sqlite").write_text("memories")
    (keys / "id").write_text("private")
    (workspace / "plain.key").write_text("private")
    forbidden = (keys, workspace / "plain.key")
    sandbox = Sandbox(SandboxSettings(home=home, forbidden_paths=forbidden))

    async def sh(script: str) -> str:
        result = await sandbox.run(ChildCommand(argv=("sh", "-c", script), workspace=workspace))
        return result.output

    shown = await sh("cat deep/.clawd/* .ssh/* plain.key; ls -a deep/.clawd .ssh; true")
    assert "memories" not in shown
    assert "private" not in shown
    # A hidden thing cannot be carried away under another name, to be read by the next command.
    await sh("mv deep other; mv .ssh ssh; mv plain.key key; rm -rf .ssh deep plain.key; true")
    assert (home / "memory.sqlite").read_text() == "memories"
    assert (keys / "id").read_text() == "private"
    assert (workspace / "plain.key").read_text() == "private"


async def test_a_readonly_workspace_cannot_be_changed(place: Place) -> None:
    (place.workspace / "note").write_text("old")
    result = await place.sh("cat note; echo new > note", workspace_writable=False)
    assert result.exit_code != 0
    assert (place.workspace / "note").read_text() == "old"


async def test_further_readonly_paths_can_be_read_and_not_written(place: Place) -> None:
    extra = place.base / "extra"
    extra.mkdir()
    (extra / "data").write_text("facts")
    result = await place.sh(f"cat '{extra}/data'; echo x > '{extra}/data'", readonly_paths=(extra,))
    assert result.output.startswith("facts")
    assert result.exit_code != 0


@pytest.mark.parametrize("folder", ["/", "/usr", "/etc", "/usr/share", "/proc", "/dev"])
async def test_a_system_folder_is_refused_as_workspace(folder: str) -> None:
    sandbox = Sandbox(SandboxSettings())
    with pytest.raises(SandboxUnavailableError, match="system folder"):
        await sandbox.run(ChildCommand(argv=("true",), workspace=Path(folder)))


async def test_a_workspace_that_is_forbidden_is_refused(tmp_path: Path) -> None:
    workspace = _made(tmp_path / "a" / "b")
    sandbox = Sandbox(SandboxSettings(forbidden_paths=(tmp_path / "a",)))
    with pytest.raises(SandboxUnavailableError, match="forbidden"):
        await sandbox.run(ChildCommand(argv=("true",), workspace=workspace))


async def test_what_cannot_be_meant_is_refused(place: Place) -> None:
    for wrong in (
        ChildCommand(argv=(), workspace=place.workspace),
        ChildCommand(argv=("a\0b",), workspace=place.workspace),
        ChildCommand(argv=("true",), workspace=place.workspace, cwd=place.base),
        ChildCommand(argv=("true",), workspace=place.workspace, env={"A=B": "c"}),
    ):
        with pytest.raises(InvalidRequestError):
            await place.sandbox.run(wrong)


async def test_words_that_look_like_options_or_slots_reach_the_command_as_they_are(
    place: Place,
) -> None:
    argv = ("printf", "%s|", "--args", "{status}", "--", "--bind")
    result = await place.sandbox.run(ChildCommand(argv=argv, workspace=place.workspace))
    assert result.output == "--args|{status}|--|--bind|"


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
