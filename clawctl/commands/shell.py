"""`clawctl shell`: your own shell, in which a line that begins with `>` asks the model."""

import click

from clawctl.agent_options import Choice, answering_options
from clawctl.app import App, pass_app


@click.command()
@click.option("--shell", metavar="PROGRAM", default="", help="The shell to run [env: SHELL].")
@click.option(
    "--continue", "resume", is_flag=True, help="Go on with the conversations that folders remember."
)
@click.option(
    "--no-local-session",
    "no_file",
    is_flag=True,
    help="Neither remember nor look up the conversation of a folder.",
)
@answering_options
@pass_app
def command(app: App, /, shell: str, **options: object) -> int:
    """Run your own shell; `> text` asks the model, `?` explains the last failure.

    Aliases, completion, job control, editors and ssh work as ever: what you type goes to your
    shell, what it prints goes to your terminal. A command that the model proposes is put into your
    prompt for you to edit and run. Ends with the status of the shell.
    """
    resume, keeps_file = bool(options["resume"]), not options["no_file"]
    if resume and not keeps_file:
        raise click.UsageError("--continue reads what --no-local-session leaves alone: choose one")
    from clawctl.shell.pseudo_terminal import run_shell

    choice = Choice(
        resume=resume,
        agent=str(options["agent"]),
        provider=str(options["provider"]),
        model=str(options["model"]),
    )
    return run_shell(app, choice, shell=shell, keeps_file=keeps_file)
