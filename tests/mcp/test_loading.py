"""The SDK costs 40 MB: it is loaded by a server that is connected, and by nothing else."""

import subprocess
import sys

from tests.support.rows import each_row

HEAVY = "{'mcp', 'mcp_types', 'httpx2', 'anyio'}"

IMPORTED = f"""
import sys
import clawd.mcp.supervisor
print(sorted({HEAVY} & sys.modules.keys()))
"""

CONFIGURED = f"""
import asyncio, sys, tempfile
from pathlib import Path
from clawd.mcp.model import ServerSettings
from clawd.mcp.supervisor import Servers
from clawd.security.sandbox.run import Sandbox, SandboxSettings

async def main():
    folder = Path(tempfile.mkdtemp())
    sandbox = Sandbox(SandboxSettings(home=folder))
    none = Servers((), sandbox=sandbox, folder=folder / "none")
    none.start()
    waiting = Servers((ServerSettings(alias="a", url="http://127.0.0.1:9/"),),
                      sandbox=sandbox, folder=folder / "mcp")
    waiting.states()
    await asyncio.sleep(0.1)
    print(sorted({HEAVY} & sys.modules.keys()), (folder / "none").exists())
    waiting.start()
    state = await waiting.connect("a")
    print(state.link, "mcp" in sys.modules)
    await waiting.close()
    await none.close()

asyncio.run(main())
"""


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_the_servers_does_not_load_the_sdk() -> None:
    assert said(IMPORTED) == "[]\n"


def test_only_a_server_that_is_started_loads_it() -> None:
    assert said(CONFIGURED) == "[] False\nwaiting True\n"


OFF_THE_LOOP = """
import asyncio, sys, threading
from clawd.mcp.mount import Mount, load_sdk

class Spy:
    def find_spec(self, name, path=None, target=None):
        if name == "mcp":
            print(threading.current_thread() is threading.main_thread())

async def main():
    sys.meta_path.insert(0, Spy())
    if sys.argv[1] == "mount":
        mount = Mount(object)
        await mount._start()
        await mount.close()
    else:
        await load_sdk()

asyncio.run(main())
"""


@each_row("how", ["mount", "lines"])
def test_it_is_loaded_beside_the_loop_that_answers_others(how: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OFF_THE_LOOP, how], capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["False"], ran.stderr


AT_ONCE = """
import asyncio
from clawd.mcp.mount import load
from clawd.mcp.mount import load_sdk

async def main():
    await asyncio.gather(load_sdk(), load("clawd.mcp.connection"), load_sdk())
    print("loaded")

asyncio.run(main())
"""


def test_a_client_and_a_server_that_load_it_at_once_both_get_it() -> None:
    assert said(AT_ONCE) == "loaded\n"
