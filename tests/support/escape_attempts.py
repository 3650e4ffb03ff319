"""The attempts to get out of the sandbox, as data: what each runs, and whether it bites outside.

Each runs with these variables: KEY (a secret file), CANARY (a folder), TOOL (a toolchain that is
shown, with credentials in it), DAEMON (the home of the stand-in daemon), SOCK, ABSTRACT, TCP, UDP
(where that listens) and DPID (its process). An attempt
has escaped when it prints the secret or the word that `escaped` prints, when anything outside its
workspace changed, when the stand-in was told something or died, or when `survived` appears in the
workspace later.
"""

from typing import NamedTuple

from clawd.security.sandbox.plan import ResourceLimits

SECRET = "tell-nobody-4711"
PASSWORD = "held-in-memory-0815"
# Put together only when it runs, so that no echo of the command passes for success.
SUCCESS = "ESC" + "APED"

_SHELL = "escaped() { echo ESC''APED; }\n"
_PYTHON = """\
import ctypes, os, socket, struct, sys, mmap, fcntl, termios
E = os.environ.get
C = ctypes.CDLL(None, use_errno=True)
PID = int(E('DPID', '0'))
def escaped(): print('ESC' + 'APED')
def call(x86, arm, *args):
    number = x86 if os.uname().machine == 'x86_64' else arm
    args = [ctypes.c_char_p(a) if isinstance(a, bytes) else
            ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    return C.syscall(ctypes.c_long(number), *args)
def allowed(x86, arm, *args):
    if call(x86, arm, *args) >= 0: escaped()
"""


class Attempt(NamedTuple):
    """One attempt.

    `control` says that it is safe to run without the sandbox, as an ordinary user, and ought to
    succeed there. `inside` puts the stand-in's home into the workspace, where only a mask hides it.
    `before` and `owner` run outside, before and after it, in the workspace.
    """

    name: str
    argv: tuple[str, ...]
    control: bool = True
    inside: bool = False
    wait_s: float = 0.0
    before: str = ""
    owner: str = ""
    limits: ResourceLimits = ResourceLimits()


def by_shell(name: str, script: str, *, control: bool = True, inside: bool = False) -> Attempt:
    """Return an attempt by bash."""
    return Attempt(name, ("bash", "-c", _SHELL + script), control, inside)


def by_python(name: str, script: str, *, control: bool = True, inside: bool = False) -> Attempt:
    """Return an attempt by Python, with what `_PYTHON` defines."""
    return Attempt(name, ("/usr/bin/python3", "-c", _PYTHON + script), control, inside)


_sh, _py = by_shell, by_python

_PATHS = (
    _sh("read-absolute", 'cat "$KEY"'),
    _sh("read-dotdot", "cat ../home/receipts.key ../*/receipts.key"),
    _sh("read-symlink", 'ln -s "$KEY" link; cat link'),
    _sh("read-symlink-folder", 'ln -s "$DAEMON" link; cat link/receipts.key'),
    _sh("read-hardlink", 'ln "$KEY" link && cat link'),
    _sh("read-home-of-user", 'cat ~/.ssh/id_* /home/*/.ssh/id_* /root/.ssh/id_*', control=False),
    _sh("read-shadow", "test -s /etc/shadow && escaped", control=False),
    _sh("read-host-names", "cat /etc/hostname /etc/machine-id | grep . && escaped"),
    _sh("read-mask-inside", 'cat "$DAEMON"/* "$KEY"', inside=True),
    _sh("move-mask-inside", 'mv "$DAEMON" away; cat away/receipts.key', inside=True),
    _sh("delete-mask-inside", 'rm -rf "$DAEMON"', inside=True),
    _sh("link-mask-inside", 'ln "$KEY" link; ln -s "$DAEMON" d; cat link d/*', inside=True),
    _sh("chmod-mask-inside", 'chmod 777 "$DAEMON"; cat "$KEY"', inside=True),
    _sh("umount-mask-inside", 'umount -l "$DAEMON"; cat "$KEY"', inside=True),
    _sh("write-absolute", 'echo broken > "$CANARY/one"'),
    _sh("write-dotdot", "echo broken > ../canary/one"),
    _sh("write-symlink", 'ln -s "$CANARY/one" link; echo broken > link'),
    _sh("write-new-outside", 'echo broken > "$CANARY/new"'),
    _sh("append-key", 'echo broken >> "$KEY"'),
    _sh("chmod-outside", 'chmod 0 "$CANARY/one"'),
    _sh("rename-outside", 'mv "$CANARY/one" taken'),
    _sh("touch-time-outside", 'touch -d 2001-01-01 "$CANARY/one"'),
    _sh("clear-the-stop", 'rm -f "$DAEMON/ESTOP"'),
    _sh("clear-the-stop-by-rename", 'mv "$DAEMON/ESTOP" "$DAEMON/GONE"'),
    _sh("clear-the-stop-inside", 'rm -f "$DAEMON/ESTOP"', inside=True),
    _sh("write-tmp-of-host", 'echo x > "$(dirname "$CANARY")/planted"'),
    _py("open-by-handle", "h=ctypes.create_string_buffer(b'\\x80\\0\\0\\0',200)\nm=ctypes.c_int()\n"
        "call(303,264,-100,E('KEY','').encode(),h,ctypes.byref(m),0)\nallowed(304,265,-100,h,0)",
        control=False),
)  # fmt: skip

