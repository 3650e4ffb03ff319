"""What the manual says beyond the command tree: examples, exit codes, files, variables."""

# The date on every page: of the release, so that the same code gives the same bytes.
RELEASED = "2026-11-21"

# A command's examples: what is typed after `clawctl`, and what it is for.
EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "agent": (
        ('agent -m "which files are here?" --here', "One question about the current folder."),
        ("agent --continue", "Go on with the newest conversation of this folder."),
        ("agent --resume", "Choose the one to go on with."),
        ("git diff | clawctl agent -m 'write a commit message'", "What is piped in goes along."),
    ),
    "approval": (
        ("approval list", "What waits for an answer."),
        ("approval approve a1b2 --always --days 7", "Allow it and calls like it for a week."),
    ),
    "backup": (
        ("backup create clawd.tar.gz", "Everything but keys, models and workspace."),
        ("backup verify clawd.tar.gz", "Read all of it, the chain of receipts too."),
        ("backup restore clawd.tar.gz --into /tmp/try", "Put it somewhere else, to look."),
    ),
    "cache": (
        ("cache list", "What is kept for which project, how large, and used when."),
        ("cache clear --project", "Let the commands of this folder fetch anew."),
    ),
    "completion": (
        ("completion bash --install", "Make TAB work in bash, for you."),
        ("completion zsh > _clawctl", "Put it where you like."),
    ),
    "config": (
        ("config edit", "Edit it; it is replaced only when it is valid."),
        ("config show --json", "Every value in force, and where each came from."),
    ),
    "conversation": (
        ("conversation list", "The newest ones."),
        ("conversation export conv-01J --format markdown -o talk.md", "One of them to read."),
    ),
    "doctor": (
        ("doctor", "What is wrong, and what to do about it."),
        ("doctor --fix", "Do the safe part of that."),
    ),
    "estop": (
        ("estop --reason 'it deletes my files'", "Stop every tool at once."),
        ("estop --clear", "Allow tools again."),
    ),
    "files": (
        ("files list --conversation conv-01J", "What a conversation has."),
        ("files add report.pdf --conversation conv-01J", "Let the model read it."),
    ),
    "init": (("init", "Write a config with every key, commented."),),
    "jobs": (
        ("jobs list", "What runs, since when, and for which conversation."),
        ("jobs output job-1", "What it printed so far."),
        ("jobs stop job-1", "End it."),
    ),
    "key": (
        ("key create --name laptop --expires-days 30", "A key for the HTTP gateway."),
        ("key revoke laptop", "End it."),
    ),
    "knowledge": (
        ("knowledge save 'backup server' 'It is 10.0.0.7.'", "A note."),
        ("knowledge search backup", "Find it again."),
    ),
    "logs": (
        ("logs --follow --level warning", "What goes wrong, as it does."),
        ("logs --from file", "What the daemon before wrote down."),
    ),
    "mcp": (
        ("mcp list", "How the servers are."),
        ('mcp tool files read --json \'{"path": "a.txt"}\'', "Call a tool through the gate."),
    ),
    "memory": (
        ("memory search invoice", "Find what was said."),
        ("memory backup /mnt/copy.sqlite", "Copy it while the daemon runs."),
    ),
    "metrics": (("metrics --json", "What the daemon counts."),),
    "model": (
        ("model recommend --for code", "What fits this machine."),
        ("model pull hf:Qwen/Qwen3-8B-GGUF:Q4_K_M", "Download one; a break costs nothing."),
        ("model add ~/Downloads/tiny.gguf", "Put a file to the others."),
        ("model import --all", "Use what Ollama and LM Studio have here, linked."),
        ("model use tiny", "Answer from it."),
        ("model load tiny", "Load it now."),
    ),
    "onboard": (
        ("onboard", "Set all of it up; it asks at most five things."),
        (
            "onboard --yes --base-url http://localhost:8080/v1 --model qwen",
            "Set it up without questions.",
        ),
    ),
    "page": (
        ("page --open", "The page in a browser of this desktop."),
        ("page --at clawd.lan", "A link for a browser elsewhere: it logs in once."),
    ),
    "plugin": (
        ("plugin install ./weather", "See what it may do, and install it."),
        ("plugin reload", "Read all of them again."),
    ),
    "policy": (
        ('policy explain shell \'{"command": "rm -r build"}\'', "What would be answered."),
        ("policy show", "What tools may touch and reach, and what they never may."),
        ("policy replay --autonomy full --since 7d", "What would have been decided otherwise."),
    ),
    "provider": (("provider test local", "Ask it for the smallest answer."),),
    "receipt": (
        ("receipt list --status denied", "What was refused."),
        ("receipt verify", "Prove that nothing was changed."),
    ),
    "service": (
        ("service install --user", "Let systemd run it for you."),
        ("service status", "How it stands, and what to do where something is wrong."),
        ("service logs --follow --event tool_denied", "What is refused, as it happens."),
    ),
    "shell": (
        ("shell", "Your own shell, with a model at hand."),
        ("shell --shell zsh --continue", "Another one, and the conversation of this folder."),
    ),
    "restart": (
        ("restart", "Start the daemon anew, as after an upgrade or with another environment."),
    ),
    "schedule": (
        (
            "schedule add report -m 'Is the backup of tonight whole?' --when 'Mon..Fri 07:00'",
            "Ask the model every weekday at seven.",
        ),
        ("schedule history report", "How its times ended, and which were missed."),
    ),
    "skill": (
        ("skill list", "Which skills there are, and what is wrong with some."),
        ("skill trust inbox", "Look at one of the workspace, and let the model use it."),
    ),
    "sop": (
        ("sop run daily-check", "Run a procedure, and follow it until it ends or waits."),
        ("sop approve run-01M85", "Say yes to what a run waits for; a beginning of its id does."),
    ),
    "status": (
        ("status", "How it is, at a glance."),
        ("status --json", "The same for programs."),
    ),
    "stop": (
        ("stop", "End the daemon; turns may finish."),
        ("stop --timeout 5", "Give them five seconds."),
    ),
    "tool": (
        ("tool list", "What the model may call."),
        ('tool run file_list --json \'{"path": "."}\'', "Call one through the same gate."),
    ),
    "top": (
        ("top", "What it does, live."),
        ("top --once", "What it does now, for a pipe."),
    ),
    "undo": (
        ("undo", "Take back the last change."),
        ("undo --preview --turn", "See what taking the newest turn back would do."),
        ("undo --list", "See what can be taken back."),
    ),
    "version": (("version", "Versions of all parts."),),
}

