"""The service manager of one user on a booted machine that has no login manager."""

from collections.abc import Callable

from tests.support.booted import Done, Machine

Run = Callable[..., Done]


def as_user(machine: Machine, user: str) -> Run:
    """Start a user's manager, as a login would, and return what runs commands in their session."""
    uid = machine.out("id", "-u", user).strip()
    runtime = f"/run/user/{uid}"
    machine.out("install", "-d", "-o", user, "-g", user, "-m", "700", runtime)
    session = ["--unit=session", f"--uid={user}", "--property=Delegate=yes"]
    variables = [f"--setenv=XDG_RUNTIME_DIR={runtime}", f"--setenv=HOME=/home/{user}"]
    machine.out("systemd-run", *session, *variables, "/lib/systemd/systemd", "--user")
    machine.wait_until(machine.path(f"{runtime}/systemd/private").is_socket, "the user's manager")

    def run(*words: str) -> Done:
        return machine.run(*words, user=user, environ={"XDG_RUNTIME_DIR": runtime})

    return run