_PROC = (
    _sh("proc-self-root", 'cat "/proc/self/root$KEY"'),
    _sh("proc-self-cwd", "cat /proc/self/cwd/../home/receipts.key"),
    _sh("proc-one-root", 'cat "/proc/1/root$KEY"', control=False),
    _sh("proc-daemon-root", 'cat "/proc/$DPID/root$KEY"'),
    _sh("proc-daemon-cwd", "cat /proc/$DPID/cwd/receipts.key"),
    _sh("proc-any-root", 'for r in /proc/[0-9]*/root; do cat "$r$KEY"; done', control=False),
    _sh("proc-any-cwd", 'for r in /proc/[0-9]*/cwd; do cat "$r/receipts.key"; done', control=False),
    _sh("proc-daemon-descriptors", "for f in /proc/$DPID/fd/*; do test -f $f && cat $f; done"),
    _sh("proc-daemon-environment", "tr '\\0' '\\n' < /proc/$DPID/environ"),
    _sh("proc-any-environment", "cat /proc/[0-9]*/environ | tr '\\0' '\\n'", control=False),
    _sh("proc-daemon-command-line", "tr '\\0' '\\n' < /proc/$DPID/cmdline | grep -q . && escaped"),
    _py("proc-daemon-memory",
        "a=[l for l in open(f'/proc/{PID}/maps') if '[heap]' in l or 'rw-p' in l]\n"
        "f=open(f'/proc/{PID}/mem','rb',0)\n"
        "for l in a:\n"
        "    s,e=(int(x,16) for x in l.split()[0].split('-'))\n"
        "    try: f.seek(s); d=f.read(e-s)\n"
        "    except OSError: continue\n"
        "    if b'held-in-memory' + b'-0815' in d: escaped(); break"),
    _sh("inherited-environment", "env; export -p; cat /proc/self/environ"),
    _sh("inherited-descriptors", "for n in $(seq 3 40); do cat <&$n; done 2>/dev/null"),
    _sh("parent-environment", "tr '\\0' '\\n' < /proc/$PPID/environ", control=False),
    _py("init-memory",
        "for l in open('/proc/1/maps'):\n"
        "    s,e=(int(x,16) for x in l.split()[0].split('-'))\n"
        "    try: f=open('/proc/1/mem','rb'); f.seek(s); d=f.read(e-s)\n"
        "    except (OSError, OverflowError, ValueError): continue\n"
        "    if b'tell-nobody' + b'-4711' in d: escaped()", control=False),
    _py("break-init-and-survive",
        "import subprocess\n"
        "subprocess.Popen(['setsid', 'sh', '-c', 'sleep 0.4; echo > survived'])\n"
        "for l in open('/proc/1/maps'):\n"
        "    s,e=(int(x,16) for x in l.split()[0].split('-'))\n"
        "    if ' rw' in l:\n"
        "        f=open('/proc/1/mem','r+b',0); f.seek(s); f.write(bytes(e-s))",
        control=False)._replace(wait_s=0.7),
    _sh("init-without-fence", "grep -Eq '^(Seccomp|NoNewPrivs):.0|^Cap(Eff|Prm|Bnd):.*[1-9a-f]'"
        " /proc/1/status && escaped", control=False),
    _sh("core-pattern", "( : >> /proc/sys/kernel/core_pattern ) && escaped", control=False),
    _sh("sysrq", "test -w /proc/sysrq-trigger && escaped", control=False),
    _sh("kernel-tunables", "for f in /proc/sys/kernel/hostname /proc/sys/vm/overcommit_memory;"
        " do ( : >> $f ) && escaped; done", control=False),
    _sh("oom-of-the-daemon", "( : >> /proc/$DPID/oom_score_adj ) && escaped"),
    _sh("sys-writes", "for f in /sys/power/state /sys/kernel/uevent_helper; do"
        " test -w $f && escaped; done", control=False),
    _sh("sys-is-there", "ls /sys/kernel /sys/class/net | grep -q . && escaped"),
    _sh("cgroup-files", "find /sys/fs/cgroup -name cgroup.procs | grep -q . && escaped"),
)  # fmt: skip

