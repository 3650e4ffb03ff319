"""Providers that are servers, made of their sections and keys.

The HTTP client that they need is a fifth of what a daemon imports, so it is loaded with the first.
"""

import logging
from collections.abc import Mapping

from clawd.config.schema import ProviderSection
from clawd.config.secrets import provider_key
from clawd.errors import ConfigError
from clawd.providers.base import Provider
from clawd.providers.retry import RetrySettings
from clawd.providers.unavailable import UnavailableProvider

REMOTE_KINDS = frozenset({"openai-compatible", "anthropic"})

_log = logging.getLogger(__name__)


def remote_provider(
    name: str, section: ProviderSection, environ: Mapping[str, str], retry: RetrySettings
) -> Provider:
    """Return the provider of a section; one that says why where its key is not to be had."""
    try:
        key = provider_key(name, section, environ) or ""
    except ConfigError as error:
        _log.warning("a provider is not available: %s", error.message)
        return UnavailableProvider(name, error)
    if section.kind == "anthropic":
        return _anthropic(name, section, retry, key)
    return _openai(name, section, retry, key)


def _openai(name: str, section: ProviderSection, retry: RetrySettings, key: str) -> Provider:
    from clawd.providers.openai_compatible import OpenAICompatibleProvider, OpenAISettings

    settings = OpenAISettings(
        name=name,
        base_url=section.base_url,
        model=section.model,
        stream=section.stream,
        use_tool_role=section.use_tool_role,
        tools=section.tools,
        connect_timeout_s=section.connect_timeout_s,
        first_byte_timeout_s=section.first_byte_timeout_s,
        read_timeout_s=section.timeout_s,
        retry=retry,
    )
    return OpenAICompatibleProvider(settings, api_key=key)


def _anthropic(name: str, section: ProviderSection, retry: RetrySettings, key: str) -> Provider:
    from clawd.providers.anthropic import AnthropicProvider, AnthropicSettings
    from clawd.providers.anthropic_request import Dialect

    settings = AnthropicSettings(
        name=name,
        base_url=section.base_url,
        model=section.model,
        dialect=Dialect(
            max_tokens=section.max_tokens,
            stream=section.stream,
            thinking=section.thinking,
            use_tool_role=section.use_tool_role,
        ),
        tools=section.tools,
        connect_timeout_s=section.connect_timeout_s,
        first_byte_timeout_s=section.first_byte_timeout_s,
        read_timeout_s=section.timeout_s,
        retry=retry,
    )
    return AnthropicProvider(settings, api_key=key)
