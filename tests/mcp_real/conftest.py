"""The home of the stories with MCP servers: one for each test, ended with it."""

from tests.daemon.conftest import home as home