_PROCESSES = (
    _sh("kill-daemon", "kill -9 $DPID"),
    _sh("signal-daemon", "kill -USR1 $DPID"),
    _sh("stop-daemon", "kill -STOP $DPID && escaped", control=False),
    _sh("probe-daemon", "kill -0 $DPID && escaped"),
    _sh("kill-everything", "kill -9 -1", control=False),
    _sh("kill-by-name", "pkill -9 -f held-in; for p in /proc/[0-9]*; do"
        ' grep -q stand-in $p/cmdline && [ ${p#/proc/} != $$ ] && kill -9 ${p#/proc/}; done',
        control=False),
    _py("pidfd-signal", "p=call(434,434,PID,0)\nif p >= 0: allowed(424,424,p,0,0,0)"),
    _py("ptrace-attach", "allowed(101,117,0x4206,PID,0,0)"),
    _py("ptrace-any", "for p in os.listdir('/proc'):\n"
        "    if p.isdigit() and int(p) != os.getpid(): allowed(101,117,0x4206,int(p),0,0)",
        control=False),
    _py("process-vm-readv",
        "a=[int(l.split('-')[0],16) for l in open(f'/proc/{PID}/maps') if 'rw-p' in l][0]\n"
        "b=ctypes.create_string_buffer(64)\nl=(ctypes.c_ulong*2)(ctypes.addressof(b),64)\n"
        "r=(ctypes.c_ulong*2)(a,64)\nallowed(310,270,PID,l,1,r,1,0)"),
    _py("process-vm-of-parent",
        "b=ctypes.create_string_buffer(64)\nl=(ctypes.c_ulong*2)(ctypes.addressof(b),64)\n"
        "allowed(310,270,os.getpid(),l,1,l,1,0)"),
    _py("pidfd-getfd", "p=call(434,434,PID,0)\nallowed(438,438,p,0,0)"),
    _py("renice-daemon", "os.setpriority(os.PRIO_PROCESS, PID, 19); escaped()"),
    _py("limits-of-daemon", "import resource\n"
        "resource.prlimit(PID, resource.RLIMIT_NOFILE); escaped()"),
    _sh("namespaces-of-daemon", "nsenter -t $DPID -m -n true && escaped", control=False),
    Attempt("survives-by-setsid", ("bash", "-c",
        "setsid sh -c 'sleep 0.4; echo > survived' >/dev/null 2>&1 </dev/null & disown"),
        wait_s=0.8),
    Attempt("survives-by-double-fork", ("bash", "-c",
        "( ( trap '' TERM HUP; nohup sh -c 'sleep 0.4; echo > survived' & ) & )"
        " >/dev/null 2>&1 </dev/null"), wait_s=0.8),
)  # fmt: skip