EXIT_CODES = (
    ("0", "It was done. A question to the model was answered."),
    ("1", "It failed; the message says why and what to do."),
    ("2", "Wrong usage."),
    ("3", "A tool run was denied."),
    (
        "4",
        "Answered, but a call needed an approval and nobody could be asked, or answered in time.",
    ),
    ("5", "The cap of rounds or time was reached."),
    ("6", "No daemon answers."),
    ("7", "A tool run was refused under the emergency stop."),
    ("130", "Interrupted."),
)

ENVIRONMENT = (
    ("CLAWD_HOME", "The home of clawd, instead of ~/.clawd."),
    ("CLAWD_SOCKET", "The daemon's socket."),
    ("CLAWD_LOG", "json: the daemon logs one JSON object a line."),
    ("CLAWD_LOG_LEVEL", "DEBUG, INFO, WARNING, ERROR or CRITICAL."),
    ("CLAWD_SECTION__KEY", "Any key of the config, as CLAWD_SECURITY__AUTONOMY=readonly."),
    ("NO_COLOR", "No colours."),
    ("VISUAL, EDITOR", "The editor."),
)

FILES = (
    ("~/.clawd/config.toml", "The configuration; /etc/clawd/config.toml of a system service."),
    ("~/.clawd/memory.sqlite", "Conversations and what belongs to them."),
    ("~/.clawd/tool_receipts.log", "The receipts of every tool call."),
    ("~/.clawd/clawd.log", "The log of a daemon that a command started."),
    ("~/.clawd/ESTOP", "The emergency stop, while it exists."),
    ("~/clawd-workspace", "The folder that tools work in."),
)

SIGNALS = (
    ("SIGHUP", "Read the config again; an invalid one is refused and the old one stays."),
    ("SIGTERM, SIGINT", "End in order: running turns get a grace, then are cancelled."),
)
