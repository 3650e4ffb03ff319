"""What each dialect costs over the control socket, for the same generation.

Ours is the request over HTTP, the peer `SendMessage` over the socket just before or after it. The
scripted provider echoes the message word by word, so the text of every answer is known. In
`…_turn` rows clawd's own loop answers on both sides; in `…_pass` rows HTTP asks for one pass.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from clawctl.client import Client, connect
from tests.bench.http.client import Connection
from tests.bench.http.daemon import Gateway, ask_socket, running_gateway
from tests.bench.http.dialects import DIALECTS, Asked, Dialect, Told
from tests.bench.http.rows import FIGURES, MODEL_TURN, SCRIPT_PASS, SCRIPT_TURN, row
from tests.bench.http.scale import Scale
from tests.bench.llama.talk import words
from tests.bench.report import Row
from tests.bench.streams import BenchError

QUESTION = "Say in one sentence what a file system is."
MODEL_TABLES = "\n[engine]\nkeep_alive_s = 0\ntemperature = 0.0\nmax_tokens = 48\n"
_Pairs = list[tuple[float, float]]


def rows(folder: Path, scale: Scale, wanted: Sequence[str]) -> Iterator[Row]:
    """Measure the rows that are wanted, one dialect after the other."""
    for part, provider, tables in (
        (MODEL_TURN, "local", MODEL_TABLES),
        (SCRIPT_TURN, "mock", ""),
        (SCRIPT_PASS, "mock", ""),
    ):
        mine = [name for name in wanted if name.startswith(f"{part}_")]
        if not mine:
            continue
        with (
            running_gateway(folder / part, provider=provider, tables=tables) as gateway,
            connect(gateway.socket) as client,
            closing(Connection(gateway.port)) as connection,
        ):
            part_of_run = _Part(gateway, client, connection, part, scale)
            for dialect in DIALECTS:
                yield from part_of_run.rows(dialect, mine)


class _Part:
    """One daemon, asked in one dialect after the other."""

    def __init__(
        self,
        gateway: Gateway,
        client: Client,
        connection: Connection,
        part: str,
        scale: Scale,
    ) -> None:
        self._gateway = gateway
        self._client = client
        self._connection = connection
        self._part = part
        self._scale = scale

    def rows(self, dialect: Dialect, wanted: Sequence[str]) -> Iterator[Row]:
        """Measure one dialect."""
        names = {f"{self._part}_{dialect.name}_{figure}": figure for figure in FIGURES}
        mine = {name: figure for name, figure in names.items() if name in wanted}
        if not mine:
            return
        for stream in (True, False):
            self._pair(dialect, "before", stream=stream)
        figures: dict[str, _Pairs] = {figure: [] for figure in FIGURES}
        for number in range(self._scale.pairs):
            ours, peer = self._pair(dialect, f"stream {number}", stream=True)
            figures["first"].append((ours.first_ms, peer.first_ms))
            figures["stream"].append((ours.total_ms, peer.total_ms))
            ours, peer = self._pair(dialect, f"whole {number}", stream=False)
            figures["whole"].append((ours.total_ms, peer.total_ms))
        for name, figure in mine.items():
            yield row(name, figures[figure])

    def _pair(self, dialect: Dialect, seed: str, *, stream: bool) -> tuple[Told, Told]:
        text = self._text(f"{self._part} {dialect.name} {seed}")
        asked = Asked(text=text, model=self._model, stream=stream)
        one_pass = self._part == SCRIPT_PASS
        peer = ask_socket(self._client, text)
        ours = self._gateway.ask(self._connection, dialect, asked, one_pass=one_pass)
        # A turn brings words of clawd's own into the prompt.
        same_counts = ours.counts == peer.counts or (one_pass and ours.counts[1] == peer.counts[1])
        if ours.text != peer.text or not same_counts:
            raise BenchError(
                f"{dialect.path} told {ours.counts} {ours.text[:100]!r}, "
                f"the socket {peer.counts} {peer.text[:100]!r}"
            )
        return ours, peer

    @property
    def _model(self) -> str:
        return "local" if self._part == MODEL_TURN else "mock"

    def _text(self, seed: str) -> str:
        if self._part == MODEL_TURN:
            return QUESTION
        return words(self._scale.echo_words, seed)