_KERNEL = (
    _sh("nested-user-namespace", "unshare -Ur true && escaped"),
    _sh("nested-mount-namespace", "unshare -Urm sh -c 'mount -t tmpfs x /mnt' && escaped"),
    _sh("nested-bubblewrap", "bwrap --ro-bind / / true && escaped"),
    _py("clone-new-user", "p=call(56,220,0x10000000|17,0,0,0,0)\n"
        "if p == 0: os._exit(0)\nif p > 0: escaped()"),
    _py("clone3", "a=(ctypes.c_ulong*8)(0x10000000,0,0,0,17)\np=call(435,435,a,64)\n"
        "if p == 0: os._exit(0)\nif p > 0: escaped()"),
    _py("setns", "f=os.open(f'/proc/{PID}/ns/user',0)\n"
        "u=os.open('/proc/self/ns/uts',0)\nallowed(308,268,u,0)", control=False),
    _py("mount", "allowed(165,40,b'x',b'/tmp',b'tmpfs',0,0)", control=False),
    _py("mount-remount-writable", "allowed(165,40,b'none',b'/',0,0x1020,0)", control=False),
    _py("umount", "allowed(166,39,b'/proc',2)", control=False),
    _py("new-mount-calls", "allowed(428,428,-100,b'/',0x80001)\nallowed(430,430,b'tmpfs',0)",
        control=False),
    _py("pivot-root", "allowed(155,41,b'.',b'.')", control=False),
    _py("chroot", "allowed(161,51,b'/tmp')", control=False),
    _py("io-uring", "p=ctypes.create_string_buffer(120)\nallowed(425,425,4,p)"),
    _py("keyctl", "allowed(250,219,0,-3,1)"),
    _py("add-key", "allowed(248,217,b'user',b'x',b'y',1,-2)"),
    _py("request-key", "k=call(248,217,b'user',b'clawd-x',b'y',1,-2)\n"
        "allowed(249,218,b'user',b'clawd-x',0,0)"),
    _py("bpf", "a=(ctypes.c_uint*32)(2,4,4,1)\nallowed(321,280,0,a,72)", control=False),
    _py("perf-event", "a=(ctypes.c_uint*32)(1,128)\na[10]=0x60\nallowed(298,241,a,0,-1,-1,0)",
        control=False),
    _py("userfaultfd", "allowed(323,282,1)"),
    _py("kexec", "allowed(246,104,0,0,0,0)", control=False),
    _py("kcmp", "allowed(312,272,PID,PID,0,0,0)"),
    _py("x32-system-call", "if os.uname().machine == 'x86_64' and"
        " C.syscall(ctypes.c_long(0x40000000 + 39)) >= 0: escaped()", control=False),
    _py("swap-and-clock", "allowed(167,224,b'/tmp/x',0)\nallowed(227,112,0,b'\\0'*16)",
        control=False),
    _py("odd-personality", "allowed(135,92,0x0040000)"),
    _py("push-own-terminal-input", "m, s = os.openpty()\nos.setsid()\n"
        "fcntl.ioctl(s, termios.TIOCSCTTY, 0)\nfcntl.ioctl(s, termios.TIOCSTI, b'x')\nescaped()",
        control=False),
    _py("terminal-of-linux", "m, s = os.openpty()\n"
        "if call(16,29,s,0x541C,b'\\2') >= 0 or ctypes.get_errno() != 1: escaped()",
        control=False),
    _py("segments-of-its-own", "allowed(154,-1,0,ctypes.create_string_buffer(64),64)",
        control=False),
    _py("log-of-the-kernel", "allowed(103,116,10,0,0)", control=False),
    _py("watch-the-file-system", "allowed(300,262,0x200,0)", control=False),
    _py("move-pages-of-others", "allowed(279,239,PID,0,0,0,0,0)", control=False),
    _py("name-of-the-machine", "allowed(170,161,b'x',1)", control=False),
    _py("become-root", "allowed(105,146,0)", control=False),
    _sh("gain-by-setuid-program", "grep -q '^NoNewPrivs:.0' /proc/self/status && escaped"),
    _sh("capabilities", "grep -Eq '^Cap(Eff|Prm|Bnd|Amb):.*[1-9a-f]' /proc/self/status && escaped"),
)  # fmt: skip

_DEVICES = (
    _sh("memory-device", "head -c 1 /dev/mem /dev/kmem /dev/port && escaped", control=False),
    _sh("kernel-log", "head -c 1 /dev/kmsg && escaped; dmesg | grep -q . && escaped",
        control=False),
    _sh("disk-devices", "ls /dev/sd* /dev/vd* /dev/nvme* /dev/loop* && escaped", control=False),
    _sh("make-disk-device", "mknod ./disk b 8 0 && escaped", control=False),
    _sh("make-memory-device", "mknod ./mem c 1 1 && escaped", control=False),
    _sh("terminal", "exec 9<>/dev/tty && escaped", control=False),
    _py("push-terminal-input", "for n in (0, 1, 2):\n"
        "    try: fcntl.ioctl(n, termios.TIOCSTI, b'x'); escaped()\n    except OSError: pass",
        control=False),
    _sh("write-system", "for f in /usr/x /etc/passwd /bin/x /lib/x /dev/x /x; do"
        " ( : >> $f ) && escaped; done", control=False),
)  # fmt: skip

