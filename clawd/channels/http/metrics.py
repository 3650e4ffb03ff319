"""`GET /metrics`: what is counted, as Prometheus text 0.0.4. The library is loaded when asked."""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

from aiohttp import web
from typing_extensions import override

from clawd.channels.http.app import COUNTS, GATEWAY, RequestCounts, caller_of
from clawd.wire.daemon import MetricFamily, MetricSample, MetricSpread, ShowMetrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


async def metrics(request: web.Request) -> web.Response:
    """Return all numbers of the daemon and of the gateway."""
    report = await request.app[GATEWAY].invoke(ShowMetrics(), caller_of(request).principal)
    families = (*report.families, *families_of(request.app[COUNTS]))
    text = await asyncio.to_thread(text_of, families)
    return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE})


def families_of(counts: RequestCounts) -> tuple[MetricFamily, ...]:
    """Return the numbers of the gateway."""
    tally = counts.requests
    requests = tuple(
        MetricSample(labels=dict(zip(tally.labels, key, strict=True)), value=count)
        for key, count in tally.values().items()
    )
    spreads = tuple(
        MetricSpread(
            count=seconds.count,
            sum=seconds.sum,
            buckets=seconds.cumulative(),
            labels={"route": route},
        )
        for route, seconds in counts.seconds.items()
    )
    return (
        MetricFamily(
            name="clawd_http_requests_total",
            kind="counter",
            help="Requests, by route and status; 499 is a client that left.",
            samples=requests,
        ),
        MetricFamily(
            name="clawd_http_request_seconds",
            kind="histogram",
            help="How long requests took, by route.",
            spreads=spreads,
        ),
        _gauge("clawd_http_requests_open", "Requests that are being answered.", counts.open),
        _gauge("clawd_http_streams_open", "Of these, answers in pieces.", counts.streams),
    )


def text_of(families: Sequence[MetricFamily]) -> bytes:
    """Return families as Prometheus text 0.0.4."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.registry import Collector

    class Reported(Collector):
        """Gives what was reported."""

        @override
        def collect(self) -> Iterator[Metric]:
            for family in families:
                names = _labels(family.samples or family.spreads)
                if family.kind == "histogram":
                    histogram = HistogramMetricFamily(family.name, family.help, labels=names)
                    for spread in family.spreads:
                        values = [spread.labels[name] for name in names]
                        histogram.add_metric(values, _buckets(spread), spread.sum)
                    yield histogram
                    continue
                kind = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
                plain = kind(family.name, family.help, labels=names)
                for sample in family.samples:
                    plain.add_metric([sample.labels[name] for name in names], sample.value)
                yield plain

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Reported())
    return generate_latest(registry)


def _gauge(name: str, about: str, value: float) -> MetricFamily:
    sample = MetricSample(value=float(value))
    return MetricFamily(name=name, kind="gauge", help=about, samples=(sample,))


def _labels(measured: Iterable[MetricSample | MetricSpread]) -> list[str]:
    return list(next((each.labels for each in measured), {}))


def _buckets(spread: MetricSpread) -> list[tuple[str, float]]:
    return [*((str(bound), count) for bound, count in spread.buckets), ("+Inf", spread.count)]


ROUTES = [web.get("/metrics", metrics)]
