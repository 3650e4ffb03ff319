"""What every command does with good words and with bad ones: one row each."""

from collections.abc import Sequence

import msgspec

USAGE, FAILED, DONE = 2, 1, 0


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`words` follow the command's name and work; `bad` do not and end with `bad_code`.

    Attributes:
        code: how it ends when it works.
        says: stands in what a person is shown.
        why: stands in what a person is told of `bad`; the hint as well, where one is due.
        json_words: what asks for JSON.
        json_code: how it ends then, where that differs.
        needs_daemon: whether it is refused where none runs and none may be started.
        typed: what is typed at it; it works at a terminal only.
    """

    words: Sequence[str] = ()
    code: int = DONE
    says: str = ""
    bad: Sequence[str] = ("--nonsense",)
    bad_code: int = USAGE
    why: str = "No such option"
    stdin: str = ""
    json_words: Sequence[str] = ("--json",)
    needs_daemon: bool = True
    typed: str = ""


NO_CONVERSATION = "no conversation"
EXTRA = "unexpected extra argument"

ROWS: dict[str, Row] = {
    "agent": Row(words=["-m", "hello"], says="an answer", bad=["--continue", "--conversation", "x", "-m", "x"], why="exclude each other"),
    "agent show-prompt": Row(says="clawd", bad=["-C", "{folder}", "--here"], why="exclude each other"),
    "approval allow": Row(words=["{an_approval}"], says="file_write", bad=["nothing"], bad_code=FAILED, why="pending"),
    "approval approve": Row(words=["{an_approval}"], says="file_write", bad=["{an_approval}", "--days", "3"], why="--days goes with"),
    "approval deny": Row(words=["{an_approval}"], says="file_write", bad=["nothing"], bad_code=FAILED, why="pending"),
    "approval edit": Row(words=["{an_approval}", "--arguments", '{{"path": "b.md", "content": "x"}}'], says="file_write", bad=["x", "--arguments", "y"], bad_code=FAILED, why="not a JSON object"),
    "approval list": Row(says=""),
    "approval revoke": Row(words=["{a_rule}"], says="rule", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "approval rules": Row(says="", bad=["--revoke", "nothing"], bad_code=FAILED, why="nothing"),
    "backup create": Row(words=["{new}"], says="files, ", bad=["{table}"], bad_code=FAILED, why="--force", needs_daemon=False),
    "backup list": Row(words=["{backup}"], says="private keys  not in it", bad=["{new}"], bad_code=FAILED, why="there is no file", needs_daemon=False),
    "backup restore": Row(words=["{backup}", "--into", "{new}"], says="receipts: ", bad=["{table}", "--into", "{new}"], bad_code=FAILED, why="not a backup that can be trusted", needs_daemon=False),
    "backup verify": Row(words=["{backup}"], says="every file is what it was", bad=["{table}"], bad_code=FAILED, why="not a backup that can be trusted", needs_daemon=False),
    "cache clear": Row(words=["-C", "{folder}"], says="Nothing was kept", bad=["--project", "-C", "{folder}"], why="exclude each other"),
    "cache list": Row(says="", bad=["x"], why=EXTRA),
    "completion": Row(words=["bash"], says="complete -F", bad=["csh"], why="csh", needs_daemon=False),
    "config edit": Row(says="Nothing was changed", bad=["--file", "{new}"], bad_code=FAILED, why="clawctl init", needs_daemon=False),
    "config schema": Row(says="properties", needs_daemon=False),
    "config set": Row(words=["security.autonomy", "supervised"], says="", bad=["no.such.key", "1"], bad_code=FAILED, why="was left as it is", needs_daemon=False),
    "config unset": Row(words=["security.autonomy"], says="", bad=["=", "--no-reload"], bad_code=FAILED, why="is not a key", needs_daemon=False),
    "config show": Row(says="default_provider", bad=["--file", "{new}"], bad_code=FAILED, why="", needs_daemon=False),
    "config validate": Row(says="valid", bad=["--file", "{new}"], bad_code=FAILED, why="", needs_daemon=False),
    "conversation compress": Row(words=["{a_long_conversation}"], says="A summary stands", bad=["{conversation}", "--undo", "--undo-last"], why="exclude each other"),
    "conversation delete": Row(words=["{a_conversation}", "--yes"], says="deleted", bad=["{conversation}"], why="--yes"),
    "conversation export": Row(words=["{conversation}"], says="hello", bad=["nothing"], bad_code=FAILED, why=NO_CONVERSATION),
    "conversation fork": Row(words=["{conversation}"], says="messages of", bad=["{conversation}", "--at", "0"], why="--at"),
    "conversation list": Row(says="TITLE", bad=["--limit", "0"], why="--limit"),
    "conversation rename": Row(words=["{a_conversation}", "a", "title"], says="a title", bad=["nothing", "t"], bad_code=FAILED, why=NO_CONVERSATION),
    "conversation rewind": Row(words=["{conversation}", "--to", "{a_message}", "--preview"], says="No file was changed", bad=["{conversation}"], why="--to"),
    "conversation show": Row(words=["{conversation}"], says="hello", bad=["nothing"], bad_code=FAILED, why=NO_CONVERSATION),
    "doctor": Row(says="sandbox", needs_daemon=False),
    "estop": Row(words=["--status"], says="not set", bad=["now"], why=EXTRA, needs_daemon=False),
    "files add": Row(words=["{table}", "-c", "{conversation}"], says="added", bad=["-", "-c", "{conversation}"], why="--name"),
    "files delete": Row(words=["{a_file}", "-c", "{conversation}"], says="deleted", bad=["nothing", "-c", "{conversation}"], bad_code=FAILED, why="nothing"),
    "files list": Row(words=["-c", "{conversation}"], says="", bad=[], why="--conversation"),
    "files save": Row(words=["{file}", "{new}", "-c", "{conversation}"], says="saved", bad=["{file}", "{table}", "-c", "{conversation}"], bad_code=FAILED, why="Name a new file"),
    "files show": Row(words=["{file}", "-c", "{conversation}"], says="text", bad=["nothing", "-c", "{conversation}"], bad_code=FAILED, why="nothing"),
    "init": Row(says="kept", needs_daemon=False),
    "jobs list": Row(says="", bad=["-c", "nothing"], bad_code=FAILED, why=NO_CONVERSATION),
    "jobs output": Row(words=["{job}"], says="begun", bad=["nothing"], bad_code=FAILED, why="clawctl jobs list"),
    "jobs show": Row(words=["{job}"], says="runs since", bad=["nothing"], bad_code=FAILED, why="clawctl jobs"),
    "jobs stop": Row(words=["{a_job}"], says="stopped after", bad=["nothing"], bad_code=FAILED, why="clawctl jobs"),
    "key create": Row(words=["--name", "k"], says="clawd_", bad=["--scope", "everything"], bad_code=FAILED, why="everything"),
    "key list": Row(says=""),
    "key revoke": Row(words=["{a_key}"], says="", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "knowledge append": Row(words=["{note}", "more"], says="updated", bad=["/", "x"], bad_code=FAILED, why="keyword"),
    "knowledge delete": Row(words=["{note}"], says="", bad=["/"], bad_code=FAILED, why="keyword"),
    "knowledge edit": Row(words=["{note}"], says="Nothing was changed", bad=[], why="KEYWORDS"),
    "knowledge keywords": Row(says="", bad=["--limit", "0"], why="--limit"),
    "knowledge list": Row(says="", bad=["--limit", "0"], why="--limit"),
    "knowledge load": Row(words=["{note}"], says="text", bad=["nothing"], bad_code=FAILED, why=""),
    "knowledge save": Row(words=["new", "-"], stdin="from a pipe", says="", bad=["/", "x"], bad_code=FAILED, why="keyword"),
    "knowledge search": Row(words=["{note}"], says="note", bad=["x", "--page", "0"], why="--page"),
    "logs": Row(says="INFO", bad=["--level", "loud"], why="loud", needs_daemon=False),
    "mcp accept": Row(words=["{server}", "{offer}"], says="hand is ready", bad=["hand", "x"], bad_code=FAILED, why="nothing was accepted"),
    "mcp diff": Row(words=["{server}"], says="hand offers what was first seen", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "mcp add": Row(words=["{a_server}", "http://127.0.0.1:9/mcp"], says="added", bad=["x", "ftp://x"], bad_code=FAILED, why="left as it is", needs_daemon=False),
    "mcp import": Row(words=["{servers_file}"], says="added", bad=["/no/such/file"], why="does not exist", needs_daemon=False),
    "mcp connect": Row(words=["{server}"], says="hand is ready", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "mcp disconnect": Row(words=["{server}"], says="hand is off", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "mcp list": Row(says="hand"),
    "mcp remove": Row(words=["{known_server}"], says="removed", bad=["nothing"], bad_code=FAILED, why="is not in the config", needs_daemon=False),
    "mcp serve": Row(words=[], says="", bad=["x"], why=EXTRA, json_words=()),
    "mcp tool": Row(words=["{server}", "echo"], says="hand__echo", bad=["hand", "echo", "--json", "["], why="is not JSON", json_words=("--output", "json")),
    "mcp tools": Row(words=["{server}"], says="hand__echo", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "memory backup": Row(words=["{new}"], says="wrote", bad=["{table}"], bad_code=FAILED, why="policy.toml"),
    "memory check": Row(says="is good"),
    "memory clear": Row(words=["{a_conversation}", "--yes"], says="deleted", bad=[], why="--yes"),
    "memory export": Row(says="hello", bad=["-o", "{table}"], bad_code=FAILED, why="is not there yet"),
    "memory list": Row(says="TITLE", bad=["--limit", "0"], why="--limit"),
    "memory search": Row(words=["hello"], says="hello", bad=[], why="WORDS"),
    "memory show": Row(words=["{conversation}"], says="hello", bad=["nothing"], bad_code=FAILED, why=NO_CONVERSATION),
    "metrics": Row(says="clawd_"),
    "model add": Row(words=["{gguf}"], says="is in", bad=["{table}"], bad_code=FAILED, why="is not a GGUF"),
    "model accept": Row(words=["{a_model}", "--yes"], says="is the one that was pinned", bad=["nothing"], bad_code=FAILED, why="no model named", needs_daemon=False),
    "model import": Row(words=["--from", "{folder}"], says="", bad=["nothing"], bad_code=FAILED, why="no other program here", needs_daemon=False),
    "model list": Row(says="embedded"),
    "model load": Row(words=["embedded"], says="loaded embedded", bad=["nothing"], bad_code=FAILED, why="clawctl model add"),
    "model merge": Row(words=["{a_base}", "--adapter", "{an_adapter}"], says="merged", bad=["{a_base}", "--adapter", "{gguf}"], bad_code=FAILED, why="not a plain LoRA adapter", needs_daemon=False),
    "model ps": Row(says=""),
    "model pull": Row(words=["{gguf}"], says="is in", bad=["hf:nothing"], bad_code=FAILED, why="expected hf:ORG/REPO", needs_daemon=False),
    "model recommend": Row(words=["--no-probe"], says="free memory", bad=["--for", "x"], why="--for", needs_daemon=False),
    "model rm": Row(words=["{a_model}", "--yes"], says="removed", bad=["nothing"], bad_code=FAILED, why="no model named", needs_daemon=False),
    "model show": Row(words=["embedded"], says="sha256", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "model use": Row(words=["embedded", "--file", "{config_copy}"], says="Answers come from embedded", bad=["nothing"], bad_code=FAILED, why="no model named", needs_daemon=False),
    "model unload": Row(words=["{a_loaded_model}"], says="unloaded", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "onboard": Row(words=["--yes", "--no-test"], says="Ready", bad=["--base-url", "http://x"], why="belong together", needs_daemon=False),
    "page": Row(says="http://127.0.0.1", bad=["--at", "nowhere.example"], bad_code=FAILED, why="no name of this gateway"),
    "plugin approve": Row(words=["{plugin}", "--yes"], says="probe", bad=["nothing", "--yes"], bad_code=FAILED, why="nothing"),
    "plugin install": Row(words=["{plugin_source}", "--yes"], says="probe", bad=["{new}"], why="does not exist"),
    "plugin list": Row(words=[], says=""),
    "plugin reload": Row(says=""),
    "plugin remove": Row(words=["{plugin}", "--yes"], says="probe", bad=["nothing", "--yes"], bad_code=FAILED, why="nothing"),
    "policy allow": Row(words=["terraform *"], says="shell terraform * in every project", bad=["*"], bad_code=FAILED, why="is no name of a command"),
    "policy deny": Row(words=["terraform apply *"], says="never shell terraform apply * in every project", bad=["x", "--conversation", "c", "--project"], why="has its project already"),
    "policy explain": Row(words=["time"], says="allow", bad=["time", "["], bad_code=FAILED, why="is not a JSON object"),
    "policy replay": Row(words=["--since", "0s"], says="calls would be decided", bad=["--since", "soon"], why="7d"),
    "policy show": Row(says="forbidden paths", bad=["-C", "/nonexistent/x"], bad_code=FAILED, why="/nonexistent/x"),
    "policy test": Row(words=["{table}"], says="1 of 1", bad=["{new}"], why="does not exist"),
    "provider list": Row(says="mock"),
    "provider test": Row(words=["mock"], says="mock", bad=["nothing"], bad_code=FAILED, why="configured"),
    "receipt accept": Row(words=["--yes"], says="", bad=[], why="--yes"),
    "receipt export": Row(words=["{new}"], says="receipts", bad=["{folder}"], bad_code=FAILED, why="Name a new folder"),
    "receipt head": Row(says="first public key", needs_daemon=False),
    "receipt list": Row(says="", bad=["--status", "odd"], why="odd"),
    "receipt show": Row(words=["{receipt}"], says="time", bad=["receipt-nothing"], bad_code=FAILED, why="receipt-nothing"),
    "receipt verify": Row(says="head: receipt", bad=["--anchor", "x"], bad_code=FAILED, why="SEQ:HASH", needs_daemon=False),
    "restart": Row(says="The daemon runs (pid", bad=["x"], why=EXTRA),
    "schedule add": Row(words=["{new_name}", "-m", "hello"], says="by hand", bad=["x", "-m", "x", "--when", "never"], bad_code=FAILED, why="no time of a schedule"),
    "schedule history": Row(words=["{schedule}"], says="", bad=["nothing"], bad_code=FAILED, why="no schedule"),
    "schedule list": Row(says="", bad=["x"], why=EXTRA),
    "schedule pause": Row(words=["{schedule}"], says="paused", bad=["nothing"], bad_code=FAILED, why="no schedule"),
    "schedule remove": Row(words=["{a_schedule}"], says="is removed", bad=["nothing"], bad_code=FAILED, why="no schedule"),
    "schedule resume": Row(words=["{schedule}"], says="schedule", bad=["nothing"], bad_code=FAILED, why="no schedule"),
    "schedule run": Row(words=["{schedule}"], says="clawctl schedule history", bad=["nothing"], bad_code=FAILED, why="no schedule"),
    "service disable": Row(words=["--user"], says="systemctl --user disable", bad=["x"], why=EXTRA, needs_daemon=False),
    "service enable": Row(words=["--user"], says="systemctl --user enable", bad=["x"], why=EXTRA, needs_daemon=False),
    "service install": Row(words=["--user", "--dry-run"], says="· open its socket", bad=["--root", "{new}"], why="does not exist", needs_daemon=False),
    "service logs": Row(words=["--user"], says="of the journal", bad=["--lines", "-1"], why="--lines", needs_daemon=False),
    "service reload": Row(words=["--user"], says="systemctl --user reload", bad=["x"], why=EXTRA, needs_daemon=False),
    "service restart": Row(words=["--user"], says="systemctl --user restart", bad=["x"], why=EXTRA, needs_daemon=False),
    "service start": Row(words=["--user"], says="systemctl --user start", bad=["x"], why=EXTRA, needs_daemon=False),
    "service status": Row(words=["--user"], says="running", bad=["x"], why=EXTRA, needs_daemon=False),
    "service stop": Row(words=["--user", "--dry-run"], says="systemctl --user stop", bad=["x"], why=EXTRA, needs_daemon=False),
    "service uninstall": Row(words=["--user", "--dry-run"], says="Your data stays", bad=["--root", "{new}"], why="does not exist", needs_daemon=False),
    "shell": Row(words=["--shell", "bash"], typed="exit 3", code=3, bad=["--continue", "--no-local-session"], why="choose one", json_words=(), needs_daemon=False),
    "skill add": Row(words=["{skill_source}", "--yes"], says="is added", bad=["{table}", "--yes"], bad_code=FAILED, why="no archive"),
    "skill lint": Row(words=["{skill_source}"], says="by the standard", bad=["{table}"], bad_code=FAILED, why="no archive"),
    "skill list": Row(words=[], says=""),
    "skill show": Row(words=["{skill}"], says="sort.sh", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "skill trust": Row(words=["{skill}", "--yes"], says="is trusted", bad=["nothing", "--yes"], bad_code=FAILED, why="nothing"),
    "sop approve": Row(words=["{a_sop_run}"], says="succeeded", bad=["nothing"], bad_code=FAILED, why="no run"),
    "sop cancel": Row(words=["{a_sop_run}"], says="is cancelled", bad=["nothing"], bad_code=FAILED, why="no run"),
    "sop dry-run": Row(words=["{own_sop}"], says="wait for a yes", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "sop enable": Row(words=["{sop}", "--yes"], says="is enabled", bad=["nothing", "--yes"], bad_code=FAILED, why="nothing"),
    "sop history": Row(says="", bad=["--limit", "0"], bad_code=FAILED, why="limit is 0"),
    "sop list": Row(says=""),
    "sop resume": Row(words=["{a_sop_run}"], code=4, says="Go on?", bad=["nothing"], bad_code=FAILED, why="no run"),
    "sop run": Row(words=["{own_sop}"], code=4, says="Go on?", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "sop show": Row(words=["{own_sop}"], says="wait for a yes", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "sop status": Row(words=["{a_sop_run}"], says="waiting", bad=["nothing"], bad_code=FAILED, why="no run"),
    "sop validate": Row(words=["{own_sop}"], says="of 1 steps", bad=["nothing"], bad_code=FAILED, why="nothing"),
    "status": Row(says="clawd 0.1.0"),
    "stop": Row(says="aemon", bad=["x"], why=EXTRA, needs_daemon=False),
    "tool list": Row(says="time"),
    "tool problems": Row(says=""),
    "tool reload": Row(says=""),
    "tool run": Row(words=["time"], says="20", bad=["time", "--json", "["], why="is not JSON", json_words=("--output", "json")),
    "tool show": Row(words=["time"], says="example: clawctl tool run time", bad=["nothing"], bad_code=FAILED, why="the tools are"),
    "top": Row(words=["--once"], says="clawd", bad=["--interval", "0"], why="--interval"),
    "undo": Row(words=["--list"], says="", bad=["0"], why="0"),
    "version": Row(says="llama.cpp", needs_daemon=False),
}  # fmt: skip