_SOCKETS = (
    _py("approve-over-the-socket", "s=socket.socket(socket.AF_UNIX)\ns.connect(E('SOCK'))\n"
        "s.send(b'approve')"),
    _py("approve-inside", "s=socket.socket(socket.AF_UNIX)\ns.connect(E('SOCK'))\n"
        "s.send(b'approve')", inside=True),
    _py("approve-relative", "os.chdir(E('DAEMON'))\ns=socket.socket(socket.AF_UNIX)\n"
        "s.connect('control.sock')\ns.send(b'approve')"),
    _py("abstract-socket", "s=socket.socket(socket.AF_UNIX)\ns.connect('\\0'+E('ABSTRACT'))\n"
        "s.send(b'approve')"),
    _py("abstract-datagram", "s=socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "s.sendto(b'approve', '\\0'+E('ABSTRACT')+'.dgram')"),
    _py("take-the-socket", "os.unlink(E('SOCK'))\ns=socket.socket(socket.AF_UNIX)\n"
        "s.bind(E('SOCK'))"),
    _py("pass-a-pair", "a,b=socket.socketpair()\na.connect(E('SOCK'))\na.send(b'approve')",
        control=False),
    _py("tcp-loopback", "s=socket.create_connection(('127.0.0.1',int(E('TCP'))),2)\n"
        "s.send(b'approve')"),
    _sh("tcp-by-shell", "echo approve > /dev/tcp/127.0.0.1/$TCP"),
    _sh("udp-by-shell", "echo approve > /dev/udp/127.0.0.1/$UDP"),
    _py("udp-loopback", "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
        "s.sendto(b'approve',('127.0.0.1',int(E('UDP'))))"),
    _py("tcp-any-address", "s=socket.create_connection(('0.0.0.0',int(E('TCP'))),2)\n"
        "s.send(b'approve')"),
    _py("tcp-mapped-address", "s=socket.socket(socket.AF_INET6)\n"
        "s.connect(('::ffff:127.0.0.1',int(E('TCP'))))\ns.send(b'approve')"),
    _py("tcp-fast-open", "s=socket.socket()\n"
        "s.sendto(b'approve',0x20000000,('127.0.0.1',int(E('TCP'))))"),
    _py("outside-network", "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
        "s.sendto(b'x',('192.0.2.1',53))\nescaped()", control=False),
    _py("raw-socket", "socket.socket(socket.AF_INET,socket.SOCK_RAW,1); escaped()", control=False),
    _py("packet-socket", "socket.socket(socket.AF_PACKET,socket.SOCK_RAW,768); escaped()",
        control=False),
    _py("vsock-socket", "socket.socket(40,socket.SOCK_STREAM); escaped()", control=False),
    _py("crypto-socket", "socket.socket(38,socket.SOCK_SEQPACKET); escaped()", control=False),
    _sh("other-daemons", "ls -d /run/docker.sock /run/dbus /run/user /var/run /tmp/.X11-unix"
        " && escaped", control=False),
)  # fmt: skip

_TOOLCHAINS = (
    _sh("toolchain-credentials", 'cat "$TOOL/.npmrc" "$TOOL/etc/credentials.toml" "$TOOL"/.aws/*'),
    _sh("toolchain-credentials-by-link", 'ln -s "$TOOL/.npmrc" l; ln -s "$TOOL" d; cat l d/.npmrc'),
    _sh("toolchain-credentials-by-its-link", 'cat "$TOOL/share/linked" "$TOOL/share/.pypirc"'),
    _sh("toolchain-credentials-by-dots", 'cd "$TOOL/bin"; cat ../.npmrc ../etc/../etc/*.toml'),
    _sh("toolchain-credentials-by-second-name", 'ln "$TOOL/.npmrc" l; ln "$TOOL/.npmrc" ~/l\n'
        'cat l ~/l'),
    _sh("toolchain-credentials-by-proc", 'cat "/proc/self/root$TOOL/.npmrc"; cd "$TOOL"\n'
        'cat /proc/self/cwd/.npmrc'),
    _sh("toolchain-credentials-found", 'find -L "$TOOL" ~/.tool -type f -exec cat {} +'),
    _sh("toolchain-credentials-moved", 'mv "$TOOL/etc" ~/e; cat ~/e/*; cp -r "$TOOL" c\n'
        'cat c/.npmrc'),
    _sh("toolchain-credentials-at-home", "cat ~/.tool/.npmrc ~/.tool/etc/*", control=False),
    _sh("toolchain-mask-taken-off", 'umount -l "$TOOL/.npmrc"; rm -f "$TOOL/.npmrc"\n'
        'cat "$TOOL/.npmrc"'),
    _sh("toolchain-write", 'echo x >> "$TOOL/bin/hello"; echo x > "$TOOL/bin/new"'),
    _sh("toolchain-delete", 'rm -rf "$TOOL/bin" ~/.tool/*'),
    _sh("toolchain-move", 'mv "$TOOL" t; mv "$TOOL/bin/hello" "$TOOL/bin/ls"'),
    _sh("toolchain-modes", 'chmod -R 777 "$TOOL"; touch -d 2001-01-01 "$TOOL/bin/hello"'),
    _sh("toolchain-beside", 'cat "$TOOL/../.bashrc" "$(dirname "$TOOL")/.ssh/id"'),
    _sh("cache-link", 'rm -rf ~/.kept/.npm ~/.kept/.cargo; ln -s "$CANARY" ~/.kept/.npm\n'
        'ln -s "$CANARY" ~/.kept/.cargo; echo broken > ~/.npm/one', control=False),
)  # fmt: skip

_IF_SET = "\nif os.path.exists('s') and os.stat('s').st_mode & 0o6000: escaped()"

# A file that is set-user-ID runs as the daemon's user outside: root's, if the daemon is root's.
_SET_ID = (
    _sh("setuid-chmod", "touch s; chmod 4755 s; [ -u s ] && escaped"),
    _sh("setgid-chmod", "touch s; chmod 2755 s; [ -g s ] && escaped"),
    _sh("setuid-letters", "touch s; chmod u+s s; [ -u s ] && escaped"),
    _sh("setuid-install", "install -m 4755 /bin/true s; [ -u s ] && escaped"),
    _sh("setuid-tar", "python3 -c \"import tarfile; t = tarfile.TarInfo('s'); t.mode = 0o4755;"
        " tarfile.open('a.tar', 'w').addfile(t)\"; tar -xpf a.tar; [ -u s ] && escaped"),
    _py("setuid-open", "os.close(os.open('s', os.O_CREAT | os.O_WRONLY, 0o4755))" + _IF_SET),
    _py("setuid-creat", "call(85, -1, b's', 0o4755)" + _IF_SET, control=False),
    _py("setuid-mknod", "call(259, 33, -100, b's', 0o104755, 0)" + _IF_SET),
    _py("setuid-fchmod", "f = os.open('s', os.O_CREAT | os.O_WRONLY, 0o644)\n"
        "call(91, 52, f, 0o4755)" + _IF_SET),
    _py("setuid-fchmodat", "open('s', 'w').close()\ncall(268, 53, -100, b's', 0o4755)" + _IF_SET),
    _py("setuid-fchmodat2", "open('s', 'w').close()\n"
        "call(452, 452, -100, b's', 0o4755, 0)" + _IF_SET, control=False),
    _py("setuid-openat2", "how = struct.pack('QQQ', 0o101, 0o4755, 0)\n"
        "call(437, 437, -100, b's', ctypes.create_string_buffer(how), 24)" + _IF_SET),
    _py("setuid-tmpfile", "f = os.open('.', os.O_TMPFILE | os.O_WRONLY, 0o4755)\n"
        "os.link(f'/proc/self/fd/{f}', 's', follow_symlinks=True)" + _IF_SET, control=False),
)  # fmt: skip

ESCAPES = (
    *_PATHS, *_PROC, *_PROCESSES, *_KERNEL, *_DEVICES, *_SOCKETS, *_SET_ID, *_TOOLCHAINS,
)  # fmt: skip
